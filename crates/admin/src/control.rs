//! The requests of the console to its process.

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

/// An operator's order. A name is that of a database as clients call it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    Pause(Option<String>),
    Resume(Option<String>),
    Suspend,
    Kill(Option<String>),
    /// By the `id` of SHOW CLIENTS.
    KillClient(u64),
    Reconnect(Option<String>),
    WaitClose(Option<String>),
    Disable(String),
    Enable(String),
}

/// The running process, as the console sees it. Its methods log what they do.
pub trait Control: Send + Sync {
    /// Returns the state of this moment.
    fn snapshot(&self) -> Boxed<'_, Snapshot>;

    /// Reads the configuration again, as SIGHUP does.
    ///
    /// # Errors
    /// The parts that stay as they were, in an operator's words; none named means all of them.
    fn reload(&self) -> Boxed<'_, Result<(), Vec<String>>>;

    /// Why an order cannot even be tried as things stand, in PgBouncer's words.
    fn refusal(&self, order: &Order) -> Option<String>;

    /// Carries out an order, and is ready when that is done: a pause when no server is left, a
    /// suspension when nothing is half read. Dropping the future does not undo the order.
    ///
    /// # Errors
    /// Why it is not carried out, in PgBouncer's words.
    fn order(&self, order: Order) -> Boxed<'_, Result<(), String>>;

    /// The operator does not want to wait any longer: PAUSE and SUSPEND are undone.
    fn give_up(&self);

    /// No operator is left.
    fn abandoned(&self);

    /// Gives a global key of the configuration another value until the next reload. Returns a text
    /// for the operator if the value does not act yet.
    ///
    /// # Errors
    /// When there is no such key, or that is no value for it.
    fn set(&self, key: String, value: String) -> Boxed<'_, Result<Option<String>, String>>;

    /// Writes what an operator did into the log.
    fn note(&self, what: &str);

    /// Writes into the log what an operator was refused.
    fn error(&self, what: &str);

    /// Writes into the log what the connection `who` was told, if such errors are to be there.
    fn pooler_error(&self, who: &str, what: &str);

    /// Begins to end the process, and returns without waiting for the end.
    fn shutdown(&self, how: Shutdown);
}
