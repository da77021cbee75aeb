//! Passes messages between clients and their servers, and does what follows from them. The rules are
//! in `relay`.

use super::Engine;
use super::work::Work;
use crate::admission::one_pool::OnePool;
use crate::client::ClientPhase;
use crate::ids::{ClientId, ServerId};
use crate::lifecycle::ahead::Ahead;
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::leave::Leaving;
use crate::lifecycle::pair;
use crate::lifecycle::preparation::Readable;
use crate::lifecycle::release::Cleaning;
use crate::own_error::Cause;
use crate::relay::batch_end::BatchEnd;
use crate::relay::replies::{self, Answered, Awaited, Done, Replies, await_boundary, note_read};
use crate::relay::requests::{Due, Followed, Input, Linked, Unused};
use crate::relay::resend::{Renewed, may_resend};
use crate::relay::stream::Splice;
use crate::routing::{Judged, Place};
use crate::server::ServerPhase;
use crate::shell::{Exchange, Io};

/// Requests.
impl<X: Exchange> Engine<X> {
    /// Handles bytes of a client, with those before them that were held, and sends the messages to its
    /// server.
    pub(crate) fn request_bytes(&mut self, id: ClientId, bytes: &[u8], io: &mut impl Io<X>) {
        let Some(on) = *self.clients[id].server else { return };
        let input = Input::take(&mut self.clients[id], bytes);
        let mut preface = None;
        if self.servers[on].session.get().is_some_and(|own| own.ahead.is_some()) {
            let (client, server) = (&self.clients[id], &mut *self.servers[on]);
            match Due::before(&input, id, client, server, &mut self.context, io) {
                Due::Now(due) => preface = due,
                Due::First(sql) => return self.pair(id, on).restore_first(&sql, input, io),
            }
        }
        let client = &mut self.clients[id];
        let server = &mut *self.servers[on];
        let pool = server.pool;
        let Some(view) = self.pools.views.get_mut(pool) else { return };
        let is_judged_read =
            view.place != Place::Writer && self.sessions.is_judged_read(id, client.serial);
        let linked = Linked {
            id,
            on,
            client,
            server,
            pool: OnePool { id: pool, exchange: &mut self.pools.exchange, view },
            context: &mut self.context,
            texts: &mut self.texts,
            watch: &mut self.watch,
            scratch: &mut self.scratch,
            messages: &mut self.messages,
            is_judged_read,
        };
        let ran = linked.pass(&input, preface.as_deref_mut(), io);
        if is_judged_read && ran.begun_at.is_some() {
            // The client may keep the reader. Its later requests there are not judged.
            let serial = self.clients[id].serial;
            self.sessions.of(id, serial).is_judged_read = false;
        }
        // The server has received nothing of these requests. If another server may not get them, the
        // lost socket is reported soon, and the client is told then.
        if let Some(from) = ran.unsent {
            let server = &*self.servers[on];
            if may_resend(&self.clients[id], server, self.pools.mode_of(server)) {
                let request = &input.all()[from..];
                return self.move_request(id, on, request, CloseReason::Lost, io);
            }
        }
        let (client, server) = (&mut self.clients[id], &mut *self.servers[on]);
        let followed = match preface.and_then(|preface| (*preface).restoring()) {
            None => ran.follow(client, input),
            Some(restoring) => restoring.follow(id, client, server, ran, input, io.now()),
        };
        match followed {
            Followed::Unused => self.give_back_unused(id, on, io),
            Followed::Sent => {}
            Followed::First(sql) => self.pair(id, on).apply_first(&sql, io),
            Followed::Outdated(of) => self.pair(id, on).confirm_shape(of, io),
            Followed::Signal(call) => {
                let begun = self.cancellation().begin_signal(id, on, call, io);
                self.follow_request(begun, io);
            }
            Followed::Terminate => self.disconnect(id, Leaving::Goodbye, io),
            Followed::Violation(violation) => {
                self.disconnect(id, violation.log(id, &self.clients[id], io), io);
            }
        }
    }

    /// Takes a clean server from a client that does not need it yet.
    pub(super) fn give_back_unused(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) {
        let server = &mut *self.servers[on];
        if !server.is_clean() {
            return;
        }
        let mode = self.pools.mode_of(server);
        match Unused::of(&self.clients[id], server, mode, &self.context.names) {
            Unused::Kept => {}
            Unused::Judged => self.judge(id, on, io),
            Unused::Free => self.unlink(id, on, io),
        }
    }
}

/// The part of an input that was passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passed {
    All,
    /// The rest is held: it answers the request behind the settings.
    UpToRequest,
    /// Nothing yet: a reader may refuse its client's request.
    UntilJudged,
}

/// Replies.
impl<X: Exchange> Engine<X> {
    /// Passes an input on in steps. Something may have to be decided before its rest is handled.
    pub(crate) fn reply_bytes(&mut self, on: ServerId, bytes: &[u8], io: &mut impl Io<X>) {
        let mut bytes = bytes;
        loop {
            match self.pass_replies(on, bytes, io) {
                Passed::All => return,
                Passed::UpToRequest => {
                    let Some(id) = *self.servers[on].client else { return };
                    if let Ahead::Refused(request) = self.pair(id, on).ahead_answered(io) {
                        let reason = CloseReason::SettingsRefused;
                        return self.move_request(id, on, &request, reason, io);
                    }
                    self.go_on(id, io);
                    // The replies to the request are held.
                    bytes = &[];
                }
                Passed::UntilJudged => {
                    let server = &mut *self.servers[on];
                    let mode = self.pools.mode_of(server);
                    let client = server.client.and_then(|id| self.clients.get(id));
                    match server.judge_reader(client, mode, bytes) {
                        Judged::Held => return,
                        Judged::Answers { is_held: true } => bytes = &[],
                        Judged::Answers { is_held: false } => {}
                        Judged::Refused(status) => {
                            let client = self.paths().take_from_reader(on, status, io);
                            let Some(client) = client else { return };
                            // The refusal is in the reader's stream. It frees the reader.
                            self.reply_bytes(on, &[], io);
                            return self.serve(client, io);
                        }
                        Judged::Leaves => return self.lose_server(on, CloseReason::Lost, io),
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn pass_replies(&mut self, on: ServerId, bytes: &[u8], io: &mut impl Io<X>) -> Passed {
        let now = io.now();
        let server = &mut *self.servers[on];
        let id = *server.client;
        let client = id.and_then(|id| self.clients.get_mut(id));
        let Some(view) = self.pools.views.get_mut(server.pool) else { return Passed::All };
        let (is_reader, mut left_recovery) = (view.place != Place::Writer, false);
        if is_reader {
            if server.may_refuse() {
                return Passed::UntilJudged;
            }
            left_recovery = server.has_left_recovery();
        }
        view.stats.sent += bytes.len() as u64;
        if let Some(watch) = &mut self.watch {
            watch.replied(on, bytes.len());
        }
        server.stages.reply(now);
        let joined = server.stream.take_joined(bytes);
        let input = joined.as_deref().unwrap_or(bytes);
        let whole = server.stream.at_boundary();
        let (out, names) = (Splice::new(input, &mut self.scratch), &self.context.names);
        let mut replies = Replies::new(input, out, client, server, names, &view.settings, now);
        replies.news.left_recovery = left_recovery;
        let stop = replies.run();
        let (used, refused, news) = (replies.at, replies.refused, replies.news);
        self.messages += replies.messages;
        let notified = std::mem::take(&mut replies.notified);
        if news.schema_changed {
            // No client may learn of the change earlier.
            self.pools.exchange.schema_changed();
        }
        // Later reads must see what this transaction has written, so it is noted before the client
        // is told.
        if let (Some(serial), Some(id)) = (replies.routed_end(), id) {
            replies.note_routed_end(self.sessions.of(id, serial), io.clock());
        }
        let is_read = is_reader && replies.transaction_ended;
        let out = replies.out.finish();
        if (is_read || news.left_recovery)
            && let Some(id) = id
            && let Some(client) = self.clients.get(id)
        {
            let session = self.sessions.of(id, client.serial);
            note_read(
                session,
                self.pools.routing(client.pool.id()),
                news.left_recovery,
                io.clock(),
            );
        }
        // Statement mode forbids transactions. So the client is not told that one has begun.
        let unheard = whole && matches!(stop, replies::Stop::TransactionBlock);
        if let (Some(id), false) = (id, out.is_empty() || unheard) {
            io.send_client(id, out);
        }
        if used < input.len() && matches!(stop, replies::Stop::Incomplete | replies::Stop::Ahead) {
            server.stream.hold_rest(joined, bytes, used);
        }
        if news.concerns_pool() {
            let mut pool = self.pools.known(server.pool);
            news.tell_pool(&mut pool, server, &self.context.names, io);
        }
        match stop {
            replies::Stop::Incomplete => {
                if let (true, Some(id)) = (refused, *self.servers[on].client) {
                    self.pair(id, on).hold_refused(io);
                }
                if !notified.is_empty() {
                    self.listeners.spread(&self.servers[on], &notified, &mut self.pools.exchange);
                }
                self.after_replies(on, io);
            }
            replies::Stop::Ahead => return Passed::UpToRequest,
            replies::Stop::Violation(why) => self.lose_server(on, CloseReason::Text(&why), io),
            replies::Stop::TransactionBlock => {
                self.lose_server(on, CloseReason::TransactionBlock, io);
            }
            replies::Stop::Unheard => self.lose_server(on, CloseReason::Lost, io),
            // The client has already received the server's message.
            replies::Stop::Farewell => self.server_left(on, id, io),
        }
        Passed::All
    }

    /// The server has said its last words to the client, if it has one.
    #[cold]
    #[inline(never)]
    fn server_left(&mut self, on: ServerId, client: Option<ClientId>, io: &mut impl Io<X>) {
        if let Some(id) = client {
            pair::part(&mut self.clients[id], &mut self.servers[on]);
            let why = CloseReason::Lost.text();
            self.disconnect(id, Leaving::Refused(Cause::ServerLost, why), io);
        }
        self.seats().close(on, CloseReason::Lost, io);
    }

    /// All received bytes are handled. Decides what the server does next.
    fn after_replies(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let server = &mut *self.servers[on];
        if matches!(*server.phase, ServerPhase::Finishing) && server.ledger.awaits_message() {
            // The server waits for a message that no client will send. Until then it ignores cancel
            // requests.
            return self.seats().close(on, CloseReason::NotReady, io);
        }
        if !server.ledger.is_at_rest() {
            return self.go_on_answered(on, io);
        }
        if !server.stream.at_boundary() {
            let is_reader = self.pools.is_reader(server.pool);
            let client = server.client.map(|id| &mut self.clients[id]);
            if await_boundary(client, server, is_reader) {
                self.go_on_answered(on, io);
            }
            return;
        }
        match *server.phase {
            ServerPhase::Preparing(_) => self.prepared(on, io),
            // `release` waits until a pending cancel request is over.
            ServerPhase::Finishing => self.release(on, Cleaning::Begins, io),
            ServerPhase::Settling(_) => self.release(on, Cleaning::GoesOn, io),
            ServerPhase::Linked => self.query_done(on, io),
            ServerPhase::Listening => {
                let step = self.pool_listeners().answered(on, io);
                self.follow_listener(step, io);
            }
            ServerPhase::Parked
            | ServerPhase::Connecting(_)
            | ServerPhase::Login(_)
            | ServerPhase::Attending { .. } => {}
        }
    }

    /// The client's next message may have waited for an answer that has now arrived.
    #[cold]
    fn go_on_answered(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let server = &*self.servers[on];
        let Some(id) = *server.client else { return };
        match Awaited::of(&self.clients[id], server) {
            Awaited::Nothing => {}
            Awaited::Permission => {
                let told = self.cancellation().may_signal(id, on, io);
                self.follow_request(told, io);
            }
            Awaited::Count => {
                self.go_on(id, io);
                self.work.push(Work::Requests(id));
            }
            Awaited::Arrived => self.go_on(id, io),
        }
    }

    /// Continues with a server that owes its client nothing more.
    pub(crate) fn query_done(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let server = &mut *self.servers[on];
        let Some(id) = *server.client else { return };
        let Some(view) = self.pools.views.get_mut(server.pool) else { return };
        let answered = Answered {
            on,
            client: &mut self.clients[id],
            server,
            view,
            watch: &mut self.watch,
            transactions: &mut self.transactions,
            names: &self.context.names,
        };
        let was_awaited = match answered.end(io.now()) {
            Done::GoesOn => return self.go_on_answered(on, io),
            Done::Free => return self.unlink(id, on, io),
            Done::Kept { was_awaited } => was_awaited,
            Done::Judged { was_awaited } => {
                self.judge(id, on, io);
                was_awaited
            }
        };
        // A client that keeps its reader sends it the requests that have already arrived.
        if was_awaited
            && let Some(client) = self.clients.get(id)
            && matches!(*client.phase, ClientPhase::Linked)
        {
            self.go_on(id, io);
        }
    }
}

/// Requests that are sent again.
impl<X: Exchange> Engine<X> {
    /// Closes the server, and sends the client's request to another one.
    pub(crate) fn move_request(
        &mut self,
        id: ClientId,
        on: ServerId,
        request: &[u8],
        reason: CloseReason<'_>,
        io: &mut impl Io<X>,
    ) {
        self.pair(id, on).take_request_back(request, io);
        self.seats().close(on, reason, io);
        self.serve(id, io);
    }

    /// Requests a server for the client, which has sent a request, and handles that.
    pub(crate) fn serve(&mut self, id: ClientId, io: &mut impl Io<X>) {
        if self.clients.contains(id) && self.link(id, io) == Readable::Now {
            self.go_on(id, io);
        }
    }

    /// The server has prepared a refused or doubtful statement again. The client is readable if its
    /// batch is handled once more, or if it may go on with other messages.
    pub(crate) fn renewed(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) -> Readable {
        let end = match self.pair(id, on).renewed(io) {
            Renewed::Nothing => return Readable::NotYet,
            Renewed::Again { prepares: true } => return self.prepare(id, on, io),
            Renewed::Again { prepares: false } => return self.ready(id, on, io),
            Renewed::Refused(end) => end,
        };
        let _ = self.ready(id, on, io);
        // The client may keep its server, and continues there.
        io.resume_client(id);
        match end {
            BatchEnd::Synced => {
                self.query_done(on, io);
                Readable::NotYet
            }
            // The held rest of the batch is discarded up to its Sync.
            BatchEnd::Open => {
                self.servers[on].ledger.skip_to_sync();
                Readable::Now
            }
        }
    }
}
