//! The new process requests everything. It blocks, and has no threads yet.

use std::{
    collections::VecDeque,
    io::{self, Write as _},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    time::Duration,
};

use config::Global;
use engine::records::HandoverState;

use super::state::{Received, TakeOverError, read_state};
use crate::{
    cold::listen,
    frame::{PATIENCE, REFUSAL, read_frame, request, write_frame},
    lobby::Arrival,
};
use net::sys::{Address, process, socket};

/// The time for the first answer, which a running process gives at once. If a service manager has
/// opened the socket, there may be no process that reads from it.
const ANSWER_PATIENCE: Duration = Duration::from_secs(3);

/// The errors of a connection that the other side has closed.
const ENDS: [io::ErrorKind; 3] =
    [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];

/// The connections that the old process has handed over. If this is dropped before
/// [`Handover::accept`], they stay with the old process.
#[derive(Debug)]
pub struct Handover {
    stream: UnixStream,
    pub(crate) handover_state: HandoverState,
    /// The listening sockets.
    pub(crate) listeners: Vec<OwnedFd>,
    /// The sockets of the records, in their order.
    pub(crate) fds: VecDeque<OwnedFd>,
    lobbies: Vec<Arrival>,
    /// It comes from the holder of a process that was killed.
    pub(crate) is_held: bool,
}

/// Requests everything from the running process. Returns `None` if none runs.
///
/// # Errors
/// When it does not hand over, or something fails meanwhile. It then continues as before.
pub fn receive(global: &Global) -> Result<Option<Handover>, TakeOverError> {
    // The old process may send as many descriptors as it has.
    let _ = process::raise_file_limit();
    let address = listen::unix_address(global).ok_or(TakeOverError::NoSocket)?;
    let socket = socket::open(&address)?;
    process::set_blocking(socket.as_raw_fd())?;
    match socket::connect(socket.as_raw_fd(), &address) {
        Ok(_) => {}
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    }
    // Sent in one piece: the old process reads what came with the startup packet.
    let mut hello = Vec::new();
    wire::frontend::startup(&mut hello, 0, &[("user", "pgbouncer"), ("database", "pgbouncer")]);
    hello.extend_from_slice(request().as_bytes());
    request_all(UnixStream::from(socket), &hello, &address).map(Some)
}

/// Requests the lobbies from the holder of a process that was killed (`crate::holder`). Returns `None`
/// if there is none, or it has nothing.
///
/// # Errors
/// When something fails. The holder then keeps them for the next process.
pub fn receive_held(path: &Path) -> Result<Option<Handover>, TakeOverError> {
    let _ = process::raise_file_limit();
    let address = Address::Unix(path.to_owned());
    let socket = socket::open(&address)?;
    process::set_blocking(socket.as_raw_fd())?;
    if socket::connect(socket.as_raw_fd(), &address).is_err() {
        return Ok(None);
    }
    match request_all(UnixStream::from(socket), request().as_bytes(), &address) {
        Ok(handover) => Ok(Some(Handover { is_held: true, ..handover })),
        Err(TakeOverError::Lost(error)) if ENDS.contains(&error.kind()) => Ok(None),
        Err(error) => Err(error),
    }
}

fn request_all(
    stream: UnixStream,
    hello: &[u8],
    address: &Address,
) -> Result<Handover, TakeOverError> {
    stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    (&stream).write_all(hello)?;
    let answer = read_frame(&stream).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => TakeOverError::NoAnswer(address.to_string()),
        _ => error.into(),
    });
    stream.set_read_timeout(Some(PATIENCE))?;
    match answer? {
        (b'W', _) => {}
        (REFUSAL, text) => {
            return Err(TakeOverError::Refused(String::from_utf8_lossy(&text).into_owned()));
        }
        _ => return Err(TakeOverError::Foreign),
    }
    let (letter, state) = read_frame(&stream)?;
    if letter != b'S' {
        return Err(TakeOverError::Refused(String::from_utf8_lossy(&state).into_owned()));
    }
    let Received { handover_state, listeners, fds, lobbies } = read_state(&stream, &state)?;
    Ok(Handover { stream, handover_state, listeners, fds, lobbies, is_held: false })
}

impl Handover {
    /// Returns a copy of the connection, which ends when all copies are dropped.
    pub(crate) fn connection(&self) -> io::Result<UnixStream> {
        self.stream.try_clone()
    }

    /// Confirms that everything was taken; it belongs to this process from now on. `lobbies`: was
    /// each of them taken, too?
    ///
    /// # Errors
    /// When the old process is lost, has stopped waiting, or has got an operator's order meanwhile:
    /// then it does not.
    pub(crate) fn accept(stream: &UnixStream, lobbies: &[bool]) -> io::Result<()> {
        let mut answer = std::process::id().to_be_bytes().to_vec();
        answer.extend(lobbies.iter().map(|is_taken| u8::from(*is_taken)));
        write_frame(stream, b'A', &answer)?;
        match read_frame(stream)? {
            (b'G', _) => Ok(()),
            (REFUSAL, text) => Err(io::Error::other(String::from_utf8_lossy(&text).into_owned())),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    pub(crate) fn into_parts(self) -> (UnixStream, HandoverState, VecDeque<OwnedFd>, Vec<Arrival>) {
        (self.stream, self.handover_state, self.fds, self.lobbies)
    }
}
