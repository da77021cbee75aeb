//! The connection between the two processes of an online restart. It is the one of the first
//! hand-over, and stays open as long as both serve clients.
//!
//! One thread reads and another one writes, so that neither process waits for the other.

use std::{
    io,
    net::Shutdown,
    os::{fd::AsRawFd as _, unix::net::UnixStream},
    sync::Arc,
    thread,
};

use engine::{ids::WorkerId, shell::OtherProcess};

use crate::frame::{read_fds, read_frame, write_fds, write_frame};
use crate::{
    Peer,
    exchange::{
        lines::{Letter, Line},
        mail::ShellMail,
        shared::Shared,
    },
};

/// Begins to write and to read. `hear` gets each frame, and the stream for the descriptors that
/// follow it. The connection is closed when `hear` fails, or the other process is lost.
///
/// # Errors
/// When the system refuses threads.
pub(super) fn open(
    stream: UnixStream,
    shared: &Arc<Shared>,
    process: OtherProcess,
    mut hear: impl FnMut(u8, Vec<u8>, &UnixStream) -> io::Result<()> + Send + 'static,
    ended: impl FnOnce() + Send + 'static,
) -> io::Result<Line> {
    stream.set_read_timeout(None)?;
    let stream = Arc::new(stream);
    let (line, queue) = Line::new(Arc::clone(&stream));
    shared.lines.set(process, Some(line.clone()));
    let to = Arc::clone(&stream);
    thread::Builder::new().name("weir-line-out".to_owned()).spawn(move || {
        if queue.iter().try_for_each(|letter| write(&to, letter)).is_err() {
            let _ = to.shutdown(Shutdown::Both);
        }
    })?;
    let shared = Arc::clone(shared);
    thread::Builder::new().name("weir-line-in".to_owned()).spawn(move || {
        while let Ok((letter, body)) = read_frame(&stream) {
            let heard = match letter {
                b'C' => take_cancel(&stream, &shared, process),
                _ => hear(letter, body, &stream),
            };
            if heard.is_err() {
                break;
            }
        }
        shared.lines.set(process, None);
        let _ = stream.shutdown(Shutdown::Both);
        ended();
    })?;
    Ok(line)
}

fn write(stream: &UnixStream, letter: Letter) -> io::Result<()> {
    match letter {
        Letter::Frame(letter, body) => write_frame(stream, letter, &body),
        Letter::State(body, fds) => {
            write_frame(stream, b'S', &body)?;
            write_fds(stream, &fds)
        }
        Letter::Cancel(fd) => {
            write_frame(stream, b'C', b"")?;
            write_fds(stream, &[fd.as_raw_fd()])
        }
    }
}

/// Takes a cancel request whose key the other process does not know. It is handled as if its client
/// had connected to this process.
fn take_cancel(stream: &UnixStream, shared: &Shared, from: OtherProcess) -> io::Result<()> {
    for fd in read_fds(stream, 1)? {
        let worker = shared.place_client(WorkerId(0));
        let mail = ShellMail::Client { fd, peer: Peer::Process(from) };
        shared.hub.mailbox(worker).post(mail);
    }
    Ok(())
}
