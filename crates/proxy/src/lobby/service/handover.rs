//! Lobbies change to another process (online restart). Backends and clients notice nothing: their
//! sockets, the file and the epoll set are the same. Their messages wait in the kernel meanwhile.
//!
//! ```text
//!  old process: settle ─► export, keep still ─┬─► Cede   (the other has them)
//!                                             └─► Thaw   (they are ours still)
//!  new process: import, before its thread runs
//! ```

use std::{collections::HashMap, os::fd::AsRawFd as _, sync::atomic::Ordering};

use engine::{
    ids::{PoolId, ServerId, WorkerId},
    pool::Pool,
    records::{LineRecord, LobbyRecord},
    shell::{Attending, Mail},
};
use net::sys::{epoll, process::Process};
use room::State;

use super::{
    super::{arrival::Arrival, held::Key},
    Backend, COMING_LOOK_MS, LOOK_MS, Lobby, PARTIAL, Role, Service, Succession,
};
use crate::{
    exchange::{
        hub::lock,
        lobby_door::{LobbyExport, LobbyRequest},
    },
    warning,
};

impl Service {
    pub(super) fn next_request(&mut self) -> Option<LobbyRequest> {
        self.deferred.pop_front().or_else(|| self.requests.try_recv().ok())
    }

    /// Before a take-over, notes whether a server is on its way to a lobby. Returns the pause until
    /// the next look.
    pub(super) fn note_settled(&self) -> i32 {
        if !self.is_settling {
            return LOOK_MS;
        }
        let mut roles = self.backends.iter().filter_map(|(_, backend)| backend.role.as_ref());
        let is_settled = self.tickets.is_empty() && roles.all(|role| role.came && !role.departs);
        self.shared.lobby.settled.store(is_settled, Ordering::Release);
        COMING_LOOK_MS
    }

    /// Copies everything that another process needs. Nothing may change from now on.
    pub(super) fn export(&self) -> Vec<LobbyExport> {
        let used = self.lobbies.iter().map(|(_, lobby)| lobby);
        let used = used.filter(|lobby| {
            // Its number may be another pool's.
            self.pool(lobby.pool, |pool| pool.key == lobby.key) == Some(true)
                && (lobby.guests.count() > 0 || lobby.lines.iter().any(Option::is_some))
        });
        used.map(|lobby| self.export_one(lobby)).collect()
    }

    fn export_one(&self, lobby: &Lobby) -> LobbyExport {
        let mut lines = Vec::new();
        let mut fds = lobby.room.descriptors().to_vec();
        for (line, number) in lobby.lines.iter().enumerate() {
            let Some(backend) = number.and_then(|number| self.backends.get(number)) else {
                continue;
            };
            let Some(role) = &backend.role else { continue };
            fds.push(backend.fd.as_raw_fd());
            fds.extend(backend.process.as_ref().map(Process::fd));
            lines.push(LineRecord {
                line: line as u32,
                server: if role.is_closed { 0 } else { role.server.serial },
                came: role.came,
                leaves: role.leaves,
                has_left: role.has_left,
                has_process: backend.process.is_some(),
            });
        }
        let line_of = |number: usize| {
            let at = lobby.lines.iter().position(|line| *line == Some(number));
            at.map(|line| line as u32)
        };
        let guests = lobby.guests.export(&line_of);
        fds.extend(guests.iter().map(|guest| lobby.room.socket(guest.place)));
        let record = LobbyRecord {
            pool: lobby.pool.0,
            layout: room::LAYOUT,
            base: lobby.room.base(),
            backends: lobby.room.backends(),
            places: lobby.room.places(),
            lines,
            guests,
        };
        LobbyExport { pool: lobby.pool, key: lobby.key.clone(), record, fds }
    }

    /// Waits until it is known which process has the lobbies. Other requests are handled later.
    pub(super) fn keep_still(&mut self) {
        while let Ok(request) = self.requests.recv() {
            match request {
                LobbyRequest::Cede { pools, done } => {
                    pools.into_iter().for_each(|pool| self.cede(pool));
                    drop(done);
                    break;
                }
                LobbyRequest::Thaw => break,
                LobbyRequest::End => {
                    self.deferred.push_front(LobbyRequest::End);
                    break;
                }
                other => self.deferred.push_back(other),
            }
        }
        self.is_settling = false;
    }

    /// Forgets a lobby that another process has. Nothing is sent and no socket is shut down.
    pub(super) fn cede(&mut self, pool: PoolId) {
        let Some(at) = self.find(pool) else { return };
        self.unwatch(at);
        self.forget_leavers(at);
        let lobby = self.lobbies.remove(at);
        self.held.remove(Key::Lobby(at));
        for number in lobby.lines.iter().flatten() {
            let backend = self.backends.remove(*number);
            let _ = self.own.delete(backend.fd.as_raw_fd());
        }
        // Other processes keep the sockets open, so their events must be ended explicitly.
        for place in lobby.guests.places() {
            if lobby.room.word(place).state() == State::Taken {
                let _ = self.own.delete(lobby.room.socket(place));
            }
        }
        lobby.guests.cede(&self.shared);
        if let Some(Some(slot)) = self.shared.hub.slots().get(pool.0 as usize) {
            lock(slot).cede_lobby();
        }
        self.bequeath(&lobby);
    }

    /// Takes a lobby of another process, whose pool is `pool` here. `servers`: its servers, by
    /// their serial numbers in that process.
    pub(crate) fn import(
        &mut self,
        mut arrival: Arrival,
        pool: PoolId,
        servers: &HashMap<u64, Attending>,
    ) {
        let Some(key) = self.pool(pool, |pool: &Pool<_>| pool.key.clone()) else { return };
        let Some((room, places)) = arrival.take_room() else { return };
        let Arrival { record, lines, .. } = arrival;
        let at = self.lobbies.insert(Lobby::new(pool, key, room, places));
        for (line, (fd, process)) in record.lines.into_iter().zip(lines) {
            let server = servers.get(&line.server).cloned().unwrap_or_else(|| closed(pool));
            let number = self.backends.insert(Backend { fd, process, role: None });
            self.import_line(at, &line, server, number);
        }
        let lobby = &mut self.lobbies[at];
        let lines = lobby.lines.clone();
        let number_of = |line: u32| lines.get(line as usize).copied().flatten();
        for guest in record.guests {
            lobby.guests.import(guest, pool, &lobby.room, &number_of, &self.shared);
        }
        self.hold_lobby(at);
        let lines = self.lobbies[at].lines.clone();
        for number in lines.into_iter().flatten() {
            // Without its server until the server's worker has told its records.
            self.hold_line(number, None);
        }
        if self.succession.as_ref().is_some_and(Succession::follows_a_crash) {
            self.repair(at);
        }
        for place in self.lobbies[at].guests.places() {
            self.lobbies[at].note_seating(place);
            self.hold_guest(at, place);
        }
        // Its backends have most of these descriptors.
        let lobby = &self.lobbies[at];
        for number in lobby.lines.iter().flatten() {
            if let Some(role) = &mut self.backends[*number].role {
                role.next_seating = lobby.seatings.end();
            }
        }
        let lobby = &self.lobbies[at];
        for place in lobby.guests.places() {
            self.watch_taken(at, place);
        }
        // Like those of proxied pools, the counters begin anew.
        self.lobbies[at].before = self.stats(&self.lobbies[at]);
    }

    fn import_line(&mut self, at: usize, record: &LineRecord, server: Attending, number: usize) {
        let lobby = &mut self.lobbies[at];
        let line = record.line as usize;
        if lobby.lines.len() <= line {
            lobby.lines.resize(line + 1, None);
        }
        lobby.lines[line] = Some(number);
        if record.server != 0 {
            lobby.worker = server.worker;
        }
        let left = Mail::LeftLobby { server: server.server, serial: server.serial, why: None };
        let worker = server.worker;
        let backend = &mut self.backends[number];
        backend.role = Some(Role {
            came: record.came,
            leaves: record.leaves,
            has_left: record.has_left,
            // A server of another process must have come with it.
            is_closed: server.serial == 0,
            is_welcome: true,
            ..Role::new(server, at, record.line)
        });
        let fd = backend.fd.as_raw_fd();
        if let Err(error) = self.own.add(fd, epoll::READABLE, super::BACKEND | number as u64) {
            warning!("a backend of a direct pool cannot be watched: {error}");
        }
        if record.has_left {
            self.post(worker, left);
        }
    }

    /// Weir has this client, perhaps since it has sent a part of a message only.
    fn watch_taken(&mut self, at: usize, place: u32) {
        let Lobby { room, guests, .. } = &self.lobbies[at];
        let word = room.word(place);
        if word.state() != State::Taken || word.owner().is_some() || guests.awaits_end(place) {
            return;
        }
        if self.find_leaver(at, place) {
            return;
        }
        let Lobby { room, .. } = &self.lobbies[at];
        let token = PARTIAL | (at as u64) << 32 | u64::from(place);
        if self.own.add(room.socket(place), epoll::READ, token).is_err() {
            self.admit(at, place);
        }
    }
}

/// A server that the other process has closed.
fn closed(pool: PoolId) -> Attending {
    let (server, worker) = (ServerId(u32::MAX), WorkerId(0));
    Attending { ticket: String::new(), process: 0, pool, server, serial: 0, worker }
}
