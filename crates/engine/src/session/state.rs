//! A client's session as it continues over several servers (`pool_mode = auto`): plain data.
//! `session/verdict.rs` decides what changes it and when.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sql::Signs;

use crate::notify::listening::Listening;
use crate::session::carried::Order;
use crate::session::pins::Pins;
use crate::session::text_history::Called;
use crate::values::Values;

/// The part of a client's session that is not in its current settings (`Client::vars`).
#[derive(Debug)]
pub struct Session {
    /// The client's settings at login. RESET goes back to them.
    pub startup: Values,
    /// The order in which a server has accepted the client's settings, if it was not the usual one.
    pub order: Option<Order>,
    /// The number of servers that were replaced because they refused the client's settings, since a
    /// server was last ready.
    pub refusals: u8,
    /// The client's channels, if it listens or has listened.
    pub listening: Option<Box<Listening>>,
}

impl Session {
    pub fn new(startup: Values) -> Self {
        Self { startup, order: None, refusals: 0, listening: None }
    }

    /// See [`Listening::depends_on_listener`].
    pub fn depends_on_listener(&self) -> bool {
        self.listening.as_ref().is_some_and(|own| own.depends_on_listener())
    }
}

/// The client whose numbers `currval` and `lastval` would return on a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbers {
    #[default]
    Nobodys,
    /// A client of this worker, by its serial number.
    Of(u64),
    Strangers,
}

impl Numbers {
    /// The state after the client with this serial number has used the server.
    pub fn after(self, client: u64) -> Self {
        match self {
            Self::Nobodys => Self::Of(client),
            Self::Of(owner) if owner == client => self,
            Self::Of(_) | Self::Strangers => Self::Strangers,
        }
    }
}

/// Statements that a server temporarily has under its client's own names.
pub(crate) type AllLent = BTreeMap<Arc<[u8]>, Lent>;

/// One lent statement.
#[derive(Clone, Copy, Debug)]
pub struct Lent {
    /// Serial number of the Parse message.
    pub since: u64,
    /// Does the server have a placeholder under this name, so that EXECUTE fails? Such a text can
    /// be read in one way only.
    pub is_placeholder: bool,
}

/// Statement names that a server's texts deallocate one by one (`DEALLOCATE name`), in order. The
/// server's answers tell which of these texts it has run.
#[derive(Debug, Default)]
pub struct Deallocations(VecDeque<Deallocation>);

#[derive(Debug)]
struct Deallocation {
    /// Serial number of the Query or Execute message.
    by: u64,
    /// None if the client has not prepared this name through the protocol.
    name: Option<Arc<[u8]>>,
}

impl Deallocations {
    /// Limit of remembered names. Further names stay with the client until the next probe.
    const MAX: usize = 1024;

    /// Notes a name. Messages before `first` are answered.
    pub fn note(&mut self, by: u64, name: Option<Arc<[u8]>>, first: u64) {
        while self.0.front().is_some_and(|one| one.by < first) {
            self.0.pop_front();
        }
        if self.0.len() < Self::MAX {
            self.0.push_back(Deallocation { by, name });
        }
    }

    /// Takes the next name that message `by` deallocates. The server has completed it.
    pub fn take(&mut self, by: u64) -> Option<Arc<[u8]>> {
        while self.0.front().is_some_and(|one| one.by < by) {
            self.0.pop_front();
        }
        self.0.pop_front_if(|one| one.by == by)?.name
    }

    pub fn clear(&mut self) {
        if self.0.capacity() > 0 {
            self.0 = VecDeque::new();
        }
    }
}

/// Traces: the state that a transaction's texts may have left in the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traces {
    #[serde(with = "signs_as_bits")]
    pub signs: Signs,
    /// The functions that may have left it, if they are the functions of one text and nothing else
    /// may have.
    /// Another process does not know them.
    #[serde(skip)]
    pub called: Called,
    /// Is the last text known (`ServerSession::text`)?
    #[serde(skip)]
    pub knows_text: bool,
    /// Did a text call a function of `pin_functions`?
    pub named: bool,
    /// May there be a setting whose name the probe cannot contain?
    pub incomplete: bool,
    /// Has PostgreSQL confirmed that all statements are gone?
    pub deallocates: bool,
    /// Has PostgreSQL confirmed that something was reset?
    pub resets: bool,
    /// The probe has failed. It is repeated after the next transaction.
    pub put_off: bool,
    /// May an earlier transaction of a pipeline have left some of them?
    pub earlier: bool,
    pub outcome: Outcome,
}

/// The form of signs in the records of a restart.
mod signs_as_bits {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use sql::Signs;

    pub(super) fn serialize<S: Serializer>(signs: &Signs, to: S) -> Result<S::Ok, S::Error> {
        signs.bits().serialize(to)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Signs, D::Error> {
        u32::deserialize(from).map(Signs::of_bits)
    }
}

/// The texts' effects, as far as PostgreSQL's answers show. A function has left nothing if it was
/// not called, or if its transaction was rolled back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The texts were executed, and not only prepared.
    pub called: bool,
    /// A statement has returned rows.
    rows: bool,
    /// PostgreSQL has run something, at least in part.
    pub ran: bool,
    /// A statement failed, was rolled back, returned no rows, or was a command that does not run
    /// functions.
    pub doubtful: bool,
    /// A statement failed, or something was rolled back.
    #[serde(default)]
    pub undone: bool,
}

impl Outcome {
    /// Notes the tag of a completed command.
    pub fn completed(&mut self, tag: &[u8]) {
        self.ran = true;
        self.undone |= tag == b"ROLLBACK";
        let (command, count) = match tag.iter().rposition(|byte| *byte == b' ') {
            Some(at) => (&tag[..at], &tag[at + 1..]),
            None => (tag, &b""[..]),
        };
        let of_rows = [&b"SELECT"[..], b"INSERT 0", b"UPDATE", b"DELETE", b"MERGE", b"COPY"];
        if of_rows.contains(&command) && count != b"0" {
            self.rows = true;
        } else if !matches!(
            tag,
            b"BEGIN" | b"START TRANSACTION" | b"SAVEPOINT" | b"RELEASE" | b"COMMIT"
        ) {
            self.doubtful = true;
        }
    }

    /// True if the functions were certainly called and committed.
    pub fn is_proof(self) -> bool {
        self.called && self.rows && !self.doubtful
    }
}

impl Traces {
    pub fn is_empty(self) -> bool {
        self.signs.is_empty()
    }

    /// Must the server be probed as soon as the transaction is over?
    pub fn are_due(self) -> bool {
        !self.is_empty() && !self.put_off
    }

    pub fn add(&mut self, signs: Signs, called: Called) {
        if self.is_empty() {
            // Command tags of earlier transactions, which had no signs, do not count.
            *self = Self { called, ..Self::default() };
        }
        if self.called.names != called.names {
            self.called = Called::default();
        } else if self.called.here != called.here {
            self.called.here = 0;
        }
        self.put_off = false;
        self.signs |= signs;
    }

    /// Notes that the server has reported what the transaction left.
    pub fn note_report(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
        self.put_off = false;
        self.signs |= Signs::OPAQUE;
    }

    /// Reasons to keep the server that no probe shows.
    pub fn unseen_pins(self) -> Pins {
        let all = [
            (Signs::LOAD, Pins::LOAD),
            (Signs::SEED, Pins::SEED),
            (Signs::SEQUENCE, Pins::SEQUENCE),
        ];
        let found = all.into_iter().filter(|(sign, _)| self.signs.contains(*sign));
        let incomplete = if self.incomplete { Pins::SETTING } else { Pins::NONE };
        found.fold(incomplete, |pins, (_, pin)| pins | pin)
    }

    /// The functions that have left something, if anything was left.
    pub fn suspects(self) -> Option<Called> {
        (self.signs == Signs::OPAQUE && self.called.names != 0).then_some(self.called)
    }
}
