//! The modes of BEGIN and START TRANSACTION.

use crate::reads::verdict::Refusal;

/// A BEGIN that is being read. Any unknown word makes it a transaction for the primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Begin {
    last: Last,
    is_read_only: bool,
    is_serializable: bool,
}

/// The word before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Last {
    #[default]
    Other,
    Read,
    Not,
}

impl Begin {
    pub(crate) fn word(&mut self, word: &[u8]) -> Result<(), Refusal> {
        let last = core::mem::take(&mut self.last);
        match (last, word) {
            (_, b"read") => self.last = Last::Read,
            (_, b"not") => self.last = Last::Not,
            (Last::Read, b"only") => self.is_read_only = true,
            (Last::Not, b"deferrable") => {}
            (_, b"deferrable" | b"serializable") => self.is_serializable = true,
            (
                _,
                b"work" | b"transaction" | b"isolation" | b"level" | b"repeatable" | b"committed"
                | b"uncommitted",
            ) => {}
            // READ WRITE, and what PostgreSQL refuses.
            _ => return Err(Refusal::Transaction),
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<(), Refusal> {
        match self {
            Self { is_read_only: false, .. } => Err(Refusal::Transaction),
            Self { is_serializable: true, .. } => Err(Refusal::Serializable),
            Self { .. } => Ok(()),
        }
    }
}
