//! The replacement of a pool's listener in a planned change of the cluster's primary.

/// No notification is lost if the last state is reached before clients go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Relief {
    #[default]
    None,
    /// No transaction of the cluster is running: the listener ends when it has read everything.
    Ending,
    /// It has ended, and no client of the pool has had a server since. Its clients wait for another one.
    Ended,
    /// Another one listens for these clients, and none has had a server yet.
    Done,
}
