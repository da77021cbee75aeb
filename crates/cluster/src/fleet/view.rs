//! All records of a cluster, as one member has seen them.

use std::collections::{BTreeMap, BTreeSet};

use super::membership::News;
use super::records::{FORMAT, Holder, Leader, Member, Pause, Record, Seen, Term};
use crate::Verdict;

/// A record with the revision of etcd at which it was changed last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revised<T> {
    pub record: T,
    pub revision: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The view is not older than this revision of etcd.
    pub revision: i64,
    pub members: BTreeMap<String, Member>,
    /// By member and node. A member without an entry has lost its lease.
    pub seen: BTreeMap<String, BTreeMap<String, Seen>>,
    pub leader: Option<Revised<Leader>>,
    pub term: Option<Revised<Term>>,
    pub pause: Option<Pause>,
    pub address: Option<Revised<Holder>>,
    /// The records that cannot be read, by their paths, with the reason.
    pub broken: BTreeMap<String, String>,
    /// The revisions of the members' own records, by their paths.
    pub revisions: BTreeMap<String, i64>,
}

impl View {
    /// Learns a record, or a change of it.
    pub(super) fn learn(&mut self, News { path, value, revision }: &News) {
        match value {
            Some(value) => self.put(path, value, *revision),
            None => self.delete(path, *revision),
        }
    }

    /// Learns that a record was written at this revision.
    fn put(&mut self, path: &str, value: &[u8], revision: i64) {
        self.revision = self.revision.max(revision);
        self.broken.remove(path);
        if path.starts_with("members/") {
            self.revisions.insert(path.to_owned(), revision);
        }
        let record = match Record::read(path, value) {
            None => return,
            Some(Err(why)) => {
                self.broken.insert(path.to_owned(), why);
                return;
            }
            Some(Ok(record)) => record,
        };
        if let Some(format) = record.format().filter(|format| *format > FORMAT) {
            let why =
                format!("the record {path} has format {format}, and this Weir knows {FORMAT}");
            self.broken.insert(path.to_owned(), why);
        }
        match record {
            Record::Member(member, own) => drop(self.members.insert(member, own)),
            Record::Seen(member, node, seen) => {
                self.seen.entry(member).or_default().insert(node, seen);
            }
            Record::Leader(record) => self.leader = Some(Revised { record, revision }),
            Record::Term(record) => self.term = Some(Revised { record, revision }),
            Record::Pause(record) => self.pause = Some(record),
            Record::Address(record) => self.address = Some(Revised { record, revision }),
        }
    }

    /// Learns that a record was deleted at this revision.
    fn delete(&mut self, path: &str, revision: i64) {
        self.revision = self.revision.max(revision);
        self.broken.remove(path);
        let (kind, rest) = path.split_once('/').unwrap_or((path, ""));
        match kind {
            "members" => {
                self.revisions.remove(path);
                self.members.remove(rest);
            }
            "seen" => {
                let Some((member, node)) = rest.split_once('/') else { return };
                if let Some(nodes) = self.seen.get_mut(member) {
                    nodes.remove(node);
                    if nodes.is_empty() {
                        self.seen.remove(member);
                    }
                }
            }
            "leader" => self.leader = None,
            "term" => self.term = None,
            "pause" => self.pause = None,
            "address" => self.address = None,
            _ => {}
        }
    }

    /// Returns why this version of Weir cannot take part, if the others are of a later one.
    #[must_use]
    pub fn later_format(&self) -> Option<&str> {
        let is_later = |format: u32| format > FORMAT;
        let member = self.members.iter().find(|(_, own)| is_later(own.format));
        let path = match (member, self.present()) {
            (Some((member, _)), _) => format!("members/{member}"),
            (None, Some(term)) if is_later(term.format) => "term".to_owned(),
            (None, _) => return None,
        };
        self.broken.get(&path).map(String::as_str)
    }

    /// Does another member than `me` see a primary?
    #[must_use]
    pub fn is_writable_elsewhere(&self, me: &str) -> bool {
        let others = self.seen.iter().filter(|(member, _)| *member != me);
        let mut seen = others.flat_map(|(_, nodes)| nodes.values());
        seen.any(|seen| seen.state == Verdict::Writable.word())
    }

    /// Returns the holder of the virtual address, and the revision of that record.
    pub(super) fn holder(&self) -> Option<(&Holder, i64)> {
        self.address.as_ref().map(|own| (&own.record, own.revision))
    }

    /// Returns the present term.
    #[must_use]
    pub fn present(&self) -> Option<&Term> {
        self.term.as_ref().map(|term| &term.record)
    }

    /// Does the member hold its lease, as far as etcd knows?
    #[must_use]
    pub fn is_alive(&self, member: &str) -> bool {
        self.seen.contains_key(member)
    }

    /// Does this process of the member lead?
    #[must_use]
    pub fn leads(&self, member: &str, instance: &str) -> bool {
        let is_it = |leader: &Leader| leader.member == member && leader.instance == instance;
        self.leader.as_ref().is_some_and(|leader| is_it(&leader.record))
    }

    /// Returns the members, also those that have registered nothing but what they see.
    pub(super) fn everybody(&self) -> BTreeSet<&str> {
        self.members.keys().chain(self.seen.keys()).map(String::as_str).collect()
    }

    /// Returns the members but `me` that hold a lease and have not confirmed the term of this number.
    pub fn awaited<'a>(&'a self, me: &'a str, number: u64) -> impl Iterator<Item = &'a str> {
        let has_confirmed = move |member: &str| {
            self.members.get(member).is_some_and(|own| own.follows || own.confirmed >= number)
        };
        self.seen
            .keys()
            .map(String::as_str)
            .filter(move |member| *member != me && !has_confirmed(member))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_follows_the_records() {
        let mut view = View::default();
        view.put("members/x", br#"{"format":1,"version":"1","instance":"i","confirmed":4}"#, 3);
        view.put("seen/x/a", br#"{"state":"down","why":"","is_lost":true}"#, 5);
        view.put("seen/y/a", br#"{"state":"down","why":"","is_lost":true}"#, 4);
        assert_eq!(view.revision, 5);
        assert_eq!(view.awaited("z", 4).collect::<Vec<_>>(), ["y"]);
        assert_eq!(view.awaited("z", 5).collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!(view.awaited("x", 5).collect::<Vec<_>>(), ["y"]);
        view.delete("seen/x/a", 6);
        assert!(!view.is_alive("x") && view.is_alive("y"));
        // A silent member is still a member.
        assert!(view.members.contains_key("x"));
    }

    #[test]
    fn a_record_of_a_later_version_is_reported_and_used() {
        let mut view = View::default();
        view.put("members/x", br#"{"format":2,"version":"9","instance":"i","confirmed":0}"#, 1);
        let why = "the record members/x has format 2, and this Weir knows 1";
        assert_eq!(view.broken["members/x"], why);
        assert!(view.members.contains_key("x"));
        view.put("term", b"?", 2);
        assert!(view.broken["term"].contains("cannot be read"));
        view.delete("term", 3);
        assert!(!view.broken.contains_key("term"));
    }
}
