//! The last write of each client's session, and the standby with which the session stays.
//! It is a table beside the clients, so a client of another pool is no larger.

use std::sync::Arc;

use crate::ids::{ClientId, Micros, NodeId};
use crate::routing::freshness::{Need, Shown, Wrote};
use crate::routing::rules::Routing;
use crate::routing::stays::{Stay, Stays};
use crate::settings::PoolSettings;

/// A request waits for servers of readers so many times, if each comes too late. Then the writer runs
/// it.
const OVERTAKEN_MAX: u8 = 2;

/// A session that reads without a pause is always ahead of the samples. When the primary has run its
/// reads for so long for no other reason, one of them waits for a standby.
const AHEAD_MAX: Micros = 1_000_000;

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
    /// When its last transaction ended that may have changed the schema unseen; 0 = never.
    pub(crate) doubted_at: Micros,
    /// The standby with which it stays.
    stay: Option<Stay>,
    /// The data that its last read may have shown.
    pub(crate) shown: Shown,
    /// The standby of its last request on one, with the standby's life before the request.
    reader: Option<(NodeId, u64)>,
    /// Since when the primary runs its reads because no standby has what it has read; 0 = it does not.
    ahead_since: Micros,
    /// The number of times that a reader's server came too late: its node was lost, or too far behind.
    overtaken: u8,
    /// Do the judges say that its last request only reads? False again when a reader has got that
    /// request.
    pub(crate) is_judged_read: bool,
    /// The need of its last request.
    pub(crate) need: Need,
    /// The arrival of a request that is judged again, and the need that it had at first, if it had one.
    first: Option<(Micros, Option<Need>)>,
    /// Does its read wait for a fresher standby?
    is_held: bool,
    /// The texts that begin its transaction again on the writer (`routing/begun.rs`).
    pub(crate) opening: Box<[u8]>,
    /// The request that the primary runs, if it changes no data.
    harmless: OnPrimary,
}

/// A request that changes no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harmless {
    Read,
    /// It sets values of its session, and shows no data.
    Set,
    /// It was harmless before a change of the schema that Weir may not have seen. It may write now. It
    /// is no reason to doubt the catalogs again: otherwise a session that calls functions without a
    /// pause would never read on a standby again.
    Doubted,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum OnPrimary {
    #[default]
    None,
    /// A request of this many bytes that was not sent yet.
    Due(Harmless, usize),
    /// A request that was sent, with the serial number of its last message.
    Sent(Harmless, u64),
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

    /// Holds the client's read, which has arrived at this moment.
    pub(crate) fn hold(&mut self, client: ClientId, serial: u64, since: Micros) {
        self.judge_again(client, serial, since);
        self.of(client, serial).is_held = true;
        self.held.push((client, serial));
    }

    /// Has the client's read, which has arrived at this moment, judged again.
    pub(crate) fn judge_again(&mut self, client: ClientId, serial: u64, since: Micros) {
        let session = self.of(client, serial);
        session.first = Some((since, Some(session.need)));
    }

    /// Has a request of the client judged again that has waited for the primary since this moment.
    pub(crate) fn judge_without_primary(&mut self, client: ClientId, serial: u64, since: Micros) {
        self.of(client, serial).first = Some((since, None));
    }

    /// Ends the wait of the client's read, if it waits. Returns the arrival of a read that is judged
    /// again, and its need then: later writes of others do not concern it.
    pub(crate) fn release(
        &mut self,
        client: ClientId,
        serial: u64,
    ) -> Option<(Micros, Option<Need>)> {
        self.of(client, serial).release()
    }

    /// Notes that a client of a pool with these settings may have written. It comes from the process
    /// before an online restart, or its server was lost.
    pub(crate) fn suppose_write(
        &mut self,
        (client, serial): (ClientId, u64),
        settings: &PoolSettings,
        now: Micros,
    ) {
        if settings.reads.is_some() {
            let session = self.of(client, serial);
            session.wrote.note(now);
            session.doubted_at = now;
        }
        if let Some(routing) = &settings.routing {
            routing.note_write(now);
            routing.catalog.doubt(now);
        }
    }

    /// Does the client's read wait for a fresher standby? Then the client is not read.
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
}

impl Session {
    /// Ends the wait of its read. See [`Sessions::release`].
    pub(crate) fn release(&mut self) -> Option<(Micros, Option<Need>)> {
        self.is_held = false;
        self.first.take()
    }

    /// A transaction of its client has ended on the primary. `last` is the serial number of the last
    /// message that the server got. Notes a write, unless all of it was one read. `is_doubtful`: such
    /// a write may have changed the schema.
    #[cold]
    pub(crate) fn ended(&mut self, last: u64, is_doubtful: bool, routing: &Routing, now: Micros) {
        let request = std::mem::take(&mut self.harmless);
        let is_only = |kind| request == OnPrimary::Sent(kind, last);
        if is_only(Harmless::Read) {
            self.shown = Shown { at: now, by: None };
        }
        if is_only(Harmless::Read) || is_only(Harmless::Set) {
            return;
        }
        self.wrote.note(now);
        routing.note_write(now);
        if is_doubtful && !is_only(Harmless::Doubted) {
            self.doubted_at = now;
            routing.catalog.doubt(now);
        }
    }

    /// Returns the standby with which it stays, if that is one of these nodes.
    pub(crate) fn node(&self, stays: &Arc<Stays>) -> Option<NodeId> {
        self.stay.as_ref().and_then(|stay| stay.node_in(stays))
    }

    /// Notes that a standby with this life gets its request.
    pub(crate) fn goes_to(&mut self, reader: (NodeId, u64)) {
        (self.reader, self.ahead_since) = (Some(reader), 0);
    }

    /// Notes that a request on that standby has ended, at a moment behind its answer.
    pub(crate) fn has_read(&mut self, now: Micros) {
        self.shown = Shown { at: now, by: self.reader };
    }

    /// Notes that its standby is lost, at a moment behind all that it has answered.
    pub(crate) fn has_lost_reader(&mut self, now: Micros) {
        self.shown = Shown { at: now, by: None };
    }

    /// The primary is to run its read. `is_ahead`: only because no standby has what it has read.
    /// `may_wait`: the read has not waited too long yet. Returns true if it must wait, because the
    /// session has been ahead for long.
    pub(crate) fn waits_ahead(&mut self, is_ahead: bool, may_wait: bool, now: Micros) -> bool {
        let since = if self.ahead_since == 0 { now } else { self.ahead_since };
        let is_long = now.saturating_sub(since) > AHEAD_MAX;
        self.ahead_since = match (is_ahead, is_long && !may_wait) {
            (false, _) => 0,
            (true, false) => since,
            // The wait has not helped, so the next read does not wait soon.
            (true, true) => now,
        };
        is_ahead && is_long && may_wait
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

    /// Notes the next request at the primary: a harmless one of so many bytes, or another (None).
    pub(crate) fn expect(&mut self, harmless: Option<(Harmless, usize)>) {
        self.harmless = harmless.map_or(OnPrimary::None, |(kind, len)| OnPrimary::Due(kind, len));
    }

    /// Notes that `len` bytes of the client's requests were handled together. `last` is the serial
    /// number of the last message. Only a request that was handled alone is known not to write.
    pub(crate) fn handled(&mut self, len: usize, last: u64) {
        self.harmless = match self.harmless {
            OnPrimary::Due(kind, expected) if expected == len => OnPrimary::Sent(kind, last),
            OnPrimary::Due(..) | OnPrimary::None => OnPrimary::None,
            sent @ OnPrimary::Sent(..) => sent,
        };
    }

    pub(crate) fn is_due(&self) -> bool {
        matches!(self.harmless, OnPrimary::Due(..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubted_read_counts_as_a_write_and_raises_no_doubt() {
        let (routing, mut sessions, client) =
            (Routing::default(), Sessions::default(), (ClientId(3), 17));
        for (kind, doubted_at) in [(Some(Harmless::Doubted), 0), (None, 9)] {
            let session = sessions.of(client.0, client.1);
            session.expect(kind.map(|kind| (kind, 20)));
            session.handled(20, 5);
            session.ended(5, true, &routing, 9);
            assert_eq!((session.wrote, session.doubted_at), (Wrote::at(9), doubted_at));
        }
    }

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
            session.expect(expected.map(|len| (Harmless::Read, len)));
            if let Some((len, last)) = handled {
                session.handled(len, last);
            }
            for is_doubtful in [true, false] {
                let session = sessions.of(client.0, client.1);
                let harmless = session.harmless;
                (session.wrote, session.doubted_at) = (Wrote::default(), 0);
                session.ended(ended, is_doubtful, &routing, 9);
                assert_eq!(session.wrote, if wrote { Wrote::at(9) } else { Wrote::default() });
                assert_eq!(session.doubted_at, if wrote && is_doubtful { 9 } else { 0 });
                session.harmless = harmless;
            }
        }
    }

    #[test]
    fn a_read_shows_data_and_a_set_shows_none() {
        let routing = Routing::default();
        let mut sessions = Sessions::default();
        let client = (ClientId(3), 17);
        let by_primary = Shown { at: 9, by: None };
        for (kind, shown) in [(Harmless::Read, by_primary), (Harmless::Set, Shown::default())] {
            let session = sessions.of(client.0, client.1);
            session.shown = Shown::default();
            session.expect(Some((kind, 20)));
            session.handled(20, 5);
            session.ended(5, false, &routing, 9);
            assert_eq!((session.shown, session.wrote), (shown, Wrote::default()));
        }
        let session = sessions.of(client.0, client.1);
        session.goes_to((NodeId(2), 7));
        session.has_read(11);
        assert_eq!(session.shown, Shown { at: 11, by: Some((NodeId(2), 7)) });
        session.has_lost_reader(12);
        assert_eq!(session.shown, Shown { at: 12, by: None });
    }

    #[test]
    fn a_read_waits_once_when_the_session_has_been_ahead_for_long() {
        let mut session = Session::default();
        for (is_ahead, may_wait, now, waits) in [
            (true, true, 10, false),
            (true, true, AHEAD_MAX, false),
            (true, true, AHEAD_MAX + 20, true),
            // It is judged again. The wait has not helped.
            (true, true, AHEAD_MAX + 30, true),
            (true, false, AHEAD_MAX + 40, false),
            (true, true, AHEAD_MAX + 50, false),
            (true, true, 3 * AHEAD_MAX, true),
            (false, true, 3 * AHEAD_MAX, false),
            (true, true, 4 * AHEAD_MAX, false),
        ] {
            assert_eq!(session.waits_ahead(is_ahead, may_wait, now), waits, "{now}");
        }
        session.goes_to((NodeId(1), 0));
        assert!(!session.waits_ahead(true, true, 6 * AHEAD_MAX), "it was on a standby");
    }

    #[test]
    fn a_held_read_is_found_until_it_is_released() {
        let mut sessions = Sessions::default();
        assert!(!sessions.holds(ClientId(1), 5));
        sessions.hold(ClientId(1), 5, 70);
        sessions.hold(ClientId(2), 6, 80);
        assert!(sessions.holds(ClientId(1), 5) && !sessions.holds(ClientId(1), 4));
        assert_eq!(sessions.release(ClientId(2), 6), Some((80, Some(Need::default()))));
        assert_eq!(sessions.take_held(), [(ClientId(1), 5)]);
        assert_eq!(sessions.take_held(), []);
        assert_eq!(sessions.release(ClientId(1), 5), Some((70, Some(Need::default()))));
        assert_eq!(sessions.release(ClientId(1), 5), None);
        sessions.judge_again(ClientId(1), 5, 90);
        assert!(!sessions.holds(ClientId(1), 5));
        assert_eq!(sessions.release(ClientId(1), 5), Some((90, Some(Need::default()))));
    }

    #[test]
    fn another_client_of_the_slot_begins_anew() {
        let mut sessions = Sessions::default();
        sessions.of(ClientId(1), 5).wrote.note(8);
        assert_eq!(sessions.of(ClientId(1), 5).wrote, Wrote::at(8));
        assert_eq!(sessions.of(ClientId(1), 6).wrote, Wrote::default());
    }
}
