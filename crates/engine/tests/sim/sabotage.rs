//! Harm done on purpose, outside the engine, to see whether the checks notice.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// A mail is not delivered.
    LoseMail,
    /// A client falls out of the queue.
    ForgetWaiter,
    /// A client that may be read again is not.
    DropResume,
    /// A text gets the statement of another.
    SwapStatement,
    /// Bytes go to another client.
    Misdeliver,
    /// Two pieces of an answer change places.
    ReorderReplies,
    /// A piece of a request is lost.
    LoseRequest,
    /// Two parked servers are mistaken for each other.
    SwapServers,
    /// A cancel request is reported as done before it has arrived.
    HastyCancel,
    /// The server says it has reset its session and has not.
    SkipReset,
    /// The socket of a server that was to be closed stays open.
    KeepSocket,
    /// A server is said to have nothing to read although it has ended.
    HideEnd,
}
