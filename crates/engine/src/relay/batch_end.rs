//! The completeness of a failed batch.

/// The end of a batch that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchEnd {
    /// The client has sent the Sync.
    Synced,
    /// The client may send further messages up to the Sync.
    Open,
}
