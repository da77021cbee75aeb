//! Time limits of clients that backends serve: `query_timeout` and those of transactions.
//!
//! They cost a backend no time. When a transaction is so old that a limit may have passed, Weir
//! asks its backend what the client does, and judges the answer.

use config::PoolMode;
use engine::{ids::Micros, server::CloseReason, settings::PoolSettings};

/// The limits of a pool; 0 = none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) query: Micros,
    pub(super) idle_transaction: Micros,
    pub(super) transaction: Micros,
    /// Of a client that keeps its backend and runs nothing.
    pub(super) pinned: Micros,
}

/// A client's activity, as its backend tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    AtRest,
    /// A query runs since then.
    Runs(Micros),
    /// A transaction is open, and the client has been idle since then.
    Idles(Micros),
}

/// The result of a judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Late(CloseReason<'static>),
    /// No limit can have passed before this time.
    NotBefore(Micros),
}

/// The next look at a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// Its number in its backend's line.
    pub(super) transaction: u64,
    pub(super) due: Micros,
    /// When the backend was asked first; 0 = it was not.
    pub(super) asked_at: Micros,
}

impl Limits {
    pub(super) fn of(settings: &PoolSettings) -> Self {
        Self {
            query: settings.query_timeout,
            idle_transaction: settings.idle_transaction_timeout,
            transaction: settings.transaction_timeout,
            pinned: match settings.mode {
                PoolMode::Auto => settings.pin_timeout,
                PoolMode::Session | PoolMode::Transaction | PoolMode::Statement => 0,
            },
        }
    }

    /// Returns the time after which a limit may have passed; `None` if there are none.
    pub(super) fn shortest(&self) -> Option<Micros> {
        let all = [self.query, self.idle_transaction, self.transaction];
        all.into_iter().filter(|limit| *limit > 0).min()
    }

    /// Judges a transaction that began at `began`. The limits are checked in the same order as for
    /// proxied clients.
    pub(super) fn judge(&self, doing: Doing, began: Micros, now: Micros) -> Verdict {
        let is_over = |limit: Micros, since: Micros| limit > 0 && now > since + limit;
        let reason = match doing {
            Doing::Runs(since) if is_over(self.query, since) => Some(CloseReason::QueryTimeout),
            Doing::Idles(since) if is_over(self.idle_transaction, since) => {
                Some(CloseReason::IdleTransactionTimeout)
            }
            Doing::Runs(_) | Doing::Idles(_) if is_over(self.transaction, began) => {
                Some(CloseReason::TransactionTimeout)
            }
            Doing::AtRest | Doing::Runs(_) | Doing::Idles(_) => None,
        };
        if let Some(reason) = reason {
            return Verdict::Late(reason);
        }
        // The client may begin another activity at any moment, so that counts from now.
        let (query, idle, transaction) = match doing {
            Doing::AtRest => (now, now, now),
            Doing::Runs(since) => (since, now, began),
            Doing::Idles(since) => (now, since, began),
        };
        let ends =
            [(self.query, query), (self.idle_transaction, idle), (self.transaction, transaction)];
        let ends = ends.into_iter().filter(|(limit, _)| *limit > 0);
        Verdict::NotBefore(ends.map(|(limit, since)| since + limit).min().unwrap_or(Micros::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Micros = 1_000_000;
    const ALL: Limits =
        Limits { query: 10 * S, idle_transaction: 20 * S, transaction: 60 * S, pinned: 0 };

    #[test]
    fn each_limit_has_its_text() {
        let at = 1_000 * S;
        for (doing, began, text) in [
            (Doing::Runs(at - 11 * S), at - 11 * S, "query timeout"),
            (Doing::Idles(at - 21 * S), at - 30 * S, "idle transaction timeout"),
            (Doing::Runs(at - 5 * S), at - 61 * S, "transaction timeout"),
            (Doing::Idles(at - 5 * S), at - 61 * S, "transaction timeout"),
        ] {
            let Verdict::Late(reason) = ALL.judge(doing, began, at) else { panic!("{text}") };
            assert_eq!(reason.text(), text);
        }
    }

    #[test]
    fn it_is_looked_at_when_the_next_limit_may_have_passed() {
        let at = 1_000 * S;
        for (doing, began, due) in [
            (Doing::AtRest, at - 500 * S, at + 10 * S),
            (Doing::Runs(at - 4 * S), at - 4 * S, at + 6 * S),
            (Doing::Idles(at - 15 * S), at - 16 * S, at + 5 * S),
            (Doing::Idles(at - 3 * S), at - 58 * S, at + 2 * S),
        ] {
            assert_eq!(ALL.judge(doing, began, at), Verdict::NotBefore(due), "{doing:?}");
        }
    }

    #[test]
    fn a_limit_of_0_is_none() {
        let none = Limits::default();
        assert_eq!(none.shortest(), None);
        let verdict = none.judge(Doing::Runs(1), 1, 1_000 * S);
        assert_eq!(verdict, Verdict::NotBefore(Micros::MAX));
        assert_eq!(Limits { query: 0, ..ALL }.shortest(), Some(20 * S));
    }
}
