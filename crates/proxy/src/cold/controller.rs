//! The handle by which the console, the metrics and the command line look into a running pooler
//! and steer it. It only sends messages and reads copies: nothing it does can hold up a worker
//! for longer than it takes to copy its tables.
//!
//! * `orders.rs`: PAUSE and its kin
//! * `cold/reload.rs`: a new configuration

pub(crate) mod orders;

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use config::Config;
use engine::{
    averages::Averages,
    ids::{Micros, PoolId},
    pool::Parked,
    report::ClientState,
    server_row,
    settings::{PoolKey, PoolSettings},
    stats::Stats,
    switches::Switches,
};
use tokio::sync::{mpsc, watch};

use crate::{
    cold::{
        dns::{Dns, names::NamesInfo},
        service::Notifier,
    },
    exchange::{
        hub::lock,
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
    /// Those of them that are not logged in yet.
    pub opening: u32,
    pub waiting: u32,
    /// Since when the first in the queue waits.
    pub oldest_wait: Option<Micros>,
    /// Counters of all workers together.
    pub stats: Stats,
}

/// The whole pooler. The parts were asked one after the other, so a connection that moved
/// meanwhile can be missing or stand in it twice.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub now: Micros,
    pub switches: Switches,
    pub clients: Vec<ClientInfo>,
    /// Parked ones included.
    pub servers: Vec<ServerInfo>,
    /// By number.
    pub pools: Vec<PoolInfo>,
    pub cancels: Vec<CancelInfo>,
    /// Places for clients that the workers keep and nobody has.
    pub free_clients: usize,
    /// Prepared statements that differ in text or types, and the bytes they take.
    pub statements: (usize, usize),
}

/// A summary of a [`Snapshot`]. Counters count from the start of the pooler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Clients that are logged in.
    pub clients: u64,
    /// Server connections in any state.
    pub servers: u64,
    /// Clients that wait for a server.
    pub waiting: u64,
    pub xacts: u64,
    pub queries: u64,
    /// Microseconds clients have waited for a server.
    pub wait_us: u64,
    /// Bytes from clients.
    pub received: u64,
    /// Bytes from servers.
    pub sent: u64,
}

/// How to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    Immediate,
    /// When no server is in use any more; nothing is linked from now on. SIGINT's way.
    WaitForServers,
    /// When the last client has left; no TCP client is let in from now on. SIGTERM's way.
    WaitForClients,
    /// Another process has taken over; when the last client that stayed here has left.
    TakenOver,
}

/// The parts a [`Controller`] shares with the thread that carries out its orders.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) shared: Arc<Shared>,
    pub(crate) config: RwLock<Arc<Config>>,
    pub(crate) config_path: Option<PathBuf>,
    /// Held by who replaces the configuration.
    pub(crate) reloading: Mutex<()>,
    pub(crate) averages: RwLock<Arc<Averages>>,
    pub(crate) notifier: Notifier,
    pub(crate) dns: Dns,
    pub(crate) orders: mpsc::UnboundedSender<Shutdown>,
    pub(crate) ended: watch::Sender<bool>,
}

/// Looks into a running pooler and steers it. Cheap to clone; harmless when the pooler has ended.
#[derive(Clone, Debug)]
pub struct Controller(pub(crate) Arc<Control>);

impl Controller {
    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        self.0.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Averages over the last complete `stats_period`, and what others are made from.
    #[must_use]
    pub fn averages(&self) -> Arc<Averages> {
        self.0.averages.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The descriptors of the sockets that clients come to, and their addresses.
    pub fn listeners(&self) -> impl Iterator<Item = (u32, &Address)> {
        let open = self.0.shared.listeners.iter().filter(|listener| listener.is_open());
        open.map(|listener| (listener.fd().unsigned_abs(), listener.address()))
    }

    /// The known host names.
    #[must_use]
    pub fn names(&self) -> NamesInfo {
        self.0.dns.info(self.now())
    }

    /// The pooler's monotonic clock, in whose terms all moments of a [`Snapshot`] are given.
    #[must_use]
    pub fn now(&self) -> Micros {
        self.0.shared.clock.now()
    }

    /// Returns when every worker has dealt with all that it was told before: what a reload has put
    /// in force then holds for every client that comes.
    pub async fn heard(&self) {
        let (done, mut heard) = mpsc::unbounded_channel();
        self.0.shared.tell_all(|| ShellMail::Heard(done.clone()));
        drop(done);
        // Nothing is ever sent; a worker that has ended has dropped its mail.
        let ended = self.ended();
        tokio::select! {
            _ = heard.recv() => {}
            () = ended => {}
        }
    }

    /// Ends the pooler in this way. Returns at once.
    pub fn shutdown(&self, how: Shutdown) {
        // If nobody listens, the end has come already.
        let _ = self.0.orders.send(how);
    }

    /// Returns when the pooler has ended.
    pub async fn ended(&self) {
        let mut ended = self.0.ended.subscribe();
        // An error means that it has ended and left no trace.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    /// Everything an operator may want to see. Empty when the pooler has ended.
    pub async fn snapshot(&self) -> Snapshot {
        let mut answers = self.ask();
        let mut reports = Vec::new();
        let ended = self.ended();
        tokio::pin!(ended);
        loop {
            tokio::select! {
                answer = answers.recv() => match answer {
                    Some(report) => reports.push(report),
                    None => return self.assemble(reports),
                },
                () = &mut ended => return Snapshot::default(),
            }
        }
    }

    pub async fn totals(&self) -> Totals {
        self.snapshot().await.totals()
    }

    /// The answers come one by one; their end comes when every worker has answered.
    fn ask(&self) -> mpsc::UnboundedReceiver<WorkerReport> {
        let (reply, answers) = mpsc::unbounded_channel();
        self.0.shared.tell_all(|| ShellMail::Report(reply.clone()));
        answers
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
            for (pool, counted) in report.stats {
                *stats.entry(pool).or_default() += counted;
            }
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
                oldest_wait: pool.oldest_wait(),
                stats: stats.get(&pool.id).copied().unwrap_or_default(),
            });
            // The local addresses are asked for when nobody waits for the pool's lock.
            drop(pool);
            let parked = rows.into_iter();
            let parked = parked.map(|(home, socket, row)| ServerInfo::new(home, socket, row));
            all.servers.extend(parked);
        }
        // A server that was parked, or given to another worker, between two answers is one server.
        let mut seen = HashSet::new();
        all.servers.retain(|server| server.pointer == 0 || seen.insert(server.pointer));
        all
    }
}

impl Snapshot {
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals {
            clients: self
                .clients
                .iter()
                .filter(|client| client.row.state != ClientState::Login)
                .count() as u64,
            ..Totals::default()
        };
        for pool in &self.pools {
            totals.servers += u64::from(pool.servers);
            totals.waiting += u64::from(pool.waiting);
            totals.xacts += pool.stats.transactions;
            totals.queries += pool.stats.queries;
            totals.wait_us += pool.stats.wait_time;
            totals.received += pool.stats.received;
            totals.sent += pool.stats.sent;
        }
        totals
    }
}
