//! The last write of each client's session, and the standby with which the session stays.
//! It is a table beside the clients, so a client of another pool is no larger.

use crate::ids::{ClientId, Micros, NodeId};
use crate::routing::freshness::Wrote;
use crate::routing::rules::Routing;

/// The routed sessions of a worker, by the slot of their client.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Vec<Session>);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Session {
    /// The client's serial number. A later client of the slot begins anew.
    serial: u64,
    pub(crate) wrote: Wrote,
    /// The standby of its last read.
    pub(crate) node: Option<NodeId>,
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
        if self.0.len() <= at {
            self.0.resize(at + 1, Session::default());
        }
        let session = &mut self.0[at];
        if session.serial != serial {
            *session = Session { serial, ..Session::default() };
        }
        session
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
        if std::mem::take(&mut session.read) != OnPrimary::Sent(last) {
            session.wrote.note(now);
            routing.note_write(now);
        }
    }
}

impl Session {
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
    fn another_client_of_the_slot_begins_anew() {
        let mut sessions = Sessions::default();
        sessions.of(ClientId(1), 5).wrote.note(8);
        assert_eq!(sessions.of(ClientId(1), 5).wrote, Wrote::at(8));
        assert_eq!(sessions.of(ClientId(1), 6).wrote, Wrote::default());
    }
}
