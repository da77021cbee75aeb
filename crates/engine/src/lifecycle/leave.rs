//! A client or a server goes, by its own will, by ours, or by accident. Whatever it was doing,
//! nothing is left half done with the other side.

use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::link::Readable;
use crate::server::Settling;
use std::sync::Arc;

use wire::error_fields::ErrorFields;

use crate::admission::pool::Failure;
use crate::client::{Client, ClientPhase};
use crate::engine::Engine;
use crate::engine::work::{Left, Work};
use crate::ids::{ClientId, Micros, PoolId, ServerId};
use crate::relay::kept_request::QUESTIONS_MAX;
use crate::server::{Preparation, Server, ServerPhase, ServerPurpose};
use crate::shell::{Event, Exchange, Io, Mail, Weight};

/// PgBouncer's SQLSTATE for nearly everything it says itself.
pub(crate) const PROTOCOL_VIOLATION: &str = "08P01";

/// What a client is told that cannot be let in for a reason that is in the log alone.
pub(crate) const CONFIG_ERROR: &str = "bouncer config error";

/// PostgreSQL's code for a wrong password.
const INVALID_PASSWORD: &[u8] = b"28P01";
/// SQLSTATE for a server that was lost, as drivers know it (PostgreSQL's appendix A, class 08).
const CONNECTION_FAILURE: &str = "08006";

/// How a client goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving<'a> {
    /// It said Terminate.
    Goodbye,
    /// Its socket is gone.
    Lost,
    /// By our own decision, which is in the log alone: it speaks no language in which it could be
    /// told, or expects no answer, as whoever sends a cancel request.
    Unanswered(&'a str),
    /// By our own decision, which it was told if that was possible.
    Refused(&'a str),
    /// Another client has terminated it, and it was told so if that was possible.
    Terminated,
}

impl<'a> Leaving<'a> {
    fn reason(self) -> &'a str {
        match self {
            Self::Goodbye => "client close request",
            Self::Lost => "client unexpected eof",
            Self::Refused(why) | Self::Unanswered(why) => why,
            Self::Terminated => TERMINATED,
        }
    }
}

/// PostgreSQL's words and code for it.
const TERMINATED: &str = "terminating connection due to administrator command";
const ADMIN_SHUTDOWN: &str = "57P01";

impl<X: Exchange> Engine<X> {
    pub(crate) fn client_lost(&mut self, id: ClientId, now: Micros, io: &mut impl Io<X>) {
        if self.clients.contains(id.0 as usize) {
            self.drop_client(id, Leaving::Lost, now, io);
        }
    }

    pub(crate) fn client_said_goodbye(&mut self, id: ClientId, now: Micros, io: &mut impl Io<X>) {
        if self.clients.contains(id.0 as usize) {
            self.drop_client(id, Leaving::Goodbye, now, io);
        }
    }

    /// The log is to tell of something that this client did.
    pub(crate) fn client_trouble(&self, id: ClientId, message: &str, io: &mut impl Io<X>) {
        self.remark(id, Weight::Error, message, io);
    }

    pub(crate) fn remark(&self, id: ClientId, weight: Weight, message: &str, io: &mut impl Io<X>) {
        let name = self.client(id).name();
        io.event(Event::ClientRemark { client: id, name, weight, message });
    }

    /// Tell the client why and close it.
    pub(crate) fn disconnect(&mut self, id: ClientId, why: &str, now: Micros, io: &mut impl Io<X>) {
        self.refuse_client(id, &ErrorFields::new("FATAL", PROTOCOL_VIOLATION, why), now, io);
    }

    /// Close the client with this error, which may be one that PostgreSQL gave. The log has it before the
    /// client, who may look there at once.
    pub(crate) fn refuse_client(
        &mut self,
        id: ClientId,
        error: &ErrorFields,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        if self.asks(id) && names_user(error) {
            return self.disconnect(id, CONFIG_ERROR, now, io);
        }
        self.close_with(id, error, Leaving::Refused(&error.message()), now, io);
    }

    /// Another client terminates it, as PostgreSQL terminates a backend.
    pub(crate) fn terminate_client(&mut self, id: ClientId, now: Micros, io: &mut impl Io<X>) {
        let error = ErrorFields::new("FATAL", ADMIN_SHUTDOWN, TERMINATED);
        self.close_with(id, &error, Leaving::Terminated, now, io);
    }

    fn close_with(
        &mut self,
        id: ClientId,
        error: &ErrorFields,
        leaving: Leaving<'_>,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        self.tell_closing(id, leaving, now, io);
        let client = self.client(id);
        let mut out = Vec::new();
        // In the middle of a message of the server's nothing can be said any more.
        let in_message = client.server.is_some_and(|on| self.server(on).stream.is_mid_message());
        if !in_message {
            wire::backend::error(&mut out, error);
            io.send_client(id, &out);
        }
        self.remove_client(id, leaving, io);
    }

    /// Take the client out, and its server from it.
    pub(crate) fn drop_client(
        &mut self,
        id: ClientId,
        leaving: Leaving<'_>,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        self.tell_closing(id, leaving, now, io);
        self.remove_client(id, leaving, io);
    }

    /// The log is told.
    fn tell_closing(&self, id: ClientId, leaving: Leaving<'_>, now: Micros, io: &mut impl Io<X>) {
        let client = self.client(id);
        if leaving == Leaving::Lost && client.is_probe() {
            return;
        }
        io.event(Event::ClientClosing {
            client: id,
            name: client.name(),
            reason: leaving.reason(),
            age: now.saturating_sub(client.connected_at),
            error: matches!(leaving, Leaving::Refused(_) | Leaving::Terminated),
        });
    }

    fn remove_client(&mut self, id: ClientId, leaving: Leaving<'_>, io: &mut impl Io<X>) {
        let client = self.clients.remove(id.0 as usize);
        if client.key != 0 {
            self.keys.remove(&client.key);
        }
        if client.counted {
            self.exchange.limits(|limits| limits.client_left(&client.identity));
        }
        io.close_client(id);
        if client.session.is_some() {
            self.end_listening(id, &client);
        }
        if let Some(pool) = client.pool {
            self.exchange.pool(pool, |pool| pool.clients -= 1);
        }
        if let Some((pool, waiter)) = client.wait() {
            let worker = self.worker;
            self.exchange.pool(pool, |pool| pool.forget(worker, waiter.ticket));
        }
        if let Some(on) = client.server {
            self.leave_server(on, &client, leaving);
        }
    }

    fn leave_server(&mut self, on: ServerId, client: &Client, leaving: Leaving<'_>) {
        let cancels = match leaving {
            Leaving::Lost => self.config.global.cancel_lost_queries,
            Leaving::Terminated => true,
            Leaving::Goodbye | Leaving::Unanswered(_) | Leaving::Refused(_) => false,
        };
        let left = Left {
            cancels: cancels && client.replication.is_none(),
            in_message: client.stream.is_mid_message(),
            had_settings: client.vars.has_untracked(),
        };
        let server = self.server_mut(on);
        server.lose_client(client.serial);
        let serial = server.serial;
        self.work.push_back(Work::TakeBack { server: on, serial, left });
    }

    /// Its client has left. What becomes of the server?
    pub(crate) fn take_back(&mut self, on: ServerId, left: Left, now: Micros, io: &mut impl Io<X>) {
        let Left { cancels, in_message, had_settings } = left;
        let server = self.server_mut(on);
        match server.phase {
            // Our own question is under way, the client has sent nothing: the answer is awaited.
            ServerPhase::Preparing(ref step) if step.asks() || !server.ledger.owes_nothing() => {
                let (applies, renews) = (step.applies(), step.renews());
                server.phase = ServerPhase::Settling(Settling::LastAnswer);
                let is_half = server.has_foreign_settings() || had_settings;
                if applies && is_half {
                    // Which of the settings are there by then is not found out.
                    server.doubt_settings();
                }
                if cancels && renews && !server.ledger.owes_nothing() {
                    self.cancel_lost(on, io);
                }
            }
            // It was opened for this client.
            ServerPhase::Connecting(_) | ServerPhase::Login(_) => {
                self.lose_server(on, CloseReason::LeftDuringLogin, now, io);
            }
            _ if server.is_clean() && !in_message => self.free(on, now, io),
            _ if cancels && server.ledger.works_on_the_last_request() => {
                // Only a server that will have answered everything can be of use again.
                let whole = !in_message && io.server_flushed(on);
                if !whole || !server.ledger.ends_by_itself() {
                    server.doomed = Some(CloseReason::NotReady);
                }
                server.phase = ServerPhase::Finishing;
                server.times.asked_at = now;
                self.cancel_lost(on, io);
            }
            _ => self.close_server(on, CloseReason::NotReady, now, io),
        }
    }

    /// The server's socket is gone, or it has said something it must not.
    pub(crate) fn lose_server(
        &mut self,
        id: ServerId,
        reason: CloseReason<'_>,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let Some(server) = self.servers.get(id.0 as usize) else { return };
        match server.phase {
            ServerPhase::Connecting(_) | ServerPhase::Login(_) => {
                self.open_failed(id, reason, None, now, io);
            }
            ServerPhase::Preparing(
                Preparation::Hear
                | Preparation::Check
                | Preparation::Apply
                | Preparation::Reapply
                | Preparation::Statements
                | Preparation::Recount(_)
                | Preparation::Confirm,
            ) if server.status == b'I' && !server.has_traces() => {
                // Nothing of the client's was sent, nor is anything of its session there: it goes
                // back to its place in the queue. But its statement may be the reason, so it is not
                // asked about once more.
                let client = server.client;
                let pool = server.pool;
                let is_statement =
                    matches!(server.phase, ServerPhase::Preparing(Preparation::Confirm));
                if let (Some(client), true) = (client, is_statement) {
                    let client = self.client_mut(client);
                    client.resent = true;
                    client.extended.get_or_insert_default().questions = QUESTIONS_MAX;
                }
                self.close_server(id, reason, now, io);
                if let Some(client) = client {
                    self.requeue(client, pool, now, io);
                }
            }
            ServerPhase::Preparing(Preparation::Restore | Preparation::Ask(_)) => {
                let (client, pool) = (server.client, server.pool);
                let was_idle = server.times.asked_at > server.times.released_at;
                if let Some(client) = client {
                    self.client_mut(client).server = None;
                }
                self.close_server(id, reason, now, io);
                if let Some(client) = client {
                    self.ask_again(client, pool, was_idle, now, io);
                }
            }
            ServerPhase::Linked | ServerPhase::Preparing(_) => {
                // What a limit has ended would only begin anew on another server.
                let is_limited =
                    matches!(server.phase, ServerPhase::Linked) && reason != CloseReason::Lost;
                if !is_limited && self.resend_kept(id, reason, now, io) {
                    return;
                }
                if let Some(client) = self.server(id).client {
                    self.disconnect_from(client, id, reason, now, io);
                }
                self.close_server(id, reason, now, io);
            }
            ServerPhase::Finishing
            | ServerPhase::Settling(_)
            | ServerPhase::Listening
            | ServerPhase::Parked => {
                self.close_server(id, reason, now, io);
            }
        }
    }

    /// Its server is going: the client is told, but no longer has anything to do with the server.
    fn disconnect_from(
        &mut self,
        id: ClientId,
        on: ServerId,
        reason: CloseReason<'_>,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let in_message = self.server(on).stream.is_mid_message();
        self.client_mut(id).server = None;
        self.server_mut(on).client = None;
        if in_message {
            self.drop_client(id, Leaving::Refused(reason.text()), now, io);
        } else {
            let code =
                if reason == CloseReason::Lost { CONNECTION_FAILURE } else { PROTOCOL_VIOLATION };
            self.refuse_client(id, &ErrorFields::new("FATAL", code, reason.text()), now, io);
        }
    }

    /// The server has said that it ends, and its client has heard it: that is all there is to say.
    pub(crate) fn server_left(&mut self, on: ServerId, now: Micros, io: &mut impl Io<X>) {
        let server = self.server_mut(on);
        if let Some(id) = server.client.take() {
            self.client_mut(id).server = None;
            self.drop_client(id, Leaving::Refused(CloseReason::Lost.text()), now, io);
        }
        self.close_server(on, CloseReason::Lost, now, io);
    }

    /// A client that has lost its server before anything of its own was sent asks again.
    fn requeue(&mut self, id: ClientId, pool: PoolId, now: Micros, io: &mut impl Io<X>) {
        let worker = self.worker;
        let client = self.client_mut(id);
        let ClientPhase::Preparing(waiter) = client.phase else { return };
        client.server = None;
        let values = client.digest();
        // Who had not waited asks like a newcomer.
        let has_waited = waiter.ticket != 0;
        client.phase = if has_waited { ClientPhase::Waiting(waiter) } else { ClientPhase::Idle };
        let grant = self.exchange.pool(pool, |pool| match has_waited {
            true => pool.requeue(worker, waiter, values, now),
            false => pool.request(worker, id, values, now),
        });
        if self.take_grant(id, grant, waiter.since, now, io) == Readable::Now {
            self.go_on(id, io);
        }
    }

    /// End a logged-in server connection that has no client (any more); who needs another one, here
    /// or in a pool that had no seat, gets it.
    pub(crate) fn close_server(
        &mut self,
        id: ServerId,
        reason: CloseReason<'_>,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let server = self.end_connection(id, reason, now, io);
        let pool = server.pool;
        let listens = matches!(server.phase, ServerPhase::Listening);
        self.exchange.pool(pool, |pool| {
            if listens {
                pool.listener_gone();
            }
            pool.server_gone(server.epoch);
        });
        self.vacate(pool, now);
        if listens {
            self.forget_listener(pool, now);
        }
        if self.exchange.pool(pool, |pool| pool.reserve_opening(now)) {
            self.work.push_back(Work::Open(pool));
        }
        self.feed(now, io);
    }

    /// The connection alone.
    pub(crate) fn end_connection(
        &mut self,
        id: ServerId,
        reason: CloseReason<'_>,
        now: Micros,
        io: &mut impl Io<X>,
    ) -> Box<Server> {
        let server = self.servers.remove(id.0 as usize);
        if matches!(
            server.phase,
            ServerPhase::Settling(_) | ServerPhase::Linked | ServerPhase::Listening
        ) && server.is_clean()
            && io.server_flushed(id)
        {
            let mut goodbye = Vec::new();
            wire::frontend::terminate(&mut goodbye);
            io.send_server(id, &goodbye);
        }
        self.log_server_closing(id, &server, reason, now, io);
        io.close_server(id);
        server
    }

    /// A connection that never got as far as being logged in is over.
    pub(crate) fn open_failed(
        &mut self,
        id: ServerId,
        reason: CloseReason<'_>,
        refusal: Option<ErrorFields>,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let server = self.servers.remove(id.0 as usize);
        self.log_server_closing(id, &server, reason, now, io);
        io.close_server(id);
        let purpose = match server.phase {
            ServerPhase::Connecting(login) | ServerPhase::Login(login) => login.purpose,
            _ => None,
        };
        let (pool, epoch) = (server.pool, server.epoch);
        self.opening_ended();
        // PostgreSQL is starting up or shutting down (57P03): that is no verdict on anybody.
        let refused = refusal.as_ref().is_some_and(|error| error.sqlstate() != b"57P03");
        let cause = refusal.as_ref().map_or(reason.text().into(), ErrorFields::message);
        let text =
            format!("server login has been failing, cached error: {cause} (server_login_retry)");
        let cached = Arc::new(ErrorFields::new("FATAL", PROTOCOL_VIOLATION, &text));
        let error = refusal.map_or_else(|| cached.clone(), Arc::new);
        if let Some(purpose) = purpose {
            let listens = matches!(purpose, ServerPurpose::Listen);
            // A wrong password is this client's own affair, and so is a walsender too many.
            let open = self.exchange.pool(pool, |pool| {
                if listens {
                    pool.listener_gone();
                }
                pool.opening_ended(epoch);
                pool.reserve_opening(now)
            });
            self.vacate(pool, now);
            if listens {
                let retry = self.settings(pool).server_login_retry;
                self.forget_listener(pool, now + retry);
            }
            if open {
                self.work.push_back(Work::Open(pool));
            }
            self.feed(now, io);
            if let Some(client) = purpose.client().filter(|client| server.client == Some(*client)) {
                self.client_mut(client).server = None;
                if error.sqlstate() == INVALID_PASSWORD {
                    self.note_wrong_proof(client, now);
                }
                self.refuse_client(client, &error, now, io);
            }
            return;
        }
        let retry = self.settings(pool).server_login_retry;
        let failure =
            Failure { error: cached, names_user: names_user(&error), retry_at: now + retry };
        let waiters = self.exchange.pool(pool, |pool| pool.open_failed(epoch, failure, refused));
        self.vacate(pool, now);
        for (worker, waiter) in waiters {
            if worker == self.worker {
                self.refuse_client(waiter.client, &error, now, io);
            } else {
                self.exchange.post(worker, Mail::Refuse { waiter, pool, error: error.clone() });
            }
        }
        self.feed(now, io);
    }

    pub(crate) fn log_server_closing(
        &mut self,
        id: ServerId,
        server: &Server,
        reason: CloseReason<'_>,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let identity = self.view(server.pool).identity.clone();
        io.event(Event::ServerClosing {
            server: id,
            name: (&identity.database, &identity.user),
            reason: reason.text(),
            age: now.saturating_sub(server.times.connected_at),
        });
    }
}

/// May the error name the user that was not let in (class 28, "Invalid Authorization Specification")?
fn names_user(error: &ErrorFields) -> bool {
    error.sqlstate().starts_with(b"28")
}
