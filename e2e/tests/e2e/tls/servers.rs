//! TLS to PostgreSQL: the certificates that each `server_tls_sslmode` accepts.

use crate::support;
use testkit::{Authority, Pooler, Postgres, RawClient, Setup, Wanted};

const IN_USE: &str = "SELECT ssl::text FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

fn setup(postgres: &Postgres, sslmode: &str) -> (Setup, String) {
    let database = postgres.database();
    let setup = Pooler::before(postgres)
        .set("pool_mode", "transaction")
        .set("server_tls_sslmode", sslmode)
        .set("server_login_retry", 0)
        .database(&database, "");
    (setup, database)
}

#[track_caller]
fn served(pooler: &Pooler, database: &str) -> String {
    pooler.client(database).value(IN_USE)
}

#[test]
fn each_mode_takes_what_it_should() {
    let (authority, stranger) = (Authority::new("weir test"), Authority::new("somebody else"));
    let postgres = Postgres::start();
    postgres.offer_tls(&authority.server());
    for (mode, ca, secured) in [
        ("disable", None, "false"),
        ("prefer", None, "true"),
        ("require", None, "true"),
        // The name is checked only with verify-full, and the authority from verify-ca on.
        ("require", Some(&stranger), "true"),
        ("verify-ca", Some(&authority), "true"),
        ("verify-full", Some(&authority), "true"),
    ] {
        let (setup, database) = setup(&postgres, mode);
        let setup = match ca {
            Some(ca) => setup.set("server_tls_ca_file", ca.file()),
            None => setup,
        };
        let pooler = setup.start();
        assert_eq!(served(&pooler, &database), secured, "{mode}");
    }
}

#[test]
fn a_changed_server_tls_sslmode_replaces_servers() {
    let authority = Authority::new("weir test");
    let postgres = Postgres::start();
    postgres.offer_tls(&authority.server());
    let (setup, database) = setup(&postgres, "disable");
    let mut pooler = setup.start();
    let mut client = pooler.client(&database);
    assert_eq!(client.value(IN_USE), "false");
    pooler.reconfigure(|ini| ini.set("server_tls_sslmode", "require"));
    pooler.reload();
    assert_eq!(client.value(IN_USE), "true");
    let mut console = pooler.console();
    assert_eq!(console.query("SET server_tls_sslmode = disable").tags.len(), 1);
    assert_eq!(client.value(IN_USE), "false");
}

#[test]
fn a_server_with_a_wrong_certificate_is_not_used_core_strict() {
    let (authority, stranger) = (Authority::new("weir test"), Authority::new("somebody else"));
    let wrong_name =
        authority.issue(&Wanted { name: "other", hosts: &["other.example"], expired: false });
    let expired =
        authority.issue(&Wanted { name: "localhost", hosts: &["127.0.0.1"], expired: true });
    let postgres = Postgres::start();
    for (own, mode, ca) in [
        (&wrong_name, "verify-full", &authority),
        (&expired, "verify-ca", &authority),
        (&authority.server(), "verify-ca", &stranger),
    ] {
        postgres.offer_tls(own);
        let (setup, database) = setup(&postgres, mode);
        let pooler =
            setup.set("server_tls_ca_file", ca.file()).set("query_wait_timeout", 2).start();
        let mut client = RawClient::connect(pooler.port());
        let refused = client.authenticate(
            &[("user", testkit::Role::APP), ("database", &database)],
            testkit::Role::APP_PASSWORD,
        );
        assert!(refused.is_err(), "{mode} was satisfied");
        pooler.log_contains("failed: certificate verify failed: ");
    }
    // verify-ca does not check the name.
    postgres.offer_tls(&wrong_name);
    let (setup, database) = setup(&postgres, "verify-ca");
    let pooler = setup.set("server_tls_ca_file", authority.file()).start();
    assert_eq!(served(&pooler, &database), "true");
}

#[test]
fn a_server_without_tls_is_used_only_if_tls_is_not_required_core_strict() {
    let postgres = Postgres::shared();
    let (prefer, database) = setup(postgres, "prefer");
    assert_eq!(served(&prefer.start(), &database), "false");
    let (require, database) = setup(postgres, "require");
    let pooler = require.set("query_wait_timeout", 2).start();
    let mut client = RawClient::connect(pooler.port());
    let refused = client.authenticate(
        &[("user", testkit::Role::APP), ("database", &database)],
        testkit::Role::APP_PASSWORD,
    );
    assert!(refused.is_err());
    pooler.log_contains("server does not support TLS");
}

#[test]
fn the_pooler_shows_its_certificate_to_a_server_that_asks() {
    let authority = Authority::new("weir test");
    let postgres = Postgres::start();
    postgres.offer_tls(&authority.server());
    let ca = authority.file();
    postgres.sql("postgres", &format!("ALTER SYSTEM SET ssl_ca_file = '{ca}'"));
    postgres.sql("postgres", "SELECT pg_reload_conf()");
    let own = authority.user("app");
    let (setup, database) = setup(&postgres, "require");
    let pooler = setup
        .set("server_tls_cert_file", own.certificate())
        .set("server_tls_key_file", own.key())
        .start();
    let subject = "SELECT client_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    assert_eq!(pooler.client(&database).value(subject), "/CN=app");
}

#[test]
fn secured_servers_go_from_worker_to_worker_with_their_keys() {
    let authority = Authority::new("weir test");
    let postgres = Postgres::start();
    postgres.offer_tls(&authority.server());
    let (setup, database) = setup(&postgres, "require");
    let pooler = setup.workers(2).set("default_pool_size", 3).start();
    std::thread::scope(|scope| {
        for client in 0..12 {
            let (pooler, database) = (&pooler, &database);
            scope.spawn(move || {
                let mut own = pooler.client(database);
                for query in 0..200 {
                    let expected = format!("{client}-{query}");
                    assert_eq!(own.value(&format!("SELECT '{expected}'")), expected);
                }
            });
        }
    });
    assert!(postgres.backends(&database).len() <= 3);
}

#[test]
fn a_cancel_request_reaches_a_secured_server() {
    let authority = Authority::new("weir test");
    let postgres = Postgres::start();
    postgres.offer_tls(&authority.server());
    let (setup, database) = setup(&postgres, "require");
    let pooler = setup.start();
    let mut client = pooler.client(&database);
    client.send(testkit::frontend::query("SELECT pg_sleep(100)"));
    support::until_running_at(&postgres, &database, "SELECT pg_sleep(100)");
    client.cancel(pooler.port());
    let answer = client.read_to_ready();
    let error = answer.iter().find_map(testkit::Message::error).expect("an error");
    assert_eq!(error.code(), "57014");
}
