//! The keys of an entry of `[clusters]`.

use std::time::Duration;

use crate::choice::{FailoverKind, SwitchoverOvertime};
use crate::endpoint::{Api, Endpoint, EtcdApi};
use crate::key::keys;
use crate::node::Node;
use crate::virtual_address::VirtualAddress;

keys! {
    /// One entry of `[clusters]`: PostgreSQL servers with one history, a primary and its standbys.
    pub struct Cluster in Cluster {}

    /// Its nodes: `NAME=HOST` or `NAME=HOST:PORT`, separated by commas. Weir asks all of them which
    /// one is the primary, so their order has no meaning. An IPv6 address is in brackets.
    /// `NAME=HOST:PORT*2` gives a node twice the reads of the others, and `*0` none (`reads`).
    nodes: Vec<Node> = unset, reload, acts;
    /// Addresses of Patroni's REST API, instead of `nodes`. Each is `HOST:PORT` or
    /// `https://HOST:PORT`; commas separate them. Weir gets the nodes from the first one that
    /// answers.
    patroni: Vec<Api> = unset, reload, acts;
    /// User of Patroni's REST API (`restapi.authentication` in Patroni's configuration).
    patroni_user: Option<String> = unset, reload, acts;
    /// Password of `patroni_user`.
    patroni_password: Option<String> = unset, reload, acts, secret;
    /// File with the authorities for `https` to Patroni. Empty: those of the system.
    patroni_ca_file: String = "", reload, acts;
    /// File with Weir's own certificate for `https` to Patroni (`restapi.verify_client`).
    patroni_cert_file: String = "", reload, acts;
    /// File with the private key for `patroni_cert_file`.
    patroni_key_file: String = "", reload, acts;
    /// Host names, instead of `nodes`: `NAME` or `NAME:PORT`, separated by commas. Each of their
    /// addresses is a node.
    dns: Vec<Endpoint> = unset, reload, acts;
    /// How often Patroni or DNS is asked for the nodes. While there is no primary, it is asked at
    /// least once a second.
    discovery_interval: Duration = "5", reload, acts;
    /// Whether Weir promotes a standby when the primary is lost. `follow`: it does not, because a
    /// cluster manager or a person does. `own`: it does, after `fence_command`. Without
    /// `etcd`, only one Weir may have `own` for a cluster.
    failover: FailoverKind = "follow", reload, acts;
    /// User for Weir's own connection to each node. The user needs the role `pg_monitor`.
    user: String = "weir", reload, acts;
    /// Password of `user`. Not set: looked up in `auth_file`, where it must be in clear text.
    password: Option<String> = unset, reload, acts, secret;
    /// File whose only line is the password of `user`, instead of `password`. It is read at start and
    /// by each reload.
    password_file: Option<String> = unset, reload, acts;
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
    /// How often a database's catalogs are read again (`reads`). The catalogs say which functions
    /// and views need the primary. Weir sees a change at once if a client makes it through Weir.
    catalog_refresh: Duration = "10", reload, acts;
    /// How long running transactions may go on when a SWITCHOVER has begun.
    switchover_drain: Duration = "5", reload, acts;
    /// When `switchover_drain` is over: `refuse` gives up, `close` closes busy connections.
    switchover_overtime: SwitchoverOvertime = "refuse", reload, acts;
    /// Command that stops the old primary of a SWITCHOVER by a fast shutdown. Not set: SWITCHOVER is
    /// refused.
    stop_command: Option<String> = unset, reload, acts;
    /// Command that starts the old primary again when a SWITCHOVER fails after `stop_command`.
    start_command: Option<String> = unset, reload, acts;
    /// Command that starts the old primary as a standby of the new one.
    rejoin_command: Option<String> = unset, reload, acts;
    /// Command that makes sure that the lost primary accepts no writes, with `failover = own`. Weir
    /// relies on its exit status.
    fence_command: Option<String> = unset, reload, acts;
    /// How long one of these commands may take.
    command_timeout: Duration = "30", reload, acts;
    /// Bytes of WAL that a standby may lack and still be promoted by `failover = own`. WAL that the
    /// primary has written since its last answer is not counted. Not set: Weir promotes a standby
    /// only if no commit can be lost, because enough of the nodes that `synchronous_standby_names`
    /// lists answer. With `*` in that list, this is never certain.
    max_loss: Option<u32> [bytes] = unset, reload, acts;
    /// Addresses of etcd, by which several Weirs agree on one primary. Each is `HOST:PORT` or
    /// `https://HOST:PORT`; commas separate them. Name all members of etcd: Weir uses those that
    /// answer.
    etcd: Vec<EtcdApi> = unset, reload, acts;
    /// User of etcd, if it has authentication.
    etcd_user: Option<String> = unset, reload, acts;
    /// Password of `etcd_user`.
    etcd_password: Option<String> = unset, reload, acts, secret;
    /// File with the authorities for `https` to etcd. Empty: those of the system.
    etcd_ca_file: String = "", reload, acts;
    /// File with Weir's own certificate for `https` to etcd.
    etcd_cert_file: String = "", reload, acts;
    /// File with the private key for `etcd_cert_file`.
    etcd_key_file: String = "", reload, acts;
    /// Keys in etcd begin with this and the name of the cluster. All Weirs of a cluster have the same
    /// one.
    etcd_prefix: String = "/weir", reload, acts;
    /// Name of this Weir among those of the cluster. No other one has it. Not set: the name of the
    /// machine, and `listen_port`.
    member: Option<String> = unset, reload, acts;
    /// Addresses that one of the Weirs has at a time: `10.0.0.9/24 dev eth0`. All Weirs of the cluster
    /// have the same ones (docs/high-availability.md). They need CAP_NET_ADMIN, CAP_NET_RAW and `etcd`.
    virtual_address: Vec<VirtualAddress> = unset, reload, acts;
    /// Command that brings an address for clients to this machine, instead of `virtual_address`. It is
    /// run when this Weir is to have the address.
    virtual_address_up_command: Option<String> = unset, reload, acts;
    /// Command that removes the address again. It is run when this Weir is to have the address no
    /// more, and at its start.
    virtual_address_down_command: Option<String> = unset, reload, acts;
}

impl Cluster {
    /// Are the nodes found by Weir (`patroni`, `dns`), so that they may change at any time?
    #[must_use]
    pub fn is_discovered(&self) -> bool {
        !self.patroni.is_empty() || !self.dns.is_empty()
    }

    /// Returns the key from which the nodes come.
    #[must_use]
    pub fn source(&self) -> &'static str {
        match (self.patroni.is_empty(), self.dns.is_empty()) {
            (false, _) => "patroni",
            (true, false) => "dns",
            (true, true) => "nodes",
        }
    }
}
