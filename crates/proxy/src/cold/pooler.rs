//! A pooler from start to end: threads, signals, reload, shutdown.
//!
//! * `cold.rs`: the thread for everything that is not the data plane
//! * `idle.rs`: pools that nobody uses are forgotten
//! * `memory.rs`: what many clients have used is given back when they have left
//! * `reload.rs`: a new configuration is put in force
//! * `stats.rs`: the `stats:` line and the averages
//! * `start.rs`: what is done once, before the first client

mod cold;
mod idle;
mod memory;
mod reload;
mod start;
mod stats;

use std::{fmt, io, os::fd::OwnedFd, path::PathBuf, sync::Arc, thread::JoinHandle};

use config::Config;
use engine::{client::Identity, shell::ConsoleLogin};
use wire::startup::CancelKey;

use crate::{
    Peer, Service,
    cold::{
        controller::{Controller, Totals},
        takeover::Handover,
    },
    data::{listener::ListenError, shared::Shared},
};
use net::{
    sys::Address,
    tls::{Tls, TlsContexts, TlsError},
};

pub use self::reload::ReloadError;
pub(crate) use self::reload::{reload, set};

/// A client that logged in to the console database. Its socket is non-blocking.
#[derive(Debug)]
pub struct ConsoleConnection {
    pub fd: OwnedFd,
    /// If the connection has TLS: its state.
    pub tls: Option<Box<Tls>>,
    pub peer: Peer,
    pub login: ConsoleLogin,
    /// What the client was told and has not got yet; to be written before anything else, as it
    /// is.
    pub unsent: Vec<u8>,
    /// Held as long as the connection lasts.
    pub seat: ConsoleSeat,
}

/// A console's share of `max_client_conn` and similar limits. It is given back when this is
/// dropped.
#[derive(Debug)]
pub struct ConsoleSeat {
    shared: Arc<Shared>,
    identity: Option<Arc<Identity>>,
}

impl ConsoleSeat {
    pub(crate) fn new(shared: Arc<Shared>, identity: Option<Arc<Identity>>) -> Self {
        Self { shared, identity }
    }
}

impl Drop for ConsoleSeat {
    fn drop(&mut self) {
        if let Some(identity) = self.identity.take() {
            self.shared.hub.client_left(&identity);
        }
    }
}

/// What concerns the console.
#[derive(Debug)]
pub enum ConsoleRequest {
    Connection(ConsoleConnection),
    /// Somebody asks to cancel what a client with this key is doing. It may be one of the console.
    Cancel(CancelKey),
}

/// Serves console connections. Called on the cold thread inside its tokio runtime, so it may
/// spawn tasks there; it must not block.
pub type ConsoleHandler = Box<dyn FnMut(&Controller, ConsoleRequest) + Send>;

/// Start options that are not in the configuration.
pub struct StartOptions {
    /// The file a reload reads, unless the configuration names another one (`conffile`).
    pub config_path: Option<PathBuf>,
    /// Obey signals: SIGHUP, SIGTERM, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2. They are kept from the
    /// calling thread and all threads it starts later.
    pub signals: bool,
    /// Without it, console connections are closed.
    pub console: Option<ConsoleHandler>,
    /// Made ready already, by a user who may read the keys; `None` = it is done at the start.
    pub tls: Option<TlsContexts>,
    /// What the service manager that started us passes and wants to hear.
    pub service: Service,
    /// Connections that another process has handed over.
    pub handover: Option<Handover>,
}

impl Default for StartOptions {
    fn default() -> Self {
        Self {
            config_path: None,
            signals: true,
            console: None,
            tls: None,
            service: Service::default(),
            handover: None,
        }
    }
}

impl fmt::Debug for StartOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartOptions")
            .field("config_path", &self.config_path)
            .field("signals", &self.signals)
            .finish_non_exhaustive()
    }
}

/// Why the pooler did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("TLS setup failed: {0}")]
    Tls(#[from] TlsError),
    #[error("the running process goes on, its hand-over has failed: {0}")]
    TakeOver(#[source] io::Error),
    #[error("cannot start the threads of the pooler: {0}")]
    System(#[from] io::Error),
}

/// How to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    Immediate,
    /// When no server is in use any more; nothing is linked from now on. SIGINT's way.
    WaitForServers,
    /// When the last client has left; no TCP client is let in from now on. SIGTERM's way.
    WaitForClients,
    /// Another process has taken over; when the last client that stayed here has left.
    TakenOver,
}

/// How the pooler came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Immediate,
    ServersReleased,
    ClientsLeft,
}

/// A running pooler. Dropping it ends it.
#[derive(Debug)]
pub struct Pooler {
    controller: Controller,
    cold: Option<JoinHandle<Exit>>,
}

impl Pooler {
    /// Binds the listeners and starts the threads. Clients are served when it returns.
    ///
    /// # Errors
    /// When there is nowhere to listen, or the system refuses threads or descriptors.
    pub fn start(config: Config, options: StartOptions) -> Result<Self, StartError> {
        let (controller, cold) = start::start(config, options)?;
        Ok(Self { controller, cold: Some(cold) })
    }

    #[must_use]
    pub fn controller(&self) -> Controller {
        self.controller.clone()
    }

    /// Where clients are listened for.
    #[must_use]
    pub fn addresses(&self) -> Vec<Address> {
        let listeners = &self.controller.0.shared.listeners;
        listeners.iter().map(|listener| listener.address().clone()).collect()
    }

    /// Asks all workers and waits for their answers. All zero if the pooler has ended, or if the
    /// system has no descriptors left for the question.
    ///
    /// # Panics
    /// Inside a tokio runtime: [`Controller::totals`] is the one for that.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.map_or_else(
            |_| Totals::default(),
            |runtime| runtime.block_on(self.controller.totals()),
        )
    }

    /// Ends it now. [`Pooler::wait`] tells when that is done.
    pub fn shutdown(&self) {
        self.controller.shutdown(Shutdown::Immediate);
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Exit {
        self.join()
    }

    fn join(&mut self) -> Exit {
        // The thread does not panic: the process would have been aborted.
        let ended = self.cold.take().map(JoinHandle::join);
        ended.and_then(Result::ok).unwrap_or(Exit::Immediate)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.shutdown();
        self.join();
    }
}
