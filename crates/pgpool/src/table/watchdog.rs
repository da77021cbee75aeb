//! The watchdog: several Pgpool-IIs and their virtual address.

use super::{Row, without};

const BY_ETCD: &str = "several Weirs agree by etcd: set `etcd` of the cluster";
const BY_LEASE: &str = "the lease of a member in etcd takes the place of the heartbeat";
const BY_MAJORITY: &str = "with etcd, a failover always needs a majority of the members";
const ADDRESS: &str =
    "with `etcd`, set `virtual_address`; without, use keepalived or several hosts";
const BY_KERNEL: &str = "Weir itself adds the address and announces it";
const OWN_COMMANDS: &str =
    "`virtual_address_up_command` and `virtual_address_down_command` may run programs of your own";

pub(super) const ROWS: &[Row] = &[
    without("use_watchdog", "off", BY_ETCD),
    without("hostnameN", "", BY_ETCD),
    without("wd_portN", "9000", BY_ETCD),
    without("pgpool_portN", "9999", BY_ETCD),
    without("wd_priority", "1", BY_ETCD),
    without("wd_authkey", "", "etcd has logins and certificates: `etcd_user`, `etcd_cert_file`"),
    without("wd_ipc_socket_dir", "/tmp", BY_ETCD),
    without("wd_listen_address", "", BY_ETCD),
    without("wd_listen_port", "0", BY_ETCD),
    without("wd_hostname", "", BY_ETCD),
    without("other_pgpool_hostnameN", "", BY_ETCD),
    without("other_pgpool_portN", "", BY_ETCD),
    without("other_wd_portN", "", BY_ETCD),
    without("trusted_servers", "", "a Weir that does not reach etcd does not lead"),
    without(
        "trusted_server_command",
        "ping -q -c3 %h",
        "a Weir that does not reach etcd does not lead",
    ),
    without("ping_path", "/bin", "a Weir that does not reach etcd does not lead"),
    without("wd_monitoring_interfaces_list", "", "a Weir that does not reach etcd does not lead"),
    without("delegate_ip", "", ADDRESS),
    without("if_cmd_path", "/sbin", BY_KERNEL),
    without(
        "if_up_cmd",
        "/usr/bin/sudo /sbin/ip addr add $_IP_$/24 dev eth0 label eth0:0",
        BY_KERNEL,
    ),
    without("if_down_cmd", "/usr/bin/sudo /sbin/ip addr del $_IP_$/24 dev eth0", BY_KERNEL),
    without("arping_path", "/usr/sbin", BY_KERNEL),
    without("arping_cmd", "/usr/bin/sudo /usr/sbin/arping -U $_IP_$ -w 1 -I eth0", BY_KERNEL),
    without("wd_escalation_command", "", OWN_COMMANDS),
    without("wd_de_escalation_command", "", OWN_COMMANDS),
    without("clear_memqcache_on_escalation", "on", "Weir has no query cache yet"),
    without("failover_when_quorum_exists", "on", BY_MAJORITY),
    without("failover_require_consensus", "on", BY_MAJORITY),
    without("allow_multiple_failover_requests_from_node", "off", BY_MAJORITY),
    without("enable_consensus_with_half_votes", "off", "half of the members is never enough"),
    without("wd_remove_shutdown_nodes", "off", "a Weir that is stopped leaves the members"),
    without("wd_lost_node_removal_timeout", "0s", "`FAILOVER FORGET` removes a dead member"),
    without("wd_no_show_node_removal_timeout", "0s", "only a Weir that has started is a member"),
    without("wd_lifecheck_method", "heartbeat", BY_LEASE),
    without("wd_interval", "10", BY_LEASE),
    without("heartbeat_hostnameN", "", BY_LEASE),
    without("heartbeat_portN", "9694", BY_LEASE),
    without("heartbeat_deviceN", "", BY_LEASE),
    without("heartbeat_destinationN", "", BY_LEASE),
    without("heartbeat_destination_portN", "", BY_LEASE),
    without("wd_heartbeat_listen_addresses", "", BY_LEASE),
    without("wd_heartbeat_listen_port", "0", BY_LEASE),
    without("wd_heartbeat_port", "9694", BY_LEASE),
    without("wd_heartbeat_keepalive", "2", BY_LEASE),
    without("wd_heartbeat_deadtime", "30", BY_LEASE),
    without("wd_life_point", "3", BY_LEASE),
    without("wd_lifecheck_query", "SELECT 1", BY_LEASE),
    without("wd_lifecheck_dbname", "template1", BY_LEASE),
    without("wd_lifecheck_user", "", BY_LEASE),
    without("wd_lifecheck_password", "", BY_LEASE),
];
