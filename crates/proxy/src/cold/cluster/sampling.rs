//! Samples the positions in the log of the primary and its standbys, from which workers know which
//! standbys have which commits (`engine::routing::freshness`).
//!
//! Each node has a task of its own. It asks on the connection that `node.rs` keeps, often while some
//! standby lacks recent writes and seldom otherwise. A new primary begins a new log. A standby gets
//! no reads until the new primary and the standby are sampled.

use std::{sync::Arc, time::Duration};

use ::cluster::{Lsn, NodeId, Reason, Verdict};
use config::Database;
use engine::{
    ids::{self, Micros},
    routing::freshness::Position,
};
use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, SimpleQueryMessage};

use super::{
    Watched,
    samples::{Part, Sample},
    tail::FLUSH,
};
use crate::{
    cold::controller::Controller,
    exchange::{hub::lock, mail::ShellMail},
};

/// One row: is the node in recovery, its position in the log, the position that a primary has
/// flushed, and the length of a page of the log.
const QUESTION: &str = "SELECT r.recovery, CASE WHEN r.recovery THEN \
    pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_insert_lsn() END, \
    CASE WHEN r.recovery THEN pg_catalog.pg_last_wal_replay_lsn() ELSE \
    pg_catalog.pg_current_wal_flush_lsn() END, pg_catalog.current_setting('wal_block_size') \
    FROM (SELECT pg_catalog.pg_is_in_recovery() AS recovery) r";

/// A standby of the last primary, while there is none.
const ORPHAN: Verdict = Verdict::Unfit(Reason::NoPrimary);

/// The time between two questions while a standby lacks recent writes.
const TICK: Duration = Duration::from_millis(20);
/// The longest time between two questions otherwise.
const REST_MAX: Micros = 200_000;
/// A standby that lacks a write for longer is asked no more often for it.
const RECENT: Micros = 10_000_000;
/// The time between two looks at a cluster whose databases want no reads on standbys.
const UNWANTED_PAUSE: Duration = Duration::from_millis(500);

impl Watched {
    /// Returns a node's part, and the number of the primary to which it belongs.
    fn part_of(&self, node: NodeId) -> Option<(Part, u64)> {
        let cluster = lock(&self.cluster);
        let part = match cluster.primary() {
            Ok(primary) if primary == node => Part::Primary,
            Ok(_) if *cluster.verdict(node) == Verdict::Readable => Part::Standby,
            Err(_) if *cluster.verdict(node) == ORPHAN => Part::Standby,
            Ok(_) | Err(_) => return None,
        };
        Some((part, lock(&self.samples).term))
    }

    /// Does a standby lack recent writes?
    fn lacks_writes(&self, now: Micros) -> bool {
        let wanted = self.readers.wanted_as_of();
        let is_recent = wanted != 0 && now.saturating_sub(wanted) < RECENT;
        let lacks = |(node, replayed): (ids::NodeId, &Option<Position>)| {
            let reader = self.readers.get(node);
            replayed.is_some() && reader.is_some_and(|own| own.fresh_as_of() <= Some(wanted))
        };
        is_recent && {
            let samples = lock(&self.samples);
            let nodes = self.readers.all().map(|(node, _)| node);
            nodes.zip(&samples.replayed).any(lacks)
        }
    }

    /// Learns what a node has answered, unless its connection or the primary is another one now.
    /// Returns true if requests that wait for a lost primary may run there from now on.
    fn learn(
        &self,
        (at, client): (usize, &Arc<Client>),
        (part, term): (Part, u64),
        asked_at: Micros,
        sample: &Sample,
    ) -> bool {
        let mut samples = lock(&self.samples);
        let kept = lock(&self.clients[at]).clone();
        let counts = samples.term == term && kept.is_some_and(|kept| Arc::ptr_eq(&kept, client));
        let is_first = samples.replayed[at].is_none();
        if counts {
            samples.learn(at, part, asked_at, sample);
            samples.publish(&self.readers);
        }
        counts && is_first && self.readers.are_orphaned()
    }

    /// Is the primary to flush its log?
    fn is_flush_due(&self, now: Micros) -> bool {
        let mut samples = lock(&self.samples);
        if let Some(since) = samples.tail.lingers_since() {
            // It is sampled more often until the standbys have it.
            self.readers.want_as_of(since);
        }
        samples.tail.take_due(now)
    }

    /// Returns the time between two questions at rest. None: no database wants reads on standbys.
    pub(super) fn rest(&self, controller: &Controller) -> Option<Micros> {
        let config = controller.config();
        let of_cluster = |database: &&Database| {
            config.any_reads(database) && database.cluster.as_ref() == Some(&self.name)
        };
        let databases = config.databases.values().chain(&config.fallback);
        let limits = databases.map(|own| &**own).filter(of_cluster).map(|own| own.max_staleness);
        // Half of the limit lets a standby come back.
        limits
            .map(|limit| match limit.as_micros() as Micros {
                0 => REST_MAX,
                limit => (limit / 4).clamp(TICK.as_micros() as Micros, REST_MAX),
            })
            .min()
    }
}

/// Samples one node again and again, forever.
pub(super) async fn keep(controller: Controller, watched: Arc<Watched>, at: usize) {
    let mut asked_at = 0;
    let mut rest = None;
    let mut looked_at = 0;
    loop {
        let now = controller.now();
        if now.saturating_sub(looked_at) > UNWANTED_PAUSE.as_micros() as Micros {
            (rest, looked_at) = (watched.rest(&controller), now);
        }
        let Some(rest) = rest else {
            sleep(UNWANTED_PAUSE).await;
            continue;
        };
        let is_due = now.saturating_sub(asked_at) >= rest || watched.lacks_writes(now);
        let client = is_due.then(|| lock(&watched.clients[at]).clone()).flatten();
        if let Some(client) = client {
            asked_at = now;
            ask(&controller, &watched, at, &client).await;
        }
        sleep(TICK).await;
    }
}

async fn ask(controller: &Controller, watched: &Watched, at: usize, client: &Arc<Client>) {
    let Some((part, term)) = watched.part_of(NodeId(at as u16)) else { return };
    // Read before the question is sent.
    let asked_at = controller.now();
    let patience = watched.configured.health_timeout;
    let Ok(Some(sample)) = timeout(patience, question(client)).await else { return };
    if sample.is_in_recovery != (part == Part::Standby) {
        // Its role has changed. `node.rs` finds out.
        return watched.wakes[at].notify_one();
    }
    if watched.learn((at, client), (part, term), asked_at, &sample) {
        controller.0.shared.tell_all(|| ShellMail::Review);
    }
    if part == Part::Primary && watched.is_flush_due(controller.now()) {
        // If it fails, the node is asked again anyway.
        let _ = timeout(patience, client.simple_query(FLUSH)).await;
    }
    if watched.readers.take_waiting() {
        controller.0.shared.tell_all(|| ShellMail::Fresher);
    }
}

async fn question(client: &Client) -> Option<Sample> {
    let messages = client.simple_query(QUESTION).await.ok()?;
    messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(Sample {
            is_in_recovery: row.get(0)? == "t",
            position: row.get(1).and_then(Lsn::parse)?.0,
            flushed: row.get(2).and_then(Lsn::parse)?.0,
            page_len: row.get(3)?.parse().ok().filter(|len| *len > 0)?,
        }),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use config::Config;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio_postgres::NoTls;

    use super::*;

    /// AuthenticationOk and ReadyForQuery.
    const WELCOME: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";

    async fn client() -> Arc<Client> {
        let (near, mut far) = duplex(1_024);
        let welcome = async {
            far.read_u8().await.unwrap();
            far.write_all(WELCOME).await.unwrap();
        };
        let mut settings = tokio_postgres::Config::new();
        settings.user("weir");
        let (opened, ()) = tokio::join!(settings.connect_raw(near, NoTls), welcome);
        Arc::new(opened.unwrap().0)
    }

    #[test]
    fn what_a_node_has_told_on_a_lost_connection_counts_no_more() {
        let nodes = "[clusters.main]\nnodes = \"a=10.0.0.1, b=10.0.0.2\"\n";
        let config = Config::parse_toml(nodes, "weir.toml").unwrap();
        let watched = Watched::new("main", &config.clusters["main"], None, None, 0);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let clients = [(); 3].map(|()| runtime.block_on(client()));
        let [primary, before, after] = &clients;
        let open = |at: usize, client| *lock(&watched.clients[at]) = Some(Arc::clone(client));
        let learn = |of: (usize, _), part, position| {
            let is_in_recovery = part == Part::Standby;
            let sample = Sample { is_in_recovery, position, flushed: position, page_len: 8_192 };
            let _ = watched.learn(of, (part, 0), 10, &sample);
        };
        let fresh = || watched.readers.get(ids::NodeId(1)).unwrap().fresh_as_of();
        open(0, primary);
        open(1, before);
        learn((0, primary), Part::Primary, 1_000);
        learn((1, before), Part::Standby, 1_000);
        assert_eq!(fresh(), Some(10));
        watched.lose_client(1);
        assert_eq!(fresh(), None);
        open(1, after);
        learn((1, before), Part::Standby, 1_000);
        assert_eq!(fresh(), None, "it was asked on the lost connection");
        learn((1, after), Part::Standby, 900);
        assert_eq!(fresh(), None, "it has not replayed so much again");
        learn((1, after), Part::Standby, 1_000);
        assert_eq!(fresh(), Some(10));
    }
}
