//! Gives the received connections to the workers of the new process, in turn. Nothing is sent or
//! read yet, and no thread runs.

use std::{
    collections::{HashMap, VecDeque},
    io,
    os::fd::OwnedFd,
};

use config::Config;
use engine::{
    ImportTables,
    records::{AddressRecord, HandoverState},
};

use super::lobbies::Lobbies;
use crate::{data::worker::Worker, exchange::shared::Shared, lobby, lobby::Arrival};

/// Returns whether each lobby was taken. `service`: the thread of the lobbies, if there is one.
///
/// # Errors
/// When descriptors are missing.
pub(crate) fn adopt(
    (workers, service): (&mut [Worker], Option<&mut lobby::Service>),
    shared: &Shared,
    config: &Config,
    handover_state: HandoverState,
    (mut fds, lobbies): (VecDeque<OwnedFd>, Vec<Arrival>),
) -> io::Result<Vec<bool>> {
    let HandoverState { names, statements, connections, pools, disabled, .. } = handover_state;
    let HandoverState { primaries, memberships, addresses, worker_records, .. } = handover_state;
    memberships.into_iter().for_each(|record| shared.leases.inherit(record));
    let now = shared.clock.now();
    let _ = shared.hub.switch(|switches| {
        disabled.iter().for_each(|name| switches.database_mut(name).disabled = true);
        for AddressRecord { host, port, address } in addresses {
            switches.set_address(&host, port, address);
        }
        primaries.into_iter().for_each(|record| switches.resume_primary(record, config, now));
        Ok::<(), ()>(())
    });
    let mut tables = ImportTables::new(&names, workers[0].tracked_names());
    workers[0].import_pools(pools, &mut tables);
    shared.hub.resume_numbering(statements);
    shared.hub.resume_connections(connections);
    // All of them, before a new statement could get one of their numbers.
    let statements = worker_records.iter().map(|records| {
        let all = records.statements.iter();
        let known = all.map(|one| (one.id, shared.hub.restore(one)));
        known.collect::<HashMap<_, _>>()
    });
    let statements: Vec<_> = statements.collect();
    for records in &worker_records {
        workers.iter_mut().for_each(|worker| worker.expect_records(records, &tables));
    }
    let mut lobbies =
        Lobbies::new(lobbies, service, |number| workers[0].pool_for_lobby(number, &tables));
    let mut turns = (0..workers.len()).cycle();
    let mut next = || fds.pop_front().ok_or(io::ErrorKind::UnexpectedEof);
    for (records, statements) in worker_records.into_iter().zip(statements) {
        tables.open(&records, statements);
        for record in records.clients {
            let client = next()?;
            let server = if record.server.is_some() { Some(next()?) } else { None };
            let at = turns.next().unwrap_or_default();
            workers[at].import_client(record, &tables, client, server);
        }
        for record in records.parked {
            let at = turns.next().unwrap_or_default();
            workers[at].import_parked(record, &tables, next()?);
        }
        for record in records.attending {
            let at = turns.next().unwrap_or_default();
            lobbies.import_server(record, &mut workers[at], &tables, next()?);
        }
    }
    Ok(lobbies.import())
}
