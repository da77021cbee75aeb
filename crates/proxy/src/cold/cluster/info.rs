//! Copies of the clusters' state, for the console and the metrics, and what judges of reads say.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ::cluster::{Failover, NodeId, Reason, Role, Verdict};
use config::FailoverKind;
use engine::routing::{
    Place,
    rules::Routing,
    why::{Why, judged},
};
use engine::settings::PoolKey;
use engine::{ids::Micros, switches::Fitness};

use super::checks::Checks;

use super::fleet::info::FleetInfo;
use crate::{cold::controller::Controller, exchange::hub::lock};

/// A cluster at one moment.
#[derive(Clone, Debug)]
pub struct ClusterInfo {
    pub name: String,
    /// The word of the key `failover`.
    pub failover: &'static str,
    /// The key from which its nodes come: `nodes`, `patroni` or `dns`.
    pub source: &'static str,
    /// Why they cannot be found now; empty if they can.
    pub trouble: String,
    /// Why a failover by Weir may lose commits; empty if it cannot.
    pub failover_risk: String,
    /// The name of the primary, or why there is none.
    pub primary: Result<String, String>,
    /// The highest timeline that was seen; 0 = none.
    pub timeline: u32,
    pub system: Option<u64>,
    pub nodes: Vec<NodeInfo>,
    /// The oldest first.
    pub failovers: Vec<Failover>,
    /// The Weirs of the cluster, with the key `etcd`.
    pub fleet: Option<FleetInfo>,
    /// Why Weir changes no primary by itself now; empty if it does, and with `failover = follow`.
    pub paused: String,
}

/// A node at one moment.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    pub name: String,
    pub host: String,
    pub port: u16,
    /// The address in use; empty for a socket, and if it is not known yet.
    pub address: String,
    /// The addresses of its name at which other servers are, separated by commas.
    pub other_servers: String,
    pub verdict: &'static str,
    /// Empty if it is used.
    pub reason: String,
    /// `primary` or `standby`, by its last answer; empty if it has not answered.
    pub role: &'static str,
    /// That of its last answer; 0 if it has not answered.
    pub timeline: u32,
    /// The position in the WAL; empty if it has not answered.
    pub wal: String,
    /// Bytes of WAL that it is behind the primary; none without a primary.
    pub lag_bytes: Option<u64>,
    /// Its number among the nodes of all clusters.
    pub number: u32,
    /// Its share of the reads; 0 = none.
    pub weight: u16,
    /// Does Weir send transactions or reads to it?
    pub is_used: bool,
    /// When its verdict changed last.
    pub changed_at: Micros,
    pub checks: Checks,
    /// `state` and `sync_state` of its WAL sender at the primary; empty if it has none.
    pub replication: (String, String),
}

/// The word of a judge about a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The database as clients name it.
    pub database: String,
    /// `hint`, `text`, `catalogs` or the name of a node.
    pub judge: String,
    /// `primary` or `standby`.
    pub place: &'static str,
    pub reason: &'static str,
    pub description: &'static str,
}

impl Controller {
    /// Returns the state of all clusters, by name.
    #[must_use]
    pub fn clusters(&self) -> Vec<ClusterInfo> {
        let watched = self.all_watched();
        let config = self.config();
        let mut numbers = lock(&self.0.clusters.numbers);
        numbers.follow(&config);
        let info = |own: &Arc<super::Watched>| {
            let cluster = lock(&own.cluster);
            let records: Vec<_> = own.records.iter().map(|record| lock(record).clone()).collect();
            let primary = cluster.primary().ok();
            let newest = primary.and_then(|node| cluster.sample(node)).map(|sample| sample.wal.0);
            let node = |(at, node): (usize, &config::Node)| {
                let id = NodeId(at as u16);
                let (sample, verdict) = (cluster.sample(id), cluster.verdict(id));
                let record = &records[at];
                let sender = primary.and_then(|at| record.sender(&records[usize::from(at.0)]));
                NodeInfo {
                    name: node.name.clone(),
                    host: node.host.to_string(),
                    port: node.port,
                    address: match &node.host {
                        config::Host::Tcp(_) if node.is_named() => own
                            .address(self, at)
                            .map_or_else(String::new, |address| address.to_string()),
                        config::Host::Tcp(address) => address.clone(),
                        config::Host::Unix(_) | config::Host::Abstract(_) => String::new(),
                    },
                    other_servers: in_list(&own.other_servers(at)),
                    verdict: verdict.word(),
                    reason: verdict.reason().map(ToString::to_string).unwrap_or_default(),
                    role: sample.map_or("", |sample| match sample.role {
                        Role::Primary => "primary",
                        Role::Standby(_) => "standby",
                    }),
                    timeline: sample.map_or(0, |sample| sample.timeline),
                    wal: sample.map_or_else(String::new, |sample| sample.wal.to_string()),
                    lag_bytes: newest
                        .zip(sample)
                        .map(|(newest, sample)| newest.saturating_sub(sample.wal.0)),
                    number: numbers.of(&own.name, &node.name),
                    weight: node.weight,
                    is_used: *verdict == Verdict::Writable || fitness(verdict) == Fitness::Readable,
                    changed_at: record.changed_at,
                    checks: record.checks,
                    replication: sender.map_or_else(Default::default, |sender| {
                        (sender.state.clone(), sender.sync_state.clone())
                    }),
                }
            };
            let nodes = &own.configured.nodes;
            let promotes = own.configured.failover == FailoverKind::Own;
            ClusterInfo {
                name: own.name.clone(),
                failover: own.configured.failover.word(),
                source: own.configured.source(),
                trouble: lock(&own.trouble).clone().unwrap_or_default(),
                failover_risk: cluster.risk().filter(|_| promotes).unwrap_or_default(),
                primary: match cluster.primary() {
                    Ok(node) => Ok(nodes[usize::from(node.0)].name.clone()),
                    Err(reason) => Err(reason.to_string()),
                },
                timeline: cluster.timeline(),
                system: cluster.system(),
                nodes: nodes.iter().enumerate().map(node).collect(),
                failovers: cluster.history().entries().cloned().collect(),
                paused: own.paused_because(self).filter(|_| promotes).unwrap_or_default(),
                fleet: own.fleet.as_ref().map(|fleet| fleet.info()),
            }
        };
        watched.iter().map(info).collect()
    }
}

/// Returns the use of a node for reads.
pub(super) fn fitness(verdict: &Verdict) -> Fitness {
    match verdict {
        // While there is no primary, freshness decides which reads may go there.
        Verdict::Readable | Verdict::Unfit(Reason::NoPrimary) => Fitness::Readable,
        Verdict::Down(Reason::Silent) => Fitness::Silent,
        Verdict::Unknown(_)
        | Verdict::Writable
        | Verdict::Unfit(_)
        | Verdict::FalsePrimary(_)
        | Verdict::Down(_) => Fitness::Unfit,
    }
}

fn in_list(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// EXPLAIN ROUTE.
impl Controller {
    /// Returns what each judge says about a text. A later judge is asked only if those before it
    /// let the text pass. The nodes are judged for a session without writes.
    #[must_use]
    pub fn explain_route(&self, text: &[u8]) -> Vec<Judgement> {
        let hub = &self.0.shared.hub;
        let mut routed: BTreeMap<String, Arc<Routing>> = BTreeMap::new();
        for pool in hub.pools() {
            let pool = lock(&pool);
            let PoolKey { database, place, .. } = &pool.key;
            if let (Place::Writer, Some(routing)) = (place, &pool.settings.routing) {
                routed.entry(database.clone()).or_insert_with(|| routing.clone());
            }
        }
        let (schema, now) = (hub.schema(), self.now());
        let mut all = Vec::new();
        for (database, routing) in routed {
            let mut tell = |judge: &str, why: Why| {
                all.push(Judgement {
                    database: database.clone(),
                    judge: judge.to_owned(),
                    place: if why == Why::Read { "standby" } else { "primary" },
                    reason: why.name(),
                    description: why.description(),
                });
                why == Why::Read
            };
            let passes = judged(text, &routing, schema).all(|(judge, why)| tell(judge, why));
            if passes {
                for (_, name, why) in routing.nodes(now) {
                    tell(name, why);
                }
            }
        }
        all
    }
}
