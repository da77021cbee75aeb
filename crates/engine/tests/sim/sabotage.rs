//! Faults outside the engine, made on purpose. They show that the checks notice them.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// A mail is not delivered.
    LoseMail,
    /// A client falls out of the queue.
    ForgetWaiter,
    /// A client that may be read again is not resumed.
    DropResume,
    /// A text gets another text's statement.
    SwapStatement,
    /// Bytes go to another client.
    Misdeliver,
    /// Two pieces of an answer change places.
    ReorderReplies,
    /// A piece of a request is lost.
    LoseRequest,
    /// Two parked servers are swapped.
    SwapServers,
    /// A cancel request is reported as done before it has arrived.
    HastyCancel,
    /// The server reports a reset of its session that it has not done.
    SkipReset,
    /// The socket of a closed server stays open.
    KeepSocket,
    /// A server that has ended is reported as having nothing to read.
    HideEnd,
}
