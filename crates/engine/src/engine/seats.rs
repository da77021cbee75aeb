//! Opens servers as far as there are seats for them, and takes seats from idle servers.

use super::Engine;
use super::tables::Servers;
use super::work::Work;
use crate::admission::limits::{Denied, Starving};
use crate::admission::lobby_seats::Yield;
use crate::admission::pool::Idlest;
use crate::admission::seat::{Fed, Opening, Victim, take_victim};
use crate::ids::{Micros, PoolId};
use crate::lifecycle::attend::send_off;
use crate::lifecycle::close_reason::CloseReason;
use crate::server::Server;
use crate::shell::{Exchange, Io, Mail};

impl<X: Exchange> Engine<X> {
    /// Opens a server for waiting clients, whose place in the pool is taken. If there is no seat,
    /// the place is released and the pool is queued for the next one.
    pub(crate) fn open_server(&mut self, pool: PoolId, io: &mut impl Io<X>) -> Opening {
        if !self.pools.one(pool).opens_here(&self.context) || !self.take_seat(pool, io) {
            return Opening::NotHere;
        }
        self.connect_seated(pool, io);
        Opening::Begun
    }

    /// Opens a server whose place in the pool and seat are taken.
    pub(super) fn connect_seated(&mut self, pool: PoolId, io: &mut impl Io<X>) {
        let worker = self.context.worker;
        let mut one = self.pools.one(pool);
        if one.opens_by_proof(&self.context) {
            return self.connect_prover(pool, io);
        }
        let in_reserve = one.lock(|pool| pool.is_in_reserve().then(|| pool.oldest_waiter(worker)));
        if let Some(first) = in_reserve {
            let first = first.map(|waiter| (waiter.client, self.clients[waiter.client].name()));
            one.tell_of_reserve(first, io);
        }
        self.connect_server(pool, None, io);
    }

    /// Takes a seat for a server whose place in the pool is taken. If there is none, the place is
    /// released.
    pub(crate) fn take_seat(&mut self, pool: PoolId, io: &mut impl Io<X>) -> bool {
        let now = io.now();
        while let Err(denied) = self.pools.one(pool).seat(now) {
            let again = match denied {
                Denied::Full(starving) => self.evict(&starving, io),
                Denied::Behind => {
                    self.feed(io);
                    true
                }
                Denied::Busy => false,
            };
            if !again && !self.pools.one(pool).tries_again(now) {
                return false;
            }
        }
        true
    }

    /// Closes the server that has been idle longest of those whose seats would help. Returns false
    /// if no server is idle, or if that server has to leave its lobby first.
    pub(super) fn evict(&mut self, starving: &Starving, io: &mut impl Io<X>) -> bool {
        match take_victim(starving, &mut self.pools.exchange, io.now()) {
            None => false,
            Some(Victim::Parked(parked)) => {
                let id = self.attach(parked, io);
                self.servers[id].phase.unpark();
                let server = self.end_connection(id, CloseReason::Evicted, io);
                self.pools.one(server.pool).vacate(io.now());
                true
            }
            Some(Victim::Attending(Idlest { server, serial, worker, .. })) => {
                match worker == self.context.worker {
                    true => self.idled_in_lobby(server, serial, io),
                    false => {
                        self.pools.exchange.post(worker, Mail::IdledInLobby { server, serial })
                    }
                }
                false
            }
        }
    }

    /// Opens servers for pools that starved for a seat that is free now, or whose turn it is.
    pub(crate) fn feed(&mut self, io: &mut impl Io<X>) {
        let now = io.now();
        while let Some(pool) = self.pools.exchange.limits(|limits| limits.next_fed(now)) {
            match self.pools.one(pool).fed(now) {
                Fed::Server => {
                    if self.pools.one(pool).opens_here(&self.context) && self.take_seat(pool, io) {
                        self.work.push(Work::Connect(pool));
                    }
                }
                Fed::Lobby => self.work.push(Work::Attend(pool)),
                Fed::Nothing => {}
            }
        }
    }

    /// Gives seats of this worker's servers in lobbies to pools that starve for them, a few times a
    /// second.
    pub(crate) fn yield_attending(&mut self, io: &mut impl Io<X>) {
        let now = io.now();
        let attending = self.servers.iter().filter(|(_, server)| server.is_attending());
        let mut pools: Vec<_> = attending.map(|(_, server)| server.pool).collect();
        pools.sort_unstable();
        pools.dedup();
        // For each of these, all pools were searched for the one that has been idle for longest.
        let mut served = Vec::new();
        for pool in pools {
            match self.pools.one(pool).yields_attending(now) {
                Yield::Nothing => {}
                Yield::Idle(starving) => {
                    if !served.contains(&starving.claim.pool) {
                        served.push(starving.claim.pool);
                        if self.evict(&starving, io) {
                            self.feed(io);
                        }
                    }
                }
                Yield::Busy(rival) => {
                    if let Some(server) = oldest_busy(&mut self.servers, pool, now)
                        && !self.context.has_successor
                        && self.pools.exchange.limits(|limits| limits.may_order(rival, now))
                    {
                        send_off(server, io);
                    }
                }
            }
        }
    }
}

/// Returns the busy server of a lobby that leaves next, at the end of its client's transaction.
fn oldest_busy(servers: &mut Servers, pool: PoolId, now: Micros) -> Option<&mut Server> {
    let all = servers.iter_mut().map(|(_, server)| &mut **server);
    let own = all.filter(|server| server.pool == pool && server.may_leave_busy(now));
    own.min_by_key(|server| server.times.connected_at)
}
