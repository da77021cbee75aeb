//! Whether a server may be opened, beyond what its own pool says: the limits on the servers of a
//! database, of a user and of the process (`max_db_connections`, `max_user_connections`,
//! `max_server_connections`).
//!
//! Room is made as PgBouncer makes it: the server that has been idle longest among those that
//! count in the same limit is closed (CloseReason::Evicted). If none is idle, the pool starves until a server
//! of them becomes free or is gone. An ordinary transaction comes here only while pools compete: when
//! it gives back a server that another pool may starve for.

use crate::admission::limits::{Denied, Limits, Starving};
use crate::admission::pool::Pool;
use crate::engine::Engine;
use crate::engine::work::Work;
use crate::ids::{Micros, PoolId, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::server::ServerPhase;
use crate::server::Settling;
use crate::shell::{Event, Exchange, Io};

impl<X: Exchange> Engine<X> {
    /// Open a server for those who wait; its place in the pool is taken. If there is no seat for it
    /// the place is given up, and the pool will be thought of. True if it is being opened here.
    pub(crate) fn open_server(&mut self, pool: PoolId, now: Micros, io: &mut impl Io<X>) -> bool {
        let has_seat = self.seat_server(pool, now, io);
        if has_seat {
            self.connect_seated(pool, now, io);
        }
        has_seat
    }

    /// A seat for a server of the pool, unless that is another worker's to open.
    fn seat_server(&mut self, pool: PoolId, now: Micros, io: &mut impl Io<X>) -> bool {
        if self.opens_by_proof(pool) && !self.proves_first(pool) {
            self.pass_proof_on(pool);
            return false;
        }
        self.take_seat(pool, now, io)
    }

    /// Open a server; its place in the pool and its seat are taken.
    pub(crate) fn connect_seated(&mut self, pool: PoolId, now: Micros, io: &mut impl Io<X>) {
        if self.opens_by_proof(pool) {
            return self.connect_prover(pool, now, io);
        }
        self.tell_of_reserve(pool, io);
        self.connect_server(pool, None, now, io);
    }

    /// A seat for a server whose place in the pool is taken; or that place is given up.
    pub(crate) fn take_seat(&mut self, pool: PoolId, now: Micros, io: &mut impl Io<X>) -> bool {
        let claim = self.view(pool).claim(pool);
        while let Err(denied) = self.exchange.limits(|limits| limits.seat(&claim, now)) {
            let again = match denied {
                Denied::Full(starving) => self.evict(&starving, now, io),
                Denied::Behind => {
                    self.feed(now, io);
                    true
                }
                Denied::Busy => false,
            };
            if again {
                continue;
            }
            self.exchange.pool(pool, Pool::withdraw_opening);
            // Another worker may have offered it a seat and found its place taken, by us: then
            // nobody thinks of it any more.
            if self.exchange.limits(|limits| limits.will_be_fed(pool))
                || !self.exchange.pool(pool, |pool| pool.reserve_opening(now))
            {
                return false;
            }
        }
        true
    }

    /// Open a server that nobody waits for. It takes a free seat or none.
    pub(crate) fn open_spare(&mut self, pool: PoolId, now: Micros, io: &mut impl Io<X>) {
        let claim = self.view(pool).claim(pool);
        if self.exchange.limits(|limits| limits.spare_seat(&claim, now)) {
            self.connect_server(pool, None, now, io);
        } else {
            self.exchange.pool(pool, Pool::withdraw_opening);
        }
    }

    fn tell_of_reserve(&mut self, pool: PoolId, io: &mut impl Io<X>) {
        let worker = self.worker;
        let (reserve, first) =
            self.exchange.pool(pool, |pool| (pool.is_in_reserve(), pool.oldest_waiter(worker)));
        if reserve {
            let identity = self.view(pool).identity.clone();
            let first = first.map(|waiter| waiter.client);
            let name = first.map_or((&*identity.database, &*identity.user), |client| {
                self.client(client).name()
            });
            io.event(Event::ReserveTaken { client: first, name });
        }
    }

    /// Closes the server that has been idle longest of those whose seats would help. All pools that
    /// have such are told, under their locks: what they park later cannot be overlooked. False if
    /// none is idle.
    pub(crate) fn evict(&mut self, starving: &Starving, now: Micros, io: &mut impl Io<X>) -> bool {
        loop {
            let mut oldest: Option<(Micros, PoolId, u64)> = None;
            for id in self.exchange.pool_ids() {
                let idle = self.exchange.pool(id, |pool| {
                    let helps = starving.covers(&pool.key.database, &pool.key.user);
                    helps.then(|| pool.want(starving.serial)).flatten()
                });
                if let Some((since, serial)) = idle
                    && oldest.is_none_or(|(earliest, ..)| since < earliest)
                {
                    oldest = Some((since, id, serial));
                }
            }
            let Some((_, pool, serial)) = oldest else { return false };
            // Somebody may have taken it since it was seen.
            if let Some(server) = self.exchange.pool(pool, |pool| pool.evict(serial)) {
                let id = self.attach(server, io);
                self.server_mut(id).phase = ServerPhase::Settling(Settling::Fresh);
                self.end_connection(id, CloseReason::Evicted, now, io);
                self.vacate(pool, now);
                return true;
            }
        }
    }

    /// Nobody of its own pool waits for this server. It is closed if another pool starves for its
    /// seat; if that is over, it is placed again.
    pub(crate) fn yield_server(
        &mut self,
        id: ServerId,
        serial: u64,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let pool = self.server(id).pool;
        if self.is_starved_for(pool) {
            return self.close_server(id, CloseReason::Evicted, now, io);
        }
        self.exchange.pool(pool, |pool| pool.unwant(serial));
        self.place_one(id, false, now, io);
    }

    /// Does anybody wait in a pool that starves for a seat of this one?
    pub(crate) fn is_starved_for(&mut self, pool: PoolId) -> bool {
        let identity = self.view(pool).identity.clone();
        while let Some((starving, since)) =
            self.exchange.limits(|limits| limits.starving_for(&identity))
        {
            if self.exchange.pool(starving, |pool| pool.waiting_total() > 0) {
                return true;
            }
            self.exchange.limits(|limits| limits.forget(starving, since));
        }
        false
    }

    /// Somebody of its own pool waits for this server, but a pool that has had less than its share
    /// may starve for the like of it.
    pub(crate) fn contest(&mut self, id: ServerId, serial: u64, now: Micros, io: &mut impl Io<X>) {
        let pool = self.server(id).pool;
        let identity = self.view(pool).identity.clone();
        while let Some((rival, since)) =
            self.exchange.limits(|limits| limits.better_claim(pool, &identity, now))
        {
            if self.exchange.pool(rival, |pool| pool.waiting_total() > 0) {
                return self.close_server(id, CloseReason::Evicted, now, io);
            }
            self.exchange.limits(|limits| limits.forget(rival, since));
        }
        if self.exchange.limits(|limits| limits.starving_for(&identity)).is_none() {
            self.exchange.pool(pool, |pool| pool.unwant(serial));
        }
        self.place_one(id, true, now, io);
    }

    /// A server is logged in, or will not be: another one may be opened, of whatever pool. Who calls
    /// this calls [`Engine::feed`] then.
    pub(crate) fn opening_ended(&mut self) {
        self.exchange.limits(Limits::opening_ended);
    }

    /// The seat of a server that is gone is free.
    pub(crate) fn vacate(&mut self, pool: PoolId, now: Micros) {
        let identity = self.view(pool).identity.clone();
        self.exchange.limits(|limits| limits.vacate(pool, &identity, now));
    }

    /// Pools that starved for a seat which is free now, or whose turn it is, open a server.
    pub(crate) fn feed(&mut self, now: Micros, io: &mut impl Io<X>) {
        while let Some(pool) = self.exchange.limits(|limits| limits.next_fed(now)) {
            self.view(pool);
            if self.exchange.pool(pool, |pool| pool.reserve_opening(now)) {
                if self.seat_server(pool, now, io) {
                    self.work.push_back(Work::Connect(pool));
                }
            } else {
                self.exchange.limits(|limits| limits.let_go(pool));
            }
        }
    }
}
