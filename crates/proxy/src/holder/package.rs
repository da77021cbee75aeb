//! The state for the next process, in the form of an online restart.

use std::{collections::BTreeMap, io, os::fd::RawFd};

use engine::records::{
    GuestRecord, HandoverState, HeldRecord, LineRecord, LobbyRecord, PoolRecord, WorkerRecords,
};
use net::sys::process;

use crate::{
    cold::takeover::state::head,
    lobby::{Entry, Key},
};

/// A lobby with its descriptors.
struct Lobby {
    record: LobbyRecord,
    pool: PoolRecord,
    names: Vec<String>,
    /// The file, the epoll set, and those of the lines.
    head: Vec<RawFd>,
    guests: Vec<RawFd>,
}

/// A server whose backend is in a lobby.
struct Server {
    records: WorkerRecords,
    names: Vec<String>,
    socket: RawFd,
}

#[derive(Default)]
pub(super) struct Package {
    seed: [u8; 32],
    ahead: i64,
    lobbies: BTreeMap<usize, Lobby>,
    servers: Vec<Server>,
    sockets: Vec<RawFd>,
}

impl Package {
    /// Makes it from the entries of the list, in the order of their keys.
    pub(super) fn of(entries: Vec<(Key, Entry)>) -> Self {
        let mut package = Self::default();
        for (key, (fds, record)) in entries {
            let Ok(record) = HeldRecord::from_bytes(&record) else { continue };
            match (key, record) {
                (Key::Process, HeldRecord::Process { seed, ahead }) => {
                    (package.seed, package.ahead) = (seed, ahead);
                }
                (Key::Lobby(at), HeldRecord::Lobby { lobby: record, pool, names }) => {
                    let (pool, guests) = (*pool, Vec::new());
                    let lobby = Lobby { record, pool, names, head: fds, guests };
                    package.lobbies.insert(at, lobby);
                }
                (Key::Line(at, _), HeldRecord::Line { line, server, names }) => {
                    package.add_line(at, (line, fds), server.map(|server| (*server, names)));
                }
                (Key::Guest(at, _), HeldRecord::Guest(guest)) => {
                    package.add_guest(at, *guest, &fds);
                }
                _ => {}
            }
        }
        package
            .lobbies
            .retain(|_, lobby| !lobby.record.guests.is_empty() || !lobby.record.lines.is_empty());
        package.sockets = package.servers.iter().map(|server| server.socket).collect();
        package.agree_on_names();
        package
    }

    fn add_line(
        &mut self,
        at: usize,
        (line, mut fds): (LineRecord, Vec<RawFd>),
        server: Option<(WorkerRecords, Vec<String>)>,
    ) {
        let Some(lobby) = self.lobbies.get_mut(&at) else { return };
        if let Some((records, names)) = server
            && let Some(socket) = fds.pop()
        {
            self.servers.push(Server { records, names, socket });
        }
        lobby.head.extend(fds);
        lobby.record.lines.push(line);
    }

    fn add_guest(&mut self, at: usize, guest: GuestRecord, fds: &[RawFd]) {
        let Some(lobby) = self.lobbies.get_mut(&at) else { return };
        lobby.guests.extend(fds.first());
        lobby.record.guests.push(guest);
    }

    /// Values of tracked parameters have meaning only with the names of their time.
    fn agree_on_names(&mut self) {
        let names = self.names();
        for lobby in self.lobbies.values_mut().filter(|lobby| lobby.names != names) {
            lobby.pool.welcome = None;
        }
        for server in self.servers.iter_mut().filter(|server| server.names != names) {
            server.records.vars.clear();
            server.records.welcomes.clear();
        }
    }

    fn names(&self) -> Vec<String> {
        let lobbies = self.lobbies.values().map(|lobby| &lobby.names);
        let known = self.servers.iter().map(|server| &server.names).chain(lobbies);
        known.last().cloned().unwrap_or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lobbies.is_empty()
    }

    pub(super) fn clients(&self) -> usize {
        self.lobbies.values().map(|lobby| lobby.guests.len()).sum()
    }

    /// Returns the lobbies with their files.
    pub(super) fn lobbies(&self) -> impl Iterator<Item = (&LobbyRecord, RawFd)> {
        self.lobbies.values().map(|lobby| (&lobby.record, lobby.head[0]))
    }

    /// Returns all descriptors.
    pub(super) fn fds(&self) -> impl Iterator<Item = RawFd> {
        self.parts().flatten().copied()
    }

    /// Returns the descriptors in the parts in which they are sent.
    pub(super) fn parts(&self) -> impl Iterator<Item = &[RawFd]> {
        let lobbies = self.lobbies.values();
        let lobbies = lobbies.flat_map(|lobby| [&lobby.head[..], &lobby.guests[..]]);
        std::iter::once(&self.sockets[..]).chain(lobbies)
    }

    /// Returns the counts of descriptors, and the state as of now.
    pub(super) fn body(&self) -> io::Result<Vec<u8>> {
        let now = process::monotonic_us().cast_signed() + self.ahead;
        let lobbies = self.lobbies.values();
        let mut pools: Vec<Option<PoolRecord>> = Vec::new();
        for lobby in lobbies.clone() {
            let number = lobby.record.pool as usize;
            pools.resize(pools.len().max(number + 1), None);
            pools[number] = Some(lobby.pool.clone());
        }
        let guests = lobbies.clone().flat_map(|lobby| &lobby.record.guests);
        let servers = self.servers.iter().flat_map(|server| &server.records.attending);
        let serials = guests.map(|guest| guest.serial);
        let serials = serials.chain(servers.map(|server| server.serial));
        let state = HandoverState {
            now: now.cast_unsigned(),
            seed: self.seed,
            names: self.names(),
            connections: serials.max().unwrap_or(0),
            pools,
            worker_records: self.servers.iter().map(|server| server.records.clone()).collect(),
            lobbies: lobbies.map(|lobby| lobby.record.clone()).collect(),
            ..HandoverState::default()
        };
        let state = state.to_bytes().map_err(io::Error::other)?;
        Ok([&head(0, self.sockets.len()), &state[..]].concat())
    }
}
