//! The ledger's knowledge of the number of ReadyForQuery that the server will still send.

/// Does Weir know how many ReadyForQuery the server will still send?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ReadyCount {
    #[default]
    Known,
    /// The server has ignored a Sync if it read it in copy-in mode. If the copy fails, it cannot be
    /// told from outside whether the server had read the Sync by then.
    InDoubt,
    /// The copy has failed. The server must not be given to another client.
    Unknown,
}

impl ReadyCount {
    /// The server may have ignored a Sync.
    pub(super) fn doubt(&mut self) {
        if *self == Self::Known {
            *self = Self::InDoubt;
        }
    }

    /// It is known which Syncs were ignored.
    #[inline]
    pub(super) fn settle(&mut self) {
        if *self == Self::InDoubt {
            *self = Self::Known;
        }
    }

    /// The copy has failed.
    pub(super) fn fail(&mut self) {
        if *self == Self::InDoubt {
            *self = Self::Unknown;
        }
    }
}
