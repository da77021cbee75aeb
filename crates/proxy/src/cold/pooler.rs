//! A pooler from start to end: threads, signals, reload, shutdown.
//!
//! * `cold.rs`: the thread for everything that is not the data plane
//! * `idle.rs`: forgets unused pools
//! * `memory.rs`: returns memory after many clients have left
//! * `stats.rs`: the `stats:` line and the averages
//! * `start.rs`: everything that is done once, before the first client
//! * `waiting.rs`: what a shutdown waits for

mod cold;
mod idle;
mod memory;
mod start;
mod stats;
mod waiting;

pub(crate) use self::start::worker_count;

use std::{fmt, io, path::PathBuf, thread::JoinHandle};

use config::Config;
use engine::figures::PoolFigures;

use crate::{
    Service,
    cold::{
        controller::{Controller, Shutdown},
        http::MetricsPage,
        listen::ListenError,
        pcp::PcpHandler,
        takeover::receive::Handover,
    },
    exchange::requests::ConsoleRequest,
    holder::Held,
};
use net::{
    sys::Address,
    tls::{TlsContexts, TlsError},
};

/// Serves console connections. Called on the cold thread within its tokio runtime, so it may spawn
/// tasks there; it must not block.
pub type ConsoleHandler = Box<dyn FnMut(&Controller, ConsoleRequest) + Send>;

/// Start options that are not in the configuration.
pub struct StartOptions {
    /// The file for a reload, unless the configuration names another one (`conffile`).
    pub config_path: Option<PathBuf>,
    /// Handle signals: SIGHUP, SIGTERM, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2. They are blocked in the
    /// calling thread and all threads that it starts later.
    pub signals: bool,
    /// Without it, console connections are closed.
    pub console: Option<ConsoleHandler>,
    /// The metrics page. Without it, no HTTP is served.
    pub metrics: Option<MetricsPage>,
    /// Serves the tools of Pgpool-II. Without it, PCP is not served.
    pub pcp: Option<PcpHandler>,
    /// TLS contexts made by a user who may read the keys; `None` = they are made at the start.
    pub tls: Option<TlsContexts>,
    /// The service manager's sockets, and the messages that it expects.
    pub service: Service,
    /// Connections from another process.
    pub handover: Option<Handover>,
    /// The holder, which has the clients of direct pools if this process is killed.
    pub held: Option<Held>,
}

impl Default for StartOptions {
    fn default() -> Self {
        Self {
            config_path: None,
            signals: true,
            console: None,
            metrics: None,
            pcp: None,
            tls: None,
            service: Service::default(),
            handover: None,
            held: None,
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

/// The way in which the pooler has ended.
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
    /// Opens the listening sockets and starts the threads. Clients are served when it returns.
    ///
    /// # Errors
    /// When no socket can be opened, or the system refuses threads or descriptors.
    pub fn start(config: Config, options: StartOptions) -> Result<Self, StartError> {
        let (controller, cold) = start::start(config, options)?;
        Ok(Self { controller, cold: Some(cold) })
    }

    #[must_use]
    pub fn controller(&self) -> Controller {
        self.controller.clone()
    }

    /// Returns the addresses of the listening sockets.
    #[must_use]
    pub fn addresses(&self) -> Vec<Address> {
        let listeners = &self.controller.0.shared.listeners;
        listeners.iter().map(|listener| listener.address().clone()).collect()
    }

    /// Asks all workers and waits for the figures of all pools together. They are zero if the pooler has ended,
    /// or if the system has no descriptors left.
    ///
    /// # Panics
    /// Inside a tokio runtime: use [`Controller::totals`] there.
    #[must_use]
    pub fn totals(&self) -> PoolFigures {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.map_or_else(
            |_| PoolFigures::default(),
            |runtime| runtime.block_on(self.controller.totals()),
        )
    }

    /// Ends the pooler now. [`Pooler::wait`] returns when it has ended.
    pub fn shutdown(&self) {
        self.controller.shutdown(Shutdown::Immediate);
    }

    /// Waits for the pooler's end.
    pub fn wait(mut self) -> Exit {
        self.join()
    }

    fn join(&mut self) -> Exit {
        // The thread cannot have panicked: the process would have been aborted.
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
