//! Why a client keeps its server between transactions (`pool_mode = auto`): its state on that
//! server cannot be carried to another one.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

use serde::{Deserialize, Serialize};

use crate::ids::Micros;

/// A set of reasons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pins(u16);

impl Pins {
    pub const NONE: Self = Self(0);
    /// A temporary table, view, sequence, function or type.
    pub const TEMPORARY: Self = Self(1);
    /// An advisory lock of the session.
    pub const LOCK: Self = Self(1 << 1);
    /// A cursor WITH HOLD.
    pub const CURSOR: Self = Self(1 << 2);
    /// A statement prepared by SQL's PREPARE.
    pub const PREPARED: Self = Self(1 << 3);
    /// The session listens to a channel.
    pub const LISTEN: Self = Self(1 << 4);
    /// A library loaded by LOAD cannot be unloaded.
    pub const LOAD: Self = Self(1 << 5);
    /// `setseed` has started a series of random numbers.
    pub const SEED: Self = Self(1 << 6);
    /// The client uses `currval` or `lastval`.
    pub const SEQUENCE: Self = Self(1 << 7);
    /// The client has called a function of `pin_functions`.
    pub const FUNCTION: Self = Self(1 << 8);
    /// Weir could not find out what the session contains.
    pub const UNVERIFIED: Self = Self(1 << 9);
    /// The client has drawn a number from a sequence, and may ask for it in one of its next
    /// transactions.
    pub const DRAWN: Self = Self(1 << 10);
    /// The session may have an application setting whose name the probe cannot contain.
    pub const SETTING: Self = Self(1 << 11);

    /// The client got the server in session mode. Since then the pool has changed to auto mode.
    pub const SESSION: Self = Self(1 << 12);

    /// A backend of a direct pool keeps its client. Only the backend knows why.
    pub const DIRECT: Self = Self(1 << 13);

    /// The client's state is larger than a direct pool can keep for it.
    pub const TOO_LARGE: Self = Self(1 << 14);

    /// The words for the reasons, in the order of the bits.
    const WORDS: [(Self, &str); 15] = [
        (Self::TEMPORARY, "temporary object"),
        (Self::LOCK, "advisory lock"),
        (Self::CURSOR, "cursor with hold"),
        (Self::PREPARED, "prepared statement"),
        (Self::LISTEN, "listen"),
        (Self::LOAD, "load"),
        (Self::SEED, "setseed"),
        (Self::SEQUENCE, "sequence"),
        (Self::FUNCTION, "function"),
        (Self::UNVERIFIED, "unverified"),
        (Self::DRAWN, "drawn number"),
        (Self::SETTING, "setting"),
        (Self::SESSION, "session mode"),
        (Self::DIRECT, "direct pool"),
        (Self::TOO_LARGE, "state too large"),
    ];

    /// No probe shows whether these reasons still exist. They end with DISCARD ALL.
    const UNSEEN: Self =
        Self(Self::LOAD.0 | Self::SEED.0 | Self::SEQUENCE.0 | Self::FUNCTION.0 | Self::SETTING.0);

    /// DISCARD ALL does not remove these reasons, so the server cannot be given to another client.
    const LASTING: Self = Self(Self::LOAD.0 | Self::SEED.0);

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub fn unseen(self) -> Self {
        Self(self.0 & Self::UNSEEN.0)
    }

    pub fn lasting(self) -> Self {
        Self(self.0 & Self::LASTING.0)
    }

    /// The reasons in words.
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        Self::WORDS.into_iter().filter(move |(pin, _)| self.contains(*pin)).map(|(_, word)| word)
    }
}

impl BitOr for Pins {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Pins {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

/// A server that is pinned to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pinned {
    pub pins: Pins,
    pub since: Micros,
    /// Fingerprint of the last text of the transaction that caused the pin; 0 if unknown.
    pub fingerprint: u64,
}

impl fmt::Display for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = self.pins.words();
        f.write_str(words.next().unwrap_or_default())?;
        words.try_for_each(|word| write!(f, ", {word}"))?;
        match self.fingerprint {
            0 => Ok(()),
            fingerprint => write!(f, ", fingerprint {fingerprint:016x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_word() {
        let both = Pins::TEMPORARY | Pins::UNVERIFIED;
        assert_eq!(both.words().collect::<Vec<_>>(), ["temporary object", "unverified"]);
        assert_eq!(Pins(u16::MAX).words().count(), Pins::WORDS.len());
        assert_eq!(Pins::NONE.words().count(), 0);
    }
}
