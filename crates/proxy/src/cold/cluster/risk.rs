//! Tells whether a failover by Weir (`failover = own`) may lose acknowledged commits.

use std::time::Duration;

use ::cluster::{Cluster, Fact, NodeId, Settings};
use config::{Cluster as Configured, FailoverKind};

use super::state::{self, State};

/// The question for a node's state; see [`risk_of`].
pub const NODE_QUESTION: &str = state::QUESTION;

/// Returns why a failover of this cluster may lose commits, if its nodes answer so to
/// [`NODE_QUESTION`]: each answer has the number of the node, and the columns of the row.
#[must_use]
pub fn risk_of(
    configured: &Configured,
    answers: &[(usize, Vec<Option<String>>)],
) -> Option<String> {
    if configured.failover != FailoverKind::Own {
        return None;
    }
    let names = configured.nodes.iter().map(|node| node.name.clone());
    let settings = Settings {
        sample_interval: Duration::from_secs(1).as_micros() as u64,
        health_timeout: Duration::from_secs(1).as_micros() as u64,
    };
    let mut cluster = Cluster::new(settings, names, 0);
    for at in 0..configured.nodes.len() {
        let node = NodeId(at as u16);
        let row = answers.iter().find(|answer| answer.0 == at).map(|answer| &answer.1);
        let state = row.and_then(|row| State::of(|column| row.get(column)?.as_deref()));
        match state {
            Some(State { sample, replication, .. }) => {
                cluster.learn_replication(node, replication, 1);
                cluster.learn(node, Fact::Seen(sample), 1);
            }
            None => cluster.learn(node, Fact::Silent, 1),
        }
    }
    cluster.judge(2);
    cluster.risk()
}
