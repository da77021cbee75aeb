//! The state for the next process, in the form of an online restart.

use std::{collections::BTreeMap, io, os::fd::RawFd};

use engine::records::{
    GuestRecord, HandoverState, HeldRecord, LineRecord, LobbyRecord, Numbering, PoolRecord,
    ProcessRecord, WorkerRecords,
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
    /// The servers whose backends are in the lobby.
    servers: Vec<(WorkerRecords, RawFd)>,
    /// The file, the epoll set, and those of the lines.
    head: Vec<RawFd>,
    guests: Vec<RawFd>,
}

#[derive(Default)]
pub(super) struct Package {
    process: ProcessRecord,
    lobbies: BTreeMap<usize, Lobby>,
}

impl Package {
    /// Makes it from the entries of the list, in the order of their keys.
    pub(super) fn of(entries: Vec<(Key, Entry)>) -> Self {
        let mut package = Self::default();
        for (key, (fds, record)) in entries {
            let Ok(record) = HeldRecord::from_bytes(&record) else { continue };
            match (key, record) {
                (Key::Process, HeldRecord::Process(record)) => package.process = record,
                (Key::Lobby(at), HeldRecord::Lobby { lobby: record, pool }) => {
                    let (pool, servers, guests) = (*pool, Vec::new(), Vec::new());
                    let lobby = Lobby { record, pool, servers, head: fds, guests };
                    package.lobbies.insert(at, lobby);
                }
                (Key::Line(at, _), HeldRecord::Line { line, server }) => {
                    package.add_line(at, (line, fds), server.map(|server| *server));
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
        package
    }

    fn add_line(
        &mut self,
        at: usize,
        (line, mut fds): (LineRecord, Vec<RawFd>),
        server: Option<WorkerRecords>,
    ) {
        let Some(lobby) = self.lobbies.get_mut(&at) else { return };
        if let Some(records) = server
            && let Some(socket) = fds.pop()
        {
            lobby.servers.push((records, socket));
        }
        lobby.head.extend(fds);
        lobby.record.lines.push(line);
    }

    fn add_guest(&mut self, at: usize, guest: GuestRecord, fds: &[RawFd]) {
        let Some(lobby) = self.lobbies.get_mut(&at) else { return };
        lobby.guests.extend(fds.first());
        lobby.record.guests.push(guest);
    }

    /// Notes the death of the process. Returns how many in a row were killed soon after their start.
    pub(super) fn note_death(&mut self, was_soon: bool) -> u32 {
        let deaths = &mut self.process.deaths;
        *deaths = if was_soon { *deaths + 1 } else { 0 };
        *deaths
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

    /// Keeps the lobbies for which this is true, one for each lobby. Returns the others.
    pub(super) fn keep(&mut self, is_kept: &[bool]) -> Self {
        let mut each = is_kept.iter();
        let others = self.lobbies.extract_if(.., |_, _| each.next() == Some(&false));
        Self { process: self.process.clone(), lobbies: others.collect() }
    }

    /// Returns all descriptors.
    pub(super) fn fds(&self) -> impl Iterator<Item = RawFd> {
        self.parts().into_iter().flatten()
    }

    /// Returns the descriptors in the parts in which they are sent.
    pub(super) fn parts(&self) -> Vec<Vec<RawFd>> {
        let lobbies = self.lobbies.values();
        let sockets = lobbies.clone().flat_map(|lobby| &lobby.servers).map(|(_, socket)| *socket);
        let rest = lobbies.flat_map(|lobby| [lobby.head.clone(), lobby.guests.clone()]);
        std::iter::once(sockets.collect()).chain(rest).collect()
    }

    /// Returns the counts of descriptors, and the state as of now.
    pub(super) fn body(&self) -> io::Result<Vec<u8>> {
        let state = self.state();
        let bytes = state.to_bytes().map_err(io::Error::other)?;
        Ok([&head(0, state.worker_records.len()), &bytes[..]].concat())
    }

    fn state(&self) -> HandoverState {
        let ProcessRecord { seed, ahead, names, deaths } = self.process.clone();
        let now = process::monotonic_us().cast_signed() + ahead;
        let mut state = HandoverState {
            now: now.cast_unsigned(),
            seed,
            names,
            deaths,
            ..HandoverState::default()
        };
        for (number, lobby) in self.lobbies.values().enumerate() {
            // A pool's number may have become another pool's before the process was killed.
            let number = number as u32;
            state.pools.push(Some(lobby.pool.clone()));
            state.lobbies.push(LobbyRecord { pool: number, ..lobby.record.clone() });
            for (records, _) in &lobby.servers {
                let mut records = records.clone();
                records.attending.iter_mut().for_each(|server| {
                    server.server.pool = number;
                    // The next process has none of the passwords, and counts them anew.
                    server.server.password_number = None;
                });
                state.worker_records.push(records);
            }
        }
        let guests = state.lobbies.iter().flat_map(|lobby| &lobby.guests);
        let servers = state.worker_records.iter().flat_map(|records| &records.attending);
        let serials = guests.map(|guest| guest.serial);
        state.connections = serials.chain(servers.map(|server| server.serial)).max().unwrap_or(0);
        // The next statement must not get the name of one that a server has.
        let statements = state.worker_records.iter().flat_map(|records| &records.statements);
        state.statements = Numbering {
            last_id: statements.clone().map(|one| one.id).max().unwrap_or(0),
            schema: statements.map(|one| one.schema).max().unwrap_or(0),
        };
        state
    }
}

#[cfg(test)]
mod tests {
    use engine::{
        records::{AttendingRecord, ServerRecord, StatementRecord},
        routing::Place,
    };

    use super::*;

    fn entry(fds: &[RawFd], record: &HeldRecord) -> Entry {
        (fds.to_vec(), record.to_bytes().unwrap())
    }

    fn lobby(user: &str) -> HeldRecord {
        let pool = PoolRecord {
            database: "postgres".into(),
            user: user.into(),
            place: Place::default(),
            destination: String::new(),
            mode: "auto".into(),
            welcome: None,
            server_secret: None,
            own_keys: false,
            proven: None,
            minor_version: 0,
            may_ask_report: false,
        };
        let lobby = LobbyRecord { pool: 3, ..LobbyRecord::default() };
        HeldRecord::Lobby { lobby, pool: Box::new(pool) }
    }

    fn line(line: u32, server: Option<u64>) -> HeldRecord {
        let records = |serial| {
            let statement =
                StatementRecord { id: serial, schema: 2, sql: vec![], types: vec![], context: 0 };
            let server = ServerRecord { pool: 3, ..ServerRecord::default() };
            let attending = vec![AttendingRecord { serial, is_asked: false, server }];
            WorkerRecords { attending, statements: vec![statement], ..WorkerRecords::default() }
        };
        let server_serial = server.unwrap_or(0);
        let record = LineRecord { line, server: server_serial, ..LineRecord::default() };
        HeldRecord::Line { line: record, server: server.map(|serial| Box::new(records(serial))) }
    }

    fn guest(place: u32) -> HeldRecord {
        HeldRecord::Guest(Box::new(GuestRecord { place, serial: 9, ..GuestRecord::default() }))
    }

    fn package() -> Package {
        let process = ProcessRecord { names: vec!["x".into()], ..ProcessRecord::default() };
        Package::of(vec![
            (Key::Process, entry(&[], &HeldRecord::Process(process))),
            (Key::Lobby(0), entry(&[10, 11], &lobby("a"))),
            (Key::Lobby(1), entry(&[20, 21], &lobby("unused"))),
            (Key::Lobby(2), entry(&[30, 31], &lobby("b"))),
            (Key::Line(0, 0), entry(&[12, 13], &line(0, Some(7)))),
            (Key::Line(0, 1), entry(&[14], &line(1, None))),
            (Key::Line(2, 0), entry(&[32, 33], &line(0, Some(8)))),
            (Key::Guest(2, 5), entry(&[34], &guest(5))),
        ])
    }

    #[test]
    fn two_pools_that_had_one_number_stay_apart() {
        let state = package().state();
        let users: Vec<_> = state.pools.iter().flatten().map(|pool| &*pool.user).collect();
        assert_eq!(users, ["a", "b"]);
        assert_eq!(state.lobbies.iter().map(|lobby| lobby.pool).collect::<Vec<_>>(), [0, 1]);
        let servers = state.worker_records.iter().flat_map(|records| &records.attending);
        let pools: Vec<_> = servers.map(|one| (one.serial, one.server.pool)).collect();
        assert_eq!(pools, [(7, 0), (8, 1)]);
        assert_eq!(state.lobbies[1].guests[0].place, 5);
    }

    #[test]
    fn a_line_without_a_server_keeps_its_backend() {
        let package = package();
        let lines = &package.state().lobbies[0].lines;
        assert_eq!(lines.iter().map(|line| line.server).collect::<Vec<_>>(), [7, 0]);
        let parts = package.parts();
        assert_eq!(parts, [vec![13, 33], vec![10, 11, 12, 14], vec![], vec![30, 31, 32], vec![34]]);
    }

    #[test]
    fn names_and_numbers_go_on_behind_those_of_the_records() {
        let state = package().state();
        assert_eq!(state.names, ["x"]);
        assert_eq!((state.connections, state.statements.last_id), (9, 8));
        assert_eq!(state.statements.schema, 2);
    }

    #[test]
    fn without_a_backend_the_names_are_known() {
        let process = ProcessRecord { names: vec!["x".into()], ..ProcessRecord::default() };
        let package = Package::of(vec![
            (Key::Process, entry(&[], &HeldRecord::Process(process))),
            (Key::Lobby(0), entry(&[10, 11], &lobby("a"))),
            (Key::Guest(0, 1), entry(&[12], &guest(1))),
        ]);
        assert_eq!(package.state().names, ["x"]);
    }

    #[test]
    fn lobbies_that_were_not_taken_are_given_to_no_other_process() {
        let mut package = package();
        let others = package.keep(&[true, false]);
        assert_eq!((package.lobbies.len(), others.lobbies.len()), (1, 1));
        assert_eq!((package.clients(), others.clients()), (0, 1));
    }

    #[test]
    fn deaths_in_a_row_are_counted() {
        let mut package = package();
        assert_eq!((package.note_death(true), package.note_death(true)), (1, 2));
        assert_eq!((package.note_death(false), package.note_death(true)), (0, 1));
    }
}
