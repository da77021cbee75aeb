//! One run: clients, workers with the real engine, and servers. Random small actions move it
//! forward until all clients are done.

mod causes;
mod checks;
mod client_side;
mod links;
mod operator;
mod order;
mod server_side;
mod spares;
mod takeover;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use engine::auth::Peer;
use engine::cancel::CancelEnd;
use engine::ids::WorkerId;
use engine::{Drain, Engine};

use crate::client::{Client, Phase};
use crate::exchange::{Shared, SimExchange};
use crate::net::{Net, SimIo};
use crate::rng::Rng;
use crate::sabotage::Sabotage;
use crate::setup::{START, Setup};
use crate::sql::Tag;
use crate::timings::Timings;

use links::Links;
use operator::{Noted, Order, Verb};
use order::Queues;

/// Simulated time without an event after which a client counts as waiting forever.
const PATIENCE: u64 = 120_000_000;
const TICK: u64 = 200_000;
/// Steps after which faults stop.
const STORM_STEPS: usize = 3_000;

/// Steps after which a run counts as endless. An ordinary run has a few thousand.
const STEPS_MAX: usize = 300_000;
/// Servers ever opened after which a run counts as endless. An ordinary run has a dozen. Seed 658,944
/// needs 1,569: two pools share one server, and their clients send long texts in small parts.
const SERVERS_MAX: usize = 2_000;

/// The next event of a run.
#[derive(Clone, Copy, Debug)]
enum Action {
    ClientComes(usize),
    ClientGoesOn(usize),
    ClientSends(usize),
    ClientReads(usize),
    ClientVanishes(usize),
    ShellFlushesClient(usize),
    ShellReadsClient(usize),
    Connect(usize),
    ShellFlushesServer(usize),
    ShellReadsServer(usize),
    ShellHearsParked(usize),
    ServerReads(usize),
    ServerWrites(usize),
    ServerWakes(usize),
    ServerChats(usize),
    ServerTellsNews(usize),
    ServerStalls(usize),
    ServerDies(usize),
    CancelArrives(usize),
    CancelEnds(usize),
    /// It is late, or cannot be sent.
    CancelFails(usize),
    Mail(usize),
    /// A program has printed a password.
    Password(usize),
    Tick(usize),
    Operate(Verb),
    /// A worker gets an order.
    Order(usize),
    /// A new process takes over everything.
    TakeOver,
    SpuriousEvent(usize),
}

/// The side that sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// The sums of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) steps: usize,
    pub(crate) requests: usize,
    /// Requests that a reader has answered.
    pub(crate) read: usize,
    pub(crate) cancels_hit: usize,
    pub(crate) servers: usize,
    pub(crate) thrown_out: usize,
    pub(crate) inserted: usize,
    pub(crate) takeovers: usize,
    /// Clients that were told of a lost server, and went on.
    pub(crate) kept: usize,
    /// Bytes sent by clients, and by servers.
    pub(crate) spoken: [usize; 2],
}

impl Summary {
    pub(crate) fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.requests += other.requests;
        self.read += other.read;
        self.cancels_hit += other.cancels_hit;
        self.servers += other.servers;
        self.thrown_out += other.thrown_out;
        self.inserted += other.inserted;
        self.takeovers += other.takeovers;
        self.kept += other.kept;
    }
}

pub(crate) struct World {
    setup: Setup,
    rng: Rng,
    net: Net,
    engines: Vec<Engine<SimExchange>>,
    shared: Rc<RefCell<Shared>>,
    clients: Vec<Client>,
    next_tick: Vec<u64>,
    /// Do faults still happen?
    stormy: bool,
    summary: Summary,
    quiet_since: u64,
    /// Orders that each worker has not received yet.
    orders: Vec<VecDeque<Order>>,
    /// A row of SHOW CLIENTS that the operator has seen.
    noted: Option<Noted>,
    reloads: usize,
    draining: Option<Drain>,
    /// The start of a pending online restart. The other number counts restarts.
    taking_over: Option<u64>,
    takeovers: usize,
    /// For each worker: is it suspended?
    suspended: Vec<bool>,
    queues: Queues,
    links: Links,
    /// The side to kill, and after how many bytes of that side.
    kill: Option<(Side, usize)>,
    /// The tags of committed inserts, of all servers.
    inserted: HashSet<Tag>,
}

impl World {
    pub(crate) fn new(seed: u64, sabotage: Option<Sabotage>, trace: bool) -> Self {
        let mut rng = Rng::new(seed);
        let mut setup = Setup::new(&mut rng);
        setup.draw_routing(seed);
        setup.draw_fleet(seed);
        setup.draw_keeping(seed);
        setup.draw_passwords(seed);
        setup.draw_timings(seed);
        setup.draw_marks(seed);
        setup.draw_reuse(seed);
        setup.draw_uses(seed);
        setup.draw_spares(seed);
        let mut shared = Shared::new(setup.workers, Rng::new(rng.next()), sabotage);
        shared.routed = setup.routed;
        shared.keeps_clients = setup.keeps_clients;
        let shared = Rc::new(RefCell::new(shared));
        let config = Arc::new(setup.config.clone());
        let engine = |worker| {
            Engine::new(WorkerId(worker), config.clone(), SimExchange(shared.clone()), [5; 32])
        };
        let net = Net {
            now: START,
            rng: Rng::new(rng.next()),
            clients: Vec::new(),
            servers: Vec::new(),
            cancels: Vec::new(),
            passwords: Vec::new(),
            last_password: 0,
            without_socket: HashSet::new(),
            client_slots: vec![HashMap::new(); usize::from(setup.workers)],
            server_slots: vec![HashMap::new(); usize::from(setup.workers)],
            factory: setup.factory(),
            bus: setup.bus.clone(),
            capacities: setup.capacities,
            sabotage,
            complaints: Vec::new(),
            thrown_out: Vec::new(),
            disabled: HashSet::new(),
            resumed: 0,
            timings: Timings::keeping(setup.timings),
            trace,
        };
        let mut world = Self {
            engines: (0..setup.workers).map(engine).collect(),
            next_tick: vec![net.now + TICK; usize::from(setup.workers)],
            stormy: true,
            net,
            shared,
            clients: Vec::new(),
            summary: Summary::default(),
            quiet_since: 0,
            orders: vec![VecDeque::new(); usize::from(setup.workers)],
            noted: None,
            reloads: 0,
            draining: None,
            taking_over: None,
            takeovers: 0,
            suspended: vec![false; usize::from(setup.workers)],
            queues: Queues::default(),
            links: Links::default(),
            kill: None,
            inserted: HashSet::new(),
            setup,
            rng,
        };
        for index in 0..world.setup.clients {
            let mut client = world.setup.client(&mut world.rng, index);
            let comes_later = index > 1 && world.rng.once_in(4);
            if comes_later {
                client.stay_away();
            }
            let at = world.add_client(client);
            if !comes_later {
                world.accept(at);
            }
        }
        world
    }

    /// Kills a connection of `side` when that side sends the byte after so many.
    pub(crate) fn kill_after(mut self, side: Side, bytes: usize) -> Self {
        self.kill = Some((side, bytes));
        self
    }

    /// Returns how many of `count` bytes are sent, and whether the sender then dies.
    fn speak(&mut self, side: Side, count: usize) -> (usize, bool) {
        let spoken = &mut self.summary.spoken[side as usize];
        let left = match self.kill {
            Some((its, at)) if its == side && at >= *spoken => at - *spoken,
            _ => usize::MAX,
        };
        let dies = count > left;
        *spoken += count.min(left) + usize::from(dies);
        (count.min(left), dies)
    }

    /// Runs until all clients are done, or a check fails.
    pub(crate) fn run(mut self) -> Result<Summary, String> {
        self.net.log(|| {
            format!(
                "{:?}, {} clients, {} workers, stormy {}\n{:?}",
                self.setup.mode,
                self.setup.clients,
                self.setup.workers,
                self.setup.stormy,
                self.setup.keys,
            )
        });
        let mut actions = Vec::new();
        while self.clients.iter().any(|client| !client.is_done()) {
            self.summary.steps += 1;
            if self.summary.steps > STEPS_MAX || self.net.servers.len() > SERVERS_MAX {
                return Err(format!("it never ends\n{}", self.describe()));
            }
            self.stormy = self.summary.steps < STORM_STEPS;
            actions.clear();
            self.possible(&mut actions);
            if actions.is_empty() {
                self.pass_time()?;
                continue;
            }
            let action = self.rng.pick(&actions);
            if !matches!(action, Action::Tick(_)) {
                self.quiet_since = self.net.now;
            }
            self.net.now += self.rng.range(1, 100) as u64;
            self.find_excuses(action);
            self.act(action).map_err(|why| format!("{action:?}: {why}"))?;
            self.check().map_err(|why| format!("after {action:?}: {why}"))?;
        }
        self.settle()?;
        Ok(self.summary)
    }

    fn add_client(&mut self, client: Client) -> usize {
        let worker = self.rng.below(self.engines.len());
        let (up, down) = (self.net.new_pipe(), self.net.new_pipe());
        let at = self.net.clients.len();
        self.net.clients.push(crate::net::ClientSocket {
            worker,
            slot: None,
            up,
            down,
            pending: Vec::new(),
            latch: false,
            blocked: false,
            excused: false,
            barred: false,
        });
        self.clients.push(client);
        at
    }

    /// The client connects.
    fn accept(&mut self, at: usize) {
        let worker = self.net.clients[at].worker;
        let now = self.net.now;
        let (engine, _) = self.engine(worker);
        let slot = engine
            .notes()
            .accept(Peer { loopback: true, ..Peer::default() }, now)
            .expect("a free slot");
        self.net.clients[at].slot = Some(slot);
        if self.net.client_slots[worker].insert(slot.0, at).is_some() {
            self.net.complaints.push(format!("{slot:?} was not free"));
        }
    }

    /// A client that stayed away connects.
    fn client_comes(&mut self, at: usize) {
        self.net.log(|| format!("client {at} comes"));
        self.clients[at].phase = Phase::Login(None);
        self.accept(at);
    }

    fn engine(&mut self, worker: usize) -> (&mut Engine<SimExchange>, SimIo<'_>) {
        self.shared.borrow_mut().now = self.net.now;
        (&mut self.engines[worker], SimIo { net: &mut self.net, worker })
    }

    /// Nothing can happen now. Moves the clock to the next possible event.
    fn pass_time(&mut self) -> Result<(), String> {
        self.check_rest()?;
        self.check_orders()?;
        self.check_spares()?;
        self.end_shutdown();
        let mut moments: Vec<u64> = self.next_tick.clone();
        moments.extend(self.net.servers.iter().filter_map(|server| server.wakes_at));
        moments.extend(self.net.passwords.iter().map(|(due, ..)| *due));
        moments.extend(self.net.servers.iter().map(|server| server.stalled_until));
        moments.extend(self.clients.iter().map(|client| client.thinks_until));
        moments.extend(self.clients.iter().map(|client| client.deaf_until));
        moments.extend(self.net.cancels.iter().map(|cancel| cancel.due));
        let shared = self.shared.borrow();
        moments.extend(shared.mail.iter().filter_map(|queue| queue.front()).map(|(due, _)| *due));
        drop(shared);
        let now = self.net.now;
        self.net.now = moments.into_iter().filter(|moment| *moment > now).min().unwrap_or(now + 1);
        if self.net.now > self.quiet_since + PATIENCE {
            return Err(format!("nothing happens any more\n{}", self.describe()));
        }
        Ok(())
    }

    fn possible(&mut self, actions: &mut Vec<Action>) {
        if self.may_take_over() {
            return actions.push(Action::TakeOver);
        }
        for at in 0..self.clients.len() {
            self.possible_for_client(at, actions);
        }
        for at in 0..self.net.servers.len() {
            self.possible_for_server(at, actions);
        }
        let now = self.net.now;
        let loses = self.setup.stormy && self.stormy;
        for (at, cancel) in self.net.cancels.iter().enumerate() {
            if loses && !cancel.delivered && !cancel.finished && self.rng.once_in(20) {
                actions.push(Action::CancelFails(at));
            }
            if !cancel.delivered && now >= cancel.due {
                actions.push(Action::CancelArrives(at));
            } else if !cancel.finished && (cancel.delivered || self.hurries_cancels()) {
                actions.push(Action::CancelEnds(at));
            }
        }
        for (worker, queue) in self.shared.borrow().mail.iter().enumerate() {
            if queue.front().is_some_and(|(due, _)| now >= *due) {
                actions.push(Action::Mail(worker));
            }
        }
        for (at, (due, ..)) in self.net.passwords.iter().enumerate() {
            if now >= *due {
                actions.push(Action::Password(at));
            }
        }
        self.possible_for_operator(actions);
        for (worker, tick) in self.next_tick.iter().enumerate() {
            if now >= *tick {
                actions.push(Action::Tick(worker));
            }
        }
    }

    fn hurries_cancels(&self) -> bool {
        self.net.sabotage == Some(Sabotage::HastyCancel)
    }

    fn act(&mut self, action: Action) -> Result<(), String> {
        let now = self.net.now;
        self.net.resumed = 0;
        match action {
            Action::ClientComes(at) => self.client_comes(at),
            Action::ClientGoesOn(at) => self.client_goes_on(at),
            Action::ClientSends(at) => self.client_sends(at),
            Action::ClientReads(at) => {
                return self.client_reads(at).map_err(|why| format!("client {at}: {why}"));
            }
            Action::ClientVanishes(at) => self.client_vanishes(at),
            Action::ShellFlushesClient(at) => self.net.flush_client(at),
            Action::ShellReadsClient(at) => self.shell_reads_client(at),
            Action::SpuriousEvent(at) => self.net.clients[at].latch = true,
            Action::Connect(at) => self.connect(at),
            Action::ShellFlushesServer(at) => self.net.flush_server(at),
            Action::ShellReadsServer(at) => self.shell_reads_server(at),
            Action::ShellHearsParked(at) => self.shell_hears_parked(at),
            Action::ServerReads(at) => self.server_reads(at),
            Action::ServerWrites(at) => self.server_writes(at),
            Action::ServerWakes(at) => {
                self.net.servers[at].wakes_at = None;
                self.net.servers[at].backend.wake();
                self.run_server(at);
            }
            Action::ServerChats(at) => {
                let notice = self.rng.once_in(2);
                self.net.servers[at].backend.chatter(notice);
            }
            Action::ServerTellsNews(at) => self.net.servers[at].backend.tell_news(),
            Action::ServerStalls(at) => {
                self.net.servers[at].stalled_until = now + self.rng.below(300_000) as u64;
            }
            Action::ServerDies(at) => self.server_dies(at),
            Action::Operate(verb) => self.operate(verb),
            Action::Order(worker) => self.obey(worker),
            Action::TakeOver => self.take_over(),
            Action::CancelArrives(at) => return self.cancel_arrives(at),
            Action::CancelEnds(at) => self.cancel_ends(at, CancelEnd::Taken),
            Action::CancelFails(at) => self.cancel_fails(at),
            Action::Mail(worker) => {
                let mail = self.shared.borrow_mut().mail[worker].pop_front();
                let (engine, mut io) = self.engine(worker);
                if let Some((_, mail)) = mail {
                    engine.handle_mail(mail, &mut io);
                }
            }
            Action::Password(at) => {
                let (_, worker, mail) = self.net.passwords.remove(at);
                let (engine, mut io) = self.engine(worker);
                engine.handle_mail(mail, &mut io);
                if self.net.rng.once_in(4) {
                    let ended = self.net.last_password - 1;
                    let mut shared = self.shared.borrow_mut();
                    shared.pools.iter_mut().for_each(|pool| pool.passwords.end(ended));
                }
            }
            Action::Tick(worker) => {
                self.next_tick[worker] = now + TICK;
                let (engine, mut io) = self.engine(worker);
                engine.tick(&mut io);
            }
        }
        Ok(())
    }
}
