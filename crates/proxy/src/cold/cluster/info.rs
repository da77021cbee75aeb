//! Copies of the clusters' state, for the console and the metrics.

use ::cluster::{Failover, NodeId, Role};

use crate::{cold::controller::Controller, exchange::hub::lock};

/// A cluster at one moment.
#[derive(Clone, Debug)]
pub struct ClusterInfo {
    pub name: String,
    /// The word of the key `failover`.
    pub failover: &'static str,
    /// The name of the primary, or why there is none.
    pub primary: Result<String, String>,
    /// The highest timeline that was seen; 0 = none.
    pub timeline: u32,
    pub system: Option<u64>,
    pub nodes: Vec<NodeInfo>,
    /// The oldest first.
    pub failovers: Vec<Failover>,
}

/// A node at one moment.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    pub name: String,
    pub host: String,
    pub port: u16,
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
}

impl Controller {
    /// Returns the state of all clusters, by name.
    #[must_use]
    pub fn clusters(&self) -> Vec<ClusterInfo> {
        let watched: Vec<_> = lock(&self.0.clusters.watched).values().cloned().collect();
        let info = |own: &std::sync::Arc<super::Watched>| {
            let cluster = lock(&own.cluster);
            let primary = cluster.primary().ok();
            let newest = primary.and_then(|node| cluster.sample(node)).map(|sample| sample.wal.0);
            let node = |(at, node): (usize, &config::Node)| {
                let id = NodeId(at as u16);
                let (sample, verdict) = (cluster.sample(id), cluster.verdict(id));
                NodeInfo {
                    name: node.name.clone(),
                    host: node.host.to_string(),
                    port: node.port,
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
                }
            };
            let nodes = &own.configured.nodes;
            ClusterInfo {
                name: own.name.clone(),
                failover: own.configured.failover.word(),
                primary: match cluster.primary() {
                    Ok(node) => Ok(nodes[usize::from(node.0)].name.clone()),
                    Err(reason) => Err(reason.to_string()),
                },
                timeline: cluster.timeline(),
                system: cluster.system(),
                nodes: nodes.iter().enumerate().map(node).collect(),
                failovers: cluster.history().entries().cloned().collect(),
            }
        };
        watched.iter().map(info).collect()
    }
}
