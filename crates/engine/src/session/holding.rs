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

use crate::admission::view::PoolView;
use crate::client::{Client, ClientPhase};
use crate::engine::Engine;
use crate::ids::{Micros, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::pair;
use crate::server::Server;
use crate::session::pins::{Pinned, Pins};
use crate::shell::{Exchange, Io};

impl<X: Exchange> Engine<X> {
    /// Ends holds of idle clients whose servers other clients wait for.
    pub(crate) fn end_long_holds(&mut self, io: &mut impl Io<X>) {
        let clients = self.clients.iter();
        let held =
            clients.filter_map(|(id, client)| Some((id, self.held_too_long(client, io.now())?)));
        for (id, on) in held.collect::<Vec<_>>() {
            let server = &self.servers[on];
            let (pool, epoch) = (server.pool, server.epoch);
            let is_leaving = server.doomed.is_some() || self.context.drain.is_some();
            if is_leaving || self.pools.exchange.pool(pool, |pool| pool.misses_server(epoch)) {
                let server = &mut self.servers[on];
                if let Some(view) = self.pools.views.get_mut(pool) {
                    end_hold(server, view);
                }
                // If the client also listens, its channels move to the listener first.
                if server.session.pinned.is_none() {
                    self.unlink(id, on, io);
                }
            }
        }
    }

    /// Returns the server that the client has kept longer than others may wait, without using it.
    /// Only a server that it keeps for no other reason, or while its channels move to the listener.
    fn held_too_long(&self, client: &Client, now: Micros) -> Option<ServerId> {
        let on = client.server.filter(|_| matches!(*client.phase, ClientPhase::Linked))?;
        let server = self.servers.get(on)?;
        let only_held = server.pins().without(Pins::LISTEN) == Pins::DRAWN;
        if !only_held || !is_idle(client, server) {
            return None;
        }
        let patience =
            self.pools.views.get(server.pool)?.history.sequences.patience(&server.session.drawn);
        (now.saturating_sub(client.request_at) > patience).then_some(on)
    }

    /// The server is lost, or its node is no longer the primary. Takes it from a client at rest that
    /// keeps it only because it may ask for a drawn number. The client loses that number and nothing
    /// else, so it is not told.
    pub(crate) fn release_lost(&mut self, on: ServerId) {
        let server = &self.servers[on];
        let Some(id) = server.client else { return };
        if !server.is_only_held(&self.clients[id]) {
            return;
        }
        // The client has not been asked whether it wants the number, so nothing is learnt.
        self.servers[on].take_hold();
        let (client, server) = (&mut self.clients[id], &mut self.servers[on]);
        pair::take_back(client, server);
        client.resent = false;
        client.phase.unlink();
        server.phase.finish();
        if !self.pools.changed_user.is_empty() {
            self.follow_rename(id);
        }
    }
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

impl Server {
    /// Is its client at rest, and does it keep the server only because it may ask for a drawn
    /// number?
    pub(crate) fn is_only_held(&self, client: &Client) -> bool {
        matches!(*client.phase, ClientPhase::Linked)
            && self.pins() == Pins::DRAWN
            && is_idle(client, self)
    }
}

fn is_idle(client: &Client, server: &Server) -> bool {
    client.transaction_at == 0
        && client.stream.at_boundary()
        && server.is_clean()
        && server.session.traces.is_empty()
}
