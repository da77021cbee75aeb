//! The reply that a client's next message waits for.

use std::num::NonZeroU64;

/// The held input of a client must wait for the reply to one of its messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct AwaitedReply {
    serial: Option<NonZeroU64>,
}

impl AwaitedReply {
    /// Begins to wait for the reply to the message with this serial number.
    pub(crate) fn begin(&mut self, serial: u64) {
        self.serial = NonZeroU64::new(serial);
    }

    /// Ends the wait: the reply has come, or no longer matters.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.serial = None;
    }

    /// Returns the serial number of the message whose reply is awaited.
    #[inline]
    pub(crate) fn serial(self) -> Option<u64> {
        self.serial.map(NonZeroU64::get)
    }

    #[inline]
    pub(crate) fn is_some(self) -> bool {
        self.serial.is_some()
    }
}
