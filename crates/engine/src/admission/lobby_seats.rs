//! The seats of servers whose backends are in lobbies (docs/direct.md). Such a server has no client
//! that the engine knows, so the thread of the lobbies tells which one has been idle for longest
//! (`Pool::idlest`). It leaves its lobby before its seat is free. That takes a moment, and it may
//! have got a client meanwhile, which it serves to the end of the transaction.

use crate::admission::limits::Starving;
use crate::admission::one_pool::OnePool;
use crate::admission::pool::Idlest;
use crate::admission::shares::TURN;
use crate::ids::{Micros, PoolId};
use crate::server::{Server, ServerPhase};
use crate::shell::Exchange;

/// The part of a lobby in the competition for seats.
#[derive(Debug)]
pub(crate) enum Yield {
    /// No other pool needs a seat of this one.
    Nothing,
    /// A pool starves, and a server of the lobby is idle.
    Idle(Starving),
    /// All backends of the lobby are busy, and this pool has a better right to a seat.
    Busy(PoolId),
}

impl<X: Exchange> OnePool<'_, X> {
    /// Decides whether the lobby has to give up a seat.
    pub(crate) fn yields_attending(&mut self, now: Micros) -> Yield {
        let wanted = self.lock(|pool| pool.wanted());
        if wanted == 0 {
            return Yield::Nothing;
        }
        let Some(starving) = self.starving_for(now) else {
            self.lock(|pool| pool.unwant(wanted));
            return Yield::Nothing;
        };
        match self.lock(|pool| pool.idlest().is_some()) {
            true => Yield::Idle(starving),
            false => self.rival(now).map_or(Yield::Nothing, Yield::Busy),
        }
    }
}

impl Server {
    /// May this server leave its lobby, although it is busy there? Not right after its login, which
    /// was expensive.
    pub(crate) fn may_leave_busy(&self, now: Micros) -> bool {
        let is_new = self.times.opened_within(TURN, now);
        !is_new && matches!(*self.phase, ServerPhase::Attending { came: true, asked: false })
    }
}

/// May the idle server of a pool be asked to leave its lobby, because the pool `starving` needs its
/// seat? If so, its pool does not offer it again.
pub(super) fn may_leave<X: Exchange>(
    idlest: Idlest,
    pool: PoolId,
    starving: PoolId,
    exchange: &mut X,
    now: Micros,
) -> bool {
    let may_order = exchange.limits(|limits| limits.may_order(starving, now));
    if may_order {
        exchange.pool(pool, |pool| {
            if pool.idlest() == Some(idlest) {
                pool.note_idlest(None);
            }
        });
    }
    may_order
}
