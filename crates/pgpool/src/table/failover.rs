//! Health checks, failover, online recovery.

use super::{Row, changed, kept, without};

const ONE_LOGIN: &str =
    "Weir has one login for each cluster: that of `sr_check_user`, if it is set";
const ALWAYS_ASKED: &str = "Weir asks each node every second, also a node that is down";
const SILENCE: &str = "a node that has not answered for twice `health_timeout` is down";
const NO_RECOVERY: &str =
    "Weir does not rebuild nodes: use pg_basebackup or pg_rewind, then start it";

pub(super) const ROWS: &[Row] = &[
    changed("health_check_periodN", "0", "sample_interval", ALWAYS_ASKED),
    changed("health_check_timeoutN", "20", "health_timeout", SILENCE),
    changed("health_check_userN", "", "user", ONE_LOGIN),
    changed("health_check_passwordN", "", "password_file", ONE_LOGIN),
    changed("health_check_databaseN", "", "dbname", ONE_LOGIN),
    without("health_check_max_retriesN", "0", SILENCE),
    without("health_check_retry_delayN", "1", SILENCE),
    kept("connect_timeoutN", "10000", "server_connect_timeout"),
    without("health_check_test", "off", "it is for tests of Pgpool-II"),
    changed(
        "failover_command",
        "",
        "failover, fence_command",
        "Weir promotes a standby itself, and `fence_command` must only stop the old primary",
    ),
    changed(
        "follow_primary_command",
        "",
        "rejoin_command",
        "it runs for the old primary only: Weir sets `primary_conninfo` of the standbys itself",
    ),
    without("failback_command", "", "SHOW EVENTS, the log and the metrics say that a node is back"),
    without(
        "failover_on_backend_error",
        "on",
        "an error of a session causes no failover: Weir asks the node itself",
    ),
    without(
        "failover_on_backend_shutdown",
        "off",
        "an error of a session causes no failover: Weir asks the node itself",
    ),
    changed(
        "search_primary_node_timeout",
        "5min",
        "failover_wait",
        "clients wait so long for a primary; Weir itself looks for one without an end",
    ),
    changed(
        "detach_false_primary",
        "off",
        "",
        "always on: a second primary is told by its timeline and gets no transactions",
    ),
    changed(
        "auto_failback",
        "off",
        "",
        "always on: a node is used again when it answers; see DETACH",
    ),
    changed("auto_failback_interval", "1min", "", "a node is used again as soon as it answers"),
    without("recovery_user", "", NO_RECOVERY),
    without("recovery_password", "", NO_RECOVERY),
    without("recovery_database", "postgres", NO_RECOVERY),
    without("recovery_1st_stage_command", "", NO_RECOVERY),
    without("recovery_2nd_stage_command", "", NO_RECOVERY),
    without("recovery_timeout", "90", NO_RECOVERY),
    without("client_idle_limit_in_recovery", "0", NO_RECOVERY),
];
