//! The seats of servers whose backends are in lobbies (docs/direct.md). Such a server has no client
//! that the engine knows, so the thread of the lobbies tells which one has been idle for longest
//! (`Pool::idlest`). It leaves its lobby before its seat is free. That takes a moment, and it may
//! have got a client meanwhile, which it serves to the end of the transaction.

use crate::admission::pool::Idlest;
use crate::admission::shares::TURN;
use crate::engine::Engine;
use crate::ids::{Micros, PoolId, ServerId};
use crate::lifecycle::attend::send_off;
use crate::server::ServerPhase;
use crate::shell::{Exchange, Io, Mail};

impl<X: Exchange> Engine<X> {
    /// Asks the idle server of a pool to leave its lobby, because the pool `starving` needs its seat.
    pub(crate) fn order_off(
        &mut self,
        starving: PoolId,
        pool: PoolId,
        idlest: Idlest,
        io: &mut impl Io<X>,
    ) {
        let now = io.now();
        if !self.pools.exchange.limits(|limits| limits.may_order(starving, now)) {
            return;
        }
        self.pools.exchange.pool(pool, |pool| {
            if pool.idlest() == Some(idlest) {
                pool.note_idlest(None);
            }
        });
        let Idlest { server, serial, worker, .. } = idlest;
        match worker == self.context.worker {
            true => self.idled_in_lobby(server, serial, io),
            false => self.pools.exchange.post(worker, Mail::IdledInLobby { server, serial }),
        }
    }

    /// Gives seats of this worker's servers in lobbies to pools that starve for them, a few times a
    /// second.
    pub(crate) fn yield_attending(&mut self, io: &mut impl Io<X>) {
        let mut pools: Vec<_> = self.attending().map(|id| self.servers[id].pool).collect();
        pools.sort_unstable();
        pools.dedup();
        // For each of these, all pools were searched for the one that has been idle for longest.
        let mut served = Vec::new();
        for pool in pools {
            let wanted = self.pools.exchange.pool(pool, |pool| pool.wanted());
            if wanted != 0 {
                self.yield_one(pool, wanted, &mut served, io);
            }
        }
    }

    fn yield_one(
        &mut self,
        pool: PoolId,
        wanted: u64,
        served: &mut Vec<PoolId>,
        io: &mut impl Io<X>,
    ) {
        let now = io.now();
        let Some(starving) = self.pools.one(pool).starving_for(now) else {
            return self.pools.exchange.pool(pool, |pool| pool.unwant(wanted));
        };
        if !self.pools.exchange.pool(pool, |pool| pool.idlest().is_some()) {
            return self.yield_busy(pool, now, io);
        }
        if !served.contains(&starving.claim.pool) {
            served.push(starving.claim.pool);
            if self.evict(&starving, io) {
                self.feed(io);
            }
        }
    }

    /// All backends of a lobby are busy. If a starving pool has a better right to a seat, the oldest
    /// one leaves at the end of its client's transaction.
    fn yield_busy(&mut self, pool: PoolId, now: Micros, io: &mut impl Io<X>) {
        let Some(rival) = self.pools.one(pool).rival(now) else { return };
        let may_go = |id: &ServerId| {
            let server = &*self.servers[*id];
            let is_new = now.saturating_sub(server.times.opened_at) < TURN;
            server.pool == pool
                && !is_new
                && matches!(*server.phase, ServerPhase::Attending { came: true, asked: false })
        };
        let oldest = self.attending().filter(may_go);
        let oldest = oldest.min_by_key(|id| self.servers[*id].times.connected_at);
        if let Some(id) = oldest.filter(|_| !self.context.has_successor)
            && self.pools.exchange.limits(|limits| limits.may_order(rival, now))
        {
            send_off(&mut self.servers[id], io);
        }
    }
}
