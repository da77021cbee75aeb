//! Ends clients, whatever the cause, and takes their servers back.

use super::Engine;
use super::work::Work;
use crate::ids::ClientId;
use crate::lifecycle::leave::{Departure, Ending, Leaving, cut_transaction, log_client_closing};
use crate::notify::listen::end_listening;
use crate::shell::{Exchange, Io};

impl<X: Exchange> Engine<X> {
    /// Ends the client: tells it why, if it is told anything, and takes its server from it.
    #[inline]
    pub(crate) fn disconnect<'a>(
        &mut self,
        id: ClientId,
        ending: impl Into<Ending<'a>>,
        io: &mut impl Io<X>,
    ) {
        self.end_client(id, ending.into(), io);
    }

    // Once for each client: it stays out of the functions for each message.
    #[cold]
    #[inline(never)]
    fn end_client(&mut self, id: ClientId, ending: Ending<'_>, io: &mut impl Io<X>) {
        let ending = ending.of(&self.clients[id]);
        let text = ending.text();
        let leaving = ending.leaving(&text);
        if let Leaving::Refused(cause, _) = leaving {
            self.failures.count_client(cause);
        }
        let client = &self.clients[id];
        // The log line is written first, because the client may read the log at once.
        log_client_closing(id, client, leaving, io);
        // An error cannot be inserted into a half-sent message of the server.
        let in_message = client.server.is_some_and(|on| self.servers[on].stream.is_mid_message());
        let error = ending.error(self.context.config.global.error_codes);
        if let Some(error) = error.filter(|_| !in_message) {
            let mut out = Vec::new();
            wire::backend::error(&mut out, &error);
            io.send_client(id, &out);
        }
        self.remove_client(id, leaving, io);
    }

    fn remove_client(&mut self, id: ClientId, leaving: Leaving<'_>, io: &mut impl Io<X>) {
        if let Some(on) = *self.clients[id].server {
            let client = &mut self.clients[id];
            let server = &mut *self.servers[on];
            cut_transaction(client, server, &mut self.transactions, io.now());
        }
        let client = self.clients.remove(id);
        if let Some(timings) = &mut self.transactions.timings
            && let Some(connection) = timings.take(client.serial)
        {
            io.connection_ended(connection.done(io.now()));
        }
        self.sessions.leave(id);
        if client.is_welcomed() {
            self.keys.remove(client.key.number());
        }
        if client.pool.is_counted() {
            self.pools.exchange.limits(|limits| limits.client_left(&client.identity));
        }
        io.close_client(id);
        if let Some(watch) = &mut self.watch {
            watch.left(client.serial, *client.server);
        }
        if client.session.is_some() {
            end_listening(self.context.worker, id, &client, &mut self.pools.exchange);
        }
        if let Some(pool) = client.pool.id() {
            self.pools.exchange.pool(pool, |pool| pool.clients -= 1);
        }
        if let Some(waiter) = client.wait() {
            let worker = self.context.worker;
            self.pools.exchange.pool(waiter.pool, |pool| pool.forget(worker, waiter.ticket));
        }
        if let Some(on) = *client.server {
            let left =
                Departure::of(&client, leaving, self.context.config.global.cancel_lost_queries);
            let server = &mut *self.servers[on];
            server.lose_client(client.serial);
            self.work.push(Work::TakeBack { server: on, serial: server.serial, left });
        }
    }
}
