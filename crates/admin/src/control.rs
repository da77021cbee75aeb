//! The console's interface to its process.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use config::Config;

use crate::recording::Recording;
use crate::snapshot::{Judgement, Snapshot};

/// A future of a [`Control`].
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The kind of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// End at once.
    Now,
    /// End when every server is released, as on SIGINT.
    WaitForServers,
    /// When every client has left, as on SIGTERM.
    WaitForClients,
}

/// An operator's order. Names are those of databases as clients use them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    Pause(Option<String>),
    Resume(Option<String>),
    Suspend,
    Kill(Option<String>),
    /// Names a client by the `id` of SHOW CLIENTS.
    KillClient(u64),
    Reconnect(Option<String>),
    WaitClose(Option<String>),
    Disable(String),
    Enable(String),
    /// Forbids that Weir replaces a lost primary by itself, in one cluster or in all.
    FailoverPause(Option<String>),
    FailoverResume(Option<String>),
    /// Removes a silent member.
    FailoverForget(String),
    /// Makes a node the primary of the database's cluster.
    Switchover {
        database: String,
        node: String,
    },
    /// Makes a node the primary of its cluster.
    Promote {
        cluster: String,
        node: String,
    },
    /// Sends no reads to a standby.
    Detach {
        cluster: String,
        node: String,
    },
    /// Ends this.
    Attach {
        cluster: String,
        node: String,
    },
}

/// Why a configuration is not in force, or not as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotReloaded {
    /// The parts that stay as they were, in an operator's words; none named means all of them.
    pub kept: Vec<String>,
    /// The mistakes in the files, each with its place.
    pub mistakes: Vec<String>,
}

/// The running process, as the console sees it. Its methods log what they do.
pub trait Control: Send + Sync {
    /// Returns the present state.
    fn snapshot(&self) -> Boxed<'_, Snapshot>;

    /// Returns what each judge of reads says about a text (EXPLAIN ROUTE).
    fn explain_route(&self, text: &[u8]) -> Vec<Judgement>;

    /// Returns the content of the flight recorder.
    fn recording(&self) -> Boxed<'_, Recording>;

    /// Returns the last connections that have ended (SHOW TIMINGS).
    fn timings(&self) -> Recording;

    /// Reads the configuration again, as SIGHUP does.
    ///
    /// Returns a line for each change.
    ///
    /// # Errors
    /// Why all stays as it was, or a part of it.
    fn reload(&self) -> Boxed<'_, Result<Vec<String>, NotReloaded>>;

    /// Returns the present configuration.
    fn config(&self) -> Arc<Config>;

    /// Returns why an order cannot be tried in the present state, in PgBouncer's words.
    fn refusal(&self, order: &Order) -> Option<String>;

    /// Carries out an order, and is ready when it is complete: a pause when no server is left, a
    /// suspension when no message is half read. Dropping the future does not undo the order.
    ///
    /// # Errors
    /// Why the order is refused, in PgBouncer's words.
    fn order(&self, order: Order) -> Boxed<'_, Result<(), String>>;

    /// Undoes PAUSE and SUSPEND, because the operator has stopped waiting.
    fn give_up(&self);

    /// Tells that the last operator has left.
    fn abandoned(&self);

    /// Sets a global key until the next reload. Returns a text for the operator if the value has no
    /// effect yet.
    ///
    /// # Errors
    /// When there is no such key, or the value is invalid.
    fn set(&self, key: String, value: String) -> Boxed<'_, Result<Option<String>, String>>;

    /// Logs an operator's action.
    fn note(&self, what: &str);

    /// Logs the refusal of an operator's action.
    fn error(&self, what: &str);

    /// Logs an error that was sent to the connection `who`, if such errors are logged.
    fn pooler_error(&self, who: &str, what: &str);

    /// Begins a shutdown, and returns at once.
    fn shutdown(&self, how: Shutdown);
}
