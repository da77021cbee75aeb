//! The stage for scripted peers: engines with several workers, a net, and a clock that the script
//! moves. A script reads like a conversation:
//!
//! ```text
//! let rig = Rig::transaction();
//! let (client, server) = (rig.client(), rig.server(0));
//! client.send([query("select 1")]);
//! server.expect([query("select 1")]);
//! server.send([complete("SELECT 1"), ready('I')]);
//! client.expect([complete("SELECT 1"), ready('I')]);
//! ```

mod client;
mod net;
mod process;
mod server;
mod shared;
mod world;

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use config::{Config, Database, PoolMode};
use engine::auth::{Password, Peer};
use engine::cancel::CancelEnd;
use engine::figures::Figures;
use engine::ids::ClientId;
use engine::pool::{Gate, Pool};
use engine::pulse::Pulse;
use engine::report::Report;
use engine::server::CloseReason;
use engine::settings::settings_for;
use engine::shell::{Check, Checked, ConsoleLogin, Issued, Mail, TlsStart};
use engine::timings::Connection;
use engine::transactions::Transaction;
use engine::{Ceded, Drain, Exported};

use crate::messages::{self, Message, fatal, key_data, ready, show, startup, status};
use net::{CancelCall, PasswordQuestion, Transport};
use wire::scram::ChannelEnd;
use world::World;
pub(crate) use world::{pid_of, server_welcome, server_welcome_with};

/// Database `app` for user `alice`, password `secret`. Logins need no password.
const BASE: &str = "[databases]\napp = host=10.0.0.1 port=5432\n[pgbouncer]\nauth_type = trust\n";

#[derive(Clone)]
pub(crate) struct Rig(Rc<RefCell<World>>);

#[derive(Clone)]
pub(crate) struct Client {
    world: Rc<RefCell<World>>,
    at: usize,
}

#[derive(Clone)]
pub(crate) struct Server {
    world: Rc<RefCell<World>>,
    at: usize,
}

impl Rig {
    /// A rig with one worker. `change` edits the configuration.
    pub(crate) fn new(change: impl FnOnce(&mut Config)) -> Self {
        Self::with_workers(1, change)
    }

    pub(crate) fn with_workers(workers: usize, change: impl FnOnce(&mut Config)) -> Self {
        let no_file = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
        let mut config = Config::parse_ini(BASE, "rig.ini", &no_file).expect("a sound text");
        config.auth_file.users.insert("alice".into(), "secret".into());
        config.global.pool_mode = PoolMode::Transaction;
        // A script has the queries of clients.
        config.global.role_check_interval = std::time::Duration::ZERO;
        change(&mut config);
        Self(Rc::new(RefCell::new(World::new(workers, config))))
    }

    pub(crate) fn transaction() -> Self {
        Self::new(|_| {})
    }

    /// A rig in transaction mode with at most `size` servers.
    pub(crate) fn of_size(size: u32) -> Self {
        Self::new(|config| config.global.default_pool_size = size)
    }

    pub(crate) fn session() -> Self {
        Self::new(|config| config.global.pool_mode = PoolMode::Session)
    }

    /// From now on the script opens new servers.
    pub(crate) fn manual(self) -> Self {
        self.set_automatic(false);
        self
    }

    pub(crate) fn set_automatic(&self, automatic: bool) {
        self.0.borrow_mut().automatic = automatic;
    }

    /// Limit of servers that are being opened at a time.
    pub(crate) fn set_openings_max(&self, most: u32) {
        self.0.borrow().shared.state(|state| state.limits.openings_max = most);
    }

    /// An idle client's request goes where `router` says. Call this before the first login.
    pub(crate) fn routed(self, router: fn(&[u8]) -> engine::routing::Place) -> Self {
        self.0.borrow().shared.state(|state| state.router = Some(router));
        self
    }

    /// The product's rules decide where an idle client's request goes. Call this before the first
    /// login.
    pub(crate) fn routed_by(self, routing: engine::routing::rules::Routing) -> Self {
        let routing = Some(Arc::new(routing));
        self.0.borrow().shared.state(|state| state.routing = routing);
        self
    }

    /// Another client has changed the schema.
    pub(crate) fn change_schema(&self) {
        self.0.borrow().shared.state(|state| state.interner.schema_changed());
    }

    /// Limits each read to `len` bytes.
    pub(crate) fn set_chunk(&self, len: usize) {
        self.0.borrow_mut().chunk = len;
    }

    pub(crate) fn hold_mail(&self, held: bool) {
        self.0.borrow_mut().mail_is_held = held;
        self.0.borrow_mut().pump();
    }

    /// From now on this worker reads no mail.
    pub(crate) fn hold_mail_of(&self, worker: usize) {
        self.0.borrow_mut().inattentive = Some(worker);
    }

    /// Delivers `count` letters although mail is held.
    pub(crate) fn deliver_letters(&self, count: usize) {
        self.0.borrow_mut().letters_let_through = count;
        self.0.borrow_mut().pump();
    }

    pub(crate) fn hold_servers(&self, held: bool) {
        self.0.borrow_mut().servers_are_held = held;
        self.0.borrow_mut().pump();
    }

    pub(crate) fn hold_clients(&self, held: bool) {
        self.0.borrow_mut().clients_are_held = held;
        self.0.borrow_mut().pump();
    }

    /// A new connection that has sent nothing.
    pub(crate) fn connect(&self) -> Client {
        self.connect_from(0, Peer::default())
    }

    pub(crate) fn connect_from(&self, worker: usize, peer: Peer) -> Client {
        let at = self.0.borrow_mut().connect(worker, peer);
        Client { world: self.0.clone(), at }
    }

    /// A client that is logged in.
    #[track_caller]
    pub(crate) fn client(&self) -> Client {
        self.client_with(0, &[])
    }

    #[track_caller]
    pub(crate) fn client_at(&self, worker: usize) -> Client {
        self.client_with(worker, &[])
    }

    #[track_caller]
    pub(crate) fn client_with(&self, worker: usize, parameters: &[(&str, &str)]) -> Client {
        let client = self.connect_from(worker, Peer::default());
        client.say_hello(parameters);
        client.expect_welcome(parameters);
        client
    }

    /// A logged-in client of that worker, with this user and database.
    #[track_caller]
    pub(crate) fn client_of(&self, worker: usize, user: &str, database: &str) -> Client {
        let client = self.connect_from(worker, Peer::default());
        client.say_hello_as(user, database);
        client.expect_welcome(&[]);
        client
    }

    /// The server that was opened as number `at`, counted from 0.
    #[track_caller]
    pub(crate) fn server(&self, at: usize) -> Server {
        let opened = self.servers();
        assert!(at < opened, "only {opened} servers were opened");
        Server { world: self.0.clone(), at }
    }

    /// The number of servers opened so far.
    pub(crate) fn servers(&self) -> usize {
        self.0.borrow().net.servers.len()
    }

    pub(crate) fn now(&self) -> u64 {
        self.0.borrow().net.now
    }

    /// Moves the clock without telling the engines.
    pub(crate) fn later(&self, micros: u64) {
        self.0.borrow_mut().net.now += micros;
    }

    /// While an engine runs, it is so much later than the engine's `now`.
    pub(crate) fn set_clock_ahead(&self, micros: u64) {
        self.0.borrow_mut().net.clock_ahead = micros;
    }

    /// Moves the clock and tells the engines.
    pub(crate) fn wait(&self, seconds: u64) {
        self.wait_ms(seconds * 1_000);
    }

    pub(crate) fn wait_ms(&self, milliseconds: u64) {
        self.later(milliseconds * 1_000 + 1);
        self.0.borrow_mut().tick();
    }

    /// The nodes of the cluster were sampled, and reads wait for that.
    pub(crate) fn sample(&self) {
        let world = &mut *self.0.borrow_mut();
        for (worker, engine) in world.engines.iter_mut().enumerate() {
            engine.route_held_reads(&mut world.net.io(worker));
        }
        world.pump();
    }

    /// Too many clients are logging in, so some are disconnected.
    pub(crate) fn crowd_out(&self) {
        self.0.borrow_mut().crowd_out();
    }

    /// Reloads the configuration, which `change` edits.
    pub(crate) fn reload(&self, change: impl FnOnce(&mut Config)) {
        let world = &mut *self.0.borrow_mut();
        let mut config = (*world.config).clone();
        change(&mut config);
        world.config = Arc::new(config);
        world.shared.state(|state| {
            for pool in &mut state.pools {
                if let Some(settings) = settings_for(&world.config, &pool.key) {
                    pool.set_settings(settings);
                }
            }
        });
        for (worker, engine) in world.engines.iter_mut().enumerate() {
            engine.notes().set_config(world.config.clone());
            engine.review(&mut world.net.io(worker));
        }
        world.pump();
    }

    /// Hands everything over to a new process.
    pub(crate) fn hand_over(&self) {
        self.hand_over_to(|_| {});
    }

    /// Hands everything over to a new process. `change` edits the new process's configuration.
    pub(crate) fn hand_over_to(&self, change: impl FnOnce(&mut Config)) {
        let world = &mut *self.0.borrow_mut();
        let mut config = (*world.config).clone();
        change(&mut config);
        world.config = Arc::new(config);
        world.hand_over();
    }

    /// The records of each worker for another process.
    pub(crate) fn export(&self) -> Vec<Exported> {
        self.0.borrow_mut().export(|_, _| ()).1
    }

    /// The other process has received the records. Returns what was really given away.
    pub(crate) fn cede(&self, exported: Vec<Exported>) -> Vec<Ceded<Transport>> {
        self.0.borrow_mut().cede(exported)
    }

    pub(crate) fn begin_drain(&self, how: Drain) {
        let world = &mut *self.0.borrow_mut();
        if how == Drain::WaitForServers {
            let gate = Gate::Closed(CloseReason::ShuttingDown);
            world.shared.state(|state| state.pools.iter_mut().for_each(|pool| pool.set_gate(gate)));
        }
        for (worker, engine) in world.engines.iter_mut().enumerate() {
            engine.begin_drain(how, &mut world.net.io(worker));
        }
        world.tick();
    }

    /// Another process has taken over.
    pub(crate) fn note_successor(&self) {
        let engines = &mut self.0.borrow_mut().engines;
        engines.iter_mut().for_each(|engine| engine.notes().note_successor());
    }

    /// Calls `f` with the pool that was made first.
    pub(crate) fn pool<R>(&self, f: impl FnOnce(&mut Pool<Transport>) -> R) -> R {
        self.0.borrow().shared.state(|state| f(&mut state.pools[0]))
    }

    pub(crate) fn each_pool(&self, f: impl FnMut(&mut Pool<Transport>)) {
        self.0.borrow().shared.state(|state| state.pools.iter_mut().for_each(f));
    }

    /// The process of this server has too much memory.
    pub(crate) fn server_is_large(&self, serial: u64) {
        let engines = &mut self.0.borrow_mut().engines;
        engines.iter_mut().for_each(|engine| engine.notes().server_is_large(serial));
    }

    /// The state of all pools, in words.
    pub(crate) fn pools(&self) -> String {
        let in_words = |pool: &Pool<Transport>| {
            let (place, gate, counts) = (pool.key.place, pool.gate(), pool.counts());
            format!("{place:?}: {gate:?}, {counts:?}, {} wait", pool.waiting_total())
        };
        let all = self
            .0
            .borrow()
            .shared
            .state(|state| state.pools.iter().map(in_words).collect::<Vec<_>>());
        all.join("; ")
    }

    /// Cancel requests on their way to PostgreSQL: the server's number, and the packet.
    pub(crate) fn cancels(&self) -> Vec<(usize, Message)> {
        let world = self.0.borrow();
        world.net.cancels.iter().map(|call| (call.server, call.packet.clone())).collect()
    }

    /// Cancel requests passed on to peers: the peer, and the packet.
    pub(crate) fn forwards(&self) -> Vec<(String, Message)> {
        let world = self.0.borrow();
        world.net.forwards.iter().map(|(_, _, to, packet)| (to.clone(), packet.clone())).collect()
    }

    /// Ends the oldest cancel request that was passed on to a peer.
    pub(crate) fn end_forward(&self, end: CancelEnd) {
        let world = &mut *self.0.borrow_mut();
        let (worker, cancel, ..) = world.net.forwards.remove(0);
        world.engines[worker].cancel_finished(cancel, end, &mut world.net.io(worker));
        world.pump();
    }

    /// PostgreSQL has accepted the oldest cancel request.
    pub(crate) fn finish_cancel(&self) {
        self.end_cancel(CancelEnd::Taken);
    }

    /// Ends the oldest cancel request.
    pub(crate) fn end_cancel(&self, end: CancelEnd) {
        let world = &mut *self.0.borrow_mut();
        let CancelCall { worker, cancel, .. } = world.net.cancels.remove(0);
        world.engines[worker].cancel_finished(cancel, end, &mut world.net.io(worker));
        world.pump();
    }

    pub(crate) fn handshakes(&self) -> Vec<TlsStart> {
        self.0.borrow().net.handshakes.clone()
    }

    /// Sets what a login to a server can be bound to.
    pub(crate) fn set_server_end(&self, end: ChannelEnd) {
        self.0.borrow_mut().net.channel_end = end;
    }

    /// The oldest check of a client. All belong to the first worker.
    #[track_caller]
    pub(crate) fn check(&self) -> (ClientId, u64, Check) {
        self.0.borrow_mut().net.checks.remove(0)
    }

    /// Returns the result of a check to that client.
    pub(crate) fn answer_check(&self, client: ClientId, serial: u64, checked: &Checked) {
        let world = &mut *self.0.borrow_mut();
        world.engines[0].checked(client, serial, checked, &mut world.net.io(0));
        world.pump();
    }

    /// The oldest question for a password.
    #[track_caller]
    pub(crate) fn question(&self) -> PasswordQuestion {
        self.0.borrow_mut().net.questions.remove(0)
    }

    /// The number of servers that wait for their passwords.
    pub(crate) fn questions(&self) -> usize {
        self.0.borrow().net.questions.len()
    }

    /// Answers a question for a password, with its number.
    pub(crate) fn answer_question(
        &self,
        question: &PasswordQuestion,
        answer: Result<(u64, &str), &str>,
    ) {
        let world = &mut *self.0.borrow_mut();
        let PasswordQuestion { worker, server, serial, .. } = *question;
        let issued = |(number, text): (u64, &str)| {
            let password = Password(text.to_owned());
            Issued { number, password }
        };
        let issued = answer.map(issued).map_err(str::to_owned);
        let mail = Mail::Password { server, serial, issued };
        world.engines[worker].handle_mail(mail, &mut world.net.io(worker));
        world.pump();
    }

    pub(crate) fn consoles(&self) -> Vec<ConsoleLogin> {
        std::mem::take(&mut self.0.borrow_mut().net.consoles)
    }

    /// Applies an operator's order to the pool made first, and tells the workers.
    pub(crate) fn order(&self, f: impl FnOnce(&mut Pool<Transport>)) {
        self.order_at(0, f);
    }

    /// Does the same with the pool that was made as the `at`th one.
    pub(crate) fn order_at(&self, at: usize, f: impl FnOnce(&mut Pool<Transport>)) {
        self.0.borrow().shared.state(|state| f(&mut state.pools[at]));
        let world = &mut *self.0.borrow_mut();
        for (worker, engine) in world.engines.iter_mut().enumerate() {
            engine.review(&mut world.net.io(worker));
        }
        world.pump();
    }

    /// Does the same with all pools.
    pub(crate) fn order_all(&self, f: impl Fn(&mut Pool<Transport>)) {
        self.0.borrow().shared.state(|state| state.pools.iter_mut().for_each(f));
        let world = &mut *self.0.borrow_mut();
        for (worker, engine) in world.engines.iter_mut().enumerate() {
            engine.review(&mut world.net.io(worker));
        }
        world.pump();
    }

    pub(crate) fn kill(&self, database: &str) {
        let world = &mut *self.0.borrow_mut();
        for (worker, engine) in world.engines.iter_mut().enumerate() {
            engine.kill(|name| name == database, &mut world.net.io(worker));
        }
        world.pump();
    }

    pub(crate) fn report(&self, worker: usize) -> Report {
        let world = &mut *self.0.borrow_mut();
        world.engines[worker].report(world.net.now)
    }

    /// The checkpoints of the connections that have ended.
    pub(crate) fn ended(&self) -> Vec<Connection> {
        self.0.borrow().net.ended.clone()
    }

    pub(crate) fn transactions(&self, worker: usize) -> Vec<Transaction> {
        self.0.borrow().engines[worker].look().transactions()
    }

    /// The pulses of that worker's pools.
    pub(crate) fn pulses(&self, worker: usize) -> Vec<Pulse> {
        let pulses = self.0.borrow().engines[worker].look().pulses();
        pulses.into_iter().map(|(_, pulse)| pulse).collect()
    }

    pub(crate) fn figures(&self, worker: usize) -> Figures {
        let world = self.0.borrow();
        world.engines[worker].look().figures(world.net.now)
    }

    /// Was a line with these words logged?
    pub(crate) fn logged(&self, words: &str) -> bool {
        self.times_logged(words) > 0
    }

    pub(crate) fn times_logged(&self, words: &str) -> usize {
        self.0.borrow().net.log.iter().filter(|line| line.contains(words)).count()
    }

    pub(crate) fn clients_in_tables(&self) -> usize {
        self.0.borrow().engines.iter().map(|engine| engine.look().client_count()).sum()
    }

    /// The orders to the lobbies so far.
    pub(crate) fn lobby<R>(&self, f: impl FnOnce(&mut net::FakeLobby) -> R) -> R {
        f(&mut self.0.borrow_mut().net.lobby)
    }

    /// The thread of the lobbies has posted this mail.
    pub(crate) fn mail(&self, worker: usize, mail: Mail<Transport>) {
        let world = &mut *self.0.borrow_mut();
        world.shared.state(|state| state.mail[worker].push_back(mail));
        world.pump();
    }

    pub(crate) fn clients_counted(&self) -> u32 {
        self.0.borrow().shared.state(|state| state.limits.clients())
    }
}

/// Adds database `other` and user `bob`.
pub(crate) fn add_others(config: &mut Config) {
    let other = Database { name: "other".into(), ..(*config.databases["app"]).clone() };
    config.databases.insert("other".into(), Arc::new(other));
    config.auth_file.users.insert("bob".into(), "secret".into());
}

/// The entry of database `app`.
pub(crate) fn app(config: &mut Config) -> &mut Database {
    Arc::make_mut(config.databases.get_mut("app").expect("the base has it"))
}
