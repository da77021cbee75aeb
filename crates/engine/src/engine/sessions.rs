//! Carries out what `session` decides after a transaction of auto mode.

use crate::engine::Engine;
use crate::ids::{ClientId, ServerId};
use crate::lifecycle::preparation::Readable;
use crate::notify::listen::Unread;
use crate::session::verdict::{Decision, Judged};
use crate::shell::{Exchange, Io};

impl<X: Exchange> Engine<X> {
    /// The client's transaction is over, and this or an earlier one has left traces on the server.
    pub(crate) fn judge(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) {
        match self.pair(id, on).judge(io) {
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
        let mut pair = self.pair(id, on);
        let left = pair.take_left();
        if let Some(left) = &left {
            let defaults = pair.explain_changes(left, io);
            if !defaults.is_empty() {
                let names = &pair.context.names;
                pair.pool.defaults_changed(pair.server, defaults, false, names);
            }
        }
        let readable = match self.pair(id, on).decide(left, io) {
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
}
