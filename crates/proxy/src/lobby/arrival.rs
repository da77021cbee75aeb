//! A lobby as it arrives from another process (online restart).

use std::{
    io,
    os::fd::{OwnedFd, RawFd},
};

use engine::records::LobbyRecord;
use net::sys::process::Process;
use room::{Numbers, Room};

/// A lobby of another process. If it is dropped, it stays with that process.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) record: LobbyRecord,
    /// None if this process cannot use it.
    pub(super) room: Option<Room>,
    /// The sockets of the backends, and their processes, in the order of the record.
    pub(super) lines: Vec<(OwnedFd, Option<Process>)>,
}

/// The numbers that the clients of a lobby will have here.
#[derive(Debug)]
pub(crate) struct Reserved {
    record: LobbyRecord,
    numbers: Option<Numbers>,
}

impl Reserved {
    /// Reserves the numbers of the clients' sockets. Other files must not get them, so this comes
    /// before any descriptor is received.
    pub(crate) fn new(record: LobbyRecord) -> Self {
        let base = RawFd::try_from(record.base).ok();
        let base = base.filter(|_| record.layout == room::LAYOUT);
        let numbers = base.and_then(|base| Numbers::reserve_at(base, record.places).ok());
        Self { record, numbers }
    }

    /// Receives the descriptors. `read` returns some of those that are left, none of two parts.
    ///
    /// # Errors
    /// When they cannot be received.
    pub(crate) fn fill(
        self,
        mut read: impl FnMut() -> io::Result<Vec<OwnedFd>>,
    ) -> io::Result<Arrival> {
        let Self { mut record, numbers } = self;
        let mut head = Vec::new();
        while head.len() < record.head_len() {
            head.extend(read()?);
        }
        if head.len() > record.head_len() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut head = head.into_iter();
        let mut next = || head.next().ok_or(io::Error::from(io::ErrorKind::UnexpectedEof));
        let files = [next()?, next()?];
        let mut lines = Vec::new();
        for line in &record.lines {
            let socket = next()?;
            let process = if line.has_process { Some(Process::of(next()?)) } else { None };
            lines.push((socket, process));
        }
        let open = |numbers| Room::open(files, numbers, record.backends, record.places).ok();
        let mut room = numbers.and_then(open);
        if record.lines.iter().any(|line| line.line >= record.backends) {
            room = None;
        }
        for line in record.lines.iter_mut().filter(|line| line.server != 0) {
            // A process that was killed may not have noticed it.
            line.came |= room.as_ref().is_some_and(|room| room.has_come(line.line));
        }
        let mut seated = 0;
        while seated < record.guests.len() {
            for fd in read()? {
                let guest = record.guests.get(seated).ok_or(io::ErrorKind::InvalidData)?;
                seated += 1;
                // The sockets of an unusable lobby are closed here.
                if room.as_ref().is_some_and(|room| !room.put(guest.place, &fd)) {
                    room = None;
                }
            }
        }
        Ok(Arrival { record, room, lines })
    }
}

impl Arrival {
    /// Can this process use the lobby?
    pub(crate) fn is_usable(&self) -> bool {
        self.room.is_some()
    }
}
