//! Clients of the lobbies: they come, return, are cancelled and end.

use std::{
    io,
    os::fd::{AsRawFd as _, RawFd},
    sync::Arc,
};

use engine::{
    ids::{ClientId, PoolId, WorkerId},
    own_error::{Cause, OwnError},
    shell::{CancelOutcome, Closing, Mail},
};
use net::sys::{epoll, socket};
use room::{Order, Room};
use wire::{error_fields::ErrorFields, startup::CancelKey};

use super::{
    super::{
        control::Reason,
        guests::{Ending, Seated, no_place, refuse},
    },
    Lobby, PARTIAL, Service,
};
use crate::exchange::lobby_door::Arriving;

/// Most bytes of a message that a backend looks at.
const PEEK_MAX: usize = 8192;

/// A message is left in the socket until it is whole. With a smaller buffer, its beginning can use so
/// much memory of the kernel that the window stays shut, and the rest never comes.
const WINDOW_MIN: i32 = 256 * 1024;

impl Service {
    pub(super) fn end(&mut self, at: usize, place: u32, why: Ending<'_>) {
        let (guests, around) = self.guests_of(at);
        guests.end(place, why, &around);
    }

    pub(super) fn take_in(&mut self, Arriving { guest, fd, peer }: Arriving) {
        let shared = Arc::clone(&self.shared);
        let refused = |why: &str, fd: RawFd| {
            let error = OwnError::new(Cause::ServerUnreachable, why).fields(guest.codes, None);
            refuse(&guest, fd, &error, &shared);
        };
        let Some(at) = self.lobby_of(guest.pool) else {
            return refused("the lobby has ended", fd.as_raw_fd());
        };
        let lobby = &mut self.lobbies[at];
        if !Room::has_room_for(&guest.settings) {
            return refused("the settings of the client are too long", fd.as_raw_fd());
        }
        let Some(place) = lobby.guests.free_place() else {
            let error = no_place(lobby.room.places(), guest.codes);
            return refuse(&guest, fd.as_raw_fd(), &error, &shared);
        };
        let login = socket::traffic(fd.as_raw_fd()).unwrap_or_default();
        let _ = socket::raise_window(fd.as_raw_fd(), WINDOW_MIN);
        let told = (guest.told, (guest.key >> 32) as u32);
        let is_taken = lobby.room.take(place, &fd, &guest.settings, told);
        drop(fd);
        if !is_taken {
            if lobby.room.untake(place) {
                lobby.guests.put_back(place);
            }
            // Its socket is closed already.
            return refused("the lobby cannot take the client", -1);
        }
        lobby.guests.seat(place, (guest, peer), login, self.shared.clock.now());
        lobby.note_seating(place);
        // Before a backend can take it.
        self.hold_guest(at, place);
        self.admit(at, place);
        let lobby = &self.lobbies[at];
        if lobby.lines.iter().all(Option::is_none) {
            self.ask_for_server(at);
        }
    }

    pub(super) fn admit(&mut self, at: usize, place: u32) {
        if self.is_suspended {
            return self.lobbies[at].guests.hold(place);
        }
        if !self.lobbies[at].room.admit(place) {
            let why = Ending::Told(Cause::ServerUnreachable, "the lobby cannot take the client");
            self.end(at, place, why);
        }
    }

    /// A client is Weir's again. `from`: the number of its backend.
    pub(super) fn take_back(&mut self, at: usize, place: u32, reason: Reason, from: usize) {
        let Lobby { room, guests, .. } = &self.lobbies[at];
        let is_seated = guests.at(place).is_some();
        let is_ending = guests.at(place).is_some_and(Seated::is_ending);
        let fd = room.socket(place);
        let unreachable = Cause::ServerUnreachable;
        match reason {
            Reason::Listens => self.depart(at, place, from),
            // The number may be that of another lobby's client.
            _ if !is_seated => {}
            _ if is_ending => self.end(at, place, Ending::Left),
            Reason::Ended => self.end(at, place, Ending::Left),
            Reason::Bad => self.end(at, place, Ending::Told(Cause::Protocol, "bad packet")),
            Reason::State if self.replace(at, place, from) => {}
            Reason::State => {
                let why = "the settings or statements of the session cannot be restored";
                self.end(at, place, Ending::Told(unreachable, why));
            }
            Reason::Recalled => self.admit(at, place),
            Reason::Partial => {
                let token = PARTIAL | (at as u64) << 32 | u64::from(place);
                if self.own.add(fd, epoll::READ, token).is_err() {
                    self.admit(at, place);
                }
            }
        }
    }

    /// Ends a backend that refuses a client's settings, as another one does not: temporary tables or
    /// a library may be the reason. Until then the client waits. Returns false if that is no use.
    fn replace(&mut self, at: usize, place: u32, number: usize) -> bool {
        let lobby = &mut self.lobbies[at];
        let is_of_use = lobby.guests.note_refusal(place, number, &lobby.room);
        if is_of_use {
            self.dismiss(number);
        }
        is_of_use
    }

    /// A client whose message was not whole has sent more, or has left.
    pub(super) fn partial_event(&mut self, token: u64, flags: u32) {
        let (at, place) = (((token & !PARTIAL) >> 32) as usize, token as u32);
        let fd = self.lobbies[at].room.socket(place);
        if is_whole(fd) {
            let _ = self.own.delete(fd);
            self.admit(at, place);
        } else if flags & (epoll::PEER_DONE | epoll::BROKEN) != 0 {
            // The rest of the message will not come.
            self.end(at, place, Ending::Left);
        }
    }

    pub(super) fn close_pool(&mut self, pool: PoolId, when: Closing, why: &str) {
        let Some(at) = self.find(pool) else { return };
        let (guests, around) = self.guests_of(at);
        for place in guests.places() {
            guests.disconnect(place, Cause::Operator, why, when, &around);
        }
        self.wake_lingerers(at);
        self.interrupt_ordered(at);
    }

    /// PostgreSQL refuses the pool's logins, and no backend is left.
    pub(super) fn refuse_waiting(&mut self, pool: PoolId, error: &ErrorFields) {
        let Some(at) = self.find(pool) else { return };
        let (guests, around) = self.guests_of(at);
        for place in guests.places() {
            guests.refuse(place, error, &around);
        }
    }

    pub(super) fn kill_client(&mut self, serial: u64) {
        for at in self.all() {
            let (guests, around) = self.guests_of(at);
            let Some(place) = guests.of_serial(serial) else { continue };
            let (cause, why) = (Cause::Operator, "admin forced disconnect");
            guests.disconnect(place, cause, why, Closing::AtOnce, &around);
            self.wake_lingerers(at);
            self.interrupt_ordered(at);
        }
    }

    /// Interrupts the backends to which orders were written.
    pub(super) fn interrupt_ordered(&mut self, at: usize) {
        for line in self.lobbies[at].guests.take_ordered() {
            self.interrupt(at, line);
        }
    }

    /// Returns false if there is no such backend any more.
    fn interrupt(&self, at: usize, line: u32) -> bool {
        let backend = self.lobbies[at].lines[line as usize];
        let process = backend.and_then(|number| self.backends[number].process.as_ref());
        process.is_some_and(|process| {
            process.interrupt(room::SIGNAL);
            true
        })
    }

    pub(super) fn cancel(&mut self, key: &CancelKey, requester: (WorkerId, ClientId, u64)) {
        let outcome = self.try_cancel(key);
        let (worker, client, serial) = requester;
        self.post(worker, Mail::CancelDone { requester: client, serial, outcome });
    }

    fn try_cancel(&self, key: &CancelKey) -> CancelOutcome {
        let Some((number, tag)) = key.number() else { return CancelOutcome::Unknown };
        let of_key = |lobby: &Lobby| lobby.guests.of_key(number, tag);
        let found = self.lobbies.iter().find_map(|(at, lobby)| Some((at, of_key(lobby)?)));
        let Some((at, place)) = found else { return CancelOutcome::Unknown };
        let room = &self.lobbies[at].room;
        let Some(serving) = room.serving(place) else { return CancelOutcome::Idle };
        room.order(Order::Cancel, serving);
        match self.interrupt(at, serving.line) {
            true => CancelOutcome::Sent,
            false => CancelOutcome::Idle,
        }
    }
}

/// Has the client sent a whole message, or so much that a backend takes it in any case?
fn is_whole(fd: RawFd) -> bool {
    let mut bytes = [0; PEEK_MAX];
    match socket::peek(fd, &mut bytes) {
        Ok(0) => true,
        Ok(len) if len == PEEK_MAX => true,
        Ok(len) => bytes.get(1..5).filter(|_| len >= 5).is_some_and(|size| {
            let size = size.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            len > size
        }),
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    }
}
