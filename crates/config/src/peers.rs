//! Looks for settings of `[peers]` with which cancel requests do not reach their process.

use std::collections::BTreeMap;

use crate::host::Host;
use crate::reason::Reason;
use crate::table::{Global, Peer};

/// Returns the problems, each with the id of its peer; without an id, it is one of `peer_id`.
///
/// The process itself may be among the peers or not, as in PgBouncer, so that all processes can
/// share the section.
pub(crate) fn problems(global: &Global, peers: &BTreeMap<u32, Peer>) -> Vec<(Option<u32>, Reason)> {
    let own = global.peer_id;
    let others = || peers.iter().filter(|(id, _)| **id != own);
    match (own, others().next()) {
        (0, None) => return Vec::new(),
        (0, Some((first, _))) => return vec![(Some(*first), Reason::PeersWithoutId)],
        (_, None) => return vec![(None, Reason::NoOtherPeer(own))],
        (_, Some(_)) => {}
    }
    let mut found = Vec::new();
    let mut seen = BTreeMap::new();
    for (id, peer) in peers {
        let Some(host) = peer.hosts.first() else { continue };
        if peer.hosts.len() > 1 {
            found.push((Some(*id), Reason::PeerWithHosts(host.to_string())));
        }
        let address = (host.to_string(), peer.port);
        if *id != own && peer.port == global.listen_port && is_served(global, host) {
            found.push((Some(*id), Reason::PeerIsThisProcess(*id)));
        } else if let Some(other) = seen.insert(address, *id) {
            found.push((Some(*id), Reason::PeerAtSameAddress { peer: *id, other }));
        }
    }
    found
}

/// Is this one of the addresses that the process listens on?
fn is_served(global: &Global, host: &Host) -> bool {
    match host {
        Host::Tcp(name) => global.listen_addr.contains(name),
        Host::Unix(_) | Host::Abstract(_) => Host::new(&global.unix_socket_dir) == *host,
    }
}
