//! `weir.toml` means the same as `pgbouncer.ini`.

use config::{Config, ConsoleColumns, ErrorCodes, Global, Host, PoolMode, Source};

use crate::{ini, toml, toml_mistakes};

const INI: &str = "
[pgbouncer]
listen_addr = 127.0.0.1, ::1
listen_port = 6000
peer_id = 1
pool_mode = transaction
log_stats = 0
tcp_keepalive = 1
query_timeout = 1.5
server_lifetime = 30
unix_socket_mode = 0700
server_reset_query = DISCARD ALL
metrics_port = 9127
max_client_conn = 10000
error_codes = weir
console_columns = weir
[databases]
app = host=10.0.0.1,10.0.0.2 dbname=app_db port=5433 pool_size=7 password='it''s' reserve_pool=2
my.db = host=/run/postgresql
* = host=fallback
[users]
alice = max_user_connections=50 query_timeout=3
[peers]
2 = host=other
";

const TOML: &str = r#"
listen_addr = ["127.0.0.1", "::1"]
listen_port = 6000
peer_id = 1
pool_mode = "Transaction"
log_stats = false
tcp_keepalive = "1"
query_timeout = 1.5
server_lifetime = 30
unix_socket_mode = 0o700
server_reset_query = "DISCARD ALL"

[databases.app]
host = "10.0.0.1,10.0.0.2"
dbname = "app_db"
port = "5433"
pool_size = 7
password = "it's"
reserve_pool = 2

[databases]
"my.db" = { host = ["/run/postgresql"] }
"*" = { host = "fallback" }

[users.alice]
max_user_connections = 0x32
query_timeout = 3.0

[peers.2]
host = "other"
"#;

#[test]
fn both_formats_give_the_same_configuration() {
    let (from_ini, from_toml) = (ini(INI), toml(TOML));
    assert_eq!(Config { source: Source::Toml, ..from_ini }, from_toml);
    assert_eq!(from_toml.databases["my.db"].hosts, [Host::Unix("/run/postgresql".into())]);
}

#[test]
fn an_empty_file_is_all_defaults_with_weirs_own() {
    let auto = Global {
        pool_mode: PoolMode::Auto,
        error_codes: ErrorCodes::Weir,
        console_columns: ConsoleColumns::Weir,
        metrics_port: 9127,
        max_client_conn: 10_000,
        ..Global::default()
    };
    assert_eq!(toml("").global, auto);
    assert_eq!(ini("[pgbouncer]\n").global, Global::default());
    assert_eq!(Global::default().pool_mode, PoolMode::Session);
    assert_eq!((Global::default().metrics_port, Global::default().max_client_conn), (0, 100));
}

#[test]
fn each_mistake() {
    let cases = [
        (
            "pool_mod = \"session\"",
            "pool_mod: unknown parameter: pgbouncer/pool_mod (did you mean \"pool_mode\"?)",
        ),
        (
            "listen_port = true",
            "listen_port: invalid value \"true\" for parameter listen_port: expected whole number",
        ),
        (
            "listen_port = 1.5",
            "listen_port: invalid value \"1.5\" for parameter listen_port: expected whole number",
        ),
        ("logfile = 5", "logfile: invalid value \"5\" for parameter logfile: expected text"),
        (
            "log_stats = \"true\"",
            "log_stats: invalid value \"true\" for parameter log_stats: expected 0 or 1",
        ),
        (
            "query_timeout = -1",
            "query_timeout: invalid value \"-1\" for parameter query_timeout: expected seconds, 0 or more",
        ),
        (
            "admin_users = [1]",
            "admin_users: invalid value \"array\" for parameter admin_users: expected list, separated by commas",
        ),
        ("[database.app]", "unknown section: database (did you mean \"databases\"?)"),
        ("databases = 1", "expected tables [databases.NAME], not 1"),
        ("databases.app = \"host=x\"", "app: expected a table [databases.app], not string"),
        (
            "[databases.app]\nhots = \"x\"",
            "app.hots: unrecognized connection parameter: hots (did you mean \"host\"?)",
        ),
        (
            "[databases.app]\npassword = 5",
            "app.password: invalid value for parameter password: expected text",
        ),
        ("[users.u]\nport = 1", "u.port: unrecognized user parameter: port"),
        ("[databases.pgbouncer]", "pgbouncer: database name \"pgbouncer\" is reserved"),
    ];
    for (text, expected) in cases {
        let line = text.lines().count();
        assert_eq!(toml_mistakes(text), [format!("weir.toml:{line}: {expected}")], "{text}");
    }
}

#[test]
fn all_mistakes_are_told_from_top_to_bottom() {
    let found = toml_mistakes("zebra = 1\nant = 2\n[databases.a]\nport = 0\n");
    let lines: Vec<_> = found.iter().map(|mistake| mistake.split(": ").next().unwrap()).collect();
    assert_eq!(lines, ["weir.toml:1", "weir.toml:2", "weir.toml:4"]);
}

#[test]
fn invalid_toml_is_reported_with_its_line() {
    let found = toml_mistakes("listen_port = 1\nlisten_port = 2\npool_mode = = 3\n");
    assert!(found[0].starts_with("weir.toml:2: "), "{found:?}");
    assert!(found.iter().any(|mistake| mistake.starts_with("weir.toml:3: ")), "{found:?}");
}

#[test]
fn a_text_without_quotes_and_a_key_set_twice_are_named() {
    for (line, expected) in [
        ("pool_mode = transaction", "pool_mode: a text needs quotes: pool_mode = \"…\""),
        ("listen_addr = 127.0.0.1 # mine", "listen_addr: a text needs quotes: listen_addr = \"…\""),
        ("query_timeout = 5min", "query_timeout: a text needs quotes: query_timeout = \"…\""),
        ("listen_port = 2", "listen_port: duplicate key"),
    ] {
        let found = toml_mistakes(&format!("listen_port = 1\n{line}\n"));
        assert_eq!(found[0], format!("weir.toml:2: {expected}"), "{line}");
    }
}

#[test]
fn memory_may_have_a_unit() {
    let config = toml("server_max_memory = \"64MB\"\n[databases.big]\nserver_max_memory = \"5GB\"");
    assert_eq!(config.global.server_max_memory, 64 << 20);
    assert_eq!(config.server_max_memory(&config.database("big").unwrap()), 5 << 30);
    for (bad, expected) in [
        ("\"64mb\"", "a number with one of the units B, kB, MB, GB"),
        ("\"1.3B\"", "whole number"),
        ("\"-1MB\"", "whole number from 0 to 9223372036854775807"),
        ("true", "whole number"),
    ] {
        let mistakes = toml_mistakes(&format!("server_max_memory = {bad}"));
        assert!(mistakes[0].contains(expected), "{bad}: {mistakes:?}");
    }
}
