//! The last write of each client's session, and the standby with which the session stays.
//! It is a table beside the clients, so a client of another pool is no larger.

use std::sync::Arc;

use crate::ids::{ClientId, Micros, NodeId};
use crate::routing::freshness::{Need, Wrote};
use crate::routing::rules::Routing;
use crate::routing::stays::{Stay, Stays};

/// A request waits for servers of readers so many times, if each comes too late. Then the writer runs
/// it.
const OVERTAKEN_MAX: u8 = 2;

/// The routed sessions of a worker.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    /// By the slot of their client.
    all: Vec<Session>,
    /// Clients whose reads wait for a fresher standby, with their serial numbers. Some may be served
    /// or gone.
    held: Vec<(ClientId, u64)>,
}

#[derive(Debug, Default)]
pub(crate) struct Session {
    /// The client's serial number. A later client of the slot begins anew.
    serial: u64,
    pub(crate) wrote: Wrote,
    /// The standby with which it stays.
    stay: Option<Stay>,
    /// When its last answer ended. The session has seen no later commit; 0 = there was none.
    pub(crate) read_at: Micros,
    /// The number of times that a reader's server came too late: its node was lost, or too far behind.
    overtaken: u8,
    /// Do the judges say that its last request only reads? False again when a reader has got that
    /// request.
    pub(crate) is_judged_read: bool,
    /// The need of its last request.
    pub(crate) need: Need,
    /// The arrival of a read that is judged again, and the need that it had at first.
    first: Option<(Micros, Need)>,
    /// Does its read wait for a fresher standby?
    is_held: bool,
    /// The read that the primary runs, because no standby may run it.
    read: OnPrimary,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum OnPrimary {
    #[default]
    None,
    /// A read of this many bytes that was not sent yet.
    Due(usize),
    /// A read that was sent, with the serial number of its last message.
    Sent(u64),
}

impl Sessions {
    pub(crate) fn of(&mut self, client: ClientId, serial: u64) -> &mut Session {
        let at = client.0 as usize;
        if self.all.len() <= at {
            self.all.resize_with(at + 1, Session::default);
        }
        let session = &mut self.all[at];
        if session.serial != serial {
            *session = Session { serial, ..Session::default() };
        }
        session
    }

    /// Ends the stay of a client that leaves.
    pub(crate) fn leave(&mut self, client: ClientId) {
        if let Some(session) = self.all.get_mut(client.0 as usize) {
            session.stay = None;
        }
    }

    /// Do the judges say that the client's next request only reads?
    pub(crate) fn is_judged_read(&self, client: ClientId, serial: u64) -> bool {
        let session = self.all.get(client.0 as usize);
        session.is_some_and(|own| own.serial == serial && own.is_judged_read)
    }

    /// Returns the need of the client's last request.
    pub(crate) fn need(&self, client: ClientId, serial: u64) -> Need {
        let own = self.all.get(client.0 as usize).filter(|own| own.serial == serial);
        own.map_or_else(Need::default, |own| own.need)
    }

    /// Holds the client's read, which has arrived at this moment.
    pub(crate) fn hold(&mut self, client: ClientId, serial: u64, since: Micros) {
        self.judge_again(client, serial, since);
        self.of(client, serial).is_held = true;
        self.held.push((client, serial));
    }

    /// Has the client's read, which has arrived at this moment, judged again.
    pub(crate) fn judge_again(&mut self, client: ClientId, serial: u64, since: Micros) {
        let session = self.of(client, serial);
        session.first = Some((since, session.need));
    }

    /// Ends the wait of the client's read, if it waits. Returns the arrival of a read that is judged
    /// again, and its need then: later writes of others do not concern it.
    pub(crate) fn release(&mut self, client: ClientId, serial: u64) -> Option<(Micros, Need)> {
        let session = self.of(client, serial);
        session.is_held = false;
        session.first.take()
    }

    /// Does the client's read wait for a fresher standby?
    pub(crate) fn holds(&self, client: ClientId, serial: u64) -> bool {
        let session = self.all.get(client.0 as usize);
        session.is_some_and(|own| own.serial == serial && own.is_held)
    }

    /// Returns all clients whose reads wait.
    pub(crate) fn take_held(&mut self) -> Vec<(ClientId, u64)> {
        let mut held = std::mem::take(&mut self.held);
        held.retain(|(client, serial)| self.holds(*client, *serial));
        held
    }

    /// A transaction of this client has ended on the primary. `last` is the serial number of the
    /// last message that the server got. Notes a write, unless all of it was one read.
    #[cold]
    pub(crate) fn ended(
        &mut self,
        (client, serial): (ClientId, u64),
        last: u64,
        routing: &Routing,
        now: Micros,
    ) {
        let session = self.of(client, serial);
        session.read_at = now;
        if std::mem::take(&mut session.read) != OnPrimary::Sent(last) {
            session.wrote.note(now);
            routing.note_write(now);
        }
    }
}

impl Session {
    /// Returns the standby with which it stays, if that is one of these nodes.
    pub(crate) fn node(&self, stays: &Arc<Stays>) -> Option<NodeId> {
        self.stay.as_ref().and_then(|stay| stay.node_in(stays))
    }

    /// Its request has got a server. `too_late`: a reader's, whose node it must not read any more.
    pub(crate) fn note_server(&mut self, too_late: bool) {
        self.overtaken = if too_late { self.overtaken.saturating_add(1) } else { 0 };
    }

    /// Have readers' servers come too late so often that the writer runs its request? Then they are
    /// counted anew.
    pub(crate) fn take_late(&mut self) -> bool {
        let is_late = self.overtaken >= OVERTAKEN_MAX;
        if is_late {
            self.overtaken = 0;
        }
        is_late
    }

    /// Has it stay with this standby.
    pub(crate) fn stay_with(&mut self, node: NodeId, stays: &Arc<Stays>) {
        if self.node(stays) != Some(node) {
            self.stay = Some(Stays::begin(stays, node));
        }
    }

    /// Notes the next request at the primary: a read of so many bytes, or another request (None).
    pub(crate) fn expect(&mut self, read: Option<usize>) {
        self.read = read.map_or(OnPrimary::None, OnPrimary::Due);
    }

    /// Notes that `len` bytes of the client's requests were handled together. `last` is the serial
    /// number of the last message. Only a read that was handled alone is known not to write.
    pub(crate) fn handled(&mut self, len: usize, last: u64) {
        self.read = match self.read {
            OnPrimary::Due(expected) if expected == len => OnPrimary::Sent(last),
            OnPrimary::Due(_) | OnPrimary::None => OnPrimary::None,
            sent @ OnPrimary::Sent(_) => sent,
        };
    }

    pub(crate) fn is_due(&self) -> bool {
        matches!(self.read, OnPrimary::Due(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_a_single_read_counts_as_a_write() {
        let routing = Routing::default();
        let mut sessions = Sessions::default();
        let client = (ClientId(3), 17);
        for (expected, handled, ended, wrote) in [
            (Some(20), Some((20, 5)), 5, false),
            (Some(20), Some((20, 5)), 6, true),
            (Some(20), Some((40, 5)), 5, true),
            (Some(20), None, 5, true),
            (None, Some((20, 5)), 5, true),
        ] {
            let session = sessions.of(client.0, client.1);
            session.wrote = Wrote::default();
            session.expect(expected);
            if let Some((len, last)) = handled {
                session.handled(len, last);
            }
            sessions.ended(client, ended, &routing, 9);
            let found = sessions.of(client.0, client.1).wrote;
            assert_eq!(found, if wrote { Wrote::at(9) } else { Wrote::default() });
        }
    }

    #[test]
    fn a_held_read_is_found_until_it_is_released() {
        let mut sessions = Sessions::default();
        assert!(!sessions.holds(ClientId(1), 5));
        sessions.hold(ClientId(1), 5, 70);
        sessions.hold(ClientId(2), 6, 80);
        assert!(sessions.holds(ClientId(1), 5) && !sessions.holds(ClientId(1), 4));
        assert_eq!(sessions.release(ClientId(2), 6), Some((80, Need::default())));
        assert_eq!(sessions.take_held(), [(ClientId(1), 5)]);
        assert_eq!(sessions.take_held(), []);
        assert_eq!(sessions.release(ClientId(1), 5), Some((70, Need::default())));
        assert_eq!(sessions.release(ClientId(1), 5), None);
        sessions.judge_again(ClientId(1), 5, 90);
        assert!(!sessions.holds(ClientId(1), 5));
        assert_eq!(sessions.release(ClientId(1), 5), Some((90, Need::default())));
    }

    #[test]
    fn another_client_of_the_slot_begins_anew() {
        let mut sessions = Sessions::default();
        sessions.of(ClientId(1), 5).wrote.note(8);
        assert_eq!(sessions.of(ClientId(1), 5).wrote, Wrote::at(8));
        assert_eq!(sessions.of(ClientId(1), 6).wrote, Wrote::default());
    }
}
