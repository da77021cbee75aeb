//! Decides whether a server may be opened under the limits of its database, of its user and of the
//! process (`max_db_connections`, `max_user_connections`, `max_server_connections`).
//!
//! As in PgBouncer, a full limit closes the server in it that has been idle longest
//! (`CloseReason::Evicted`). If none is idle, the pool starves until one of them becomes free or is
//! closed. An ordinary transaction comes here only while pools compete for seats, when it returns
//! its server.

use crate::admission::limits::{Denied, Starving};
use crate::admission::lobby_seats::may_leave;
use crate::admission::one_pool::OnePool;
use crate::admission::pool::{Idlest, Parked, Pool};
use crate::context::Context;
use crate::ids::{ClientId, Micros, PoolId};
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

/// A server that gives up its seat.
#[derive(Debug)]
pub(crate) enum Victim<T> {
    /// It was parked, and is to be closed. Its pool does not count it any more.
    Parked(Parked<T>),
    /// It is in the lobby of its pool, and is to be asked to leave.
    Attending(Idlest),
}

/// The result of `Engine::open_server`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// This worker opens the server.
    Begun,
    /// There is no seat, or another worker opens the server.
    NotHere,
}

/// The use of a seat or a turn that a pool is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fed {
    /// A server is opened for waiting clients. Its place in the pool is reserved.
    Server,
    /// A server is opened for the lobby.
    Lobby,
    /// The pool does not need it any more.
    Nothing,
}

impl<X: Exchange> OnePool<'_, X> {
    /// Takes a seat for a server whose place is reserved.
    ///
    /// # Errors
    /// Returns why there is none.
    pub(crate) fn seat(&mut self, now: Micros) -> Result<(), Denied> {
        let claim = self.view.claim(self.id);
        self.exchange.limits(|limits| limits.seat(&claim, now))
    }

    /// Releases the place of a server that gets no seat. Returns whether the pool must try again,
    /// with a new place.
    pub(crate) fn tries_again(&mut self, now: Micros) -> bool {
        let id = self.id;
        self.lock(Pool::withdraw_opening);
        // Another worker may have offered a seat while we held the place, and removed the pool
        // from the queue. Then the pool must try again.
        !self.exchange.limits(|limits| limits.will_be_fed(id))
            && self.lock(|pool| pool.reserve_opening(now))
    }

    /// Takes a seat for a server that no client waits for. If no seat is free, the server's place is
    /// released.
    pub(crate) fn spare_seat(&mut self, now: Micros) -> bool {
        let claim = self.view.claim(self.id);
        let has_seat = self.exchange.limits(|limits| limits.spare_seat(&claim, now));
        if !has_seat {
            self.lock(Pool::withdraw_opening);
        }
        has_seat
    }

    /// May this worker open a server whose place is reserved? If another worker has to, that one
    /// continues.
    pub(crate) fn opens_here(&mut self, context: &Context) -> bool {
        let is_elsewhere = self.opens_by_proof(context) && !self.proves_first(context.worker);
        if is_elsewhere {
            self.pass_proof_on();
        }
        !is_elsewhere
    }

    /// Decides what to do with a seat or a turn that the pool is offered.
    pub(crate) fn fed(&mut self, now: Micros) -> Fed {
        let id = self.id;
        if self.lock(|pool| pool.reserve_opening(now)) {
            return Fed::Server;
        }
        if self.lock(|pool| pool.lobby_wants_seat(now)) {
            return Fed::Lobby;
        }
        self.exchange.limits(|limits| limits.let_go(id));
        Fed::Nothing
    }

    /// Logs that a server is opened in a place of the reserve. `first`: the client of this worker
    /// that has waited longest, and its name.
    pub(crate) fn tell_of_reserve(
        &self,
        first: Option<(ClientId, (&str, &str))>,
        io: &mut impl Io<X>,
    ) {
        let identity = &self.view.identity;
        let name = first.map_or((&*identity.database, &*identity.user), |(_, name)| name);
        io.event(Event::ReserveTaken { client: first.map(|(client, _)| client), name });
    }

    /// Must a free server that no client of this pool waits for be closed, because another pool
    /// starves for its seat? `wanted`: the serial number of that pool's claim.
    #[cold]
    pub(crate) fn yields(&mut self, wanted: u64, now: Micros) -> bool {
        let is_starved_for = self.is_starved_for(now);
        if !is_starved_for {
            self.lock(|pool| pool.unwant(wanted));
        }
        is_starved_for
    }

    /// Must a free server that a client of this pool waits for be closed, because a starving pool
    /// has a better right to its seat? `wanted`: the serial number of that pool's claim.
    #[cold]
    pub(crate) fn is_outrivaled(&mut self, wanted: u64, now: Micros) -> bool {
        if self.rival(now).is_some() {
            return true;
        }
        let identity = &self.view.identity;
        if self.exchange.limits(|limits| limits.starving_for(identity)).is_none() {
            self.lock(|pool| pool.unwant(wanted));
        }
        false
    }
}

/// Takes the server that has been idle longest of those whose seats would help. All such pools are
/// told under their locks, so they park no server unnoticed later.
pub(crate) fn take_victim<X: Exchange>(
    starving: &Starving,
    exchange: &mut X,
    now: Micros,
) -> Option<Victim<X::Transport>> {
    loop {
        let mut oldest: Option<(Micros, PoolId, Spare)> = None;
        for id in exchange.pool_ids() {
            let spare = exchange.pool(id, |pool| {
                let helps = starving.covers(&pool.key.database, &pool.key.user);
                helps.then(|| Spare::of(pool, starving)).flatten()
            });
            if let Some((since, spare)) = spare
                && oldest.is_none_or(|(earliest, ..)| since < earliest)
            {
                oldest = Some((since, id, spare));
            }
        }
        let (_, pool, spare) = oldest?;
        let serial = match spare {
            Spare::Parked(serial) => serial,
            Spare::Attending(idlest) => {
                let may_leave = may_leave(idlest, pool, starving.claim.pool, exchange, now);
                return may_leave.then_some(Victim::Attending(idlest));
            }
        };
        // Another worker may have taken it meanwhile.
        if let Some(parked) = exchange.pool(pool, |pool| pool.evict(serial)) {
            return Some(Victim::Parked(parked));
        }
    }
}
