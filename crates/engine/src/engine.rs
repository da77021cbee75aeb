//! One worker's share of the pooler: its tables, and the doors through which events come in.
//! What happens behind the doors is in the files beside this one:
//!
//! * `login.rs`: a client up to "logged in"
//! * `ask.rs`: what PostgreSQL knows of a client's user
//! * `prove.rs`: a password that only PostgreSQL can judge
//! * `check.rs`: what others know of it
//! * `startup.rs`: the settings in a client's startup packet
//! * `seat.rs`: whether a server may be opened, and what has to go for it
//! * `open.rs`: a server up to "logged in"
//! * `replication.rs`: a client gets a server that is nobody else's
//! * `renamed.rs`: a database logs in as another user from now on
//! * `link.rs`: a server is given to a client, prepared for it, and taken back
//! * `statements.rs`: statements of SQL's PREPARE are prepared on another server
//! * `listen.rs`: a client listens, and is told
//! * `listener.rs`: the connections that listen for clients
//! * `requests.rs`: what a linked client sends
//! * `replies.rs`: what a server sends
//! * `resend.rs`: a request is sent once more
//! * `verdict.rs`: what a transaction has left in its session, and what follows from it
//! * `leave.rs`: a client or a server goes
//! * `control.rs`: what an operator orders
//! * `handover.rs`: clients and servers go to another process, or come from one
//! * `signal.rs`: a client cancels or terminates another one by its process id
//! * `cancel.rs`, `tick.rs` (timeouts), `inspect.rs` (reports, invariants)

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use config::{Config, PoolMode, UserSettings};
use foldhash::fast::RandomState;
use slab::Slab;

use crate::auth::{Credentials, Login, LoginStep, Peer};
use crate::client::{Client, ClientPhase, Identity};
use crate::ids::{ClientId, Micros, PoolId, ServerId, WorkerId};
use crate::listener::Listener;
use crate::lore::Lore;
use crate::pool::Next;
use crate::server::{Preparation, Server, ServerPhase};
use crate::settings::PoolSettings;
use crate::shares::TURN;
use crate::shell::{Exchange, Io, Mail};
use crate::stats::Stats;
use crate::values::SharedVars;
use crate::vars::TrackedNames;

mod apply;
mod ask;
mod cancel;
mod check;
mod connect_query;
mod control;
mod handover;
mod holding;
mod inspect;
mod leave;
mod link;
mod listen;
mod listener;
mod login;
mod moved;
mod open;
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
    /// Servers without a client that are being placed.
    to_place: VecDeque<ServerId>,
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
            to_place: VecDeque::new(),
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

    /// A new connection. `None` if the table is full: nothing can be said to it.
    pub fn accept(&mut self, peer: Peer, now: Micros, _io: &mut impl Io) -> Option<ClientId> {
        let id = ClientId(u32::try_from(self.clients.vacant_key()).ok()?);
        let login = Login { peer, ..Login::default() };
        let serial = self.exchange.next_connection();
        self.clients.insert(Client::new(serial, login, now, self.nobody.clone()));
        Some(id)
    }

    /// May this client's bytes be read now? A client without a server asks for one first; until
    /// it has it, its bytes stay in the kernel.
    pub fn client_readable(&mut self, id: ClientId, now: Micros, io: &mut impl Io) -> bool {
        let Some(client) = self.clients.get_mut(id.0 as usize) else { return false };
        match client.phase {
            // While PostgreSQL is asked about it, or its proof must wait, nothing can be done with
            // what it says.
            ClientPhase::Login(ref login) => {
                let asks = matches!(
                    login.step,
                    LoginStep::Proving(_) | LoginStep::Asking(_) | LoginStep::Checking(_)
                );
                !asks && !login.held
            }
            ClientPhase::Linked => !client.awaits_answer(),
            ClientPhase::Canceling { .. } => true,
            ClientPhase::Waiting(_) | ClientPhase::Preparing(_) => false,
            ClientPhase::Idle => {
                client.request_at = now;
                self.link(id, now, io)
            }
        }
    }

    /// Bytes of a client that may be read.
    pub fn client_bytes(&mut self, id: ClientId, bytes: &[u8], now: Micros, io: &mut impl Io) {
        let Some(client) = self.clients.get(id.0 as usize) else { return };
        match client.phase {
            ClientPhase::Login(_) => self.login_bytes(id, bytes, now, io),
            ClientPhase::Linked => self.request_bytes(id, bytes, now, io),
            // It has said all it may say.
            ClientPhase::Canceling { .. } => {}
            ClientPhase::Idle | ClientPhase::Waiting(_) | ClientPhase::Preparing(_) => {
                debug_assert!(false, "bytes were read from a client that has no server");
            }
        }
    }

    /// The socket of a new server is connected. It is not secure yet.
    pub fn server_reached(&mut self, id: ServerId) {
        let phase = self.servers.get_mut(id.0 as usize).map(|server| &mut server.phase);
        if let Some(ServerPhase::Connecting(login)) = phase {
            login.reached = true;
        }
    }

    /// The socket of a new server is there: say who we are.
    pub fn server_connected(&mut self, id: ServerId, _now: Micros, io: &mut impl Io) {
        self.send_startup(id, io);
    }

    pub fn server_bytes(&mut self, id: ServerId, bytes: &[u8], now: Micros, io: &mut impl Io) {
        let Some(server) = self.servers.get_mut(id.0 as usize) else { return };
        // What has lain unread does not show that the server lives.
        if !matches!(server.phase, ServerPhase::Preparing(Preparation::Hear)) {
            server.replied_at = now;
        }
        match server.phase {
            ServerPhase::Login(_) => self.server_login_bytes(id, bytes, now, io),
            ServerPhase::Connecting(_) => {
                debug_assert!(false, "bytes from a server that is not connected");
            }
            ServerPhase::Preparing(_)
            | ServerPhase::Linked
            | ServerPhase::Finishing
            | ServerPhase::Settling
            | ServerPhase::Listening
            | ServerPhase::Parked => self.reply_bytes(id, bytes, now, io),
        }
    }

    /// Something happened on the socket of a parked server. If it still is parked here, it gets a
    /// slot again and is read, since an idle server has nothing to say but bad news.
    pub fn parked_readable(
        &mut self,
        pool: PoolId,
        handle: crate::ids::Handle,
        io: &mut impl Io,
    ) -> Option<ServerId> {
        let worker = self.worker;
        let server = self.exchange.pool(pool, |pool| pool.take_parked(worker, handle))?;
        let id = self.attach(server, io);
        self.server_mut(id).phase = ServerPhase::Settling;
        Some(id)
    }

    /// There was nothing to read on the socket of a server after all.
    pub fn server_quiet(&mut self, id: ServerId, now: Micros, io: &mut impl Io) {
        let Some(server) = self.servers.get(id.0 as usize) else { return };
        match server.phase {
            ServerPhase::Settling if server.is_clean() => self.settled(id, now, io),
            ServerPhase::Preparing(Preparation::Hear) => self.prepared(id, now, io),
            _ => {}
        }
    }

    /// What another worker has to say.
    pub fn handle_mail(&mut self, mail: Mail, now: Micros, io: &mut impl Io) {
        match mail {
            Mail::Server { waiter, server } => {
                let pool = server.pool;
                let id = self.attach(server, io);
                if self.is_waiting(waiter, pool) {
                    self.join_waiter(waiter.client, id, now, io);
                } else {
                    self.place(id, now, io);
                }
            }
            Mail::Refuse { waiter, pool, error } => {
                if self.is_waiting(waiter, pool) {
                    self.refuse_client(waiter.client, &error, now, io);
                }
            }
            Mail::Prove { pool } => {
                if self.exchange.pool(pool, |pool| pool.reserve_opening(now)) {
                    self.open_server(pool, now, io);
                }
            }
            Mail::Cancel { key, requester } => self.cancel_asked(key, requester, now, io),
            Mail::CancelDone { requester, serial, fate } => {
                self.cancel_answered(requester, serial, fate, now, io)
            }
            Mail::FindProcess { process_id, requester } => {
                self.process_asked(process_id, requester, now, io);
            }
            Mail::ProcessFound { requester, serial, found } => {
                self.process_found(requester, serial, found, now, io);
            }
            Mail::Signal { client, serial, terminates, requester } => {
                self.signal_asked((client, serial), terminates, requester, now, io);
            }
            Mail::Listen { pool, subscription } => self.subscribe(pool, subscription, now, io),
            Mail::Unlisten { pool, who, channels } => {
                self.unsubscribe(pool, who, channels.as_deref(), now, io);
            }
            Mail::Listening { client, serial, request, mark, again } => {
                self.listening_begun((client, serial), request, mark, again, now, io);
            }
            Mail::Notified { to, body } => self.notified(&to, &body, now, io),
            Mail::Unheard { pool } => self.unheard(pool),
            Mail::Deaf { to } => self.deaf(&to, now, io),
            Mail::FreePlaces => self.places_wanted = true,
        }
    }

    /// A client that has waited gets this server.
    fn join_waiter(&mut self, id: ClientId, on: ServerId, now: Micros, io: &mut impl Io) {
        if self.asks(id) {
            self.ask_on(id, on, now, io);
        } else if self.proves(id) {
            self.prove_by(id, on, now, io);
        } else if self.join(id, on, now, io) {
            self.go_on(id, now, io);
        }
    }

    /// The client has a server and may be read. Messages that came ahead of its turn come first;
    /// half a message has to wait for the rest, which is in the kernel.
    fn go_on(&mut self, id: ClientId, now: Micros, io: &mut impl Io) {
        io.resume_client(id);
        let client = &mut self.clients[id.0 as usize];
        client.await_nothing();
        if client.stream.holds_message() {
            self.request_bytes(id, &[], now, io);
        }
    }

    /// Is this waiter's client still there, in that very wait? Each pool counts its tickets for
    /// itself, and in place of the client there may be another one.
    fn is_waiting(&self, waiter: crate::pool::Waiter, pool: PoolId) -> bool {
        let client = self.clients.get(waiter.client.0 as usize);
        let wait = client.and_then(Client::wait);
        wait.is_some_and(|(of, own)| of == pool && own.ticket == waiter.ticket)
    }

    /// A server without a client goes where it is needed most. Who gets it may give it back at
    /// once, and so may the next: thousands may be waiting for nothing but their welcome. Hence a
    /// loop in the outermost call, and no recursion.
    fn place(&mut self, id: ServerId, now: Micros, io: &mut impl Io) {
        self.to_place.push_back(id);
        if self.to_place.len() > 1 {
            return;
        }
        // It stays in the list while it is dealt with, as the mark that somebody is at it.
        while let Some(id) = self.to_place.front().copied() {
            let found = self.servers.get(id.0 as usize);
            if found.is_some_and(|server| server.client.is_none() && server.is_clean()) {
                self.place_one(id, false, now, io);
            }
            self.to_place.pop_front();
        }
    }

    /// `is_ours`: other pools have no better right to its seat.
    pub(super) fn place_one(&mut self, id: ServerId, is_ours: bool, now: Micros, io: &mut impl Io) {
        let worker = self.worker;
        let Server { pool, epoch, opened_at, .. } = *self.server(id);
        // A login was paid for, however long it took.
        let is_ours = is_ours || now.saturating_sub(opened_at) < TURN;
        let servers = &mut self.servers;
        // Parking happens under the pool's lock: between "nobody waits" and "it is parked" nobody
        // may begin to wait.
        let next = self.exchange.pool(pool, |pool| {
            let next = pool.release(worker, epoch, is_ours, now);
            if next == Next::Park {
                let mut server = servers.remove(id.0 as usize);
                server.phase = ServerPhase::Parked;
                server.handle = io.detach_server(id, server.pool);
                pool.park(worker, server);
            }
            next
        });
        match next {
            Next::Park => {}
            Next::Local(waiter) => self.join_waiter(waiter.client, id, now, io),
            Next::Remote(to, waiter) => {
                let mut server = self.servers.remove(id.0 as usize);
                server.leave_worker();
                server.phase = ServerPhase::Parked;
                server.handle = io.detach_server(id, pool);
                self.exchange.post(to, Mail::Server { waiter, server });
            }
            Next::Yield(serial) => self.yield_server(id, serial, now, io),
            Next::Contest(serial) => self.contest(id, serial, now, io),
            Next::Close(reason) => self.close_server(id, reason, now, io),
        }
    }

    /// A server from outside gets a slot.
    fn attach(&mut self, server: Box<Server>, io: &mut impl Io) -> ServerId {
        let handle = server.handle;
        self.view(server.pool);
        let id = ServerId(self.servers.insert(server) as u32);
        io.attach_server(id, handle);
        id
    }

    /// The link, for the shell's back-pressure.
    pub fn server_of(&self, id: ClientId) -> Option<ServerId> {
        self.clients.get(id.0 as usize)?.server
    }

    /// Is the client still saying who it is?
    pub fn is_logging_in(&self, id: ClientId) -> bool {
        let client = self.clients.get(id.0 as usize);
        client.is_some_and(|client| matches!(client.phase, ClientPhase::Login(_)))
    }

    pub fn client_of(&self, id: ServerId) -> Option<ClientId> {
        self.servers.get(id.0 as usize)?.client
    }

    /// The client that what the server says now is for, and that may be slow to take it. What the
    /// server is asked for our own sake waits for no client.
    pub fn reader_of(&self, id: ServerId) -> Option<ClientId> {
        let server = self.servers.get(id.0 as usize)?;
        server.client.filter(|_| matches!(server.phase, ServerPhase::Linked))
    }

    /// The configuration was read again; the pools know already.
    pub fn set_config(&mut self, config: Arc<Config>) {
        self.limits_users = limits_users(&config);
        self.warms_pools = true;
        self.config = config;
        self.credentials.clear();
        self.exchange.limits(|limits| limits.guesses.clear());
        for (id, view) in self.pools.iter_mut() {
            let settings = self.exchange.pool(id, |pool| pool.settings.clone());
            if settings.forced_user {
                self.renamed.retain(|pool| *pool != id);
            } else if view.settings.forced_user {
                self.renamed.push(id);
            }
            view.settings = settings;
        }
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
