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

/// Asks the database of this entry with its TLS.
fn try_entry(pooler: &Pooler, entry: &str) -> Result<String, String> {
    let mut client = RawClient::connect(pooler.port());
    let login = [("user", testkit::Role::APP), ("database", entry)];
    let refused = client.authenticate(&login, testkit::Role::APP_PASSWORD).err();
    refused.map_or_else(|| Ok(client.value(IN_USE)), |error| Err(error.message().to_owned()))
}

/// Certificates, authorities and modes of one database are not those of another one, nor are they its
/// neighbour's after a reload that finds a file broken.
#[test]
fn each_database_has_its_own_tls_core_strict() {
    let (authority, stranger) = (Authority::new("weir test"), Authority::new("somebody else"));
    let postgres = Postgres::start();
    postgres.offer_tls(&authority.server());
    let ca = authority.file();
    postgres.sql("postgres", &format!("ALTER SYSTEM SET ssl_ca_file = '{ca}'"));
    postgres.sql("postgres", "SELECT pg_reload_conf()");
    let own = authority.user("app");
    let (setup, database) = setup(&postgres, "prefer");
    let full = |ca: &Authority| {
        let ca = ca.file();
        format!("dbname={database} server_tls_sslmode=verify-full server_tls_ca_file={ca}")
    };
    let named = format!(
        "dbname={database} server_tls_cert_file={} server_tls_key_file={}",
        own.certificate(),
        own.key()
    );
    let plain = format!("dbname={database} server_tls_sslmode=disable");
    let mut pooler = setup
        .set("query_wait_timeout", 2)
        .set("server_tls_ca_file", stranger.file())
        .database("plain", &plain)
        .database("full", &full(&authority))
        .database("wrong", &full(&stranger))
        .database("named", &named)
        .start();
    let secured = || Ok("true".to_owned());
    assert_eq!(try_entry(&pooler, &database), secured());
    assert_eq!(try_entry(&pooler, "plain"), Ok("false".to_owned()));
    assert_eq!(try_entry(&pooler, "full"), secured());
    assert!(try_entry(&pooler, "wrong").is_err());
    pooler.log_contains("failed: certificate verify failed: ");
    let subject = "SELECT client_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    assert_eq!(pooler.client("named").value(subject), "/CN=app");
    assert!(pooler.client("full").rows(subject)[0][0].is_none(), "the other one's certificate");

    // A server whose settings have changed since is still cancelled by those that it has.
    let mut client = pooler.client("full");
    client.send(testkit::frontend::query("SELECT pg_sleep(100)"));
    support::until_running_at(&postgres, &database, "SELECT pg_sleep(100)");
    let port = postgres.port();
    let entry = |own: &str| format!("host=127.0.0.1 port={port} {own}");
    pooler.reconfigure(|ini| ini.database("full", &entry(&plain)));
    pooler.reload();
    client.cancel(pooler.port());
    let answer = client.read_to_ready();
    let error = answer.iter().find_map(testkit::Message::error).expect("an error");
    assert_eq!(error.code(), "57014");
    assert_eq!(client.value(IN_USE), "false");

    // A broken file leaves all as it was. A new database of broken files is not used without TLS.
    let broken = full(&authority).replace(ca, "/nonexistent/ca");
    pooler.reconfigure(|ini| {
        ini.database("full", &entry(&full(&authority)));
        ini.database("new", &entry(&broken));
    });
    assert!(pooler.try_admin("RELOAD").error.is_some());
    pooler.log_contains("databases.new: server_tls_ca_file: /nonexistent/ca");
    assert_eq!(try_entry(&pooler, "full"), Ok("false".to_owned()));
    assert!(try_entry(&pooler, "new").is_err());
    pooler.log_contains("the files of its server_tls_ keys could not be loaded");
    pooler.reconfigure(|ini| ini.remove_database("new"));
    pooler.reload();
    assert_eq!(try_entry(&pooler, "full"), secured());
}

/// The old pair is used until both halves are set on the console, in all pools.
#[test]
fn a_key_for_servers_and_its_certificate_can_be_set() {
    if !support::only_weir() {
        return;
    }
    let authority = Authority::new("weir test");
    let postgres = Postgres::start();
    postgres.offer_tls(&authority.server());
    let ca = authority.file();
    postgres.sql("postgres", &format!("ALTER SYSTEM SET ssl_ca_file = '{ca}'"));
    postgres.sql("postgres", "SELECT pg_reload_conf()");
    let (old, new) = (authority.user("old"), authority.user("new"));
    let (setup, database) = setup(&postgres, "require");
    let pooler = setup
        .set("server_tls_cert_file", old.certificate())
        .set("server_tls_key_file", old.key())
        .database("other", &format!("dbname={database} server_tls_sslmode=prefer"))
        .start();
    let subject = "SELECT client_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let shown = |entry: &str| pooler.client(entry).value(subject);
    assert_eq!((shown(&database), shown("other")), ("/CN=old".into(), "/CN=old".into()));
    let mut console = pooler.console();
    let half = console.query(&format!("SET server_tls_cert_file = '{}'", new.certificate()));
    assert!(half.error.is_none() && half.notices[0].contains("still using old"), "{half:?}");
    assert_eq!((shown(&database), shown("other")), ("/CN=old".into(), "/CN=old".into()));
    let whole = console.query(&format!("SET server_tls_key_file = '{}'", new.key()));
    assert!(whole.error.is_none() && whole.notices.is_empty(), "{whole:?}");
    assert_eq!((shown(&database), shown("other")), ("/CN=new".into(), "/CN=new".into()));
}
