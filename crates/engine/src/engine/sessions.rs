//! Carries out what `session` decides after a transaction of auto mode.

use crate::engine::Engine;
use crate::ids::{ClientId, ServerId};
use crate::lifecycle::preparation::Readable;
use crate::notify::listen::Unread;
use crate::session::verdict::Judged;
use crate::shell::{Exchange, Io};

impl<X: Exchange> Engine<X> {
    /// The client's transaction is over, and this or an earlier one has left traces on the server; or
    /// the probe is answered.
    pub(crate) fn judge(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) {
        let judged = self.pair(id, on).judge(io);
        let readable = match judged {
            Judged::Released => return self.unlink(id, on, io),
            Judged::Asked => return,
            Judged::Kept => Readable::Now,
            Judged::Pinned { is_known: true } => self.prepare(id, on, io),
            // The client's last texts may have changed the values that Weir knows.
            Judged::Pinned { is_known: false } => self.ready(id, on, io),
        };
        if readable == Readable::NotYet {
            return;
        }
        match self.channels(id).go_on(io) {
            Ok(false) if judged != Judged::Kept => self.go_on(id, io),
            Ok(_) => {}
            Err(Unread) => self.disconnect(id, Unread::WHY, io),
        }
    }
}
