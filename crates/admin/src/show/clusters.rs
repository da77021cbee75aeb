//! SHOW CLUSTERS, SHOW NODES, SHOW MEMBERS and SHOW FAILOVERS, which are Weir's own.

use super::{Table, int8, text};
use crate::snapshot::{ClusterRow, FailoverRow, MemberRow, NodeRow};

pub(super) static CLUSTERS: Table<ClusterRow> = Table {
    name: "CLUSTERS",
    about: "The entries of `[clusters]` ([Clusters](cluster.md)). Weir's own.",
    columns: &[
        text("cluster", |row| row.name.as_str().into(), "Name of the entry."),
        text("failover", |row| row.failover.into(), "The key `failover`."),
        text("primary", |row| row.primary.as_str().into(), "The node that transactions go to."),
        text("reason", |row| row.reason.as_str().into(), "Why there is no primary."),
        int8("timeline", |row| row.timeline.into(), "The highest timeline that was seen."),
        text(
            "system_identifier",
            |row| row.system.as_str().into(),
            "The system identifier of its nodes, once it is known.",
        ),
        int8("nodes", |row| (row.nodes.len() as u64).into(), "Nodes, also those that are down."),
        int8(
            "readable_nodes",
            |row| row.in_state("readable").into(),
            "Standbys that follow the primary.",
        ),
        text(
            "source",
            |row| row.source.into(),
            "The key from which the nodes come: `nodes`, `patroni` or `dns`.",
        ),
        text(
            "source_error",
            |row| row.trouble.as_str().into(),
            "Why Patroni or DNS does not name the nodes now. They stay as they were known.",
        ),
        text(
            "failover_risk",
            |row| row.failover_risk.as_str().into(),
            "With `failover = own`: why a failover may lose commits, and what avoids it. Empty if no \
             commit can be lost.",
        ),
        text(
            "failover_paused",
            |row| row.paused.as_str().into(),
            "With `failover = own`: why Weir replaces no lost primary now, for example FAILOVER PAUSE. \
             Empty if it does.",
        ),
        text(
            "term",
            |row| row.term.as_str().into(),
            "With `etcd`: the primary that all members have agreed on, or how it is being replaced.",
        ),
    ],
    rows: |view| view.snapshot.clusters,
};

pub(super) static NODES: Table<NodeLine> = Table {
    name: "NODES",
    about: "The nodes of all clusters, as they last answered. Weir's own.",
    columns: &[
        text("cluster", |line| line.cluster.as_str().into(), "The cluster."),
        text("node", |line| line.node.name.as_str().into(), "Name of the node."),
        text("host", |line| line.node.host.as_str().into(), "Host of the node."),
        int8("port", |line| u64::from(line.node.port).into(), "Port of the node."),
        text(
            "state",
            |line| line.node.verdict.into(),
            "`writable` (the primary), `readable` (a standby of it), `unfit` (it answers, \
             but is unused), `false primary`, `down` or `unknown`.",
        ),
        text("reason", |line| line.node.reason.as_str().into(), "Why it is not used."),
        text(
            "role",
            |line| line.node.role.into(),
            "`primary` if it accepts writes, `standby` if it is in recovery; empty if it does not \
             answer.",
        ),
        int8("timeline", |line| u64::from(line.node.timeline).into(), "Its timeline."),
        text(
            "lsn",
            |line| line.node.wal.as_str().into(),
            "The end of its WAL: flushed by a primary, replayed by a standby.",
        ),
        int8(
            "lag_bytes",
            |line| line.node.lag_bytes.into(),
            "How many bytes of WAL it is behind the primary; NULL if that is not known.",
        ),
        text(
            "address",
            |line| line.node.address.as_str().into(),
            "The address of the host that Weir uses; empty for a socket, or if none has answered.",
        ),
        text(
            "other_servers",
            |line| line.node.other_servers.as_str().into(),
            "Addresses of the host that belong to other servers. This is a mistake: see cluster.md.",
        ),
    ],
    rows: |view| {
        let lines = |cluster: ClusterRow| {
            let ClusterRow { name, nodes, .. } = cluster;
            nodes.into_iter().map(move |node| NodeLine { cluster: name.clone(), node })
        };
        view.snapshot.clusters.into_iter().flat_map(lines).collect()
    },
};

pub(super) static MEMBERS: Table<MemberLine> = Table {
    name: "MEMBERS",
    about: "The Weirs of clusters with `etcd` ([High availability](high-availability.md)), as this one \
            knows them. Weir's own.",
    columns: &[
        text("cluster", |line| line.cluster.as_str().into(), "The cluster."),
        text("member", |line| line.member.name.as_str().into(), "Name of the Weir."),
        text(
            "state",
            |line| line.member.state.into(),
            "`leader`, `member`, `silent` (its lease has ended), or `unreached` (this Weir does not \
             reach etcd).",
        ),
        text(
            "self",
            |line| if line.member.is_self { "yes" } else { "no" }.into(),
            "`yes` for the Weir of this console.",
        ),
        text(
            "virtual_address",
            |line| if line.member.has_address { "yes" } else { "no" }.into(),
            "`yes` for the Weir whose machine has the virtual address.",
        ),
        text(
            "lease_seconds",
            |line| match line.member.lease {
                Some(lease) => format!("{:.1}", lease as f64 / 1e6).into(),
                None => "".into(),
            },
            "For this Weir: how long it may use the primary without an answer of etcd. Empty for the \
             others.",
        ),
        int8(
            "confirmed",
            |line| line.member.confirmed.into(),
            "Number of the last term for which it had all clients wait.",
        ),
        text(
            "sees",
            |line| line.member.sees.as_str().into(),
            "The states of the nodes, as it sees them.",
        ),
        text("version", |line| line.member.version.as_str().into(), "Its version."),
        text(
            "error",
            |line| line.member.trouble.as_str().into(),
            "For this Weir: why etcd does not do what it is asked for, or why this machine cannot have \
             the virtual address.",
        ),
    ],
    rows: |view| {
        let lines = |cluster: ClusterRow| {
            let ClusterRow { name, members, .. } = cluster;
            members.into_iter().map(move |member| MemberLine { cluster: name.clone(), member })
        };
        view.snapshot.clusters.into_iter().flat_map(lines).collect()
    },
};

pub(super) struct MemberLine {
    cluster: String,
    member: MemberRow,
}

pub(super) struct NodeLine {
    cluster: String,
    node: NodeRow,
}

pub(super) static FAILOVERS: Table<FailoverLine> = Table {
    name: "FAILOVERS",
    about: "The changes of each cluster's primary, the oldest first: the last 100 since the process \
            began. The first one is the start. Weir's own.",
    columns: &[
        text("cluster", |line| line.cluster.as_str().into(), "The cluster."),
        text("began", |line| (&line.began).into(), "When the cluster lost its primary."),
        int8(
            "duration_ms",
            |line| line.failover.duration_ms.into(),
            "How long it had none, as Weir saw it; NULL if it has none yet.",
        ),
        text("from_node", |line| line.failover.from.as_str().into(), "The old primary."),
        text("to_node", |line| line.failover.to.as_str().into(), "The new primary."),
        int8("old_timeline", |line| line.failover.old_timeline.into(), "The old one's timeline."),
        int8("new_timeline", |line| line.failover.new_timeline.into(), "The new one's timeline."),
        text("reason", |line| line.failover.reason.as_str().into(), "Why the old one was lost."),
        int8(
            "bytes_at_risk",
            |line| line.failover.at_risk.into(),
            "Bytes of WAL of the old primary that no standby had received, by the last answers of \
             all nodes; NULL for the start. Of a switchover, nothing is lost.",
        ),
    ],
    rows: |view| {
        let local_time = view.snapshot.local_time;
        let lines = |cluster: ClusterRow| {
            let ClusterRow { name, failovers, .. } = cluster;
            failovers.into_iter().map(move |failover| FailoverLine {
                cluster: name.clone(),
                began: local_time(failover.began),
                failover,
            })
        };
        view.snapshot.clusters.into_iter().flat_map(lines).collect()
    },
};

pub(super) struct FailoverLine {
    cluster: String,
    began: String,
    failover: FailoverRow,
}
