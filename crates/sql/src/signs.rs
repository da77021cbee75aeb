//! The signs of a text: how it may change the session.

use core::ops::{BitOr, BitOrAssign};

/// A set of signs. Each says what a text *may* leave in the session that runs it, not that it
/// *does*.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Signs(u32);

impl Signs {
    pub const NONE: Self = Self(0);
    /// A setting: SET, RESET, DISCARD ALL, `set_config` unless its last argument is `true`, an
    /// UPDATE of `pg_settings`. Not SET TRANSACTION, SET CONSTRAINTS, and what is LOCAL, which end
    /// with the transaction.
    pub const SETTINGS: Self = Self(1);
    /// A temporary object: any CREATE, and SELECT INTO. The word TEMPORARY is not needed, since
    /// with a `search_path` that begins with `pg_temp` every new table is temporary.
    pub const TEMPORARY: Self = Self(1 << 1);
    /// An advisory lock of the session, or its release.
    pub const LOCK: Self = Self(1 << 2);
    /// DECLARE … WITH HOLD.
    pub const CURSOR: Self = Self(1 << 3);
    /// LISTEN and UNLISTEN, and `pg_listening_channels()`, which shows them.
    pub const LISTEN: Self = Self(1 << 4);
    /// PREPARE, EXECUTE, DEALLOCATE, and `pg_prepared_statements`, which shows them.
    pub const PREPARED: Self = Self(1 << 5);
    /// Asks for numbers that this session has drawn from a sequence: `currval`, `lastval`.
    pub const SEQUENCE: Self = Self(1 << 6);
    /// State that no query shows and that stays until the connection ends: LOAD, `pg_backup_start`,
    /// a replication origin, a temporary replication slot, a connection of `dblink`.
    pub const LOAD: Self = Self(1 << 7);
    /// DISCARD of any kind.
    pub const DISCARD: Self = Self(1 << 8);
    /// May remove what another sign has added: DROP, ALTER, CLOSE, DEALLOCATE, DISCARD, an unlock.
    /// An OPAQUE text may do so too, without this sign.
    pub const RELEASE: Self = Self(1 << 9);
    /// May do anything, all of the above: DO, CALL, EXECUTE, a text that ends within a string or a
    /// comment. Also a function that is not PostgreSQL's own, or that runs SQL.
    pub const OPAQUE: Self = Self(1 << 10);
    /// `setseed`, `SET seed`: changes the results of `random()`.
    pub const SEED: Self = Self(1 << 11);
    /// Draws a number from a sequence by name: `nextval`, `setval`. An INSERT may do so without
    /// this sign.
    pub const DRAWS: Self = Self(1 << 12);
    /// A setting for the transaction alone: SET LOCAL, `set_config` whose last argument is `true`.
    pub const LOCAL: Self = Self(1 << 13);
    /// Cancels or terminates a backend by its process id.
    pub const SIGNALS: Self = Self(1 << 14);
    /// Asks for the server's process id.
    pub const PROCESS_ID: Self = Self(1 << 15);

    /// The signs of a function whose name cannot be read.
    pub(crate) const CALLABLE: Self = Self::SETTINGS
        .with(Self::LOCK)
        .with(Self::LISTEN)
        .with(Self::PREPARED)
        .with(Self::SEQUENCE)
        .with(Self::LOAD)
        .with(Self::RELEASE)
        .with(Self::OPAQUE)
        .with(Self::SEED)
        .with(Self::DRAWS);

    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Does the set contain all of `others`?
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Does the set contain any of `others`?
    pub const fn intersects(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the set as a number, for another process of the same version.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns the set for a number of [`Signs::bits`].
    pub const fn of_bits(bits: u32) -> Self {
        Self(bits)
    }

    const NAMES: [&str; 16] = [
        "SETTINGS",
        "TEMPORARY",
        "LOCK",
        "CURSOR",
        "LISTEN",
        "PREPARED",
        "SEQUENCE",
        "LOAD",
        "DISCARD",
        "RELEASE",
        "OPAQUE",
        "SEED",
        "DRAWS",
        "LOCAL",
        "SIGNALS",
        "PROCESS_ID",
    ];
}

impl BitOr for Signs {
    type Output = Self;

    fn bitor(self, others: Self) -> Self {
        self.with(others)
    }
}

impl BitOrAssign for Signs {
    fn bitor_assign(&mut self, others: Self) {
        *self = self.with(others);
    }
}

impl core::fmt::Debug for Signs {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut set = Self::NAMES.iter().enumerate().filter(|(bit, _)| self.0 >> bit & 1 == 1);
        match set.next() {
            None => f.write_str("NONE")?,
            Some((_, name)) => f.write_str(name)?,
        }
        set.try_for_each(|(_, name)| write!(f, " {name}"))
    }
}

/// The signs of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub signs: Signs,
    /// A digest of the tables of INSERT and MERGE, whose columns may draw numbers from sequences,
    /// and of `nextval` and `setval`; 0 if there is none of these.
    pub draws: u32,
    /// A digest of the called functions, if their calls are all that makes the text
    /// [`Signs::OPAQUE`]. It includes their names as written with schema, in any order. With it
    /// Weir can remember functions that left nothing. 0 if there is no such call, or if something
    /// else makes the text opaque.
    pub functions: u64,
}

impl BitOr for Seen {
    type Output = Self;

    /// Combines two readings of one text.
    fn bitor(self, other: Self) -> Self {
        let functions = if self.functions == other.functions { self.functions } else { 0 };
        Self { signs: self.signs | other.signs, draws: self.draws | other.draws, functions }
    }
}
