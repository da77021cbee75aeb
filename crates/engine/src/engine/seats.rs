//! The servers that no client uses, and the seats of all servers ([`Seats`]): takes seats from idle
//! servers, and gives free ones to the pools that need them. `lobbies.rs` has the servers of direct
//! pools.

use super::Engine;
use super::pools::Pools;
use super::tables::Servers;
use super::work::{self, Work};
use crate::admission::limits::{Denied, ServerLimits, Starving};
use crate::admission::lobby_seats::Yield;
use crate::admission::pool::{Idlest, Parked};
use crate::admission::seat::{Fed, Opening, Victim, take_victim};
use crate::context::Context;
use crate::ids::{Micros, PoolId, ServerId};
use crate::lifecycle::attend::{Lobbies, send_off};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::leave::{log_server_closing, purpose_of};
use crate::lifecycle::mark::{self, take_unmarked};
use crate::notify::connection::{Listeners, unfit, unfit_to_listen};
use crate::operator::failures::{Failures, ServerFailure};
use crate::operator::standing::Standing;
use crate::server::{Server, ServerPhase, ServerPurpose};
use crate::shell::{Exchange, Io, Mail};

/// The servers without clients, and all that depends on their seats.
#[derive(Debug)]
pub(crate) struct Seats<'a, X> {
    pub(super) context: &'a mut Context,
    pub(super) servers: &'a mut Servers,
    pub(super) pools: &'a mut Pools<X>,
    pub(super) listeners: &'a mut Listeners,
    pub(super) lobbies: &'a mut Lobbies,
    pub(super) failures: &'a mut Failures,
    pub(super) work: &'a mut work::Queue,
}

impl<X: Exchange> Engine<X> {
    pub(crate) fn seats(&mut self) -> Seats<'_, X> {
        let Self { context, servers, pools, listeners, lobbies, failures, work, .. } = self;
        Seats { context, servers, pools, listeners, lobbies, failures, work }
    }

    /// Opens a server for waiting clients, whose place in the pool is taken. If there is no seat,
    /// the place is released and the pool is queued for the next one.
    pub(crate) fn open_server(&mut self, pool: PoolId, io: &mut impl Io<X>) -> Opening {
        if !self.pools.one(pool).opens_here(&self.context) || !self.seats().take(pool, io) {
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
        self.connect_server(pool, None, None, io);
    }
}

/// Seats.
impl<X: Exchange> Seats<'_, X> {
    /// Takes a seat for a server whose place in the pool is taken. If there is none, the place is
    /// released.
    pub(crate) fn take(&mut self, pool: PoolId, io: &mut impl Io<X>) -> bool {
        let now = io.now();
        self.pools.view(pool).takes_seat = false;
        while let Err(denied) = self.pools.one(pool).seat(now) {
            let again = match denied {
                Denied::Full(starving) => {
                    let is_taken = self.evict(&starving, io);
                    self.pools.view(pool).takes_seat = is_taken;
                    is_taken
                }
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
    pub(crate) fn evict(&mut self, starving: &Starving, io: &mut impl Io<X>) -> bool {
        match take_victim(starving, &mut self.pools.exchange, io.now()) {
            None => false,
            Some(Victim::Parked(parked)) => {
                let id = self.take_in(parked, io);
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
                    if self.pools.one(pool).opens_here(self.context) && self.take(pool, io) {
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
    pub(super) fn yield_attending(&mut self, io: &mut impl Io<X>) {
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
                    if let Some(server) = oldest_busy(self.servers, pool, now)
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

/// The ends of servers.
impl<X: Exchange> Seats<'_, X> {
    /// Takes a parked server into the table.
    pub(crate) fn take_in(
        &mut self,
        parked: Parked<X::Transport>,
        io: &mut impl Io<X>,
    ) -> ServerId {
        let id = self.servers.attach(parked, self.pools, io);
        self.servers[id].phase.unpark();
        id
    }

    /// Marks a server of this pool that has been idle for long (`mark_pooled_servers`).
    pub(super) fn mark_idle(&mut self, pool: PoolId, io: &mut impl Io<X>) {
        let (now, worker) = (io.now(), self.context.worker);
        // One in each tick: a client that comes meanwhile finds the others.
        let idle = self.pools.exchange.pool(pool, |pool| take_unmarked(pool, worker, now));
        let Some(idle) = idle else { return };
        let id = self.servers.attach(idle, self.pools, io);
        mark::begin(id, &mut self.servers[id], self.context, io);
    }

    pub(crate) fn close_parked(
        &mut self,
        parked: Vec<(Parked<X::Transport>, CloseReason<'static>)>,
        io: &mut impl Io<X>,
    ) {
        for (server, reason) in parked {
            let server = self.take_in(server, io);
            self.close(server, reason, io);
        }
    }

    /// Returns the logins of a pool's servers that may not be used any more, with the reasons.
    pub(super) fn unfit_logins(&mut self, pool: PoolId) -> Vec<(ServerId, CloseReason<'static>)> {
        let why_unfit = |(id, standing)| {
            let Standing::Login { listens } = standing else { return None };
            let epoch = self.servers[id].epoch;
            let why = self.pools.exchange.pool(pool, |pool| match listens {
                true => unfit_to_listen(pool, epoch),
                false => unfit(pool, epoch),
            });
            Some((id, why?))
        };
        self.servers.standings(pool).into_iter().filter_map(why_unfit).collect()
    }

    /// Ends a login on Weir's own decision. Returns the server's pool if another one is to be opened.
    pub(super) fn end_login(
        &mut self,
        id: ServerId,
        why: CloseReason<'_>,
        io: &mut impl Io<X>,
    ) -> Option<PoolId> {
        let now = io.now();
        let server = self.servers.remove(id);
        log_server_closing(id, &server, &self.pools.view(server.pool).identity, why, io);
        io.close_server(id);
        self.pools.opening_ended();
        let (pool, epoch, serial) = (server.pool, server.epoch, server.serial);
        let purpose = purpose_of(server.phase);
        let listens = matches!(purpose, Some(ServerPurpose::Listen));
        if let Some(ServerPurpose::Attend { .. }) = purpose {
            self.attending_ended(pool, epoch, serial, false, io);
        }
        let opens_another = self.pools.one(pool).login_lost(epoch, listens, now);
        if listens {
            self.listeners.forget((now, 0), &mut self.pools.one(pool));
        }
        opens_another.then_some(pool)
    }

    /// Closes a logged-in server without a client. Its seat goes to the next client or pool that
    /// needs a server.
    pub(crate) fn close(&mut self, id: ServerId, reason: CloseReason<'_>, io: &mut impl Io<X>) {
        let now = io.now();
        let server = self.end_connection(id, reason, io);
        let pool = server.pool;
        let listens = matches!(*server.phase, ServerPhase::Listening);
        self.pools.exchange.pool(pool, |pool| {
            if listens {
                pool.listener_gone();
            }
            pool.server_gone(server.epoch);
        });
        self.pools.one(pool).vacate(now);
        if listens {
            self.listeners.forget((now, 0), &mut self.pools.one(pool));
        }
        if self.pools.exchange.pool(pool, |pool| pool.reserve_opening(now)) {
            self.work.push(Work::Open(pool));
        }
        self.feed(io);
    }

    /// Closes the connection and removes the server, without adjusting its pool.
    pub(crate) fn end_connection(
        &mut self,
        id: ServerId,
        reason: CloseReason<'_>,
        io: &mut impl Io<X>,
    ) -> Box<Server> {
        let server = self.servers.remove(id);
        if let ServerPhase::Attending { came, .. } = *server.phase {
            self.attending_ended(server.pool, server.epoch, server.serial, came, io);
        }
        // A server that PostgreSQL terminates says so first: it is dirty before it is lost.
        if matches!(reason, CloseReason::Lost | CloseReason::GotDirty | CloseReason::Text(_)) {
            self.failures.count_server(ServerFailure::Lost);
        }
        let is_told = matches!(
            *server.phase,
            ServerPhase::Settling(_) | ServerPhase::Linked | ServerPhase::Listening
        ) && server.is_clean()
            && io.server_flushed(id);
        if is_told {
            let mut goodbye = Vec::new();
            wire::frontend::terminate(&mut goodbye);
            io.send_server(id, &goodbye);
        }
        self.failures.count_close(reason);
        let view = self.pools.view(server.pool);
        let is_counted = view.settings.limits != ServerLimits::default();
        let identity = view.identity.clone();
        log_server_closing(id, &server, &identity, reason, io);
        match is_told && is_counted {
            // PostgreSQL may have no room for another one before.
            true => io.see_server_off(id),
            false => io.close_server(id),
        }
        server
    }
}

/// Returns the busy server of a lobby that leaves next, at the end of its client's transaction.
fn oldest_busy(servers: &mut Servers, pool: PoolId, now: Micros) -> Option<&mut Server> {
    let all = servers.iter_mut().map(|(_, server)| &mut **server);
    let own = all.filter(|server| server.pool == pool && server.may_leave_busy(now));
    own.min_by_key(|server| server.times.connected_at())
}
