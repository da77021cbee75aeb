//! The addresses of nodes whose host is a name.
//!
//! Such a name may have several addresses, of one machine or of several ones. Weir uses one of them
//! at a time, the same for its own questions and for all servers. Otherwise it would ask one machine
//! how much it has replayed, and read from another one. The node moves to another address when the
//! name does not have the present one any more, or when the present one fails.
//!
//! `node.rs` tries the addresses. The task of this file looks the name up again and again, so that
//! no question to a node waits for a name server. It also finds out whether the addresses are those
//! of different servers, which is a mistake.

use std::{net::IpAddr, sync::Arc, time::Duration};

use config::Host;
use engine::{pool::Pool, settings::Target};
use tokio::time::{sleep, timeout};

use super::{
    Watched,
    node::{self, Kept},
    state::State,
};
use crate::{
    cold::controller::Controller,
    exchange::{hub::lock, mail::ShellMail, transport::Transport},
    log, warning,
};

/// The time between two lookups of a name whose node does not answer.
const SEARCH_PAUSE: Duration = Duration::from_secs(1);

/// The name of a node, if its host is one.
#[derive(Debug, Default)]
pub(super) struct Name {
    /// By the last answer with an address.
    addresses: Vec<IpAddr>,
    /// The addresses at which another server is than at the one in use.
    others: Vec<IpAddr>,
    /// An open connection to the address to which the node shall move.
    next: Option<Kept>,
}

impl Controller {
    /// Returns the address in use of a node.
    fn address_in_use(&self, host: &str, port: u16) -> Option<IpAddr> {
        self.0.shared.hub.switches().address(host, port)?.parse().ok()
    }

    /// Returns the address in use of a node; before there is one, some address of the host.
    pub(crate) async fn node_address(&self, host: &str, port: u16) -> Result<IpAddr, String> {
        match self.address_in_use(host, port) {
            Some(ip) => Ok(ip),
            None => self.0.dns.address(host).await,
        }
    }
}

impl Watched {
    /// Returns the host of a node, if it is a name.
    fn host(&self, at: usize) -> Option<&str> {
        let node = &self.configured.nodes[at];
        match &node.host {
            Host::Tcp(host) if node.is_named() => Some(host),
            Host::Tcp(_) | Host::Unix(_) | Host::Abstract(_) => None,
        }
    }

    /// Returns the address in use of a node, if its host is a name.
    pub(super) fn address(&self, controller: &Controller, at: usize) -> Option<IpAddr> {
        controller.address_in_use(self.host(at)?, self.configured.nodes[at].port)
    }

    /// Returns the address for the next attempt to open a connection, after so many that have failed.
    /// None: the host is no name, or nothing is known about it yet.
    pub(super) fn next_address(
        &self,
        controller: &Controller,
        at: usize,
        failures: usize,
    ) -> Option<IpAddr> {
        let in_use = self.address(controller, at);
        let mut addresses = lock(&self.names[at]).addresses.clone();
        match addresses.iter().position(|ip| Some(*ip) == in_use) {
            Some(place) => addresses.rotate_left(place),
            None if addresses.is_empty() => addresses.extend(in_use),
            None => {}
        }
        let count = addresses.len().max(1);
        addresses.get(failures % count).copied()
    }

    /// Returns a connection to another address to which the node shall move.
    pub(super) fn take_next(&self, at: usize) -> Option<Kept> {
        lock(&self.names[at]).next.take()
    }

    /// Returns the addresses of a node's name at which other servers were found.
    pub(super) fn other_servers(&self, at: usize) -> Vec<IpAddr> {
        lock(&self.names[at]).others.clone()
    }

    /// Has all servers of a node be at this address, at which it has answered. Returns whether that is
    /// another one than before.
    pub(super) fn use_address(&self, controller: &Controller, at: usize, ip: IpAddr) -> bool {
        let Some(host) = self.host(at) else { return false };
        let node = &self.configured.nodes[at];
        let before = controller.address_in_use(host, node.port);
        if before == Some(ip) {
            return false;
        }
        let shared = &controller.0.shared;
        let _ = shared.hub.switch(|switches| {
            switches.set_address(host, node.port, ip.to_string());
            Ok::<(), ()>(())
        });
        self.change_servers(controller, at, Pool::replace_servers);
        let name = &self.name;
        match before {
            Some(before) => log!("cluster {name}: node {node} moves from {before} to {ip}"),
            None => log!("cluster {name}: node {node} is at {ip}"),
        }
        before.is_some()
    }

    /// Changes all pools that have servers at a node.
    pub(super) fn change_servers(
        &self,
        controller: &Controller,
        at: usize,
        change: impl Fn(&mut Pool<Transport>),
    ) {
        let shared = &controller.0.shared;
        let target = Target::of_node(&self.configured.nodes[at]);
        for pool in shared.hub.pools() {
            let mut pool = lock(&pool);
            if pool.settings.targets.contains(&target) {
                change(&mut pool);
            }
        }
        shared.tell_all(|| ShellMail::Review);
    }
}

/// Looks up the name of a node again and again, forever. Returns at once if its host is no name.
pub(super) async fn keep(controller: Controller, watched: Arc<Watched>, at: usize) {
    let Some(host) = watched.host(at) else { return };
    let mut compared = None;
    loop {
        // Without an answer, the addresses stay as they were known.
        let found = controller.0.dns.addresses(host).await.unwrap_or_default();
        let in_use = watched.address(&controller, at);
        if !found.is_empty() {
            lock(&watched.names[at]).addresses.clone_from(&found);
            if in_use.is_some_and(|ip| !found.contains(&ip)) {
                change_place(&controller, &watched, at, &found).await;
            }
        }
        let mut present = found;
        present.sort_unstable();
        if !present.is_empty() && compared.as_ref() != Some(&(present.clone(), in_use)) {
            let is_known = compare(&controller, &watched, at, &present).await;
            compared = is_known.then_some((present, in_use));
        }
        let ttl = controller.config().global.dns_max_ttl.max(SEARCH_PAUSE);
        let is_reached = lock(&watched.clients[at]).is_some();
        sleep(if is_reached && compared.is_some() { ttl } else { SEARCH_PAUSE }).await;
    }
}

/// The name of a node does not have the address in use any more. Opens a connection to another one;
/// if all fail, the node stays where it is as long as it answers there.
async fn change_place(controller: &Controller, watched: &Watched, at: usize, found: &[IpAddr]) {
    for ip in found {
        let opened = node::open_at(controller, watched, at, &watched.configured.dbname, Some(*ip));
        if let Ok(Ok(opened)) = timeout(watched.configured.health_timeout, opened).await {
            lock(&watched.names[at]).next = Some(opened);
            return watched.wakes[at].notify_one();
        }
    }
}

/// Finds out which addresses are those of other servers than the one in use. Returns false if that is
/// not known yet.
async fn compare(controller: &Controller, watched: &Watched, at: usize, found: &[IpAddr]) -> bool {
    let Some(in_use) = watched.address(controller, at) else { return false };
    let mut others = Vec::new();
    let mut is_known = found.contains(&in_use);
    for ip in found.iter().filter(|ip| **ip != in_use) {
        let asked = is_other_server(controller, watched, at, *ip);
        match timeout(3 * watched.configured.health_timeout, asked).await {
            Ok(Some(true)) => others.push(*ip),
            Ok(Some(false)) => {}
            Ok(None) | Err(_) => is_known = false,
        }
    }
    let before = std::mem::replace(&mut lock(&watched.names[at]).others, others.clone());
    let (name, node) = (&watched.name, &watched.configured.nodes[at]);
    for ip in others.iter().filter(|ip| !before.contains(ip)) {
        warning!(
            "cluster {name}: node {node}: {ip} is another server than {in_use}, and the name has both \
             addresses; Weir uses {in_use} alone: give each server a name of its own"
        );
    }
    is_known
}

/// Is another server at this address than at the address in use? None: that is not known.
async fn is_other_server(
    controller: &Controller,
    watched: &Watched,
    at: usize,
    ip: IpAddr,
) -> Option<bool> {
    let client = lock(&watched.clients[at]).clone()?;
    // One server has one system identifier and one start. It is asked twice, since it may restart.
    let identity = |state: State| (state.sample.system, state.sample.started);
    let before = node::question(&client).await.ok().map(identity)?;
    let opened = node::open_at(controller, watched, at, &watched.configured.dbname, Some(ip));
    let opened = opened.await.ok()?;
    let there = node::question(&opened.client).await.ok().map(identity)?;
    let after = node::question(&client).await.ok().map(identity)?;
    (before == after).then_some(before != there)
}
