//! One worker's clients, servers and pools, and access to them.
//!
//! `events` receives the events of the shell and passes each to one machine. `work` has the queue
//! of follow-up work, and does it. `tick` checks timeouts, `mail` reads mail of other workers,
//! `orders` carries out an operator's orders, `look` reads the connections for an operator and the
//! shell, `invariants` checks them in tests. `tables` has the clients and the servers, `views`
//! caches the pools. The machines are in the folders beside this one.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use config::{Config, PoolMode};
use foldhash::fast::RandomState;
use thin_vec::ThinVec;

use crate::admission::pool::Parked;
use crate::admission::view::PoolView;
use crate::cancel::outcome::Cancel;
use crate::context::Context;
use crate::ids::{ClientId, Identity, PoolId, ServerId, WorkerId};
use crate::login::auth::Credentials;
use crate::notify::listener::Listener;
use crate::operator::failures::Failures;
use crate::operator::stats::Stats;
use crate::operator::transactions::Transactions;
use crate::routing::Sessions;
use crate::session::text_history::TextHistory;
use crate::settings::{PoolKey, PoolSettings};
use crate::shell::{Exchange, Io};
use crate::watch::Watch;

mod events;
mod invariants;
mod look;
mod mail;
mod orders;
pub(crate) mod tables;
mod tick;
pub(crate) mod views;
pub(crate) mod work;

use tables::{Clients, Servers};
use views::PoolViews;

/// Maximal number of texts that a worker remembers, at 40 bytes each.
const TEXTS_MAX: usize = 4096;

#[derive(Debug)]
pub struct Engine<X> {
    pub(crate) context: Context,
    pub(crate) exchange: X,
    pub(crate) clients: Clients,
    pub(crate) servers: Servers,
    pub(crate) pools: PoolViews,
    pub(crate) credentials: Credentials,
    /// A database made from `*` that has just got its first pool, until this is logged.
    pub(crate) new_autodb: Option<String>,
    /// The key of the pool that was looked up last; kept for its memory.
    pub(crate) sought: PoolKey,
    pub(crate) transactions: Transactions,
    /// The signs of known texts (`pool_mode = auto`).
    pub(crate) texts: sql::Cache,
    /// Clients by cancel key, ordered by process id.
    pub(crate) keys: BTreeMap<u64, ClientId>,
    pub(crate) cancels: HashMap<u64, Cancel, RandomState>,
    pub(crate) nobody: Arc<Identity>,
    /// Pools whose database has another `user=` since a reload.
    pub(crate) changed_user: Vec<PoolId>,
    /// Should the next tick look for pools to fill without a client (`min_pool_size`)?
    pub(crate) warms_pools: bool,
    /// Should the next tick disconnect stalled logins that count in a client limit?
    pub(crate) places_wanted: bool,
    /// Listeners of the pools whose listener belongs to this worker.
    pub(crate) listeners: BTreeMap<PoolId, Listener>,
    /// Follow-up work of the present event.
    pub(crate) work: work::Queue,
    /// A server for a client, which is linked before the queue's work.
    pub(crate) joining: Option<work::Joining>,
    /// A buffer for assembling output; kept for its capacity.
    pub(crate) scratch: Vec<u8>,
    pub(crate) messages: u64,
    /// Set if `fingerprints` or `advise` is.
    pub(crate) watch: Option<Box<Watch>>,
    pub(crate) failures: Failures,
    /// The routed clients' last writes and standbys.
    pub(crate) sessions: Sessions,
    /// The verdicts on known texts, for routing; empty until one is asked for.
    pub(crate) verdicts: Option<Box<sql::Cache<Option<sql::Verdict>>>>,
    /// Clients that wait for the trials of their pools' lobbies.
    pub(crate) newcomers: Vec<crate::ids::Newcomer>,
}

impl<X: Exchange> Engine<X> {
    pub fn new(worker: WorkerId, config: Arc<Config>, exchange: X, seed: [u8; 32]) -> Self {
        Self {
            exchange,
            clients: Clients::default(),
            servers: Servers::default(),
            pools: PoolViews::default(),
            credentials: Credentials::default(),
            sought: PoolKey::default(),
            transactions: Transactions::default(),
            texts: sql::Cache::new(
                u64::from_le_bytes(*seed.first_chunk().unwrap_or(&[0; 8])),
                TEXTS_MAX,
            ),
            keys: BTreeMap::new(),
            cancels: HashMap::default(),
            nobody: Arc::new(Identity { database: "(nodb)".into(), user: "(nouser)".into() }),
            new_autodb: None,
            changed_user: Vec::new(),
            warms_pools: true,
            places_wanted: false,
            listeners: BTreeMap::new(),
            work: work::Queue::new(),
            joining: None,
            scratch: Vec::new(),
            messages: 0,
            watch: Watch::configured(None, &config),
            failures: Failures::default(),
            sessions: Sessions::default(),
            verdicts: None,
            newcomers: Vec::new(),
            context: Context::new(worker, config, seed),
        }
    }

    /// Returns the number of messages read from clients and servers.
    #[inline]
    pub fn messages(&self) -> u64 {
        self.messages
    }

    pub fn exchange(&mut self) -> &mut X {
        &mut self.exchange
    }

    /// Gives a server from outside a slot.
    pub(crate) fn attach(&mut self, parked: Parked<X::Transport>, io: &mut impl Io<X>) -> ServerId {
        let Parked { server, transport } = parked;
        self.view(server.pool);
        let id = self.servers.insert(server);
        io.attach_server(id, transport);
        id
    }

    pub(crate) fn settings(&self, pool: PoolId) -> &Arc<PoolSettings> {
        let view = self.pools.get(pool);
        &view.expect("a worker knows the pools of its clients and servers").settings
    }

    /// Returns the mode in which the server is used.
    pub(crate) fn mode_of(&self, on: ServerId) -> PoolMode {
        let server = &self.servers[on];
        server.mode_in(self.settings(server.pool).mode)
    }

    /// Returns this worker's counters of a pool.
    pub(crate) fn stats(&mut self, pool: PoolId) -> &mut Stats {
        &mut self.view(pool).stats
    }

    /// Returns this worker's view of a pool, and creates it for a new pool, for instance of a
    /// stolen server.
    pub(crate) fn view(&mut self, id: PoolId) -> &mut PoolView {
        let exchange = &mut self.exchange;
        self.pools.entry(id, || {
            exchange.pool(id, |pool| PoolView {
                settings: pool.settings.clone(),
                identity: Arc::new(Identity {
                    database: pool.key.database.clone(),
                    user: pool.key.user.clone(),
                }),
                place: pool.key.place,
                readers: ThinVec::new(),
                stats: Stats::default(),
                durations: Box::default(),
                history: TextHistory::default(),
                has_bad_reports: false,
                role_changes: pool.role_changes(),
            })
        })
    }
}
