//! The transaction status of a server, and the outcome of its client's transactions, for
//! `reuse_after_error`.

/// The transaction status of the last ReadyForQuery, and the outcome of the client's last
/// transaction.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// `I` idle, `T` in a transaction, `E` in a failed one.
    byte: u8,
    outcome: Outcome,
}

/// The outcome of a client's last transaction on its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Outcome {
    #[default]
    Fine,
    /// It is open, and an error has occurred. It may still recover (ROLLBACK TO).
    Failing,
    /// It has ended after an error, and no command has succeeded since then.
    Failed,
}

impl Default for Status {
    fn default() -> Self {
        Self { byte: b'I', outcome: Outcome::Fine }
    }
}

impl Status {
    /// Returns the status of a server of another process. `has_failed`: see `has_ended_failed`.
    pub(crate) fn imported(byte: u8, has_failed: bool) -> Self {
        Self { byte, outcome: if has_failed { Outcome::Failed } else { Outcome::Fine } }
    }

    /// Returns `I`, `T` or `E`, as in ReadyForQuery.
    #[inline]
    pub fn byte(self) -> u8 {
        self.byte
    }

    /// Is no transaction open?
    #[inline]
    pub fn is_idle(self) -> bool {
        self.byte == b'I'
    }

    /// Is a transaction open that has failed?
    #[inline]
    pub(crate) fn is_failed(self) -> bool {
        self.byte == b'E'
    }

    /// Has the client's last transaction ended after an error?
    pub(crate) fn has_ended_failed(self) -> bool {
        self.outcome == Outcome::Failed
    }

    /// Has the client got an error in its last transaction, and not recovered from it?
    #[inline]
    pub(crate) fn has_failed(self) -> bool {
        self.outcome != Outcome::Fine
    }

    /// The outcome no longer matters.
    pub(crate) fn forgive(&mut self) {
        self.outcome = Outcome::Fine;
    }

    /// The client gets an error.
    pub(super) fn error(&mut self) {
        self.outcome = Outcome::Failing;
    }

    /// A command of the client has succeeded.
    #[inline(always)]
    pub(super) fn succeeds(&mut self) {
        if self.outcome == Outcome::Failed {
            self.outcome = Outcome::Fine;
        }
    }

    /// ReadyForQuery has come with this status, for the client or for Weir.
    #[inline(always)]
    pub(super) fn ready(&mut self, byte: u8, is_clients: bool) {
        self.byte = byte;
        if is_clients && self.outcome != Outcome::Fine {
            self.outcome = after(self.outcome, byte);
        }
    }
}

#[cold]
fn after(outcome: Outcome, status: u8) -> Outcome {
    match (outcome, status) {
        (Outcome::Failing, b'E') => Outcome::Failing,
        (Outcome::Failing, b'I') => Outcome::Failed,
        // It has returned to a savepoint.
        (Outcome::Failing, _) => Outcome::Fine,
        // A lone Sync is no command.
        (Outcome::Failed | Outcome::Fine, _) => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::{Outcome, after};

    #[track_caller]
    fn ends(statuses: &[u8], expected: Outcome) {
        let end = statuses.iter().fold(Outcome::Failing, |outcome, status| after(outcome, *status));
        assert_eq!(end, expected, "{}", statuses.escape_ascii());
    }

    #[test]
    fn a_transaction_fails_if_it_ends_after_an_error() {
        ends(b"I", Outcome::Failed);
        ends(b"EEI", Outcome::Failed);
        ends(b"ET", Outcome::Fine);
        ends(b"ETI", Outcome::Fine);
        ends(b"II", Outcome::Failed);
    }
}
