//! Ends clients, whatever the cause, and takes their servers back.

use config::ErrorCodes;
use wire::error_fields::ErrorFields;
use wire::sqlstate::CONNECTION_FAILURE;

use super::Engine;
use super::work::Work;
use crate::ids::{ClientId, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::leave::{Departure, Leaving, TakenBack, cut_transaction};
use crate::notify::listen::end_listening;
use crate::operator::waits::WaitDetail;
use crate::own_error::{CONFIG_ERROR, Cause, OwnError, judges_user};
use crate::shell::{Event, Exchange, Io};

impl<X: Exchange> Engine<X> {
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

    /// Closes the client with this error, which may be PostgreSQL's.
    pub(crate) fn refuse_client(&mut self, id: ClientId, error: &ErrorFields, io: &mut impl Io<X>) {
        if self.clients[id].asks() && judges_user(error) {
            return self.disconnect(id, CONFIG_ERROR, io);
        }
        self.close_with(id, error, Leaving::Refused(Cause::ServerRefusal, &error.message()), io);
    }

    /// Closes the client with this error. The log line is written first, because the client may read
    /// the log at once.
    pub(super) fn close_with(
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
            let left =
                Departure::of(&client, leaving, self.context.config.global.cancel_lost_queries);
            let server = &mut *self.servers[on];
            server.lose_client(client.serial);
            self.work.push(Work::TakeBack { server: on, serial: server.serial, left });
        }
    }

    /// Decides what happens to a server whose client has left.
    pub(super) fn take_back(&mut self, on: ServerId, left: Departure, io: &mut impl Io<X>) {
        match self.servers[on].take_back(on, left, io) {
            TakenBack::Waits => {}
            TakenBack::Cancels => self.cancellation().send(on, None, io),
            TakenBack::Free => self.free(on, io),
            TakenBack::Unused => self.lose_server(on, CloseReason::LeftDuringLogin, io),
            TakenBack::NotReady => self.close_server(on, CloseReason::NotReady, io),
        }
    }
}
