//! Finds the nodes of a cluster whose configuration names Patroni or host names in their place.
//!
//! A list of nodes takes effect as a new configuration does. If no list can be had, the last one
//! stays. The list does not tell who is the primary: the nodes are asked.

use std::{sync::Arc, time::Duration};

use config::{Cluster, Config, Host, Node};
use engine::{
    pool::{Outage, OutageKind},
    settings::Target,
};
use tokio::{task, time::Instant, time::sleep};

use super::{NODES_MAX, Watched, patroni::Patroni, publish};
use crate::{
    cold::{controller::Controller, dns::Dns},
    exchange::hub::lock,
    log, warning,
};

/// The longest time between two questions while there is no primary.
const SEARCH_PAUSE: Duration = Duration::from_secs(1);

/// Finds the nodes again and again, forever. New ones end this task: the cluster is watched anew.
pub(super) async fn keep(controller: Controller, watched: Arc<Watched>) {
    loop {
        until_due(&watched).await;
        *lock(&watched.nodes_asked_at) = Some(Instant::now());
        let system = lock(&watched.cluster).system();
        match find(&controller.0.dns, &watched.configured, system).await {
            Ok(found) => {
                recover(&watched);
                adopt(&controller, &watched, found).await;
            }
            Err(why) => tell(&controller, &watched, why),
        }
    }
}

/// Waits until it is time to ask for the nodes, also if the task before has asked last.
async fn until_due(watched: &Watched) {
    let interval = watched.configured.discovery_interval;
    let Some(asked_at) = *lock(&watched.nodes_asked_at) else { return };
    while asked_at.elapsed() < interval {
        let is_lost = lock(&watched.cluster).primary().is_err();
        if is_lost && asked_at.elapsed() >= SEARCH_PAUSE {
            return;
        }
        sleep(SEARCH_PAUSE.min(interval)).await;
    }
}

/// Returns the nodes of a cluster, each name and each address once.
async fn find(dns: &Dns, cluster: &Cluster, system: Option<u64>) -> Result<Vec<Node>, String> {
    match cluster.patroni.is_empty() {
        false => Patroni { dns, cluster }.nodes(system).await,
        true => look_up(dns, cluster).await,
    }
}

/// Returns a node for each address of the host names.
async fn look_up(dns: &Dns, cluster: &Cluster) -> Result<Vec<Node>, String> {
    let mut all = Vec::new();
    for name in &cluster.dns {
        let found = dns.addresses(&name.host).await;
        let found = found.map_err(|why| format!("DNS: {}: {why}", name.host))?;
        all.extend(found.into_iter().map(|ip| (ip, name.port)));
    }
    all.sort_unstable();
    all.dedup();
    let Some((_, port)) = all.first().copied() else {
        let names: Vec<_> = cluster.dns.iter().map(|name| name.host.as_str()).collect();
        return Err(format!("DNS: no address of {}", names.join(", ")));
    };
    if all.len() > NODES_MAX {
        return Err(format!("DNS: {} addresses are too many", all.len()));
    }
    let has_one_port = all.iter().all(|(_, other)| *other == port);
    let node = |(ip, port): (std::net::IpAddr, u16)| Node {
        name: if has_one_port { ip.to_string() } else { format!("{ip}:{port}") },
        host: Host::Tcp(ip.to_string()),
        port,
        weight: 1,
    };
    Ok(all.into_iter().map(node).collect())
}

/// Has the list take effect, unless Weir changes the primary now. Then the next one will.
async fn adopt(controller: &Controller, watched: &Arc<Watched>, found: Vec<Node>) {
    let present = &watched.configured.nodes;
    let is_named = |node: &Node| found.iter().any(|other| other.is_same_server(node));
    lock(&watched.cluster).set_named(|node| is_named(&present[usize::from(node.0)]));
    let nodes = merged(present, &found, watched.in_use().as_ref());
    if nodes == *present || watched.is_changing() {
        return;
    }
    let list: Vec<_> = nodes.iter().map(Node::to_string).collect();
    log!("cluster {}: its nodes are {}", watched.name, list.join(", "));
    let (controller, watched) = (controller.clone(), Arc::clone(watched));
    // A reload may be reading files.
    let work = move || controller.set_nodes(&watched.name, &watched.configured, nodes);
    // An error means that the pooler ends.
    let _ = task::spawn_blocking(work).await;
}

impl Watched {
    /// Returns the primary, or the last one while there is none. After an online restart, it is that
    /// of the other process.
    fn in_use(&self) -> Option<Node> {
        let nodes = &self.configured.nodes;
        if let Some(node) = lock(&self.cluster).last_primary() {
            return nodes.get(usize::from(node.0)).cloned();
        }
        let known = lock(&self.known);
        let target = &known.as_ref()?.primary.as_ref()?.target;
        nodes.iter().find(|node| Target::of_node(node) == *target).cloned()
    }
}

/// Returns the nodes that were found, the known ones first and in their order. The primary stays
/// until another node is the primary, unless its name or address is that of another node.
fn merged(present: &[Node], found: &[Node], in_use: Option<&Node>) -> Vec<Node> {
    let is_alike = |one: &Node, other: &Node| {
        one.name == other.name || (&one.host, one.port) == (&other.host, other.port)
    };
    let kept = present.iter().filter_map(|node| {
        let listed = found.iter().find(|other| other.is_same_server(node));
        let stays = in_use == Some(node) && !found.iter().any(|other| is_alike(other, node));
        listed.or(stays.then_some(node)).cloned()
    });
    let is_new = |node: &&Node| !present.iter().any(|known| known.is_same_server(node));
    kept.chain(found.iter().filter(is_new).cloned()).collect()
}

/// Notes that the nodes cannot be found, and logs it once.
fn tell(controller: &Controller, watched: &Watched, why: String) {
    let is_new = lock(&watched.trouble).replace(why.clone()).is_none();
    let name = &watched.name;
    let has_nodes = !watched.configured.nodes.is_empty();
    if !has_nodes {
        let mut known = lock(&watched.known);
        let state = known.get_or_insert_default();
        let since = state.outage.as_ref().map_or(controller.now(), |outage| outage.since);
        let text = format!("its nodes are not known: {why}");
        state.outage = Some(Arc::new(Outage { why: text, since, kind: OutageKind::Other }));
        drop(known);
        publish(controller, watched);
    }
    if is_new {
        let so = if has_nodes { "stay as they were known" } else { "are not known" };
        warning!("cluster {name}: {why}; its nodes {so}");
    }
}

fn recover(watched: &Watched) {
    if lock(&watched.trouble).take().is_some() {
        log!("cluster {}: its nodes can be found again", watched.name);
    }
}

/// Finds the nodes of a configured cluster, for a check of the configuration.
///
/// # Errors
/// Why they cannot be found.
pub fn find_nodes(config: &Config, cluster: &Cluster) -> Result<Vec<Node>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let dns = Dns::new(&config.global);
        find(&dns, cluster, None).await
    })
}

/// Returns the addresses of a node whose host is a name, for a check of the configuration.
///
/// # Errors
/// Why they cannot be found.
pub fn addresses_of(config: &Config, node: &Node) -> Result<Vec<std::net::IpAddr>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let dns = Dns::new(&config.global);
        dns.addresses(&node.host.to_string()).await
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(list: &str) -> Vec<Node> {
        let text = format!("[clusters.main]\nnodes = \"{list}\"\n");
        let config = Config::parse_toml(&text, "weir.toml").expect("a configuration");
        config.clusters["main"].nodes.clone()
    }

    #[test]
    fn known_nodes_keep_their_order_and_the_primary_stays() {
        for (present, found, expected) in [
            ("c=h3,a=h1", "a=h1,b=h2,c=h3", "c=h3,a=h1,b=h2"),
            ("a=h1,b=h2,c=h3", "b=h2*0,d=h4", "a=h1,b=h2*0,d=h4"),
            // The primary has another address now, or another name.
            ("a=h1,b=h2", "a=h9,b=h2", "b=h2,a=h9"),
            ("a=h1,b=h2", "z=h1,b=h2", "b=h2,z=h1"),
        ] {
            let present = nodes(present);
            let in_use = present.iter().find(|node| node.name == "a");
            assert_eq!(merged(&present, &nodes(found), in_use), nodes(expected), "{found}");
        }
        let present = nodes("a=h1,b=h2");
        assert_eq!(merged(&present, &nodes("b=h2"), None), nodes("b=h2"));
        assert_eq!(merged(&[], &nodes("a=h1"), None), nodes("a=h1"));
    }
}
