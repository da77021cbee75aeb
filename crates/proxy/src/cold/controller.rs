//! The handle by which the console, the metrics and the command line inspect and control a running
//! pooler. It only sends messages and reads copies. It delays a worker only while the worker copies
//! its tables.
//!
//! * `orders.rs`: PAUSE and similar orders
//! * `workers.rs`: the share of each worker
//! * `cold/reload.rs`: a new configuration

pub(crate) mod orders;
mod workers;

pub use self::workers::WorkerInfo;

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use config::{Config, Proxied};
use engine::{
    averages::Averages,
    ids::{Micros, PoolId},
    pins::{Pinned, Pins},
    pool::Parked,
    recorder::Recorder,
    report::ServerState,
    server_row,
    settings::{PoolKey, PoolSettings},
    stats::Stats,
    switches::Switches,
    watch::Watched,
};
use tokio::sync::{mpsc, watch};

use crate::{
    cold::{
        cluster::Clusters,
        dns::{Dns, names::NamesInfo},
        doors::Doors,
        passwords::Passwords,
        service::Notifier,
    },
    exchange::{
        hub::lock,
        lobby_door::{LobbyReport, LobbyRequest},
        mail::ShellMail,
        reports::{CancelInfo, ClientInfo, ServerInfo, WorkerReport},
        shared::Shared,
    },
};
use net::sys::Address;

/// A pool at one moment.
#[derive(Clone, Debug)]
pub struct PoolInfo {
    pub id: PoolId,
    pub key: PoolKey,
    pub settings: Arc<PoolSettings>,
    /// Server connections in any state.
    pub servers: u32,
    /// The number of servers among these that are not logged in yet.
    pub opening: u32,
    pub waiting: u32,
    /// Why it is proxied; `None` if it is direct.
    pub proxied: Option<Proxied>,
    /// When the first client in the queue began to wait.
    pub oldest_wait: Option<Micros>,
    /// The counters of all workers together.
    pub stats: Stats,
}

/// The whole pooler. Its parts were asked one after the other, so a connection that moved meanwhile
/// may be missing or counted twice.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub now: Micros,
    pub switches: Switches,
    pub clients: Vec<ClientInfo>,
    /// Including parked ones.
    pub servers: Vec<ServerInfo>,
    /// The pools by number.
    pub pools: Vec<PoolInfo>,
    pub cancels: Vec<CancelInfo>,
    /// Free slots for clients in the workers' tables.
    pub free_clients: usize,
    /// The number of different prepared statements, and their memory in bytes.
    pub statements: (usize, usize),
    /// The findings of each worker's watch.
    pub watched: Vec<Watched>,
    /// The workers by number.
    pub workers: Vec<WorkerInfo>,
}

impl Snapshot {
    /// Adds what there is to see of direct pools.
    fn add(&mut self, lobbies: LobbyReport) {
        let LobbyReport { mut clients, servers, stats } = lobbies;
        let mut pointers = HashMap::new();
        for server in &mut self.servers {
            let Some(found) = servers.get(&server.row.serial) else { continue };
            pointers.insert(server.row.serial, server.pointer);
            server.link = found.client;
            server.row.state =
                if found.client == 0 { ServerState::Idle } else { ServerState::Active };
            let pins = if found.is_too_large { Pins::TOO_LARGE } else { Pins::DIRECT };
            let pinned = |since| Pinned { pins, since, fingerprint: 0 };
            server.row.pinned = found.kept_since.map(pinned);
        }
        for client in &mut clients {
            client.link = pointers.get(&client.row.server).copied().unwrap_or(0);
        }
        self.clients.extend(clients);
        for (id, counted) in stats {
            let pools = self.pools.iter_mut().filter(|pool| pool.id == id);
            pools.for_each(|pool| pool.stats += counted);
            // The clients are in its row, too.
            self.workers.iter_mut().take(1).for_each(|first| first.stats += counted);
        }
    }

    /// Counts what each worker has.
    fn count(&mut self) {
        self.workers.iter_mut().for_each(|worker| worker.count(&self.clients, &self.servers));
    }
}

/// The result of the last reload; the start counts as one.
#[derive(Clone, Copy, Debug)]
pub struct ReloadResult {
    /// Is all of it in force?
    pub succeeded: bool,
    /// The time of the last success.
    pub success_at: Micros,
}

/// The kind of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    Immediate,
    /// When no server is in use any more; no server is linked from now on. SIGINT.
    WaitForServers,
    /// When the last client has left; no TCP client is let in from now on. SIGTERM.
    WaitForClients,
    /// Another process has taken over; ends when the last client that stayed has left.
    TakenOver,
}

/// The data that a [`Controller`] shares with the thread that carries out its orders.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) shared: Arc<Shared>,
    pub(crate) config: RwLock<Arc<Config>>,
    pub(crate) config_path: Option<PathBuf>,
    /// Held while the configuration is replaced.
    pub(crate) reloading: Mutex<()>,
    pub(crate) averages: RwLock<Arc<Averages>>,
    pub(crate) recorder: Mutex<Recorder>,
    pub(crate) notifier: Notifier,
    pub(crate) dns: Dns,
    /// The last reload.
    pub(crate) reload: Mutex<ReloadResult>,
    /// The addresses of HTTP and PCP.
    pub(crate) doors: Doors,
    pub(crate) clusters: Clusters,
    pub(crate) passwords: Passwords,
    pub(crate) orders: mpsc::UnboundedSender<Shutdown>,
    pub(crate) ended: watch::Sender<bool>,
}

/// Inspects and controls a running pooler. Cheap to clone; without effect when the pooler has
/// ended.
#[derive(Clone, Debug)]
pub struct Controller(pub(crate) Arc<Control>);

impl Controller {
    /// Returns the present configuration.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        self.0.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the averages over the last complete `stats_period`, and the data for others.
    #[must_use]
    pub fn averages(&self) -> Arc<Averages> {
        self.0.averages.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the descriptors of the listening sockets, and their addresses.
    pub fn listeners(&self) -> impl Iterator<Item = (u32, &Address)> {
        let open = self.0.shared.listeners.iter().filter(|listener| listener.is_open());
        open.map(|listener| (listener.fd().unsigned_abs(), listener.address()))
    }

    /// Returns the known host names.
    #[must_use]
    pub fn names(&self) -> NamesInfo {
        self.0.dns.info(self.now())
    }

    pub(crate) fn last_reload(&self) -> ReloadResult {
        *self.0.reload.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time of the pooler's monotonic clock, as used in a [`Snapshot`].
    #[must_use]
    pub fn now(&self) -> Micros {
        self.0.shared.clock.now()
    }

    /// Returns when every worker has processed all earlier mail. The settings of a reload then hold
    /// for every new client.
    pub async fn barrier(&self) {
        let (done, mut barrier) = mpsc::unbounded_channel();
        self.0.shared.tell_all(|| ShellMail::Barrier(done.clone()));
        drop(done);
        // No message is sent. A worker that has ended has dropped its mail.
        let ended = self.ended();
        tokio::select! {
            _ = barrier.recv() => {}
            () = ended => {}
        }
    }

    /// Starts a shutdown. Returns at once.
    pub fn shutdown(&self, how: Shutdown) {
        // An error means that the pooler has ended already.
        let _ = self.0.orders.send(how);
    }

    /// Returns when the pooler has ended.
    pub async fn ended(&self) {
        let mut ended = self.0.ended.subscribe();
        // An error means that it has ended and dropped its data.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    /// Returns everything that an operator may want to see. Empty when the pooler has ended.
    pub async fn snapshot(&self) -> Snapshot {
        let Some(reports) = self.ask(ShellMail::Report).await else {
            return Snapshot::default();
        };
        let mut all = self.assemble(reports);
        all.add(self.lobbies().await);
        all.count();
        all
    }

    /// Returns what there is to see of direct pools.
    async fn lobbies(&self) -> LobbyReport {
        let lobby = &self.0.shared.lobby;
        if !lobby.is_open() {
            return LobbyReport::default();
        }
        let (reply, mut answer) = mpsc::unbounded_channel();
        lobby.send(LobbyRequest::Report(reply));
        tokio::select! {
            report = answer.recv() => report.unwrap_or_default(),
            () = self.ended() => LobbyReport::default(),
        }
    }

    /// Returns the answers of all workers; `None` when the pooler has ended.
    pub(crate) async fn ask<T>(
        &self,
        question: impl Fn(mpsc::UnboundedSender<T>) -> ShellMail,
    ) -> Option<Vec<T>> {
        let (reply, mut answers) = mpsc::unbounded_channel();
        self.0.shared.tell_all(|| question(reply.clone()));
        drop(reply);
        let mut all = Vec::new();
        let ended = self.ended();
        tokio::pin!(ended);
        loop {
            tokio::select! {
                // The channel ends when every worker has answered.
                answer = answers.recv() => match answer {
                    Some(answer) => all.push(answer),
                    None => return Some(all),
                },
                () = &mut ended => return None,
            }
        }
    }

    fn assemble(&self, mut reports: Vec<WorkerReport>) -> Snapshot {
        reports.sort_by_key(|report| report.worker);
        let mut all = Snapshot { now: self.now(), ..Snapshot::default() };
        let mut stats: HashMap<PoolId, Stats> = HashMap::new();
        for report in reports {
            all.now = all.now.max(report.now);
            all.clients.extend(report.clients);
            all.servers.extend(report.servers);
            all.cancels.extend(report.cancels);
            all.free_clients += report.free_clients;
            all.watched.push(report.watched);
            let mut own = Stats::default();
            for (pool, counted) in report.stats {
                *stats.entry(pool).or_default() += counted;
                own += counted;
            }
            all.workers.push(WorkerInfo::new(report.worker, own));
        }
        let shared = &self.0.shared;
        all.switches = shared.hub.switches();
        all.statements = shared.hub.statement_memory();
        for pool in shared.hub.pools() {
            let pool = lock(&pool);
            if pool.is_abandoned() {
                continue;
            }
            let check_delay = pool.settings.check_delay;
            let rows: Vec<_> = pool
                .parked()
                .map(|Parked { server, transport }| {
                    let row = server_row(None, server, check_delay, all.now);
                    (transport.home, transport.describe(), row)
                })
                .collect();
            let (servers, opening) = pool.counts();
            all.pools.push(PoolInfo {
                id: pool.id,
                key: pool.key.clone(),
                settings: pool.settings.clone(),
                servers,
                opening,
                waiting: pool.waiting_total(),
                proxied: pool.proxied(),
                oldest_wait: pool.oldest_wait(),
                stats: stats.get(&pool.id).copied().unwrap_or_default(),
            });
            // The local addresses are read without holding the pool's lock.
            drop(pool);
            let parked = rows.into_iter();
            let parked = parked.map(|(home, socket, row)| ServerInfo::new(home, socket, row));
            all.servers.extend(parked);
        }
        // A server that was parked or moved between two answers is counted once.
        let mut seen = HashSet::new();
        all.servers.retain(|server| server.pointer == 0 || seen.insert(server.pointer));
        all
    }
}
