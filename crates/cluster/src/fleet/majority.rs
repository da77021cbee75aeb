//! When the leader may begin to replace a lost primary.

use super::view::View;

/// Why the leader does not begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Hesitation {
    #[error("this Weir holds no lease at etcd")]
    NoLease,
    #[error("no member leads yet")]
    NoLeader,
    #[error("member {0} leads")]
    OtherLeader(String),
    #[error("FAILOVER PAUSE was said to member {0}")]
    Paused(String),
    #[error("the members have agreed on no primary yet")]
    NoTerm,
    #[error("node {0} is being replaced as the primary already")]
    Changing(String),
    #[error("the members have agreed on node {0} as the primary")]
    OtherWriter(String),
    #[error("{lost} of {members} members see that node {node} is lost, and {needed} are needed")]
    Minority { node: String, lost: usize, members: usize, needed: usize },
    #[error("etcd has not written the term in time")]
    Unwritten,
    #[error("another member has written a term")]
    Overtaken,
    #[error("clients of this Weir still use the primary")]
    Busy,
    #[error("the process before this one may still send to the primary")]
    Predecessor,
    #[error("these members hold a lease and have not confirmed that they wait: {0}")]
    Awaited(String),
}

/// Returns how many of so many members are a majority.
#[must_use]
pub fn majority_of(members: usize) -> usize {
    members / 2 + 1
}

impl View {
    /// Do a majority of the members see that the writer `node` is lost? `me` does, by facts of its
    /// own that are newer than its records.
    ///
    /// # Errors
    /// Why not.
    pub fn is_lost_by_majority(&self, me: &str, node: &str) -> Result<(), Hesitation> {
        let everybody = self.everybody();
        let sees = |member: &&str| {
            let seen = self.seen.get(*member).and_then(|nodes| nodes.get(node));
            *member == me || seen.is_some_and(|seen| seen.is_lost)
        };
        let lost = everybody.iter().filter(|member| sees(member)).count();
        let (members, needed) = (everybody.len(), majority_of(everybody.len()));
        match lost >= needed {
            true => Ok(()),
            false => Err(Hesitation::Minority { node: node.to_owned(), lost, members, needed }),
        }
    }

    /// Do a majority of the members see that `node` is lost, although `me` sees it?
    #[must_use]
    pub fn is_overruled(&self, me: &str, node: &str) -> bool {
        let sees = |member: &&&str| {
            let seen = self.seen.get(**member).and_then(|nodes| nodes.get(node));
            **member != me && seen.is_some_and(|seen| seen.is_lost)
        };
        let everybody = self.everybody();
        everybody.iter().filter(sees).count() >= majority_of(everybody.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::records::{FORMAT, Member, Seen};

    /// Returns a view with so many members; the second number of them see that `a` is lost, and the
    /// others are silent.
    fn view(members: usize, lost: usize) -> View {
        let mut view = View::default();
        for at in 0..members {
            let own = Member {
                format: FORMAT,
                version: String::new(),
                instance: String::new(),
                confirmed: 0,
                follows: false,
            };
            view.members.insert(at.to_string(), own);
            if at < lost {
                let seen = Seen { state: "down".to_owned(), why: String::new(), is_lost: true };
                view.seen.entry(at.to_string()).or_default().insert("a".to_owned(), seen);
            }
        }
        view
    }

    /// The table of docs/high-availability.md: members, those that must agree, those that may be dead.
    #[test]
    fn a_majority_of_all_members_must_see_the_loss() {
        for (members, needed) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)] {
            assert_eq!(majority_of(members), needed);
            assert_eq!(view(members, needed).is_lost_by_majority("0", "a"), Ok(()));
            if needed > 1 {
                let node = "a".to_owned();
                let lost = needed - 1;
                let why = Hesitation::Minority { node, lost, members, needed };
                assert_eq!(view(members, lost).is_lost_by_majority("0", "a"), Err(why));
            }
        }
    }

    #[test]
    fn a_leader_that_sees_the_node_is_overruled_by_a_majority() {
        assert!(view(3, 2).is_overruled("2", "a"));
        assert!(!view(3, 2).is_overruled("1", "a"));
        assert!(!view(4, 2).is_overruled("3", "a"));
    }
}
