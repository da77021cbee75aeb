//! The model check of the exchange: `exchange.rs` and `mailbox.rs`, compiled once more against
//! the primitives of a scheduler that tries interleavings, with workers that do nothing but ask
//! for servers and give them back. With a limit on the servers of all pools they also make room
//! for each other, step by step as the engine's `seat.rs` does.
//!
//! A run is good if every client was served as often as it asked, nobody sleeps for ever (the
//! scheduler sees that as a deadlock), no limit was passed, and every server is parked at the end.
//! Broken variants show that the check can fail.

#![allow(
    dead_code,
    reason = "only the ways that threads cross are compiled a second time to be run"
)]

mod sync {
    pub(crate) use std::sync::{Arc, PoisonError};

    pub(crate) use shuttle::sync::{
        Condvar, Mutex, MutexGuard, RwLock,
        atomic::{AtomicU32, Ordering},
    };
}

#[path = "exchange.rs"]
mod exchange;
#[path = "mailbox.rs"]
mod mailbox;

use std::collections::VecDeque;

use config::{Config, Database};
use engine::{
    client::Identity,
    ids::{ClientId, Handle, Micros, PoolId, WorkerId},
    limits::{Claim, Limits, ServerLimits, Starving},
    pool::{Grant, Next, Pool},
    server::{Server, ServerLogin},
    settings::{PoolKey, PoolSettings},
    shell::{Exchange as _, Mail},
};
use shuttle::{rand::Rng as _, thread};

use self::{
    exchange::{Hub, WorkerExchange},
    mailbox::Wake,
    sync::{Arc, AtomicU32, Condvar, Mutex, Ordering},
};

/// What is wrong with the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// A wake is forgotten now and then.
    WakeForgotten,
    /// A server is parked in another critical section than the one that found nobody waiting.
    ParkedTooLate,
    /// A server is parked though another pool wants its seat.
    ParkedUnasked,
    /// A seat that is free again is offered to nobody.
    SeatNotOffered,
    /// A pool that found no seat does not look whether one was offered meanwhile.
    OfferMissed,
}

/// A run's size: workers, each with two clients that take turns at the pools; servers of each pool
/// and of all of them, at most.
#[derive(Clone, Copy)]
struct Run {
    workers: u16,
    pools: u32,
    size: u32,
    limit: u32,
    fault: Fault,
}

/// Pools without a limit over them.
const ONE_POOL: Run = Run { workers: 2, pools: 1, size: 1, limit: 0, fault: Fault::None };
/// Two pools that have one server between them.
const TWO_POOLS: Run = Run { workers: 2, pools: 2, size: 1, limit: 1, fault: Fault::None };

/// As an eventfd in an epoll: a wake is remembered until it is waited for.
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

type ModelHub = Hub<Mail, Bell>;

/// How often servers crossed between workers, in all runs of this process: a check that never
/// sees that proves nothing.
static STOLEN: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
static HANDED_OVER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
/// How often a server was closed for another pool's sake: while parked, and instead of it.
static EVICTED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
static YIELDED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

fn note(counter: &std::sync::atomic::AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn noted(counter: &std::sync::atomic::AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// One worker: its clients, and how often each still wants a server.
struct Worker {
    id: WorkerId,
    pools: Vec<PoolId>,
    limit: u32,
    hub: Arc<ModelHub>,
    exchange: WorkerExchange<Mail, Bell>,
    clock: Arc<AtomicU32>,
    fault: Fault,
    wants: Vec<u32>,
    /// Clients that are about to ask.
    asking: VecDeque<ClientId>,
    servers_opened: u64,
}

impl Worker {
    fn run(mut self) {
        let mut mail = VecDeque::new();
        while self.wants.iter().any(|wants| *wants > 0) {
            match self.asking.pop_front() {
                Some(client) => self.ask(client),
                None => self.hub.mailbox(self.id).waker().wait(),
            }
            self.hub.mailbox(self.id).take(&mut mail);
            for letter in mail.drain(..) {
                match letter {
                    Mail::Server { waiter, server } => self.serve(waiter.client, server),
                    other => panic!("nobody sends {other:?}"),
                }
            }
            self.startle_parked();
        }
    }

    /// Time goes on by leaps, so that every rule about who has waited longer has its day.
    fn now(&self) -> Micros {
        let leap = shuttle::rand::thread_rng().gen_range(1..3000);
        Micros::from(self.clock.fetch_add(leap, Ordering::SeqCst))
    }

    fn ask(&mut self, client: ClientId) {
        let (id, now) = (self.id, self.now());
        let turn = client.0 + self.wants[client.0 as usize];
        let pool = self.pools[turn as usize % self.pools.len()];
        match self.exchange.pool(pool, |pool| pool.request(id, client, now)) {
            Grant::Server(server) => {
                // The worker that opened it stands in its serial.
                if server.serial >> 32 != u64::from(id.0) {
                    note(&STOLEN);
                }
                self.serve(client, server);
            }
            Grant::Queued { open: true, .. } => self.open(pool),
            Grant::Queued { open: false, .. } => {}
            other => panic!("{other:?}"),
        }
    }

    fn open(&mut self, pool: PoolId) {
        let limits = ServerLimits { process: self.limit, ..ServerLimits::default() };
        let claim = Claim { pool, identity: nobody(), limits };
        while let Err(starving) = self.exchange.limits(|limits| limits.seat(&claim)) {
            if self.evict(&starving) {
                continue;
            }
            self.exchange.pool(pool, Pool::withdraw_opening);
            let now = self.now();
            if self.fault == Fault::OfferMissed
                || self.exchange.limits(|limits| limits.starves(pool))
                || !self.exchange.pool(pool, |pool| pool.reserve_opening(now))
            {
                return;
            }
        }
        thread::yield_now();
        self.servers_opened += 1;
        let serial = u64::from(self.id.0) << 32 | self.servers_opened;
        let mut server = Box::new(Server::new(pool, serial, ServerLogin::default(), 0));
        server.handle = Handle(serial);
        self.exchange.pool(pool, Pool::opened);
        self.give_back(server);
        let now = self.now();
        if self.exchange.pool(pool, |pool| pool.reserve_opening(now)) {
            self.open(pool);
        }
    }

    fn evict(&mut self, starving: &Starving) -> bool {
        loop {
            let mut found = None;
            for id in self.pools.clone() {
                let idle = self.exchange.pool(id, |pool| pool.want(starving.serial));
                found = found.or(idle.map(|(_, handle)| (id, handle)));
            }
            let Some((id, handle)) = found else { return false };
            if self.exchange.pool(id, |pool| pool.evict(handle)).is_some() {
                note(&EVICTED);
                self.exchange.limits(|limits| limits.vacate(&nobody()));
                return true;
            }
        }
    }

    /// Nobody of its own pool waits for this server. True if it is closed for another one.
    fn yields(&mut self, pool: PoolId, serial: u64) -> bool {
        while let Some((starving, since)) =
            self.exchange.limits(|limits| limits.starving_for(&nobody()))
        {
            if self.exchange.pool(starving, |pool| pool.waiting_total() > 0) {
                note(&YIELDED);
                self.close(pool);
                return true;
            }
            self.exchange.limits(|limits| limits.forget(starving, since));
        }
        self.exchange.pool(pool, |pool| pool.unwant(serial));
        false
    }

    fn close(&mut self, pool: PoolId) {
        self.exchange.pool(pool, |pool| pool.server_gone(0));
        self.exchange.limits(|limits| limits.vacate(&nobody()));
        let now = self.now();
        if self.exchange.pool(pool, |pool| pool.reserve_opening(now)) {
            self.open(pool);
        }
        if self.fault == Fault::SeatNotOffered {
            return;
        }
        while let Some(fed) = self.exchange.limits(Limits::next_fed) {
            if self.exchange.pool(fed, |pool| pool.reserve_opening(now)) {
                self.open(fed);
            }
        }
    }

    fn serve(&mut self, client: ClientId, server: Box<Server>) {
        self.use_server(client);
        self.give_back(server);
    }

    fn use_server(&mut self, client: ClientId) {
        let wants = &mut self.wants[client.0 as usize];
        *wants -= 1;
        if *wants > 0 {
            self.asking.push_back(client);
        }
        thread::yield_now();
    }

    /// As the engine does it: who is next is decided, and acted upon, under one lock.
    fn give_back(&mut self, server: Box<Server>) {
        let mut server = Some(server);
        while let Some(free) = server.take() {
            let (id, now, fault) = (self.id, self.now(), self.fault);
            let of = free.pool;
            let mut free = Some(free);
            let next = self.exchange.pool(of, |pool| {
                let mut next = pool.release(id, 0, now);
                if fault == Fault::ParkedUnasked && matches!(next, Next::Yield(_)) {
                    next = Next::Park;
                }
                if next == Next::Park && fault != Fault::ParkedTooLate {
                    pool.park(id, free.take().unwrap());
                }
                next
            });
            match (next, free) {
                (Next::Local(waiter), free) => {
                    self.use_server(waiter.client);
                    server = free;
                }
                (Next::Remote(to, waiter), Some(server)) => {
                    note(&HANDED_OVER);
                    self.exchange.post(to, Mail::Server { waiter, server });
                }
                (Next::Park, Some(late)) => self.exchange.pool(of, |pool| pool.park(id, late)),
                (Next::Yield(serial), free) => {
                    server = if self.yields(of, serial) { None } else { free };
                }
                (Next::Park, None) => {}
                (next, _) => panic!("{next:?}"),
            }
        }
    }

    /// An event on a parked server's socket: it is looked at, and given back.
    fn startle_parked(&mut self) {
        let id = self.id;
        for at in self.pools.clone() {
            let server = self.exchange.pool(at, |pool| {
                let handle = pool.parked().next()?.handle;
                pool.take_parked(id, handle)
            });
            if let Some(server) = server {
                thread::yield_now();
                self.give_back(server);
            }
        }
    }
}

/// All pools are of one database and one user: the limit is the process's.
fn nobody() -> Arc<Identity> {
    Arc::new(Identity { database: "d".into(), user: "u".into() })
}

/// Every client wants a server three times.
fn run(run: Run) {
    let Run { workers, pools, size, limit, fault } = run;
    let bell = || Bell { rung: Mutex::new(false), ring: Condvar::new(), fault };
    let hub = Arc::new(ModelHub::new((0..workers).map(|_| bell())));
    let settings = PoolSettings::new(&Config::default(), &Database::default(), "u");
    let settings = Arc::new(PoolSettings { size, ..settings });
    let clock = Arc::new(AtomicU32::new(1));
    let threads: Vec<_> = (0..workers)
        .map(|id| {
            let mut exchange = WorkerExchange::new(Arc::clone(&hub));
            let pools = (0..pools).map(|pool| {
                let key = PoolKey { database: format!("d{pool}"), user: "u".into() };
                exchange.find_pool(&key, |id| Pool::new(id, key.clone(), settings.clone(), workers))
            });
            let pools = pools.collect();
            let worker = Worker {
                id: WorkerId(id),
                pools,
                limit,
                hub: Arc::clone(&hub),
                exchange,
                clock: Arc::clone(&clock),
                fault,
                wants: vec![3; 2],
                asking: (0..2).map(ClientId).collect(),
                servers_opened: 0,
            };
            thread::spawn(move || worker.run())
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());

    let known = hub.pools();
    assert_eq!(known.len(), pools as usize, "two pools of one name");
    let mut all = 0;
    for pool in &known {
        let pool = exchange::lock(pool);
        let (servers, opening) = pool.counts();
        assert_eq!((opening, pool.waiting_total()), (0, 0));
        assert!(servers <= size, "{servers} servers in a pool of {size}");
        assert_eq!(pool.parked().count(), servers as usize, "a server was lost");
        all += servers;
    }
    assert!(all > 0 && (limit == 0 || all <= limit), "{all} servers where {limit} are allowed");
    let mut exchange = WorkerExchange::new(hub);
    assert_eq!(exchange.limits(|limits| limits.servers()), all, "a seat was lost");
}

const RUNS: usize = 4000;

#[test]
fn everybody_is_served_by_a_single_server() {
    shuttle::check_random(|| run(ONE_POOL), RUNS);
    shuttle::check_pct(|| run(ONE_POOL), RUNS, 3);
}

#[test]
fn everybody_is_served_by_fewer_servers_than_workers() {
    shuttle::check_random(|| run(Run { workers: 3, size: 2, ..ONE_POOL }), RUNS);
    shuttle::check_pct(|| run(Run { workers: 3, ..ONE_POOL }), RUNS, 3);
    let crossed = (noted(&STOLEN), noted(&HANDED_OVER));
    assert!(crossed.0 > 1000 && crossed.1 > 1000, "hardly any server crossed: {crossed:?}");
}

#[test]
fn everybody_is_served_where_fewer_servers_are_allowed_than_there_are_pools() {
    shuttle::check_random(|| run(TWO_POOLS), RUNS);
    shuttle::check_random(|| run(Run { pools: 3, size: 2, limit: 2, ..TWO_POOLS }), RUNS);
    shuttle::check_pct(|| run(TWO_POOLS), RUNS, 3);
    shuttle::check_pct(|| run(Run { workers: 3, pools: 3, limit: 2, ..TWO_POOLS }), RUNS, 3);
    let moved = (noted(&EVICTED), noted(&YIELDED));
    assert!(moved.0 > 1000 && moved.1 > 1000, "hardly any server made room: {moved:?}");
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
fn a_seat_offered_to_nobody_is_found() {
    shuttle::check_random(|| run(Run { fault: Fault::SeatNotOffered, ..TWO_POOLS }), RUNS);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_missed_offer_is_found() {
    let run = Run { workers: 3, pools: 3, fault: Fault::OfferMissed, ..TWO_POOLS };
    shuttle::check_random(move || self::run(run), RUNS);
}

/// The pool itself notices, before anybody sleeps for ever.
#[test]
#[should_panic(expected = "a client waits while a server is idle")]
fn a_server_parked_too_late_is_found() {
    shuttle::check_random(|| run(Run { fault: Fault::ParkedTooLate, ..ONE_POOL }), RUNS);
}
