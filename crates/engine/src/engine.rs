//! One worker's share of the pooler: its tables. Events come in through `events.rs`, each of which ends
//! with the work that it leaves (`work.rs`). What happens in between is in the files beside them:
//!
//! | about | files |
//! |---|---|
//! | a client up to "logged in" | `login`, `startup`, `ask` and `prove` (PostgreSQL is asked), `check` (others are) |
//! | a server up to "logged in" | `seat` (may it be opened?), `open`, `connect_query` |
//! | a client and a server | `link`, `apply`, `statements`, `replication`, `place`, `leave`, `renamed`, `moved` |
//! | messages | `requests`, `replies`, `resend`, `stand_in`, `undo` |
//! | what a session holds | `verdict`, `holding` |
//! | LISTEN | `listen` (clients), `listener` (the connection that listens for them) |
//! | orders and limits | `control`, `tick`, `cancel`, `signal`, `handover`, `mail`, `inspect` |

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use config::{Config, PoolMode, UserSettings};
use foldhash::fast::RandomState;
use slab::Slab;

use crate::auth::Credentials;
use crate::client::Client;
use crate::ids::{ClientId, Identity, PoolId, ServerId, WorkerId};
use crate::listener::Listener;
use crate::lore::Lore;
use crate::server::Server;
use crate::settings::PoolSettings;
use crate::shell::{Exchange, Io};
use crate::stats::Stats;
use crate::values::SharedVars;
use crate::vars::TrackedNames;

mod apply;
mod ask;
mod cancel;
mod check;
mod connect_query;
mod control;
mod events;
mod handover;
mod holding;
mod inspect;
mod leave;
mod link;
mod listen;
mod listener;
mod login;
mod mail;
mod moved;
mod open;
mod place;
mod prove;
mod renamed;
mod replication;
mod replies;
mod requests;
mod resend;
mod seat;
mod signal;
mod stand_in;
mod startup;
mod statements;
mod tick;
mod undo;
mod verdict;
mod views;
mod work;

use views::{PoolView, PoolViews};

pub use handover::{Exported, ExportedClient, Imported, Shelf};
pub use inspect::server_row;
pub use login::LOGIN_GRACE;

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
    worker: WorkerId,
    config: Arc<Config>,
    names: Arc<TrackedNames>,
    exchange: X,
    clients: Slab<Client>,
    servers: Slab<Box<Server>>,
    pools: PoolViews,
    credentials: Credentials,
    /// A database that stands for `*` and has got its first pool, until that is told.
    new_autodb: Option<String>,
    shared_vars: SharedVars,
    /// What texts may leave in a session (`pool_mode = auto`).
    texts: sql::Cache,
    /// The clients that may be cancelled, by their keys, in the order of the process ids.
    keys: BTreeMap<u64, ClientId>,
    cancels: HashMap<u64, cancel::Cancel, RandomState>,
    nobody: Arc<Identity>,
    /// Counts messages, connections and cancel requests of this worker; never 0.
    serial: u64,
    /// A secret of this worker: what only we can compute is made from it (salts of users that do
    /// not exist, tags of cancel keys).
    seed: [u8; 32],
    drain: Option<Drain>,
    /// Has any user limits of its own for its clients' waiting or idling?
    limits_users: bool,
    /// Pools whose database logs in as another user since a reload.
    renamed: Vec<PoolId>,
    /// Are pools to be looked for that are filled without a client?
    warms_pools: bool,
    /// Those have to go at the next tick who count and do not log in.
    places_wanted: bool,
    /// Of the pools whose listener is this worker's.
    listeners: BTreeMap<PoolId, Listener>,
    /// What is left to be done of the event that is being dealt with.
    work: work::Queue,
    /// The server that is given to a client first, before the queue's work.
    joining: Option<work::Joining>,
    /// Output under assembly; kept for its capacity.
    scratch: Vec<u8>,
    messages: u64,
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
            renamed: Vec::new(),
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
    fn attach(&mut self, server: Box<Server>, io: &mut impl Io) -> ServerId {
        let handle = server.handle;
        self.view(server.pool);
        let id = ServerId(self.servers.insert(server) as u32);
        io.attach_server(id, handle);
        id
    }

    fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    fn client(&self, id: ClientId) -> &Client {
        &self.clients[id.0 as usize]
    }

    fn client_mut(&mut self, id: ClientId) -> &mut Client {
        &mut self.clients[id.0 as usize]
    }

    fn server(&self, id: ServerId) -> &Server {
        &self.servers[id.0 as usize]
    }

    fn server_mut(&mut self, id: ServerId) -> &mut Server {
        &mut self.servers[id.0 as usize]
    }

    fn settings(&self, pool: PoolId) -> &Arc<PoolSettings> {
        let view = self.pools.get(pool);
        &view.expect("a worker knows the pools of its clients and servers").settings
    }

    /// In which mode its client has the server.
    fn mode_of(&self, on: ServerId) -> PoolMode {
        let server = self.server(on);
        server.mode_in(self.settings(server.pool).mode)
    }

    /// Counters of a pool this worker has met.
    fn stats(&mut self, pool: PoolId) -> &mut Stats {
        &mut self.view(pool).stats
    }

    /// This worker's view of a pool. A stolen server's pool may be new to it.
    fn view(&mut self, id: PoolId) -> &mut PoolView {
        let exchange = &mut self.exchange;
        self.pools.entry(id, || {
            exchange.pool(id, |pool| PoolView {
                settings: pool.settings.clone(),
                identity: Arc::new(Identity {
                    database: pool.key.database.clone(),
                    user: pool.key.user.clone(),
                }),
                stats: Stats::default(),
                lore: Lore::default(),
            })
        })
    }
}
