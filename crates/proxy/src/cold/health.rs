//! The health checks, for HTTP (`http.rs`) and SHOW HEALTH.

use std::sync::atomic::Ordering;

use super::{cluster::ClusterInfo, controller::Controller};

/// A check, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// `live`, `ready`, `primary`, or `primary/NAME` for a cluster.
    pub name: String,
    /// Why it fails; `None` if it passes.
    pub obstacle: Option<String>,
}

impl Controller {
    /// Returns all checks. `clusters`: all clusters. Each has a check, after that for all of them.
    pub fn health(&self, clusters: &[ClusterInfo]) -> Vec<HealthCheck> {
        let unready = self.unready_because();
        let clusters = clusters.iter().map(|cluster| {
            let lacks = |why| format!("cluster {} has no primary: {why}", cluster.name);
            let writerless = || cluster.primary.as_ref().err().map(lacks);
            let name = format!("primary/{}", cluster.name);
            HealthCheck { obstacle: unready.clone().or_else(writerless), name }
        });
        let clusters: Vec<_> = clusters.collect();
        let unwatched = || "no cluster is configured, so no primary is watched".to_owned();
        let writerless = match clusters.first() {
            Some(_) => clusters.iter().find_map(|one| one.obstacle.clone()),
            None => unready.clone().or_else(|| Some(unwatched())),
        };
        let all = [("live", None), ("ready", unready), ("primary", writerless)];
        let all =
            all.into_iter().map(|(name, obstacle)| HealthCheck { name: name.to_owned(), obstacle });
        all.chain(clusters).collect()
    }

    /// Why clients cannot be served now; `None` if they can.
    fn unready_because(&self) -> Option<String> {
        let switches = self.0.shared.hub.switches();
        let why = if switches.closed || self.0.shared.draining.load(Ordering::Acquire) {
            "the pooler is shutting down"
        } else if switches.held {
            "another process is taking over"
        } else if switches.suspended {
            "the pooler is suspended (SUSPEND); RESUME ends that"
        } else if switches.paused {
            "the pooler is paused (PAUSE); RESUME ends that"
        } else {
            return None;
        };
        Some(why.to_owned())
    }
}
