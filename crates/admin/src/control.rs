//! What the console can ask of the process it runs in.

use std::future::Future;
use std::pin::Pin;

use crate::snapshot::Snapshot;

/// A future of a [`Control`].
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// How the process is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// At once.
    Now,
    /// When every server is released, as on SIGINT.
    WaitForServers,
    /// When every client has left, as on SIGTERM.
    WaitForClients,
}

/// The running process, as the console sees it. Its methods log what they do.
pub trait Control: Send + Sync {
    /// What there is at this moment.
    fn snapshot(&self) -> Boxed<'_, Snapshot>;

    /// Reads the configuration again, as SIGHUP does.
    ///
    /// # Errors
    /// What is wrong with it, for the operator; the old one stays in force.
    fn reload(&self) -> Boxed<'_, Result<(), String>>;

    /// Begins to end the process, and returns without waiting for the end.
    fn shutdown(&self, how: Shutdown);
}
