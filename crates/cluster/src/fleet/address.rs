//! The virtual address of a cluster: clients reach the member that holds it.
//!
//! The record `address` in etcd names the holder and lives as long as the lease of that member. The
//! member gives its address in the kernel a *life time* that ends before its lease, and lengthens it
//! with each renewal. So the kernel takes the address from a member that is stopped or killed, before
//! the record vanishes and another member takes it.

use super::records::Holder;
use crate::Micros;

/// The kernel removes an address up to so long after its life time: it looks once a second, and rounds.
pub const LATENESS: Micros = 1_500_000;

/// A holder that does not see the primary, although others do, gives the address up after this time,
/// and for this time.
const PATIENCE: Micros = 5_000_000;
const ABSTENTION: Micros = 15_000_000;

/// The address, as this process knows it without etcd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnAddress {
    /// The configuration has one.
    pub is_wanted: bool,
    /// This machine may have it now.
    pub is_up: bool,
}

/// Has this machine the address?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// It has, for so many seconds from now.
    For(u32),
    /// The predecessor has put it there: it stays as it is.
    Inherited,
    No,
}

/// Returns the life time of the address in whole seconds, if the lease ends at `until`.
pub(super) fn life(until: Micros, now: Micros) -> Option<u32> {
    let rest = until.saturating_sub(now).saturating_sub(LATENESS) / 1_000_000;
    u32::try_from(rest).ok().filter(|seconds| *seconds > 0)
}

/// The next change of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Take,
    /// Delete the record of this revision.
    Leave(i64),
}

/// The knowledge of one member about its own claim to the address.
#[derive(Clone, Debug, Default)]
pub(super) struct Claim {
    /// The last revision of the record that this member has given up. The view may show it for longer.
    given_up: i64,
    /// Since when others see the primary, and this holder does not.
    blind_since: Option<Micros>,
    abstains_until: Micros,
}

impl Claim {
    /// Does the record name this process, and has it not given that up?
    pub(super) fn holds(&self, me: &Holder, record: Option<(&Holder, i64)>) -> bool {
        record.is_some_and(|(holder, revision)| holder == me && revision > self.given_up)
    }

    /// Gives up the record of this revision, and takes the address for some time no more.
    pub(super) fn abstain(&mut self, revision: Option<i64>, now: Micros) {
        self.abstains_until = now + ABSTENTION;
        self.given_up = revision.unwrap_or(self.given_up);
    }

    /// Returns the next change of the record.
    pub(super) fn next(
        &mut self,
        me: &Holder,
        record: Option<(&Holder, i64)>,
        (own, is_blind): (OwnAddress, bool),
        now: Micros,
    ) -> Option<Step> {
        let OwnAddress { is_wanted, is_up } = own;
        let Some((holder, revision)) = record else {
            let may_take = is_wanted && !is_up && !is_blind && now >= self.abstains_until;
            return may_take.then_some(Step::Take);
        };
        if !is_blind || holder != me {
            self.blind_since = None;
        }
        if holder != me {
            return None;
        }
        let has_waited = is_blind && now >= *self.blind_since.get_or_insert(now) + PATIENCE;
        if has_waited {
            self.abstains_until = now + ABSTENTION;
        }
        if !is_wanted || has_waited {
            self.given_up = revision;
        }
        let is_given_up = revision <= self.given_up;
        // Another member may take it at once when the record is deleted.
        (is_given_up && !is_up).then_some(Step::Leave(revision))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;
    use crate::fleet::lease::{TTL, VIEW};
    use crate::fleet::membership::{Answer, Me, Membership, News, Own, Request};
    use crate::fleet::records::{Record, Seen, Writer};

    const SECOND: Micros = 1_000_000;

    fn me() -> Me {
        Me {
            member: "x".to_owned(),
            instance: "i".to_owned(),
            version: "1".to_owned(),
            follows: true,
            shared_until: 0,
            address_until: 0,
        }
    }

    fn own(is_wanted: bool, is_up: bool) -> Own {
        Own { address: OwnAddress { is_wanted, is_up }, ..Own::default() }
    }

    fn news(path: &str, value: &str, revision: i64) -> News {
        News { path: path.to_owned(), value: Some(value.as_bytes().to_vec()), revision }
    }

    const OURS: &str = r#"{"member":"x","instance":"i"}"#;

    /// Returns a member that takes part since its clock showed 0.
    fn member(records: Vec<News>) -> Membership {
        let mut membership = Membership::new(me());
        let own = own(true, false);
        let loaded = Answer::Loaded { records: records.clone(), revision: 1 };
        for answer in [loaded, Answer::Granted(7), Answer::Loaded { records, revision: 2 }] {
            let request = membership.next(&own, 0).expect("it registers");
            membership.done(&request, answer, &own, 0);
        }
        membership
    }

    #[test]
    fn a_life_time_ends_before_the_lease_and_the_record_after_it() {
        assert_eq!(life(VIEW, 0), Some(8));
        assert_eq!(life(VIEW, 1), Some(8));
        assert_eq!(life(VIEW, SECOND), Some(7));
        assert_eq!(life(VIEW, 8 * SECOND), None, "the kernel knows whole seconds only");
        assert_eq!(life(0, VIEW), None);
        for now in (0..VIEW).step_by(77_777) {
            let end = life(VIEW, now).map_or(0, |life| now + Micros::from(life) * SECOND);
            assert!(end + LATENESS <= VIEW && VIEW < TTL as Micros * SECOND);
        }
    }

    #[test]
    fn the_member_that_has_written_the_record_holds_the_address_while_its_lease_holds() {
        let mut membership = member(Vec::new());
        let take = membership.next(&own(true, false), 0);
        let Some(Request::Change(take)) = take else { panic!("{take:?}") };
        assert_eq!(take.checks, [("address".to_owned(), 0)]);
        let holder = Holder { member: "x".to_owned(), instance: "i".to_owned() };
        assert_eq!(take.puts, [Record::Address(holder)]);
        assert_eq!(membership.holding(0), Holding::No, "the record is not written yet");
        membership.learn(&[news("address", OURS, 3)]);
        assert_eq!(membership.holding(0), Holding::For(8));
        assert_eq!(membership.holding(VIEW - 2 * SECOND), Holding::No);
        membership.renewed(7, 2 * SECOND);
        assert_eq!(membership.holding(2 * SECOND), Holding::For(8));
        membership.ended(7);
        assert_eq!(membership.holding(3 * SECOND), Holding::No);
    }

    #[test]
    fn a_record_is_deleted_only_after_the_address_and_is_never_used_again() {
        let mut membership = member(Vec::new());
        membership.learn(&[news("address", OURS, 3)]);
        // A reload has removed the key.
        assert_eq!(membership.next(&own(false, true), 0), None);
        assert_eq!(membership.holding(0), Holding::No);
        let leave = membership.next(&own(false, false), 0);
        let Some(Request::Change(leave)) = leave else { panic!("{leave:?}") };
        assert_eq!(leave.checks, [("address".to_owned(), 3)]);
        assert_eq!(leave.deletes, ["address"]);
        // The next reload brings the key back, before the watch has the change.
        assert!(membership.next(&own(true, false), 0).is_some(), "it deletes the record");
        assert_eq!(membership.holding(0), Holding::No);
        membership.learn(&[news("address", OURS, 5)]);
        assert_eq!(membership.holding(0), Holding::For(8));
    }

    #[test]
    fn a_member_that_leaves_ends_its_lease_after_the_address_is_gone() {
        let mut membership = member(Vec::new());
        membership.learn(&[news("address", OURS, 3)]);
        let leaving = |is_up| Own { is_leaving: true, ..own(true, is_up) };
        assert!(membership.next(&leaving(true), 0).is_some(), "it deletes its own record");
        assert_eq!(membership.holding(0), Holding::No);
        assert_eq!(membership.next(&leaving(true), 0), None);
        assert_eq!(membership.next(&leaving(false), 0), Some(Request::Revoke(7)));
    }

    #[test]
    fn a_successor_leaves_the_address_as_it_is_until_it_has_the_record() {
        let mut membership = Membership::new(Me { address_until: VIEW, ..me() });
        assert_eq!(membership.holding(0), Holding::Inherited);
        assert_eq!(membership.holding(VIEW), Holding::No);
        let own = own(true, true);
        let records = vec![news("address", OURS, 1)];
        let loaded = Answer::Loaded { records: records.clone(), revision: 1 };
        for answer in [loaded, Answer::Granted(7)] {
            let request = membership.next(&own, 0).expect("it registers");
            membership.done(&request, answer, &own, 0);
        }
        let register = membership.next(&own, 0).expect("it registers");
        let Request::Change(change) = &register else { panic!("{register:?}") };
        assert!(change.checks.contains(&("address".to_owned(), 1)));
        assert!(change.puts.iter().any(|record| matches!(record, Record::Address(_))));
        let records = vec![news("address", OURS, 2)];
        membership.done(&register, Answer::Loaded { records, revision: 2 }, &own, 0);
        assert_eq!(membership.holding(0), Holding::For(8));
    }

    #[test]
    fn a_holder_that_alone_does_not_see_the_primary_gives_the_address_up() {
        let mut membership = member(Vec::new());
        membership.learn(&[news("address", OURS, 3)]);
        let own = |is_up| own(true, is_up);
        membership.renewed(7, PATIENCE);
        let seen = |state: &str, revision| {
            let seen = Seen { state: state.to_owned(), why: String::new(), is_lost: false };
            news("seen/y/a", &Record::Seen("y".to_owned(), "a".to_owned(), seen).value(), revision)
        };
        membership.learn(&[seen("down", 4)]);
        assert_eq!(membership.next(&own(true), PATIENCE), None, "nobody sees it");
        membership.learn(&[seen(Verdict::Writable.word(), 5)]);
        assert_eq!(membership.next(&own(true), PATIENCE), None);
        assert_ne!(membership.holding(PATIENCE), Holding::No);
        let now = 2 * PATIENCE;
        assert_eq!(membership.next(&own(true), now), None, "it is still up");
        assert_eq!(membership.holding(now), Holding::No);
        assert!(membership.next(&own(false), now).is_some(), "it deletes the record");
        membership.learn(&[News { path: "address".to_owned(), value: None, revision: 6 }]);
        let writer = Writer { node: "a".to_owned(), timeline: 1, system: 1 };
        let sees = Own { primary: Some(writer), ..own(false) };
        let later = now + ABSTENTION;
        assert_eq!(membership.next(&own(false), later), None, "it is blind");
        assert_eq!(membership.next(&sees, later - 1), None);
        assert!(membership.next(&sees, later).is_some(), "it takes the address");
    }
}
