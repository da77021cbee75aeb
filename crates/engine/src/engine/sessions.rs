//! Carries out what `session` decides after a transaction of auto mode.

use crate::engine::Engine;
use crate::ids::{ClientId, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::preparation::Readable;
use crate::notify::listen::Unread;
use crate::server::Settling;
use crate::session::holding;
use crate::session::verdict::{Decision, FORGET, Judged, Verdict};
use crate::shell::{Exchange, Io};

impl<X: Exchange> Engine<X> {
    fn verdict(&mut self, id: ClientId, on: ServerId) -> Verdict<'_, X> {
        let (client, server) = (&mut self.clients[id], &mut *self.servers[on]);
        let pool = self.pools.one(server.pool);
        let (view, exchange, context) = (pool.view, pool.exchange, &mut self.context);
        Verdict { id, client, on, server, view, context, exchange }
    }

    /// The client's transaction is over, and this or an earlier one has left traces on the server.
    pub(crate) fn judge(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) {
        match self.verdict(id, on).judge(io) {
            Judged::Unchanged => self.unlink(id, on, io),
            Judged::Kept => {
                if let Err(Unread) = self.channels(id).go_on(io) {
                    self.disconnect(id, Unread::WHY, io);
                }
            }
            Judged::Asked => {}
            Judged::Told => self.probed(on, io),
        }
    }

    /// The probe is answered, or a report has made it unnecessary.
    pub(crate) fn probed(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let Some(id) = self.servers[on].client else { return };
        let mut verdict = self.verdict(id, on);
        let left = verdict.take_left();
        if let Some(left) = &left {
            let defaults = verdict.explain_changes(left, io);
            if !defaults.is_empty() {
                self.defaults_changed(on, defaults, false);
            }
        }
        let readable = match self.verdict(id, on).decide(left, io) {
            Decision::Released => return self.unlink(id, on, io),
            Decision::Pinned { is_known: true } => self.prepare(id, on, io),
            // The client's last texts may have changed the values that Weir knows.
            Decision::Pinned { is_known: false } => self.ready(id, on, io),
        };
        if readable == Readable::Now {
            match self.channels(id).go_on(io) {
                Ok(true) => {}
                Ok(false) => self.go_on(id, io),
                Err(Unread) => self.disconnect(id, Unread::WHY, io),
            }
        }
    }

    /// The client has left. Its session state is discarded.
    pub(crate) fn forget_session(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let server = &mut *self.servers[on];
        if !server.can_be_discarded() {
            return self.close_server(on, CloseReason::StateCannotBeDiscarded, io);
        }
        server.phase.settle(Settling::Forget);
        self.send_own_query(on, FORGET, io);
    }

    /// The session state is discarded.
    pub(crate) fn session_forgotten(&mut self, on: ServerId, io: &mut impl Io<X>) {
        self.servers[on].clear_session();
        self.settled(on, io);
    }

    /// The server is lost, or its node is no longer the primary.
    pub(crate) fn release_lost(&mut self, on: ServerId) {
        let server = &mut *self.servers[on];
        if let Some(id) = server.client
            && holding::release_lost(&mut self.clients[id], server)
            && !self.pools.changed_user.is_empty()
        {
            self.follow_rename(id);
        }
    }
}
