//! Passes messages between clients and their servers, and does what follows from them. The rules are
//! in `relay`.

use super::Engine;
use super::work::Work;
use crate::admission::one_pool::OnePool;
use crate::client::ClientPhase;
use crate::ids::{ClientId, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::leave::Leaving;
use crate::lifecycle::preparation::Readable;
use crate::operator::remarks::remark;
use crate::relay::batch_end::BatchEnd;
use crate::relay::replies::{
    self, Answered, Awaited, Done, News, Replies, await_boundary, note_read,
};
use crate::relay::requests::{
    Due, Followed, Input, Linked, Preface, Ran, Restoring, Stop, Unused, Violation,
};
use crate::relay::resend::{Renewed, may_resend};
use crate::relay::stream::Splice;
use crate::routing::{Judged, Place};
use crate::server::ServerPhase;
use crate::shell::{Exchange, Io, Weight};

/// Requests.
impl<X: Exchange> Engine<X> {
    pub(crate) fn request_bytes(&mut self, id: ClientId, bytes: &[u8], io: &mut impl Io<X>) {
        let Some(on) = self.clients[id].server else { return };
        let input = Input::take(&mut self.clients[id], bytes);
        let mut preface = None;
        if self.servers[on].session.get().is_some_and(|own| own.ahead.is_some()) {
            let (client, server) = (&self.clients[id], &mut *self.servers[on]);
            match Due::before(&input, id, client, server, &mut self.context, io) {
                Due::Now(due) => preface = due,
                Due::First(sql) => return self.restore_first(id, on, &sql, input, io),
            }
        }
        let Some(ran) = self.run_requests(id, on, &input, preface.as_deref_mut(), io) else {
            return;
        };
        match preface.and_then(|preface| (*preface).restoring()) {
            None => self.follow_stop(id, on, ran, input, io),
            Some(restoring) => self.follow_restoring(id, on, ran, input, restoring, io),
        }
    }

    /// Handles an input and sends the messages to the server, with `preface` before them. None if the
    /// server is lost, so that the requests are sent again to another one.
    #[inline(always)]
    fn run_requests(
        &mut self,
        id: ClientId,
        on: ServerId,
        input: &Input<'_>,
        preface: Option<&mut Preface>,
        io: &mut impl Io<X>,
    ) -> Option<Ran> {
        let client = &mut self.clients[id];
        let server = &mut *self.servers[on];
        let pool = server.pool;
        let view = self.pools.views.get_mut(pool)?;
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
        let ran = linked.pass(input, preface, io);
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
                self.move_request(id, on, &input.all()[from..], CloseReason::Lost, io);
                return None;
            }
        }
        Some(ran)
    }

    #[inline(always)]
    fn follow_stop(
        &mut self,
        id: ClientId,
        on: ServerId,
        ran: Ran,
        input: Input<'_>,
        io: &mut impl Io<X>,
    ) {
        match ran.stop {
            Stop::Incomplete => {
                input.hold_rest(&mut self.clients[id], ran.used);
                self.give_back_unused(id, on, io);
            }
            Stop::Outdated(of) => {
                input.hold_rest(&mut self.clients[id], ran.used);
                self.pair(id, on).confirm_shape(of, io);
            }
            Stop::Signal(call) => {
                input.hold_rest(&mut self.clients[id], ran.used);
                let begun = self.cancellation().begin_signal(id, on, call, io);
                self.follow_request(begun, io);
            }
            Stop::Terminate => self.drop_client(id, Leaving::Goodbye, io),
            Stop::Violation(violation) => self.violated(id, violation, io),
        }
    }

    #[cold]
    fn violated(&mut self, id: ClientId, violation: Violation, io: &mut impl Io<X>) {
        let Violation { why, error } = violation;
        if let Some(message) = error {
            remark(id, &self.clients[id], Weight::Error, &message, io);
        }
        self.disconnect(id, why, io);
    }

    /// Restores the client's settings, and holds the request.
    #[inline(never)]
    fn restore_first(
        &mut self,
        id: ClientId,
        on: ServerId,
        sql: &[u8],
        input: Input<'_>,
        io: &mut impl Io<X>,
    ) {
        let pool = self.servers[on].pool;
        if let Some(view) = self.pools.views.get_mut(pool) {
            view.stats.received += input.bytes.len() as u64;
        }
        input.hold_rest(&mut self.clients[id], 0);
        self.pair(id, on).apply_first(sql, io);
    }

    /// Continues after an input with settings before it.
    #[inline(never)]
    fn follow_restoring(
        &mut self,
        id: ClientId,
        on: ServerId,
        ran: Ran,
        input: Input<'_>,
        restoring: Restoring,
        io: &mut impl Io<X>,
    ) {
        let (client, server) = (&mut self.clients[id], &mut *self.servers[on]);
        match restoring.follow(id, client, server, ran, input, io.now()) {
            Followed::Sent => {}
            Followed::First(sql) => self.pair(id, on).apply_first(&sql, io),
            Followed::Unused => self.give_back_unused(id, on, io),
            Followed::Terminate => self.drop_client(id, Leaving::Goodbye, io),
            Followed::Violation(violation) => self.violated(id, violation, io),
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
                Passed::UpToRequest if self.ahead_answered(on, io) == Readable::Now => {
                    // The replies to the request are held.
                    bytes = &[];
                }
                Passed::UpToRequest => return,
                Passed::UntilJudged => {
                    let server = &mut *self.servers[on];
                    let mode = self.pools.mode_of(server);
                    let client = server.client.and_then(|id| self.clients.get(id));
                    match server.judge_reader(client, mode, bytes) {
                        Judged::Held => return,
                        Judged::Answers { is_held: true } => bytes = &[],
                        Judged::Answers { is_held: false } => {}
                        Judged::Refused(status) => return self.ask_writer(on, status, io),
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
        let id = server.client;
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
            note_read(session, self.pools.routing(client.pool), news.left_recovery, io.clock());
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
            self.take_news(on, news, io);
        }
        match stop {
            replies::Stop::Incomplete => {
                if let (true, Some(id)) = (refused, self.servers[on].client) {
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
            replies::Stop::Farewell => self.server_left(on, io),
        }
        Passed::All
    }

    /// Applies news that concern the pool.
    #[cold]
    fn take_news(&mut self, on: ServerId, news: News, io: &mut impl Io<X>) {
        let server = &mut *self.servers[on];
        let mut pool = self.pools.known(server.pool);
        if news.bad_report {
            pool.view.note_bad_report(io);
        }
        if news.promoted || !news.defaults.is_empty() {
            let names = &self.context.names;
            pool.defaults_changed(server, news.defaults, news.promoted, names);
        }
    }

    /// All received bytes are handled. Decides what the server does next.
    fn after_replies(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let server = &mut *self.servers[on];
        if matches!(*server.phase, ServerPhase::Finishing) && server.ledger.awaits_message() {
            // The server waits for a message that no client will send. Until then it ignores cancel
            // requests.
            return self.close_server(on, CloseReason::NotReady, io);
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
            // `free` waits until a pending cancel request is over.
            ServerPhase::Finishing => self.free(on, io),
            ServerPhase::Settling(_) => {
                if server.is_clean() {
                    self.settled(on, io);
                } else {
                    self.reset_failed(on, CloseReason::GotDirty, io);
                }
            }
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
        let Some(id) = server.client else { return };
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
        let Some(id) = server.client else { return };
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
        match answered.end(io.now()) {
            Done::GoesOn => self.go_on_answered(on, io),
            Done::Kept { was_awaited: false } => {}
            Done::Kept { was_awaited: true } => self.go_on_kept(id, io),
            Done::Judged { was_awaited } => {
                self.judge(id, on, io);
                if was_awaited {
                    self.go_on_kept(id, io);
                }
            }
            Done::Free => self.unlink(id, on, io),
        }
    }

    /// A client that keeps its reader sends it the requests that have already arrived.
    #[cold]
    fn go_on_kept(&mut self, id: ClientId, io: &mut impl Io<X>) {
        let client = self.clients.get(id);
        if client.is_some_and(|client| matches!(*client.phase, ClientPhase::Linked)) {
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
        self.close_server(on, reason, io);
        self.send_again(id, io);
    }

    /// Links a client that has got its request back, and handles the request.
    pub(crate) fn send_again(&mut self, id: ClientId, io: &mut impl Io<X>) {
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
