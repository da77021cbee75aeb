//! The frames and descriptors by which one process hands its connections to the next: on the unix socket
//! of a take-over (`cold/takeover`), and on that of a holder (`holder`).

use std::{
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsRawFd as _, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use net::sys::rights;

/// The text after the startup packet: these words, and the versions of the protocol and of the
/// records. Both processes must have the same.
pub(crate) const REQUEST: &str = "weir: take over";
/// The version of the protocol above.
const PROTOCOL: u32 = 3;
/// The letter of a refusal. No server begins a login with it, so PgBouncer is recognised.
pub(crate) const REFUSAL: u8 = b'X';
/// The letter with which a new process lets a holder go (`crate::holder`).
pub(crate) const DONE: u8 = b'D';
/// The time that one side waits for a message that the other side can send at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// The longest frame.
const FRAME_LEN_MAX: usize = 1 << 30;

pub(crate) fn request() -> String {
    format!("{REQUEST} {PROTOCOL}.{}", engine::records::FORMAT)
}

pub(crate) fn write_frame(mut to: &UnixStream, letter: u8, body: &[u8]) -> io::Result<()> {
    let mut head = [letter, 0, 0, 0, 0];
    let len = u32::try_from(body.len()).map_err(io::Error::other)?;
    head[1..].copy_from_slice(&len.to_be_bytes());
    to.write_all(&head)?;
    to.write_all(body)
}

pub(crate) fn read_frame(mut from: &UnixStream) -> io::Result<(u8, Vec<u8>)> {
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

pub(crate) fn write_fds(to: &UnixStream, fds: &[RawFd]) -> io::Result<()> {
    fds.chunks(rights::FDS_MAX).try_for_each(|some| rights::send(to.as_raw_fd(), some))
}

pub(crate) fn read_fds(from: &UnixStream, count: usize) -> io::Result<Vec<OwnedFd>> {
    let mut fds = Vec::new();
    while fds.len() < count {
        fds.extend(rights::receive(from.as_raw_fd())?);
    }
    Ok(fds)
}
