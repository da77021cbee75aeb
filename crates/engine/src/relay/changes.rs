//! The changes of a server's current transaction that are committed or undone with it, as far as
//! Weir must know of them: plain data.

use crate::values::Values;

/// The changes that the current transaction has made.
#[derive(Debug, Default)]
pub struct Changes {
    /// It has changed the schema.
    pub schema: bool,
    /// Its client's values before it changed the first tracked parameter, if the client keeps its
    /// connection when the server is lost.
    pub values_before: Option<Values>,
}
