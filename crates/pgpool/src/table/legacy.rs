//! Replication by statements, and names of versions before 4.3.

use super::{Row, changed, kept, without};

const STATEMENTS: &str = "Weir does not replicate statements: PostgreSQL replicates itself";
const BEFORE: &str = "Pgpool-II 4.3 does not know it any more";

pub(super) const ROWS: &[Row] = &[
    without("replicate_select", "off", STATEMENTS),
    without("insert_lock", "off", STATEMENTS),
    without("lobj_lock_table", "", STATEMENTS),
    without("replication_stop_on_mismatch", "off", STATEMENTS),
    without("failover_if_affected_tuples_mismatch", "off", STATEMENTS),
    without("replication_mode", "off", STATEMENTS),
    without("native_replication_mode", "off", STATEMENTS),
    changed("master_slave_mode", "off", "clusters", "it is now `backend_clustering_mode`"),
    changed("master_slave_sub_mode", "stream", "clusters", "it is now `backend_clustering_mode`"),
    without("parallel_mode", "off", BEFORE),
    without("enable_query_cache", "off", "Weir has no query cache yet"),
    without("pgpool2_hostname", "", BEFORE),
    without("print_timestamp", "on", "Weir's log always has the time"),
    without("print_user", "off", "Weir's log always has the user"),
    without("debug_level", "0", "`verbose` chooses how much Weir logs"),
    without("backend_socket_dir", "/tmp", BEFORE),
    without("ssl_protocols", "", "`client_tls_protocols` chooses the versions"),
    changed(
        "follow_master_command",
        "",
        "rejoin_command",
        "it runs for the old primary only: Weir sets `primary_conninfo` of the standbys itself",
    ),
    without(
        "fail_over_on_backend_error",
        "on",
        "an error of a session causes no failover: Weir asks the node itself",
    ),
    changed(
        "black_function_list",
        "",
        "primary_names",
        "names without schema, no regular expressions; the catalogs find other functions that write",
    ),
    changed(
        "white_function_list",
        "",
        "standby_functions",
        "names without schema, no regular expressions; other functions are judged by the catalogs",
    ),
    kept("black_query_pattern_list", "", "primary_texts"),
    without("white_memqcache_table_list", "", "Weir has no query cache yet"),
    without("black_memqcache_table_list", "", "Weir has no query cache yet"),
];
