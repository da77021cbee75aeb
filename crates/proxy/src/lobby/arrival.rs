//! A lobby as it arrives from another process (online restart).

use std::{
    collections::{BTreeSet, HashMap},
    io,
    os::fd::{OwnedFd, RawFd},
    sync::Arc,
};

use engine::records::LobbyRecord;
use net::sys::process::Process;
use room::Room;

use super::places::Places;

/// A lobby of another process. If it is dropped, it stays with that process.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) record: LobbyRecord,
    /// None if this process cannot use it.
    room: Option<SeatedRoom>,
    /// The sockets of the backends, and their processes, in the order of the record.
    pub(super) lines: Vec<(OwnedFd, Option<Process>)>,
}

/// The numbers that the clients of a lobby will have here.
#[derive(Debug)]
pub(crate) struct Reserved {
    record: LobbyRecord,
    places: Option<Arc<Places>>,
}

/// The places of lobbies that have arrived, by the number of the first.
pub(crate) type Arrived = HashMap<RawFd, Arc<Places>>;

impl Reserved {
    /// Reserves the numbers of the clients' sockets. Other files must not get them, so this comes
    /// before any descriptor is received. `arrived`: those of other lobbies, which may share them.
    pub(crate) fn new(record: LobbyRecord, arrived: &mut Arrived) -> Self {
        let base = RawFd::try_from(record.base).ok();
        let base = base.filter(|_| record.layout == room::LAYOUT);
        let places = base.and_then(|base| match arrived.get(&base) {
            Some(shared) => Some(Arc::clone(shared)),
            None => {
                let own = Places::reserve_at(base, record.places)?;
                arrived.insert(base, Arc::clone(&own));
                Some(own)
            }
        });
        let places = places.filter(|places| places.count() == record.places);
        Self { record, places }
    }

    /// Receives the descriptors. `read` returns some of those that are left, none of two parts.
    ///
    /// # Errors
    /// When they cannot be received.
    pub(crate) fn fill(
        self,
        mut read: impl FnMut() -> io::Result<Vec<OwnedFd>>,
    ) -> io::Result<Arrival> {
        let Self { mut record, places } = self;
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
        let has_lines = record.lines.iter().all(|line| line.line < record.backends);
        let open = |places: Arc<Places>| {
            let room = Room::open(files, places.numbers(), record.backends, record.places).ok()?;
            Some(SeatedRoom { room: Some(room), places, claimed: BTreeSet::new() })
        };
        let mut room = places.filter(|_| has_lines).and_then(open);
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
                if room.as_mut().is_some_and(|room| !room.put(guest.place, &fd)) {
                    room = None;
                }
            }
        }
        if let Some(room) = &room {
            // Another lobby may have a place, or another client.
            let mut claimed = room.claimed.clone();
            record.guests.retain(|guest| claimed.remove(&guest.place));
        }
        Ok(Arrival { record, room, lines })
    }
}

impl Arrival {
    /// Can this process use the lobby?
    pub(crate) fn is_usable(&self) -> bool {
        self.room.is_some()
    }

    /// Returns the lobby with its places, if this process can use it.
    pub(super) fn take_room(&mut self) -> Option<(Room, Arc<Places>)> {
        self.room.take().and_then(SeatedRoom::into_parts)
    }
}

/// A lobby with the sockets of its clients. Unless the service gets it, they are closed: other lobbies
/// may keep the numbers.
#[derive(Debug)]
struct SeatedRoom {
    room: Option<Room>,
    places: Arc<Places>,
    claimed: BTreeSet<u32>,
}

impl SeatedRoom {
    fn has_come(&self, line: u32) -> bool {
        self.room.as_ref().is_some_and(|room| room.has_come(line))
    }

    /// Puts the socket of a client into its place, unless another lobby has that. Returns false if
    /// that has failed.
    fn put(&mut self, place: u32, client: &OwnedFd) -> bool {
        if !self.places.claim(place) {
            return place < self.places.count();
        }
        self.claimed.insert(place);
        self.room.as_ref().is_some_and(|room| room.put(place, client))
    }

    fn into_parts(mut self) -> Option<(Room, Arc<Places>)> {
        Some((self.room.take()?, Arc::clone(&self.places)))
    }
}

impl Drop for SeatedRoom {
    fn drop(&mut self) {
        let Some(room) = &self.room else { return };
        for place in &self.claimed {
            room.clear(*place);
            self.places.give_back(*place);
        }
    }
}
