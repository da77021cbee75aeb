//! The model check of the exchange. It compiles `hub.rs` and `mailbox.rs` again with the primitives
//! of a scheduler that tries interleavings. The workers only request servers and give them back.
//! With a limit over all pools, the pools also make room for each other, in the steps of the
//! engine's `seat.rs`. With an operator they are paused and resumed, and their servers replaced.
//!
//! A run succeeds if every client gets a server as often as it asks, no limit is exceeded, and
//! every server is parked at the end. The scheduler reports threads that sleep forever as a
//! deadlock. Variants with faults show that the check can fail.

#![allow(
    dead_code,
    reason = "only the ways that threads cross are compiled a second time to be run"
)]

mod sync {
    pub(crate) use std::sync::{Arc, PoisonError};

    pub(crate) use shuttle::sync::{
        Condvar, Mutex, MutexGuard, RwLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    };
}

#[path = "hub.rs"]
mod hub;
#[path = "mailbox.rs"]
mod mailbox;
mod operator;
mod worker;

use config::{Config, Database};
use engine::{
    client::Identity,
    ids::WorkerId,
    pool::{Gate, Parked},
    settings::PoolSettings,
    shell::{Exchange as _, Mail},
};
use shuttle::{rand::Rng as _, thread};

use self::{
    hub::{Hub, WorkerExchange},
    mailbox::Wake,
    operator::Operator,
    sync::{Arc, AtomicU32, Condvar, Mutex, Ordering},
    worker::Worker,
};

/// The fault of the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Some wake-ups are lost.
    WakeForgotten,
    /// A server is parked in another critical section than the one that found no waiting client.
    ParkedTooLate,
    /// A server is parked although another pool wants its seat.
    ParkedUnasked,
    /// A free seat is not offered to a pool.
    SeatNotOffered,
    /// The pool that may open a server after another login is not told.
    TurnNotOffered,
    /// A pool without a seat does not check whether one was offered meanwhile.
    OfferMissed,
    /// Servers that may not be used any more are not closed.
    CondemnedKept,
    /// Waiting clients are not served when the pools are open again.
    ResumeUnheard,
    /// The workers are told of an order before the pools are.
    ToldTooEarly,
    /// A server gets the epoch in which its login ends.
    EpochTakenLate,
}

/// A run's size: workers, each with two clients that use the pools in turn, and the limits on
/// servers per pool, in total, and being opened.
#[derive(Clone, Copy)]
struct Run {
    workers: u16,
    pools: u32,
    size: u32,
    limit: u32,
    openings: u32,
    /// The number of times that the servers are replaced, and the pools paused and resumed.
    orders: u32,
    fault: Fault,
}

/// Pools without a common limit.
const ONE_POOL: Run =
    Run { workers: 2, pools: 1, size: 1, limit: 0, openings: 64, orders: 0, fault: Fault::None };
/// Two pools that share one server.
const TWO_POOLS: Run = Run { pools: 2, limit: 1, ..ONE_POOL };
/// Pools that open their servers one after the other.
const ONE_AT_A_TIME: Run = Run { workers: 3, pools: 8, openings: 1, ..ONE_POOL };
/// Two pools that share one server, with an operator.
const ORDERED: Run = Run { orders: 3, ..TWO_POOLS };

/// Like an eventfd in an epoll: a wake-up is remembered until the next wait.
struct Bell {
    rung: Mutex<bool>,
    ring: Condvar,
    fault: Fault,
}

impl Wake for Bell {
    fn wake(&self) {
        if self.fault == Fault::WakeForgotten && shuttle::rand::thread_rng().gen_bool(0.5) {
            return;
        }
        *self.rung.lock().unwrap() = true;
        self.ring.notify_one();
    }
}

impl Bell {
    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.ring.wait(rung).unwrap();
        }
        *rung = false;
    }
}

/// The connection of a parked server, which moves with the server.
#[derive(Debug)]
struct Transport {
    serial: u64,
    /// The worker that parked it.
    home: WorkerId,
}

type ModelHub = Hub<Letter, Bell, Transport>;

/// A message to a worker.
#[derive(Debug)]
enum Letter {
    Mail(Mail<Transport>),
    Review,
    /// No more orders will come.
    End,
}

impl From<Mail<Transport>> for Letter {
    fn from(mail: Mail<Transport>) -> Self {
        Self::Mail(mail)
    }
}

/// The shared data of all threads in a run.
struct Stage {
    hub: Arc<ModelHub>,
    settings: Arc<PoolSettings>,
    clock: AtomicU32,
    /// The address of the database: how often it has moved.
    place: AtomicU32,
    /// Has a pause completed, and not been lifted yet?
    at_rest: AtomicU32,
}

impl Stage {
    fn place(&self) -> u32 {
        self.place.load(Ordering::SeqCst)
    }

    fn is_at_rest(&self) -> bool {
        self.at_rest.load(Ordering::SeqCst) > 0
    }
}

/// The number of times that servers moved between workers, in all runs of this process. A check
/// without any proves nothing.
static STOLEN: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
static HANDED_OVER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
/// The number of servers that were closed for another pool: while parked, and instead of parking
/// them.
static EVICTED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
static YIELDED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
/// The number of servers that were closed while their own pool had work, and the number of times
/// that a pool found a seat that another one should get first.
static LOST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
static BEHIND: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
/// The number of times that a server could not be opened before another one was.
static BUSY: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
/// The number of times that an order found an idle server, and that a pause had to wait.
static CONDEMNED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
static PAUSED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

fn note(counter: &std::sync::atomic::AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn noted(counter: &std::sync::atomic::AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// All pools have one database and one user: the limit is that of the process.
fn nobody() -> Arc<Identity> {
    Arc::new(Identity { database: "d".into(), user: "u".into() })
}

fn run(run: Run) {
    let Run { workers, pools, size, limit, openings, orders, fault } = run;
    let bell = || Bell { rung: Mutex::new(false), ring: Condvar::new(), fault };
    let hub = Arc::new(ModelHub::new((0..workers).map(|_| bell())));
    WorkerExchange::new(Arc::clone(&hub)).limits(|limits| limits.openings_max = openings);
    let settings = PoolSettings::new(&Config::default(), &Database::default(), "u");
    let stage = Arc::new(Stage {
        hub: Arc::clone(&hub),
        settings: Arc::new(PoolSettings { size, ..settings }),
        clock: AtomicU32::new(1),
        place: AtomicU32::new(0),
        at_rest: AtomicU32::new(0),
    });
    let new = |id| Worker::new(id, run, Arc::clone(&stage));
    let mut threads: Vec<_> =
        (0..workers).map(new).map(|worker| thread::spawn(move || worker.run())).collect();
    if orders > 0 {
        let operator = Operator { stage, orders, fault };
        threads.push(thread::spawn(move || operator.run()));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());

    let known = hub.pools();
    assert_eq!(known.len(), pools as usize, "two pools of one name");
    let mut all = 0;
    for pool in &known {
        let pool = hub::lock(pool);
        let (servers, opening) = pool.counts();
        assert_eq!((opening, pool.waiting_total()), (0, 0));
        assert!(servers <= size, "{servers} servers in a pool of {size}");
        assert_eq!(pool.parked().count(), servers as usize, "a server was lost");
        pool.parked().for_each(check_connection);
        assert_eq!((pool.gate(), pool.obsolete()), (Gate::Open, 0), "an order was not carried out");
        all += servers;
    }
    assert!(all > 0 || orders > 0, "no server is left");
    assert!(limit == 0 || all <= limit, "{all} servers where {limit} are allowed");
    let mut exchange = WorkerExchange::new(hub);
    let counted = exchange.limits(|limits| (limits.servers(), limits.openings()));
    assert_eq!(counted, (all, 0), "a seat or a turn was lost");
}

/// Checks that a server has its own connection.
fn check_connection(parked: &Parked<Transport>) {
    assert_eq!(parked.server.serial, parked.transport.serial, "a server has another's connection");
}

const RUNS: usize = 4000;

#[test]
fn all_clients_are_served_by_a_single_server() {
    shuttle::check_random(|| run(ONE_POOL), RUNS);
    shuttle::check_pct(|| run(ONE_POOL), RUNS, 3);
}

#[test]
fn all_clients_are_served_by_fewer_servers_than_workers() {
    shuttle::check_random(|| run(Run { workers: 3, size: 2, ..ONE_POOL }), RUNS);
    shuttle::check_pct(|| run(Run { workers: 3, ..ONE_POOL }), RUNS, 3);
    let crossed = (noted(&STOLEN), noted(&HANDED_OVER));
    assert!(crossed.0 > 1000 && crossed.1 > 1000, "hardly any server crossed: {crossed:?}");
}

#[test]
fn all_clients_are_served_with_fewer_servers_than_pools() {
    shuttle::check_random(|| run(TWO_POOLS), RUNS);
    shuttle::check_random(|| run(Run { pools: 3, size: 2, limit: 2, ..TWO_POOLS }), RUNS);
    shuttle::check_pct(|| run(TWO_POOLS), RUNS, 3);
    shuttle::check_pct(|| run(Run { workers: 3, pools: 3, limit: 2, ..TWO_POOLS }), RUNS, 3);
    let moved = (noted(&EVICTED), noted(&YIELDED));
    assert!(moved.0 > 1000 && moved.1 > 1000, "hardly any server made room: {moved:?}");
    let shared = (noted(&LOST), noted(&BEHIND));
    assert!(shared.0 > 1000 && shared.1 > 10, "hardly any server was shared: {shared:?}");
}

#[test]
fn all_clients_are_served_though_servers_are_opened_one_after_the_other() {
    shuttle::check_random(|| run(ONE_AT_A_TIME), RUNS);
    shuttle::check_pct(|| run(Run { size: 2, limit: 2, ..ONE_AT_A_TIME }), RUNS, 3);
    assert!(noted(&BUSY) > 1000, "hardly any server had to wait: {}", noted(&BUSY));
}

#[test]
fn all_clients_are_served_though_pools_are_paused_and_servers_replaced() {
    shuttle::check_random(|| run(Run { limit: 0, ..ORDERED }), RUNS);
    shuttle::check_random(|| run(Run { size: 3, limit: 3, ..ORDERED }), RUNS);
    shuttle::check_pct(|| run(ORDERED), RUNS, 3);
    shuttle::check_pct(|| run(Run { workers: 3, size: 2, limit: 0, ..ORDERED }), RUNS, 3);
    let seen = (noted(&CONDEMNED), noted(&PAUSED));
    assert!(seen.0 > 1000 && seen.1 > 1000, "hardly anything was in the way of an order: {seen:?}");
}

#[test]
#[should_panic(expected = "a pause never ends")]
fn a_condemned_server_that_stays_is_found() {
    shuttle::check_random(|| run(Run { fault: Fault::CondemnedKept, ..ORDERED }), RUNS);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_resume_without_serving_waiting_clients_is_found() {
    shuttle::check_random(|| run(Run { fault: Fault::ResumeUnheard, ..ORDERED }), RUNS);
}

#[test]
#[should_panic(expected = "deadlock")]
fn an_order_told_too_early_is_found() {
    let run = Run { pools: 1, limit: 0, fault: Fault::ToldTooEarly, ..ORDERED };
    shuttle::check_random(move || self::run(run), RUNS);
}

#[test]
#[should_panic(expected = "a server of an old place was given out")]
fn an_epoch_taken_too_late_is_found() {
    shuttle::check_random(|| run(Run { fault: Fault::EpochTakenLate, ..ORDERED }), RUNS);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_forgotten_wake_is_found() {
    shuttle::check_random(|| run(Run { fault: Fault::WakeForgotten, ..ONE_POOL }), RUNS);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_server_parked_though_it_is_wanted_is_found() {
    shuttle::check_random(|| run(Run { fault: Fault::ParkedUnasked, ..TWO_POOLS }), RUNS);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_seat_that_is_not_offered_is_found() {
    shuttle::check_random(|| run(Run { fault: Fault::SeatNotOffered, ..TWO_POOLS }), RUNS);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_turn_that_is_not_offered_is_found() {
    shuttle::check_random(|| run(Run { fault: Fault::TurnNotOffered, ..ONE_AT_A_TIME }), RUNS);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_missed_offer_is_found() {
    let run = Run { workers: 3, pools: 3, fault: Fault::OfferMissed, ..TWO_POOLS };
    shuttle::check_random(move || self::run(run), RUNS);
}

/// The pool itself detects this fault, before a thread sleeps forever.
#[test]
#[should_panic(expected = "a client waits while a server is idle")]
fn a_server_parked_too_late_is_found() {
    shuttle::check_random(|| run(Run { fault: Fault::ParkedTooLate, ..ONE_POOL }), RUNS);
}
