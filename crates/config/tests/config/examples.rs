//! Configurations as PgBouncer's documentation and its users write them.

use std::time::Duration;

use config::{AuthType, Host, LoadBalanceHosts, PoolMode};

use crate::ini;

#[test]
fn a_minimal_file() {
    let config = ini("
        [databases]
        template1 = host=localhost dbname=template1 auth_user=someuser

        [pgbouncer]
        pool_mode = session
        listen_port = 6432
        listen_addr = localhost
        auth_type = md5
        auth_file = users.txt
        logfile = pgbouncer.log
        pidfile = pgbouncer.pid
        admin_users = someuser
        stats_users = stat_collector
    ");
    assert_eq!(config.global.listen_addr, ["localhost"]);
    assert_eq!(config.global.listen_port, 6432);
    assert_eq!(config.global.auth_type, AuthType::Md5);
    assert_eq!(config.global.auth_file, Some(vec!["users.txt".to_owned()]));
    assert_eq!(config.global.pidfile, "pgbouncer.pid");
    let database = &config.databases["template1"];
    assert_eq!(database.hosts, [Host::Tcp("localhost".into())]);
    assert_eq!(database.dbname(), "template1");
    assert!(config.set_in_vain().is_empty());
}

#[test]
fn database_entries() {
    let config = ini("
[databases]
; foodb over Unix socket
foodb =
bardb = host=localhost dbname=bazdb
forcedb = host=localhost port=300 user=baz password=foo client_encoding=UNICODE datestyle=ISO connect_query='SELECT 1'
nondefaultdb = pool_size=50 reserve_pool=10
'odd name' = host=/run/postgresql,@abstract load_balance_hosts=disable
sizes = pool_size=-1 min_pool_size=3 max_db_connections=0 server_lifetime=0 pool_mode=Transaction
* = host=testserver

[pgbouncer]
");
    assert_eq!(config.addresses(&config.databases["foodb"])[0].0, Host::Unix("/tmp".into()));
    assert_eq!(config.databases["foodb"].dbname(), "foodb");
    assert_eq!(config.databases["bardb"].dbname(), "bazdb");

    let forced = &config.databases["forcedb"];
    assert_eq!((forced.port.of(0), forced.user.as_deref()), (300, Some("baz")));
    assert_eq!(forced.password.as_deref(), Some("foo"));
    assert_eq!(forced.connect_query.as_deref(), Some("SELECT 1"));
    assert_eq!(forced.client_encoding.as_deref(), Some("UNICODE"));

    let nondefault = &config.databases["nondefaultdb"];
    assert_eq!((nondefault.pool_size, nondefault.reserve_pool_size), (Some(50), Some(10)));

    let odd = &config.databases["odd name"];
    assert_eq!(
        odd.hosts,
        [Host::Unix("/run/postgresql".into()), Host::Abstract("abstract".into())]
    );
    assert_eq!(odd.load_balance_hosts, LoadBalanceHosts::Disable);

    let sizes = &config.databases["sizes"];
    assert_eq!((sizes.pool_size, sizes.min_pool_size), (None, Some(3)));
    assert_eq!((sizes.max_db_connections, sizes.server_lifetime), (None, None));
    assert_eq!(sizes.pool_mode, Some(PoolMode::Transaction));

    assert!(!config.databases.contains_key("*"));
    assert_eq!(config.fallback.unwrap().hosts, [Host::Tcp("testserver".into())]);
}

#[test]
fn users_and_peers() {
    let config = ini("
[users]
user1 = pool_mode=transaction max_user_connections=10 query_timeout=5 transaction_timeout=0

[peers]
1 = host=host1.example.com
2 = host=/tmp/pgbouncer-2 port=5555 pool_size=3

[pgbouncer]
peer_id = 3
");
    let user = &config.users["user1"];
    assert_eq!(user.pool_mode, Some(PoolMode::Transaction));
    assert_eq!(user.max_user_connections, Some(10));
    assert_eq!(user.query_timeout, Some(Duration::from_secs(5)));
    assert_eq!(user.transaction_timeout, None);
    assert_eq!((config.peers[&1].port, config.peers[&2].port), (6432, 5555));
    assert_eq!(config.peers[&2].hosts, [Host::Unix("/tmp/pgbouncer-2".into())]);
    assert_eq!(config.global.peer_id, 3);
}

#[test]
fn values_are_the_rest_of_the_line() {
    let config = ini("
[pgbouncer]
; a comment
   # another
server_reset_query = DISCARD ALL; -- 'quotes' # stay
server_check_query =
logfile=/var/log/a b.log\r
  query_timeout   =   2.5  \t
[databases] app = host=a
");
    assert_eq!(config.global.server_reset_query, "DISCARD ALL; -- 'quotes' # stay");
    assert_eq!(config.global.server_check_query, "");
    assert_eq!(config.global.logfile, "/var/log/a b.log");
    assert_eq!(config.global.query_timeout, Duration::from_millis(2500));
    assert!(config.databases.contains_key("app"));
}

#[test]
fn comments_behind_entries_are_ignored_and_told() {
    let config = ini("
[databases]
* = host=10.0.0.1 port=5433 ; the old one = 10.0.0.2
a = host=10.0.0.3 port=5434; pool_size=3
b = host=10.0.0.4 password=x;y
[users]
u = pool_mode=session # for now
[pgbouncer]
");
    let fallback = config.fallback.as_ref().expect("an entry *");
    assert_eq!(fallback.port.to_string(), "5433");
    let (a, b) = (&config.databases["a"], &config.databases["b"]);
    assert_eq!((a.port.to_string().as_str(), a.pool_size), ("5434", Some(3)));
    assert_eq!(b.password.as_deref(), Some("x;y"));
    assert_eq!(config.users["u"].pool_mode, Some(PoolMode::Session));
    let warnings: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
    let warning = |place: &str, what: &str| {
        format!(
            "test.ini:{place}: the text behind ; in the {what} is taken for a comment; put comments \
             on lines of their own"
        )
    };
    let expected = [
        warning("3: *", "connection string"),
        warning("4: a", "connection string"),
        warning("7: u", "user settings"),
    ];
    assert_eq!(warnings, expected);
}

#[test]
fn the_last_definition_counts_and_a_repeated_header_resets() {
    let config = ini("
[pgbouncer]
listen_port = 1
listen_port = 2
[databases]
a = host=first
a = host=second
[pgbouncer]
max_client_conn = 5
");
    assert_eq!(config.global.listen_port, 6432);
    assert_eq!(config.global.max_client_conn, 5);
    assert_eq!(config.databases["a"].hosts, [Host::Tcp("second".into())]);
    let warnings: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "test.ini:4: listen_port: set again: the value of line 3 has no effect",
            "test.ini:7: a: database defined again: the last definition counts",
            "test.ini:8: [pgbouncer] again: the keys set before it return to their defaults",
        ]
    );
}
