//! A client that listens leaves the lobby together with its backend ([decision
//! 028](../../../../docs/decisions/028-listening-clients-leave-the-lobby.md)).
//!
//! ```text
//!  backend: Returned (Listens), waits ─► this thread: the place is free ─► worker of the server:
//!  the client has its server, and is proxied ─► this thread: Go ─► backend: Left, an ordinary one
//! ```
//!
//! Before a take-over and during SUSPEND, such a client stays in its place. The place says that it
//! leaves, so the next process continues here.

use std::os::fd::AsRawFd as _;

use config::PoolMode;
use engine::{LobbyLeaver, own_error::Cause, shell::Mail};
use net::sys::{process, socket};

use super::{
    super::{
        control::ToBackend,
        guests::{Ending, Seated},
        held::Key,
    },
    Lobby, Service,
    holding::Home,
};
use crate::exchange::{lobby_door::Departing, mail::ShellMail};

/// A client that leaves as soon as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaving {
    at: usize,
    place: u32,
    generation: u32,
    /// The number of the backend that leaves with it.
    number: usize,
}

impl Service {
    /// Tells the backends of a lobby whether clients that listen leave it. In transaction mode no
    /// other server could listen for them.
    pub(super) fn note_mode(&self, at: usize) {
        let lobby = &self.lobbies[at];
        let is_auto = self
            .pool(lobby.pool, |pool| pool.key == lobby.key && pool.settings.mode == PoolMode::Auto);
        lobby.room.set_gives_up(is_auto == Some(true));
    }

    /// A backend has returned this client to leave with it.
    pub(super) fn depart(&mut self, at: usize, place: u32, number: usize) {
        let generation = self.lobbies[at].room.word(place).generation();
        if self.lobbies[at].guests.at(place).is_some_and(Seated::is_ending) {
            self.end(at, place, Ending::Left);
        }
        self.leaving.push(Leaving { at, place, generation, number });
        self.let_leave();
    }

    /// Gives the clients that leave to the workers of their servers, if that is allowed now.
    pub(super) fn let_leave(&mut self) {
        if self.is_settling || self.is_suspended {
            return;
        }
        for leaving in std::mem::take(&mut self.leaving) {
            let Leaving { at, place, number, .. } = leaving;
            if !self.is_there(&leaving) || !self.let_go(at, place, number) {
                // The client was disconnected, and its backend is of no use.
                self.dismiss(number);
            }
        }
    }

    fn is_there(&self, leaving: &Leaving) -> bool {
        let Leaving { at, place, generation, .. } = *leaving;
        self.lobbies.get(at).is_some_and(|lobby| {
            lobby.guests.at(place).is_some()
                && lobby.room.leaver(place).is_some()
                && lobby.room.word(place).generation() == generation
        })
    }

    /// Gives a client to the worker of its server. Returns false if that has failed.
    fn let_go(&mut self, at: usize, place: u32, number: usize) -> bool {
        let (state, channels) = self.lobbies[at].room.state_of(place);
        let Ok(fd) = process::duplicate(self.lobbies[at].room.socket(place)) else {
            let why = "the descriptor of the client cannot be copied";
            self.end(at, place, Ending::Told(Cause::ServerUnreachable, why));
            return false;
        };
        let Some(line) = self.backends[number].role.as_ref().map(|role| role.line) else {
            return false;
        };
        // If this process is killed from now on, the client is lost as any proxied one, and its
        // backend ends. While the backend was on the list, the next process would wait for it.
        self.held.remove(Key::Line(at, line));
        let (guests, around) = self.guests_of(at);
        let Some((guest, peer)) = guests.let_go(place, &around) else { return false };
        let Some(role) = &mut self.backends[number].role else { return false };
        (role.departs, role.leaves) = (true, false);
        let came = std::mem::replace(&mut role.came, true);
        role.home = Home::None;
        let (server, serial, worker) = (role.server.server, role.server.serial, role.server.worker);
        if !came {
            // Its client was served before the next look.
            self.post(worker, Mail::BackendCame { server, serial });
        }
        let leaver = LobbyLeaver { guest, server, serial, state, channels };
        let departing = Box::new(Departing { leaver, fd, peer });
        self.shared.hub.mailbox(worker).post(ShellMail::LeavesLobby(departing));
        true
    }

    /// The client of this server is a worker's.
    pub(super) fn departed(&mut self, serial: u64) {
        let Some(number) = self.by_serial(serial) else { return };
        if !self.send(number, ToBackend::Go, &[]) {
            // It does not read its messages.
            socket::shutdown(self.backends[number].fd.as_raw_fd(), false);
        }
    }

    /// This backend has ended: clients that were to leave with it are lost.
    pub(super) fn end_leavers(&mut self, number: usize) {
        let lost: Vec<_> = self.leaving.extract_if(.., |one| one.number == number).collect();
        for leaving in lost {
            if self.is_there(&leaving) {
                self.end(leaving.at, leaving.place, Ending::Lost);
            }
        }
    }

    /// The lobby is another process's.
    pub(super) fn forget_leavers(&mut self, at: usize) {
        self.leaving.retain(|one| one.at != at);
    }

    /// Another process may have left such a client behind. Returns whether it is one.
    pub(super) fn find_leaver(&mut self, at: usize, place: u32) -> bool {
        let Lobby { room, lines, .. } = &self.lobbies[at];
        let Some(line) = room.leaver(place) else { return false };
        let generation = room.word(place).generation();
        match lines.get(line as usize).copied().flatten() {
            Some(number) => self.leaving.push(Leaving { at, place, generation, number }),
            None => self.end(at, place, Ending::Lost),
        }
        true
    }
}
