//! Finds how fresh each standby is, from log positions that are sampled at intervals.
//!
//! The cold side asks the primary for `pg_current_wal_insert_lsn()` and notes when it *sent* the
//! question. It asks each standby for `pg_last_wal_replay_lsn()`. A standby is *fresh as of* the
//! latest moment whose sample it has replayed: it has everything that was committed before that
//! moment. So a session reads its own writes if the standby is fresh as of a moment after them.
//! A commit causes no query, and only Weir's own clock is read. An idle primary and a paused replay
//! need no special rules.
//!
//! ```text
//!  primary   ask ─ 100 ──── ask ─ 250 ───── ask ─ 250
//!  standby        replayed 120 ──► fresh as of the first question
//! ```
//!
//! Invariant: a standby that is fresh as of `t` has replayed each commit whose reply Weir had read
//! before `t` *(the property test `a_fresh_standby_has_every_earlier_commit`)*.

use config::ReadAfterWrite;

use crate::ids::{Micros, NodeId};

/// Maximal number of samples of a primary. If there are more, every second one of the older half is
/// dropped. Then standbys that lag far behind look older than they are.
const SAMPLES_MAX: usize = 256;

/// A header at the beginning of a page of the log has at most this many bytes.
const PAGE_HEADER_LEN: u64 = 40;

/// A position in the write-ahead log, in bytes.
pub type Position = u64;

/// The log positions of one primary. A new primary gets a new `PrimaryLog`, so its standbys begin
/// as fresh as of "never".
#[derive(Clone, Debug)]
pub struct PrimaryLog {
    page_len: u64,
    /// Moments and positions, both growing.
    samples: Vec<(Micros, Position)>,
}

impl PrimaryLog {
    /// `page_len` is the server's `wal_block_size`.
    pub fn new(page_len: u64) -> Self {
        Self { page_len, samples: Vec::new() }
    }

    /// Adds an answer of the primary. `asked` was read from the clock before the question was sent.
    pub fn sample(&mut self, asked: Micros, inserted: Position) {
        let position = self.without_header(inserted);
        match self.samples.last_mut() {
            // Nothing was written since.
            Some((moment, last)) if *last == position => *moment = (*moment).max(asked),
            // An answer of another server, or one that was overtaken: it says nothing new.
            Some((moment, last)) if *last > position || *moment > asked => {}
            _ => self.samples.push((asked, position)),
        }
        if self.samples.len() > SAMPLES_MAX {
            let mut at = 0;
            self.samples.retain(|_| {
                at += 1;
                at > SAMPLES_MAX / 2 || at % 2 == 1
            });
        }
    }

    /// Returns the latest moment before which all commits are in the log up to `replayed`. None:
    /// never.
    pub fn fresh_as_of(&self, replayed: Position) -> Option<Micros> {
        let newer = self.samples.partition_point(|(_, position)| *position <= replayed);
        self.samples[..newer].last().map(|(moment, _)| *moment)
    }

    /// Returns the position up to which a standby has everything. Between the beginning of a page and
    /// the end of its header there is nothing to replay.
    pub fn reached(&self, replayed: Position) -> Position {
        let is_page = replayed.is_multiple_of(self.page_len);
        if is_page { replayed + PAGE_HEADER_LEN } else { replayed }
    }

    /// Returns how many bytes of the log a standby has not replayed, as of the last sample.
    pub fn lag_bytes(&self, replayed: Position) -> u64 {
        self.samples.last().map_or(0, |(_, position)| position.saturating_sub(replayed))
    }

    /// Returns the position without the header of a page that has no record yet. There the primary
    /// reports the position behind the header, and a standby the position before it. A record that
    /// ends between the two began on an earlier page, and a standby at the page's start has
    /// replayed it.
    pub fn without_header(&self, position: Position) -> Position {
        let offset = position % self.page_len;
        if offset <= PAGE_HEADER_LEN { position - offset } else { position }
    }
}

/// The moment of the last write of a session, or of all sessions of a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wrote(Option<Micros>);

impl Wrote {
    /// Returns the moment that this number stands for; 0 = never.
    pub fn at(moment: Micros) -> Self {
        Self((moment != 0).then_some(moment))
    }

    /// Notes that a transaction which may have written has ended. `now` must be read from the clock
    /// after the server's reply was read, and noted before the reply is sent to the client. A
    /// worker's `now` of the same round may be older than the reply.
    pub fn note(&mut self, now: Micros) {
        self.0 = self.0.max(Some(now));
    }
}

/// The data that the last read of a session may have shown. Its later reads must not show older data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// When the last answer ended. No later commit was shown. 0 = nothing was read.
    pub(crate) at: Micros,
    /// The standby that has answered, and its [`life`](super::readers::Reader::life); None: the
    /// primary.
    pub(crate) by: Option<(NodeId, u64)>,
}

impl Shown {
    /// Has a node all of this data, which is fresh as of this moment? The node that has answered has
    /// it. The primary had it before `at`, and so has a standby that is fresh as of a later moment.
    pub fn is_at(self, node: NodeId, life: u64, fresh_as_of: Option<Micros>) -> bool {
        self.at == 0 || self.by == Some((node, life)) || fresh_as_of > Some(self.at)
    }
}

/// The commits that a read must see. They are those before its arrival, however long it then waits
/// for a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// The last write that counts for the read.
    pub wrote: Wrote,
    /// The position that the session has from another one (`weir.token`); 0 = none.
    pub token: Position,
    /// The data that its session has read.
    pub shown: Shown,
    /// It asks for a standby while there is no primary, so the data may have any age.
    pub any_age: bool,
}

impl Need {
    /// Returns the need of a read that has arrived at `since`, after these writes of its session and
    /// of its user, and after the session has read this.
    pub fn of(
        which: ReadAfterWrite,
        [session, user]: [Wrote; 2],
        shown: Shown,
        since: Micros,
    ) -> Self {
        let wrote = match which {
            ReadAfterWrite::Session => session,
            ReadAfterWrite::User => session.max(user),
            ReadAfterWrite::Strict => session.max(Wrote(Some(since))),
            ReadAfterWrite::Off => return Self::default(),
        };
        Self { wrote, shown, ..Self::default() }
    }

    /// Has a standby these writes, which is fresh as of this moment and has everything up to `reached`?
    pub fn is_met(self, fresh_as_of: Option<Micros>, reached: Position) -> bool {
        let needed = self.wrote.0;
        // Equal moments are not enough: the write may have been later in the same microsecond.
        self.token <= reached && (needed.is_none() || fresh_as_of > needed)
    }
}

/// Reads a position as PostgreSQL writes it, such as `16/B374D848`.
pub fn position(text: &[u8]) -> Option<Position> {
    let (high, low) = core::str::from_utf8(text).ok()?.split_once('/')?;
    let half = |digits: &str| {
        let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        u32::from_str_radix(digits, 16).ok().filter(|_| is_number)
    };
    Some(Position::from(half(high)?) << 32 | Position::from(half(low)?))
}

/// The greatest age of a standby's data for any read (`max_staleness`, `max_lag_bytes`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// 0: no limit.
    pub age_max: Micros,
    /// 0: no limit.
    pub lag_bytes_max: u64,
}

impl Limits {
    /// Returns whether a standby may be read. A standby that was too old comes back when it is well
    /// below the limits, so that it does not come and go with each sample. A standby that was not
    /// sampled is too old.
    pub fn allow(
        self,
        was_too_old: bool,
        fresh_as_of: Option<Micros>,
        lag_bytes: u64,
        now: Micros,
    ) -> bool {
        let share = if was_too_old { 2 } else { 1 };
        let within = |limit: u64, value: u64| limit == 0 || value <= limit / share;
        fresh_as_of.is_some_and(|moment| {
            within(self.age_max, now.saturating_sub(moment))
                && within(self.lag_bytes_max, lag_bytes)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: u64 = 8_192;

    fn log(samples: &[(Micros, Position)]) -> PrimaryLog {
        let mut log = PrimaryLog::new(PAGE);
        samples.iter().for_each(|(asked, position)| log.sample(*asked, *position));
        log
    }

    #[test]
    fn a_standby_is_fresh_as_of_the_last_sample_that_it_has_replayed() {
        let log = log(&[(10, 1_000), (20, 2_000), (30, 3_000)]);
        for (replayed, expected) in [
            (0, None),
            (999, None),
            (1_000, Some(10)),
            (2_999, Some(20)),
            (3_000, Some(30)),
            (9_000, Some(30)),
        ] {
            assert_eq!(log.fresh_as_of(replayed), expected, "{replayed}");
        }
        assert_eq!(log.lag_bytes(2_500), 500);
        assert_eq!(log.lag_bytes(9_000), 0);
        assert_eq!(PrimaryLog::new(PAGE).fresh_as_of(1_000), None);
    }

    #[test]
    fn an_idle_primary_keeps_its_standbys_fresh() {
        let log = log(&[(10, 1_000), (20, 1_000), (900, 1_000)]);
        assert_eq!(log.fresh_as_of(1_000), Some(900));
        assert_eq!(log.samples.len(), 1);
    }

    #[test]
    fn a_header_of_a_page_is_no_lag() {
        // As measured after pg_switch_wal().
        let log = log(&[(10, 0x0d00_0028)]);
        assert_eq!(log.fresh_as_of(0x0d00_0000), Some(10));
        assert_eq!(log.fresh_as_of(0x0cff_ffff), None);
        assert_eq!(log.lag_bytes(0x0d00_0000), 0);
    }

    #[test]
    fn answers_that_go_back_are_dropped() {
        let log = log(&[(10, 1_000), (20, 900), (5, 2_000)]);
        assert_eq!(log.samples, [(10, 1_000)]);
    }

    #[test]
    fn samples_are_limited_and_the_newest_stay() {
        let mut log = PrimaryLog::new(PAGE);
        for moment in 1..=10_000 {
            log.sample(moment, 50 + moment * 100);
        }
        assert!(log.samples.len() <= SAMPLES_MAX);
        assert_eq!(log.fresh_as_of(50 + 10_000 * 100), Some(10_000));
        assert!(log.fresh_as_of(50 + 5_000 * 100).is_some(), "an old moment is known roughly");
    }

    #[test]
    fn a_read_sees_the_writes_that_its_setting_names() {
        use ReadAfterWrite::{Off, Session, Strict, User};
        let never = Wrote::default();
        for (setting, fresh_as_of, session, user, expected) in [
            (Session, None, never, Wrote::at(5), true),
            (Session, Some(10), Wrote::at(9), never, true),
            (Session, Some(10), Wrote::at(10), never, false),
            (Session, None, Wrote::at(1), never, false),
            (User, Some(10), Wrote::at(5), Wrote::at(11), false),
            (User, Some(12), Wrote::at(5), Wrote::at(11), true),
            (User, Some(12), Wrote::at(13), Wrote::at(11), false),
            (Off, None, Wrote::at(5), Wrote::at(5), true),
            (Strict, Some(21), Wrote::at(10), Wrote::at(22), true),
            (Strict, Some(20), Wrote::at(10), never, false),
            (Strict, Some(21), Wrote::at(21), never, false),
        ] {
            let need = Need::of(setting, [session, user], Shown::default(), 20);
            let found = need.is_met(fresh_as_of, 0);
            assert_eq!(found, expected, "{setting:?} {fresh_as_of:?} {session:?} {user:?}");
        }
        let mut wrote = Wrote::at(0);
        assert_eq!(wrote, never);
        wrote.note(7);
        wrote.note(5);
        assert_eq!(wrote, Wrote::at(7));
    }

    #[test]
    fn a_position_from_another_session_counts_always() {
        let need = Need { token: 900, ..Need::default() };
        for fresh_as_of in [None, Some(10)] {
            assert!(!need.is_met(fresh_as_of, 899));
            assert!(need.is_met(fresh_as_of, 900));
        }
        // As measured after pg_switch_wal().
        let log = log(&[(10, 0x0d00_0028)]);
        assert_eq!(log.reached(0x0d00_0000), 0x0d00_0028);
        assert_eq!(log.reached(0x0d00_0018), 0x0d00_0018);
    }

    #[test]
    fn a_session_does_not_go_back_in_time() {
        let (own, other) = (NodeId(1), NodeId(2));
        let by_standby = Shown { at: 20, by: Some((own, 3)) };
        let by_primary = Shown { at: 20, by: None };
        for (shown, node, life, fresh_as_of, expected) in [
            (Shown::default(), other, 0, None, true),
            (by_standby, own, 3, Some(5), true),
            (by_standby, own, 4, Some(5), false),
            (by_standby, own, 4, Some(21), true),
            (by_standby, other, 3, Some(20), false),
            (by_standby, other, 3, Some(21), true),
            (by_primary, own, 3, Some(20), false),
            (by_primary, own, 3, Some(21), true),
        ] {
            let found = shown.is_at(node, life, fresh_as_of);
            assert_eq!(found, expected, "{shown:?} {node:?} {life} {fresh_as_of:?}");
        }
        let of = |setting| Need::of(setting, [Wrote::default(); 2], by_primary, 30).shown;
        assert_eq!(of(ReadAfterWrite::Session), by_primary);
        assert_eq!(of(ReadAfterWrite::Off), Shown::default());
    }

    #[test]
    fn positions_are_read_as_postgresql_writes_them() {
        for (text, expected) in [
            ("16/B374D848", Some(0x16_b374_d848)),
            ("0/1", Some(1)),
            ("ffffffff/ffffffff", Some(u64::MAX)),
            ("", None),
            ("16", None),
            ("16/", None),
            ("/1", None),
            ("+1/1", None),
            ("1/100000000", None),
            ("1/2/3", None),
        ] {
            assert_eq!(position(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn a_stale_standby_comes_back_when_it_is_well_below_the_limit() {
        let age = Limits { age_max: 100, lag_bytes_max: 0 };
        assert!(!age.allow(false, None, 0, 1_000));
        assert!(!age.allow(true, Some(940), 0, 1_000), "60 of 100: still out");
        assert!(age.allow(true, Some(960), 0, 1_000));
        assert!(age.allow(false, Some(910), 0, 1_000), "90 of 100: still in");
        assert!(!age.allow(false, Some(890), 0, 1_000));
        let bytes = Limits { age_max: 0, lag_bytes_max: 1_000 };
        assert!(bytes.allow(true, Some(0), 500, u64::MAX));
        assert!(!bytes.allow(false, Some(0), 1_001, u64::MAX));
    }

    /// A log of records, as PostgreSQL writes it: each page begins with a header, and a record goes
    /// on behind the header of the next page.
    struct Written {
        page: u64,
        /// Behind the last record.
        end: u64,
    }

    impl Written {
        fn header(&self, at: u64) -> u64 {
            if at.is_multiple_of(16 * self.page) { 40 } else { 24 }
        }

        /// Writes a record of a multiple of 8 bytes; returns its end.
        fn write(&mut self, mut len: u64) -> u64 {
            while len > 0 {
                if self.end.is_multiple_of(self.page) {
                    self.end += self.header(self.end);
                }
                let some = len.min(self.page - self.end % self.page);
                (self.end, len) = (self.end + some, len - some);
            }
            self.end
        }

        /// As `pg_current_wal_insert_lsn()` tells it.
        fn inserted(&self) -> u64 {
            match self.end.is_multiple_of(self.page) {
                true => self.end + self.header(self.end),
                false => self.end,
            }
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// A commit, with a record of so many times 8 bytes.
        Commit(u64),
        Sample,
        /// The standby replays so many records.
        Replay(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (3_u64..80).prop_map(Step::Commit),
            2 => Just(Step::Sample),
            2 => (0_usize..4).prop_map(Step::Replay),
        ];
        prop::collection::vec(step, 0..400)
    }

    proptest! {
        #[test]
        fn a_fresh_standby_has_every_earlier_commit(steps in steps(), page in prop::sample::select(&[128_u64, 256, 8_192][..])) {
            let mut written = Written { page, end: 16 * page };
            let mut log = PrimaryLog::new(page);
            let (mut commits, mut replayed) = (Vec::new(), 0);
            for (now, step) in steps.into_iter().enumerate() {
                let now = now as Micros + 1;
                match step {
                    Step::Commit(len) => commits.push((now, written.write(8 * len))),
                    Step::Sample => log.sample(now, written.inserted()),
                    Step::Replay(count) => replayed = commits.len().min(replayed + count),
                }
                let position = replayed.checked_sub(1).map_or(16 * page, |last| commits[last].1);
                let fresh_as_of = log.fresh_as_of(position);
                for (at, (wrote, _)) in commits.iter().enumerate() {
                    let need = Need { wrote: Wrote::at(*wrote), ..Need::default() };
                    let allowed = need.is_met(fresh_as_of, 0);
                    prop_assert!(!allowed || at < replayed, "commit {at} of {wrote} is not there");
                    let need = Need { token: commits[at].1, ..Need::default() };
                    let allowed = need.is_met(fresh_as_of, log.reached(position));
                    prop_assert!(allowed == (at < replayed), "commit {at} is at {}", need.token);
                }
                // A standby that has replayed everything is as fresh as the last sample.
                let newest = log.samples.last().map(|(moment, _)| *moment);
                prop_assert!(replayed < commits.len() || fresh_as_of == newest);
            }
        }
    }
}
