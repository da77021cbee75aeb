//! Ends a client or a server, whatever the cause. The other side of the link is always left in a
//! defined state.

use config::ErrorCodes;
use wire::error_fields::ErrorFields;
use wire::sqlstate::{ADMIN_SHUTDOWN, CONNECTION_FAILURE};

use crate::client::{Client, ClientPhase};
use crate::engine::Engine;
use crate::engine::work::{Left, Work};
use crate::ids::{ClientId, Identity, Micros, PoolId, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::pair;
use crate::lifecycle::preparation::Readable;
use crate::notify::listen::end_listening;
use crate::operator::failures::ServerFailure;
use crate::operator::transactions::Transactions;
use crate::operator::waits::WaitDetail;
use crate::own_error::{CONFIG_ERROR, Cause, OwnError, judges_user};
use crate::phase::Phase;
use crate::relay::kept_request::QUESTIONS_MAX;
use crate::server::{LoginStage, Preparation, Server, ServerPhase, ServerPurpose, Settling};
use crate::shell::{Event, Exchange, Io};

/// The way in which a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving<'a> {
    /// The client sent Terminate.
    Goodbye,
    /// The client's socket was closed.
    Lost,
    /// Weir closes the connection without an error message; only the log has the reason. Such a
    /// client does not speak the protocol, or expects no answer (a cancel request).
    Unanswered(&'a str),
    /// Weir closes the connection, with an error message if one can be sent.
    Refused(Cause, &'a str),
    /// Another client has terminated this one; it gets an error message if one can be sent.
    Terminated,
}

impl<'a> Leaving<'a> {
    fn reason(self) -> &'a str {
        match self {
            Self::Goodbye => "client close request",
            Self::Lost => "client unexpected eof",
            Self::Refused(_, why) | Self::Unanswered(why) => why,
            Self::Terminated => TERMINATED,
        }
    }
}

/// PostgreSQL's words for it.
const TERMINATED: &str = "terminating connection due to administrator command";

impl<X: Exchange> Engine<X> {
    pub(crate) fn client_lost(&mut self, id: ClientId, io: &mut impl Io<X>) {
        if self.clients.contains(id) {
            self.drop_client(id, Leaving::Lost, io);
        }
    }

    pub(crate) fn client_said_goodbye(&mut self, id: ClientId, io: &mut impl Io<X>) {
        if self.clients.contains(id) {
            self.drop_client(id, Leaving::Goodbye, io);
        }
    }

    /// Closes the client with an error message.
    pub(crate) fn disconnect<'a>(
        &mut self,
        id: ClientId,
        why: impl Into<OwnError<'a>>,
        io: &mut impl Io<X>,
    ) {
        self.disconnect_with(id, &why.into(), None, io);
    }

    /// Disconnects a client with an error, and with a DETAIL if the client gets such fields.
    pub(crate) fn disconnect_with(
        &mut self,
        id: ClientId,
        why: &OwnError<'_>,
        detail: Option<&WaitDetail>,
        io: &mut impl Io<X>,
    ) {
        let codes = self.context.config.global.error_codes;
        let mut error = why.fields(codes, detail.map(|detail| detail.text.as_str()));
        if codes == ErrorCodes::Weir && detail.is_some_and(|detail| detail.is_unreachable) {
            error.replace(b'C', CONNECTION_FAILURE);
        }
        self.close_with(id, &error, Leaving::Refused(why.cause, &why.text), io);
    }

    /// Closes the client with this error, which may be PostgreSQL's. The log line is written first,
    /// because the client may read the log at once.
    pub(crate) fn refuse_client(&mut self, id: ClientId, error: &ErrorFields, io: &mut impl Io<X>) {
        if self.clients[id].asks() && judges_user(error) {
            return self.disconnect(id, CONFIG_ERROR, io);
        }
        self.close_with(id, error, Leaving::Refused(Cause::ServerRefusal, &error.message()), io);
    }

    /// Terminates the client on behalf of another one, as PostgreSQL terminates a backend.
    pub(crate) fn terminate_client(&mut self, id: ClientId, io: &mut impl Io<X>) {
        let error = ErrorFields::new("FATAL", ADMIN_SHUTDOWN, TERMINATED);
        self.close_with(id, &error, Leaving::Terminated, io);
    }

    fn close_with(
        &mut self,
        id: ClientId,
        error: &ErrorFields,
        leaving: Leaving<'_>,
        io: &mut impl Io<X>,
    ) {
        self.tell_closing(id, leaving, io);
        let client = &self.clients[id];
        let mut out = Vec::new();
        // An error cannot be inserted into a half-sent message of the server.
        let in_message = client.server.is_some_and(|on| self.servers[on].stream.is_mid_message());
        if !in_message {
            wire::backend::error(&mut out, error);
            io.send_client(id, &out);
        }
        self.remove_client(id, leaving, io);
    }

    /// Removes the client and takes its server from it.
    pub(crate) fn drop_client(&mut self, id: ClientId, leaving: Leaving<'_>, io: &mut impl Io<X>) {
        self.tell_closing(id, leaving, io);
        self.remove_client(id, leaving, io);
    }

    /// Logs that the client's connection ends, and counts it if Weir ends it.
    fn tell_closing(&mut self, id: ClientId, leaving: Leaving<'_>, io: &mut impl Io<X>) {
        if let Leaving::Refused(cause, _) = leaving {
            self.failures.count_client(cause);
        }
        let client = &self.clients[id];
        if leaving == Leaving::Lost && client.is_probe() {
            return;
        }
        io.event(Event::ClientClosing {
            client: id,
            name: client.name(),
            reason: leaving.reason(),
            age: io.now().saturating_sub(client.connected_at),
            error: matches!(leaving, Leaving::Refused(..) | Leaving::Terminated),
        });
    }

    fn remove_client(&mut self, id: ClientId, leaving: Leaving<'_>, io: &mut impl Io<X>) {
        if let Some(on) = self.clients[id].server {
            let client = &mut self.clients[id];
            let server = &mut *self.servers[on];
            cut_transaction(client, server, &mut self.transactions, io.now());
        }
        let client = self.clients.remove(id);
        self.sessions.leave(id);
        if client.key != 0 {
            self.keys.remove(client.key);
        }
        if client.counted {
            self.pools.exchange.limits(|limits| limits.client_left(&client.identity));
        }
        io.close_client(id);
        if let Some(watch) = &mut self.watch {
            watch.left(client.serial, client.server);
        }
        if client.session.is_some() {
            end_listening(self.context.worker, id, &client, &mut self.pools.exchange);
        }
        if let Some(pool) = client.pool {
            self.pools.exchange.pool(pool, |pool| pool.clients -= 1);
        }
        if let Some(waiter) = client.wait() {
            let worker = self.context.worker;
            self.pools.exchange.pool(waiter.pool, |pool| pool.forget(worker, waiter.ticket));
        }
        if let Some(on) = client.server {
            self.leave_server(on, &client, leaving);
        }
    }

    fn leave_server(&mut self, on: ServerId, client: &Client, leaving: Leaving<'_>) {
        let cancels = match leaving {
            Leaving::Lost => self.context.config.global.cancel_lost_queries,
            Leaving::Terminated => true,
            Leaving::Goodbye | Leaving::Unanswered(_) | Leaving::Refused(..) => false,
        };
        let left = Left {
            cancels: cancels && client.replication.is_none(),
            in_message: client.stream.is_mid_message(),
            had_settings: client.vars.has_untracked(),
        };
        let server = &mut *self.servers[on];
        server.lose_client(client.serial);
        let serial = server.serial;
        self.work.push_back(Work::TakeBack { server: on, serial, left });
    }

    /// Decides what happens to a server whose client has left.
    pub(crate) fn take_back(&mut self, on: ServerId, left: Left, io: &mut impl Io<X>) {
        let Left { cancels, in_message, had_settings } = left;
        let server = &mut *self.servers[on];
        match *server.phase {
            // Weir's own query is running, and the client has sent nothing: wait for the reply.
            ServerPhase::Preparing(ref step)
                if step.asks() || !(step.has_sent() || server.ledger.owes_nothing()) =>
            {
                let (applies, renews) = (step.applies(), step.renews());
                server.phase.settle(Settling::LastAnswer);
                let is_half = server.has_foreign_settings() || had_settings;
                if applies && is_half {
                    // Weir does not find out which of the settings were set.
                    server.doubt_settings();
                }
                if cancels && renews && !server.ledger.owes_nothing() {
                    self.send_cancel(on, None, io);
                }
            }
            // The server was opened for this client.
            ServerPhase::Connecting(_) | ServerPhase::Login(_) => {
                self.lose_server(on, CloseReason::LeftDuringLogin, io);
            }
            _ if server.is_clean() && !in_message => self.free(on, io),
            _ if cancels && server.ledger.works_on_the_last_request() => {
                // The server can be used again only if it will reply to everything, and if the
                // cancel request cannot hit a message of Weir's own.
                let whole = !in_message && io.server_flushed(on);
                let ledger = &server.ledger;
                if !whole || !ledger.ends_by_itself() || ledger.owes_weir() {
                    server.doomed = Some(CloseReason::NotReady);
                }
                server.phase.finish();
                server.times.asked_at = io.now();
                self.send_cancel(on, None, io);
            }
            ServerPhase::Parked
            | ServerPhase::Preparing(_)
            | ServerPhase::Linked
            | ServerPhase::Finishing
            | ServerPhase::Settling(_)
            | ServerPhase::Listening
            | ServerPhase::Attending { .. } => self.close_server(on, CloseReason::NotReady, io),
        }
    }

    /// Deals with a server whose socket is closed, or that has sent something invalid.
    pub(crate) fn lose_server(
        &mut self,
        id: ServerId,
        reason: CloseReason<'_>,
        io: &mut impl Io<X>,
    ) {
        if !self.servers.contains(id) {
            return;
        }
        self.release_lost(id);
        let server = &*self.servers[id];
        match *server.phase {
            ServerPhase::Connecting(_) | ServerPhase::Login(_) => {
                self.open_failed(id, reason, None, io);
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
                self.lose_prepared(id, reason, io);
            }
            ServerPhase::Preparing(Preparation::TellPrincipal(_)) => {
                self.lose_asked(id, reason, io);
            }
            ServerPhase::Preparing(Preparation::Fail | Preparation::Begin) => {
                self.lose_prepared(id, reason, io);
            }
            ServerPhase::Preparing(Preparation::Restore | Preparation::Ask(_)) => {
                let (client, pool) = (server.client, server.pool);
                let was_idle = server.times.asked_at > server.times.released_at;
                if let Some(client) = client {
                    pair::part(&mut self.clients[client], &mut self.servers[id]);
                }
                self.close_server(id, reason, io);
                if let Some(client) = client {
                    self.ask_again(client, pool, was_idle, io);
                }
            }
            // The server has ended during the settings, so the request behind them has not run.
            ServerPhase::Preparing(Preparation::Ahead(_))
                if server.own_error.is_some() && server.client.is_some() =>
            {
                self.move_ahead(id, reason, io);
            }
            ServerPhase::Linked | ServerPhase::Preparing(_) => self.lose_linked(id, reason, io),
            ServerPhase::Finishing
            | ServerPhase::Settling(_)
            | ServerPhase::Listening
            | ServerPhase::Attending { .. }
            | ServerPhase::Parked => {
                self.close_server(id, reason, io);
            }
        }
    }

    /// Nothing of the client's was sent, and none of its session state is on this server, so it
    /// returns to its place in the queue. Its statement may have caused the loss, so no server is
    /// asked about it again.
    fn lose_prepared(&mut self, id: ServerId, reason: CloseReason<'_>, io: &mut impl Io<X>) {
        let server = &*self.servers[id];
        let (client, pool) = (server.client, server.pool);
        let is_statement = matches!(*server.phase, ServerPhase::Preparing(Preparation::Confirm));
        if let (Some(client), true) = (client, is_statement) {
            let client = &mut self.clients[client];
            client.resent = true;
            client.extended.get_or_insert_default().questions = QUESTIONS_MAX;
        }
        if let Some(client) = client {
            pair::part(&mut self.clients[client], &mut self.servers[id]);
        }
        self.close_server(id, reason, io);
        if let Some(client) = client {
            self.requeue(client, pool, io);
        }
    }

    /// Disconnects the client, whose server is being closed, and unlinks the two.
    pub(crate) fn disconnect_from(
        &mut self,
        id: ClientId,
        on: ServerId,
        reason: CloseReason<'_>,
        io: &mut impl Io<X>,
    ) {
        let in_message = self.servers[on].stream.is_mid_message();
        let client = &mut self.clients[id];
        let server = &mut *self.servers[on];
        cut_transaction(client, server, &mut self.transactions, io.now());
        pair::part(client, server);
        if in_message {
            self.drop_client(id, Leaving::Refused(reason.cause(), reason.text()), io);
        } else {
            self.disconnect(id, reason, io);
        }
    }

    /// Closes a server that has announced its end. Its client has already received that message.
    pub(crate) fn server_left(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let server = &mut *self.servers[on];
        if let Some(id) = server.client {
            pair::part(&mut self.clients[id], server);
            self.drop_client(id, Leaving::Refused(Cause::ServerLost, CloseReason::Lost.text()), io);
        }
        self.close_server(on, CloseReason::Lost, io);
    }

    /// Returns a client to the queue that has lost its server before its own messages were sent.
    fn requeue(&mut self, id: ClientId, pool: PoolId, io: &mut impl Io<X>) {
        let now = io.now();
        let worker = self.context.worker;
        let client = &mut self.clients[id];
        let ClientPhase::Preparing(waiter) = *client.phase else { return };
        let values = client.digest();
        // A client that had not waited before joins the end of the queue.
        let has_waited = waiter.ticket != 0;
        match has_waited {
            true => client.phase.queue(waiter),
            false => client.phase.unlink(),
        }
        let grant = self.pools.exchange.pool(pool, |pool| match has_waited {
            true => pool.requeue(worker, waiter, values, now),
            false => pool.request(worker, id, values, now),
        });
        if self.take_grant(id, pool, grant, waiter.since, io) == Readable::Now {
            self.go_on(id, io);
        }
    }

    /// Closes a logged-in server without a client. Its seat goes to the next client or pool that
    /// needs a server.
    pub(crate) fn close_server(
        &mut self,
        id: ServerId,
        reason: CloseReason<'_>,
        io: &mut impl Io<X>,
    ) {
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
            self.work.push_back(Work::Open(pool));
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
        if matches!(
            *server.phase,
            ServerPhase::Settling(_) | ServerPhase::Linked | ServerPhase::Listening
        ) && server.is_clean()
            && io.server_flushed(id)
        {
            let mut goodbye = Vec::new();
            wire::frontend::terminate(&mut goodbye);
            io.send_server(id, &goodbye);
        }
        let identity = self.pools.view(server.pool).identity.clone();
        log_server_closing(id, &server, &identity, reason, io);
        io.close_server(id);
        server
    }

    /// Reads a client that has lost its server: the bytes that have arrived, and its socket.
    pub(crate) fn read_again(&mut self, id: ClientId, io: &mut impl Io<X>) {
        if self.clients[id].stream.holds_message() {
            self.work.push_back(Work::Route(id));
        }
        io.resume_client(id);
    }
}

/// Remembers the client's transaction on this server, which ends before its time.
pub(crate) fn cut_transaction(
    client: &mut Client,
    server: &mut Server,
    transactions: &mut Transactions,
    now: Micros,
) {
    if client.transaction_at != 0 {
        if let Some(slow) = server.stages.finish(client, server.pool, false, now) {
            transactions.add(slow);
        }
        client.transaction_at = 0;
    }
}

/// Logs that a server is closed. `identity` is its pool's.
pub(crate) fn log_server_closing<X: Exchange>(
    id: ServerId,
    server: &Server,
    identity: &Identity,
    reason: CloseReason<'_>,
    io: &mut impl Io<X>,
) {
    let repeats = matches!(&*server.phase, ServerPhase::Login(login)
        if matches!(login.stage, LoginStage::Refused { repeats: true }));
    io.event(Event::ServerClosing {
        server: id,
        name: (&identity.database, &identity.user),
        reason: reason.text(),
        age: io.now().saturating_sub(server.times.connected_at),
        failed: reason.is_failure(),
        repeats,
    });
}

/// Returns the purpose of a server that is not logged in.
pub(crate) fn purpose_of(phase: Phase<ServerPhase>) -> Option<ServerPurpose> {
    phase.into_login()?.purpose
}
