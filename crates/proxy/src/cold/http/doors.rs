//! The addresses at which HTTP is served. A reload moves them, and an online restart closes them
//! before the new process opens its own.
//!
//! A port that is in use is tried again at the next reload, not earlier. Otherwise Weir would get the
//! port of another program while that program is restarted.

use std::{
    io,
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use config::{Global, in_words};
use tokio::{
    net::TcpListener,
    sync::{Mutex, Notify, watch},
    task::JoinSet,
    time::timeout,
};

use crate::{cold::listen, log, warning};

/// Connections the kernel may hold that are not accepted yet.
const BACKLOG: u32 = 16;
/// A reload waits so long until new addresses have been tried. Names may have to be looked up.
const TRIAL_TIME: Duration = Duration::from_secs(10);

/// The addresses and the port that the configuration asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    addresses: Vec<String>,
    /// 0 = none.
    port: u16,
}

impl Wanted {
    pub(crate) fn of(global: &Global) -> Self {
        Self { addresses: global.metrics_addr.clone(), port: global.metrics_port }
    }

    fn resolved(&self) -> Vec<SocketAddr> {
        if self.port == 0 {
            return Vec::new();
        }
        self.addresses.iter().flat_map(|name| listen::addresses_or_warn(name, self.port)).collect()
    }
}

#[derive(Debug)]
pub(crate) struct Doors {
    open: Mutex<Open>,
    changed: Notify,
    /// The number of changes.
    changes: AtomicU64,
    tried: watch::Sender<Trial>,
}

/// The outcome of the last attempt to open what is wanted.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// The changes before it. All of them as long as nobody serves metrics.
    changes: u64,
    /// Were there new addresses that could not be opened?
    failed: bool,
}

impl Default for Doors {
    fn default() -> Self {
        let tried = watch::Sender::new(Trial { changes: u64::MAX, failed: false });
        let changes = AtomicU64::default();
        Self { open: Mutex::default(), changed: Notify::default(), changes, tried }
    }
}

#[derive(Debug, Default)]
struct Open {
    /// As it is opened now; `None` if not all of it could be.
    wanted: Option<Wanted>,
    /// The addresses that were to be opened the last time.
    asked: Option<Wanted>,
    /// The tasks, one for each address. Each has its listener.
    tasks: JoinSet<()>,
    /// True once it is closed for good: the next process serves there.
    is_shut: bool,
}

impl Doors {
    /// The configuration may ask for others now.
    pub(crate) fn change(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_one();
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Could the addresses of the last change not be opened? Waits until they have been tried. An
    /// address that could not be opened before the change is no news.
    pub(crate) async fn have_failed(&self) -> bool {
        let changes = self.changes();
        let mut tried = self.tried.subscribe();
        let trial = timeout(TRIAL_TIME, tried.wait_for(|trial| trial.changes >= changes)).await;
        trial.is_ok_and(|trial| trial.is_ok_and(|trial| trial.failed))
    }

    /// Returns when [`Doors::change`] has been called since the last time.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Opens what is wanted after so many changes. `accept` serves one listener, for ever.
    pub(super) async fn open<F>(
        &self,
        (wanted, changes): (Wanted, u64),
        accept: impl Fn(TcpListener) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let failed = self.open_only(wanted, accept).await;
        self.tried.send_replace(Trial { changes, failed });
    }

    /// Opens what is wanted and closes all else. Returns whether new addresses cannot be opened.
    async fn open_only<F>(&self, wanted: Wanted, accept: impl Fn(TcpListener) -> F) -> bool
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let resolving = wanted.clone();
        // A host name may have to be looked up. An online restart does not wait for that.
        let addresses = tokio::task::spawn_blocking(move || resolving.resolved()).await;
        let mut open = self.open.lock().await;
        if open.is_shut || open.wanted.as_ref() == Some(&wanted) {
            return false;
        }
        open.close().await;
        let is_new = open.asked.replace(wanted.clone()).is_some_and(|before| before != wanted);
        let mut is_complete = true;
        for address in addresses.unwrap_or_default() {
            match bind(address) {
                Ok(listener) => {
                    log!("serving metrics on http://{address}/metrics");
                    open.tasks.spawn(accept(listener));
                }
                Err((step, error)) => {
                    is_complete = false;
                    let why = in_words(&error);
                    warning!(
                        "cannot serve metrics on {address}: {step}(): {why}; Weir goes on \
                         without metrics, and tries again at the next RELOAD"
                    );
                }
            }
        }
        open.wanted = is_complete.then_some(wanted);
        is_new && !is_complete
    }

    /// Closes all for good. When it returns, another process can open the same.
    pub(crate) async fn shut(&self) {
        let mut open = self.open.lock().await;
        open.is_shut = true;
        open.close().await;
    }
}

impl Open {
    async fn close(&mut self) {
        self.wanted = None;
        self.tasks.shutdown().await;
    }
}

fn bind(address: SocketAddr) -> Result<TcpListener, (&'static str, io::Error)> {
    let (socket, _) = listen::bind_inet(address, false, BACKLOG)?;
    TcpListener::from_std(socket.into()).map_err(|error| ("epoll_ctl", error))
}
