//! SQL that changes the roles of nodes, each on a connection of its own.

use std::time::Duration;

use ::cluster::{Lsn, NodeId};
use config::Node;
use tokio::time::timeout;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::{Watched, node};
use crate::cold::controller::Controller;

/// Asks whether the user may promote a node.
const RIGHTS: &str = "SELECT pg_catalog.has_function_privilege('pg_catalog.pg_promote(boolean, integer)', 'execute')";
/// Asks whether the replay of a standby is paused. A primary replays nothing.
const PAUSED: &str = "SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_is_wal_replay_paused() ELSE false END";
/// The end of all WAL that was written, flushed or not.
const END: &str = "SELECT pg_catalog.pg_current_wal_insert_lsn()";
/// Does not wait for the promotion: Weir finds out by asking the node for its role.
const PROMOTE: &str = "SELECT pg_catalog.pg_promote(false)";
const SOURCE: &str = "SELECT pg_catalog.current_setting('primary_conninfo')";
const RELOAD: &str = "SELECT pg_catalog.pg_reload_conf()";

/// The connection of an order.
pub(super) struct Orders<'a> {
    node: &'a Node,
    kept: node::Kept,
    limit: Duration,
}

impl<'a> Orders<'a> {
    /// Connects to a node.
    pub(super) async fn to(
        controller: &Controller,
        watched: &'a Watched,
        node: NodeId,
    ) -> Result<Self, String> {
        let limit = watched.configured.health_timeout;
        let at = usize::from(node.0);
        let kept = in_time(limit, node::connect(controller, watched, at)).await?;
        Ok(Self { node: &watched.configured.nodes[at], kept, limit })
    }

    /// Gives each answer this time.
    pub(super) fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Writes out all that the node has changed.
    pub(super) async fn checkpoint(&self) -> Result<(), String> {
        self.run("CHECKPOINT").await.map(drop)
    }

    /// May the user promote this node?
    ///
    /// # Errors
    /// When its replay is paused, since clients would wait until somebody resumes it; or when the node
    /// cannot be asked.
    pub(super) async fn may_promote(&self) -> Result<bool, String> {
        if self.value(PAUSED).await? == "t" {
            let name = &self.node.name;
            return Err(format!("node {name} cannot become the primary: its replay is paused"));
        }
        Ok(self.value(RIGHTS).await? == "t")
    }

    /// Returns the end of the WAL of a primary.
    pub(super) async fn end(&self) -> Result<Lsn, String> {
        let text = self.value(END).await?;
        Lsn::parse(&text).ok_or_else(|| format!("it is not a position: {text}"))
    }

    /// Orders the promotion, and does not wait for it.
    pub(super) async fn promote(&self) -> Result<(), String> {
        match self.value(PROMOTE).await?.as_str() {
            "t" => Ok(()),
            _ => Err("pg_promote has failed".to_owned()),
        }
    }

    /// Makes a standby follow another node, without a restart.
    pub(super) async fn follow(&self, primary: &Node) -> Result<(), String> {
        let source = self.value(SOURCE).await?;
        if is_uri(&source) {
            return Err("its primary_conninfo is a URI, which Weir does not change".to_owned());
        }
        let source = redirected(&source, primary);
        let quoted = source.replace('\'', "''");
        self.run(&format!("ALTER SYSTEM SET primary_conninfo = '{quoted}'")).await?;
        self.run(RELOAD).await.map(drop)
    }

    async fn value(&self, query: &str) -> Result<String, String> {
        let messages = self.run(query).await?;
        let row = messages.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let value = row.and_then(|row| row.get(0)).map(str::to_owned);
        value.ok_or_else(|| "it has not told a value".to_owned())
    }

    async fn run(&self, query: &str) -> Result<Vec<SimpleQueryMessage>, String> {
        let client: &Client = &self.kept.client;
        let asked = client.simple_query(query);
        in_time(self.limit, async { asked.await.map_err(|error| node::said(&error)) }).await
    }
}

async fn in_time<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let done = timeout(limit, work).await;
    done.unwrap_or_else(|_| Err(format!("no answer within {} s", limit.as_secs_f64())))
}

/// Does libpq take it for a URI?
fn is_uri(source: &str) -> bool {
    ["postgresql://", "postgres://"].iter().any(|scheme| source.trim_start().starts_with(scheme))
}

/// Returns a connection string with the address of another node.
fn redirected(source: &str, node: &Node) -> String {
    let mut kept: Vec<String> = Vec::new();
    for (key, text) in parts(source) {
        if !matches!(key, "host" | "hostaddr" | "port") {
            kept.push(text.to_owned());
        }
    }
    let quoted = node.host.to_string().replace('\\', "\\\\").replace('\'', "\\'");
    kept.push(format!("host='{quoted}' port={}", node.port));
    kept.join(" ")
}

/// Splits `key=value key='a b'` into its settings: each with its key.
fn parts(source: &str) -> Vec<(&str, &str)> {
    let mut parts = Vec::new();
    let mut rest = source.trim();
    while let Some((key, _)) = rest.split_once('=') {
        let mut is_quoted = false;
        let mut is_escaped = false;
        let mut has_begun = false;
        let from = key.len() + 1;
        let end = rest[from..].char_indices().find_map(|(at, letter)| {
            let ends = letter.is_whitespace() && has_begun && !is_quoted && !is_escaped;
            has_begun |= !letter.is_whitespace();
            match letter {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                '\'' => is_quoted = !is_quoted,
                _ => {}
            }
            ends.then_some(from + at)
        });
        let end = end.unwrap_or(rest.len());
        parts.push((key.trim(), &rest[..end]));
        rest = rest[end..].trim_start();
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_is_known() {
        for source in ["postgres://a/b", " postgresql://a:5432/?user=x"] {
            assert!(is_uri(source), "{source}");
        }
        for source in ["host=a", "", "password='postgres://'"] {
            assert!(!is_uri(source), "{source}");
        }
    }

    #[test]
    fn a_source_is_redirected_and_keeps_the_rest() {
        let node = |host: &str| Node {
            name: "b".to_owned(),
            host: config::Host::new(host),
            port: 5433,
            weight: 1,
        };
        for (source, expected) in [
            ("host=a port=5432 user=copyist", "user=copyist host='h' port=5433"),
            ("", "host='h' port=5433"),
            (
                "user=copyist password='it''s \\'so\\' host=x' hostaddr = 10.0.0.1 port= 1 sslmode=prefer",
                "user=copyist password='it''s \\'so\\' host=x' sslmode=prefer host='h' port=5433",
            ),
        ] {
            assert_eq!(redirected(source, &node("h")), expected, "{source}");
        }
        assert_eq!(redirected("host=a", &node("/run/pg")), "host='/run/pg' port=5433");
    }
}
