//! A message that cannot be read.

use thiserror::Error;

use crate::reader::Reader;

/// A message whose body does not match its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("malformed {message}: expected {expected}")]
pub struct MessageError {
    /// The message's name in the protocol chapter.
    pub message: &'static str,
    /// The part that was expected at the position of the error.
    pub expected: &'static str,
}

impl MessageError {
    pub(crate) const fn new(message: &'static str, expected: &'static str) -> Self {
        Self { message, expected }
    }

    /// Returns an error if the body continues after its last field.
    pub(crate) fn check_end(reader: &Reader<'_>, message: &'static str) -> Result<(), Self> {
        if reader.is_empty() { Ok(()) } else { Err(Self::new(message, "the end of the message")) }
    }
}
