//! The lobbies of direct pools in an online restart. A lobby goes to the other process with all its
//! servers, or stays with all of them.

use std::{
    collections::{HashMap, HashSet},
    os::fd::OwnedFd,
};

use engine::{
    ImportTables,
    ids::PoolId,
    records::{AttendingRecord, LobbyRecord},
    settings::PoolKey,
    shell::Attending,
};
use tokio::sync::mpsc;

use crate::{
    data::worker::Worker,
    exchange::{
        lobby_door::{LobbyExport, LobbyRequest},
        reports::WorkerExport,
        shared::Shared,
    },
    lobby::{Arrival, Service},
    warning,
};

/// Has the thread of the lobbies keep still, and returns what it can hand over.
pub(super) async fn export(shared: &Shared) -> Vec<LobbyExport> {
    if !shared.lobby.is_open() {
        return Vec::new();
    }
    let (reply, mut answers) = mpsc::unbounded_channel();
    shared.lobby.send(LobbyRequest::Export(reply));
    answers.recv().await.unwrap_or_default()
}

/// Lets the lobbies go on here.
pub(super) fn thaw(shared: &Shared) {
    shared.lobby.send(LobbyRequest::Thaw);
}

/// Has the thread of the lobbies forget these pools' lobbies. The others go on here.
pub(super) async fn cede(shared: &Shared, pools: Vec<PoolId>) {
    if !shared.lobby.is_open() {
        return;
    }
    let (done, mut all_done) = mpsc::unbounded_channel();
    shared.lobby.send(LobbyRequest::Cede { pools, done });
    // It is dropped, and nothing is sent.
    let _ = all_done.recv().await;
}

/// Keeps the lobbies whose servers were all exported, and of the servers those of such a lobby.
pub(super) fn match_servers(
    mut lobbies: Vec<LobbyExport>,
    exports: &mut [WorkerExport],
) -> Vec<LobbyExport> {
    let records = exports.iter().flat_map(|export| &export.records.attending);
    let there: HashSet<u64> = records.map(|record| record.serial).collect();
    lobbies.retain(|LobbyExport { key: PoolKey { database, user, .. }, record, .. }| {
        let is_complete = record.servers().all(|serial| there.contains(&serial));
        if !is_complete {
            warning!("the clients of the direct pool {database}/{user} stay with this process");
        }
        is_complete
    });
    let moving: HashSet<u64> = servers(&lobbies);
    for WorkerExport { records, attending_fds, .. } in exports {
        let mut all = records.attending.iter();
        attending_fds.retain(|_| all.next().is_some_and(|record| moving.contains(&record.serial)));
        records.attending.retain(|record| moving.contains(&record.serial));
    }
    lobbies
}

/// Returns the serial numbers of the servers of these lobbies.
pub(super) fn servers(lobbies: &[LobbyExport]) -> HashSet<u64> {
    lobbies.iter().flat_map(|lobby| lobby.record.servers()).collect()
}

/// The lobbies of another process, while its servers are imported.
pub(super) struct Lobbies<'a> {
    service: Option<&'a mut Service>,
    /// With the pool here, if the lobby is taken.
    all: Vec<(Arrival, Option<PoolId>)>,
    /// The pool here of each server in a lobby that is taken, and whether its backend has come.
    expected: HashMap<u64, (PoolId, bool)>,
    /// By the serial numbers there.
    servers: HashMap<u64, Attending>,
}

impl<'a> Lobbies<'a> {
    /// `pool_for`: the pool here for a number of the other process.
    pub(super) fn new(
        arrivals: Vec<Arrival>,
        service: Option<&'a mut Service>,
        mut pool_for: impl FnMut(u32) -> Option<PoolId>,
    ) -> Self {
        let mut pool_of = |arrival: &Arrival| {
            let is_usable = service.is_some() && arrival.is_usable();
            is_usable.then(|| pool_for(arrival.record.pool)).flatten()
        };
        let mut all: Vec<(Arrival, Option<PoolId>)> = Vec::new();
        for arrival in arrivals {
            // Two pools there may be one here.
            let pool =
                pool_of(&arrival).filter(|pool| all.iter().all(|(_, taken)| *taken != Some(*pool)));
            all.push((arrival, pool));
        }
        let mut expected = HashMap::new();
        for (Arrival { record: LobbyRecord { lines, .. }, .. }, pool) in &all {
            let taken = pool.iter().flat_map(|pool| lines.iter().map(move |line| (pool, line)));
            expected.extend(taken.map(|(pool, line)| (line.server, (*pool, line.came))));
        }
        Self { service, all, expected, servers: HashMap::new() }
    }

    /// Imports a server, if its lobby is taken.
    pub(super) fn import_server(
        &mut self,
        record: AttendingRecord,
        worker: &mut Worker,
        tables: &ImportTables,
        fd: OwnedFd,
    ) {
        let there = record.serial;
        let Some((pool, came)) = self.expected.get(&there).copied() else { return };
        if let Some((server, serial)) = worker.import_attending(record, came, tables, fd) {
            let (ticket, worker) = (String::new(), worker.id());
            self.servers
                .insert(there, Attending { ticket, process: 0, pool, server, serial, worker });
        }
    }

    /// Imports the lobbies. Returns whether each was taken.
    pub(super) fn import(self) -> Vec<bool> {
        let Self { mut service, all, servers, .. } = self;
        let taken = all.iter().map(|(_, pool)| pool.is_some()).collect();
        for (arrival, pool) in all {
            if let (Some(service), Some(pool)) = (&mut service, pool) {
                service.import(arrival, pool, &servers);
            }
        }
        taken
    }
}
