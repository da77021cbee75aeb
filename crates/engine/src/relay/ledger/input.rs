//! The server's treatment of its input, as far as the ledger can tell.

/// The server's treatment of the next message that it reads, as far as Weir knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Input {
    /// It executes the message.
    #[default]
    Messages,
    /// It takes the message as copy data. Sync and Flush are ignored.
    CopyData,
    /// It discards everything up to the next Sync.
    UntilSync,
}
