//! The operator's switches for all databases, with and without pools. Plain data;
//! [`Switches::apply`] tells the pools.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::{Cluster, Config, Node};

use crate::admission::pool::{Gate, Outage, OutageKind, Pool};
use crate::handover::records::{AddressRecord, PrimaryRecord};
use crate::ids::Micros;
use crate::lifecycle::close_reason::CloseReason;
use crate::routing::Place;
use crate::routing::readers::Readers;
use crate::routing::rules::{Catalog, Routing};
use crate::settings::{PoolSettings, Primary, Target};

/// The switches of one database, by the name that clients use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatabaseSwitches {
    /// PAUSE or KILL with this database's name.
    pub paused: bool,
    /// DISABLE: no new client is let in.
    pub disabled: bool,
}

/// The primary of a cluster, for the pools of its databases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrimaryState {
    /// The present primary, or else the last one.
    pub primary: Option<Primary>,
    /// Why there is no primary now.
    pub outage: Option<Arc<Outage>>,
}

#[derive(Clone, Debug, Default)]
pub struct Switches {
    /// PAUSE without a name.
    pub paused: bool,
    /// SUSPEND: nothing is read. Pools are not told.
    pub suspended: bool,
    /// Another process is taking over: no server is linked.
    pub held: bool,
    /// Weir waits until its servers are released, and then ends.
    pub closed: bool,
    databases: BTreeMap<String, DatabaseSwitches>,
    /// By name; those of which nothing is known yet are missing.
    clusters: BTreeMap<String, PrimaryState>,
    /// The standbys of clusters, by name.
    readers: BTreeMap<String, ReaderState>,
    /// The addresses in use, by the names and ports of the nodes of clusters.
    addresses: BTreeMap<(String, u16), String>,
    /// The dangerous names of databases, by the name that clients use.
    catalogs: BTreeMap<String, Arc<Catalog>>,
    /// For databases whose catalogs were not read yet.
    unread: Arc<Catalog>,
}

/// The use of a node for reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fitness {
    /// It is a standby of the primary.
    Readable,
    #[default]
    Unfit,
    /// It does not answer. Connections to it may never end by themselves.
    Silent,
}

/// The nodes of a cluster, for reads.
#[derive(Clone, Debug)]
struct ReaderState {
    readers: Arc<Readers>,
    /// For each node.
    fitness: Vec<Fitness>,
}

impl Switches {
    pub fn database(&self, name: &str) -> DatabaseSwitches {
        self.databases.get(name).copied().unwrap_or_default()
    }

    pub fn database_mut(&mut self, name: &str) -> &mut DatabaseSwitches {
        self.databases.entry(name.to_owned()).or_default()
    }

    /// Follows a new configuration, which replaces `before`. Databases and clusters that it does not have are forgotten. If
    /// the nodes of a cluster have changed, none may be read until the new ones are known.
    pub fn follow_config(&mut self, before: &Config, config: &Config) {
        self.databases.retain(|name, _| config.database(name).is_some());
        self.catalogs.retain(|name, _| config.database(name).is_some());
        self.clusters.retain(|name, _| config.clusters.contains_key(name));
        self.readers.retain(|name, _| config.clusters.contains_key(name));
        let nodes = || config.clusters.values().flat_map(|cluster| &cluster.nodes);
        self.addresses.retain(|(host, port), _| {
            nodes().any(|node| Target::of_node(node) == Target::Node(host.clone(), *port))
        });
        for (name, cluster) in &config.clusters {
            self.forget_stranger(name, cluster);
            let known = before.clusters.get(name);
            let is_same = |known: &Cluster| Node::are_same_servers(&known.nodes, &cluster.nodes);
            if self.readers.contains_key(name) && !known.is_some_and(is_same) {
                self.set_readers(name, Arc::new(Readers::of(cluster)));
            }
        }
    }

    /// Is a switch on that concerns all databases?
    pub fn is_halted(&self) -> bool {
        self.paused || self.suspended || self.held || self.closed
    }

    pub fn any_database_paused(&self) -> bool {
        self.paused_databases().next().is_some()
    }

    /// Returns the databases that are paused by name.
    pub fn paused_databases(&self) -> impl Iterator<Item = &str> {
        self.databases.iter().filter(|(_, own)| own.paused).map(|(name, _)| name.as_str())
    }

    /// Returns the databases that have a switch on.
    pub fn switched(&self) -> impl Iterator<Item = &String> {
        let is_on = |own: &DatabaseSwitches| *own != DatabaseSwitches::default();
        self.databases.iter().filter(move |(_, own)| is_on(own)).map(|(name, _)| name)
    }

    /// Returns the databases that let no new client in.
    pub fn disabled(&self) -> impl Iterator<Item = &String> {
        self.databases.iter().filter(|(_, own)| own.disabled).map(|(name, _)| name)
    }

    /// Sets the primary of a cluster.
    pub fn set_primary(&mut self, cluster: &str, state: PrimaryState) {
        self.clusters.insert(cluster.to_owned(), state);
    }

    /// Forgets the primary of a cluster if it is none of the nodes any more. Clients wait then. Nodes
    /// that are to be found are not known at first.
    pub fn forget_stranger(&mut self, name: &str, cluster: &Cluster) {
        let primary = self.primary(name).and_then(|state| state.primary.as_ref());
        let is_node = |node: &Node| primary.is_none_or(|own| Target::of_node(node) == own.target);
        if !cluster.nodes.is_empty() && !cluster.nodes.iter().any(is_node) {
            self.clusters.remove(name);
        }
    }

    /// Returns what is known about the primary of a cluster.
    pub fn primary(&self, cluster: &str) -> Option<&PrimaryState> {
        self.clusters.get(cluster)
    }

    /// Returns the primaries, for another process.
    pub fn records(&self) -> Vec<PrimaryRecord> {
        let known = self.clusters.iter().filter_map(|(cluster, state)| {
            let primary = state.primary.clone()?;
            let outage = state.outage.as_ref().map(|outage| outage.why.clone());
            Some(PrimaryRecord { cluster: cluster.clone(), primary, outage })
        });
        known.collect()
    }

    /// Takes over the primary that another process knew, unless no node has its address any more.
    pub fn resume_primary(&mut self, record: PrimaryRecord, config: &Config, now: Micros) {
        let PrimaryRecord { cluster, primary, outage } = record;
        let nodes = config.clusters.get(&cluster).map_or(&[][..], |cluster| &cluster.nodes);
        if nodes.iter().any(|node| Target::of_node(node) == primary.target) {
            let outage =
                outage.map(|why| Arc::new(Outage { why, since: now, kind: OutageKind::Other }));
            self.set_primary(&cluster, PrimaryState { primary: Some(primary), outage });
        }
    }

    /// Returns the address in use of a node whose host is a name; None if it is not known yet.
    pub fn address(&self, host: &str, port: u16) -> Option<&str> {
        self.addresses.get(&(host.to_owned(), port)).map(String::as_str)
    }

    /// Sets the address in use of a node.
    pub fn set_address(&mut self, host: &str, port: u16, address: String) {
        self.addresses.insert((host.to_owned(), port), address);
    }

    /// Returns the addresses in use, for another process.
    pub fn addresses(&self) -> Vec<AddressRecord> {
        let record = |((host, port), address): (&(String, u16), &String)| AddressRecord {
            host: host.clone(),
            port: *port,
            address: address.clone(),
        };
        self.addresses.iter().map(record).collect()
    }

    /// Sets the nodes of a cluster. None may be read yet.
    pub fn set_readers(&mut self, cluster: &str, readers: Arc<Readers>) {
        let fitness = readers.all().map(|_| Fitness::Unfit).collect();
        self.readers.insert(cluster.to_owned(), ReaderState { readers, fitness });
    }

    /// Sets the use of each node of a cluster. `readers` tells whose nodes they are: after a change
    /// of the configuration, what was known of the old nodes means nothing.
    pub fn set_fitness(&mut self, cluster: &str, readers: &Arc<Readers>, fitness: Vec<Fitness>) {
        if let Some(state) = self.readers.get_mut(cluster)
            && Arc::ptr_eq(&state.readers, readers)
        {
            state.fitness = fitness;
        }
    }

    /// Sets the dangerous names of a database.
    pub fn set_catalog(&mut self, database: &str, catalog: Arc<Catalog>) {
        self.catalogs.insert(database.to_owned(), catalog);
    }

    /// Returns the dangerous names of a database, if they were read.
    pub fn catalog(&self, database: &str) -> Option<&Arc<Catalog>> {
        self.catalogs.get(database)
    }

    /// Returns the settings with the target of the pool's cluster, if it has one.
    pub fn aimed(&self, mut settings: Arc<PoolSettings>, place: Place) -> Arc<PoolSettings> {
        if place != Place::Writer {
            return settings;
        }
        let cluster = settings.cluster.as_ref().and_then(|name| self.clusters.get(name));
        if let Some(primary) = cluster.and_then(|state| state.primary.as_ref()) {
            Arc::make_mut(&mut settings).targets = vec![primary.target.clone()];
        }
        settings
    }

    /// Sends the pool's servers to the primary of its cluster. Returns false if that has none.
    fn follow_primary<T>(&self, pool: &mut Pool<T>) -> bool {
        if pool.key.place != Place::Writer {
            return true;
        }
        let Some(name) = pool.settings.cluster.clone() else {
            pool.follow_nobody();
            return true;
        };
        let Some(state) = self.clusters.get(&name) else {
            let why = "its nodes were not asked yet".to_owned();
            pool.outage
                .get_or_insert_with(|| Arc::new(Outage { why, since: 0, kind: OutageKind::Other }));
            return false;
        };
        if let Some(primary) = &state.primary {
            pool.follow(name, primary);
        }
        pool.outage.clone_from(&state.outage);
        state.outage.is_none()
    }

    /// Gives a writer pool its routing, if its database wants reads on standbys.
    fn set_routing<T>(&self, pool: &mut Pool<T>) {
        let of_cluster = pool.settings.cluster.as_ref().and_then(|name| self.readers.get(name));
        let known = pool.routing.take();
        pool.routing = pool.settings.reads.clone().zip(of_cluster).map(|(rules, state)| {
            let catalog = self.catalogs.get(&pool.key.database).unwrap_or(&self.unread);
            match known {
                Some(known) if known.is_by(&rules, &state.readers, catalog) => known,
                known => Arc::new(Routing::new(
                    rules,
                    state.readers.clone(),
                    catalog.clone(),
                    known.as_deref(),
                )),
            }
        });
        let present = pool.settings.routing.as_ref().map(Arc::as_ptr);
        if pool.settings.reads.is_some() && present != pool.routing.as_ref().map(Arc::as_ptr) {
            Arc::make_mut(&mut pool.settings).routing.clone_from(&pool.routing);
        }
    }

    /// Returns why the servers of this pool may not be used. A reader's node must follow the primary.
    fn unreadable<T>(&self, pool: &Pool<T>) -> Option<CloseReason<'static>> {
        let (Place::Reader(node), Some(name)) = (pool.key.place, &pool.settings.cluster) else {
            return None;
        };
        let known = self.readers.get(name).and_then(|own| own.fitness.get(usize::from(node.0)));
        match known.copied().unwrap_or_default() {
            Fitness::Readable => None,
            Fitness::Unfit => Some(CloseReason::NotReadable),
            Fitness::Silent => Some(CloseReason::NodeSilent),
        }
    }

    /// Sets the pool's gate. `exists`: the pool's database is still configured.
    pub fn apply<T>(&self, pool: &mut Pool<T>, exists: bool) {
        let database = self.database(&pool.key.database);
        pool.disabled = database.disabled;
        let has_primary = self.follow_primary(pool);
        self.set_routing(pool);
        pool.set_gate(match self.unreadable(pool) {
            _ if self.closed => Gate::Closed(CloseReason::ShuttingDown),
            _ if !exists => Gate::Closed(CloseReason::DatabaseRemoved),
            Some(why) => Gate::Closed(why),
            None if self.paused || database.paused => Gate::Paused,
            None if self.held => Gate::Held,
            None if !has_primary => Gate::NoPrimary,
            None => Gate::Open,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(nodes: &str) -> Config {
        let text = format!("[clusters.main]\nuser = \"weir\"\nnodes = {nodes:?}\n");
        Config::parse_toml(&text, "weir.toml").expect("a configuration")
    }

    fn fitness(switches: &Switches) -> &[Fitness] {
        &switches.readers["main"].fitness
    }

    #[test]
    fn other_nodes_are_not_read_before_they_are_known() {
        use Fitness::{Readable, Unfit};
        let both = config("a=10.0.0.1, b=10.0.0.2");
        let old = Arc::new(Readers::of(&both.clusters["main"]));
        for (nodes, expected) in [
            ("a=10.0.0.1, b=10.0.0.2*3", [Unfit, Readable]),
            ("b=10.0.0.2, a=10.0.0.1", [Unfit; 2]),
            ("a=10.0.0.1, b=10.0.0.3", [Unfit; 2]),
        ] {
            let mut switches = Switches::default();
            switches.set_readers("main", Arc::clone(&old));
            switches.set_fitness("main", &old, vec![Unfit, Readable]);
            switches.follow_config(&both, &config(nodes));
            assert_eq!(fitness(&switches), expected, "{nodes}");
            // The old nodes are watched for a moment longer.
            switches.set_fitness("main", &old, vec![Unfit, Readable]);
            assert_eq!(fitness(&switches), expected, "{nodes}");
        }
    }

    #[test]
    fn a_primary_that_is_no_node_any_more_is_forgotten() {
        let both = config("a=10.0.0.1, b=10.0.0.2");
        for (nodes, stays) in [
            ("a=10.0.0.1, b=10.0.0.2*3", true),
            ("c=10.0.0.3, z=10.0.0.1", true),
            ("b=10.0.0.2", false),
            ("a=10.0.0.1:6000, b=10.0.0.2", false),
        ] {
            let target = Target::of_node(&both.clusters["main"].nodes[0]);
            let primary = Some(Primary { target, timeline: 1 });
            let mut switches = Switches::default();
            switches.set_primary("main", PrimaryState { primary, outage: None });
            switches.follow_config(&both, &config(nodes));
            assert_eq!(switches.primary("main").is_some(), stays, "{nodes}");
        }
    }
}
