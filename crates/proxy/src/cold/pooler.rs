//! A pooler from start to end: threads, signals, reload, shutdown.
//!
//! * `cold.rs`: the thread for everything that is not the data plane
//! * `idle.rs`: pools that nobody uses are forgotten
//! * `memory.rs`: what many clients have used is given back when they have left
//! * `stats.rs`: the `stats:` line and the averages
//! * `start.rs`: what is done once, before the first client

mod cold;
mod idle;
mod memory;
mod start;
mod stats;

use std::{fmt, io, path::PathBuf, thread::JoinHandle};

use config::Config;

use crate::{
    Service,
    cold::{
        controller::{Controller, Shutdown, Totals},
        listen::ListenError,
        takeover::receive::Handover,
    },
    exchange::requests::ConsoleRequest,
};
use net::{
    sys::Address,
    tls::{TlsContexts, TlsError},
};

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
    /// The sockets that the service manager passes, and the messages that it expects.
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
    #[error("taking over failed, and the running process continues: {0}")]
    TakeOver(#[source] io::Error),
    #[error("cannot start the threads of the pooler: {0}")]
    System(#[from] io::Error),
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
