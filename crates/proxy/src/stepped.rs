//! One worker without a thread, which is run turn by turn with a clock that does not advance by
//! itself. So its work is the same in every run, down to the instruction, and can be counted. For
//! `weir-bench guard` and for tests.

#[cfg(test)]
mod tests;

use std::{io, sync::Arc};

use config::Config;
use engine::ids::{Micros, WorkerId};
use tokio::sync::mpsc;

use crate::{
    cold::{listen, pooler::StartError},
    data::worker::Worker,
    exchange::{
        handshakes::Handshakes,
        requests::ColdRequest,
        shared::{Origin, Shared},
    },
};
use net::{sys::Address, tls::TlsContexts};

/// The time that each turn adds to the clock, in microseconds.
const TURN: Micros = 10;

#[derive(Debug)]
pub struct Stepped {
    worker: Worker,
    shared: Arc<Shared>,
    now: Micros,
    /// No one answers, so nothing that is counted may look up a name.
    _cold: mpsc::UnboundedReceiver<ColdRequest>,
}

impl Stepped {
    /// Opens the listening sockets. Names, TLS and the console are not served.
    ///
    /// # Errors
    /// When no socket can be opened, or the system refuses descriptors.
    pub fn start(config: Config) -> Result<Self, StartError> {
        let listeners = listen::open_all(&config.global, Vec::new())?;
        let tls = TlsContexts::load(&config)?;
        let (handshakes, _) = Handshakes::new(1);
        let (requests, cold) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::new(
            (1, config.global.session_schedule),
            Origin::new(),
            listeners,
            requests,
            tls,
            handshakes,
        )?);
        let now = shared.clock.now();
        let mut worker = Worker::new(WorkerId(0), Arc::clone(&shared), Arc::new(config));
        worker.watch()?;
        Ok(Self { worker, shared, now, _cold: cold })
    }

    /// Returns the addresses of the listening sockets.
    #[must_use]
    pub fn addresses(&self) -> Vec<Address> {
        self.shared.listeners.iter().map(|listener| listener.address().clone()).collect()
    }

    /// Processes everything that has happened, without waiting.
    ///
    /// # Errors
    /// When the kernel does not return the events.
    pub fn turn(&mut self) -> io::Result<()> {
        self.now += TURN;
        let now = self.now;
        self.worker.turn(0, || now)
    }
}
