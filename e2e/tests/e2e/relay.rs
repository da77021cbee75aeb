//! A relay between the pooler and PostgreSQL. It records the bytes that pass, and forwards the
//! server's bytes in pieces of given sizes. It sends a piece after the pooler has read the one
//! before.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use testkit::{open_folder, wait_until_read};

/// The port in the socket's name. It is not a TCP port.
const PORT: u16 = 5432;

/// The relay. It lives as long as the process.
pub(crate) struct Relay {
    folder: PathBuf,
    state: Arc<Mutex<State>>,
}

/// The places at which the server's bytes are cut.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Cut {
    /// No cuts by the relay; only the kernel splits the bytes.
    #[default]
    Nowhere,
    /// A single cut after this number of bytes.
    Behind(usize),
    /// Pieces of this size.
    Pieces(usize),
}

#[derive(Default)]
struct State {
    cut: Cut,
    /// Bytes from the server since the cut was set.
    passed: usize,
    /// The bytes of the pooler, and of the server, on all connections.
    record: [Vec<u8>; 2],
}

impl Relay {
    /// Starts a relay to a port of 127.0.0.1.
    pub(crate) fn before(server_port: u16) -> Self {
        let folder = open_folder("relay");
        let path = folder.join(format!(".s.PGSQL.{PORT}"));
        let listener = UnixListener::bind(&path).expect("a new folder");
        std::fs::set_permissions(&path, Permissions::from_mode(0o777)).expect("our own socket");
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = state.clone();
        std::thread::spawn(move || {
            for pooler in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)) else { continue };
                connect(&shared, &pooler, &server);
            }
        });
        Self { folder, state }
    }

    /// Returns the relay's address, as an entry of `[databases]`.
    pub(crate) fn connection(&self) -> String {
        format!("host={} port={PORT}", self.folder.display())
    }

    /// Cuts the server's bytes in this way from now on, and records all bytes.
    pub(crate) fn cut(&self, cut: Cut) {
        *lock(&self.state) = State { cut, ..State::default() };
    }

    /// Returns the bytes that have passed since [`Relay::cut`]: to the server, and to the pooler.
    pub(crate) fn passed(&self) -> [Vec<u8>; 2] {
        lock(&self.state).record.clone()
    }
}

impl State {
    /// Returns the pieces in which these bytes are forwarded.
    fn pieces<'a>(&mut self, bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let before = self.passed;
        self.passed += bytes.len();
        match self.cut {
            Cut::Behind(at) if before < at && at < self.passed => {
                let (one, other) = bytes.split_at(at - before);
                vec![one, other]
            }
            Cut::Nowhere | Cut::Behind(_) => vec![bytes],
            Cut::Pieces(size) => bytes.chunks(size).collect(),
        }
    }
}

fn connect(state: &Arc<Mutex<State>>, pooler: &UnixStream, server: &TcpStream) {
    let _ = server.set_nodelay(true);
    let handles = (pooler.try_clone(), server.try_clone(), state.clone());
    let (Ok(to_pooler), Ok(mut from_server), shared) = handles else { return };
    std::thread::spawn(move || {
        answers(&shared, &mut from_server, &to_pooler);
        let _ = to_pooler.shutdown(Shutdown::Both);
    });
    let handles = (pooler.try_clone(), server.try_clone(), state.clone());
    let (Ok(mut from_pooler), Ok(to_server), shared) = handles else { return };
    std::thread::spawn(move || {
        requests(&shared, &mut from_pooler, &to_server);
        let _ = to_server.shutdown(Shutdown::Both);
    });
}

/// Forwards the pooler's bytes as they come.
fn requests(state: &Mutex<State>, from: &mut UnixStream, mut to: &TcpStream) {
    let mut buffer = [0; 16384];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        lock(state).record[0].extend_from_slice(&buffer[..length]);
        if to.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}

/// Forwards the server's bytes in pieces.
fn answers(state: &Mutex<State>, from: &mut TcpStream, mut to: &UnixStream) {
    let mut buffer = [0; 16384];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let bytes = &buffer[..length];
        let pieces = {
            let mut state = lock(state);
            state.record[1].extend_from_slice(bytes);
            state.pieces(bytes)
        };
        for piece in pieces {
            if to.write_all(piece).is_err() {
                return;
            }
            // Waits after the last piece as well, since a cut may be at a place where the kernel
            // has split the bytes already.
            wait_until_read(to);
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
