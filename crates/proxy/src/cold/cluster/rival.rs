//! Two Weirs that both promote standbys (`failover = own`) without etcd: the second one must notice.
//!
//! Each takes an advisory lock on the primary, on the connection on which it asks for the state. The one
//! that does not get the lock promotes nobody. When the primary is lost, the last answer counts.

use std::sync::atomic::Ordering;

use config::FailoverKind;
use tokio_postgres::Client;

use super::Watched;
use crate::{cold::controller::Controller, log, warning};

pub(super) const IN_WORDS: &str = "another Weir has failover = own for this cluster, too: without \
    etcd, only one may have it";

/// "weir" in ASCII. The second key of the lock is free for other uses.
const CLASS: i32 = 0x7765_6972;

/// The lock on one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lock {
    is_held: bool,
}

impl Lock {
    /// Takes the lock on the primary, or gives it back when another process has taken over.
    pub(super) async fn keep(
        &mut self,
        controller: &Controller,
        watched: &Watched,
        client: &Client,
    ) {
        let configured = &watched.configured;
        if configured.failover != FailoverKind::Own || !configured.etcd.is_empty() {
            return;
        }
        if controller.0.clusters.right.is_ceded() {
            if self.is_held {
                let back = format!("SELECT pg_catalog.pg_advisory_unlock({CLASS}, 1)");
                let _ = client.simple_query(&back).await;
                self.is_held = false;
            }
            return;
        }
        if self.is_held {
            return;
        }
        let question = format!("SELECT pg_catalog.pg_try_advisory_lock({CLASS}, 1)");
        let Ok(answer) = client.query_one(&question, &[]).await else { return };
        let Ok(is_held) = answer.try_get::<_, bool>(0) else { return };
        self.is_held = is_held;
        let had_rival = watched.has_rival.swap(!is_held, Ordering::Relaxed);
        match (had_rival, is_held) {
            (false, false) => {
                warning!("cluster {}: {IN_WORDS}: this one promotes nobody", watched.name)
            }
            (true, true) => log!("cluster {}: no other Weir promotes standbys now", watched.name),
            (true, false) | (false, true) => {}
        }
    }
}
