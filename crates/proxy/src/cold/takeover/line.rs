//! The line between the process before an online restart and the one after it. It is the connection
//! over which the first hand-over went, and stays open for as long as both serve clients.
//!
//! A thread reads it and another one writes it, so that neither process waits for the other.

use std::{
    io,
    net::Shutdown,
    os::{
        fd::{AsRawFd as _, IntoRawFd as _, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    sync::{Arc, Mutex, mpsc},
    thread,
};

use engine::{ids::WorkerId, shell::OtherProcess};

use super::{read_fds, read_frame, write_fds, write_frame};
use crate::{
    Peer,
    data::shared::{Shared, ShellMail},
    exchange::hub::lock,
};

/// What one process tells the other.
#[derive(Debug)]
pub(crate) enum Letter {
    Frame(u8, Vec<u8>),
    /// A state, with descriptors that stay open here until the other process has accepted them.
    State(Vec<u8>, Vec<RawFd>),
    /// A connection on which a cancel request comes.
    Cancel(OwnedFd),
}

/// One end of the line.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    letters: mpsc::Sender<Letter>,
    stream: Arc<UnixStream>,
}

/// The lines of this process.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    predecessor: Mutex<Option<Line>>,
    successor: Mutex<Option<Line>>,
}

impl Lines {
    fn place(&self, to: OtherProcess) -> &Mutex<Option<Line>> {
        match to {
            OtherProcess::Predecessor => &self.predecessor,
            OtherProcess::Successor => &self.successor,
        }
    }

    pub(crate) fn to(&self, process: OtherProcess) -> Option<Line> {
        lock(self.place(process)).clone()
    }
}

impl Line {
    /// Begins to write and to read. `hear` gets each frame, and the stream for descriptors that
    /// follow it. The line is forgotten when `hear` fails, or the other process is lost.
    ///
    /// # Errors
    /// When the system refuses threads.
    pub(super) fn open(
        stream: UnixStream,
        shared: &Arc<Shared>,
        process: OtherProcess,
        mut hear: impl FnMut(u8, Vec<u8>, &UnixStream) -> io::Result<()> + Send + 'static,
        ended: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        stream.set_read_timeout(None)?;
        let (letters, queue) = mpsc::channel();
        let line = Self { letters, stream: Arc::new(stream) };
        *lock(shared.lines.place(process)) = Some(line.clone());
        let stream = Arc::clone(&line.stream);
        thread::Builder::new().name("weir-line-out".to_owned()).spawn(move || {
            if queue.iter().try_for_each(|letter| write(&stream, letter)).is_err() {
                let _ = stream.shutdown(Shutdown::Both);
            }
        })?;
        let (stream, shared) = (Arc::clone(&line.stream), Arc::clone(shared));
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
            *lock(shared.lines.place(process)) = None;
            let _ = stream.shutdown(Shutdown::Both);
            ended();
        })?;
        Ok(line)
    }

    /// A letter for a process that is lost is dropped.
    pub(crate) fn send(&self, letter: Letter) {
        let _ = self.letters.send(letter);
    }

    /// Nothing more is said or heard.
    pub(super) fn cut(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
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

/// The other process does not know the key of a cancel request: it comes here as if its client had
/// connected to this process.
fn take_cancel(stream: &UnixStream, shared: &Shared, from: OtherProcess) -> io::Result<()> {
    for fd in read_fds(stream, 1)? {
        let worker = shared.place_client(WorkerId(0));
        let mail = ShellMail::Client { fd: fd.into_raw_fd(), peer: Peer::Process(from) };
        shared.hub.mailbox(worker).post(mail);
    }
    Ok(())
}
