//! The engine's part of direct pools (docs/direct.md): servers whose backends serve clients'
//! sockets, and the clients that are handed to them. The shell has the lobbies themselves.
//!
//! ```text
//!  a client has logged in ─┬─ the lobby works ─────────► welcome, hand_off
//!                          ├─ not known yet: LoginStep::Trial, a server is opened
//!                          │    ─► Mail::BackendCame or a failure ─► enter_pool_at_once
//!                          └─ the pool is proxied ─────► the client stays in the engine
//!  a server: Login ─► Attending ─┬─ (Mail::LeftLobby) ─► closed
//!              ▲                  └─ its client listens: `from_lobby` ─► Preparing, Linked, …
//!              └───────────── (a ticket, `enlist`) ◄────────────────────────────────┘
//! ```

use std::sync::Arc;

use config::{Config, Proxied};
use wire::cancel_key;

use crate::admission::pool::Entrance;
use crate::client::{Client, ClientPhase, KeyForm};
use crate::engine::Engine;
use crate::engine::work::Work;
use crate::ids::{ClientId, Micros, Newcomer, PoolId, ServerId, WorkerId, over};
use crate::lifecycle::close_reason::CloseReason;
use crate::login::auth::LoginStep;
use crate::notify::connection::unfit;
use crate::server::{Server, ServerPhase, ServerPurpose, Settling};
use crate::shell::{Attending, Closing, Exchange, Guest, Io, Mail};
use crate::vars::{TrackedNames, Welcome};

/// The time that a backend has to come to the lobby after its login.
const ANSWER_PATIENCE: Micros = 5_000_000;
/// The pause before another trial. A library is rarely installed while clients wait for it.
const TRIAL_PAUSE: Micros = 60_000_000;
/// The pause after a trial whose server could not be opened.
const OPENING_PAUSE: Micros = 1_000_000;
/// Length of a ticket in random bytes.
const TICKET_LEN: usize = 16;
/// The beginning of each ticket if the server runs this Weir. A backend then uses the socket in the
/// data folder, not that of `weir.control_socket` (`extension/control.c`).
const OWN_TICKET: &str = "own:";

/// The result of an attempt to open a server for a lobby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    Begun,
    /// The pool may have no other server now.
    NoPlace,
    /// A limit on the servers of several pools is reached. The lobby gets the next seat.
    NoSeat,
}

impl<X: Exchange> Engine<X> {
    /// Completes the login, as soon as it is known whether the pool is direct.
    pub(crate) fn enter_checked(&mut self, id: ClientId, pool: PoolId, io: &mut impl Io<X>) {
        if !self.awaits_trial(id, pool, io.now()) {
            self.enter_pool_at_once(id, pool, io);
        }
    }

    /// Must this client wait until it is known whether the pool is direct?
    fn awaits_trial(&mut self, id: ClientId, pool: PoolId, now: Micros) -> bool {
        if self.pools.settings(pool).proxied.is_some()
            || self.pools.one(pool).opens_by_proof(&self.context)
        {
            return false;
        }
        // The backend of a trial would go to the other process.
        if self.context.has_successor
            && self.pools.exchange.pool(pool, |pool| pool.proxied().is_some())
        {
            return false;
        }
        match self.pools.exchange.pool(pool, |pool| pool.entrance(now)) {
            Entrance::Proxied | Entrance::Direct => false,
            Entrance::Trial { open } => {
                if open {
                    self.work.push_back(Work::Try(pool));
                }
                self.clients[id].login_mut().step = LoginStep::Trial;
                let serial = self.clients[id].serial;
                self.newcomers.push(Newcomer { client: id, serial, pool });
                true
            }
        }
    }

    /// Opens the server that shows whether the pool can be direct.
    pub(crate) fn try_lobby(&mut self, pool: PoolId, io: &mut impl Io<X>) {
        if self.open_attending(pool, io) == Opening::NoPlace {
            self.trial_failed(pool, Proxied::NotTried, OPENING_PAUSE, io.now());
        }
    }

    /// Opens another server for the lobby. The thread of the lobbies asks for it.
    pub(crate) fn attend_more(&mut self, pool: PoolId, io: &mut impl Io<X>) {
        self.pools.view(pool);
        if self.context.has_successor {
            // After an online restart, backends connect to the new process's socket.
            if !self.pools.exchange.pool(pool, |pool| pool.is_attended()) {
                let why = "another process has taken over";
                io.close_lobby(pool, Closing::AfterTransaction, why);
            }
            return;
        }
        let now = io.now();
        if let Some(error) = self.pools.exchange.pool(pool, |pool| pool.refusal(now)) {
            return io.refuse_lobby(pool, &error);
        }
        if self.pools.one(pool).awaits_seat(now) {
            return;
        }
        let pauses = self.pools.exchange.pool(pool, |pool| pool.pauses_attending(now));
        if !pauses && !self.enlist_idle(pool, io) {
            self.open_attending(pool, io);
        }
    }

    /// Opens a server for the lobby, if there is a place and a seat for it.
    fn open_attending(&mut self, pool: PoolId, io: &mut impl Io<X>) -> Opening {
        let (now, worker) = (io.now(), self.context.worker);
        self.pools.view(pool);
        if !self.pools.exchange.pool(pool, |pool| pool.reserve_attending(now)) {
            // An ordinary server that nobody uses makes room.
            let idle = self.pools.exchange.pool(pool, |pool| pool.take_one_parked(worker));
            let Some(idle) = idle else { return Opening::NoPlace };
            self.close_parked(vec![(idle, CloseReason::Evicted)], io);
            if !self.pools.exchange.pool(pool, |pool| pool.reserve_attending(now)) {
                return Opening::NoPlace;
            }
        }
        // Before the seat is asked for: another worker may free one meanwhile.
        self.pools.exchange.pool(pool, |pool| pool.note_lobby_wants_seat(now));
        if !self.take_seat(pool, io) {
            return Opening::NoSeat;
        }
        self.pools.exchange.pool(pool, |pool| pool.lobby_wants_no_seat());
        let ticket = new_ticket(&self.context.config, io);
        self.connect_server(pool, Some(ServerPurpose::Attend { ticket }), io);
        Opening::Begun
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
        server.vars = welcome.vars.clone();
        server.welcome = Arc::new(welcome);
        let (pool, epoch, welcome) = (server.pool, server.epoch, server.welcome.clone());
        let why = self.pools.exchange.pool(pool, |pool| {
            pool.opened(epoch);
            pool.refusals = None;
            pool.learn_welcome(epoch, welcome);
            unfit(pool, epoch)
        });
        let worker = self.context.worker;
        expect_backend(id, &mut self.servers[id], ticket, worker, io);
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
        self.trial_failed(pool, Proxied::NoLibrary, TRIAL_PAUSE, io.now());
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
            self.trial_failed(pool, Proxied::NotTried, OPENING_PAUSE, io.now());
        }
    }

    /// A server could not be opened. If it was for the lobby, the trial has failed. Returns the
    /// purpose of any other server.
    pub(crate) fn without_attending(
        &mut self,
        purpose: Option<ServerPurpose>,
        serial: u64,
        (pool, epoch): (PoolId, u64),
        io: &mut impl Io<X>,
    ) -> Option<ServerPurpose> {
        let Some(ServerPurpose::Attend { .. }) = purpose else { return purpose };
        self.attending_ended(pool, epoch, serial, false, io);
        self.trial_failed(pool, Proxied::NotTried, OPENING_PAUSE, io.now());
        None
    }

    fn trial_failed(&mut self, pool: PoolId, why: Proxied, pause: Micros, now: Micros) {
        self.pools.exchange.pool(pool, |pool| pool.lobby_failed(why, now, pause));
        self.tell_trial(pool);
    }

    /// Continues the logins that wait for this trial, in all workers.
    fn tell_trial(&mut self, pool: PoolId) {
        self.pools.exchange.post_to_others(self.context.worker, || Mail::LobbyTried { pool });
        self.trial_over(pool);
    }

    /// Continues the logins of this worker that wait for this trial.
    pub(crate) fn trial_over(&mut self, pool: PoolId) {
        let waiting = self.newcomers.extract_if(.., |newcomer| newcomer.pool == pool);
        self.work.extend(waiting.map(Work::Enter));
    }

    /// The backend of this server has come to the lobby. It leaves at once if the pool may not use it
    /// any more.
    pub(crate) fn backend_came(&mut self, id: ServerId, serial: u64, io: &mut impl Io<X>) {
        let Some(server) = self.servers.get_mut(id) else { return };
        if server.serial != serial {
            return;
        }
        let (pool, epoch) = (server.pool, server.epoch);
        if !server.phase.came() {
            return;
        }
        let may_stay = self.pools.exchange.pool(pool, |pool| {
            pool.lobby_works(epoch);
            pool.proxied().is_none() && unfit(pool, epoch).is_none()
        });
        if !may_stay {
            send_off(&mut self.servers[id], io);
        }
        self.tell_trial(pool);
    }

    /// A backend has been idle for too long, or another pool needs its seat. After an online restart
    /// it stays, since no other could come to this process's lobby.
    pub(crate) fn idled_in_lobby(&mut self, id: ServerId, serial: u64, io: &mut impl Io<X>) {
        let Some(server) = self.servers.get(id) else { return };
        let attends = matches!(*server.phase, ServerPhase::Attending { .. });
        if server.serial == serial && attends && !self.context.has_successor {
            send_off(&mut self.servers[id], io);
        }
    }

    /// Looks after a server that another process has handed over with its lobby.
    pub(crate) fn begin_attending(&mut self, id: ServerId, io: &mut impl Io<X>) {
        let Some(server) = self.servers.get_mut(id) else { return };
        server.times.opened_at = io.now();
        let (pool, epoch) = (server.pool, server.epoch);
        if self.pools.exchange.pool(pool, |pool| unfit(pool, epoch)).is_some() {
            send_off(&mut self.servers[id], io);
        }
    }

    /// The backend has left the lobby, and is free. `why`: the reason, if it could not serve there.
    pub(crate) fn left_lobby(
        &mut self,
        id: ServerId,
        serial: u64,
        why: Option<Proxied>,
        io: &mut impl Io<X>,
    ) {
        let Some(server) = self.servers.get_mut(id) else { return };
        if server.serial != serial {
            return;
        }
        let (pool, epoch) = (server.pool, server.epoch);
        let ServerPhase::Attending { came, .. } = *server.phase else { return };
        if let Some(why) = why {
            self.trial_failed(pool, why, TRIAL_PAUSE, io.now());
        }
        let reason = self.pools.exchange.pool(pool, |pool| unfit(pool, epoch));
        let reason = reason.unwrap_or(CloseReason::LeftLobby);
        self.servers[id].phase.settle(Settling::Fresh);
        self.attending_ended(pool, epoch, serial, came, io);
        self.close_server(id, reason, io);
    }

    /// Hands a client over to the lobby, if its pool is direct. The client has just got this welcome.
    /// Returns whether it has left this worker.
    pub(crate) fn hand_off(
        &mut self,
        id: ClientId,
        pool: PoolId,
        welcome: &Welcome,
        io: &mut impl Io<X>,
    ) -> bool {
        if self.pools.settings(pool).proxied.is_some()
            || self.pools.exchange.pool(pool, |pool| pool.proxied().is_some())
        {
            return false;
        }
        let client = &self.clients[id];
        let is_new = matches!(*client.phase, ClientPhase::Idle)
            && client.is_welcomed()
            && client.stream.held.is_empty()
            && client.stream.at_boundary()
            && client.extended.is_none()
            && client.replication.is_none()
            && client.vars.prepared.is_empty()
            && client.vars.channels.is_empty();
        if !is_new {
            return false;
        }
        let guest = Guest {
            pool,
            serial: client.serial,
            identity: client.identity.clone(),
            is_counted: client.counted,
            key: client.key,
            tag: match client.key_form {
                KeyForm::Long => cancel_key::tag(&self.context.seed, client.key).to_vec(),
                KeyForm::Short => Vec::new(),
            },
            settings: startup_settings(client, &self.context.names),
            told: welcome.digest(&client.vars, &self.context.names),
            connected_at: client.connected_at,
            application_name: application_name(client),
            idle_limit: self.idle_limit(client),
            wait_limit: self.wait_limit(client),
            codes: self.context.config.global.error_codes,
        };
        if !io.hand_to_lobby(id, guest) {
            return false;
        }
        let client = self.clients.remove(id);
        self.keys.remove(client.key);
        if let Some(watch) = &mut self.watch {
            watch.left(client.serial, None);
        }
        true
    }

    /// Looks after the servers in the lobby that this worker has opened, a few times a second.
    pub(crate) fn tend_attending(&mut self, io: &mut impl Io<X>) {
        let mut attending: Vec<_> = self.attending().collect();
        attending.sort_by_key(|id| self.servers[*id].times.connected_at);
        let mut aged: Vec<PoolId> = Vec::new();
        for id in attending {
            self.tend_one(id, &mut aged, io);
        }
        self.tend_trials(io.now());
        self.yield_attending(io);
    }

    /// `aged`: the pools that have already asked a server to leave because of its age.
    fn tend_one(&mut self, id: ServerId, aged: &mut Vec<PoolId>, io: &mut impl Io<X>) {
        let now = io.now();
        // After an online restart, no other server could come to this process's lobby.
        let may_age = !self.context.has_successor;
        let server = &*self.servers[id];
        let (pool, times, process) = (server.pool, server.times, server.key.pid);
        let ServerPhase::Attending { came, asked } = *server.phase else { return };
        if !came && self.pools.exchange.pool(pool, |pool| pool.is_lobby_ceded()) {
            // Its backend looks for the lobby in the other process.
            return self.close_server(id, CloseReason::LeftLobby, io);
        }
        if !came && over(ANSWER_PATIENCE, times.opened_at, now) {
            // Such a backend may not connect to Weir's socket.
            let why = match io.runs_as_another_user(process) {
                true => Proxied::OtherUser,
                false => Proxied::NoAnswer,
            };
            self.trial_failed(pool, why, TRIAL_PAUSE, now);
            return self.close_server(id, CloseReason::LeftLobby, io);
        }
        // A server that was asked before it came is asked again.
        let leaves = asked
            || self.pools.exchange.pool(pool, |pool| {
                let is_old = now.saturating_sub(times.connected_at) > pool.settings.server_lifetime;
                let ages = may_age && is_old && !aged.contains(&pool.id) && pool.age_out(now);
                if ages {
                    aged.push(pool.id);
                }
                ages || pool.asks_to_leave(now)
            });
        if leaves {
            send_off(&mut self.servers[id], io);
        }
    }

    /// Ends trials whose server is lost, and continues logins that wait for a trial that is over.
    fn tend_trials(&mut self, now: Micros) {
        let waits: Vec<PoolId> = self.newcomers.iter().map(|newcomer| newcomer.pool).collect();
        for pool in waits {
            if self.pools.exchange.pool(pool, |pool| pool.trial_is_overdue(now)) {
                self.trial_failed(pool, Proxied::NotTried, OPENING_PAUSE, now);
            } else if self.pools.exchange.pool(pool, |pool| pool.lobby_wants_seat(now)) {
                self.work.push_back(Work::Try(pool));
            } else if !self.pools.exchange.pool(pool, |pool| pool.tries_lobby()) {
                self.trial_over(pool);
            }
        }
    }

    pub(crate) fn attending(&self) -> impl Iterator<Item = ServerId> {
        let attends = |server: &Server| matches!(*server.phase, ServerPhase::Attending { .. });
        let all = self.servers.iter().filter(move |(_, server)| attends(server));
        all.map(|(id, _)| id)
    }

    /// Asks servers that may not be used any more to leave the lobby. Disconnects the clients of a
    /// pool that is proxied now.
    pub(crate) fn review_attending(&mut self, pool: PoolId, io: &mut impl Io<X>) {
        let is_proxied = self.pools.exchange.pool(pool, |pool| pool.settings.proxied.is_some());
        let own: Vec<_> = self.attending().filter(|id| self.servers[*id].pool == pool).collect();
        for id in own {
            let epoch = self.servers[id].epoch;
            if is_proxied || self.pools.exchange.pool(pool, |pool| unfit(pool, epoch)).is_some() {
                send_off(&mut self.servers[id], io);
            }
        }
        if is_proxied {
            io.close_lobby(pool, Closing::AfterTransaction, "data_path has changed");
        }
    }
}

/// The backend of this server comes to the lobby now. It may be there already, and waits until
/// the shell knows its ticket.
pub(crate) fn expect_backend<X: Exchange>(
    id: ServerId,
    server: &mut Server,
    ticket: String,
    worker: WorkerId,
    io: &mut impl Io<X>,
) {
    let now = io.now();
    server.phase.attend(false, false);
    (server.times.released_at, server.times.opened_at) = (now, now);
    let (process, pool, serial) = (server.key.pid, server.pool, server.serial);
    io.expect_backend(Attending { ticket, process, pool, server: id, serial, worker });
}

/// Asks a server to leave the lobby. It does so when it has no client.
pub(crate) fn send_off<X: Exchange>(server: &mut Server, io: &mut impl Io<X>) {
    server.phase.asked_to_leave();
    io.ask_to_leave(server.serial);
}

fn application_name(client: &Client) -> Vec<u8> {
    client.vars.get(crate::vars::APPLICATION_NAME).unwrap_or_default().to_vec()
}

/// Writes the values of the client's startup packet as the library reads them.
fn startup_settings(client: &Client, names: &TrackedNames) -> Vec<u8> {
    let mut text = Vec::new();
    for (slot, value) in client.vars.tracked().enumerate() {
        if let Some(value) = value.filter(|_| client.given.has(slot)) {
            write_setting(names.name(slot).as_bytes(), value, &mut text);
        }
    }
    for setting in client.vars.carried.all() {
        write_setting(&setting.name, &setting.value, &mut text);
    }
    text
}

pub(crate) fn new_ticket<X: Exchange>(config: &Config, io: &mut impl Io<X>) -> String {
    let mut random = [0; TICKET_LEN];
    io.random(&mut random);
    let mut ticket = if config.global.is_own_socket() { OWN_TICKET } else { "" }.to_owned();
    ticket.extend(random.iter().map(|byte| format!("{byte:02x}")));
    ticket
}

/// Writes one setting in the form of the library's report.
fn write_setting(name: &[u8], value: &[u8], text: &mut Vec<u8>) {
    text.extend_from_slice(b";d:");
    escape(name, text);
    text.push(b'=');
    escape(value, text);
}

fn escape(word: &[u8], text: &mut Vec<u8>) {
    for byte in word {
        match byte {
            b'\\' | b';' | b'=' | ..=31 | 127.. => {
                text.extend_from_slice(format!("\\{byte:03o}").as_bytes());
            }
            32..=126 => text.push(*byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_written_as_the_library_reads_them() {
        let mut text = Vec::new();
        write_setting(b"app.x", b"a;b=\\\n\xc3\xa4 z", &mut text);
        assert_eq!(text, b";d:app.x=a\\073b\\075\\134\\012\\303\\244 z");
    }
}
