//! The reasons why a request runs where it runs, and a count of each.

use std::sync::atomic::{AtomicU64, Ordering};

use sql::{CatalogView, Hint, Refusal, Verdict, hint, read_verdict, scan_either};

use crate::routing::rules::Routing;

/// The reason for the place of a request. All but the first lead to the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A standby may run it.
    Read,
    Text(Refusal),
    Hint,
    List,
    Setting,
    Long,
    Unknown,
    Listens,
    Catalogs,
    NoStandby,
    Stale,
    OwnWrite,
    OwnRead,
    Refused,
    Full,
}

const OTHERS: [Why; 14] = [
    Why::Read,
    Why::Hint,
    Why::Setting,
    Why::Long,
    Why::Unknown,
    Why::Listens,
    Why::Catalogs,
    Why::NoStandby,
    Why::Stale,
    Why::OwnWrite,
    Why::Refused,
    Why::Full,
    Why::List,
    Why::OwnRead,
];

const COUNT: usize = OTHERS.len() + Refusal::ALL.len();

impl Why {
    /// Returns all reasons.
    pub fn all() -> impl Iterator<Item = Self> {
        OTHERS.into_iter().chain(Refusal::ALL.into_iter().map(Self::Text))
    }

    /// Returns the word for this reason on the console and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Text(refusal) => refusal.name(),
            Self::Hint => "hint",
            Self::List => "list",
            Self::Setting => "setting",
            Self::Long => "long",
            Self::Unknown => "unknown",
            Self::Listens => "listens",
            Self::Catalogs => "catalogs",
            Self::NoStandby => "no standby",
            Self::Stale => "stale",
            Self::OwnWrite => "own write",
            Self::OwnRead => "own read",
            Self::Refused => "refused",
            Self::Full => "full",
        }
    }

    /// Returns the reason as a sentence.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Read => "A standby may run it.",
            Self::Text(refusal) => refusal.description(),
            Self::Hint => "A hint names the primary, or Weir does not understand the hint.",
            Self::List => "primary_texts or primary_applications names it.",
            Self::Setting => {
                "weir.route names the primary or no known place, or weir.token no position."
            }
            Self::Long => "The request has more than 16,384 bytes, or a Flush before its Sync.",
            Self::Unknown => "Weir does not have the text of the prepared statement.",
            Self::Listens => "The session listens to a channel.",
            Self::Catalogs => "The catalogs were not read since the last change of the schema.",
            Self::NoStandby => "No standby can be read.",
            Self::Stale => "The standbys are too far behind (max_staleness, max_lag_bytes).",
            Self::OwnWrite => "No standby has the writes that the read must see yet.",
            Self::OwnRead => "No standby is known to have yet what the session has read.",
            Self::Refused => "A standby has refused it, or was lost, and the primary ran it.",
            Self::Full => "All servers of the pools at the standbys are in use.",
        }
    }

    /// Returns its place in [`Why::all`].
    fn number(self) -> usize {
        match self {
            Self::Text(refusal) => OTHERS.len() + refusal as usize,
            Self::Read => 0,
            Self::Hint => 1,
            Self::Setting => 2,
            Self::Long => 3,
            Self::Unknown => 4,
            Self::Listens => 5,
            Self::Catalogs => 6,
            Self::NoStandby => 7,
            Self::Stale => 8,
            Self::OwnWrite => 9,
            Self::Refused => 10,
            Self::Full => 11,
            Self::List => 12,
            Self::OwnRead => 13,
        }
    }
}

/// Returns the judges of a text by their names, with what each says. A text with a hint, or on a list,
/// has no other judge.
pub fn judged(
    text: &[u8],
    routing: &Routing,
    schema: u64,
) -> impl Iterator<Item = (&'static str, Why)> {
    let by_hint = match hint(text) {
        Some(Hint::Primary | Hint::Unknown(_)) => Some(Why::Hint),
        Some(Hint::Standby) => Some(Why::Read),
        Some(Hint::Node(name)) => Some(match routing.readers.named(name) {
            Some(_) => Why::Read,
            None => Why::Hint,
        }),
        None => None,
    };
    let catalog = &routing.catalog;
    let why = |view: Option<&CatalogView>| match read_verdict(text, scan_either(text), view).verdict
    {
        Verdict::ReadOnlyTransaction if catalog.has_serializable => {
            Why::Text(Refusal::Serializable)
        }
        Verdict::Read | Verdict::ReadOnlyTransaction => Why::Read,
        Verdict::Refused(refusal) => Why::Text(refusal),
    };
    let by_catalogs = if catalog.is_of(schema) { why(Some(&catalog.view)) } else { Why::Catalogs };
    let judges = match by_hint {
        Some(why) => vec![("hint", why)],
        None if routing.rules.lists_text(text) => vec![("list", Why::List)],
        None => vec![("text", why(None)), ("catalogs", by_catalogs)],
    };
    judges.into_iter()
}

/// The number of a pool's requests with each reason.
#[derive(Debug)]
pub struct Counts([AtomicU64; COUNT]);

impl Default for Counts {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; COUNT])
    }
}

impl Counts {
    pub(crate) fn add(&self, why: Why) {
        if let Some(count) = self.0.get(why.number()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the reasons that were found, and how often.
    pub fn found(&self) -> impl Iterator<Item = (Why, u64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        Why::all().zip(counts).filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_count_of_its_own() {
        for (at, why) in Why::all().enumerate() {
            assert_eq!(why.number(), at, "{why:?}");
            let counts = Counts::default();
            counts.add(why);
            assert_eq!(counts.found().collect::<Vec<_>>(), [(why, 1)]);
        }
        assert_eq!(Why::all().count(), COUNT);
    }
}
