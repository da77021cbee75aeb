//! The thread for everything outside the data plane: signals, orders of the console, name lookups,
//! statistics, and shutdown. No worker waits for it.

use std::{
    future,
    os::fd::OwnedFd,
    sync::{Arc, atomic::Ordering},
    thread::JoinHandle,
    time::Duration,
};

use engine::{Drain, journal::EventKind};
use tokio::{
    io::unix::AsyncFd,
    runtime::Runtime,
    sync::mpsc,
    task,
    time::{self, Instant},
};

use super::{ConsoleHandler, Exit, idle, memory, stats, waiting};
use crate::{
    cold::{
        announced, backend_memory, check, cluster,
        controller::{Controller, Shutdown, orders::OrderError},
        http::{self, MetricsPage},
        passwords::renew,
        pcp::{self, PcpHandler},
        recorder, resolve,
        takeover::give,
    },
    error,
    exchange::{
        hub::lock,
        listener,
        lobby_door::LobbyRequest,
        mail::ShellMail,
        requests::{ColdRequest, ConsoleRequest},
        shared::Shared,
    },
    log,
};
use net::sys::signal;

/// The interval at which a draining pooler checks whether it can end.
const DRAIN_LOOK: Duration = Duration::from_millis(20);

pub(super) struct Cold {
    pub(super) controller: Controller,
    pub(super) requests: mpsc::UnboundedReceiver<ColdRequest>,
    pub(super) orders: mpsc::UnboundedReceiver<Shutdown>,
    pub(super) signals: Option<OwnedFd>,
    pub(super) console: Option<ConsoleHandler>,
    pub(super) metrics: Option<MetricsPage>,
    pub(super) pcp: Option<PcpHandler>,
}

impl Cold {
    /// Works until the shutdown, ends the workers, and cleans up.
    pub(super) fn run(mut self, runtime: Runtime, workers: Vec<JoinHandle<()>>) -> Exit {
        let exit = runtime.block_on(self.serve());
        // All tasks end here, including the console's.
        runtime.shutdown_background();
        let control = self.controller.0;
        let shared = &control.shared;
        shared.tell_all(|| ShellMail::Stop);
        shared.lobby.send(LobbyRequest::End);
        for worker in workers {
            // The worker cannot have panicked: the process would have been aborted.
            let _ = worker.join();
        }
        close_rest(shared);
        control.ended.send_replace(true);
        exit
    }

    async fn serve(&mut self) -> Exit {
        let signals = self.signals.take().and_then(|fd| {
            signal::watch(fd).inspect_err(|error| error!("cannot wait for signals: {error}")).ok()
        });
        let stats = tokio::spawn(stats::keep(self.controller.clone()));
        let recorder = tokio::spawn(recorder::keep(self.controller.clone()));
        let idle = tokio::spawn(idle::keep(self.controller.clone()));
        let memory = tokio::spawn(memory::keep(self.controller.clone()));
        let sizes = tokio::spawn(backend_memory::keep(self.controller.clone()));
        let zones = tokio::spawn(resolve::watch_zones(self.controller.clone()));
        let clusters = tokio::spawn(cluster::keep(self.controller.clone()));
        let passwords = tokio::spawn(renew::keep(self.controller.clone()));
        let metrics = self.metrics.take();
        let http = metrics.map(|page| tokio::spawn(http::keep(self.controller.clone(), page)));
        let pcp = self.pcp.take();
        let pcp = pcp.map(|handler| tokio::spawn(pcp::keep(self.controller.clone(), handler)));
        let mut drain = None;
        let mut explained: Option<task::JoinHandle<()>> = None;
        let exit = loop {
            let order = tokio::select! {
                Some(request) = self.requests.recv() => {
                    self.serve_request(request);
                    continue;
                }
                Some(order) = self.orders.recv() => Some(order),
                signal = next_signal(signals.as_ref()) => self.obey(signal, drain),
                exit = drained(self.controller.clone(), drain) => break exit,
            };
            match order {
                None => {}
                Some(Shutdown::Immediate) => break Exit::Immediate,
                Some(how) => {
                    drain = Some(how);
                    self.begin_drain(how);
                    let explains = tokio::spawn(waiting::explain(self.controller.clone(), how));
                    if let Some(before) = explained.replace(explains) {
                        before.abort();
                    }
                }
            }
        };
        self.controller.leave_fleets().await;
        stats.abort();
        recorder.abort();
        idle.abort();
        memory.abort();
        sizes.abort();
        zones.abort();
        clusters.abort();
        passwords.abort();
        for task in http.into_iter().chain(pcp).chain(explained) {
            task.abort();
        }
        exit
    }

    fn serve_request(&mut self, request: ColdRequest) {
        match request {
            ColdRequest::Resolve(question) => {
                resolve::ask(&self.controller, question);
            }
            ColdRequest::Arrival(arrival) => {
                let (shared, config) =
                    (Arc::clone(&self.controller.0.shared), self.controller.config());
                tokio::spawn(announced::receive(arrival, shared, config));
            }
            ColdRequest::Check(inquiry) => {
                tokio::spawn(check::answer(inquiry, self.controller.clone()));
            }
            ColdRequest::Password(request) => renew::ask(&self.controller, request),
            ColdRequest::Console(ConsoleRequest::Connection(connection))
                if give::is_request(&connection) =>
            {
                tokio::spawn(give::give(self.controller.clone(), connection));
            }
            // Without a console, dropping the connection closes it.
            ColdRequest::Console(request) => {
                if let Some(console) = &mut self.console {
                    console(&self.controller, request);
                }
            }
        }
    }

    /// Obeys a signal. Returns the kind of shutdown that it orders.
    fn obey(&self, signal: libc::c_int, drain: Option<Shutdown>) -> Option<Shutdown> {
        let name = match signal {
            libc::SIGTERM => "SIGTERM",
            libc::SIGINT => "SIGINT",
            libc::SIGQUIT => "SIGQUIT",
            libc::SIGHUP => {
                log!("got SIGHUP, re-reading config");
                let notifier = &self.controller.0.notifier;
                notifier.reloading();
                let reloaded = self.controller.reload();
                notifier.ready();
                let controller = self.controller.clone();
                // The faults were logged.
                tokio::spawn(async move { controller.conclude_reload(reloaded).await });
                return None;
            }
            libc::SIGUSR1 => {
                match self.controller.begin_pause() {
                    Ok(()) => {
                        log!("got SIGUSR1, pausing all activity");
                        self.controller.note(EventKind::Order, "PAUSE by SIGUSR1");
                    }
                    Err(_) => log!("got SIGUSR1, but already paused/suspended"),
                }
                return None;
            }
            _ => {
                self.obey_sigusr2();
                return None;
            }
        };
        match (signal, drain) {
            (libc::SIGQUIT, _) => {
                log!("got SIGQUIT, fast exit");
                Some(Shutdown::Immediate)
            }
            (_, Some(_)) => {
                log!("got {name} while shutting down, fast exit");
                Some(Shutdown::Immediate)
            }
            (libc::SIGTERM, None) => {
                log!("got SIGTERM, shutting down, waiting for all clients disconnect");
                Some(Shutdown::WaitForClients)
            }
            (_, None) => {
                log!(
                    "got SIGINT, shutting down, waiting for all servers connections to be released"
                );
                Some(Shutdown::WaitForServers)
            }
        }
    }

    fn obey_sigusr2(&self) {
        let was_suspended = self.controller.is_suspended();
        let resumed = self.controller.resume_all();
        if resumed.is_ok() {
            self.controller.note(EventKind::Order, "RESUME by SIGUSR2");
        }
        match resumed {
            Ok(()) if was_suspended => log!("got SIGUSR2, continuing from SUSPEND"),
            Ok(()) => log!("got SIGUSR2, continuing from PAUSE"),
            Err(OrderError::ShuttingDown) => log!("got SIGUSR2 while shutting down, ignoring"),
            Err(_) => log!("got SIGUSR2, but not paused/suspended"),
        }
    }

    /// Begins a shutdown: no new clients, and the workers are told. The unix socket stays open for
    /// the console, unless a service manager has it.
    fn begin_drain(&self, how: Shutdown) {
        self.controller.0.notifier.stopping();
        let why = match how {
            Shutdown::TakenOver => "another process has taken over",
            Shutdown::WaitForClients => "waits for clients",
            Shutdown::WaitForServers | Shutdown::Immediate => "waits for servers",
        };
        self.controller.note(EventKind::Shutdown, why);
        let shared = &self.controller.0.shared;
        shared.draining.store(true, Ordering::Release);
        // Sockets that another process has must not be shut.
        listener::stop_accepting(&shared.listeners);
        for gauge in &shared.gauges {
            gauge.drained.store(false, Ordering::Release);
        }
        let how = match how {
            Shutdown::WaitForClients => Drain::WaitForClients,
            Shutdown::TakenOver => Drain::TakenOver,
            Shutdown::WaitForServers | Shutdown::Immediate => {
                shared.hub.close();
                Drain::WaitForServers
            }
        };
        shared.tell_all(|| ShellMail::Drain(how));
        // A suspended pooler would never end.
        let _ = shared.hub.switch(|switches| {
            switches.suspended = false;
            Ok::<(), ()>(())
        });
        shared.resume();
    }
}

/// Returns the next signal; never, if signals are not handled.
async fn next_signal(signals: Option<&AsyncFd<OwnedFd>>) -> libc::c_int {
    let Some(signals) = signals else { return future::pending().await };
    loop {
        let Ok(mut ready) = signals.readable().await else { return future::pending().await };
        match ready.try_io(|fd| signal::next(fd.get_ref())) {
            Ok(Ok(signal)) => return signal,
            Ok(Err(error)) => error!("cannot read a signal: {error}"),
            // There was no signal after all.
            Err(_) => {}
        }
    }
}

/// Returns when a draining pooler has nothing left to wait for; otherwise never.
async fn drained(controller: Controller, how: Option<Shutdown>) -> Exit {
    let Some(how) = how else { return future::pending().await };
    let is_drained = || {
        let shared = &controller.0.shared;
        let has_left = match how {
            Shutdown::WaitForClients | Shutdown::TakenOver => shared.lobby.guests() == 0,
            Shutdown::WaitForServers | Shutdown::Immediate => true,
        };
        // A switchover that is not ended would leave its cluster without a primary.
        let is_at_rest = controller.0.clusters.are_at_rest();
        has_left
            && is_at_rest
            && shared.gauges.iter().all(|gauge| gauge.drained.load(Ordering::Acquire))
    };
    while !is_drained() {
        time::sleep_until(Instant::now() + DRAIN_LOOK).await;
    }
    let (what, exit) = match how {
        Shutdown::TakenOver => ("no clients are left in this process", Exit::ClientsLeft),
        Shutdown::WaitForClients => ("client connections dropped", Exit::ClientsLeft),
        Shutdown::Immediate | Shutdown::WaitForServers => {
            ("server connections dropped", Exit::ServersReleased)
        }
    };
    log!("{what}, exiting");
    exit
}

/// Closes what no worker held at its end: listening sockets, parked servers, and connections on
/// their way between workers.
fn close_rest(shared: &Shared) {
    shared.listeners.iter().for_each(listener::Listener::shut);
    let mut mail = std::collections::VecDeque::new();
    for mailbox in shared.hub.mailboxes() {
        mailbox.take(&mut mail);
        mail.clear();
    }
    for pool in shared.hub.pools() {
        drop(lock(&pool).take_all_parked());
    }
}
