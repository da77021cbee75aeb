//! The answers of a node, one for each attempt to ask it.

use std::fmt;

/// The result of one attempt to ask a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The node has answered.
    Seen(Sample),
    /// The connection was refused or reset: PostgreSQL does not run there.
    Refused,
    /// There was no answer within `health_timeout`.
    Silent,
    /// PostgreSQL starts or shuts down (SQLSTATE 57P03).
    Unready,
    /// PostgreSQL runs, but the question could not be asked. The node counts as running.
    Unasked(Obstacle),
}

/// Why a node that runs could not be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// SQLSTATE 53300.
    #[error("too many connections")]
    Full,
    /// SQLSTATE 57P01: a shutdown, or `pg_terminate_backend` of this one session.
    #[error("the session was ended by PostgreSQL")]
    SessionEnded,
    /// The login was refused (class 28), with PostgreSQL's text.
    #[error("{0}")]
    Denied(String),
    /// Any other error, with PostgreSQL's text.
    #[error("{0}")]
    Error(String),
}

/// The state of a node at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The system identifier. `initdb` generates it, and all copies have the same.
    pub system: u64,
    /// When PostgreSQL was started, by the clock of its machine. It is only compared for equality:
    /// answers with one system identifier and one start are of one server, at whatever address.
    pub started: u64,
    /// The timeline to which a primary writes, or from which a standby replays.
    pub timeline: u32,
    pub role: Role,
    /// The end of the WAL: flushed by a primary, replayed by a standby.
    pub wal: Lsn,
    /// The end of the WAL that a standby has received by streaming; 0 at a primary.
    pub received: Lsn,
}

/// The result of `pg_is_in_recovery()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Not in recovery: it accepts writes.
    Primary,
    /// In recovery; with its WAL receiver if that streams.
    Standby(Option<Receiver>),
}

/// A WAL receiver in the state `streaming`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// `received_tli` of `pg_stat_wal_receiver`.
    pub timeline: u32,
}

/// A position in the WAL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Returns the beginning of the page, if the page has no record yet. After `pg_switch_wal()`, a
    /// primary reports the position behind the header of the new page, and a standby the one before.
    #[must_use]
    pub(crate) fn settled(self) -> Self {
        const PAGE: u64 = 8192;
        const HEADER_MAX: u64 = 40;
        let in_page = self.0 % PAGE;
        if in_page <= HEADER_MAX { Self(self.0 - in_page) } else { self }
    }

    /// Parses PostgreSQL's form, such as `0/3000148`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (high, low) = text.split_once('/')?;
        let part = |digits: &str| u32::from_str_radix(digits, 16).ok().map(u64::from);
        Some(Self(part(high)? << 32 | part(low)?))
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & u64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_of_an_empty_page_counts_as_nothing() {
        assert_eq!(Lsn(0xD00_0028).settled(), Lsn(0xD00_0000));
        assert_eq!(Lsn(0xD00_0029).settled(), Lsn(0xD00_0029));
    }

    #[test]
    fn a_position_has_postgresqls_form() {
        for text in ["0/0", "0/3000148", "1A/FFFFFFFF"] {
            assert_eq!(Lsn::parse(text).unwrap().to_string(), text);
        }
        assert!(Lsn::parse("0/1").unwrap() < Lsn::parse("1/0").unwrap());
        for text in ["", "0", "/", "0/x", "0/123456789"] {
            assert_eq!(Lsn::parse(text), None, "{text}");
        }
    }
}
