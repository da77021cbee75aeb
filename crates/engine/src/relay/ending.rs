//! May a client's unanswered requests have ended its transaction? That decides what the client is
//! told when its server is lost. Texts that are not known count as a COMMIT.

use sql::Verb;

/// The effect of requests on the transaction that was open before them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ending {
    /// They do not end it.
    #[default]
    None,
    /// They roll it back, and do nothing after that.
    Rollback,
    /// They may commit it, or do something outside of it.
    Commit,
}

impl Ending {
    /// Returns the effect of a text.
    pub(crate) fn of(text: &[u8]) -> Self {
        let text = text.strip_suffix(b"\0").unwrap_or(text);
        if is_plain(text) {
            return Self::None;
        }
        // A setting decides whether a backslash continues a string.
        if text.contains(&b'\\') {
            return Self::Commit;
        }
        let endings = sql::statements(text, true).filter_map(|statement| match statement.verb {
            Verb::Empty => None,
            Verb::Rollback => Some(Self::Rollback),
            Verb::Commit
            | Verb::PrepareTransaction
            | Verb::CommitPrepared
            | Verb::RollbackPrepared => Some(Self::Commit),
            Verb::Begin
            | Verb::Savepoint
            | Verb::RollbackTo
            | Verb::Release
            | Verb::Set { .. }
            | Verb::Reset
            | Verb::ResetAll
            | Verb::Discard(_)
            | Verb::Prepare
            | Verb::Execute
            | Verb::Deallocate
            | Verb::DeallocateAll
            | Verb::Listen
            | Verb::Unlisten
            | Verb::UnlistenAll
            | Verb::Other => Some(Self::None),
        });
        endings.fold(Self::None, Self::then)
    }

    /// Returns the effect of these requests with another one after them.
    pub(crate) fn then(self, next: Self) -> Self {
        match self {
            Self::None => next,
            // The next request is outside of the transaction.
            Self::Rollback | Self::Commit => Self::Commit,
        }
    }
}

/// The effect of a client's requests on its transaction, in pools that need it.
#[derive(Debug, Default)]
pub(crate) struct Endings {
    /// The effect of the unanswered requests.
    unanswered: Ending,
    /// The effect of the portals in the transaction that later requests may still execute.
    bound: Ending,
}

impl Endings {
    pub(crate) fn unanswered(&self) -> Ending {
        self.unanswered
    }

    /// A request begins, and everything before it is answered. `is_idle`: no transaction is open.
    #[inline]
    pub(crate) fn begin(&mut self, is_idle: bool) {
        if is_idle {
            self.bound = Ending::None;
        }
        self.unanswered = self.bound;
    }

    /// A text is executed.
    pub(crate) fn add(&mut self, next: Ending) {
        self.unanswered = self.unanswered.then(next);
    }

    /// A portal is bound to a text. A later request may execute it.
    pub(crate) fn bind(&mut self, next: Ending) {
        self.add(next);
        if next != Ending::None {
            self.bound = Ending::Commit;
        }
    }
}

/// Is this a single statement whose first word ends no transaction? A cheap test for most texts.
fn is_plain(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    let text = text.strip_suffix(b";").unwrap_or(text);
    let len = text.iter().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(text.len());
    let word = &text[..len];
    let ends = [&b"commit"[..], b"end", b"rollback", b"abort", b"prepare"];
    !word.is_empty()
        && !ends.iter().any(|end| word.eq_ignore_ascii_case(end))
        && !text.contains(&b';')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_end_a_transaction_or_not() {
        for (text, expected) in [
            ("SELECT 1", Ending::None),
            (" insert into t values (1);\0", Ending::None),
            ("SELECT ';commit'", Ending::None),
            ("SELECT 1; SELECT 2", Ending::None),
            ("ROLLBACK TO SAVEPOINT a", Ending::None),
            ("SAVEPOINT a; RELEASE a", Ending::None),
            ("(SELECT 1)", Ending::None),
            ("", Ending::None),
            ("PREPARE a AS SELECT 1", Ending::None),
            ("rollback", Ending::Rollback),
            ("ABORT WORK;\0", Ending::Rollback),
            ("/* c */ rollback;;", Ending::Rollback),
            ("COMMIT", Ending::Commit),
            ("end transaction", Ending::Commit),
            ("--\nCOMMIT AND CHAIN", Ending::Commit),
            ("PREPARE TRANSACTION 'a'", Ending::Commit),
            ("SELECT 1; COMMIT", Ending::Commit),
            ("ROLLBACK; INSERT INTO t VALUES (1)", Ending::Commit),
            ("SELECT '\\'; commit; --'", Ending::Commit),
        ] {
            assert_eq!(Ending::of(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn a_portal_may_be_executed_until_the_transaction_ends() {
        let mut endings = Endings::default();
        endings.bind(Ending::of(b"SELECT 1"));
        endings.begin(false);
        assert_eq!(endings.unanswered, Ending::None);
        endings.bind(Ending::of(b"ROLLBACK"));
        assert_eq!(endings.unanswered, Ending::Rollback);
        endings.begin(false);
        assert_eq!(endings.unanswered, Ending::Commit);
        endings.begin(true);
        endings.begin(false);
        assert_eq!(endings.unanswered, Ending::None);
    }

    #[test]
    fn requests_after_a_rollback_are_outside_of_the_transaction() {
        use Ending::{Commit, None, Rollback};
        assert_eq!(None.then(None), None);
        assert_eq!(None.then(Rollback), Rollback);
        assert_eq!(Rollback.then(None), Commit);
        assert_eq!(Commit.then(Rollback), Commit);
    }
}
