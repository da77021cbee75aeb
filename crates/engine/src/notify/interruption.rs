//! A time without a listener, as far as it concerns clients.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interruption {
    /// Notifications may have been lost.
    pub has_missed: bool,
}
