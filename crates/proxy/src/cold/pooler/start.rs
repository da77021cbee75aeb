//! The start, before the first client: limits, listening sockets, threads.

use std::{
    io, mem,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::{Arc, Mutex, RwLock, mpsc as mpsc_blocking},
    thread::{self, JoinHandle},
};

use config::{Config, Node};
use engine::{averages::Averages, ids::WorkerId, journal::EventKind, records::NodeRecord};
use tokio::{
    runtime::Runtime,
    sync::{mpsc, watch},
};

use super::{Exit, StartError, StartOptions, cold::Cold};
use crate::{
    cold::{
        cluster::Clusters,
        controller::{Control, Controller, ReloadResult},
        dns::Dns,
        doors::Doors,
        files, handshake,
        listen::{self, ListenError},
        passwords::Passwords,
        service::Service,
        takeover::{adopt, late, receive::Handover},
    },
    data::worker::Worker,
    debug,
    exchange::{
        handshakes::Handshakes,
        hub::lock,
        listener::Listener,
        shared::{Origin, Shared},
    },
    holder::Held,
    lobby,
    lobby::{Predecessor, Succession, Unnamed},
    log, warning,
};
use net::{
    sys::{process, signal},
    tls::TlsContexts,
};

/// More workers would be a mistake in the configuration.
const WORKERS_MAX: u32 = 1024;

/// The signals that Weir handles.
const SIGNALS: [libc::c_int; 6] =
    [libc::SIGHUP, libc::SIGTERM, libc::SIGINT, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

/// Aborts when a thread panics. Its connections, and perhaps a pool, are in an unknown state, and
/// other threads would wait for it forever.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

/// Gives clusters the nodes that another process has found.
fn resume_nodes(config: &mut Config, found: Vec<(String, Vec<NodeRecord>)>) {
    for (name, nodes) in found {
        let cluster = config.clusters.get_mut(&name);
        if let Some(cluster) = cluster.filter(|cluster| cluster.is_discovered()) {
            cluster.nodes = nodes.into_iter().map(Node::from).collect();
        }
    }
}

pub(super) fn start(
    mut config: Config,
    options: StartOptions,
) -> Result<(Controller, JoinHandle<Exit>), StartError> {
    raise_file_limit(&mut config);
    // Before the first thread, because threads inherit the blocked signals, and before a client can
    // notice that Weir runs.
    let signals = if options.signals { Some(signal::divert(&SIGNALS)?) } else { None };
    let Service { listeners, notifier } = options.service;
    let mut handover = options.handover;
    let origin = handover.as_ref().map_or_else(Origin::new, |own| Origin::of(&own.handover_state));
    let (mut passwords, mut detached) = (Vec::new(), None);
    if let Some(handover) = &mut handover {
        resume_nodes(&mut config, mem::take(&mut handover.handover_state.clusters));
        passwords = mem::take(&mut handover.handover_state.passwords);
        detached = Some(mem::take(&mut handover.handover_state.detached));
    }
    let listeners = listen_on(&config, listeners, handover.as_mut())?;

    let dns = Dns::new(&config.global);
    let tls = match options.tls {
        Some(ready) => ready,
        None => TlsContexts::load(&config)?,
    };
    let config = Arc::new(config);
    let (requests_in, requests) = mpsc::unbounded_channel();
    let (orders_in, orders) = mpsc::unbounded_channel();
    let count = worker_count(&config);
    let (handshakes, queues) = Handshakes::new(count);
    let workers = (count, config.global.session_schedule);
    let shared = Arc::new(Shared::new(workers, origin, listeners, requests_in, tls, handshakes)?);
    lock(&shared.ended).keep(config.global.connection_timings);
    let began = shared.clock.now();
    let control = Control {
        shared: Arc::clone(&shared),
        config: RwLock::new(Arc::clone(&config)),
        config_path: options.config_path,
        reloading: Mutex::default(),
        averages: RwLock::new(Arc::new(Averages::new(began))),
        recorder: Mutex::default(),
        notifier,
        dns,
        reload: Mutex::new(ReloadResult { succeeded: true, success_at: began }),
        doors: Doors::default(),
        clusters: Clusters::new(detached),
        passwords: Passwords::new(passwords),
        orders: orders_in,
        ended: watch::Sender::new(false),
    };
    let controller = Controller(Arc::new(control));

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let cold = Cold {
        controller: controller.clone(),
        requests,
        orders,
        signals,
        console: options.console,
        metrics: options.metrics,
        pcp: options.pcp,
    };
    for (at, queue) in queues.into_iter().enumerate() {
        let ended = controller.0.ended.subscribe();
        handshake::start(at, queue, Arc::clone(&shared), ended)?;
    }
    let succeeds = handover.as_ref().is_some_and(|handover| !handover.is_held);
    let (lobby_place, mut lobbies) = prepare_lobbies(&config, &shared, (options.held, &handover))?;
    let mut workers = make_workers(&shared, &config)?;
    // Everything that may fail is done before the take-over, which cannot be undone.
    let (places, threads) =
        (0..count).map(start_worker).collect::<io::Result<(Vec<_>, Vec<_>)>>()?;
    let (go, cold) = start_cold(cold, runtime, threads)?;
    if let Some(handover) = handover {
        let heirs = (&mut workers[..], lobbies.as_mut().map(|(lobbies, _)| lobbies));
        let stream = inherit(handover, &shared, &config, heirs).map_err(StartError::TakeOver)?;
        // Before the workers serve: a cancel request may be their first mail.
        if succeeds {
            follow(stream, &shared);
        }
    }
    begin_lobbies(&lobby_place, lobbies);
    for (at, (place, worker)) in places.into_iter().zip(workers).enumerate() {
        // The thread waits for nothing else.
        let _ = place.send(worker);
        debug!("worker {at} serves");
    }
    log!("process up: {}, epoll, workers: {count}", config::version());
    announce(&controller, succeeds);
    let _ = go.send(());
    Ok((controller, cold))
}

/// Starts the thread of the cold side, which begins when it is told to. `threads`: the workers'.
fn start_cold(
    cold: Cold,
    runtime: Runtime,
    threads: Vec<JoinHandle<()>>,
) -> io::Result<(mpsc_blocking::Sender<()>, JoinHandle<Exit>)> {
    let (go, started) = mpsc_blocking::channel();
    let thread = thread::Builder::new().name("weir-cold".to_owned()).spawn(move || {
        let _guard = AbortOnPanic;
        match started.recv() {
            Ok(()) => cold.run(runtime, threads),
            Err(_) => Exit::Immediate,
        }
    })?;
    Ok((go, thread))
}

fn follow(stream: UnixStream, shared: &Arc<Shared>) {
    if let Err(error) = late::follow(stream, shared) {
        warning!("the old process keeps its busy clients: {error}");
    }
}

/// Returns the change from the holder of a process that was killed, if there was one, to our own.
fn succession(held: Option<Held>, handover: Option<&Handover>) -> io::Result<Option<Succession>> {
    let killed = handover.filter(|handover| handover.is_held);
    let before = killed.map(|handover| {
        let deaths = handover.handover_state.deaths;
        handover.connection().map(|connection| Predecessor { connection, deaths })
    });
    let before = before.transpose()?;
    Ok(held.map(|held| Succession::new(held, before)))
}

/// Takes the sockets of the process before, or of the service manager, or opens its own.
fn listen_on(
    config: &Config,
    inherited: Vec<OwnedFd>,
    handover: Option<&mut Handover>,
) -> Result<Vec<Listener>, ListenError> {
    let Some(own) = handover.filter(|handover| !handover.is_held) else {
        return listen::open_all(&config.global, inherited);
    };
    let managed = own.handover_state.managed_sockets;
    Ok(listen::take_over(&config.global, mem::take(&mut own.listeners), managed))
}

/// Records the start, and tells the service manager that Weir serves.
fn announce(controller: &Controller, succeeds: bool) {
    let kind = if succeeds { EventKind::Restart } else { EventKind::Start };
    controller.note(kind, &config::version());
    match succeeds {
        true => controller.0.notifier.succeeded(),
        false => controller.0.notifier.ready(),
    }
}

/// Returns the configured number; 0 is one for every two processors, since PostgreSQL needs some as
/// well.
pub(crate) fn worker_count(config: &Config) -> u16 {
    let wanted = match config.global.workers {
        0 => thread::available_parallelism().map_or(1, usize::from) as u32 / 2,
        wanted => wanted,
    };
    wanted.clamp(1, WORKERS_MAX) as u16
}

/// Takes the connections of another process. They are not used before that process agrees.
fn inherit(
    handover: Handover,
    shared: &Shared,
    config: &Config,
    heirs: (&mut [Worker], Option<&mut lobby::Service>),
) -> io::Result<UnixStream> {
    let (stream, handover_state, fds, lobbies) = handover.into_parts();
    let taken = adopt::adopt(heirs, shared, config, handover_state, (fds, lobbies))?;
    Handover::accept(&stream, &taken)?;
    shared.listeners.iter().for_each(Listener::own);
    Ok(stream)
}

fn make_workers(shared: &Arc<Shared>, config: &Arc<Config>) -> io::Result<Vec<Worker>> {
    let ids = (0..shared.hub.worker_count()).map(WorkerId);
    ids.map(|id| {
        let mut worker = Worker::new(id, Arc::clone(shared), Arc::clone(config));
        worker.watch().map(|()| worker)
    })
    .collect()
}

/// The lobbies, and the socket to which backends connect.
type Lobbies = (lobby::Service, Unnamed);

/// Opens the lobbies, if the configuration has a socket for them, and starts their thread, which
/// waits for them. It ends with the process.
fn prepare_lobbies(
    config: &Config,
    shared: &Arc<Shared>,
    (held, handover): (Option<Held>, &Option<Handover>),
) -> io::Result<(mpsc_blocking::Sender<lobby::Service>, Option<Lobbies>)> {
    let (place, lobbies) = mpsc_blocking::channel::<lobby::Service>();
    let succession = succession(held, handover.as_ref())?;
    let opened = lobby::open(config, shared, succession, handover.is_some())?;
    if opened.is_some() {
        let thread = thread::Builder::new().name("weir-lobby".to_owned());
        drop(thread.spawn(move || {
            let _guard = AbortOnPanic;
            if let Ok(lobbies) = lobbies.recv() {
                lobbies.run();
            }
        })?);
    }
    Ok((place, opened))
}

/// Gives the lobbies to their thread, and their socket its name: the predecessor's pools are taken
/// over.
fn begin_lobbies(place: &mpsc_blocking::Sender<lobby::Service>, lobbies: Option<Lobbies>) {
    let Some((lobbies, unnamed)) = lobbies else { return };
    // Before the thread looks at the name.
    if let Err(error) = unnamed.publish() {
        warning!("direct_socket: PostgreSQL's backends cannot connect: {error}");
    }
    // The thread waits for nothing else.
    let _ = place.send(lobbies);
}

/// Starts a thread that waits for its worker, and ends if none comes.
fn start_worker(id: u16) -> io::Result<(mpsc_blocking::Sender<Worker>, JoinHandle<()>)> {
    let (place, worker) = mpsc_blocking::channel::<Worker>();
    let thread = thread::Builder::new().name(format!("weir-worker-{id}")).spawn(move || {
        let _guard = AbortOnPanic;
        if let Ok(worker) = worker.recv() {
            worker.run();
        }
    })?;
    Ok((place, thread))
}

fn raise_file_limit(config: &mut Config) {
    let (limit, hard) = match process::raise_file_limit() {
        Ok(limits) => limits,
        Err(error) => return warning!("cannot read the file descriptor limit: {error}"),
    };
    let (clients, expected) = (config.global.max_client_conn, files::expected(config));
    log!(
        "kernel file descriptor limit: {limit} (hard: {hard}); max_client_conn: {clients}, max \
         expected fd use: {expected}"
    );
    if let Some(what) = files::bound_clients(config, limit) {
        warning!("{what}");
    }
    // A failure does no harm: the table grows when needed.
    let _ = process::make_room_for_files(expected.min(limit));
}
