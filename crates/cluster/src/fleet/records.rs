//! The records of a cluster in etcd, as JSON. The keys are below `PREFIX/CLUSTER/`:
//!
//! | key | value | life |
//! |---|---|---|
//! | `members/ID` | [`Member`] | until the member leaves |
//! | `seen/ID/NODE` | [`Seen`] | as long as the member's lease |
//! | `leader` | [`Leader`] | as long as the leader's lease |
//! | `term` | [`Term`] | for ever |
//! | `pause` | [`Pause`] | until FAILOVER RESUME |
//! | `address` | [`Holder`] | as long as the holder's lease |

use serde::{Deserialize, Serialize};

/// The version of the records. A member that finds a higher one leaves.
pub const FORMAT: u32 = 1;

/// A Weir. It is a member until it leaves, or an operator removes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub format: u32,
    /// The version of Weir, for operators.
    pub version: String,
    /// A random word of the process. Two processes may not have one name.
    pub instance: String,
    /// The number of the last term for which the member has no connection to the writer open.
    pub confirmed: u64,
    /// It has `failover = follow`: it neither needs a lease nor confirms terms.
    #[serde(default)]
    pub follows: bool,
}

/// The state of a node, as a member sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The word of the verdict.
    pub state: String,
    /// Why, or empty.
    pub why: String,
    /// It is the primary, and certainly down.
    pub is_lost: bool,
}

/// The member that writes the term.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    pub member: String,
    pub instance: String,
}

/// A primary, as all members know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writer {
    /// The name of the node.
    pub node: String,
    pub timeline: u32,
    /// The system identifier of the cluster.
    pub system: u64,
}

/// The node that accepts writes, or how it is being replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Term {
    pub format: u32,
    /// Each term has the number after that of the last one.
    pub number: u64,
    /// The writer; with another phase than `Serving` the last one.
    pub writer: Writer,
    pub phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    Serving,
    /// A planned change: clients get no server at the writer any more.
    Draining {
        to: String,
    },
    /// No connection to the writer may be open.
    Closed {
        /// `fence_command` has succeeded.
        is_fenced: bool,
        /// The node that was ordered to promote itself. It may do so at any time.
        ordered: Option<String>,
    },
}

/// An operator has forbidden that Weir changes the primary by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// The member whose console has said it.
    pub by: String,
}

/// The member with the virtual address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub member: String,
    pub instance: String,
}

impl Term {
    /// Returns the first term of a cluster, or the one after `last`.
    #[must_use]
    pub fn after(last: Option<&Self>, writer: Writer, phase: Phase) -> Self {
        let number = last.map_or(0, |last| last.number) + 1;
        Self { format: FORMAT, number, writer, phase }
    }
}

/// One key of etcd with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Member(String, Member),
    /// The member, the node, and what it sees.
    Seen(String, String, Seen),
    Leader(Leader),
    Term(Term),
    Pause(Pause),
    Address(Holder),
}

impl Record {
    /// Reads a record. `path` is the key without the prefix of the cluster. None: no record of ours.
    ///
    /// # Errors
    /// Why the value cannot be read.
    pub fn read(path: &str, value: &[u8]) -> Option<Result<Self, String>> {
        let (kind, rest) = path.split_once('/').unwrap_or((path, ""));
        let read = match kind {
            "members" => json(value).map(|own| Self::Member(rest.to_owned(), own)),
            "seen" => {
                let (member, node) = rest.split_once('/')?;
                json(value).map(|own| Self::Seen(member.to_owned(), node.to_owned(), own))
            }
            "leader" => json(value).map(Self::Leader),
            "term" => json(value).map(Self::Term),
            "pause" => json(value).map(Self::Pause),
            "address" => json(value).map(Self::Address),
            _ => return None,
        };
        Some(read.map_err(|error| format!("the record {path} in etcd cannot be read: {error}")))
    }

    /// Returns the key without the prefix of the cluster.
    #[must_use]
    pub fn path(&self) -> String {
        match self {
            Self::Member(member, _) => format!("members/{member}"),
            Self::Seen(member, node, _) => format!("seen/{member}/{node}"),
            Self::Leader(_) => "leader".to_owned(),
            Self::Term(_) => "term".to_owned(),
            Self::Pause(_) => "pause".to_owned(),
            Self::Address(_) => "address".to_owned(),
        }
    }

    /// Returns the value.
    #[must_use]
    pub fn value(&self) -> String {
        let value = match self {
            Self::Member(_, own) => serde_json::to_string(own),
            Self::Seen(_, _, own) => serde_json::to_string(own),
            Self::Leader(own) => serde_json::to_string(own),
            Self::Term(own) => serde_json::to_string(own),
            Self::Pause(own) => serde_json::to_string(own),
            Self::Address(own) => serde_json::to_string(own),
        };
        value.unwrap_or_default()
    }

    /// Does the record live as long as the lease of its member?
    #[must_use]
    pub fn is_leased(&self) -> bool {
        match self {
            Self::Seen(..) | Self::Leader(_) | Self::Address(_) => true,
            Self::Member(..) | Self::Term(_) | Self::Pause(_) => false,
        }
    }

    /// Returns the version of the record, if it has one.
    #[must_use]
    pub fn format(&self) -> Option<u32> {
        match self {
            Self::Member(_, own) => Some(own.format),
            Self::Term(own) => Some(own.format),
            Self::Seen(..) | Self::Leader(_) | Self::Pause(_) | Self::Address(_) => None,
        }
    }
}

fn json<'a, T: Deserialize<'a>>(value: &'a [u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let writer = Writer { node: "a".to_owned(), timeline: 3, system: u64::MAX };
        let closed = Phase::Closed { is_fenced: true, ordered: Some("b".to_owned()) };
        let me = ("weir1:6432".to_owned(), "b".to_owned());
        for record in [
            Record::Term(Term::after(None, writer.clone(), Phase::Serving)),
            Record::Term(Term::after(None, writer.clone(), Phase::Draining { to: "b".to_owned() })),
            Record::Term(Term::after(None, writer, closed)),
            Record::Leader(Leader { member: me.0.clone(), instance: "x".to_owned() }),
            Record::Seen(
                me.0.clone(),
                me.1,
                Seen { state: "down".to_owned(), why: String::new(), is_lost: true },
            ),
            Record::Pause(Pause { by: me.0.clone() }),
            Record::Address(Holder { member: me.0.clone(), instance: "x".to_owned() }),
            Record::Member(
                me.0,
                Member {
                    format: FORMAT,
                    version: "1".to_owned(),
                    instance: "x".to_owned(),
                    confirmed: 9,
                    follows: true,
                },
            ),
        ] {
            let read = Record::read(&record.path(), record.value().as_bytes());
            assert_eq!(read, Some(Ok(record)));
        }
    }

    #[test]
    fn other_keys_are_no_records_and_a_broken_record_says_so() {
        assert_eq!(Record::read("config/x", b"{}"), None);
        assert_eq!(Record::read("seen/x", b"{}"), None);
        let broken = Record::read("term", b"{}").expect("a record").expect_err("broken");
        assert!(broken.starts_with("the record term in etcd cannot be read: missing field"));
    }
}
