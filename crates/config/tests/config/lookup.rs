//! Values that the pooler looks up at run time, and values that a reload keeps.

use std::time::Duration;

use config::{Config, Global, Host, Key, PoolMode, Spares};

use crate::ini;

const TEXT: &str = "
[pgbouncer]
default_pool_size = 20
pool_mode = session
server_lifetime = 100
server_max_uses = 9
server_max_memory = 8000000000
[databases]
plain =
own = pool_size=7 pool_mode=statement server_lifetime=5 server_max_uses=0 server_max_memory=1
inherits = server_max_uses=-1 server_max_memory=-1
* = host=h
[users]
alice = pool_size=3 pool_mode=transaction
unlimited = pool_size=0
";

#[test]
fn the_user_goes_before_the_database_and_that_before_the_global_key() {
    let config = ini(TEXT);
    let (plain, own) = (config.database("plain").unwrap(), config.database("own").unwrap());
    let cases = [
        (&plain, "bob", 20, PoolMode::Session),
        (&own, "bob", 7, PoolMode::Statement),
        (&plain, "alice", 3, PoolMode::Transaction),
        (&own, "alice", 3, PoolMode::Transaction),
        (&own, "unlimited", 0, PoolMode::Statement),
    ];
    for (database, user, size, mode) in cases {
        let found = (config.pool_size(database, user), config.pool_mode(database, user));
        assert_eq!(found, (size, mode), "{} {user}", database.name);
    }
    assert_eq!(config.server_lifetime(&plain), Duration::from_secs(100));
    assert_eq!(config.server_lifetime(&own), Duration::from_secs(5));
    let inherits = config.database("inherits").unwrap();
    let limits = [&plain, &own, &inherits]
        .map(|of| (config.server_max_uses(of), config.server_max_memory(of)));
    assert_eq!(limits, [(9, 8_000_000_000), (0, 1), (9, 8_000_000_000)]);
}

#[test]
fn spare_servers_of_a_database_and_their_bounds() {
    let text = "[pgbouncer]\nmin_spare_servers = 2\nmax_spare_servers = 6\n[databases]\n\
                plain = host=h\nown = host=h min_spare_servers=0 max_spare_servers=1\n\
                free = host=h min_spare_servers=9 max_spare_servers=0\n\
                inherits = host=h min_spare_servers=-1 max_spare_servers=-1\n";
    let mut config = ini(text);
    let of = |config: &Config, name: &str| {
        let Spares { min, max } = config.spares(&config.database(name).unwrap());
        (min, max)
    };
    let all = ["plain", "own", "free", "inherits"].map(|name| of(&config, name));
    assert_eq!(all, [(2, 6), (0, 1), (9, 0), (2, 6)]);
    // Of all databases, one has too few for the least number.
    for (key, value) in [("min_spare_servers", "7"), ("max_spare_servers", "1")] {
        let why = config.set(key, value).unwrap_err().to_string();
        assert!(why.contains(" is above max_spare_servers = "), "{why}");
        assert_eq!(of(&config, "plain"), (2, 6), "nothing has changed");
    }
    config.set("min_spare_servers", "6").unwrap();
    config.set("max_spare_servers", "0").unwrap();
    config.set("min_spare_servers", "70").unwrap();
    assert_eq!(of(&config, "plain"), (70, 0));
}

#[test]
fn the_weights_of_database_and_user_are_multiplied() {
    let config = ini("[pgbouncer]\n[databases]\nplain = host=h\nheavy = host=h pool_weight=5\n\
         [users]\nalice = pool_weight=3\n");
    let (plain, heavy) = (config.database("plain").unwrap(), config.database("heavy").unwrap());
    let weights = [(&plain, "bob"), (&plain, "alice"), (&heavy, "bob"), (&heavy, "alice")];
    let weights = weights.map(|(database, user)| config.pool_weight(database, user));
    assert_eq!(weights, [1, 3, 5, 15]);
}

#[test]
fn a_user_for_all_is_kept_where_a_reload_would_lose_it() {
    let running = ini("[pgbouncer]\n[databases]\nown = host=h user=first password=p\n\
         gone = host=h user=first\n* = host=h user=second password=q\n");
    let mut config = ini("[pgbouncer]\n[databases]\nown = host=i\nnew = host=h\n* = host=i\n");
    assert_eq!(config.keep_forced_users(&running), ["own", "*"]);
    for (name, user, password) in [("own", "first", "p"), ("any", "second", "q")] {
        let database = config.database(name).unwrap();
        assert_eq!(database.user.as_deref(), Some(user), "{name}");
        assert_eq!(database.password.as_deref(), Some(password), "{name}");
        assert_eq!(config.addresses(&database)[0].0, Host::new("i"), "{name}");
    }
    assert_eq!(config.database("new").unwrap().user, None);

    let mut other = ini("[pgbouncer]\n[databases]\nown = host=h user=third\n* = user=third\n");
    assert_eq!(other.keep_forced_users(&running), [""; 0]);
    assert_eq!(other.database("any").unwrap().user.as_deref(), Some("third"));
}

#[test]
fn the_star_entry_stands_for_unknown_names() {
    let config = ini(TEXT);
    let made = config.database("new").unwrap();
    assert_eq!((made.name.as_str(), made.dbname.as_deref()), ("new", Some("new")));
    let fixed = ini("[pgbouncer]\n[databases]\n* = host=h dbname=one\n");
    assert_eq!(fixed.database("new").unwrap().dbname(), "one");
    assert!(ini("[pgbouncer]\n").database("new").is_none());
}

#[test]
fn a_reload_keeps_boot_only_keys_and_names_them() {
    let running = ini("[pgbouncer]\nlisten_port = 1\nmax_client_conn = 10\n").global;
    let mut fresh = ini("[pgbouncer]\nlisten_port = 2\nmax_client_conn = 20\n").global;
    assert_eq!(fresh.keep_boot_only(&running), ["listen_port"]);
    assert_eq!((fresh.listen_port, fresh.max_client_conn), (1, 20));
}

#[test]
fn a_database_without_a_host_stays_where_the_unix_socket_was_at_the_start() {
    let text = "[databases]\nplain =\n* =\ngiven = host=/new\n[pgbouncer]\nunix_socket_dir = ";
    let running = ini(&format!("{text}/old\n"));
    let mut fresh = ini(&format!("{text}/new\n"));
    assert_eq!(fresh.global.keep_boot_only(&running.global), ["unix_socket_dir"]);
    for (name, folder) in [("plain", "/old"), ("other", "/old"), ("given", "/new")] {
        let database = fresh.database(name).unwrap();
        assert_eq!(fresh.addresses(&database)[0].0, Host::Unix(folder.into()), "{name}");
    }
}

#[test]
fn set_changes_reloadable_keys_and_leaves_boot_only_ones_alone() {
    let mut global = Global::default();
    assert_eq!(global.set("max_client_conn", "5"), Ok(()));
    assert_eq!(global.set("listen_port", "5"), Ok(()));
    assert_eq!((global.max_client_conn, global.listen_port), (5, 6432));
    assert_eq!(
        global.set("nope", "5").unwrap_err().to_string(),
        "unknown parameter: pgbouncer/nope"
    );
    assert!(global.set("max_client_conn", "many").is_err());
}

#[test]
fn keys_without_effect_are_named_when_they_are_set() {
    let config = ini("
[pgbouncer]
pkt_buf = 4096
job_name = x
listen_port = 1
[databases]
a = connect_query='SELECT 1' pool_size=3
[users]
u = query_timeout=4
[peers]
1 = host=h pool_size=2
");
    assert_eq!(
        config.set_in_vain(),
        ["job_name is set, and has no effect: Weir is no Windows service"]
    );
}

#[test]
fn keys_that_run_a_program_or_read_a_file_are_set_in_the_file_only() {
    // PgBouncer's own: SET works as there.
    let pgbouncers = [
        "auth_file",
        "auth_hba_file",
        "auth_ident_file",
        "client_tls_ca_file",
        "client_tls_cert_file",
        "client_tls_key_file",
        "server_tls_ca_file",
        "server_tls_cert_file",
        "server_tls_key_file",
    ];
    for key in Key::all().filter(|key| key.reaches_outside()) {
        let error = Global::default().set(key.name, "/bin/true").err();
        let expected = format!(
            "{} runs a program or reads a file: it is set in the configuration file only",
            key.name
        );
        let expected = Some(expected).filter(|_| !pgbouncers.contains(&key.name));
        assert_eq!(error.map(|error| error.to_string()), expected);
    }
    let unknown = Global::default().set("some_command", "/bin/true").unwrap_err();
    assert_eq!(unknown.to_string(), "unknown parameter: pgbouncer/some_command");
}
