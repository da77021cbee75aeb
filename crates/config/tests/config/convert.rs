//! The output of `weir convert`.

use std::path::Path;

use config::{Comments, to_toml};

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
    let expected = r#"auth_file = ["/etc/pooler/users \"of app\".txt"]
listen_addr = ["127.0.0.1", "::1"]
log_connections = false
max_client_conn = 100
pool_mode = "transaction"
query_timeout = "1.5"
server_idle_timeout = 12345678
server_reset_query = ""
unix_socket_mode = 0o700
error_codes = "pgbouncer"
console_columns = "pgbouncer"
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
    assert_eq!(to_toml(&before, &Comments::default()), expected);
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
            "max_client_conn = 100\npool_mode = \"session\"\nerror_codes = \"pgbouncer\"\n\
             console_columns = \"pgbouncer\"\n",
        ),
        (
            "[pgbouncer]\npool_mode = session\nerror_codes = weir\nconsole_columns = weir\n",
            "max_client_conn = 100\npool_mode = \"session\"\nmetrics_port = 0\n",
        ),
        (
            "[pgbouncer]\npool_mode = auto\nerror_codes = weir\nconsole_columns = weir\n",
            "max_client_conn = 100\nmetrics_port = 0\n",
        ),
        (
            "[pgbouncer]\npool_mode = auto\nerror_codes = weir\nconsole_columns = weir\nmetrics_port = 9127\n\
             max_client_conn = 10000\n",
            "",
        ),
        (
            "[pgbouncer]\nmetrics_port = 9127\n[databases]\na = host=h pool_mode=auto\nb = host=h\n",
            "max_client_conn = 100\npool_mode = \"session\"\nerror_codes = \"pgbouncer\"\n\
             console_columns = \"pgbouncer\"\n\n[databases.a]\nhost = [\"h\"]\npool_mode = \"auto\"\n\n\
             [databases.b]\nhost = [\"h\"]\n",
        ),
    ] {
        let before = ini(before);
        let text = to_toml(&before, &Comments::default());
        assert_eq!(text, expected);
        assert_eq!(toml(&text).global.pool_mode, before.global.pool_mode);
    }
    // An empty weir.toml stays empty.
    assert_eq!(to_toml(&toml(""), &Comments::default()), "");
    let one = "pool_mode = \"session\"\n";
    assert_eq!(to_toml(&toml(one), &Comments::default()), one);
}

const COMMENTED: &str = "\
; The pooler of the shop.

[databases]
; The shop's own, \u{7}beside
;;; the others.
shop = host=a port=5432 reserve_pool=1
all = host=b
* = host=c

[pgbouncer]
# Where clients come in.
listen_port = 6432

; Limits
;max_client_conn = 100
default_pool_size = 10
pool_mode = session
; More of them.
default_pool_size = 20
conffile = other.ini
%include more.ini
; the end
";

/// A file that the other one includes.
const MORE: &str =
    "; Of the other file.\nlog_connections = 0\n[users]\n; Bob.\nbob = pool_size=3\n";

fn more(path: &Path) -> std::io::Result<String> {
    if path == "more.ini" { Ok(MORE.to_owned()) } else { crate::no_file(path) }
}

#[test]
fn comments_stay_with_what_follows_them() {
    let config = config::Config::parse_ini(COMMENTED, "shop.ini", &more).unwrap();
    let comments = Comments::of_ini(COMMENTED, "shop.ini", &more);
    let text = to_toml(&config, &comments);
    let expected = "\
# The pooler of the shop.

# Where clients come in.
listen_port = 6432

# Limits
#max_client_conn = 100
# More of them.
default_pool_size = 20
pool_mode = \"session\"
# Of the other file.
log_connections = false
max_client_conn = 100
error_codes = \"pgbouncer\"
console_columns = \"pgbouncer\"
metrics_port = 0

# The shop's own, ?beside
### the others.
[databases.shop]
host = [\"a\"]
port = 5432
reserve_pool_size = 1

[databases.all]
host = [\"b\"]

[databases.\"*\"]
host = [\"c\"]

# Bob.
[users.bob]
pool_size = 3

# the end
";
    assert_eq!(text, expected);
    let mut after = toml(&text);
    after.global.conffile.clone_from(&config.global.conffile);
    assert_eq!(after.global, config.global);
    assert_eq!((after.databases, after.users), (config.databases, config.users));
    assert_eq!(
        comments.dropped,
        [
            "shop.ini:16: default_pool_size is left out: it is set again at shop.ini:19",
            "shop.ini:20: conffile is left out: it names the file for a reload",
            "shop.ini:21: %include is left out: the keys of more.ini are in the output",
        ]
    );
}

#[test]
fn keys_before_a_second_main_section_are_named() {
    let text = "[pgbouncer]\n; Gone.\npool_mode = session\n[pgbouncer]\nmax_client_conn = 7\n";
    let comments = Comments::of_ini(text, "a.ini", &crate::no_file);
    let expected = "# Gone.\nmax_client_conn = 7\npool_mode = \"session\"\nerror_codes = \
                    \"pgbouncer\"\nconsole_columns = \"pgbouncer\"\nmetrics_port = 0\n";
    assert_eq!(to_toml(&ini(text), &comments), expected);
    let why = "a.ini:3: pool_mode is left out: [pgbouncer] begins again at a.ini:4";
    assert_eq!(comments.dropped, [why]);
}
