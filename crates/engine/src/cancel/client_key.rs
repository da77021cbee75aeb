//! A client's own cancel key. The client gets it with its welcome, so only a welcomed client has one.

use wire::cancel_key;

/// The cancel key of a client.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientKey {
    process_id: u32,
    secret: u32,
    form: Form,
}

/// The secret of a client's cancel key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Form {
    /// A secret of 4 bytes.
    #[default]
    Short,
    /// A secret with a tag that only Weir can compute (protocol 3.2).
    Long,
}

impl ClientKey {
    /// Returns the key of a client that was with another process or in a lobby. `number`: see
    /// [`Self::number`].
    pub(crate) fn imported(number: u64, is_long: bool) -> Self {
        let mut key = Self::default();
        if is_long {
            key.lengthen();
        }
        key.give(number);
        key
    }

    /// The client speaks a protocol with long keys.
    pub(crate) fn lengthen(&mut self) {
        self.form = Form::Long;
    }

    /// The client is welcomed with this key.
    pub(crate) fn give(&mut self, number: u64) {
        (self.process_id, self.secret) = ((number >> 32) as u32, number as u32);
    }

    /// Has the client been welcomed?
    #[inline(always)]
    pub(crate) fn is_given(self) -> bool {
        (self.process_id | self.secret) != 0
    }

    pub(crate) fn is_long(self) -> bool {
        self.form == Form::Long
    }

    /// Returns the process id that the client was told.
    #[inline]
    pub(crate) fn process_id(self) -> u32 {
        self.process_id
    }

    /// Returns process id (upper half) and secret (lower half) without a tag; 0 before the welcome.
    #[inline]
    pub(crate) fn number(self) -> u64 {
        u64::from(self.process_id) << 32 | u64::from(self.secret)
    }

    /// Returns the part of a long key that only Weir can compute; empty if the key is short.
    pub(crate) fn tag(self, seed: &[u8; 32]) -> Vec<u8> {
        match self.form {
            Form::Long => cancel_key::tag(seed, self.number()).to_vec(),
            Form::Short => Vec::new(),
        }
    }

    /// Returns the secret that the client is told.
    pub(crate) fn whole_secret(self, seed: &[u8; 32]) -> Vec<u8> {
        let mut secret = self.secret.to_be_bytes().to_vec();
        secret.extend_from_slice(&self.tag(seed));
        secret
    }

    /// Is this its tag? A client with a long key cannot be cancelled by guessing a short one.
    pub(crate) fn has_tag(self, tag: &[u8], seed: &[u8; 32]) -> bool {
        match self.form {
            Form::Long => {
                tag.try_into().is_ok_and(|tag| cancel_key::verify(seed, self.number(), tag))
            }
            Form::Short => tag.is_empty(),
        }
    }
}
