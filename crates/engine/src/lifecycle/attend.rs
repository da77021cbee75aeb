//! The engine's part of direct pools (docs/direct.md): servers whose backends serve clients'
//! sockets, and the clients that are handed to them. `engine/lobbies.rs` carries out what follows. The
//! shell has the lobbies themselves.
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

use std::collections::BTreeSet;
use std::sync::Arc;

use config::{Config, Proxied};

use crate::admission::one_pool::OnePool;
use crate::admission::pool::Entrance;
use crate::client::{Client, ClientPhase};
use crate::context::Context;
use crate::ids::{ClientId, Micros, Newcomer, PoolId, ServerId, WorkerId, over};
use crate::lifecycle::close_reason::CloseReason;
use crate::login::auth::LoginStep;
use crate::notify::connection::unfit;
use crate::operator::timings::Timings;
use crate::server::{Server, ServerPhase, Settling};
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

/// The clients of this worker that wait for the trials of their pools' lobbies.
#[derive(Debug, Default)]
pub(crate) struct Lobbies(Vec<Newcomer>);

/// A server that could not serve a lobby.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrialFailure {
    why: Proxied,
    /// The time before another trial.
    pause: Micros,
}

impl TrialFailure {
    /// The server could not be opened, or was lost.
    pub(crate) const LOST: Self = Self { why: Proxied::NotTried, pause: OPENING_PAUSE };

    /// The server cannot serve clients, for this reason.
    pub(crate) fn unsuited(why: Proxied) -> Self {
        Self { why, pause: TRIAL_PAUSE }
    }
}

/// The state of a trial that clients wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trial {
    GoesOn,
    /// There may be a seat now for its server.
    LacksServer,
    /// Its server must be lost.
    Overdue,
    Over,
}

/// The result of looking after a server in the lobby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tended {
    /// It stays, or was asked to leave.
    GoesOn,
    /// Its backend looks for the lobby in the other process: the server is closed.
    Ceded,
    /// Its backend has not come: the server is closed, and the trial has failed for this reason.
    Failed(Proxied),
}

impl Lobbies {
    /// Decides about a client that has logged in. It waits until it is known whether the pool is
    /// direct.
    pub(crate) fn entrance<X: Exchange>(
        &mut self,
        id: ClientId,
        client: &mut Client,
        pool: &mut OnePool<'_, X>,
        context: &Context,
        now: Micros,
    ) -> Entrance {
        if pool.view.settings.proxied.is_some() || pool.opens_by_proof(context) {
            return Entrance::Proxied;
        }
        // The backend of a trial would go to the other process.
        if context.has_successor {
            return if pool.is_direct() { Entrance::Direct } else { Entrance::Proxied };
        }
        let entrance = pool.lock(|pool| pool.entrance(now));
        if let Entrance::Trial { .. } = entrance {
            client.login_mut().step = LoginStep::Trial;
            self.0.push(Newcomer { client: id, serial: client.serial, pool: pool.id });
        }
        entrance
    }

    /// Returns the pools of the trials that clients wait for.
    pub(crate) fn tried(&self) -> Vec<PoolId> {
        // Many clients may wait for one trial.
        let pools: BTreeSet<PoolId> = self.0.iter().map(|newcomer| newcomer.pool).collect();
        pools.into_iter().collect()
    }

    /// Notes that a server could not serve the lobby. Returns the clients of this worker that have
    /// waited for the trial.
    pub(crate) fn failed<X: Exchange>(
        &mut self,
        pool: &mut OnePool<'_, X>,
        TrialFailure { why, pause }: TrialFailure,
        context: &Context,
        now: Micros,
    ) -> Vec<Newcomer> {
        pool.lock(|pool| pool.lobby_failed(why, now, pause));
        self.decided(pool, context)
    }

    /// Tells the other workers that the trial is over. Returns the clients of this worker that have
    /// waited for it.
    pub(crate) fn decided<X: Exchange>(
        &mut self,
        pool: &mut OnePool<'_, X>,
        context: &Context,
    ) -> Vec<Newcomer> {
        let id = pool.id;
        pool.exchange.post_to_others(context.worker, || Mail::LobbyTried { pool: id });
        self.over(id)
    }

    /// Returns the clients of this worker that have waited for this trial.
    pub(crate) fn over(&mut self, pool: PoolId) -> Vec<Newcomer> {
        self.0.extract_if(.., |newcomer| newcomer.pool == pool).collect()
    }
}

impl<X: Exchange> OnePool<'_, X> {
    /// Returns the state of the trial that clients wait for.
    pub(crate) fn trial(&mut self, now: Micros) -> Trial {
        self.lock(|pool| {
            if pool.trial_is_overdue(now) {
                Trial::Overdue
            } else if pool.lobby_wants_seat(now) {
                Trial::LacksServer
            } else if pool.tries_lobby() {
                Trial::GoesOn
            } else {
                Trial::Over
            }
        })
    }

    /// The thread of the lobbies asks for another server. May the lobby have one now? If it gets
    /// none any more, the clients of the lobby are told.
    pub(crate) fn may_attend_more(&mut self, context: &Context, io: &mut impl Io<X>) -> bool {
        let now = io.now();
        if context.has_successor {
            // After an online restart, backends connect to the new process's socket.
            if !self.lock(|pool| pool.is_attended()) {
                let why = "another process has taken over";
                io.close_lobby(self.id, Closing::AfterTransaction, why);
            }
            return false;
        }
        if let Some(error) = self.lock(|pool| pool.refusal(now)) {
            io.refuse_lobby(self.id, &error);
            return false;
        }
        !self.awaits_seat(now) && !self.lock(|pool| pool.pauses_attending(now))
    }

    /// Does the lobby serve new clients?
    fn is_direct(&mut self) -> bool {
        self.view.settings.proxied.is_none() && self.lock(|pool| pool.proxied().is_none())
    }
}

impl Server {
    /// Is its backend in the lobby of a direct pool, or about to come there?
    pub fn is_attending(&self) -> bool {
        matches!(*self.phase, ServerPhase::Attending { .. })
    }
}

/// Completes the login of a server that loads the library. Returns why it must be closed, if it must.
pub(crate) fn logged_in<X: Exchange>(
    server: &mut Server,
    welcome: Welcome,
    pool: &mut OnePool<'_, X>,
) -> Option<CloseReason<'static>> {
    server.vars = welcome.vars.clone();
    server.welcome = Arc::new(welcome);
    let (epoch, welcome) = (server.epoch, server.welcome.clone());
    pool.lock(|pool| {
        pool.opened(epoch);
        pool.refusals = None;
        pool.learn_welcome(epoch, welcome);
        unfit(pool, epoch)
    })
}

/// The backend of this server has come to the lobby. It leaves at once if the pool may not use it any
/// more. Returns false if it had come before.
pub(crate) fn came<X: Exchange>(
    server: &mut Server,
    pool: &mut OnePool<'_, X>,
    io: &mut impl Io<X>,
) -> bool {
    let epoch = server.epoch;
    if !server.phase.came() {
        return false;
    }
    let may_stay = pool.lock(|pool| {
        pool.lobby_works(epoch);
        pool.proxied().is_none() && unfit(pool, epoch).is_none()
    });
    if !may_stay {
        send_off(server, io);
    }
    true
}

/// Looks after a server that another process has handed over with its lobby.
pub(crate) fn begin<X: Exchange>(
    server: &mut Server,
    pool: &mut OnePool<'_, X>,
    io: &mut impl Io<X>,
) {
    let epoch = server.epoch;
    server.times.adopted(io.now());
    if pool.lock(|pool| unfit(pool, epoch)).is_some() {
        send_off(server, io);
    }
}

/// The backend has left the lobby, and is free. Returns the reason for which its server is closed.
pub(crate) fn left<X: Exchange>(
    server: &mut Server,
    pool: &mut OnePool<'_, X>,
) -> CloseReason<'static> {
    let epoch = server.epoch;
    server.phase.settle(Settling::Fresh);
    let unfit = pool.lock(|pool| unfit(pool, epoch));
    unfit.or(*server.doomed).unwrap_or(CloseReason::LeftLobby)
}

/// Looks after a server in the lobby. `aged`: the pools that have already asked a server to leave
/// because of its age.
pub(crate) fn tend<X: Exchange>(
    server: &mut Server,
    pool: &mut OnePool<'_, X>,
    aged: &mut Vec<PoolId>,
    context: &Context,
    io: &mut impl Io<X>,
) -> Tended {
    let now = io.now();
    // After an online restart, no other server could come to this process's lobby.
    let may_age = !context.has_successor;
    let times = server.times;
    let ServerPhase::Attending { came, asked } = *server.phase else { return Tended::GoesOn };
    if !came && pool.lock(|pool| pool.is_lobby_ceded()) {
        return Tended::Ceded;
    }
    if !came && over(ANSWER_PATIENCE, times.opened_at(), now) {
        // Such a backend may not connect to Weir's socket.
        return Tended::Failed(match io.runs_as_another_user(server.key.pid) {
            true => Proxied::OtherUser,
            false => Proxied::NoAnswer,
        });
    }
    // A server that was asked before it came is asked again.
    let leaves = asked
        || server.doomed.is_some()
        || pool.lock(|pool| {
            let is_old = times.age(now) > pool.settings.server_lifetime;
            let ages = may_age && is_old && !aged.contains(&pool.id) && pool.age_out(now);
            if ages {
                aged.push(pool.id);
            }
            ages || pool.asks_to_leave(now)
        });
    if leaves {
        send_off(server, io);
    }
    Tended::GoesOn
}

/// Hands a client over to the lobby, if its pool is direct. The client has just got this welcome.
/// Returns whether it has left this worker.
pub(crate) fn hand_off<X: Exchange>(
    id: ClientId,
    client: &Client,
    pool: &mut OnePool<'_, X>,
    welcome: &Welcome,
    context: &Context,
    timings: &mut Option<Box<Timings>>,
    io: &mut impl Io<X>,
) -> bool {
    if !pool.is_direct() || !may_be_guest(client) {
        return false;
    }
    let mut guest = guest(client, pool, welcome, context);
    let timing = timings.as_ref().and_then(|timings| timings.of(client.serial));
    guest.timing = timing.map(|timing| Box::new(timing.clone().is_direct()));
    let is_handed = io.hand_to_lobby(id, guest);
    if is_handed && let Some(timings) = timings {
        timings.take(client.serial);
    }
    is_handed
}

/// May the lobby serve a client that has just got its welcome?
fn may_be_guest(client: &Client) -> bool {
    matches!(*client.phase, ClientPhase::Idle)
        && client.is_welcomed()
        && client.stream.held().is_empty()
        && client.stream.at_boundary()
        && client.extended.is_none()
        && client.replication.is_none()
        && client.vars.prepared.is_empty()
        && client.vars.channels.is_empty()
}

/// Returns what the lobby must know about a client that has just got this welcome.
fn guest<X: Exchange>(
    client: &Client,
    pool: &OnePool<'_, X>,
    welcome: &Welcome,
    context: &Context,
) -> Guest {
    Guest {
        pool: pool.id,
        serial: client.serial,
        identity: client.identity.clone(),
        is_counted: client.pool.is_counted(),
        key: client.key.number(),
        tag: client.key.tag(&context.seed),
        settings: startup_settings(client, &context.names),
        told: welcome.digest(&client.vars, &context.names),
        connected_at: client.times.connected_at(),
        application_name: application_name(client),
        idle_limit: context.idle_limit(&client.identity),
        wait_limit: context.wait_limit(&client.identity, Some(&pool.view.settings)),
        codes: context.config.global.error_codes,
        timing: None,
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
    server.times.opened(now);
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
        if let Some(value) = value.filter(|_| client.vars.given().has(slot)) {
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
