//! Bytes from a client, with those before them that were held.

use thin_vec::ThinVec;

use crate::client::Client;

pub(crate) struct Input<'a> {
    /// The bytes after those that were held; None if none were.
    joined: Option<ThinVec<u8>>,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Input<'a> {
    #[inline(always)]
    pub(crate) fn take(client: &mut Client, bytes: &'a [u8]) -> Self {
        Self { joined: client.stream.take_joined(bytes), bytes }
    }

    #[inline(always)]
    pub(crate) fn all(&self) -> &[u8] {
        self.joined.as_deref().unwrap_or(self.bytes)
    }

    /// Holds all but the first `used` bytes.
    #[inline(always)]
    pub(crate) fn hold_rest(self, client: &mut Client, used: usize) {
        if used < self.all().len() {
            client.stream.hold_rest(self.joined, self.bytes, used);
        }
    }
}
