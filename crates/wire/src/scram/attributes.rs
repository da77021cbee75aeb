//! The `name=value,name=value` syntax of SCRAM's messages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::exchange::ScramError;

/// Reads attributes one after the other.
pub(super) struct Attributes<'a, P: FnMut(&u8) -> bool> {
    parts: std::slice::Split<'a, u8, P>,
}

/// Returns the attributes of a message.
pub(super) fn attributes(message: &[u8]) -> Attributes<'_, impl FnMut(&u8) -> bool> {
    Attributes { parts: message.split(|byte| *byte == b',') }
}

impl<'a, P: FnMut(&u8) -> bool> Attributes<'a, P> {
    /// Returns the value of the next attribute, which must have this name. The extension `m`, which
    /// must not be ignored, can precede the first one.
    pub(super) fn expect(
        &mut self,
        name: u8,
        expected: &'static str,
    ) -> Result<&'a [u8], ScramError> {
        match self.parts.next() {
            Some([found, b'=', value @ ..]) if *found == name => Ok(value),
            Some([b'm', b'=', ..]) => Err(ScramError::MandatoryExtension),
            _ => Err(ScramError::Malformed { expected }),
        }
    }

    /// Skips the remaining attributes: unknown extensions, which must be well-formed.
    pub(super) fn skip_extensions(self) -> Result<(), ScramError> {
        for part in self.parts {
            if !matches!(part, [name, b'=', ..] if name.is_ascii_alphabetic()) {
                return Err(ScramError::Malformed { expected: "an extension" });
            }
        }
        Ok(())
    }
}

/// Can it be a nonce: at least one visible ASCII character, and no comma?
pub(super) fn is_nonce(nonce: &[u8]) -> bool {
    !nonce.is_empty() && nonce.iter().all(|byte| byte.is_ascii_graphic() && *byte != b',')
}

pub(super) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub(super) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// Decodes Base64 of exactly one SHA-256 digest.
pub(super) fn decode_key(text: &[u8]) -> Option<[u8; 32]> {
    decode(text)?.try_into().ok()
}
