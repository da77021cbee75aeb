//! The old process hands over connections at rest, and forgets them when the new process has
//! confirmed. Busy clients follow as soon as they come to rest, for up to `suspend_timeout`. The
//! remaining clients are served here until they leave; then this process ends.
//!
//! ```text
//!  serving ── request ──► quiescing (QUIESCE_MAX) ─► still ─┬─► leaving ──► draining ──► end
//!     ▲                                                │     │ ▲
//!     └────────────────────── failure ─────────────────┘     └─┘ still, a few milliseconds at a time
//! ```

use std::{
    collections::{HashMap, HashSet},
    fmt, io,
    os::{
        fd::{AsRawFd as _, RawFd},
        unix::net::UnixStream,
    },
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use config::{Cluster, Config};
use engine::{
    ids::PoolId,
    pool::Pool,
    records::{ClientRecord, HandoverState, NodeRecord, PoolRecord, Usage, UsageRecord},
    shell::OtherProcess,
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};

use super::{line, lobbies, state::head};
use crate::{
    Peer,
    cold::controller::{Controller, Shutdown, orders::LOOK},
    exchange::{
        hub::lock,
        lines::{Letter, Line},
        lobby_door::LobbyExport,
        mail::ShellMail,
        reports::{Rest, WorkerExport},
        requests::ConsoleConnection,
        shared::Shared,
        transport::Transport,
    },
    frame::{PATIENCE, REFUSAL, REQUEST, read_frame, request, write_fds, write_frame},
    log, warning,
};
use net::{random, sys::process};

/// The time that short queries have to end before the first hand-over: all clients wait meanwhile.
const QUIESCE_MAX: Duration = Duration::from_millis(50);
/// The time that servers have to come to their lobbies. Clients are served meanwhile.
const SETTLE_MAX: Duration = Duration::from_secs(2);
const QUIESCE_LOOK: Duration = Duration::from_millis(2);
/// The interval at which the other process is told the number of servers in use here, if it has
/// changed.
const USAGE_LOOK: Duration = Duration::from_millis(200);

/// The answers of the other process: letter and text.
type Answers = mpsc::UnboundedReceiver<(u8, Vec<u8>)>;

/// Is this a new process, and not an operator?
pub(crate) fn is_request(connection: &ConsoleConnection) -> bool {
    let is_ours = matches!(connection.peer, Peer::Unix { uid: Some(uid), .. } if uid == process::effective_uid());
    is_ours && connection.login.unread.starts_with(REQUEST.as_bytes())
}

/// Why the hand-over failed.
enum Failure {
    /// The new process is told this reason.
    Refused(String),
    /// The new process is lost, or has sent something invalid.
    Lost(io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => f.write_str(why),
            Self::Lost(error) => error.fmt(f),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

/// Hands everything over. If that fails, this process continues as before.
pub(crate) async fn give(controller: Controller, connection: ConsoleConnection) {
    log!("another process asks to take over");
    let began = Instant::now();
    let stream = UnixStream::from(connection.fd);
    let asked = open(&stream, &connection.login.unread)
        .and_then(|()| refuse_outsider(&controller, &connection.peer))
        .and_then(|()| claim(&controller));
    if let Err(failure) = asked {
        return tell(&stream, &failure);
    }
    let failure = match settle_and_hold(&controller).await {
        Ok(()) => match hand_over(&controller, &stream).await {
            Ok((successor, handed)) => {
                let took = began.elapsed().as_millis();
                log!("process {successor} has taken over");
                let stay = controller.totals().await.clients.logged_in();
                log!("handed {handed} to {successor} in {took} ms; {stay} stay");
                return give_rest(&controller, stream, successor).await;
            }
            Err(error) => {
                go_on(&controller);
                error
            }
        },
        Err(error) => {
            lobbies::thaw(&controller.0.shared);
            controller.0.clusters.take_back();
            error
        }
    };
    controller.0.shared.is_giving.store(false, Ordering::Release);
    tell(&stream, &failure);
}

/// A process outside of this one's unit could not serve under the service manager.
fn refuse_outsider(controller: &Controller, peer: &Peer) -> Result<(), Failure> {
    let Peer::Unix { pid, .. } = *peer else { return Ok(()) };
    let Some(unit) = controller.0.notifier.unit_without(pid) else { return Ok(()) };
    Err(Failure::Refused(format!(
        "it is the main process of {unit}, and process {pid} is not in that unit; use \"weir-replace \
         {unit}\""
    )))
}

/// Only one process at a time may take over, and nobody after it: then this process has nothing left
/// to give.
fn claim(controller: &Controller) -> Result<(), Failure> {
    match controller.0.shared.is_giving.swap(true, Ordering::AcqRel) {
        false => Ok(()),
        true => Err(Failure::Refused("another process takes over".to_owned())),
    }
}

fn tell(stream: &UnixStream, failure: &Failure) {
    match failure {
        Failure::Refused(why) => {
            warning!("take-over refused: {why}");
            let _ = write_frame(stream, REFUSAL, why.as_bytes());
        }
        Failure::Lost(error) => warning!("take-over failed, this process continues: {error}"),
    }
}

fn open(stream: &UnixStream, said: &[u8]) -> Result<(), Failure> {
    process::set_blocking(stream.as_raw_fd())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    if said == request().as_bytes() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(said);
    Err(Failure::Refused(format!("the versions differ: \"{said}\" is not \"{}\"", request())))
}

/// Waits until no server is on its way to a lobby, and holds the pools. The clients of a lobby whose
/// server takes too long stay with this process.
async fn settle_and_hold(controller: &Controller) -> Result<(), Failure> {
    until_settled(&controller.0.shared, Instant::now() + SETTLE_MAX).await;
    hold(controller)
}

/// Waits until no server is on its way to a lobby, as far as the workers have told the lobbies now.
async fn until_settled(shared: &Shared, end: Instant) {
    shared.lobby.settle();
    while !shared.lobby.settled.load(Ordering::Acquire) && Instant::now() < end {
        sleep(QUIESCE_LOOK).await;
    }
}

/// Holds the pools: no server is linked from now on. No primary of a cluster is changed either.
fn hold(controller: &Controller) -> Result<(), Failure> {
    let shared = &controller.0.shared;
    if shared.draining.load(Ordering::Acquire) {
        return Err(Failure::Refused("pooler is shutting down".to_owned()));
    }
    let clusters = &controller.0.clusters;
    clusters.cede().map_err(Failure::Refused)?;
    shared.hub.switch(|switches| {
        let paused = switches.paused_databases().collect::<Vec<_>>().join(", ");
        if switches.is_halted() || !paused.is_empty() {
            let halted = "already suspended/paused";
            return Err(Failure::Refused(match paused.as_str() {
                "" => halted.to_owned(),
                names => format!("{halted}: RESUME ends the PAUSE of {names}"),
            }));
        }
        switches.held = true;
        Ok(())
    })
}

/// The number of connections that go to the other process.
#[derive(Clone, Copy, Debug)]
struct Handed {
    clients: usize,
    servers: usize,
}

impl Handed {
    /// `lobbies`: those that the other process has taken.
    fn with(mut self, lobbies: &[LobbyExport]) -> Self {
        self.clients += lobbies.iter().map(|lobby| lobby.record.guests.len()).sum::<usize>();
        self.servers += lobbies::servers(lobbies).len();
        self
    }

    fn count(exports: &[WorkerExport]) -> Self {
        let records = || exports.iter().map(|export| &export.records);
        let linked = |client: &&ClientRecord| client.server.is_some();
        let in_use = records().flat_map(|records| &records.clients).filter(linked).count();
        Self {
            clients: records().map(|records| records.clients.len()).sum(),
            servers: in_use + records().map(|records| records.parked.len()).sum::<usize>(),
        }
    }
}

impl fmt::Display for Handed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count| if count == 1 { "" } else { "s" };
        let Self { clients, servers } = *self;
        write!(f, "{clients} client{}, {servers} server{}", plural(clients), plural(servers))
    }
}

async fn hand_over(controller: &Controller, stream: &UnixStream) -> Result<(u32, Handed), Failure> {
    write_frame(stream, b'W', b"")?;
    quiesce(controller).await;
    let epochs = epochs(controller);
    let mut exports = export(controller).await;
    let control = &controller.0;
    // The workers keep still: no client is on its way to a lobby.
    let mut lobbies = lobbies::export(&control.shared).await;
    lobbies = lobbies::match_servers(lobbies, &mut exports);
    let handed = Handed::count(&exports);
    let package = pack(controller, exports, Some(&lobbies))?;
    let their = stream.try_clone()?;
    let sent = tokio::task::spawn_blocking(move || send(&their, &package));
    let (successor, taken) = sent.await.map_err(io::Error::other)??;
    refuse_if_changed(controller, &epochs)?;
    let mut taken = taken.into_iter();
    lobbies.retain(|_| taken.next().is_some_and(|is_taken| is_taken != 0));
    cede(controller, lobbies::servers(&lobbies)).await;
    lobbies::cede(&control.shared, lobbies.iter().map(|lobby| lobby.pool).collect()).await;
    let handed = handed.with(&lobbies);
    // Statements prepared here from now on must not be confused with those of the other process.
    let mut range = [0; 4];
    random::fill(&mut range);
    control.shared.hub.number_from(u64::from(u32::from_be_bytes(range) | 1) << 31);
    control.shared.listeners.iter().for_each(|listener| listener.abandon());
    // The new process opens the HTTP address when it is told to go on.
    control.doors.shut().await;
    // From here on there is no way back: if the other process has died, all connections are lost.
    // The service manager is told the successor before the successor reports that it is ready.
    control.notifier.retire(successor);
    control.shared.lobby.give_up_name();
    let _ = write_frame(stream, b'G', b"");
    leave(controller);
    Ok((successor, handed))
}

/// Sends everything. Returns the process id of the other process, and for each lobby whether that
/// process takes it.
fn send(stream: &UnixStream, package: &Package) -> io::Result<(u32, Vec<u8>)> {
    write_frame(stream, b'S', &package.body)?;
    package.fds.iter().try_for_each(|part| write_fds(stream, part))?;
    let (letter, answer) = read_frame(stream)?;
    let pid = answer.split_first_chunk().filter(|_| letter == b'A');
    let (pid, taken) = pid.ok_or(io::ErrorKind::InvalidData)?;
    if taken.len() != package.lobbies {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok((u32::from_be_bytes(*pid), taken.to_vec()))
}

/// Refuses to hand over if an order came after the export, which the other process does not know.
fn refuse_if_changed(
    controller: &Controller,
    epochs: &HashMap<PoolId, u64>,
) -> Result<(), Failure> {
    if controller.0.shared.draining.load(Ordering::Acquire) {
        // Servers that the other process has recorded may have been closed.
        return Err(Failure::Refused("pooler is shutting down".to_owned()));
    }
    let is_another =
        |(pool, epoch): (&PoolId, &u64)| epochs.get(pool).is_some_and(|was| was != epoch);
    if self::epochs(controller).iter().any(is_another) {
        return Err(Failure::Refused("servers must be replaced first".to_owned()));
    }
    Ok(())
}

/// Has the workers forget everything that they exported; of the servers of direct pools, those with
/// these serial numbers.
async fn cede(controller: &Controller, servers: HashSet<u64>) {
    let (done, mut all_done) = mpsc::unbounded_channel();
    let servers = Arc::new(servers);
    controller.0.shared.tell_all(|| ShellMail::Cede(Arc::clone(&servers), done.clone()));
    drop(done);
    while all_done.recv().await.is_some() {}
}

/// Links servers again, for logins and for clients that cannot move. Other clients are not read,
/// and move when they have come to rest.
fn leave(controller: &Controller) {
    let shared = &controller.0.shared;
    let _ = shared.hub.switch(|switches| {
        switches.held = false;
        Ok::<(), ()>(())
    });
    shared.tell_all(|| ShellMail::Thaw);
    shared.tell_all(|| ShellMail::Leave);
    shared.tell_all(|| ShellMail::Review);
}

/// Lets short queries end, so that most clients move at once. All clients wait meanwhile, so the
/// time is short.
async fn quiesce(controller: &Controller) {
    let end = Instant::now() + QUIESCE_MAX;
    let shared = &controller.0.shared;
    shared.gauges.iter().for_each(|gauge| gauge.quiet.store(false, Ordering::Release));
    shared.tell_all(|| ShellMail::Freeze);
    let is_quiet = || shared.gauges.iter().all(|gauge| gauge.quiet.load(Ordering::Acquire));
    while !is_quiet() && Instant::now() < end {
        sleep(QUIESCE_LOOK).await;
    }
    // A worker may have opened another server for a lobby before it was quiet.
    until_settled(shared, Instant::now() + QUIESCE_MAX).await;
}

/// Gives away the clients that were busy, as they come to rest. Then this process drains.
async fn give_rest(controller: &Controller, stream: UnixStream, successor: u32) {
    let (said, mut answers) = mpsc::unbounded_channel();
    let hear = move |letter, body, _: &UnixStream| {
        said.send((letter, body)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    };
    let shared = &controller.0.shared;
    let line = line::open(stream, shared, OtherProcess::Successor, hear, || {});
    if let Err(error) = &line {
        warning!("busy clients stay with this process: {error}");
    }
    if let Ok(line) = &line {
        let patience = controller.config().global.suspend_timeout;
        let end = Instant::now() + patience;
        let mut told = None;
        while Instant::now() < end && !answers.is_closed() {
            tell_usage(controller, line, &mut told);
            let rest = rest(controller).await;
            if !rest.is_awaited || shared.draining.load(Ordering::Acquire) {
                break;
            }
            if rest.can_move
                && let Err(failure) =
                    hand_over_more(controller, line, &mut answers, successor).await
            {
                warning!("busy clients stay with this process: {failure}");
                break;
            }
            sleep(LOOK).await;
        }
        tokio::spawn(keep_telling_usage(controller.clone(), line.clone(), told, answers));
    }
    shared.tell_all(|| ShellMail::Thaw);
    let _ = controller.0.orders.send(Shutdown::TakenOver);
}

async fn hand_over_more(
    controller: &Controller,
    line: &Line,
    answers: &mut Answers,
    successor: u32,
) -> Result<(), Failure> {
    hold(controller)?;
    let epochs = epochs(controller);
    let mut exports = export(controller).await;
    // Lobbies that were not taken stay here.
    lobbies::match_servers(Vec::new(), &mut exports);
    let handed = Handed::count(&exports);
    let result = match offer(controller, exports, line, answers).await {
        Ok(()) => refuse_if_changed(controller, &epochs),
        Err(failure) => Err(failure),
    };
    match result {
        Ok(()) => {
            cede(controller, HashSet::new()).await;
            line.send(Letter::Frame(b'G', Vec::new()));
            log!("handed {handed} to {successor} that had been busy");
        }
        // The other process must not wait for an answer that never comes.
        Err(_) => line.cut(),
    }
    leave(controller);
    result
}

async fn offer(
    controller: &Controller,
    exports: Vec<WorkerExport>,
    line: &Line,
    answers: &mut Answers,
) -> Result<(), Failure> {
    let Package { body, fds, .. } = pack(controller, exports, None)?;
    line.send(Letter::State(body, fds.concat()));
    match timeout(PATIENCE, answers.recv()).await {
        Ok(Some((b'A', _))) => Ok(()),
        Ok(Some((_, why))) => Err(Failure::Refused(String::from_utf8_lossy(&why).into_owned())),
        Ok(None) => Err(Failure::Lost(io::ErrorKind::UnexpectedEof.into())),
        Err(_) => Err(Failure::Lost(io::ErrorKind::TimedOut.into())),
    }
}

/// Returns how far the clients of all workers have come to rest.
async fn rest(controller: &Controller) -> Rest {
    let (reply, mut answers) = mpsc::unbounded_channel();
    controller.0.shared.tell_all(|| ShellMail::Rest(reply.clone()));
    drop(reply);
    let mut all = Rest::default();
    while let Some(Rest { can_move, is_awaited }) = answers.recv().await {
        all.can_move |= can_move;
        all.is_awaited |= is_awaited;
    }
    all
}

/// Tells the other process the number of servers in use here, which counts against its own pools'
/// sizes.
fn tell_usage(controller: &Controller, line: &Line, told: &mut Option<Usage>) {
    let pools = controller.0.shared.hub.pools();
    let records = pools.iter().map(|pool| {
        let pool = lock(pool);
        let (database, user) = (pool.key.database.clone(), pool.key.user.clone());
        UsageRecord { database, user, servers: pool.in_use() }
    });
    let usage = Usage(records.filter(|record| record.servers > 0).collect());
    if told.as_ref() != Some(&usage)
        && let Ok(bytes) = usage.to_bytes()
    {
        line.send(Letter::Frame(b'U', bytes));
        *told = Some(usage);
    }
}

/// Does so until this process or the other one ends.
async fn keep_telling_usage(
    controller: Controller,
    line: Line,
    mut told: Option<Usage>,
    answers: Answers,
) {
    while !answers.is_closed() {
        tell_usage(&controller, &line, &mut told);
        sleep(USAGE_LOOK).await;
    }
}

/// Returns the epochs of the pools. They change when servers are to be replaced (RECONNECT,
/// RELOAD). A pool that is created meanwhile has nothing that was handed over.
fn epochs(controller: &Controller) -> HashMap<PoolId, u64> {
    let pools = controller.0.shared.hub.pools();
    let epoch = |pool: &Arc<Mutex<Pool<Transport>>>| {
        let pool = lock(pool);
        (pool.id, pool.epoch())
    };
    pools.iter().map(epoch).collect()
}

async fn export(controller: &Controller) -> Vec<WorkerExport> {
    let (reply, mut answers) = mpsc::unbounded_channel();
    controller.0.shared.tell_all(|| ShellMail::Export(reply.clone()));
    drop(reply);
    let mut exports = Vec::new();
    while let Some(export) = answers.recv().await {
        exports.push(export);
    }
    exports.sort_by_key(|export: &WorkerExport| export.worker);
    exports
}

/// The state and the descriptors for the other process.
struct Package {
    /// The counts of descriptors, and the state.
    body: Vec<u8>,
    /// Parts that are sent one by one: listening sockets and those of the workers, and two parts
    /// for each lobby.
    fds: Vec<Vec<RawFd>>,
    lobbies: usize,
}

/// `lobbies`: of the first hand-over, to which the listening sockets belong, too.
fn pack(
    controller: &Controller,
    exports: Vec<WorkerExport>,
    lobbies: Option<&[LobbyExport]>,
) -> Result<Package, Failure> {
    let shared = &controller.0.shared;
    let slots = shared.hub.slots();
    let pools = slots.iter().map(|slot| slot.as_ref().map(|pool| PoolRecord::of(&lock(pool))));
    let names = exports.first().map_or_else(Vec::new, |export| export.names.clone());
    let mut handover_state = HandoverState {
        now: shared.clock.now(),
        seed: shared.seed,
        names,
        statements: shared.hub.numbering(),
        connections: shared.hub.connections(),
        pools: pools.collect(),
        disabled: shared.hub.switches().disabled().cloned().collect(),
        primaries: shared.hub.switches().records(),
        memberships: controller.memberships(),
        addresses: shared.hub.switches().addresses(),
        clusters: found_nodes(&controller.config()),
        detached: controller.0.clusters.detached(),
        managed_sockets: shared.listeners.iter().any(|listener| listener.is_managed()),
        deaths: 0,
        worker_records: Vec::new(),
        lobbies: lobbies.unwrap_or_default().iter().map(|lobby| lobby.record.clone()).collect(),
        passwords: controller.0.passwords.records(),
    };
    let open = shared.listeners.iter();
    let open = open.filter(|listener| lobbies.is_some() && listener.is_open());
    let mut fds: Vec<_> = open.map(|listener| listener.fd()).collect();
    let listeners = fds.len();
    for export in exports {
        handover_state.worker_records.push(export.records);
        fds.extend(export.fds);
        fds.extend(export.attending_fds);
    }
    let head = head(listeners, fds.len() - listeners);
    let state = handover_state.to_bytes().map_err(io::Error::other)?;
    let lobbies = lobbies.unwrap_or_default();
    let mut parts = vec![fds];
    for LobbyExport { record, fds, .. } in lobbies {
        let (head, guests) = fds.split_at(record.head_len());
        parts.extend([head.to_vec(), guests.to_vec()]);
    }
    let body = [&head, &state[..]].concat();
    Ok(Package { body, fds: parts, lobbies: lobbies.len() })
}

/// Returns the clusters whose nodes were found, with these nodes.
fn found_nodes(config: &Config) -> Vec<(String, Vec<NodeRecord>)> {
    let found = config.clusters.iter().filter(|(_, cluster)| cluster.is_discovered());
    let nodes = |cluster: &Cluster| cluster.nodes.iter().map(NodeRecord::from).collect();
    found.map(|(name, cluster)| (name.clone(), nodes(cluster))).collect()
}

/// Continues as before, after nothing was handed over.
fn go_on(controller: &Controller) {
    let shared = &controller.0.shared;
    lobbies::thaw(shared);
    controller.0.clusters.take_back();
    let _ = shared.hub.switch(|switches| {
        switches.held = false;
        Ok::<(), ()>(())
    });
    shared.tell_all(|| ShellMail::Thaw);
    shared.tell_all(|| ShellMail::Review);
}
