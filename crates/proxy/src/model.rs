//! The model check of the exchange: `exchange.rs` and `mailbox.rs`, compiled once more against
//! the primitives of a scheduler that tries interleavings, with workers that do nothing but ask
//! for servers and give them back.
//!
//! A run is good if every client was served as often as it asked, nobody sleeps for ever (the
//! scheduler sees that as a deadlock), and every server is parked at the end. Two broken variants
//! show that the check can fail.

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
    ids::{ClientId, Handle, Micros, PoolId, WorkerId},
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
}

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

fn note(counter: &std::sync::atomic::AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn noted(counter: &std::sync::atomic::AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// One worker: its clients, and how often each still wants a server.
struct Worker {
    id: WorkerId,
    pool: PoolId,
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
        match self.exchange.pool(self.pool, |pool| pool.request(id, client, now)) {
            Grant::Server(server) => {
                // The worker that opened it stands in its serial.
                if server.serial >> 32 != u64::from(id.0) {
                    note(&STOLEN);
                }
                self.serve(client, server);
            }
            Grant::Queued { open: true, .. } => self.open(),
            Grant::Queued { open: false, .. } => {}
            other => panic!("{other:?}"),
        }
    }

    fn open(&mut self) {
        self.servers_opened += 1;
        let serial = u64::from(self.id.0) << 32 | self.servers_opened;
        let mut server = Box::new(Server::new(self.pool, serial, ServerLogin::default(), 0));
        server.handle = Handle(serial);
        self.exchange.pool(self.pool, Pool::opened);
        self.give_back(server);
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
            let mut free = Some(free);
            let next = self.exchange.pool(self.pool, |pool| {
                let next = pool.release(id, now);
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
                (Next::Park, Some(late)) => {
                    self.exchange.pool(self.pool, |pool| pool.park(id, late))
                }
                (Next::Park, None) => {}
                (next, _) => panic!("{next:?}"),
            }
        }
    }

    /// An event on a parked server's socket: it is looked at, and given back.
    fn startle_parked(&mut self) {
        let id = self.id;
        let server = self.exchange.pool(self.pool, |pool| {
            let handle = pool.parked().next()?.handle;
            pool.take_parked(id, handle)
        });
        if let Some(server) = server {
            thread::yield_now();
            self.give_back(server);
        }
    }
}

/// `workers` workers with two clients each, every one of which wants a server three times.
fn run(workers: u16, size: u32, fault: Fault) {
    let bell = || Bell { rung: Mutex::new(false), ring: Condvar::new(), fault };
    let hub = Arc::new(ModelHub::new((0..workers).map(|_| bell())));
    let key = PoolKey { database: "d".into(), user: "u".into() };
    let settings = PoolSettings::new(&Config::default(), &Database::default(), "u");
    let settings = Arc::new(PoolSettings { size, ..settings });
    let clock = Arc::new(AtomicU32::new(1));
    let threads: Vec<_> = (0..workers)
        .map(|id| {
            let mut exchange = WorkerExchange::new(Arc::clone(&hub));
            let pool = exchange
                .find_pool(&key, |id| Pool::new(id, key.clone(), settings.clone(), workers));
            let worker = Worker {
                id: WorkerId(id),
                pool,
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

    let pools = hub.pools();
    assert_eq!(pools.len(), 1, "two pools of one name");
    let pool = exchange::lock(&pools[0]);
    let (servers, opening) = pool.counts();
    assert_eq!((opening, pool.waiting_total()), (0, 0));
    assert!((1..=size).contains(&servers), "{servers} servers in a pool of {size}");
    assert_eq!(pool.parked().count(), servers as usize, "a server was lost");
}

const RUNS: usize = 1000;

#[test]
fn everybody_is_served_by_a_single_server() {
    shuttle::check_random(|| run(2, 1, Fault::None), RUNS);
    shuttle::check_pct(|| run(2, 1, Fault::None), RUNS, 3);
}

#[test]
fn everybody_is_served_by_fewer_servers_than_workers() {
    shuttle::check_random(|| run(3, 2, Fault::None), RUNS);
    shuttle::check_pct(|| run(3, 1, Fault::None), RUNS, 3);
    let crossed = (noted(&STOLEN), noted(&HANDED_OVER));
    assert!(crossed.0 > 1000 && crossed.1 > 1000, "hardly any server crossed: {crossed:?}");
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_forgotten_wake_is_found() {
    shuttle::check_random(|| run(2, 1, Fault::WakeForgotten), RUNS);
}

/// The pool itself notices, before anybody sleeps for ever.
#[test]
#[should_panic(expected = "a client waits while a server is idle")]
fn a_server_parked_too_late_is_found() {
    shuttle::check_random(|| run(2, 1, Fault::ParkedTooLate), RUNS);
}
