//! A client that listens (`pool_mode = auto`). Its channels move from its server to the pool's
//! listener, whose notifications are sent to the client. `listening.rs` has the data.
//!
//! ```text
//!  probe: the server listens ─► the client keeps it, the listener is asked (Mail::Listen)
//!  the listener has them (Mail::Listening), the client is idle ─► HandOver: mark, UNLISTEN
//!     ─► the server is free
//!  Mail::Notified ─┬─ outside of a transaction ─► told
//!                  └─ within ─► kept ─► told when it is over
//!  the listener is lost (Mail::Unheard) ─► asked again ─► the client is told that it may have
//!     missed something
//!  there is no other (Mail::Deaf) ─► the client is told that it hears nothing
//! ```
//!
//! Without a listener (no seat for it, its login fails) the client keeps its server, which is
//! always correct.

use std::sync::Arc;

use wire::backend;
use wire::error_fields::ErrorFields;
use wire::messages::NotificationResponse;

use crate::admission::pool::Gate;
use crate::client::{Client, ClientPhase};
use crate::context::Context;
use crate::ids::{ClientId, Micros, PoolId, ServerId, Waiter, WorkerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::notify::interruption::Interruption;
use crate::notify::listener::{Subscriber, Subscription, token};
use crate::notify::listening::{Listening, News, UNTOLD_LEN_MAX};
use crate::server::{Preparation, Server, ServerPhase};
use crate::session::carried::{Carried, quote_identifier};
use crate::session::left::Left;
use crate::session::pins::Pins;
use crate::shell::{Exchange, Io, Mail};
use crate::vars::{CLIENT_ENCODING, quote_literal};

const GAP: &str = "notifications may have been lost: Weir's listening connection was interrupted";
const DEAF: &str = "notifications do not arrive: Weir has no listening connection";

/// The pause after a failed hand-over, unless the client sends something.
const RETRY: Micros = 60_000_000;

/// One client's channels, and what is needed to move them.
#[derive(Debug)]
pub(crate) struct Channels<'a, X> {
    pub(crate) id: ClientId,
    pub(crate) client: &'a mut Client,
    /// The client's server, if it has one.
    pub(crate) server: Option<(ServerId, &'a mut Server)>,
    pub(crate) context: &'a mut Context,
    pub(crate) exchange: &'a mut X,
}

/// The client does not read its notifications, and must be disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unread;

impl Unread {
    /// The reason for the client and the log.
    pub(crate) const WHY: &str = "too many unread notifications";
}

/// The result of an attempt to move the channels of a client that keeps its server for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passing {
    /// The listener takes over.
    Begun,
    /// The client keeps its server.
    Waits,
    /// The client loses its server, since its pool is paused. The next listener hears for it.
    Paused,
}

/// The end of a take-over, for which the server was told to send the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handed {
    /// The client goes on with its server.
    Nothing,
    /// The server did not send the mark, and its settings are to be made again.
    Again,
    /// The listener has taken over. The client needs its server no more.
    Over,
}

impl<X: Exchange> Channels<'_, X> {
    /// Updates the channels that the client's server listens to. Returns true if some of them must
    /// stay on the server: the listener does not have them yet, or cannot listen for this client.
    pub(crate) fn hears_on(&mut self, there: &Carried) -> bool {
        let moves = self.follow();
        moves || there.without(&self.client.vars.channels).next().is_some()
    }

    /// Takes the channels over, and nothing else of the session.
    pub(crate) fn take(&mut self, left: &Left) {
        let (Some(there), Some((_, server))) = (&left.channels, &mut self.server) else { return };
        let channels = portable_channels(self.client, server, there, left.pins);
        for vars in [&mut self.client.vars, &mut server.vars] {
            vars.change(|vars| vars.channels = channels.clone());
        }
        self.hears_on(there);
    }

    /// Updates the client's channels from its settings, and tells the listener which ones have
    /// ended. Returns true if the listener does not have some of them yet.
    fn follow(&mut self) -> bool {
        let who = self.subscriber();
        let (Some(pool), wanted) = (self.client.pool.id(), self.client.vars.channels.clone())
        else {
            return false;
        };
        let Some(session) = &mut self.client.session else { return false };
        if wanted.is_empty() && session.listening.is_none() {
            return false;
        }
        let own = session.listening.get_or_insert_with(|| Box::new(Listening::new(pool)));
        let known = own.live.without(&wanted).chain(own.moving.without(&wanted));
        let gone: Vec<_> = known.map(|one| one.name.clone()).collect();
        own.give_up_all_but(&wanted);
        let moving = Carried::new(wanted.without(&own.live).cloned().collect());
        let is_void = own.moving != moving;
        if is_void {
            own.moving = moving;
            own.request = 0;
            own.mark = None;
        }
        let (pool, stays, lacks) = (own.pool, !own.moving.is_empty(), is_void && own.unheard);
        if !gone.is_empty() {
            post_listener(pool, Mail::Unlisten { pool, who, channels: gone }, self.exchange);
        }
        if lacks {
            // The request that was replaced would also have restored the live channels.
            self.ask();
        }
        stays
    }

    /// Moves the channels of a client that keeps its server only because it listens. The listener
    /// is asked first, and then takes over. Returns true if the take-over has begun.
    pub(crate) fn pass(&mut self, io: &mut impl Io<X>) -> bool {
        let who = self.subscriber();
        let Some((on, server)) = &mut self.server else { return false };
        let listens = is_kept_to_listen(server);
        let Some(own) = listening(self.client) else { return false };
        if !listens || own.moving.is_empty() {
            return false;
        }
        let Some(mark) = own.mark.clone() else {
            if own.request == 0 {
                self.ask();
            }
            return false;
        };
        if !is_between(self.client, server) {
            return false;
        }
        let Some(own) = listening(self.client) else { return false };
        let (mut begin, token) = (b"LISTEN ".to_vec(), token(who, own.request));
        own.token = Some(token.as_bytes().into());
        quote_identifier(&mark, &mut begin);
        begin.extend_from_slice(b";NOTIFY ");
        quote_identifier(&mark, &mut begin);
        begin.push(b',');
        quote_literal(token.as_bytes(), &mut begin);
        self.client.phase.hold_back(Waiter::served(self.id, server.pool, io.now()));
        server.phase.ask(Preparation::HandOver);
        // Both are sent together, so a notification in between comes before the mark or is dropped.
        let texts = [&begin[..], b"UNLISTEN *"];
        server.send_own_queries(*on, texts.into_iter(), self.context, io);
        true
    }

    /// Does the same, unless an attempt has failed a short time ago. The listener may have had the
    /// channels of a client from a lobby before its server was prepared.
    pub(crate) fn pass_if_due(&mut self, io: &mut impl Io<X>) -> bool {
        listening(self.client).is_some_and(|own| own.retry_at <= io.now()) && self.pass(io)
    }

    /// Begins a take-over that had to wait, for a cancel request for instance, or repeats one that
    /// has failed. In a paused pool, nothing takes over, and PAUSE waits until each server is free.
    pub(crate) fn pass_late(&mut self, io: &mut impl Io<X>) -> Passing {
        if self.pass_if_due(io) {
            return Passing::Begun;
        }
        let Some((_, server)) = &self.server else { return Passing::Waits };
        let is_free = is_between(self.client, server) && passes_channels(self.client);
        match is_free && self.exchange.pool(server.pool, |pool| pool.gate() == Gate::Paused) {
            true => Passing::Paused,
            false => Passing::Waits,
        }
    }

    /// Goes on after the client's transaction: sends the kept messages, and moves the channels.
    /// Returns true if the take-over has begun.
    pub(crate) fn go_on(&mut self, io: &mut impl Io<X>) -> Result<bool, Unread> {
        self.tell_untold(io)?;
        Ok(self.pass(io))
    }

    /// Continues after the server has sent the mark. The client may keep its server if that failed.
    pub(crate) fn handed_over(&mut self, io: &mut impl Io<X>) -> Result<Handed, Unread> {
        let Some((_, server)) = &mut self.server else { return Ok(Handed::Nothing) };
        let failed = server.own_error.take().is_some();
        let Some(own) = listening(self.client) else { return Ok(Handed::Nothing) };
        own.token = None;
        own.mark = None;
        own.request = 0;
        let is_marked = std::mem::take(&mut own.marked);
        // Without the mark, the server may listen or not.
        server.vars.change(|vars| vars.channels = Carried::default());
        if !is_marked {
            // LISTEN is repeated there. The next transaction is followed by another attempt.
            own.retry_at = io.now() + RETRY;
            self.tell(News::Gap, io)?;
            return Ok(Handed::Again);
        }
        server.session.own().pinned = None;
        if failed {
            server.doomed.condemn(CloseReason::UnlistenRefused);
        }
        own.live = own.live.with(std::mem::take(&mut own.moving).all().iter());
        if own.unheard {
            self.ask();
        }
        Ok(Handed::Over)
    }

    /// Continues when the listener listens to the client's channels.
    pub(crate) fn begun(
        &mut self,
        request: u64,
        mark: &Arc<[u8]>,
        again: Option<Interruption>,
        io: &mut impl Io<X>,
    ) -> Result<(), Unread> {
        let Some(own) = listening(self.client) else { return Ok(()) };
        if own.request != request || request == 0 {
            return Ok(());
        }
        let has_missed = again.is_some_and(|how| own.find_listener() || how.has_missed);
        match own.moving.is_empty() {
            true => own.request = 0,
            false => own.mark = Some(mark.clone()),
        }
        if has_missed {
            self.tell(News::Gap, io)?;
        }
        self.pass(io);
        Ok(())
    }

    /// Forwards a notification of the listener.
    pub(crate) fn notified(&mut self, body: &Arc<[u8]>, io: &mut impl Io<X>) -> Result<(), Unread> {
        match listening(self.client).is_some_and(|own| own.hear_listener(body)) {
            true => self.tell(News::Notification(body.clone()), io),
            false => Ok(()),
        }
    }

    /// Deals with the loss of the listener: asks again.
    pub(crate) fn unheard(&mut self, how: Interruption) {
        let Some(own) = listening(self.client) else { return };
        own.lose_listener(how);
        // A hand-over under way has lost its listener; the client asks when it has ended.
        if !own.hands_over() {
            self.ask();
        }
    }

    /// Warns the client that the lost listener cannot be replaced soon.
    pub(crate) fn deaf(&mut self, io: &mut impl Io<X>) -> Result<(), Unread> {
        if let Some(own) = listening(self.client)
            && own.unheard
            && !std::mem::replace(&mut own.is_warned, true)
        {
            return self.tell(News::Deaf, io);
        }
        Ok(())
    }

    /// Moves the channels to the listener of another pool.
    pub(crate) fn move_to(&mut self, pool: PoolId) {
        let who = self.subscriber();
        let Some(own) = listening(self.client) else { return };
        let old = std::mem::replace(&mut own.pool, pool);
        if own.is_known() {
            let channels = own.names();
            own.lose_listener(Interruption { has_missed: true });
            post_listener(old, Mail::Unlisten { pool: old, who, channels }, self.exchange);
            self.ask();
        }
    }

    /// Asks the listener again for a client that was taken over from another process.
    pub(crate) fn listen_again(&mut self, io: &mut impl Io<X>) -> Result<(), Unread> {
        let (Some(pool), channels) = (self.client.pool.id(), self.client.vars.channels.clone())
        else {
            return Ok(());
        };
        if channels.is_empty() {
            return Ok(());
        }
        let server = self.server.as_ref();
        let pinned = server.and_then(|(_, server)| server.session.pinned.as_deref());
        let keeps = pinned.is_some_and(|pinned| pinned.pins.contains(Pins::LISTEN));
        let own = &mut self.client.session_mut().listening;
        let own = own.get_or_insert_with(|| Box::new(Listening::new(pool)));
        // A server that the client keeps for its channels reports all of them. Otherwise the client
        // is told of the gap when there is a listener.
        match keeps {
            true => own.moving = channels,
            false => {
                own.take_untold();
                (own.live, own.unheard, own.has_missed) = (channels, true, true);
            }
        }
        self.ask();
        self.tell_untold(io)
    }

    /// The client's server is lost, and with it the notifications that were to come from there. The
    /// client is told of the gap when the listener has all of its channels.
    pub(crate) fn recover(&mut self) {
        let Some(own) = listening(self.client) else { return };
        (own.token, own.marked) = (None, false);
        if own.moving.is_empty() {
            return;
        }
        own.live = own.live.with(std::mem::take(&mut own.moving).all().iter());
        (own.unheard, own.has_missed) = (true, true);
        self.ask();
    }

    /// Sends a message to the client now, or when that is allowed.
    fn tell(&mut self, news: News, io: &mut impl Io<X>) -> Result<(), Unread> {
        let Some(own) = listening(self.client) else { return Ok(()) };
        match own.keep(news) {
            true => self.tell_untold(io),
            false => Err(Unread),
        }
    }

    /// Sends the kept messages to the client, if that is allowed now.
    pub(crate) fn tell_untold(&mut self, io: &mut impl Io<X>) -> Result<(), Unread> {
        let server = self.server.as_ref().map(|(_, server)| &**server);
        if !may_be_told(self.client, server) {
            return Ok(());
        }
        let Some(own) = listening(self.client) else { return Ok(()) };
        let mut out = Vec::new();
        for news in own.take_untold() {
            match news {
                News::Notification(body) => {
                    let said = NotificationResponse::decode(&body).ok();
                    // The client may have ended this channel meanwhile.
                    let said = said.filter(|said| own.live.get(said.channel).is_some());
                    if let Some(NotificationResponse { pid, channel, payload }) = said {
                        backend::notification(&mut out, pid, channel, payload);
                    }
                }
                News::Gap => backend::notice(&mut out, &warning(GAP)),
                News::Deaf => backend::notice(&mut out, &warning(DEAF)),
            }
        }
        if out.is_empty() {
            return Ok(());
        }
        io.send_client(self.id, &out);
        match io.client_unsent(self.id) > UNTOLD_LEN_MAX {
            true => Err(Unread),
            false => Ok(()),
        }
    }

    fn subscriber(&self) -> Subscriber {
        let (worker, client, serial) = (self.context.worker, self.id, self.client.serial);
        Subscriber { worker, client, serial }
    }

    /// Asks the listener for all channels that the client lacks.
    fn ask(&mut self) {
        let who = self.subscriber();
        let request = self.context.next_serial();
        let Some(own) = listening(self.client) else { return };
        let names =
            |channels: &Carried| channels.all().iter().map(|one| one.name.clone()).collect();
        own.request = request;
        own.mark = None;
        let at_once = if own.unheard { names(&own.live) } else { Vec::new() };
        let from_mark = names(&own.moving);
        let subscription = Subscription { who, request, at_once, from_mark, is_warned: false };
        let pool = own.pool;
        post_listener(pool, Mail::Listen { pool, subscription }, self.exchange);
    }
}

/// Tells the listener that the client has left, or belongs to another process now.
pub(crate) fn end_listening<X: Exchange>(
    worker: WorkerId,
    id: ClientId,
    client: &Client,
    exchange: &mut X,
) {
    let session = client.session.as_ref();
    if let Some(own) = session.and_then(|session| session.listening.as_ref())
        && own.is_known()
    {
        let who = Subscriber { worker, client: id, serial: client.serial };
        let (pool, channels) = (own.pool, own.names());
        post_listener(pool, Mail::Unlisten { pool, who, channels }, exchange);
    }
}

/// The listener of a pool always belongs to the same worker.
fn post_listener<X: Exchange>(pool: PoolId, mail: Mail<X::Transport>, exchange: &mut X) {
    let owner = pool.0 % u32::from(exchange.worker_count());
    exchange.post(WorkerId(owner as u16), mail);
}

/// Returns the server's channels that can move with the client. `pins`: the reasons why the
/// client keeps its server.
#[inline]
pub(crate) fn portable_channels(
    client: &Client,
    server: &Server,
    there: &Carried,
    pins: Pins,
) -> Carried {
    if !pins.contains(Pins::LISTEN) && hears_like_listener(client, server) {
        return there.clone();
    }
    let own = client.session.as_ref().and_then(|session| session.listening.as_ref());
    own.map_or_else(Carried::default, |own| there.shared_with(&own.live))
}

/// Has the listener the client's encoding? It gets payloads in the encoding of a new server,
/// and they are forwarded unchanged.
fn hears_like_listener(client: &Client, server: &Server) -> bool {
    let of_listener = server.welcome.vars.get(CLIENT_ENCODING).unwrap_or_default();
    let own = client.vars.get(CLIENT_ENCODING).unwrap_or(of_listener);
    own.eq_ignore_ascii_case(of_listener)
}

/// The server has reported that it cannot tell its state. Must it be asked which channels the
/// client has given up?
#[inline]
pub(crate) fn must_ask_for_channels(client: &Client, server: &Server) -> bool {
    let report = server.session.state_report.as_ref();
    let own = client.session.as_ref().and_then(|session| session.listening.as_ref());
    report.is_some_and(|report| !report.is_known()) && own.is_some_and(|own| own.is_known())
}

/// May notifications be sent to the client? As in PostgreSQL, only outside a transaction. Also
/// not while Weir finds out what the last transaction has changed.
#[inline]
fn may_be_told(client: &Client, server: Option<&Server>) -> bool {
    let own = client.session.as_ref().and_then(|session| session.listening.as_ref());
    if client.is_in_lost_request() || own.is_none_or(|own| !own.has_untold() || own.hands_over()) {
        return false;
    }
    server.is_none_or(|server| {
        !client.times.in_transaction()
            && server.status.is_idle()
            && !server.session.traces.are_due()
            && !server.stream.is_mid_message()
    })
}

fn warning(text: &str) -> ErrorFields {
    ErrorFields::new("WARNING", "01000", text)
}

/// Is the client between two transactions, and its server ready for something of Weir's?
fn is_between(client: &Client, server: &Server) -> bool {
    matches!(*client.phase, ClientPhase::Linked)
        && !client.times.in_transaction()
        && client.stream.at_boundary()
        && server.is_clean()
        && server.session.traces.is_empty()
        && server.doomed.is_none()
        && !server.cancel.is_under_way()
}

/// Does a client keep the server only because it listens?
fn is_kept_to_listen(server: &Server) -> bool {
    server.session.pinned.as_ref().is_some_and(|pinned| pinned.pins == Pins::LISTEN)
}

/// Does a client that could go on keep the server only because it listens?
pub(crate) fn waits_to_pass(server: &Server) -> bool {
    matches!(*server.phase, ServerPhase::Linked) && is_kept_to_listen(server)
}

/// Has the client channels at the listener of this pool?
pub(crate) fn listens_to(client: &Client, pool: PoolId) -> bool {
    let session = client.session.as_ref();
    let own = session.and_then(|session| session.listening.as_ref());
    own.is_some_and(|own| own.pool == pool && own.is_known())
}

/// Can the pool's listener have the channels to which the client's server still listens?
pub(crate) fn passes_channels(client: &Client) -> bool {
    let own = client.session.as_ref().and_then(|session| session.listening.as_ref());
    own.is_some_and(|own| !own.moving.is_empty())
}

fn listening(client: &mut Client) -> Option<&mut Listening> {
    client.session.as_mut()?.listening.as_deref_mut()
}
