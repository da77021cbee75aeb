//! One worker's share of the pooler: its tables, and access to them.
//!
//! `events` has the ways in: each event of the shell is passed to one machine. `work` has the queue of
//! follow-up work, and does it. `tick` does what time does, `mail` reads the mail of other workers,
//! `views` remembers the pools. What a machine does is in the folders beside this one.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use config::{Config, PoolMode, UserSettings};
use foldhash::fast::RandomState;
use slab::Slab;

use crate::admission::pool::Parked;
use crate::cancel::outcome::Cancel;
use crate::client::Client;
use crate::ids::{ClientId, Identity, PoolId, ServerId, WorkerId};
use crate::login::auth::Credentials;
use crate::notify::listener::Listener;
use crate::operator::stats::Stats;
use crate::server::Server;
use crate::session::text_history::TextHistory;
use crate::settings::PoolSettings;
use crate::shell::{Exchange, Io};
use crate::values::SharedVars;
use crate::vars::TrackedNames;

mod events;
mod mail;
mod tick;
mod views;
pub(crate) mod work;

use views::{PoolView, PoolViews};

/// How the pooler comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// SIGINT: nothing is linked any more; the end comes when no server is in use.
    WaitForServers,
    /// SIGTERM: nobody new is let in; the end comes when the last client has left.
    WaitForClients,
    /// Another process has taken over: those who could not go there are served until they leave.
    TakenOver,
}

/// Texts a worker remembers, at 40 bytes each.
const TEXTS_MAX: usize = 4096;

#[derive(Debug)]
pub struct Engine<X> {
    pub(crate) worker: WorkerId,
    pub(crate) config: Arc<Config>,
    pub(crate) names: Arc<TrackedNames>,
    pub(crate) exchange: X,
    pub(crate) clients: Slab<Client>,
    pub(crate) servers: Slab<Box<Server>>,
    pub(crate) pools: PoolViews,
    pub(crate) credentials: Credentials,
    /// A database that stands for `*` and has got its first pool, until that is told.
    pub(crate) new_autodb: Option<String>,
    pub(crate) shared_vars: SharedVars,
    /// What texts may leave in a session (`pool_mode = auto`).
    pub(crate) texts: sql::Cache,
    /// The clients that may be cancelled, by their keys, in the order of the process ids.
    pub(crate) keys: BTreeMap<u64, ClientId>,
    pub(crate) cancels: HashMap<u64, Cancel, RandomState>,
    pub(crate) nobody: Arc<Identity>,
    /// Counts messages, connections and cancel requests of this worker; never 0.
    pub(crate) serial: u64,
    /// A secret of this worker: what only we can compute is made from it (salts of users that do
    /// not exist, tags of cancel keys).
    pub(crate) seed: [u8; 32],
    pub(crate) drain: Option<Drain>,
    /// Has any user limits of its own for its clients' waiting or idling?
    pub(crate) limits_users: bool,
    /// Pools whose database logs in as another user since a reload.
    pub(crate) changed_user: Vec<PoolId>,
    /// Are pools to be looked for that are filled without a client?
    pub(crate) warms_pools: bool,
    /// Those have to go at the next tick who count and do not log in.
    pub(crate) places_wanted: bool,
    /// Of the pools whose listener is this worker's.
    pub(crate) listeners: BTreeMap<PoolId, Listener>,
    /// What is left to be done of the event that is being dealt with.
    pub(crate) work: work::Queue,
    /// The server that is given to a client first, before the queue's work.
    pub(crate) joining: Option<work::Joining>,
    /// Output under assembly; kept for its capacity.
    pub(crate) scratch: Vec<u8>,
    pub(crate) messages: u64,
}

fn limits_users(config: &Config) -> bool {
    let has = |user: &UserSettings| {
        user.query_wait_timeout.is_some() || user.client_idle_timeout.is_some()
    };
    config.users.values().any(has)
}

impl<X: Exchange> Engine<X> {
    pub fn new(worker: WorkerId, config: Arc<Config>, exchange: X, seed: [u8; 32]) -> Self {
        let names = Arc::new(TrackedNames::new(&config.global.track_extra_parameters));
        Self {
            worker,
            names,
            exchange,
            clients: Slab::new(),
            servers: Slab::new(),
            pools: PoolViews::default(),
            credentials: Credentials::default(),
            shared_vars: SharedVars::default(),
            texts: sql::Cache::new(
                u64::from_le_bytes(*seed.first_chunk().unwrap_or(&[0; 8])),
                TEXTS_MAX,
            ),
            keys: BTreeMap::new(),
            cancels: HashMap::default(),
            nobody: Arc::new(Identity { database: "(nodb)".into(), user: "(nouser)".into() }),
            serial: 0,
            seed,
            drain: None,
            new_autodb: None,
            limits_users: limits_users(&config),
            changed_user: Vec::new(),
            warms_pools: true,
            places_wanted: false,
            listeners: BTreeMap::new(),
            work: work::Queue::new(),
            joining: None,
            scratch: Vec::new(),
            messages: 0,
            config,
        }
    }

    /// How many messages of clients and servers were looked at so far.
    #[inline]
    pub fn messages(&self) -> u64 {
        self.messages
    }

    pub fn exchange(&mut self) -> &mut X {
        &mut self.exchange
    }

    /// A server from outside gets a slot.
    pub(crate) fn attach(&mut self, parked: Parked<X::Transport>, io: &mut impl Io<X>) -> ServerId {
        let Parked { server, transport } = parked;
        self.view(server.pool);
        let id = ServerId(self.servers.insert(server) as u32);
        io.attach_server(id, transport);
        id
    }

    pub(crate) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    pub(crate) fn client(&self, id: ClientId) -> &Client {
        &self.clients[id.0 as usize]
    }

    pub(crate) fn client_mut(&mut self, id: ClientId) -> &mut Client {
        &mut self.clients[id.0 as usize]
    }

    pub(crate) fn server(&self, id: ServerId) -> &Server {
        &self.servers[id.0 as usize]
    }

    pub(crate) fn server_mut(&mut self, id: ServerId) -> &mut Server {
        &mut self.servers[id.0 as usize]
    }

    pub(crate) fn settings(&self, pool: PoolId) -> &Arc<PoolSettings> {
        let view = self.pools.get(pool);
        &view.expect("a worker knows the pools of its clients and servers").settings
    }

    /// In which mode its client has the server.
    pub(crate) fn mode_of(&self, on: ServerId) -> PoolMode {
        let server = self.server(on);
        server.mode_in(self.settings(server.pool).mode)
    }

    /// Counters of a pool this worker has met.
    pub(crate) fn stats(&mut self, pool: PoolId) -> &mut Stats {
        &mut self.view(pool).stats
    }

    /// This worker's view of a pool. A stolen server's pool may be new to it.
    pub(crate) fn view(&mut self, id: PoolId) -> &mut PoolView {
        let exchange = &mut self.exchange;
        self.pools.entry(id, || {
            exchange.pool(id, |pool| PoolView {
                settings: pool.settings.clone(),
                identity: Arc::new(Identity {
                    database: pool.key.database.clone(),
                    user: pool.key.user.clone(),
                }),
                stats: Stats::default(),
                history: TextHistory::default(),
            })
        })
    }
}
