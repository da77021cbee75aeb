//! A relay between the pooler and PostgreSQL that can be cut after a given byte.
//!
//! While it is armed, it counts the bytes of one direction, on all connections opened since
//! [`Fuse::spare_present`]. It cuts the connection on which the last byte passes: both ends are
//! closed, as if PostgreSQL's host had lost the process.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use testkit::eventually;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Toward {
    Server,
    Pooler,
}

/// The relay. It lives as long as the process.
pub(super) struct Fuse {
    port: u16,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The direction that is counted, and the number of bytes that may still pass.
    armed: Option<(Toward, usize)>,
    burnt: bool,
    /// True once both ends are closed.
    severed: bool,
    connections: u32,
    exempt: HashSet<u32>,
    /// The bytes that have passed since [`Fuse::record`], per direction.
    record: Option<[Vec<u8>; 2]>,
}

impl Fuse {
    /// Starts a relay to a port of 127.0.0.1.
    pub(super) fn before(server_port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = state.clone();
        std::thread::spawn(move || {
            for pooler in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)) else { continue };
                relay(&shared, &pooler, &server);
            }
        });
        Self { port, state }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Exempts the current connections from being cut.
    pub(super) fn spare_present(&self) {
        let mut state = lock(&self.state);
        state.exempt = (0..state.connections).collect();
    }

    /// Cuts after `bytes` more in this direction. With 0, it cuts as soon as one would pass.
    pub(super) fn arm(&self, toward: Toward, bytes: usize) {
        let mut state = lock(&self.state);
        state.armed = Some((toward, bytes));
        state.burnt = false;
        state.severed = false;
    }

    /// Disarms the relay, after a cut has been completed. Returns whether it has cut.
    pub(super) fn disarm(&self) -> bool {
        let burnt = {
            let mut state = lock(&self.state);
            state.armed = None;
            state.burnt
        };
        if burnt {
            let severed = || lock(&self.state).severed.then_some(());
            eventually("the wire is cut", Duration::from_secs(10), severed);
        }
        burnt
    }

    /// Records the bytes that pass from now on.
    pub(super) fn record(&self) {
        lock(&self.state).record = Some(Default::default());
    }

    /// Returns the bytes that have passed to the server, and to the pooler.
    pub(super) fn recorded(&self) -> [Vec<u8>; 2] {
        lock(&self.state).record.take().expect("it was recording")
    }
}

impl State {
    /// Returns the number of these bytes that may pass, and whether the connection is cut after
    /// them.
    fn admit(&mut self, connection: u32, toward: Toward, bytes: &[u8]) -> (usize, bool) {
        if self.exempt.contains(&connection) {
            return (bytes.len(), false);
        }
        if let Some(record) = &mut self.record {
            record[usize::from(toward == Toward::Pooler)].extend_from_slice(bytes);
        }
        match &mut self.armed {
            Some((armed, left)) if *armed == toward && !self.burnt => {
                let passing = bytes.len().min(*left);
                *left -= passing;
                self.burnt = *left == 0;
                (passing, self.burnt)
            }
            _ => (bytes.len(), false),
        }
    }
}

fn relay(state: &Arc<Mutex<State>>, pooler: &TcpStream, server: &TcpStream) {
    let connection = {
        let mut state = lock(state);
        state.connections += 1;
        state.connections - 1
    };
    for (from, to, toward) in [(pooler, server, Toward::Server), (server, pooler, Toward::Pooler)] {
        let _ = from.set_nodelay(true);
        let handles = (from.try_clone(), to.try_clone(), state.clone());
        let (Ok(from), Ok(to), state) = handles else { return };
        std::thread::spawn(move || copy(&state, connection, toward, &from, &to));
    }
}

fn copy(
    state: &Mutex<State>,
    connection: u32,
    toward: Toward,
    mut from: &TcpStream,
    mut to: &TcpStream,
) {
    let mut buffer = [0; 16384];
    let mut cut = false;
    while !cut && let Ok(length @ 1..) = from.read(&mut buffer) {
        let passing;
        (passing, cut) = lock(state).admit(connection, toward, &buffer[..length]);
        if to.write_all(&buffer[..passing]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
    if cut {
        lock(state).severed = true;
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
