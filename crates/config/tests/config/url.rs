//! `weir serve postgresql://…`.

use std::time::Duration;

use config::{AccessPolicy, AuthType, Config, Host, PoolMode, SslMode};

fn url(text: &str) -> Config {
    Config::from_url(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn user_and_password_are_the_only_way_in_and_the_way_on() {
    let config = url("postgresql://bob:s%3Acret%40@db.example.com:5433/app");
    let (user, password) = ("bob".to_owned(), "s:cret@".to_owned());
    assert_eq!(config.auth_file.users[&user], password);
    assert_eq!(config.access, AccessPolicy::UrlUser { user, password });
    assert_eq!(config.global.auth_type, AuthType::ScramSha256);
    let app = config.database("app").unwrap();
    assert_eq!((app.dbname(), app.port.of(0)), ("app", 5433));
    assert_eq!(app.hosts, [Host::Tcp("db.example.com".into())]);
    assert_eq!(app.user.as_deref(), Some("bob"));
    assert_eq!(app.password.as_deref(), Some("s:cret@"));
    let other = config.database("other").unwrap();
    assert_eq!(
        (other.dbname(), other.port.of(0), other.user.as_deref()),
        ("other", 5433, Some("bob"))
    );
    assert!(!format!("{config:?}").contains("s:cret"));
}

#[test]
fn the_user_of_the_url_is_an_admin_of_the_console() {
    assert_eq!(url("postgresql://bob:secret@h/app").global.admin_users, ["bob"]);
    let named = url("postgresql://bob:secret@h/app?admin_users=alice");
    assert_eq!(named.global.admin_users, ["alice"]);
    assert!(url("postgresql://h/app").global.admin_users.is_empty());
}

#[test]
fn the_console_is_judged_at_the_database_of_the_url() {
    assert_eq!(url("postgresql://h/app").proof_database(), "app");
    assert_eq!(url("postgresql://h").proof_database(), "postgres");
}

#[test]
fn without_a_user_the_server_proves_the_password() {
    let config = url("postgres://localhost");
    assert_eq!(config.access, AccessPolicy::ProvenByServer);
    assert!(config.databases.is_empty() && config.auth_file.users.is_empty());
    let database = config.database("any").unwrap();
    assert_eq!((database.dbname(), database.port.of(0), &database.user), ("any", 5432, &None));
}

#[test]
fn it_listens_on_the_loopback_address_alone_in_mode_auto() {
    let global = url("postgresql://h/").global;
    assert_eq!(global.listen_addr, ["127.0.0.1"]);
    assert_eq!((global.listen_port, global.unix_socket_dir.as_str()), (6432, ""));
    assert_eq!(global.pool_mode, PoolMode::Auto);
}

#[test]
fn hosts_in_every_form() {
    let tcp = |name: &str| Host::Tcp(name.to_owned());
    let cases = [
        ("postgresql://h/a", vec![tcp("h")]),
        ("postgresql://[::1]:5432/a", vec![tcp("::1")]),
        ("postgresql://a,b:5432/a", vec![tcp("a"), tcp("b")]),
        ("postgresql://%2Frun%2Fpg/a", vec![Host::Unix("/run/pg".into())]),
        ("postgresql:///a?host=/run/pg", vec![Host::Unix("/run/pg".into())]),
        ("postgresql:///a", vec![Host::Unix("/var/run/postgresql".into())]),
        ("postgresql://", vec![Host::Unix("/var/run/postgresql".into())]),
    ];
    for (text, hosts) in cases {
        assert_eq!(url(text).database("a").unwrap().hosts, hosts, "{text}");
    }
}

#[test]
fn parameters_are_libpqs_words_and_weirs_global_keys() {
    let config = url(
        "postgresql://h?user=u&password=p&dbname=d%20b&port=1&application_name=x&sslmode=prefer\
         &connect_timeout=3&pool_mode=session&default_pool_size=5&listen_port=0",
    );
    assert!(matches!(config.access, AccessPolicy::UrlUser { .. }));
    let database = &config.databases["d b"];
    assert_eq!((database.dbname(), database.port.of(0)), ("d b", 1));
    assert_eq!(database.application_name.as_deref(), Some("x"));
    let global = &config.global;
    assert_eq!(global.server_tls_sslmode, SslMode::Prefer);
    assert_eq!(global.server_connect_timeout, Duration::from_secs(3));
    assert_eq!((global.pool_mode, global.default_pool_size), (PoolMode::Session, 5));
    assert_eq!(global.listen_port, 0);
}

#[test]
fn each_mistake() {
    let cases = [
        ("mysql://h", "URL: a URL begins with postgresql:// or postgres://"),
        (
            "postgresql://h?pool_mod=x",
            "URL: unknown parameter: pool_mod (did you mean \"pool_mode\"?)",
        ),
        ("postgresql://h?pool_mode", "URL: a parameter has no \"=\""),
        (
            "postgresql://h?auth_type=trust",
            "URL: auth_type: remove it: the URL itself decides who may log in",
        ),
        ("postgresql://h:0/a", "URL: a.port: invalid port: 0\nURL: *.port: invalid port: 0"),
        ("postgresql://h:x", "URL: *.port: invalid port: x"),
        ("postgresql://a:1,b:2/", "URL: all hosts must have the same port"),
        ("postgresql://[::1/", "URL: \"[\" without \"]\""),
        ("postgresql://[::1]5/", "URL: no \":\" before the port"),
        ("postgresql://:p@h/", "URL: a password without a user"),
        ("postgresql://%4/", "URL: \"%\" without two hexadecimal digits"),
        ("postgresql://h/%ff", "URL: percent-encoded bytes are not UTF-8"),
        ("postgresql://h/%00", "URL: \"%00\" is not allowed"),
        ("postgresql://h/pgbouncer", "URL: pgbouncer: database name \"pgbouncer\" is reserved"),
    ];
    for (text, expected) in cases {
        let error = Config::from_url(text).expect_err(text);
        assert_eq!(error.to_string(), expected, "{text}");
    }
}

#[test]
fn a_user_without_a_password_is_refused_since_nothing_could_prove_it() {
    for text in ["postgresql://bob@h/", "postgresql://bob:@h/", "postgresql://h/?user=bob"] {
        let error = Config::from_url(text).expect_err(text).to_string();
        assert!(error.starts_with("URL: a user without a password"), "{error}");
    }
}

#[test]
fn a_password_that_is_cut_in_two_is_not_repeated() {
    for text in [
        "postgresql://bob:sec/ret@h/db",
        "postgresql://bob:sec?ret@h/db",
        "postgresql://bob:7?ret=1@h/db",
        "postgresql://bob:sec/?ret=1@h/db",
    ] {
        let error = Config::from_url(text).expect_err(text).to_string();
        assert_eq!(error, "URL: \"/\" and \"?\" in a password are written %2F and %3F", "{text}");
    }
    assert_eq!(url("postgresql://h/a@b").databases["a@b"].dbname(), "a@b");
}
