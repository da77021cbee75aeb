//! What was received finds its place among the workers of the new process, in turn. Nothing is
//! sent or read yet, and no thread runs.

use std::{
    collections::{HashMap, VecDeque},
    io,
    os::fd::OwnedFd,
};

use engine::{
    Shelf,
    parcel::{Estate, Parcel},
};

use crate::data::{shared::Shared, worker::Worker};

/// How many descriptors go with it.
pub(super) fn sockets_of(parcel: &Parcel) -> usize {
    let servers = parcel.clients.iter().filter(|client| client.server.is_some()).count();
    parcel.clients.len() + servers + parcel.parked.len()
}

/// # Errors
/// When descriptors are missing.
pub(crate) fn adopt(
    workers: &mut [Worker],
    shared: &Shared,
    estate: Estate,
    mut fds: VecDeque<OwnedFd>,
) -> io::Result<()> {
    let Estate { names, statements, connections, pools, disabled, parcels, .. } = estate;
    let mut shelf = Shelf::new(&names, workers[0].tracked_names());
    workers[0].import_pools(pools, &mut shelf);
    let _ = shared.hub.switch(|switches| {
        disabled.iter().for_each(|name| switches.database_mut(name).disabled = true);
        Ok::<(), ()>(())
    });
    shared.hub.resume_numbering(statements);
    shared.hub.resume_connections(connections);
    // All of them before anything of our own could get one of their numbers.
    let statements = parcels.iter().map(|parcel| {
        let all = parcel.statements.iter();
        let known = all.map(|one| (one.id, shared.hub.restore(one)));
        known.collect::<HashMap<_, _>>()
    });
    let statements: Vec<_> = statements.collect();
    for parcel in &parcels {
        workers.iter_mut().for_each(|worker| worker.expect_parcel(parcel, &shelf));
    }
    let mut turns = (0..workers.len()).cycle();
    let mut next = || fds.pop_front().ok_or(io::ErrorKind::UnexpectedEof);
    for (parcel, statements) in parcels.into_iter().zip(statements) {
        shelf.open(&parcel, statements);
        for record in parcel.clients {
            let client = next()?;
            let server = if record.server.is_some() { Some(next()?) } else { None };
            let at = turns.next().unwrap_or_default();
            workers[at].import_client(record, &shelf, client, server);
        }
        for record in parcel.parked {
            let at = turns.next().unwrap_or_default();
            workers[at].import_parked(record, &shelf, next()?);
        }
    }
    Ok(())
}
