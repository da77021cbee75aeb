//! The changes of a server's current transaction that are committed or undone with it, as far as
//! Weir must know of them: plain data.

use crate::ids::ClientId;
use crate::values::Values;
use crate::vars::Slots;

/// The changes that the current transaction has made.
#[derive(Debug, Default)]
pub struct Changes {
    /// It has changed the schema.
    pub schema: bool,
    /// Its client's values before it changed the first tracked parameter, if the client keeps its
    /// connection when the server is lost.
    pub values_before: Option<Values>,
    /// The parameters that were reported anew, in transaction and statement mode.
    pub reported: Reported,
    /// Values that RESET is to explain when the client has given the server back. They outlast the
    /// transaction.
    pub unexplained: Option<Unexplained>,
}

/// The parameters that a server has reported during a transaction, in transaction and statement mode.
/// Weir does not read the texts there: either the client has set them, or a reload of PostgreSQL's
/// configuration has changed their defaults.
#[derive(Debug, Default)]
pub struct Reported {
    pub slots: Slots,
    /// The client's values before the first report.
    pub before: Option<Values>,
    /// SET has run.
    pub sets: bool,
    /// RESET or DISCARD ALL has run.
    pub resets: bool,
}

/// Parameters that have another value than before a transaction, though no command tag tells that the
/// client has set them.
#[derive(Debug)]
pub struct Unexplained {
    pub slots: Slots,
    /// The client of the transaction, and its serial number.
    pub client: (ClientId, u64),
}
