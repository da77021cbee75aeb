//! Direct pools (docs/direct.md): the servers whose backends serve clients in lobbies, and the trials
//! of lobbies. `lifecycle/attend.rs` has the rules.

use config::Proxied;

use super::seats::Seats;
use super::work::Work;
use crate::ids::{Micros, PoolId, ServerId};
use crate::lifecycle::attend::{
    self, Tended, Trial, TrialFailure, expect_backend, new_ticket, send_off,
};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::enlist;
use crate::notify::connection::unfit;
use crate::server::{ServerPhase, ServerPurpose};
use crate::shell::{Closing, Exchange, Io};
use crate::vars::Welcome;

/// The result of an attempt to give a lobby another server.
#[derive(Debug)]
pub(super) enum Attending {
    /// The pool may have no other server now.
    Full,
    /// An idle server goes there, or the lobby gets the next seat.
    Begun,
    /// A server is to be opened. Its place in the pool and its seat are taken.
    Connect { ticket: String },
}

/// Servers that are opened for lobbies, and the trials.
impl<X: Exchange> Seats<'_, X> {
    /// Finds another server for the lobby: an idle one, or a new one. Returns the purpose of a server
    /// that is to be opened. Its place in the pool and its seat are taken.
    pub(super) fn attend_more(
        &mut self,
        pool: PoolId,
        io: &mut impl Io<X>,
    ) -> Option<ServerPurpose> {
        let worker = self.context.worker;
        let mut one = self.pools.one(pool);
        if !one.may_attend_more(self.context, io) {
            return None;
        }
        match one.lock(|pool| pool.take_for_lobby(worker)) {
            Some(idle) => {
                let id = self.servers.attach(idle, self.pools, io);
                self.enlist(id, io);
                None
            }
            None => self.open_attending(pool, io).purpose(),
        }
    }

    /// Does the same for the trial of a lobby, which fails if the pool may have no other server.
    pub(super) fn try_lobby(&mut self, pool: PoolId, io: &mut impl Io<X>) -> Option<ServerPurpose> {
        let attending = self.open_attending(pool, io);
        if matches!(attending, Attending::Full) {
            self.trial_failed(pool, TrialFailure::LOST, io.now());
        }
        attending.purpose()
    }

    /// Takes a place and a seat for a server of the lobby. Without a seat, the lobby gets the next
    /// one.
    fn open_attending(&mut self, pool: PoolId, io: &mut impl Io<X>) -> Attending {
        let (now, worker) = (io.now(), self.context.worker);
        let mut one = self.pools.one(pool);
        if !one.lock(|pool| pool.reserve_attending(now)) {
            // An ordinary server that nobody uses makes room.
            let idle = one.lock(|pool| pool.take_one_parked(worker));
            let Some(idle) = idle else { return Attending::Full };
            self.close_parked(vec![(idle, CloseReason::Evicted)], io);
            if !self.pools.exchange.pool(pool, |pool| pool.reserve_attending(now)) {
                return Attending::Full;
            }
        }
        // Before the seat is asked for: another worker may free one meanwhile.
        self.pools.exchange.pool(pool, |pool| pool.note_lobby_wants_seat(now));
        if !self.take(pool, io) {
            return Attending::Begun;
        }
        self.pools.exchange.pool(pool, |pool| pool.lobby_wants_no_seat());
        Attending::Connect { ticket: new_ticket(&self.context.config, io) }
    }

    /// Completes the login of a server that loads the library.
    pub(super) fn attending_opened(
        &mut self,
        id: ServerId,
        welcome: Welcome,
        ticket: String,
        io: &mut impl Io<X>,
    ) {
        let server = &mut *self.servers[id];
        let why = attend::logged_in(server, welcome, &mut self.pools.one(server.pool));
        expect_backend(id, server, ticket, self.context.worker, io);
        if let Some(why) = why {
            self.close(id, why, io);
        }
        self.feed(io);
    }

    /// The server has no library that could report, so it cannot serve clients either.
    pub(super) fn found_no_library(&mut self, id: ServerId, io: &mut impl Io<X>) {
        let server = &*self.servers[id];
        let (pool, serial) = (server.pool, server.serial);
        io.backend_closed(pool, serial);
        self.trial_failed(pool, TrialFailure::unsuited(Proxied::NoLibrary), io.now());
    }

    /// The server could not be opened. If it was for the lobby, the trial has failed. Returns the
    /// purpose of any other server.
    pub(super) fn without_attending(
        &mut self,
        purpose: Option<ServerPurpose>,
        serial: u64,
        pool: PoolId,
        io: &mut impl Io<X>,
    ) -> Option<ServerPurpose> {
        let Some(ServerPurpose::Attend { .. }) = purpose else { return purpose };
        io.backend_closed(pool, serial);
        self.trial_failed(pool, TrialFailure::LOST, io.now());
        None
    }

    /// Notes that a server for the lobby is gone. If the trial depended on it, the trial has
    /// failed.
    pub(super) fn attending_ended(
        &mut self,
        pool: PoolId,
        epoch: u64,
        serial: u64,
        came: bool,
        io: &mut impl Io<X>,
    ) {
        io.backend_closed(pool, serial);
        let is_trial = self.pools.exchange.pool(pool, |pool| {
            if came {
                pool.attending_gone(epoch);
            }
            pool.is_tried_by(epoch)
        });
        if is_trial {
            self.trial_failed(pool, TrialFailure::LOST, io.now());
        }
    }

    /// Continues the logins that wait for this trial, in all workers.
    fn trial_failed(&mut self, pool: PoolId, failure: TrialFailure, now: Micros) {
        let waiting = self.lobbies.failed(&mut self.pools.one(pool), failure, self.context, now);
        self.work.extend(waiting.into_iter().map(Work::Enter));
    }
}

impl Attending {
    /// Returns the purpose of the server that is to be opened.
    fn purpose(self) -> Option<ServerPurpose> {
        match self {
            Self::Full | Self::Begun => None,
            Self::Connect { ticket } => Some(ServerPurpose::Attend { ticket }),
        }
    }
}

/// Servers in lobbies.
impl<X: Exchange> Seats<'_, X> {
    /// The backend of this server has come to the lobby.
    pub(super) fn backend_came(&mut self, id: ServerId, serial: u64, io: &mut impl Io<X>) {
        let Some(server) = self.servers.with_serial(id, serial) else { return };
        let mut pool = self.pools.one(server.pool);
        if attend::came(server, &mut pool, io) {
            let waiting = self.lobbies.decided(&mut pool, self.context);
            self.work.extend(waiting.into_iter().map(Work::Enter));
        }
    }

    /// A backend has been idle for too long, or another pool needs its seat. After an online restart
    /// it stays, since no other could come to this process's lobby.
    pub(super) fn idled_in_lobby(&mut self, id: ServerId, serial: u64, io: &mut impl Io<X>) {
        if let Some(server) = self.servers.with_serial(id, serial)
            && server.is_attending()
            && !self.context.has_successor
        {
            send_off(server, io);
        }
    }

    /// The backend has left the lobby, and is free. `why`: the reason, if it could not serve there.
    pub(super) fn left_lobby(
        &mut self,
        id: ServerId,
        serial: u64,
        why: Option<Proxied>,
        io: &mut impl Io<X>,
    ) {
        let Some(server) = self.servers.with_serial(id, serial) else { return };
        let (pool, epoch) = (server.pool, server.epoch);
        let ServerPhase::Attending { came, .. } = *server.phase else { return };
        if let Some(why) = why {
            self.trial_failed(pool, TrialFailure::unsuited(why), io.now());
        }
        let reason = attend::left(&mut self.servers[id], &mut self.pools.one(pool));
        self.attending_ended(pool, epoch, serial, came, io);
        self.close(id, reason, io);
    }

    /// Looks after the servers in lobbies that this worker has opened, and after the trials that its
    /// clients wait for, a few times a second.
    pub(super) fn tend_attending(&mut self, io: &mut impl Io<X>) {
        let mut attending = self.servers.ids_where(|server| server.is_attending());
        attending.sort_by_key(|id| self.servers[*id].times.connected_at());
        let mut aged: Vec<PoolId> = Vec::new();
        for id in attending {
            let server = &mut *self.servers[id];
            let mut pool = self.pools.one(server.pool);
            match attend::tend(server, &mut pool, &mut aged, self.context, io) {
                Tended::GoesOn => {}
                Tended::Ceded => self.close(id, CloseReason::LeftLobby, io),
                Tended::Failed(why) => {
                    let pool = server.pool;
                    self.trial_failed(pool, TrialFailure::unsuited(why), io.now());
                    self.close(id, CloseReason::LeftLobby, io);
                }
            }
        }
        for pool in self.lobbies.tried() {
            match self.pools.one(pool).trial(io.now()) {
                Trial::GoesOn => {}
                Trial::LacksServer => self.work.push(Work::Try(pool)),
                Trial::Overdue => self.trial_failed(pool, TrialFailure::LOST, io.now()),
                Trial::Over => {
                    self.work.extend(self.lobbies.over(pool).into_iter().map(Work::Enter));
                }
            }
        }
        self.yield_attending(io);
    }

    /// Asks servers that may not be used any more to leave the lobby. Disconnects the clients of a
    /// pool that is proxied now.
    pub(super) fn review_attending(&mut self, pool: PoolId, io: &mut impl Io<X>) {
        let mut one = self.pools.one(pool);
        let is_proxied = one.lock(|pool| pool.settings.proxied.is_some());
        for (_, server) in self.servers.iter_mut() {
            let epoch = server.epoch;
            let is_own = server.pool == pool && server.is_attending();
            if is_own && (is_proxied || one.lock(|pool| unfit(pool, epoch)).is_some()) {
                send_off(server, io);
            }
        }
        if is_proxied {
            io.close_lobby(pool, Closing::AfterTransaction, "data_path has changed");
        }
    }

    /// Sends a server that nobody uses to the lobby.
    pub(super) fn enlist(&mut self, id: ServerId, io: &mut impl Io<X>) {
        let server = &mut *self.servers[id];
        if let Some(why) = enlist::begin(id, server, self.context, io) {
            self.close(id, why, io);
        }
    }

    /// The backend has its ticket, and comes to the lobby now.
    pub(super) fn enlisted(&mut self, id: ServerId, io: &mut impl Io<X>) {
        let server = &mut *self.servers[id];
        let mut pool = self.pools.one(server.pool);
        if let Some(why) = enlist::end(id, server, &mut pool, self.context, io) {
            self.close(id, why, io);
        }
    }
}
