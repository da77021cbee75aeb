//! The outcome of a client's transactions, for `reuse_after_error`.

use crate::server::Server;

/// The outcome of a client's last transaction on its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Outcome {
    #[default]
    Fine,
    /// It is open, and an error has occurred. It may still recover (ROLLBACK TO).
    Failing,
    /// It has ended after an error, and no command has succeeded since then.
    Failed,
}

impl Server {
    /// Notes that the client has got an error.
    pub(crate) fn note_error(&mut self) {
        self.outcome = Outcome::Failing;
    }

    /// Notes that a command of the client has succeeded.
    #[inline(always)]
    pub(crate) fn note_success(&mut self) {
        if self.outcome == Outcome::Failed {
            self.outcome = Outcome::Fine;
        }
    }

    /// Notes ReadyForQuery with this transaction status, for the client.
    #[inline(always)]
    pub(crate) fn note_ready(&mut self, status: u8) {
        if self.outcome != Outcome::Fine {
            self.outcome = after(self.outcome, status);
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
