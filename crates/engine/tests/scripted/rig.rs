//! The stage for scripted peers: engines with several workers, a net, and a clock that is turned
//! by hand. A script reads like a conversation:
//!
//! ```text
//! let rig = Rig::transaction();
//! let (client, server) = (rig.client(), rig.server(0));
//! client.send([query("select 1")]);
//! server.expect([query("select 1")]);
//! server.send([complete("SELECT 1"), ready('I')]);
//! client.expect([complete("SELECT 1"), ready('I')]);
//! ```

mod net;
mod process;
mod shared;
mod world;

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use config::{Config, Database, PoolMode};
use engine::auth::Peer;
use engine::cancel::CancelEnd;
use engine::ids::ClientId;
use engine::pool::{Gate, Pool};
use engine::report::Report;
use engine::server::CloseReason;
use engine::settings::settings_for;
use engine::shell::{Check, Checked, ConsoleLogin, TlsStart};
use engine::{Ceded, Drain, Exported};

use crate::messages::{self, Message, fatal, key_data, ready, show, startup, status};
use net::{CancelCall, ClientEnd, Place, ServerEnd, Transport};
use world::{PARAMETERS, World};
pub(crate) use world::{pid_of, server_welcome, server_welcome_with};

/// Database `app` for user `alice` (password `secret`), without any question asked.
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
    /// One worker; the configuration as `change` leaves it.
    pub(crate) fn new(change: impl FnOnce(&mut Config)) -> Self {
        Self::with_workers(1, change)
    }

    pub(crate) fn with_workers(workers: usize, change: impl FnOnce(&mut Config)) -> Self {
        let no_file = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
        let mut config = Config::parse_ini(BASE, "rig.ini", &no_file).expect("a sound text");
        config.auth_file.users.insert("alice".into(), "secret".into());
        config.global.pool_mode = PoolMode::Transaction;
        change(&mut config);
        Self(Rc::new(RefCell::new(World::new(workers, config))))
    }

    pub(crate) fn transaction() -> Self {
        Self::new(|_| {})
    }

    /// Transaction mode with so many servers at most.
    pub(crate) fn of_size(size: u32) -> Self {
        Self::new(|config| config.global.default_pool_size = size)
    }

    pub(crate) fn session() -> Self {
        Self::new(|config| config.global.pool_mode = PoolMode::Session)
    }

    /// New servers wait for the script from now on.
    pub(crate) fn manual(self) -> Self {
        self.set_automatic(false);
        self
    }

    pub(crate) fn set_automatic(&self, automatic: bool) {
        self.0.borrow_mut().automatic = automatic;
    }

    /// So many servers may be being opened at a time.
    pub(crate) fn set_openings_max(&self, most: u32) {
        self.0.borrow().shared.state(|state| state.limits.openings_max = most);
    }

    /// Every read brings so many bytes at most.
    pub(crate) fn set_chunk(&self, len: usize) {
        self.0.borrow_mut().chunk = len;
    }

    pub(crate) fn hold_mail(&self, held: bool) {
        self.0.borrow_mut().mail_is_held = held;
        self.0.borrow_mut().pump();
    }

    /// So many letters are delivered, though mail is held.
    pub(crate) fn deliver_letters(&self, count: usize) {
        self.0.borrow_mut().letters_let_through = count;
        self.0.borrow_mut().pump();
    }

    pub(crate) fn hold_servers(&self, held: bool) {
        self.0.borrow_mut().servers_are_held = held;
        self.0.borrow_mut().pump();
    }

    /// A connection that has said nothing yet.
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

    /// A client of that worker that is logged in as somebody else or elsewhere.
    #[track_caller]
    pub(crate) fn client_of(&self, worker: usize, user: &str, database: &str) -> Client {
        let client = self.connect_from(worker, Peer::default());
        client.say_hello_as(user, database);
        client.expect_welcome(&[]);
        client
    }

    /// The server that was opened as number `at`, from 0.
    #[track_caller]
    pub(crate) fn server(&self, at: usize) -> Server {
        let opened = self.servers();
        assert!(at < opened, "only {opened} servers were opened");
        Server { world: self.0.clone(), at }
    }

    /// How many servers were opened so far.
    pub(crate) fn servers(&self) -> usize {
        self.0.borrow().net.servers.len()
    }

    /// Time goes on unnoticed.
    pub(crate) fn later(&self, micros: u64) {
        self.0.borrow_mut().now += micros;
    }

    /// Time goes on, and the engines are told.
    pub(crate) fn wait(&self, seconds: u64) {
        self.later(seconds * 1_000_000 + 1);
        self.0.borrow_mut().tick();
    }

    /// Too many are logging in, and those have to go that can be done without.
    pub(crate) fn crowd_out(&self) {
        self.0.borrow_mut().crowd_out();
    }

    /// The configuration is read again, and is as `change` leaves it.
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
            engine.set_config(world.config.clone());
            engine.review(world.now, &mut world.net.io(worker));
        }
        world.pump();
    }

    /// Another process takes over.
    pub(crate) fn hand_over(&self) {
        self.hand_over_to(|_| {});
    }

    /// Its configuration is as `change` leaves it.
    pub(crate) fn hand_over_to(&self, change: impl FnOnce(&mut Config)) {
        let world = &mut *self.0.borrow_mut();
        let mut config = (*world.config).clone();
        change(&mut config);
        world.config = Arc::new(config);
        world.hand_over();
    }

    /// What another process may get, of each worker.
    pub(crate) fn export(&self) -> Vec<Exported> {
        self.0.borrow_mut().export(|_, _| ()).1
    }

    /// It has got it. What was really given away.
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
            engine.begin_drain(how, world.now, &mut world.net.io(worker));
        }
        world.tick();
    }

    /// The pool made first.
    pub(crate) fn pool<R>(&self, f: impl FnOnce(&mut Pool<Transport>) -> R) -> R {
        self.0.borrow().shared.state(|state| f(&mut state.pools[0]))
    }

    /// Cancel requests on their way to PostgreSQL: to which server, and the packet.
    pub(crate) fn cancels(&self) -> Vec<(usize, Message)> {
        let world = self.0.borrow();
        world.net.cancels.iter().map(|call| (call.server, call.packet.clone())).collect()
    }

    /// Cancel requests passed on to peers: to whom, and the packet.
    pub(crate) fn forwards(&self) -> Vec<(String, Message)> {
        let world = self.0.borrow();
        world.net.forwards.iter().map(|(_, _, to, packet)| (to.clone(), packet.clone())).collect()
    }

    /// What the oldest cancel request that was passed on to a peer has come to.
    pub(crate) fn end_forward(&self, end: CancelEnd) {
        let world = &mut *self.0.borrow_mut();
        let (worker, cancel, ..) = world.net.forwards.remove(0);
        world.engines[worker].cancel_finished(cancel, end, world.now, &mut world.net.io(worker));
        world.pump();
    }

    /// PostgreSQL has taken the oldest cancel request.
    pub(crate) fn finish_cancel(&self) {
        self.end_cancel(CancelEnd::Taken);
    }

    /// What the oldest cancel request has come to.
    pub(crate) fn end_cancel(&self, end: CancelEnd) {
        let world = &mut *self.0.borrow_mut();
        let CancelCall { worker, cancel, .. } = world.net.cancels.remove(0);
        world.engines[worker].cancel_finished(cancel, end, world.now, &mut world.net.io(worker));
        world.pump();
    }

    pub(crate) fn handshakes(&self) -> Vec<TlsStart> {
        self.0.borrow().net.handshakes.clone()
    }

    /// What servers' certificates are known by from now on.
    pub(crate) fn set_end_point(&self, end_point: Arc<[u8]>) {
        self.0.borrow_mut().net.end_point = end_point;
    }

    /// The oldest question about a client; all are of the first worker.
    #[track_caller]
    pub(crate) fn check(&self) -> (ClientId, u64, Check) {
        self.0.borrow_mut().net.checks.remove(0)
    }

    /// What was found out about that client.
    pub(crate) fn answer_check(&self, client: ClientId, serial: u64, checked: &Checked) {
        let world = &mut *self.0.borrow_mut();
        world.engines[0].checked(client, serial, checked, world.now, &mut world.net.io(0));
        world.pump();
    }

    pub(crate) fn consoles(&self) -> Vec<ConsoleLogin> {
        std::mem::take(&mut self.0.borrow_mut().net.consoles)
    }

    /// The operator does this to the pool made first, and the workers are told.
    pub(crate) fn order(&self, f: impl FnOnce(&mut Pool<Transport>)) {
        self.pool(f);
        let world = &mut *self.0.borrow_mut();
        for (worker, engine) in world.engines.iter_mut().enumerate() {
            engine.review(world.now, &mut world.net.io(worker));
        }
        world.pump();
    }

    pub(crate) fn kill(&self, database: &str) {
        let world = &mut *self.0.borrow_mut();
        for (worker, engine) in world.engines.iter_mut().enumerate() {
            engine.kill(|name| name == database, world.now, &mut world.net.io(worker));
        }
        world.pump();
    }

    pub(crate) fn report(&self, worker: usize) -> Report {
        let world = &mut *self.0.borrow_mut();
        world.engines[worker].report(world.now)
    }

    /// Was something with these words in it logged?
    pub(crate) fn logged(&self, words: &str) -> bool {
        self.0.borrow().net.log.iter().any(|line| line.contains(words))
    }

    pub(crate) fn clients_in_tables(&self) -> usize {
        self.0.borrow().engines.iter().map(engine::Engine::client_count).sum()
    }

    pub(crate) fn clients_counted(&self) -> u32 {
        self.0.borrow().shared.state(|state| state.limits.clients())
    }
}

/// A second database `other` and a second user `bob`.
pub(crate) fn add_others(config: &mut Config) {
    let other = Database { name: "other".into(), ..(*config.databases["app"]).clone() };
    config.databases.insert("other".into(), Arc::new(other));
    config.auth_file.users.insert("bob".into(), "secret".into());
}

/// The entry of database `app`, to be changed.
pub(crate) fn app(config: &mut Config) -> &mut Database {
    Arc::make_mut(config.databases.get_mut("app").expect("the base has it"))
}

impl Client {
    fn end<R>(&self, f: impl FnOnce(&mut ClientEnd) -> R) -> R {
        f(&mut self.world.borrow_mut().net.clients[self.at])
    }

    pub(crate) fn send(&self, messages: impl IntoIterator<Item = Message>) {
        let bytes: Vec<u8> = messages.into_iter().flatten().collect();
        self.end(|end| end.unread.extend(bytes));
        self.world.borrow_mut().pump();
    }

    /// The startup packet of alice, who wants database `app`.
    pub(crate) fn say_hello(&self, parameters: &[(&str, &str)]) {
        let mut all = vec![("user", "alice"), ("database", "app")];
        all.extend_from_slice(parameters);
        self.send([startup(&all)]);
    }

    /// The same in protocol 3.2.
    pub(crate) fn say_hello_3_2(&self) {
        let mut hello = startup(&[("user", "alice"), ("database", "app")]);
        hello[7] = 2;
        self.send([hello]);
    }

    /// What it was given to cancel with, by a welcome in protocol 3.2.
    pub(crate) fn take_long_key(&self) -> (u32, Vec<u8>) {
        let got = self.take();
        let end = got.len() - ready('I').len();
        let begin = end - wire::cancel_key::LONG_SECRET_LEN - 4;
        let pid = u32::from_be_bytes(got[begin..begin + 4].try_into().expect("four bytes"));
        (pid, got[begin + 4..end].to_vec())
    }

    /// The startup packet of somebody else.
    pub(crate) fn say_hello_as(&self, user: &str, database: &str) {
        self.send([startup(&[("user", user), ("database", database)])]);
    }

    /// Exactly these messages came since the last look.
    #[track_caller]
    pub(crate) fn expect(&self, messages: impl IntoIterator<Item = Message>) {
        let expected: Vec<u8> = messages.into_iter().flatten().collect();
        let got = self.end(|end| std::mem::take(&mut end.got));
        assert_eq!(show(&got), show(&expected), "what client {} got", self.at);
    }

    /// It was told that its server is lost, and cut off.
    #[track_caller]
    pub(crate) fn expect_lost(&self) {
        self.expect([fatal("08006", CloseReason::Lost.text())]);
        assert!(!self.is_open(), "still open");
    }

    /// It was told so, and cut off.
    #[track_caller]
    pub(crate) fn expect_fatal(&self, text: &str) {
        self.expect([fatal("08P01", text)]);
        assert!(!self.is_open(), "still open");
    }

    /// Welcomed with its own values where it gave some, else with the server's.
    #[track_caller]
    pub(crate) fn expect_welcome(&self, own: &[(&str, &str)]) -> (u32, Vec<u8>) {
        let got = without_news_of_the_pooler(&self.end(|end| std::mem::take(&mut end.got)));
        let parameters: Vec<Message> = PARAMETERS
            .iter()
            .map(|(name, value)| {
                let given = own.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
                status(name, given.map_or(value, |(_, value)| value))
            })
            .collect();
        let key = got.len().checked_sub(14).expect("a welcome, not nothing");
        let (pid, secret) = (&got[key..key + 4], &got[key + 4..key + 8]);
        let pid = u32::from_be_bytes(pid.try_into().expect("four bytes"));
        let expected =
            [messages::authentication_ok(), parameters.concat(), key_data(pid, secret), ready('I')];
        assert_eq!(show(&got), show(&expected.concat()));
        assert!(pid >> 31 == 0, "the top bit of the process id is clear");
        (pid, secret.to_vec())
    }

    /// What came since the last look.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.end(|end| std::mem::take(&mut end.got))
    }

    /// Bytes it has sent that nobody has read.
    pub(crate) fn unread(&self) -> usize {
        self.end(|end| end.unread.len())
    }

    /// Its socket is gone.
    pub(crate) fn leave(&self) {
        self.end(|end| end.left = true);
        self.world.borrow_mut().pump();
    }

    /// Something happens on its socket, and then there is nothing to read.
    pub(crate) fn poke(&self) {
        self.end(|end| end.poked = true);
        self.world.borrow_mut().pump();
    }

    /// It does not read what it is sent, or does so again.
    pub(crate) fn set_slow(&self, slow: bool) {
        self.end(|end| end.slow = slow);
        self.world.borrow_mut().pump();
    }

    /// It says Terminate where no server is needed to hear it.
    pub(crate) fn say_goodbye(&self) {
        self.world.borrow_mut().say_goodbye(self.at);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.end(|end| end.id.is_some())
    }

    /// Would SUSPEND leave it as it is?
    pub(crate) fn is_at_rest(&self) -> bool {
        let (worker, id) = self.end(|end| (end.worker, end.id.expect("open")));
        self.world.borrow().engines[worker].client_at_rest(id)
    }
}

impl Server {
    fn end<R>(&self, f: impl FnOnce(&mut ServerEnd) -> R) -> R {
        f(&mut self.world.borrow_mut().net.servers[self.at])
    }

    /// The connection is there (scripts only).
    pub(crate) fn connect(&self) {
        let world = &mut *self.world.borrow_mut();
        let end = &mut world.net.servers[self.at];
        end.connected = true;
        let Place::Table(id) = end.place else { panic!("it waits for nothing") };
        let worker = end.worker;
        world.engines[worker].server_connected(id, world.now, &mut world.net.io(worker));
        world.pump();
    }

    /// The connection is refused.
    pub(crate) fn refuse(&self) {
        let world = &mut *self.world.borrow_mut();
        let end = &mut world.net.servers[self.at];
        let Place::Table(id) = end.place else { panic!("it waits for nothing") };
        let worker = end.worker;
        let io = &mut world.net.io(worker);
        world.engines[worker].server_closed(id, CloseReason::ConnectFailed, world.now, io);
        world.pump();
    }

    pub(crate) fn send(&self, messages: impl IntoIterator<Item = Message>) {
        let bytes: Vec<u8> = messages.into_iter().flatten().collect();
        self.end(|end| end.unread.extend(bytes));
        self.world.borrow_mut().pump();
    }

    #[track_caller]
    pub(crate) fn expect(&self, messages: impl IntoIterator<Item = Message>) {
        let expected: Vec<u8> = messages.into_iter().flatten().collect();
        let got = self.take();
        assert_eq!(show(&got), show(&expected), "what server {} got", self.at);
    }

    /// A query comes and is answered.
    #[track_caller]
    pub(crate) fn answers(&self, sql: &str) {
        self.expect([messages::query(sql)]);
        self.send([messages::done("OK")]);
    }

    pub(crate) fn take(&self) -> Vec<u8> {
        self.end(|end| std::mem::take(&mut end.got))
    }

    /// Its process was killed.
    pub(crate) fn die(&self) {
        self.end(|end| end.left = true);
        self.world.borrow_mut().pump();
    }

    /// Something happens on its socket, and then there is nothing to read.
    pub(crate) fn poke(&self) {
        self.end(|end| end.poked = true);
        self.world.borrow_mut().pump();
    }

    /// From now on what it is sent does not get through at once.
    pub(crate) fn get_stuck(&self) {
        self.end(|end| end.stuck = true);
    }

    /// Its socket takes nothing any more, which is found out by the next who tries.
    pub(crate) fn break_silently(&self) {
        self.end(|end| end.broken = true);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.end(|end| end.place != Place::Closed)
    }

    /// Has it no client?
    pub(crate) fn is_parked(&self) -> bool {
        self.end(|end| matches!(end.place, Place::Detached(..)))
    }

    pub(crate) fn worker(&self) -> usize {
        self.end(|end| end.worker)
    }

    pub(crate) fn pid(&self) -> u32 {
        pid_of(self.at)
    }

    pub(crate) fn startup(&self) -> Vec<u8> {
        self.end(|end| end.startup.clone())
    }

    pub(crate) fn target(&self) -> String {
        self.end(|end| end.target.clone())
    }
}

/// These messages but for the parameters by which the pooler tells of itself; `welcome.rs` looks at those.
fn without_news_of_the_pooler(mut messages: &[u8]) -> Vec<u8> {
    let mut rest = Vec::new();
    while let Some(len) = messages.get(1..5) {
        let len = u32::from_be_bytes(len.try_into().expect("four bytes")) as usize + 1;
        let (message, behind) = messages.split_at(len);
        if !message[5..].starts_with(b"pgbouncer.") {
            rest.extend_from_slice(message);
        }
        messages = behind;
    }
    rest
}
