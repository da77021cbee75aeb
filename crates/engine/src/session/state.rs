//! A client's session, which is more than the sessions of the servers it meets
//! (`pool_mode = auto`): plain data. What is found out about it, and when, is in
//! `session/verdict.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sql::Signs;

use crate::notify::listening::Listening;
use crate::session::carried::Order;
use crate::session::pins::Pins;
use crate::session::text_history::Called;
use crate::values::Values;

/// What has to be known of a client's session besides its present settings (`Client::vars`).
#[derive(Debug)]
pub struct Session {
    /// Its settings when it began, to which RESET goes back.
    pub startup: Values,
    /// The order in which a server has taken its settings, if that was not the usual one.
    pub order: Option<Order>,
    /// A server has refused its settings: the one that it is being given was opened for that. False again
    /// when it has a server that is ready.
    pub renews: bool,
    /// If it listens, or has listened.
    pub listening: Option<Box<Listening>>,
}

impl Session {
    pub fn new(startup: Values) -> Self {
        Self { startup, order: None, renews: false, listening: None }
    }

    /// See [`Listening::depends_on_listener`].
    pub fn depends_on_listener(&self) -> bool {
        self.listening.as_ref().is_some_and(|own| own.depends_on_listener())
    }
}

/// The client whose numbers `currval` and `lastval` would tell on a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbers {
    #[default]
    Nobodys,
    /// Those of the client with this serial number, of this worker.
    Of(u64),
    Strangers,
}

impl Numbers {
    /// The client with this serial number has used the server.
    pub fn after(self, client: u64) -> Self {
        match self {
            Self::Nobodys => Self::Of(client),
            Self::Of(owner) if owner == client => self,
            Self::Of(_) | Self::Strangers => Self::Strangers,
        }
    }
}

/// Statements that a server has for a while under its client's own names.
pub(crate) type AllLent = BTreeMap<Arc<[u8]>, Lent>;

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct Lent {
    /// Serial number of the Parse.
    pub since: u64,
    /// Has the server a placeholder of that name, with which EXECUTE would fail? The text that it was
    /// lent for can be read in one way only.
    pub is_placeholder: bool,
}

/// Names of its client's that a server's texts deallocate one by one (`DEALLOCATE name`), in their
/// order. Which of the texts it has come to its answers tell.
#[derive(Debug, Default)]
pub struct Deallocations(VecDeque<Deallocation>);

#[derive(Debug)]
struct Deallocation {
    /// Serial number of the Query or Execute.
    by: u64,
    /// None if the client has not prepared it through the protocol.
    name: Option<Arc<[u8]>>,
}

impl Deallocations {
    /// Names beyond these are the client's until it is asked what is left.
    const MAX: usize = 1024;

    /// Messages before `first` have been answered.
    pub fn note(&mut self, by: u64, name: Option<Arc<[u8]>>, first: u64) {
        while self.0.front().is_some_and(|one| one.by < first) {
            self.0.pop_front();
        }
        if self.0.len() < Self::MAX {
            self.0.push_back(Deallocation { by, name });
        }
    }

    /// The next of those that message `by` names is done.
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

/// What the texts of a transaction may leave in the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traces {
    pub signs: Signs,
    /// The functions that are to blame, if those of one text are and nothing else is.
    pub called: Called,
    /// Of the text that was seen last; 0 if it is not known.
    pub fingerprint: u64,
    /// Was a function of `pin_functions` called?
    pub named: bool,
    /// May a setting be there that cannot be asked about?
    pub incomplete: bool,
    /// Has PostgreSQL said that all statements are gone?
    pub deallocates: bool,
    /// Has PostgreSQL said that something was reset?
    pub resets: bool,
    /// The question about them has failed. It is asked again behind the next transaction.
    pub put_off: bool,
    pub outcome: Outcome,
}

/// What has become of the texts, as far as PostgreSQL has told: a function that nobody has called
/// has left nothing, and nor has one whose transaction was rolled back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// They were to be run, and not only prepared.
    pub called: bool,
    /// Rows have come of something.
    rows: bool,
    /// Something failed, was taken back, had no rows, or was another command than those that run
    /// functions.
    pub doubtful: bool,
}

impl Outcome {
    /// A command was completed.
    pub fn completed(&mut self, tag: &[u8]) {
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

    /// The functions were called, and what they did was committed.
    pub fn is_proof(self) -> bool {
        self.called && self.rows && !self.doubtful
    }
}

impl Traces {
    pub fn is_empty(self) -> bool {
        self.signs.is_empty()
    }

    /// Is the server to be asked about them as soon as the transaction is over?
    pub fn are_due(self) -> bool {
        !self.is_empty() && !self.put_off
    }

    pub fn add(&mut self, signs: Signs, called: Called, fingerprint: u64) {
        if self.is_empty() {
            // What command tags said of transactions that nobody was suspicious of.
            *self = Self { called, ..Self::default() };
        }
        if self.called.names != called.names {
            self.called = Called::default();
        } else if self.called.here != called.here {
            self.called.here = 0;
        }
        self.put_off = false;
        self.signs |= signs;
        self.fingerprint = fingerprint;
    }

    /// The server has reported what the transaction has left.
    pub fn note_report(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
        self.put_off = false;
        self.signs |= Signs::OPAQUE;
    }

    /// Reasons to keep the server that no probe would show.
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

    /// Functions that left it, if anything was left.
    pub fn suspects(self) -> Option<Called> {
        (self.signs == Signs::OPAQUE && self.called.names != 0).then_some(self.called)
    }
}
