//! Carries out what `lifecycle/attend.rs` finds: for the servers whose backends serve clients in
//! lobbies (docs/direct.md), and for the clients that wait for the trials of lobbies.

use config::Proxied;

use super::Engine;
use super::work::Work;
use crate::ids::{ClientId, Micros, PoolId, ServerId};
use crate::lifecycle::attend::{
    self, Tended, Trial, TrialFailure, expect_backend, guest, may_be_guest, new_ticket, send_off,
};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::enlist;
use crate::notify::connection::unfit;
use crate::server::{ServerPhase, ServerPurpose};
use crate::shell::{Closing, Exchange, Io};
use crate::vars::Welcome;

/// Servers that are opened for lobbies, and the trials.
impl<X: Exchange> Engine<X> {
    /// Opens another server for the lobby, or sends an idle one there.
    pub(super) fn attend_more(&mut self, pool: PoolId, io: &mut impl Io<X>) {
        let worker = self.context.worker;
        let mut one = self.pools.one(pool);
        if !one.may_attend_more(&self.context, io) {
            return;
        }
        match one.lock(|pool| pool.take_for_lobby(worker)) {
            Some(idle) => {
                let id = self.attach(idle, io);
                self.enlist(id, io);
            }
            None => {
                self.open_attending(pool, io);
            }
        }
    }

    /// Opens a server for the lobby, if there is a place and a seat for it. Without a seat, the lobby gets
    /// the next one. Returns false if the pool may have no other server now.
    pub(super) fn open_attending(&mut self, pool: PoolId, io: &mut impl Io<X>) -> bool {
        let (now, worker) = (io.now(), self.context.worker);
        let mut one = self.pools.one(pool);
        if !one.lock(|pool| pool.reserve_attending(now)) {
            // An ordinary server that nobody uses makes room.
            let idle = one.lock(|pool| pool.take_one_parked(worker));
            let Some(idle) = idle else { return false };
            self.close_parked(vec![(idle, CloseReason::Evicted)], io);
            if !self.pools.exchange.pool(pool, |pool| pool.reserve_attending(now)) {
                return false;
            }
        }
        // Before the seat is asked for: another worker may free one meanwhile.
        self.pools.exchange.pool(pool, |pool| pool.note_lobby_wants_seat(now));
        if !self.take_seat(pool, io) {
            return true;
        }
        self.pools.exchange.pool(pool, |pool| pool.lobby_wants_no_seat());
        let ticket = new_ticket(&self.context.config, io);
        self.connect_server(pool, Some(ServerPurpose::Attend { ticket }), io);
        true
    }

    /// Completes the login of a server that loads the library.
    pub(crate) fn attending_opened(
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
            self.lose_server(id, why, io);
        }
        self.feed(io);
    }

    /// The server has no library that could report, so it cannot serve clients either.
    pub(crate) fn found_no_library(&mut self, id: ServerId, io: &mut impl Io<X>) {
        let server = &*self.servers[id];
        let (pool, serial) = (server.pool, server.serial);
        io.backend_closed(pool, serial);
        self.trial_failed(pool, TrialFailure::unsuited(Proxied::NoLibrary), io.now());
    }

    /// A server could not be opened. If it was for the lobby, the trial has failed. Returns the
    /// purpose of any other server.
    pub(crate) fn without_attending(
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
    pub(crate) fn attending_ended(
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
    pub(super) fn trial_failed(&mut self, pool: PoolId, failure: TrialFailure, now: Micros) {
        let waiting = self.lobbies.failed(&mut self.pools.one(pool), failure, &self.context, now);
        self.work.extend(waiting.into_iter().map(Work::Enter));
    }
}

/// Servers in lobbies.
impl<X: Exchange> Engine<X> {
    /// The backend of this server has come to the lobby.
    pub(super) fn backend_came(&mut self, id: ServerId, serial: u64, io: &mut impl Io<X>) {
        let found = self.servers.get_mut(id).filter(|found| found.serial == serial);
        let Some(server) = found else { return };
        let mut pool = self.pools.one(server.pool);
        if attend::came(server, &mut pool, io) {
            let waiting = self.lobbies.decided(&mut pool, &self.context);
            self.work.extend(waiting.into_iter().map(Work::Enter));
        }
    }

    /// A backend has been idle for too long, or another pool needs its seat. After an online restart
    /// it stays, since no other could come to this process's lobby.
    pub(super) fn idled_in_lobby(&mut self, id: ServerId, serial: u64, io: &mut impl Io<X>) {
        let found = self.servers.get_mut(id).filter(|found| found.serial == serial);
        if let Some(server) = found
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
        let found = self.servers.get(id).filter(|found| found.serial == serial);
        let Some(server) = found else { return };
        let (pool, epoch) = (server.pool, server.epoch);
        let ServerPhase::Attending { came, .. } = *server.phase else { return };
        if let Some(why) = why {
            self.trial_failed(pool, TrialFailure::unsuited(why), io.now());
        }
        let reason = attend::left(&mut self.servers[id], &mut self.pools.one(pool));
        self.attending_ended(pool, epoch, serial, came, io);
        self.close_server(id, reason, io);
    }

    /// Looks after the servers in lobbies that this worker has opened, and after the trials that its
    /// clients wait for, a few times a second.
    pub(super) fn tend_attending(&mut self, io: &mut impl Io<X>) {
        let mut attending = self.servers.ids_where(|server| server.is_attending());
        attending.sort_by_key(|id| self.servers[*id].times.connected_at);
        let mut aged: Vec<PoolId> = Vec::new();
        for id in attending {
            let server = &mut *self.servers[id];
            let mut pool = self.pools.one(server.pool);
            match attend::tend(server, &mut pool, &mut aged, &self.context, io) {
                Tended::GoesOn => {}
                Tended::Ceded => self.close_server(id, CloseReason::LeftLobby, io),
                Tended::Failed(why) => {
                    let pool = server.pool;
                    self.trial_failed(pool, TrialFailure::unsuited(why), io.now());
                    self.close_server(id, CloseReason::LeftLobby, io);
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
    pub(crate) fn enlist(&mut self, id: ServerId, io: &mut impl Io<X>) {
        let server = &mut *self.servers[id];
        if let Some(why) = enlist::begin(id, server, &mut self.context, io) {
            self.close_server(id, why, io);
        }
    }

    /// The backend has its ticket, and comes to the lobby now.
    pub(crate) fn enlisted(&mut self, id: ServerId, io: &mut impl Io<X>) {
        let server = &mut *self.servers[id];
        let mut pool = self.pools.one(server.pool);
        if let Some(why) = enlist::end(id, server, &mut pool, &self.context, io) {
            self.close_server(id, why, io);
        }
    }

    /// Hands a client over to the lobby, if its pool is direct. The client has just got this welcome.
    /// Returns whether it has left this worker.
    pub(super) fn hand_off(
        &mut self,
        id: ClientId,
        pool: PoolId,
        welcome: &Welcome,
        io: &mut impl Io<X>,
    ) -> bool {
        let (client, mut pool) = (&self.clients[id], self.pools.one(pool));
        if !pool.is_direct() || !may_be_guest(client) {
            return false;
        }
        if !io.hand_to_lobby(id, guest(client, &pool, welcome, &self.context)) {
            return false;
        }
        let client = self.clients.remove(id);
        self.keys.remove(client.key);
        if let Some(watch) = &mut self.watch {
            watch.left(client.serial, None);
        }
        true
    }
}
