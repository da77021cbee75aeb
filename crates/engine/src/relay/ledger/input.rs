//! The server's treatment of its input, as far as the ledger can tell.
//!
//! In copy-in mode, a server ignores a Sync. If the copy fails, it answers the Syncs that it reads
//! behind the error. It cannot be told from outside which these are. So Weir asks, before it
//! forwards anything else: it sends Sync, Close and Sync. The server sends one ReadyForQuery for
//! each Sync that it has not ignored, one for Weir's, and CloseComplete.
//!
//! ```text
//!            Sync                CopyDone              CommandComplete
//!  CopyData ──────► CopyData{..} ────────► CopyEnded ──────────────────────► Messages
//!                        └─── ErrorResponse ───┤                               ▲
//!                                              ▼          Weir asks            │ CloseComplete
//!                                         CopyFailed ─────────────────► Counting ──► UntilSync
//! ```

/// The server's treatment of the next message that it reads, as far as Weir knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Input {
    /// It executes the message.
    #[default]
    Messages,
    /// It takes the message as copy data. Sync and Flush are ignored. `has_sync`: the client has
    /// sent a Sync.
    CopyData { has_sync: bool },
    /// The client has ended a copy with a Sync. It is not known yet whether the copy has failed.
    CopyEnded,
    /// A copy with a Sync has failed. `skips`: the server discards everything up to the next Sync,
    /// unless it has read one behind the error.
    CopyFailed { skips: bool },
    /// Weir has asked how many Syncs are answered. `answered`: a ReadyForQuery has arrived since.
    Counting { skips: bool, answered: bool },
    /// It discards everything up to the next Sync.
    UntilSync,
}

impl Input {
    /// The client has ended the copy.
    pub(super) fn after_copy(has_sync: bool) -> Self {
        if has_sync { Self::CopyEnded } else { Self::Messages }
    }

    /// May the server have ignored a Sync, or not?
    #[inline]
    pub(super) fn is_in_doubt(self) -> bool {
        match self {
            Self::CopyData { has_sync } => has_sync,
            Self::CopyEnded | Self::CopyFailed { .. } | Self::Counting { .. } => true,
            Self::Messages | Self::UntilSync => false,
        }
    }
}
