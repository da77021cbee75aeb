//! SHOW PEERS.

use config::Peer;

use super::{Table, int4, text};

pub(super) static PEERS: Table<PeerLine> = Table {
    name: "PEERS",
    about: "The entries of `[peers]`, by their id.",
    columns: &[
        int4("peer_id", |line| line.id.into(), "Id of the peer."),
        text("host", |line| super::databases::hosts(&line.peer.hosts).into(), "Where it listens."),
        int4("port", |line| line.peer.port.into(), "Port it listens on."),
        int4(
            "pool_size",
            |line| line.pool_size.into(),
            "Cancel requests forwarded to it at the same time, at most.",
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
