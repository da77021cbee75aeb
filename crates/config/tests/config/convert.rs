//! The output of `weir convert`.

use config::to_toml;

use crate::{ini, toml};

#[test]
fn an_ini_file_as_the_toml_file_that_means_the_same() {
    let before = ini(r#"
[pgbouncer]
listen_addr = 127.0.0.1, ::1
unix_socket_mode = 0700
pool_mode = transaction
query_timeout = 1.5
server_idle_timeout = 12345678
log_connections = 0
auth_file = /etc/pooler/users "of app".txt
server_reset_query =
conffile = /etc/pooler/pooler.ini
[databases]
app = host=a,/run/pg port=5433 dbname=app_db password='it''s \' pool_size=0
'two words' = connect_query='SELECT ''x'''
* = host=h
[users]
alice = pool_size=3 pool_mode=session
[peers]
1 = host=/run/other
"#);
    let expected = r#"auth_file = "/etc/pooler/users \"of app\".txt"
listen_addr = ["127.0.0.1", "::1"]
log_connections = false
pool_mode = "transaction"
query_timeout = "1.5"
server_idle_timeout = 12345678
server_reset_query = ""
unix_socket_mode = 0o700
error_codes = "pgbouncer"
metrics_port = 0

[databases.app]
dbname = "app_db"
host = ["a", "/run/pg"]
port = 5433
password = "it's \\"
pool_size = 0

[databases."two words"]
connect_query = "SELECT 'x'"

[databases."*"]
host = ["h"]

[users.alice]
pool_mode = "session"
pool_size = 3

[peers.1]
host = ["/run/other"]
"#;
    assert_eq!(to_toml(&before), expected);
    let after = toml(expected);
    let mut global = before.global.clone();
    global.conffile = None;
    assert_eq!(after.global, global);
    assert_eq!(after.databases, before.databases);
    assert_eq!(after.fallback, before.fallback);
    assert_eq!(after.users, before.users);
    assert_eq!(after.peers, before.peers);
}

#[test]
fn unset_keys_of_an_ini_file_keep_their_meaning() {
    for (before, expected) in [
        (
            "[pgbouncer]\nmetrics_port = 9127\n",
            "pool_mode = \"session\"\nerror_codes = \"pgbouncer\"\n",
        ),
        (
            "[pgbouncer]\npool_mode = session\nerror_codes = weir\n",
            "pool_mode = \"session\"\nmetrics_port = 0\n",
        ),
        ("[pgbouncer]\npool_mode = auto\nerror_codes = weir\n", "metrics_port = 0\n"),
        ("[pgbouncer]\npool_mode = auto\nerror_codes = weir\nmetrics_port = 9127\n", ""),
        (
            "[pgbouncer]\nmetrics_port = 9127\n[databases]\na = host=h pool_mode=auto\nb = host=h\n",
            "pool_mode = \"session\"\nerror_codes = \"pgbouncer\"\n\n[databases.a]\nhost = [\"h\"]\npool_mode = \"auto\"\n\n\
             [databases.b]\nhost = [\"h\"]\n",
        ),
    ] {
        let before = ini(before);
        let text = to_toml(&before);
        assert_eq!(text, expected);
        assert_eq!(toml(&text).global.pool_mode, before.global.pool_mode);
    }
    // An empty weir.toml stays empty.
    assert_eq!(to_toml(&toml("")), "");
    assert_eq!(to_toml(&toml("pool_mode = \"session\"")), "pool_mode = \"session\"\n");
}
