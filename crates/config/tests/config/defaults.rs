//! The hundred keys of PgBouncer 1.25 with their defaults, written a second time by hand, so that a
//! slip in the table is noticed.

use config::{Config, Key, Scope, show};

/// Key, the value `SHOW CONFIG` prints for the default (`None` is NULL), and whether a reload can
/// change it.
#[rustfmt::skip]
const PGBOUNCER: [(&str, Option<&str>, bool); 100] = [
    ("admin_users", Some(""), true),
    ("application_name_add_host", Some("0"), true),
    ("auth_dbname", None, true),
    ("auth_file", None, true),
    ("auth_hba_file", Some(""), true),
    ("auth_ident_file", None, true),
    ("auth_ldap_options", None, true),
    ("auth_query", Some("SELECT rolname, CASE WHEN rolvaliduntil < pg_catalog.now() THEN NULL ELSE rolpassword END FROM pg_catalog.pg_authid WHERE rolname=$1 AND rolcanlogin"), true),
    ("auth_type", Some("md5"), true),
    ("auth_user", None, true),
    ("autodb_idle_timeout", Some("3600"), true),
    ("cancel_wait_timeout", Some("10"), true),
    ("client_idle_timeout", Some("0"), true),
    ("client_login_timeout", Some("60"), true),
    ("client_tls13_ciphers", None, true),
    ("client_tls_ca_file", Some(""), true),
    ("client_tls_cert_file", Some(""), true),
    ("client_tls_ciphers", Some("default"), true),
    ("client_tls_dheparams", Some("auto"), true),
    ("client_tls_ecdhcurve", Some("auto"), true),
    ("client_tls_key_file", Some(""), true),
    ("client_tls_protocols", Some("secure"), true),
    ("client_tls_sslmode", Some("disable"), true),
    ("conffile", None, true),
    ("default_pool_size", Some("20"), true),
    ("disable_pqexec", Some("0"), false),
    ("dns_max_ttl", Some("15"), true),
    ("dns_nxdomain_ttl", Some("15"), true),
    ("dns_zone_check_period", Some("0"), true),
    ("idle_transaction_timeout", Some("0"), true),
    ("ignore_startup_parameters", Some(""), true),
    ("job_name", Some("pgbouncer"), false),
    ("listen_addr", Some(""), false),
    ("listen_backlog", Some("128"), false),
    ("listen_port", Some("6432"), false),
    ("log_connections", Some("1"), true),
    ("log_disconnections", Some("1"), true),
    ("log_pooler_errors", Some("1"), true),
    ("log_stats", Some("1"), true),
    ("logfile", Some(""), true),
    ("login_notify_message", Some(""), true),
    ("max_client_conn", Some("100"), true),
    ("max_db_client_connections", Some("0"), true),
    ("max_db_connections", Some("0"), true),
    ("max_packet_size", Some("2147483647"), true),
    ("max_prepared_statements", Some("200"), true),
    ("max_user_client_connections", Some("0"), true),
    ("max_user_connections", Some("0"), true),
    ("min_pool_size", Some("0"), true),
    ("peer_id", Some("0"), true),
    ("pidfile", Some(""), false),
    ("pkt_buf", Some("4096"), false),
    ("pool_mode", Some("session"), true),
    ("pool_idle_timeout", Some("0"), true),
    ("query_timeout", Some("0"), true),
    ("query_wait_notify", Some("5"), true),
    ("query_wait_timeout", Some("120"), true),
    ("reserve_pool_size", Some("0"), true),
    ("reserve_pool_timeout", Some("5"), true),
    ("resolv_conf", Some(""), false),
    ("sbuf_loopcnt", Some("5"), true),
    ("scram_iterations", Some("4096"), true),
    ("server_check_delay", Some("30"), true),
    ("server_check_query", Some("<empty>"), true),
    ("server_connect_timeout", Some("15"), true),
    ("server_fast_close", Some("0"), true),
    ("server_idle_timeout", Some("600"), true),
    ("server_lifetime", Some("3600"), true),
    ("server_login_retry", Some("15"), true),
    ("server_reset_query", Some("DISCARD ALL"), true),
    ("server_reset_query_always", Some("0"), true),
    ("server_round_robin", Some("0"), true),
    ("server_tls13_ciphers", None, true),
    ("server_tls_ca_file", Some(""), true),
    ("server_tls_cert_file", Some(""), true),
    ("server_tls_ciphers", Some("default"), true),
    ("server_tls_key_file", Some(""), true),
    ("server_tls_protocols", Some("secure"), true),
    ("server_tls_sslmode", Some("prefer"), true),
    ("so_reuseport", Some("0"), false),
    ("stats_period", Some("60"), true),
    ("stats_users", Some(""), true),
    ("suspend_timeout", Some("10"), true),
    ("syslog", Some("0"), true),
    ("syslog_facility", Some("daemon"), true),
    ("syslog_ident", Some("pgbouncer"), true),
    ("tcp_defer_accept", Some("1"), true),
    ("tcp_keepalive", Some("1"), true),
    ("tcp_keepcnt", Some("0"), true),
    ("tcp_keepidle", Some("0"), true),
    ("tcp_keepintvl", Some("0"), true),
    ("tcp_socket_buffer", Some("0"), true),
    ("tcp_user_timeout", Some("0"), true),
    ("track_extra_parameters", Some("IntervalStyle"), false),
    ("transaction_timeout", Some("0"), true),
    ("unix_socket_dir", Some("/tmp"), false),
    ("unix_socket_group", Some(""), false),
    ("unix_socket_mode", Some("511"), false),
    ("user", None, false),
    ("verbose", Some("0"), true),
];

#[test]
fn show_config_has_pgbouncers_keys_defaults_and_order() {
    let rows = show(&Config::default());
    for (row, (key, value, changeable)) in rows.iter().zip(PGBOUNCER) {
        assert_eq!((row.key, row.value.as_deref(), row.changeable), (key, value, changeable));
    }
}

#[test]
fn the_other_keys_say_that_they_are_not_those_of_pgbouncer_1_25() {
    for key in Key::all().filter(|key| key.scope == Scope::Global).skip(PGBOUNCER.len()) {
        let says = ["Weir's own.", "PgBouncer's after 1.25."];
        assert!(
            says.iter().any(|words| key.help.ends_with(words)),
            "{}: end its comment in crates/config/src/table/global.rs with one of {says:?}",
            key.name
        );
    }
}

#[test]
fn the_default_column_is_the_text_of_the_documentation() {
    let rows = show(&Config::default());
    let default = |key| rows.iter().find(|row| row.key == key).and_then(|row| row.default);
    assert_eq!(default("unix_socket_mode"), Some("0777"));
    assert_eq!(default("listen_addr"), Some(""));
    assert_eq!(default("verbose"), None);
    assert_eq!(default("user"), None);
}

#[test]
fn the_default_column_is_that_of_the_source() {
    let url = Config::from_url("postgresql://h/").expect("a URL");
    let cases = [
        (crate::ini("[pgbouncer]\npool_mode = statement\n"), ["session", "", "/tmp"]),
        (crate::toml("pool_mode = \"statement\""), ["auto", "", "/tmp"]),
        (url, ["auto", "127.0.0.1", ""]),
    ];
    for (config, expected) in cases {
        let rows = show(&config);
        let default = |key| rows.iter().find(|row| row.key == key).and_then(|row| row.default);
        let found = ["pool_mode", "listen_addr", "unix_socket_dir"].map(default);
        assert_eq!(found, expected.map(Some), "{:?}", config.source);
    }
}

#[test]
fn values_are_printed_as_pgbouncer_prints_them() {
    let config = crate::ini(
        "[pgbouncer]\nquery_timeout = 1.50\nunix_socket_mode = 0770\nlog_stats = 0\n\
         admin_users = a,b\nauth_type = TRUST\nserver_lifetime = 1e7\n\
         auth_ldap_options = ldapbindpasswd=hush\n",
    );
    let rows = show(&config);
    let value = |key| rows.iter().find(|row| row.key == key).and_then(|row| row.value.clone());
    assert_eq!(value("query_timeout").as_deref(), Some("1.5"));
    assert_eq!(value("unix_socket_mode").as_deref(), Some("504"));
    assert_eq!(value("log_stats").as_deref(), Some("0"));
    assert_eq!(value("admin_users").as_deref(), Some("a, b"));
    assert_eq!(value("auth_type").as_deref(), Some("trust"));
    assert_eq!(value("server_lifetime").as_deref(), Some("1e+07"));
    assert_eq!(value("auth_ldap_options").as_deref(), Some("(secret)"));
}
