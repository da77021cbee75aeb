//! The events of the last hour, for the flight recorder: orders of the operator, errors, and pins. Memory
//! is fixed: there are at most so many entries, and their texts are cut.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::ids::Micros;

/// Entries of each class. Errors and pins do not push out orders.
const ENTRIES_MAX: usize = 512;
const HOUR: Micros = 3_600_000_000;
/// Equal errors within this time are one entry.
const ERRORS_MERGED: Micros = 10_000_000;
/// Equal pins within this time are one entry. They are no accident: some clients are pinned in each
/// of their transactions.
const PINS_MERGED: Micros = 60_000_000;
/// The number of last entries among which an equal one is searched for.
const LOOKED_AT: usize = 64;
const TEXT_LEN_MAX: usize = 200;
/// As `NAMEDATALEN` of PostgreSQL.
const NAME_LEN_MAX: usize = 63;
/// Pools whose errors of one second are counted. The errors of all others are counted together.
const COUNTED_MAX: usize = 64;

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    Start,
    /// The process has taken over from another one.
    Restart,
    Shutdown,
    /// PAUSE and similar orders.
    Order,
    Reload,
    ReloadFailed,
    /// Weir has ended a client with an error.
    ClientError,
    LoginFailed,
    /// A server was lost, or Weir had to close it.
    ServerFailed,
    ServerLoginFailed,
    /// The address of a server accepts no connections.
    ServerDown,
    /// It does so again.
    ServerUp,
    /// A cluster has no primary any more.
    PrimaryLost,
    /// A cluster has a primary.
    PrimaryFound,
    /// Several Weirs have agreed on a primary, or on its change.
    Term,
    /// A client keeps its server from now on (auto mode).
    Pin,
}

/// The events that share a limit.
enum Class {
    Order,
    Error,
    Pin,
}

impl EventKind {
    pub fn words(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Restart => "restart",
            Self::Shutdown => "shutdown",
            Self::Order => "order",
            Self::Reload => "reload",
            Self::ReloadFailed => "reload failed",
            Self::ClientError => "client error",
            Self::LoginFailed => "login failed",
            Self::ServerFailed => "server failed",
            Self::ServerLoginFailed => "server login failed",
            Self::ServerDown => "server down",
            Self::ServerUp => "server up",
            Self::PrimaryLost => "primary lost",
            Self::PrimaryFound => "primary found",
            Self::Term => "term",
            Self::Pin => "pin",
        }
    }

    fn class(self) -> Class {
        match self {
            Self::ClientError
            | Self::LoginFailed
            | Self::ServerFailed
            | Self::ServerLoginFailed => Class::Error,
            Self::Pin => Class::Pin,
            Self::Start
            | Self::Restart
            | Self::Shutdown
            | Self::Order
            | Self::Reload
            | Self::ReloadFailed
            | Self::ServerDown
            | Self::ServerUp
            | Self::PrimaryLost
            | Self::PrimaryFound
            | Self::Term => Class::Order,
        }
    }
}

/// Equal events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub kind: EventKind,
    /// Empty if the event is of no database.
    pub database: Arc<str>,
    pub user: Arc<str>,
    pub text: Arc<str>,
    pub first_at: Micros,
    pub last_at: Micros,
    pub count: u64,
}

/// The errors of a pool in the present second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorCount {
    /// Empty for all other pools.
    pub database: Arc<str>,
    pub user: Arc<str>,
    pub count: u32,
}

#[derive(Debug, Default)]
pub struct Journal {
    orders: VecDeque<Entry>,
    errors: VecDeque<Entry>,
    pins: VecDeque<Entry>,
    counts: Vec<ErrorCount>,
}

impl Journal {
    pub fn note(&mut self, kind: EventKind, name: (&str, &str), text: &str, now: Micros) {
        let name = (cut(name.0, NAME_LEN_MAX), cut(name.1, NAME_LEN_MAX));
        let text = cut(text, TEXT_LEN_MAX);
        let (entries, merged) = match kind.class() {
            Class::Order => (&mut self.orders, 0),
            Class::Error => {
                self.count(name);
                (&mut self.errors, ERRORS_MERGED)
            }
            Class::Pin => (&mut self.pins, PINS_MERGED),
        };
        let same = entries.iter_mut().rev().take(LOOKED_AT).find(|entry| {
            now.saturating_sub(entry.first_at) < merged
                && entry.kind == kind
                && (&*entry.database, &*entry.user, &*entry.text) == (name.0, name.1, text)
        });
        if let Some(same) = same {
            same.count += 1;
            same.last_at = now;
            return;
        }
        if entries.len() == ENTRIES_MAX {
            entries.pop_front();
        }
        let (database, user, text) = (name.0.into(), name.1.into(), text.into());
        entries.push_back(Entry {
            kind,
            database,
            user,
            text,
            first_at: now,
            last_at: now,
            count: 1,
        });
    }

    fn count(&mut self, (database, user): (&str, &str)) {
        let is_full = self.counts.len() >= COUNTED_MAX;
        let own = self.counts.iter_mut().find(|count| {
            (&*count.database, &*count.user) == (database, user)
                || is_full && count.database.is_empty()
        });
        match own {
            Some(own) => own.count = own.count.saturating_add(1),
            None => {
                let (database, user) = if is_full { ("", "") } else { (database, user) };
                let (database, user) = (database.into(), user.into());
                self.counts.push(ErrorCount { database, user, count: 1 });
            }
        }
    }

    /// Returns the errors since the last call.
    pub fn take_counts(&mut self) -> Vec<ErrorCount> {
        std::mem::take(&mut self.counts)
    }

    /// Returns the entries of the last hour, the oldest first.
    pub fn entries(&self, now: Micros) -> Vec<Entry> {
        let all = self.orders.iter().chain(&self.errors).chain(&self.pins);
        let mut all: Vec<_> =
            all.filter(|entry| now.saturating_sub(entry.last_at) <= HOUR).cloned().collect();
        all.sort_by_key(|entry| entry.first_at);
        all
    }
}

/// The first bytes of a text, up to a character's end.
fn cut(text: &str, len_max: usize) -> &str {
    &text[..text.floor_char_boundary(len_max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const APP: (&str, &str) = ("app", "alice");

    #[test]
    fn equal_errors_are_one_entry_for_ten_seconds() {
        let mut journal = Journal::default();
        for second in [1, 2, 10, 11] {
            journal.note(EventKind::ClientError, APP, "query_wait_timeout", second * 1_000_000);
        }
        let entries = journal.entries(11_000_000);
        let counts: Vec<_> = entries.iter().map(|entry| (entry.count, entry.last_at)).collect();
        assert_eq!(counts, [(3, 10_000_000), (1, 11_000_000)]);
    }

    #[test]
    fn any_number_of_errors_leaves_the_orders() {
        let mut journal = Journal::default();
        journal.note(EventKind::Reload, ("", ""), "pool_size", 1);
        for number in 0..10_000_u64 {
            let user = format!("user{number}");
            journal.note(EventKind::LoginFailed, ("app", &user), "no such user", 2 + number);
        }
        let entries = journal.entries(20_000);
        assert_eq!(entries.len(), 1 + ENTRIES_MAX);
        assert_eq!(entries[0].kind, EventKind::Reload);
        let counts = journal.take_counts();
        assert_eq!(counts.len(), COUNTED_MAX + 1);
        assert_eq!(counts.iter().map(|own| own.count).sum::<u32>(), 10_000);
        assert!(journal.take_counts().is_empty());
    }

    #[test]
    fn pins_have_their_own_limit_and_are_counted_for_a_minute() {
        let mut journal = Journal::default();
        journal.note(EventKind::ClientError, APP, "query_wait_timeout", 1);
        for second in [1, 2, 60, 61, 62] {
            journal.note(EventKind::Pin, APP, "advisory lock", second * 1_000_000);
        }
        let counts: Vec<_> =
            journal.entries(62_000_000).iter().map(|entry| (entry.kind, entry.count)).collect();
        let pin = EventKind::Pin;
        assert_eq!(counts, [(EventKind::ClientError, 1), (pin, 3), (pin, 2)]);
        assert_eq!(journal.take_counts().len(), 1, "a pin is no error");
        for number in 0..10_000_u64 {
            journal.note(EventKind::Pin, APP, &format!("fingerprint {number}"), 63_000_000);
        }
        assert_eq!(journal.entries(63_000_000).len(), 1 + ENTRIES_MAX);
    }

    #[test]
    fn texts_are_cut_at_a_character() {
        let mut journal = Journal::default();
        let long = "é".repeat(1_000);
        journal.note(EventKind::ClientError, (&long, &long), &long, 1);
        let entry = &journal.entries(1)[0];
        assert_eq!((entry.database.len(), entry.text.len()), (62, 200));
    }

    #[test]
    fn an_hour_is_told() {
        let mut journal = Journal::default();
        journal.note(EventKind::Start, ("", ""), "", 1);
        assert_eq!(journal.entries(HOUR + 1).len(), 1);
        assert!(journal.entries(HOUR + 2).is_empty());
    }
}
