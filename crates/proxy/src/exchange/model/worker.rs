//! One worker: it requests servers and gives them back in the steps of the engine, without sockets.

use std::collections::VecDeque;

use engine::{
    ids::{ClientId, Micros, PoolId, WorkerId},
    limits::{Claim, Denied, Limits, ServerLimits, Starving},
    pool::{Grant, Next, Parked, Pool},
    routing::Place,
    server::{Server, ServerLogin},
    settings::PoolKey,
    shares::TURN,
    shell::{Exchange as _, Mail},
};
use shuttle::{rand::Rng as _, thread};

use super::{
    BEHIND, BUSY, Bell, CONDEMNED, EVICTED, Fault, HANDED_OVER, LOST, Letter, Run, STOLEN, Stage,
    Transport, YIELDED, check_connection,
    hub::WorkerExchange,
    nobody, note,
    sync::{Arc, Ordering},
};

/// One worker: its clients, and how often each still wants a server.
pub(super) struct Worker {
    id: WorkerId,
    run: Run,
    stage: Arc<Stage>,
    exchange: WorkerExchange<Letter, Bell, Transport>,
    pools: Vec<PoolId>,
    wants: Vec<u32>,
    /// Clients that are about to request a server.
    asking: VecDeque<ClientId>,
    servers_opened: u64,
    /// May further orders come?
    ordered: bool,
}

impl Worker {
    /// Two clients, each of which wants a server three times.
    pub(super) fn new(id: u16, run: Run, stage: Arc<Stage>) -> Self {
        Self {
            id: WorkerId(id),
            run,
            exchange: WorkerExchange::new(Arc::clone(&stage.hub)),
            stage,
            pools: Vec::new(),
            wants: vec![3; 2],
            asking: (0..2).map(ClientId).collect(),
            servers_opened: 0,
            ordered: run.orders > 0,
        }
    }

    pub(super) fn run(mut self) {
        self.pools = (0..self.run.pools).map(|number| self.find_pool(number)).collect();
        let mut mail = VecDeque::new();
        while self.ordered || self.wants.iter().any(|wants| *wants > 0) {
            match self.asking.pop_front() {
                Some(client) => self.ask(client),
                None => self.stage.hub.mailbox(self.id).waker().wait(),
            }
            self.stage.hub.mailbox(self.id).take(&mut mail);
            for letter in mail.drain(..) {
                match letter {
                    Letter::Mail(Mail::Server { waiter, server }) => {
                        self.serve(waiter.client, server);
                    }
                    Letter::Review => self.review(),
                    Letter::End => self.ordered = false,
                    other => panic!("nobody sends {other:?}"),
                }
            }
            self.startle_parked();
        }
    }

    fn find_pool(&mut self, number: u32) -> PoolId {
        let key =
            PoolKey { database: format!("d{number}"), user: "u".into(), place: Place::Writer };
        let (settings, workers) = (self.stage.settings.clone(), self.run.workers);
        self.exchange.find_pool(&key, |id| Pool::new(id, key.clone(), settings, workers))
    }

    /// Time advances in random leaps, so that every rule about waiting times applies sometimes.
    fn now(&self) -> Micros {
        let mut dice = shuttle::rand::thread_rng();
        // Sometimes it is another pool's turn.
        let most = if dice.gen_bool(0.1) { 2 * TURN as u32 } else { 3000 };
        let leap = dice.gen_range(1..most);
        Micros::from(self.stage.clock.fetch_add(leap, Ordering::SeqCst))
    }

    fn ask(&mut self, client: ClientId) {
        let (id, now) = (self.id, self.now());
        let turn = u32::from(id.0) + client.0 + self.wants[client.0 as usize];
        let pool = self.pools[turn as usize % self.pools.len()];
        let grant = self.exchange.pool(pool, |pool| {
            let grant = pool.request(id, client, None, now);
            if let Grant::Server(parked) = &grant {
                check_place(pool, &parked.server);
            }
            grant
        });
        match grant {
            Grant::Server(parked) => {
                if parked.transport.home != id {
                    note(&STOLEN);
                }
                self.serve(client, parked);
            }
            Grant::Queued { open: true, .. } => self.open(pool),
            Grant::Queued { open: false, .. } => {}
            other => panic!("{other:?}"),
        }
    }

    fn open(&mut self, pool: PoolId) {
        let limits = ServerLimits { process: self.run.limit, ..ServerLimits::default() };
        let claim = Claim { pool, identity: nobody(), limits, weight: 1 };
        let now = self.now();
        while let Err(denied) = self.exchange.limits(|limits| limits.seat(&claim, now)) {
            let again = match denied {
                Denied::Full(starving) => self.evict(&starving),
                Denied::Behind => {
                    note(&BEHIND);
                    self.feed();
                    true
                }
                Denied::Busy => {
                    note(&BUSY);
                    false
                }
            };
            if again {
                continue;
            }
            self.exchange.pool(pool, Pool::withdraw_opening);
            if self.run.fault == Fault::OfferMissed
                || self.exchange.limits(|limits| limits.will_be_fed(pool))
                || !self.exchange.pool(pool, |pool| pool.reserve_opening(now))
            {
                return;
            }
        }
        let (epoch, place) = self.connect(pool);
        self.servers_opened += 1;
        let serial = u64::from(self.id.0) << 32 | self.servers_opened;
        let mut server = Box::new(Server::new(pool, serial, ServerLogin::default(), 0));
        (server.epoch, server.key.pid) = (epoch, place);
        self.exchange.limits(Limits::opening_ended);
        self.exchange.pool(pool, |pool| pool.opened(epoch));
        self.give_back(Parked { server, transport: Transport { serial, home: self.id } });
        let now = self.now();
        if self.exchange.pool(pool, |pool| pool.reserve_opening(now)) {
            self.open(pool);
        }
        if self.run.fault != Fault::TurnNotOffered {
            self.feed();
        }
    }

    /// Returns the epoch of a new server, and the present or a later address of the database.
    fn connect(&mut self, pool: PoolId) -> (u64, u32) {
        let early = (self.run.fault == Fault::EpochTakenLate).then(|| self.stage.place());
        if early.is_some() {
            thread::yield_now();
        }
        let epoch = self.exchange.pool(pool, Pool::begin_opening);
        let place = early.unwrap_or_else(|| self.stage.place());
        thread::yield_now();
        (epoch, place)
    }

    /// Follows the engine's handling of orders.
    fn review(&mut self) {
        let id = self.id;
        for at in self.pools.clone() {
            let condemned = self.exchange.pool(at, |pool| pool.take_condemned(id));
            for (Parked { server, .. }, _) in condemned {
                if self.run.fault != Fault::CondemnedKept {
                    note(&CONDEMNED);
                    self.close(at, server.epoch);
                }
            }
            let now = self.now();
            let open = self.exchange.pool(at, |pool| {
                let waits = pool.oldest_waiter(id).is_some();
                waits && self.run.fault != Fault::ResumeUnheard && pool.reserve_opening(now)
            });
            if open {
                self.open(at);
            }
        }
    }

    fn evict(&mut self, starving: &Starving) -> bool {
        loop {
            let mut found = None;
            for id in self.pools.clone() {
                let idle = self.exchange.pool(id, |pool| pool.want(starving.serial));
                found = found.or(idle.map(|(_, serial)| (id, serial)));
            }
            let Some((id, serial)) = found else { return false };
            if self.exchange.pool(id, |pool| pool.evict(serial)).is_some() {
                note(&EVICTED);
                let now = self.now();
                self.exchange.limits(|limits| limits.vacate(id, &nobody(), now));
                return true;
            }
        }
    }

    /// Deals with a server that no client of its pool waits for. Returns true if it is closed for
    /// another pool.
    fn yields(&mut self, server: &Server, serial: u64) -> bool {
        let pool = server.pool;
        while let Some((starving, since)) =
            self.exchange.limits(|limits| limits.starving_for(&nobody()))
        {
            if self.exchange.pool(starving, |pool| pool.waiting_total() > 0) {
                note(&YIELDED);
                self.close(pool, server.epoch);
                return true;
            }
            self.exchange.limits(|limits| limits.forget(starving, since));
        }
        self.exchange.pool(pool, |pool| pool.unwant(serial));
        false
    }

    /// Deals with a server that a client of its pool waits for. Returns true if it is closed for a
    /// pool that has had less.
    fn loses(&mut self, server: &Server, serial: u64) -> bool {
        let (pool, now) = (server.pool, self.now());
        while let Some((rival, since)) =
            self.exchange.limits(|limits| limits.better_claim(pool, &nobody(), now))
        {
            if self.exchange.pool(rival, |pool| pool.waiting_total() > 0) {
                note(&LOST);
                self.close(pool, server.epoch);
                return true;
            }
            self.exchange.limits(|limits| limits.forget(rival, since));
        }
        if self.exchange.limits(|limits| limits.starving_for(&nobody())).is_none() {
            self.exchange.pool(pool, |pool| pool.unwant(serial));
        }
        false
    }

    fn close(&mut self, pool: PoolId, epoch: u64) {
        self.exchange.pool(pool, |pool| pool.server_gone(epoch));
        let now = self.now();
        self.exchange.limits(|limits| limits.vacate(pool, &nobody(), now));
        if self.exchange.pool(pool, |pool| pool.reserve_opening(now)) {
            self.open(pool);
        }
        if self.run.fault != Fault::SeatNotOffered {
            self.feed();
        }
    }

    fn feed(&mut self) {
        let now = self.now();
        while let Some(fed) = self.exchange.limits(|limits| limits.next_fed(now)) {
            if self.exchange.pool(fed, |pool| pool.reserve_opening(now)) {
                self.open(fed);
            }
        }
    }

    fn serve(&mut self, client: ClientId, parked: Parked<Transport>) {
        check_connection(&parked);
        self.use_server(client);
        self.give_back(parked);
    }

    fn use_server(&mut self, client: ClientId) {
        assert!(!self.stage.is_at_rest(), "a client was served when a pause had come to its end");
        let wants = &mut self.wants[client.0 as usize];
        *wants -= 1;
        if *wants > 0 {
            self.asking.push_back(client);
        }
        thread::yield_now();
    }

    /// As in the engine, the decision and its execution happen under one lock.
    fn give_back(&mut self, parked: Parked<Transport>) {
        let mut server = Some(parked);
        let mut contested = false;
        while let Some(mut free) = server.take() {
            free.transport.home = self.id;
            let is_ours = std::mem::take(&mut contested);
            let (id, now, fault) = (self.id, self.now(), self.run.fault);
            let (of, epoch) = (free.server.pool, free.server.epoch);
            let mut free = Some(free);
            let next = self.exchange.pool(of, |pool| {
                let released = &free.as_ref().unwrap().server;
                let mut next = pool.release(id, released.epoch, is_ours, now);
                if matches!(next, Next::Local(_) | Next::Remote(..)) {
                    check_place(pool, released);
                }
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
                (Next::Yield(serial), Some(free)) => {
                    server = (!self.yields(&free.server, serial)).then_some(free);
                }
                (Next::Contest(serial), Some(free)) => {
                    contested = true;
                    server = (!self.loses(&free.server, serial)).then_some(free);
                }
                (Next::Close(_), _) => self.close(of, epoch),
                (Next::Park, None) => {}
                (next, _) => panic!("{next:?}"),
            }
        }
    }

    /// An event on a parked server's socket: the server is taken, and given back.
    fn startle_parked(&mut self) {
        let id = self.id;
        for at in self.pools.clone() {
            let server = self.exchange.pool(at, |pool| {
                let serial = pool.parked().next()?.server.serial;
                pool.take_parked(id, |parked| parked.transport.serial == serial)
            });
            if let Some(server) = server {
                assert_eq!(server.transport.home, id, "a server was found away from its home");
                thread::yield_now();
                self.give_back(server);
            }
        }
    }
}

/// A RECONNECT follows each move of the database, so a client gets a server at its present address
/// or a later one. The server's process id stands for its address.
fn check_place(pool: &Pool<Transport>, server: &Server) {
    let place = u64::from(server.key.pid);
    assert!(place >= pool.epoch(), "a server of an old place was given out");
}
