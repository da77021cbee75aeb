//! The connections to the other processes of an online restart. `cold/takeover/line.rs` opens and
//! serves them.

use std::{
    net::Shutdown,
    os::{
        fd::{OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    sync::{Arc, Mutex, mpsc},
};

use engine::shell::OtherProcess;

use super::hub::lock;

/// A message from one process to the other.
#[derive(Debug)]
pub(crate) enum Letter {
    Frame(u8, Vec<u8>),
    /// A state with descriptors, which stay open here until the other process has accepted them.
    State(Vec<u8>, Vec<RawFd>),
    /// A connection with a cancel request.
    Cancel(OwnedFd),
}

/// One end of such a connection.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    letters: mpsc::Sender<Letter>,
    stream: Arc<UnixStream>,
}

/// The connections of this process.
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

    pub(crate) fn set(&self, process: OtherProcess, line: Option<Line>) {
        *lock(self.place(process)) = line;
    }
}

impl Line {
    /// Returns an end, and the receiver of the letters to be written to the stream.
    pub(crate) fn new(stream: Arc<UnixStream>) -> (Self, mpsc::Receiver<Letter>) {
        let (letters, queue) = mpsc::channel();
        (Self { letters, stream }, queue)
    }

    /// Sends a letter; it is dropped if the other process is lost.
    pub(crate) fn send(&self, letter: Letter) {
        let _ = self.letters.send(letter);
    }

    /// Ends the connection in both directions.
    pub(crate) fn cut(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
