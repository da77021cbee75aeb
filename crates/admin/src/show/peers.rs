//! SHOW PEERS and SHOW PEER_POOLS.

use config::Peer;
use engine::report::CancelTarget;

use super::{Table, int4, text};
use crate::snapshot::Cancel;

pub(super) static PEERS: Table<PeerLine> = Table {
    name: "PEERS",
    about: "The entries of `[peers]`, by their id.",
    columns: &[
        int4("peer_id", |line| line.id.into(), "Id of the peer."),
        text("host", |line| super::databases::hosts(&line.peer.hosts).into(), "Host of the peer."),
        int4("port", |line| line.peer.port.into(), "Port of the peer."),
        int4(
            "pool_size",
            |line| line.pool_size.into(),
            "Limit of simultaneous cancel requests to the peer.",
        ),
    ],
    rows: |view| {
        let config = &view.snapshot.config;
        let default = config.global.default_pool_size;
        let line = |(&id, peer): (&u32, &Peer)| PeerLine {
            id,
            pool_size: peer.pool_size.unwrap_or(default),
            peer: peer.clone(),
        };
        config.peers.iter().map(line).collect()
    },
};

pub(super) struct PeerLine {
    id: u32,
    pool_size: u32,
    peer: Peer,
}

pub(super) static PEER_POOLS: Table<PoolLine> = Table {
    name: "PEER_POOLS",
    about: "The cancel requests that are being passed on to each peer.",
    columns: &[
        int4("peer_id", |line| line.id.into(), "Id of the peer."),
        int4(
            "cl_active_cancel_req",
            |line| line.sent.into(),
            "Requests that were passed on and are not answered yet.",
        ),
        int4(
            "cl_waiting_cancel_req",
            |line| line.waiting.into(),
            "Requests that wait for a connection to the peer.",
        ),
        int4(
            "sv_active_cancel",
            |line| line.sent.into(),
            "Connections to the peer that carry a request.",
        ),
        int4("sv_login", |line| line.waiting.into(), "Connections to the peer being opened."),
    ],
    rows: |view| {
        let count = |id: u32, sent: bool| {
            let wanted = Cancel { to: CancelTarget::Peer(id), sent };
            let all = view.snapshot.cancels.iter().filter(|cancel| **cancel == wanted);
            u32::try_from(all.count()).unwrap_or(u32::MAX)
        };
        let line = |&id: &u32| PoolLine { id, sent: count(id, true), waiting: count(id, false) };
        view.snapshot.config.peers.keys().map(line).collect()
    },
};

pub(super) struct PoolLine {
    id: u32,
    sent: u32,
    waiting: u32,
}
