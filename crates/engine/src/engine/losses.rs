//! Ends servers, whatever the cause. Their clients go to others, are told what they have lost, or are
//! disconnected.

use super::Engine;
use super::work::{Queue, Work};
use crate::client::{Client, ClientPhase};
use crate::ids::{ClientId, PoolId, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::failed::Next;
use crate::lifecycle::leave::{Leaving, cut_transaction};
use crate::lifecycle::lost::{Losing, is_loss, outlives};
use crate::lifecycle::preparation::Readable;
use crate::lifecycle::principal;
use crate::notify::listen::Unread;
use crate::operator::remarks::remark;
use crate::own_error::CONFIG_ERROR;
use crate::relay::resend::answer_due;
use crate::routing::Place;
use crate::server::ServerPhase;
use crate::session::holding;
use crate::shell::{Exchange, Io, Weight};

/// Servers without a client, and the loss of a server.
impl<X: Exchange> Engine<X> {
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
        let server = &mut *self.servers[id];
        if let Some(client) = *server.client
            && holding::release_lost(&mut self.clients[client], server)
        {
            self.follow_rename(client);
        }
        let losing = self.servers[id].losing();
        match losing {
            Losing::NotOpened => self.open_failed(id, reason, None, io),
            Losing::AskedAboutRole => {
                let server = &mut *self.servers[id];
                let newcomer = principal::lost(server, &mut self.pools.one(server.pool), io.now());
                self.seats().close(id, reason, io);
                self.work.extend(newcomer.map(Work::Checked));
            }
            // Nothing of the client's was sent, and none of its session state is on the server.
            Losing::Prepared | Losing::AskedAboutUser => {
                let server = &mut *self.servers[id];
                let (client, pool) = (*server.client, server.pool);
                let was_idle = server.times.asked_when_free();
                if let Some(client) = client {
                    self.clients[client].lose_unused(server);
                }
                self.seats().close(id, reason, io);
                match client {
                    None => {}
                    Some(client) if losing == Losing::Prepared => self.requeue(client, pool, io),
                    // A server that was idle may have been lost earlier, so Weir tries again. With a
                    // fresh one it would probably fail again.
                    Some(client) if was_idle => self.request_for_login(client, pool, io),
                    Some(client) => self.disconnect(client, CONFIG_ERROR, io),
                }
            }
            // The server has not run the request that was sent with the settings.
            Losing::Ahead => {
                let server = &mut *self.servers[id];
                if let (Some(client), Some(request)) = (*server.client, server.phase.take_request())
                {
                    self.move_request(client, id, &request, reason, io);
                }
            }
            // The client's request goes to another server, or the client is told.
            Losing::Linked => {
                let server = &*self.servers[id];
                let client = *server.client;
                // If a limit ended the request, another server must not run it again.
                let is_limited = matches!(*server.phase, ServerPhase::Linked) && !is_loss(reason);
                if let Some(client) = client {
                    if !is_limited && let Some(request) = self.pair(client, id).take_kept() {
                        return self.move_request(client, id, &request, reason, io);
                    }
                    let server = &*self.servers[id];
                    let settings = self.pools.settings(server.pool);
                    if is_loss(reason) && outlives(&self.clients[client], server, settings) {
                        return self.keep_client(client, id, reason, io);
                    }
                    self.disconnect(client, reason, io);
                }
                self.seats().close(id, reason, io);
            }
            Losing::Unlinked => self.seats().close(id, reason, io),
        }
    }
}

/// Clients that have lost their servers.
impl<X: Exchange> Engine<X> {
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

    /// Takes the lost server from its client, and tells the client what it has lost.
    pub(crate) fn keep_client(
        &mut self,
        id: ClientId,
        on: ServerId,
        reason: CloseReason<'_>,
        io: &mut impl Io<X>,
    ) {
        let mut pair = self.pair(id, on);
        answer_due(id, pair.server, io);
        let loss = pair.loss(reason);
        pair.roll_back_values(io);
        let (serial, is_reader) = (pair.client.serial, pair.pool.view.place != Place::Writer);
        let view = pair.client.pool.id().and_then(|own| self.pools.views.get(own));
        if loss.is_unknown()
            && let Some(view) = view
        {
            self.sessions.suppose_write((id, serial), &view.settings, io.clock());
        }
        if is_reader {
            // It may have shown a part of its data.
            self.sessions.of(id, serial).has_lost_reader(io.clock());
        }
        let error = loss.error();
        let (client, server) = (&mut self.clients[id], &mut *self.servers[on]);
        if let Some(error) = &error {
            let text = format!("{} ({})", error.message(), reason.text());
            remark(id, client, Weight::Warning, &text, io);
        }
        let out = loss.replies(error.as_ref());
        let failed = loss.failed(error, server.ledger.in_copy());
        cut_transaction(client, server, &mut self.transactions, io.now());
        self.pair(id, on).part_lost();
        self.seats().close(on, reason, io);
        if !out.is_empty() {
            io.send_client(id, &out);
        }
        self.clients[id].fail(failed);
        self.go_on_without(id, io);
    }

    /// Continues with a client that has lost its server.
    fn go_on_without(&mut self, id: ClientId, io: &mut impl Io<X>) {
        let is_over = !matches!(*self.clients[id].phase, ClientPhase::Failed(_));
        read_again(id, &self.clients[id], &mut self.work, io);
        if is_over {
            self.follow_rename(id);
        }
        if let Err(Unread) = self.channels(id).tell_untold(io) {
            self.disconnect(id, Unread::WHY, io);
        }
    }

    /// Reads bytes of a client whose transaction or session was lost.
    pub(crate) fn failed_bytes(&mut self, id: ClientId, bytes: &[u8], io: &mut impl Io<X>) {
        match self.clients[id].failed_bytes(id, bytes, io) {
            Next::Wait => {}
            Next::Serve => {
                self.follow_rename(id);
                self.serve(id, io);
            }
            Next::Over => self.go_on_without(id, io),
            Next::Terminate => self.disconnect(id, Leaving::Goodbye, io),
            Next::Violation(why) => self.disconnect(id, why, io),
        }
    }
}

/// Reads a client that has lost its server: the bytes that have arrived, and its socket.
pub(super) fn read_again<X: Exchange>(
    id: ClientId,
    client: &Client,
    work: &mut Queue,
    io: &mut impl Io<X>,
) {
    if client.stream.holds_message() {
        work.push(Work::Route(id));
    }
    io.resume_client(id);
}
