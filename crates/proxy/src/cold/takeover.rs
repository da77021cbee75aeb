//! Online restart (`-R`): a new process takes over from the running one, over the unix socket that
//! clients come to. It logs in to the console there, as the system user of both, and says
//! [`REQUEST`] behind its startup packet; from then on the two speak as follows. A *frame* is a
//! letter, a length of four bytes and so many bytes.
//!
//! ```text
//!  new process                            old process
//!  startup packet, REQUEST  ──►
//!                           ◄──  'X' text: refused; that is all
//!                           ◄──  'W': it will be done        (short queries end, exports)
//!                           ◄──  'S' state, then descriptors (keeps still)
//!  'A' process id           ──►                              (forgets what it gave)
//!                           ◄──  'G': go
//!
//!  then, while the old process has clients that were busy, for at most `suspend_timeout`:
//!                           ◄──  'S' state, then descriptors (what has come to rest since)
//!  'A' process id           ──►        or 'N' text: nothing is taken any more
//!                           ◄──  'G': go
//!
//!  and for as long as the old process runs:
//!                           ◄──  'U' servers in use, by pool
//!       'C', then a connection ◄─►  a cancel request whose key is not known there
//! ```
//!
//! Up to the first 'A' everything belongs to the old process, which goes on as if nothing had
//! happened when the new one is lost or takes too long. What is handed over later belongs to the
//! old process up to the 'A' that follows it.
//!
//! * `give.rs`: the old process's half
//! * `receive.rs`: the new process's half, up to the first 'S'
//! * `adopt.rs`: the sockets and the state find their places
//! * `late.rs`: the same in a process that serves clients already
//! * `line.rs`: the connection, after the first 'G'

mod adopt;
mod give;
mod late;
mod line;
mod receive;

use std::{
    collections::VecDeque,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsRawFd as _, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use engine::records::{HandoverState, Malformed};

use net::sys::rights;

pub use self::receive::{Handover, receive};
pub(crate) use self::{
    adopt::adopt,
    give::{give, is_request},
    late::{Inheritance, Parts, Share, follow},
    line::{Letter, Lines},
};

/// What follows the startup packet: these words and the versions of the conversation and of the
/// records. Both processes must have the same.
const REQUEST: &str = "weir: take over";
/// Of the conversation above.
const PROTOCOL: u32 = 2;
/// The letter of a refusal, which no server says at the beginning of a login: PgBouncer is told apart.
const REFUSAL: u8 = b'X';
/// How long one side waits for the other to say something that needs no time.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest frame.
const FRAME_LEN_MAX: usize = 1 << 30;

/// Why nothing was taken over.
#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    #[error("cannot take over without unix_socket_dir")]
    NoSocket,
    #[error("the running process does not hand over: {0}")]
    Refused(String),
    #[error(
        "the running process is not Weir, and cannot hand over its connections: stop it, then start \
         Weir without -R"
    )]
    Foreign,
    #[error("the running process was lost while it handed over: {0}")]
    Lost(#[from] io::Error),
    #[error("the running process sent what is not understood: {0}")]
    Malformed(#[from] Malformed),
    #[error("the running process sent {0} descriptors too few or too many")]
    Descriptors(usize),
}

fn request() -> String {
    format!("{REQUEST} {PROTOCOL}.{}", engine::records::FORMAT)
}

fn write_frame(mut to: &UnixStream, letter: u8, body: &[u8]) -> io::Result<()> {
    let mut head = [letter, 0, 0, 0, 0];
    let len = u32::try_from(body.len()).map_err(io::Error::other)?;
    head[1..].copy_from_slice(&len.to_be_bytes());
    to.write_all(&head)?;
    to.write_all(body)
}

fn read_frame(mut from: &UnixStream) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    from.read_exact(&mut head)?;
    let [letter, len @ ..] = head;
    let len = u32::from_be_bytes(len) as usize;
    if len > FRAME_LEN_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = Vec::new();
    from.take(len as u64).read_to_end(&mut body)?;
    if body.len() < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok((letter, body))
}

/// What a state says of the descriptors behind it: how many are listened on, and how many others
/// there are.
fn head(listeners: usize, sockets: usize) -> [u8; 8] {
    let mut head = [0; 8];
    head[..4].copy_from_slice(&(listeners as u32).to_be_bytes());
    head[4..].copy_from_slice(&(sockets as u32).to_be_bytes());
    head
}

/// Reads what [`head`] wrote, the state and the descriptors.
fn read_state(from: &UnixStream, body: &[u8]) -> Result<Received, TakeOverError> {
    let (counts, state) = body.split_at_checked(8).ok_or(TakeOverError::Foreign)?;
    let count = |at: usize| {
        counts[at..at + 4].iter().fold(0_usize, |all, byte| all << 8 | usize::from(*byte))
    };
    let (listeners, sockets) = (count(0), count(4));
    let handover_state = HandoverState::from_bytes(state)?;
    let expected: usize = handover_state.worker_records.iter().map(adopt::sockets_of).sum();
    if expected != sockets {
        return Err(TakeOverError::Descriptors(expected.abs_diff(sockets)));
    }
    let mut fds = VecDeque::from(read_fds(from, listeners + sockets)?);
    if fds.len() != listeners + sockets {
        return Err(TakeOverError::Descriptors(fds.len().abs_diff(listeners + sockets)));
    }
    let listeners = fds.drain(..listeners).collect();
    Ok(Received { handover_state, listeners, fds })
}

/// A state and the descriptors behind it.
struct Received {
    handover_state: HandoverState,
    listeners: Vec<OwnedFd>,
    fds: VecDeque<OwnedFd>,
}

fn write_fds(to: &UnixStream, fds: &[RawFd]) -> io::Result<()> {
    fds.chunks(rights::FDS_MAX).try_for_each(|some| rights::send(to.as_raw_fd(), some))
}

fn read_fds(from: &UnixStream, count: usize) -> io::Result<Vec<OwnedFd>> {
    let mut fds = Vec::new();
    while fds.len() < count {
        fds.extend(rights::receive(from.as_raw_fd())?);
    }
    Ok(fds)
}
