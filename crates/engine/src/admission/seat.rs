//! Decides whether a server may be opened under the limits of its database, of its user and of the
//! process (`max_db_connections`, `max_user_connections`, `max_server_connections`).
//!
//! As in PgBouncer, a full limit closes the server in it that has been idle longest
//! (`CloseReason::Evicted`). If none is idle, the pool starves until one of them becomes free or is
//! closed. An ordinary transaction comes here only while pools compete for seats, when it returns
//! its server.

use crate::admission::limits::{Denied, Starving};
use crate::admission::pool::{Idlest, Pool};
use crate::engine::Engine;
use crate::engine::work::Work;
use crate::ids::{Micros, PoolId, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::shell::{Event, Exchange, Io};

/// An idle server whose seat another pool can have.
#[derive(Clone, Copy, Debug)]
enum Spare {
    /// It is parked, with this serial number.
    Parked(u64),
    /// Its backend is in the lobby of its pool.
    Attending(Idlest),
}

impl Spare {
    /// Returns the server of this pool that has been idle for longest, and since when. A lobby that
    /// starves has none to spare for itself.
    fn of<T>(pool: &mut Pool<T>, starving: &Starving) -> Option<(Micros, Self)> {
        let parked = pool.want(starving.serial);
        let parked = parked.map(|(since, serial)| (since, Self::Parked(serial)));
        let is_own = pool.id == starving.claim.pool && pool.waiting_total() == 0;
        let idlest = pool.idlest().filter(|_| !is_own);
        let attending = idlest.map(|idlest| (idlest.since, Self::Attending(idlest)));
        parked.into_iter().chain(attending).min_by_key(|(since, _)| *since)
    }
}

/// The result of [`Engine::open_server`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// This worker opens the server.
    Begun,
    /// There is no seat, or another worker opens the server.
    NotHere,
}

impl<X: Exchange> Engine<X> {
    /// Opens a server for waiting clients, whose place in the pool is taken. If there is no seat,
    /// the place is released and the pool is queued for the next one.
    pub(crate) fn open_server(&mut self, pool: PoolId, io: &mut impl Io<X>) -> Opening {
        if !self.seat_server(pool, io) {
            return Opening::NotHere;
        }
        self.connect_seated(pool, io);
        Opening::Begun
    }

    /// Takes a seat for a server of the pool, unless another worker has to open it.
    fn seat_server(&mut self, pool: PoolId, io: &mut impl Io<X>) -> bool {
        if self.pools.one(pool).opens_by_proof(&self.context)
            && !self.pools.one(pool).proves_first(self.context.worker)
        {
            self.pools.one(pool).pass_proof_on();
            return false;
        }
        self.take_seat(pool, io)
    }

    /// Opens a server whose place in the pool and seat are taken.
    pub(crate) fn connect_seated(&mut self, pool: PoolId, io: &mut impl Io<X>) {
        if self.pools.one(pool).opens_by_proof(&self.context) {
            return self.connect_prover(pool, io);
        }
        self.tell_of_reserve(pool, io);
        self.connect_server(pool, None, io);
    }

    /// Takes a seat for a server whose place in the pool is taken. If there is none, the place is
    /// released.
    pub(crate) fn take_seat(&mut self, pool: PoolId, io: &mut impl Io<X>) -> bool {
        let now = io.now();
        let claim = self.pools.view(pool).claim(pool);
        while let Err(denied) = self.pools.exchange.limits(|limits| limits.seat(&claim, now)) {
            let again = match denied {
                Denied::Full(starving) => self.evict(&starving, io),
                Denied::Behind => {
                    self.feed(io);
                    true
                }
                Denied::Busy => false,
            };
            if again {
                continue;
            }
            self.pools.exchange.pool(pool, Pool::withdraw_opening);
            // Another worker may have offered a seat while we held the place, and removed the pool
            // from the queue. Then the pool must try again.
            if self.pools.exchange.limits(|limits| limits.will_be_fed(pool))
                || !self.pools.exchange.pool(pool, |pool| pool.reserve_opening(now))
            {
                return false;
            }
        }
        true
    }

    /// Opens a server that no client waits for, if there is a free seat.
    pub(crate) fn open_spare(&mut self, pool: PoolId, io: &mut impl Io<X>) {
        let now = io.now();
        let claim = self.pools.view(pool).claim(pool);
        if self.pools.exchange.limits(|limits| limits.spare_seat(&claim, now)) {
            self.connect_server(pool, None, io);
        } else {
            self.pools.exchange.pool(pool, Pool::withdraw_opening);
        }
    }

    fn tell_of_reserve(&mut self, pool: PoolId, io: &mut impl Io<X>) {
        let worker = self.context.worker;
        let (reserve, first) = self
            .pools
            .exchange
            .pool(pool, |pool| (pool.is_in_reserve(), pool.oldest_waiter(worker)));
        if reserve {
            let identity = self.pools.view(pool).identity.clone();
            let first = first.map(|waiter| waiter.client);
            let name = first.map_or((&*identity.database, &*identity.user), |client| {
                self.clients[client].name()
            });
            io.event(Event::ReserveTaken { client: first, name });
        }
    }

    /// Closes the server that has been idle longest of those whose seats would help. All such pools
    /// are told under their locks, so they park no server unnoticed later. Returns false if no
    /// server is idle, or if that server has to leave its lobby first.
    pub(crate) fn evict(&mut self, starving: &Starving, io: &mut impl Io<X>) -> bool {
        loop {
            let mut oldest: Option<(Micros, PoolId, Spare)> = None;
            for id in self.pools.exchange.pool_ids() {
                let spare = self.pools.exchange.pool(id, |pool| {
                    let helps = starving.covers(&pool.key.database, &pool.key.user);
                    helps.then(|| Spare::of(pool, starving)).flatten()
                });
                if let Some((since, spare)) = spare
                    && oldest.is_none_or(|(earliest, ..)| since < earliest)
                {
                    oldest = Some((since, id, spare));
                }
            }
            let Some((_, pool, spare)) = oldest else { return false };
            let serial = match spare {
                Spare::Parked(serial) => serial,
                Spare::Attending(idlest) => {
                    self.order_off(starving.claim.pool, pool, idlest, io);
                    return false;
                }
            };
            // Another worker may have taken it meanwhile.
            if let Some(server) = self.pools.exchange.pool(pool, |pool| pool.evict(serial)) {
                let id = self.attach(server, io);
                self.servers[id].phase.unpark();
                self.end_connection(id, CloseReason::Evicted, io);
                self.pools.one(pool).vacate(io.now());
                return true;
            }
        }
    }

    /// Deals with a server that no client of its pool waits for. It is closed if another pool
    /// starves for its seat, and placed again otherwise.
    pub(crate) fn yield_server(&mut self, id: ServerId, serial: u64, io: &mut impl Io<X>) {
        let pool = self.servers[id].pool;
        if self.pools.one(pool).is_starved_for(io.now()) {
            return self.close_server(id, CloseReason::Evicted, io);
        }
        self.pools.exchange.pool(pool, |pool| pool.unwant(serial));
        self.place_one(id, false, io);
    }

    /// Deals with a server that a client of its pool waits for. It is closed if a starving pool has
    /// a better right to its seat.
    pub(crate) fn contest(&mut self, id: ServerId, serial: u64, io: &mut impl Io<X>) {
        let now = io.now();
        let pool = self.servers[id].pool;
        if self.pools.one(pool).rival(now).is_some() {
            return self.close_server(id, CloseReason::Evicted, io);
        }
        let identity = self.pools.view(pool).identity.clone();
        if self.pools.exchange.limits(|limits| limits.starving_for(&identity)).is_none() {
            self.pools.exchange.pool(pool, |pool| pool.unwant(serial));
        }
        self.place_one(id, true, io);
    }

    /// Opens servers for pools that starved for a seat that is free now, or whose turn it is.
    pub(crate) fn feed(&mut self, io: &mut impl Io<X>) {
        let now = io.now();
        while let Some(pool) = self.pools.exchange.limits(|limits| limits.next_fed(now)) {
            self.pools.view(pool);
            if self.pools.exchange.pool(pool, |pool| pool.reserve_opening(now)) {
                if self.seat_server(pool, io) {
                    self.work.push_back(Work::Connect(pool));
                }
            } else if self.pools.exchange.pool(pool, |pool| pool.lobby_wants_seat(now)) {
                self.work.push_back(Work::Attend(pool));
            } else {
                self.pools.exchange.limits(|limits| limits.let_go(pool));
            }
        }
    }
}
