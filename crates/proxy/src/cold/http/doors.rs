//! The addresses at which HTTP is served. A reload moves them, and an online restart closes them
//! before the new process opens its own.
//!
//! A port that is in use is tried again at the next reload, not earlier. Otherwise Weir would get the
//! port of another program while that program is restarted.

use std::{io, net::SocketAddr};

use config::{Global, in_words};
use tokio::{
    net::TcpListener,
    sync::{Mutex, Notify},
    task::JoinSet,
};

use crate::{cold::listen, log, warning};

/// Connections the kernel may hold that are not accepted yet.
const BACKLOG: u32 = 16;

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

#[derive(Debug, Default)]
pub(crate) struct Doors {
    open: Mutex<Open>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Open {
    /// As it is opened now; `None` if not all of it could be.
    wanted: Option<Wanted>,
    /// The tasks, one for each address. Each has its listener.
    tasks: JoinSet<()>,
    /// True once it is closed for good: the next process serves there.
    is_shut: bool,
}

impl Doors {
    /// The configuration may ask for others now.
    pub(crate) fn change(&self) {
        self.changed.notify_one();
    }

    /// Returns when [`Doors::change`] has been called since the last time.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Opens what is wanted and closes all else. `accept` serves one listener, for ever.
    pub(super) async fn open<F>(&self, wanted: Wanted, accept: impl Fn(TcpListener) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let asked = wanted.clone();
        // A host name may have to be looked up. An online restart does not wait for that.
        let addresses = tokio::task::spawn_blocking(move || asked.resolved()).await;
        let mut open = self.open.lock().await;
        if open.is_shut || open.wanted.as_ref() == Some(&wanted) {
            return;
        }
        open.close().await;
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
