//! The descriptors of clients, for the backends that need them.

use std::os::fd::{AsRawFd as _, RawFd};

use room::State;

use super::{
    super::control::{self, MORE_MAX, Seat},
    Lobby, Service,
};

impl Lobby {
    /// The state words alone do not count, since backends can write them: the number of a place may be
    /// that of another lobby's client.
    fn is_there(&self, seat: Seat) -> bool {
        let word = self.room.word(seat.place);
        self.guests.at(seat.place).is_some()
            && word.generation() == seat.generation
            && word.state() != State::Free
    }

    /// A client has come. Backends will need its descriptor.
    pub(super) fn note_seating(&mut self, place: u32) {
        let generation = self.room.word(place).generation();
        self.seatings.note(Seat { place, generation });
    }
}

impl Service {
    /// Gives a backend the descriptor of the client that it has taken, and those of some others that
    /// it has not met. Returns false if the backend may not have it.
    pub(super) fn give_descriptor(&mut self, number: usize, needed: Seat) -> bool {
        let backend = &mut self.backends[number];
        let Some(role) = &mut backend.role else { return false };
        let lobby = &self.lobbies[role.room];
        let is_owner = lobby.room.is_owner(needed.place, role.line, needed.generation);
        if !is_owner || !lobby.is_there(needed) {
            return role.is_inherited;
        }
        let is_given = |seat: Seat| seat != needed && lobby.is_there(seat);
        let more = lobby.seatings.take(&mut role.next_seating, MORE_MAX, is_given);
        let mut descriptors = vec![lobby.room.socket(needed.place)];
        descriptors.extend(more.iter().map(|seat| lobby.room.socket(seat.place)));
        lobby.room.call(role.line);
        let fd = backend.fd.as_raw_fd();
        // The kernel may have too many descriptors under way.
        control::send_descriptors(fd, needed, &more, &descriptors)
            || control::send_descriptors(fd, needed, &[], &descriptors[..1])
    }

    /// Gives a backend the descriptor of its client. The backend may have asked the process before.
    pub(super) fn give_again(&self, number: usize, needed: Seat, socket: RawFd) {
        let backend = &self.backends[number];
        if let Some(role) = &backend.role {
            self.lobbies[role.room].room.call(role.line);
        }
        control::send_descriptors(backend.fd.as_raw_fd(), needed, &[], &[socket]);
    }
}
