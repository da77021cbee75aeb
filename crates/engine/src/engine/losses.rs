//! Ends servers, whatever the cause. Their clients go to others, are told what they have lost, or are
//! disconnected.

use super::Engine;
use super::work::Work;
use crate::client::ClientPhase;
use crate::ids::{ClientId, PoolId, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::failed::Next;
use crate::lifecycle::leave::{Leaving, cut_transaction};
use crate::lifecycle::lost::{Losing, is_loss, outlives};
use crate::lifecycle::pair;
use crate::lifecycle::preparation::Readable;
use crate::notify::listen::Unread;
use crate::operator::remarks::remark;
use crate::own_error::Cause;
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
        if let Some(client) = server.client
            && holding::release_lost(&mut self.clients[client], server)
        {
            self.follow_rename(client);
        }
        let losing = self.servers[id].losing();
        match losing {
            Losing::NotOpened => self.open_failed(id, reason, None, io),
            Losing::AskedAboutRole => self.lose_asked(id, reason, io),
            // Nothing of the client's was sent, and none of its session state is on the server.
            Losing::Prepared | Losing::AskedAboutUser => {
                let server = &mut *self.servers[id];
                let (client, pool) = (server.client, server.pool);
                let was_idle = server.times.asked_at > server.times.released_at;
                if let Some(client) = client {
                    self.clients[client].lose_unused(server);
                }
                self.close_server(id, reason, io);
                match client {
                    None => {}
                    Some(client) if losing == Losing::Prepared => self.requeue(client, pool, io),
                    Some(client) => self.ask_again(client, pool, was_idle, io),
                }
            }
            Losing::Ahead => self.move_ahead(id, reason, io),
            Losing::Linked => self.lose_linked(id, reason, io),
            Losing::Unlinked => self.close_server(id, reason, io),
        }
    }

    /// A server with a client is lost. The client's request goes to another server, or the client is
    /// told.
    fn lose_linked(&mut self, on: ServerId, reason: CloseReason<'_>, io: &mut impl Io<X>) {
        // If a limit ended the request, another server must not run it again.
        let is_limited = matches!(*self.servers[on].phase, ServerPhase::Linked) && !is_loss(reason);
        if !is_limited
            && let Some(id) = self.servers[on].client
            && let Some(request) = self.pair(id, on).take_kept()
        {
            return self.move_request(id, on, &request, reason, io);
        }
        let server = &*self.servers[on];
        if let Some(id) = server.client {
            let settings = self.pools.settings(server.pool);
            if is_loss(reason) && outlives(&self.clients[id], server, settings) {
                return self.keep_client(id, on, reason, io);
            }
            self.disconnect_from(id, on, reason, io);
        }
        self.close_server(on, reason, io);
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

    /// Closes a logged-in server without a client.
    pub(crate) fn close_server(
        &mut self,
        id: ServerId,
        reason: CloseReason<'_>,
        io: &mut impl Io<X>,
    ) {
        self.seats().close(id, reason, io);
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

    /// Reads a client that has lost its server: the bytes that have arrived, and its socket.
    pub(crate) fn read_again(&mut self, id: ClientId, io: &mut impl Io<X>) {
        if self.clients[id].stream.holds_message() {
            self.work.push(Work::Route(id));
        }
        io.resume_client(id);
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
        let view = pair.client.pool.and_then(|own| self.pools.views.get(own));
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
        self.close_server(on, reason, io);
        if !out.is_empty() {
            io.send_client(id, &out);
        }
        self.clients[id].fail(failed);
        self.go_on_without(id, io);
    }

    /// Continues with a client that has lost its server.
    fn go_on_without(&mut self, id: ClientId, io: &mut impl Io<X>) {
        let is_over = !matches!(*self.clients[id].phase, ClientPhase::Failed(_));
        self.read_again(id, io);
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
                if self.link(id, io) == Readable::Now {
                    self.go_on(id, io);
                }
            }
            Next::Over => self.go_on_without(id, io),
            Next::Terminate => self.drop_client(id, Leaving::Goodbye, io),
            Next::Violation(why) => self.disconnect(id, why, io),
        }
    }
}
