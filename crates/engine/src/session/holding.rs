//! Holds: a client that has drawn a number from a sequence keeps its server for a few transactions.
//! One of these may ask for that number (`pool_mode = auto`). `sequences.rs` decides which texts
//! begin a hold.
//!
//! ```text
//!  a watched text ─► held ─┬─ currval, lastval ─► pinned as `sequence`
//!                          ├─ another watched text ─► held, a few times
//!                          ├─ a few other transactions, or the client goes ─► over
//!                          └─ others wait for the server, and the client is idle ─► over
//! ```

use crate::admission::one_pool::OnePool;
use crate::admission::view::PoolView;
use crate::client::{Client, ClientPhase};
use crate::context::Context;
use crate::ids::{Micros, over};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::pair;
use crate::server::Server;
use crate::session::pins::{Pinned, Pins};
use crate::shell::Exchange;

/// The server is lost, or its node is no longer the primary. Takes it from a client at rest that
/// keeps it only because it may ask for a drawn number. The client loses that number and nothing
/// else, so it is not told. Returns false if it keeps the server.
pub(crate) fn release_lost(client: &mut Client, server: &mut Server) -> bool {
    if !server.is_only_held(client) {
        return false;
    }
    // The client has not been asked whether it wants the number, so nothing is learnt.
    server.take_hold();
    pair::release(client, server);
    client.resent.end();
    client.phase.unlink();
    server.phase.finish();
    true
}

/// Called when the client's transaction is over.
#[inline]
pub(crate) fn review_hold(server: &mut Server, view: &mut PoolView, now: Micros) {
    if !server.is_held() {
        return;
    }
    if server.has_asked_unseen() {
        return end_hold_asked(server, view, now);
    }
    if server.doomed.is_some_and(|reason| !matches!(reason, CloseReason::SettingsUnknown)) {
        server.take_hold();
        return;
    }
    let session = server.session.own();
    if !session.drawn.end_transaction() {
        return end_hold(server, view);
    }
    match &mut session.pinned {
        Some(pinned) => pinned.pins |= Pins::DRAWN,
        None => {
            let pins = Pins::DRAWN;
            session.pinned = Some(Box::new(Pinned { pins, since: now, fingerprint: 0 }));
        }
    }
}

/// A function asked for the number, and the client's text did not show it.
fn end_hold_asked(server: &mut Server, view: &mut PoolView, now: Micros) {
    let drawn = server.take_hold();
    view.history.sequences.note_question(&drawn, server.session.last_draw, now);
}

/// Ends the hold: the client has not asked for its number.
#[inline]
pub(crate) fn end_hold(server: &mut Server, view: &mut PoolView) {
    if !server.is_held() {
        return;
    }
    let drawn = server.take_hold();
    view.history.sequences.note_silence(&drawn);
}

impl<X: Exchange> OnePool<'_, X> {
    /// Ends the hold of an idle client's server, if other clients wait for the server or it is to be
    /// closed. Returns whether the client keeps the server for nothing else.
    pub(crate) fn end_long_hold(&mut self, server: &mut Server, context: &Context) -> bool {
        let epoch = server.epoch;
        let is_leaving = server.doomed.is_some() || context.drain.is_some();
        if !is_leaving && !self.lock(|pool| pool.misses_server(epoch)) {
            return false;
        }
        end_hold(server, self.view);
        // If the client also listens, its channels move to the listener first.
        server.session.pinned.is_none()
    }
}

impl Server {
    /// Has its client kept it pinned, and unused, for longer than `pin_timeout`?
    pub(crate) fn is_kept_for_long(&self, client: &Client, limit: Micros, now: Micros) -> bool {
        let is_idle = !client.times.in_transaction() && self.is_clean();
        let is_pinned = self.session.pinned.as_ref().is_some_and(|one| one.pins != Pins::DRAWN);
        is_pinned && is_idle && over(limit, client.times.request_at(), now)
    }

    /// Is its client at rest, and does it keep the server only because it may ask for a drawn
    /// number?
    pub(crate) fn is_only_held(&self, client: &Client) -> bool {
        matches!(*client.phase, ClientPhase::Linked)
            && self.pins() == Pins::DRAWN
            && is_idle(client, self)
    }
}

pub(crate) fn is_idle(client: &Client, server: &Server) -> bool {
    !client.times.in_transaction()
        && client.stream.at_boundary()
        && server.is_clean()
        && server.session.traces.is_empty()
}
