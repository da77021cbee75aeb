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

use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::preparation::Readable;
use std::sync::Arc;

use wire::backend;
use wire::error_fields::ErrorFields;
use wire::messages::NotificationResponse;

use crate::admission::pool::Gate;
use crate::client::{Client, ClientPhase};
use crate::engine::Engine;
use crate::ids::{ClientId, Micros, PoolId, ServerId, Waiter, WorkerId};
use crate::notify::interruption::Interruption;
use crate::notify::listener::{Subscriber, Subscription, token};
use crate::notify::listening::{Listening, News, UNTOLD_LEN_MAX};
use crate::server::{Preparation, Server, ServerPhase};
use crate::session::carried::{Carried, quote_identifier};
use crate::session::pins::Pins;
use crate::session::probe::Left;
use crate::shell::{Exchange, Io, Mail};
use crate::vars::{CLIENT_ENCODING, quote_literal};

const GAP: &str = "notifications may have been lost: Weir's listening connection was interrupted";
const DEAF: &str = "notifications do not arrive: Weir has no listening connection";
const UNREAD: &str = "too many unread notifications";

/// The pause after a failed hand-over, unless the client sends something.
const RETRY: Micros = 60_000_000;

impl<X: Exchange> Engine<X> {
    /// Updates the channels that the client's server listens to. Returns true if some of them must
    /// stay on the server: the listener does not have them yet, or cannot listen for this client.
    pub(crate) fn hears_on(&mut self, id: ClientId, there: &Carried) -> bool {
        let moves = self.follow_channels(id);
        moves || there.without(&self.clients[id].vars.channels).next().is_some()
    }

    /// Takes the channels over, and nothing else of the session.
    pub(crate) fn take_channels(&mut self, id: ClientId, on: ServerId, left: &Left) {
        let Some(there) = &left.channels else { return };
        let channels = portable_channels(&self.clients[id], &self.servers[on], there, left.pins);
        let (client, server) = (&mut self.clients[id], &mut self.servers[on]);
        for vars in [&mut client.vars, &mut server.vars] {
            vars.change(|vars| vars.channels = channels.clone());
        }
        self.hears_on(id, there);
    }

    /// Updates the client's channels from its settings, and tells the listener which ones have
    /// ended. Returns true if the listener does not have some of them yet.
    fn follow_channels(&mut self, id: ClientId) -> bool {
        let client = &mut self.clients[id];
        let (Some(pool), wanted) = (client.pool, client.vars.channels.clone()) else {
            return false;
        };
        let Some(session) = &mut client.session else { return false };
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
            let mail = Mail::Unlisten { pool, who: self.subscriber(id), channels: gone };
            self.post_listener(pool, mail);
        }
        if lacks {
            // The request that was replaced would also have restored the live channels.
            self.ask_listener(id);
        }
        stays
    }

    /// Moves the channels of a client that keeps its server only because it listens. The listener
    /// is asked first, and then takes over. Returns true if the take-over has begun.
    pub(crate) fn pass_channels(
        &mut self,
        id: ClientId,
        on: ServerId,
        io: &mut impl Io<X>,
    ) -> bool {
        let who = self.subscriber(id);
        let client = &mut self.clients[id];
        let server = &self.servers[on];
        let listens =
            server.session.pinned.as_ref().is_some_and(|pinned| pinned.pins == Pins::LISTEN);
        let Some(own) = listening(client) else { return false };
        if !listens || own.moving.is_empty() {
            return false;
        }
        let Some(mark) = own.mark.clone() else {
            if own.request == 0 {
                self.ask_listener(id);
            }
            return false;
        };
        if !is_between(client, server) {
            return false;
        }
        let Some(own) = listening(client) else { return false };
        let (mut begin, token) = (b"LISTEN ".to_vec(), token(who, own.request));
        own.token = Some(token.as_bytes().into());
        quote_identifier(&mark, &mut begin);
        begin.extend_from_slice(b";NOTIFY ");
        quote_identifier(&mark, &mut begin);
        begin.push(b',');
        quote_literal(token.as_bytes(), &mut begin);
        client.phase.hold_back(Waiter::served(id, server.pool, io.now()));
        self.servers[on].phase.ask(Preparation::HandOver);
        // Both are sent together, so a notification in between comes before the mark or is dropped.
        let texts = [&begin[..], b"UNLISTEN *"];
        self.servers[on].send_own_queries(on, texts.into_iter(), &mut self.context, io);
        true
    }

    /// Begins the take-over of a client that has just left its lobby. The listener may have had its
    /// channels before its server was prepared.
    pub(crate) fn pass_channels_behind(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let has_it = client.server == Some(on);
        if has_it && listening(client).is_some_and(|own| own.retry_at <= io.now()) {
            self.pass_channels(id, on, io);
        }
    }

    /// Begins the take-overs that had to wait, for a cancel request for instance, and repeats
    /// failed ones. In a paused pool, nothing takes over, and PAUSE waits until each server is free:
    /// such a client loses its server.
    pub(crate) fn pass_channels_on(&mut self, io: &mut impl Io<X>) {
        let now = io.now();
        let listens = |server: &Server| {
            matches!(*server.phase, ServerPhase::Linked)
                && server.session.pinned.as_ref().is_some_and(|pinned| pinned.pins == Pins::LISTEN)
        };
        let kept = self.servers.iter().filter(|(_, server)| listens(server));
        let kept: Vec<_> = kept.filter_map(|(on, server)| Some((server.client?, on))).collect();
        for (id, on) in kept {
            let own = listening(&mut self.clients[id]);
            let due = own.is_some_and(|own| own.retry_at <= now);
            if !due || !self.pass_channels(id, on, io) {
                self.free_paused(id, on, io);
            }
        }
    }

    /// Takes the server of a client if its pool is paused. The next listener hears for it.
    fn free_paused(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) {
        let (client, server) = (&self.clients[id], &*self.servers[on]);
        let is_free = is_between(client, server) && passes_channels(client);
        if is_free && self.pools.exchange.pool(server.pool, |pool| pool.gate() == Gate::Paused) {
            self.keep_client(id, on, CloseReason::Paused, io);
        }
    }

    /// Continues after the server has sent the mark. The client may keep its server if that failed.
    pub(crate) fn handed_over(
        &mut self,
        id: ClientId,
        on: ServerId,
        io: &mut impl Io<X>,
    ) -> Readable {
        let failed = self.servers[on].own_error.take().is_some();
        let Some(own) = listening(&mut self.clients[id]) else { return Readable::Now };
        own.token = None;
        own.mark = None;
        own.request = 0;
        if !std::mem::take(&mut own.marked) {
            own.retry_at = io.now() + RETRY;
            // The server may listen or not, so LISTEN is repeated there. The next transaction is
            // followed by another attempt.
            self.servers[on].vars.change(|vars| vars.channels = Carried::default());
            self.tell(id, News::Gap, io);
            return match self.clients.contains(id) {
                true => self.prepare(id, on, io),
                false => Readable::NotYet,
            };
        }
        own.live = own.live.with(std::mem::take(&mut own.moving).all().iter());
        if own.unheard {
            self.ask_listener(id);
        }
        let server = &mut self.servers[on];
        server.session.own().pinned = None;
        server.vars.change(|vars| vars.channels = Carried::default());
        if failed {
            server.doomed = Some(CloseReason::UnlistenRefused);
        }
        self.unlink(id, on, io);
        Readable::NotYet
    }

    /// Continues when the listener listens to the client's channels.
    pub(crate) fn listening_begun(
        &mut self,
        (id, serial): (ClientId, u64),
        request: u64,
        mark: Arc<[u8]>,
        again: Option<Interruption>,
        io: &mut impl Io<X>,
    ) {
        let Some(own) = self.listening_of(id, serial) else { return };
        if own.request != request || request == 0 {
            return;
        }
        let has_missed = again.is_some_and(|how| own.find_listener() || how.has_missed);
        match own.moving.is_empty() {
            true => own.request = 0,
            false => own.mark = Some(mark),
        }
        if has_missed {
            self.tell(id, News::Gap, io);
        }
        if let Some(on) = self.clients.get(id).and_then(|client| client.server) {
            self.pass_channels(id, on, io);
        }
    }

    /// Forwards a notification of the listener to these clients.
    pub(crate) fn notified(
        &mut self,
        to: &[(ClientId, u64)],
        body: &Arc<[u8]>,
        io: &mut impl Io<X>,
    ) {
        for &(id, serial) in to {
            if self.listening_of(id, serial).is_some_and(|own| own.hear_listener(body)) {
                self.tell(id, News::Notification(body.clone()), io);
            }
        }
    }

    /// Deals with the loss of a pool's listener: the clients that listened ask again.
    pub(crate) fn unheard(&mut self, pool: PoolId, how: Interruption) {
        let listens = |client: &Client| {
            let session = client.session.as_ref();
            let own = session.and_then(|session| session.listening.as_ref());
            own.is_some_and(|own| own.pool == pool && own.is_known())
        };
        for id in self.clients.ids_where(listens) {
            let Some(own) = listening(&mut self.clients[id]) else { continue };
            own.lose_listener(how);
            // A hand-over under way has lost its listener; the client asks when it has ended.
            if !own.hands_over() {
                self.ask_listener(id);
            }
        }
    }

    /// Warns these clients that the lost listener cannot be replaced soon.
    pub(crate) fn deaf(&mut self, to: &[(ClientId, u64)], io: &mut impl Io<X>) {
        for &(id, serial) in to {
            if let Some(own) = self.listening_of(id, serial)
                && own.unheard
                && !std::mem::replace(&mut own.is_warned, true)
            {
                self.tell(id, News::Deaf, io);
            }
        }
    }

    /// Moves the client's channels to the listener of another pool.
    pub(crate) fn move_listening(&mut self, id: ClientId, pool: PoolId) {
        let who = self.subscriber(id);
        let Some(own) = listening(&mut self.clients[id]) else { return };
        let old = std::mem::replace(&mut own.pool, pool);
        if own.is_known() {
            let channels = own.names();
            own.lose_listener(Interruption { has_missed: true });
            self.post_listener(old, Mail::Unlisten { pool: old, who, channels });
            self.ask_listener(id);
        }
    }

    /// Asks the listener again for a client that was taken over from another process.
    pub(crate) fn listen_again(&mut self, id: ClientId, io: &mut impl Io<X>) {
        let client = &self.clients[id];
        let (Some(pool), channels) = (client.pool, client.vars.channels.clone()) else { return };
        if channels.is_empty() {
            return;
        }
        let client = &mut self.clients[id];
        let pinned = client.server.and_then(|on| self.servers[on].session.pinned.as_deref());
        let keeps = pinned.is_some_and(|pinned| pinned.pins.contains(Pins::LISTEN));
        let own = &mut client.session_mut().listening;
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
        self.ask_listener(id);
        self.tell_untold(id, io);
    }

    /// The client's server is lost, and with it the notifications that were to come from there. The
    /// client is told of the gap when the listener has all of its channels.
    pub(crate) fn recover_channels(&mut self, id: ClientId) {
        let Some(own) = listening(&mut self.clients[id]) else { return };
        (own.token, own.marked) = (None, false);
        if own.moving.is_empty() {
            return;
        }
        own.live = own.live.with(std::mem::take(&mut own.moving).all().iter());
        (own.unheard, own.has_missed) = (true, true);
        self.ask_listener(id);
    }

    /// Tells the listener that the client has left, or belongs to another process now.
    pub(crate) fn end_listening(&mut self, id: ClientId, client: &Client) {
        let session = client.session.as_ref();
        if let Some(own) = session.and_then(|session| session.listening.as_ref())
            && own.is_known()
        {
            let who = Subscriber { worker: self.context.worker, client: id, serial: client.serial };
            let (pool, channels) = (own.pool, own.names());
            self.post_listener(pool, Mail::Unlisten { pool, who, channels });
        }
    }

    /// Sends a message to the client now, or when that is allowed.
    fn tell(&mut self, id: ClientId, news: News, io: &mut impl Io<X>) {
        let Some(own) = listening(&mut self.clients[id]) else { return };
        if own.keep(news) {
            self.tell_untold(id, io);
        } else {
            self.disconnect(id, UNREAD, io);
        }
    }

    /// Sends the kept messages to the client, if that is allowed now.
    pub(crate) fn tell_untold(&mut self, id: ClientId, io: &mut impl Io<X>) {
        let client = &self.clients[id];
        if !may_be_told(client, client.server.map(|on| &*self.servers[on])) {
            return;
        }
        let Some(own) = listening(&mut self.clients[id]) else { return };
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
            return;
        }
        io.send_client(id, &out);
        if io.client_unsent(id) > UNTOLD_LEN_MAX {
            self.disconnect(id, UNREAD, io);
        }
    }

    fn listening_of(&mut self, id: ClientId, serial: u64) -> Option<&mut Listening> {
        let client = self.clients.get_mut(id).filter(|one| one.serial == serial)?;
        listening(client)
    }

    fn subscriber(&self, id: ClientId) -> Subscriber {
        Subscriber { worker: self.context.worker, client: id, serial: self.clients[id].serial }
    }

    /// Asks the listener for all channels that the client lacks.
    fn ask_listener(&mut self, id: ClientId) {
        let who = self.subscriber(id);
        let request = self.context.next_serial();
        let Some(own) = listening(&mut self.clients[id]) else { return };
        let names =
            |channels: &Carried| channels.all().iter().map(|one| one.name.clone()).collect();
        own.request = request;
        own.mark = None;
        let at_once = if own.unheard { names(&own.live) } else { Vec::new() };
        let from_mark = names(&own.moving);
        let subscription = Subscription { who, request, at_once, from_mark, is_warned: false };
        let pool = own.pool;
        self.post_listener(pool, Mail::Listen { pool, subscription });
    }

    /// The listener of a pool always belongs to the same worker.
    fn post_listener(&mut self, pool: PoolId, mail: Mail<X::Transport>) {
        let owner = pool.0 % u32::from(self.pools.exchange.worker_count());
        self.pools.exchange.post(WorkerId(owner as u16), mail);
    }
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
        client.transaction_at == 0
            && server.status == b'I'
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
        && client.transaction_at == 0
        && client.stream.at_boundary()
        && server.is_clean()
        && server.session.traces.is_empty()
        && server.doomed.is_none()
        && server.cancel.is_none()
}

/// Can the pool's listener have the channels to which the client's server still listens?
pub(crate) fn passes_channels(client: &Client) -> bool {
    let own = client.session.as_ref().and_then(|session| session.listening.as_ref());
    own.is_some_and(|own| !own.moving.is_empty())
}

fn listening(client: &mut Client) -> Option<&mut Listening> {
    client.session.as_mut()?.listening.as_deref_mut()
}
