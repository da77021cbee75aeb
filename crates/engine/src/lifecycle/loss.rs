//! The loss of a client with its server, and the error that the client gets: plain data.
//! `lifecycle/lost.rs` finds it out, `engine/losses.rs` tells the client.
//!
//! | the client | is told |
//! |---|---|
//! | has nothing on the server | nothing |
//! | has an open transaction | 40001 |
//! | has sent a request that may have committed | 08007 |
//! | has session state that Weir does not carry, and lost no commit | 08006 |
//!
//! Programs repeat a transaction after 40001 by themselves. Without its session state (a lock, a
//! temporary table) that would be wrong, hence 08006.

use wire::error_fields::ErrorFields;
use wire::sqlstate::{CONNECTION_FAILURE, SERIALIZATION_FAILURE, TRANSACTION_RESOLUTION_UNKNOWN};

use crate::relay::ending::Ending;
use crate::relay::ledger::{Rest, Unanswered};

/// The state of a client's work on the lost server.
#[derive(Debug)]
pub(crate) struct Loss<'a> {
    /// Transaction status of the last ReadyForQuery.
    pub(crate) status: u8,
    pub(crate) unanswered: Unanswered,
    /// May the unanswered requests have ended the transaction?
    pub(crate) ending: Ending,
    /// Are they of a kind that cannot change anything? That the server was a standby is no proof: it
    /// may have been promoted a moment ago.
    pub(crate) is_harmless: bool,
    /// The lost state of the session, in words; empty if there is none.
    pub(crate) session: String,
    pub(crate) reason: &'a str,
}

/// A client whose transaction or session was lost with its server.
#[derive(Debug)]
pub struct Failed {
    /// The error for its next request, if it has not been told.
    pub(crate) error: Option<ErrorFields>,
    pub(crate) skips: Skips,
    /// The transaction status for the client: `E` until it ends its transaction, or `I`.
    pub(crate) status: u8,
}

/// The messages of the client that are discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Skips {
    Nothing,
    /// All, up to its Sync.
    ToSync,
    /// The rest of the copy that it was sending.
    Copy,
}

impl Loss<'_> {
    /// Is it unknown whether a request has been committed?
    pub(crate) fn is_unknown(&self) -> bool {
        let may_commit = match self.status {
            b'I' => self.unanswered.requests > 0,
            _ => self.may_have_run() && self.ending == Ending::Commit,
        };
        may_commit && !self.is_harmless
    }

    /// Did the server have requests whose outcome the client does not know?
    fn may_have_run(&self) -> bool {
        let Unanswered { requests, rest } = self.unanswered;
        requests > 0 || matches!(rest, Rest::Open | Rest::Answered)
    }

    /// Returns the client's transaction status after the loss. As in PostgreSQL, a COMMIT that fails
    /// ends the transaction.
    pub(crate) fn status_after(&self) -> u8 {
        let has_ended = self.may_have_run() && self.ending != Ending::None;
        if self.status == b'I' || has_ended { b'I' } else { b'E' }
    }

    /// Returns the error for the client, unless there is nothing to tell.
    pub(crate) fn error(&self) -> Option<ErrorFields> {
        let is_known = match self.unanswered.rest {
            // The client knows that its transaction or its batch has failed.
            Rest::Failed => true,
            Rest::None => !self.unanswered.is_awaited() && self.status != b'T',
            Rest::Open | Rest::Answered => false,
        };
        if is_known && self.session.is_empty() {
            return None;
        }
        let (code, text, hint) = match (self.is_unknown(), self.session.is_empty()) {
            (true, _) => (
                TRANSACTION_RESOLUTION_UNKNOWN,
                "server connection lost: it is unknown whether the transaction was committed",
                "Weir does not repeat it. Find out whether it took effect.",
            ),
            (false, true) => (
                SERIALIZATION_FAILURE,
                "server connection lost: the transaction was rolled back",
                "Repeat the transaction.",
            ),
            (false, false) => (
                CONNECTION_FAILURE,
                "server connection lost: the session has lost state, and nothing was committed",
                "Make the lost state again before the transaction is repeated, or connect again.",
            ),
        };
        let mut error = ErrorFields::new("ERROR", code, text);
        let mut detail = format!("Reason: {}.", self.reason);
        if !self.session.is_empty() {
            detail.push_str(&format!(" Lost with the session: {}.", self.session));
        }
        error.replace(b'D', detail);
        error.replace(b'H', hint);
        Some(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Unanswered = Unanswered { requests: 0, rest: Rest::None };
    const ONE: Unanswered = Unanswered { requests: 1, rest: Rest::None };
    const OPEN: Unanswered = Unanswered { requests: 0, rest: Rest::Open };
    const ANSWERED: Unanswered = Unanswered { requests: 0, rest: Rest::Answered };
    const FAILED: Unanswered = Unanswered { requests: 0, rest: Rest::Failed };

    fn told(loss: &Loss<'_>) -> (String, char) {
        let error = loss.error();
        let code = error.map_or_else(String::new, |error| {
            String::from_utf8_lossy(error.sqlstate()).into_owned()
        });
        (code, char::from(loss.status_after()))
    }

    #[test]
    fn a_client_is_told_what_may_have_happened() {
        use Ending::{Commit, None, Rollback};
        for (status, unanswered, ending, harmless, session, code, after) in [
            (b'I', NOTHING, None, false, "", "", 'I'),
            (b'I', NOTHING, None, false, "listen", "08006", 'I'),
            (b'I', ONE, None, false, "", "08007", 'I'),
            (b'I', ONE, None, false, "advisory lock", "08007", 'I'),
            (b'I', ONE, None, true, "", "40001", 'I'),
            (b'I', OPEN, None, false, "", "40001", 'I'),
            (b'I', ANSWERED, None, false, "", "40001", 'I'),
            (b'I', FAILED, None, false, "", "", 'I'),
            (b'T', NOTHING, None, false, "", "40001", 'E'),
            (b'T', NOTHING, Commit, false, "", "40001", 'E'),
            (b'T', NOTHING, None, false, "temporary object", "08006", 'E'),
            (b'T', ONE, None, false, "", "40001", 'E'),
            (b'T', ONE, Rollback, false, "", "40001", 'I'),
            (b'T', ONE, Commit, false, "", "08007", 'I'),
            (b'T', ONE, Commit, true, "", "40001", 'I'),
            (b'T', OPEN, Commit, false, "", "08007", 'I'),
            (b'T', ANSWERED, Commit, false, "", "08007", 'I'),
            (b'T', FAILED, None, false, "", "", 'E'),
            (b'T', FAILED, Commit, false, "", "", 'E'),
            (b'E', NOTHING, None, false, "", "", 'E'),
            (b'E', NOTHING, None, false, "temporary object", "08006", 'E'),
            (b'E', ONE, None, false, "", "40001", 'E'),
            (b'E', ONE, Rollback, false, "", "40001", 'I'),
        ] {
            let session = session.to_owned();
            let is_harmless = harmless;
            let loss = Loss { status, unanswered, ending, is_harmless, session, reason: "why" };
            assert_eq!(told(&loss), (code.to_owned(), after), "{loss:?}");
        }
    }

    #[test]
    fn the_detail_names_the_reason_and_the_lost_state() {
        let loss = Loss {
            status: b'I',
            unanswered: NOTHING,
            ending: Ending::None,
            is_harmless: false,
            session: "advisory lock, temporary object".to_owned(),
            reason: "server conn crashed?",
        };
        let error = loss.error().expect("an error");
        let detail = "Reason: server conn crashed?. \
                      Lost with the session: advisory lock, temporary object.";
        assert_eq!(error.get(b'D'), Some(detail.as_bytes()));
    }
}
