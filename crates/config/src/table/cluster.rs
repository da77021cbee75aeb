//! The keys of an entry of `[clusters]`.

use std::time::Duration;

use crate::choice::FailoverKind;
use crate::key::keys;
use crate::node::Node;

keys! {
    /// One entry of `[clusters]`: PostgreSQL servers with one history, a primary and its standbys.
    pub struct Cluster in Cluster {}

    /// Its nodes: `NAME=HOST` or `NAME=HOST:PORT`, separated by commas. The primary is found by
    /// asking all of them, so their order has no meaning. An address of IPv6 is in brackets.
    nodes: Vec<Node> = unset, reload, acts;
    /// Whether Weir promotes a standby when the primary is lost. `follow`: it never does, and
    /// finds the primary that somebody else has promoted.
    failover: FailoverKind = "follow", reload, acts;
    /// User for Weir's own connection to each node. The user needs the role `pg_monitor`.
    user: String = "weir", reload, acts;
    /// Password of `user`. Not set: looked up in `auth_file`, where it must be in clear text.
    password: Option<String> = unset, reload, acts, secret;
    /// Database for Weir's own connection to each node.
    dbname: String = "postgres", reload, acts;
    /// How often each node is asked for its role. While there is no primary, nodes are asked at
    /// least ten times a second.
    sample_interval: Duration = "1", reload, acts;
    /// How long a node may take to answer. A node that has not answered for twice this time is
    /// down.
    health_timeout: Duration = "2", reload, acts;
    /// How long a client waits for a primary before it is disconnected; 0 is no limit.
    failover_wait: Duration = "30", reload, acts;
}
