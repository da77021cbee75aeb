//! Online restart (`-R`): a new process takes over from the running one, over the unix socket that
//! clients come to. It logs in to the console there, as the system user of both, and says
//! [`REQUEST`] behind its startup packet; from then on the two speak as follows. A *frame* is a
//! letter, a length of four bytes and so many bytes.
//!
//! ```text
//!  new process                            old process
//!  startup packet, REQUEST  ──►
//!                           ◄──  'R' text: refused; that is all
//!                           ◄──  'W': it will be done        (comes to rest, exports)
//!                           ◄──  'S' state, then descriptors (keeps still)
//!  'A' process id           ──►                              (forgets what it gave)
//!                           ◄──  'G': go
//! ```
//!
//! Up to the 'A' everything belongs to the old process, which goes on as if nothing had happened
//! when the new one is lost or takes too long. From then on all of it is the new one's.
//!
//! * `give.rs`: the old process's half
//! * `receive.rs`: the new process's half, up to the 'S'
//! * `adopt.rs`: the sockets and the state find their places

mod adopt;
mod give;
mod receive;

use std::{
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsRawFd as _, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use engine::parcel::Malformed;

use crate::sys::rights;

pub use self::receive::{Heritage, receive};
pub(crate) use self::{
    adopt::adopt,
    give::{give, is_request},
};

/// What follows the startup packet: these words and the versions of the conversation and of the
/// records. Both processes must have the same.
const REQUEST: &str = "weir: take over";
/// Of the conversation above.
const PROTOCOL: u32 = 1;
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
    #[error("the running process does not know how to hand over")]
    Foreign,
    #[error("the running process was lost while it handed over: {0}")]
    Lost(#[from] io::Error),
    #[error("the running process sent what is not understood: {0}")]
    Malformed(#[from] Malformed),
    #[error("the running process sent {0} descriptors too few or too many")]
    Descriptors(usize),
}

fn request() -> String {
    format!("{REQUEST} {PROTOCOL}.{}", engine::parcel::FORMAT)
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
