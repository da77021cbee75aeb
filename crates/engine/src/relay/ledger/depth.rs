//! The number of requests under way with which a client's next request waits.

/// The number before it is known how fast the server answers.
pub const DEPTH_UNKNOWN: u32 = 4;

#[derive(Debug)]
pub(super) struct Depth(pub(super) u32);

impl Default for Depth {
    fn default() -> Self {
        Self(DEPTH_UNKNOWN)
    }
}
