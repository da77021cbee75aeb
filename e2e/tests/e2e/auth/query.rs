//! Users that only PostgreSQL knows: `auth_query`.

use super::{CLIENT_AUTH, log_in};
use crate::support;
use std::time::Duration;
use testkit::{Pooler, Postgres, RawClient, Role, ServerAuth, Setup, Verifier, eventually};

const PATIENCE: Duration = Duration::from_secs(20);

/// Returns a pooler without users of its own. It queries PostgreSQL as a role that may call
/// `lookup`.
pub(crate) fn setup(auth_type: &str) -> (Setup, String) {
    let postgres = Postgres::shared();
    let asker = postgres.role(ServerAuth::Scram);
    let (setup, database) = support::setup("transaction");
    postgres.sql(
        &database,
        &format!(
            "CREATE FUNCTION public.lookup(who text) RETURNS TABLE (name text, secret text) \
             LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog AS $$ \
             SELECT rolname::text, CASE WHEN rolvaliduntil < now() THEN NULL ELSE rolpassword END \
             FROM pg_authid WHERE rolname = $1 AND rolcanlogin $$; \
             GRANT EXECUTE ON FUNCTION public.lookup TO {}",
            asker.name
        ),
    );
    let setup = setup
        .set("auth_type", auth_type)
        .set("auth_user", &asker.name)
        .set("auth_query", "SELECT name, secret FROM public.lookup($1)")
        .secret(&asker.name, &asker.password);
    (setup, database)
}

#[test]
fn a_user_that_only_postgresql_knows_logs_in_to_pooler_and_server_core() {
    let postgres = Postgres::shared();
    for (auth_type, _) in CLIENT_AUTH {
        let (setup, database) = setup(auth_type);
        let pooler = setup.start();
        let md5 =
            [ServerAuth::Md5, ServerAuth::Trust].map(|by| postgres.role_with(by, Verifier::Md5));
        let scram = [ServerAuth::Scram, ServerAuth::Trust].map(|by| postgres.role(by));
        for (role, server) in md5.iter().zip([true, false]).chain(scram.iter().zip([true, false])) {
            let is_md5 = role.verifier.starts_with("md5");
            // A verifier works only for its own kind of exchange.
            let client = match auth_type {
                "scram-sha-256" => !is_md5,
                _ => true,
            };
            let keys = matches!(auth_type, "md5" | "scram-sha-256");
            if !client || (server && !is_md5 && !keys) {
                continue;
            }
            let (mut client, _) = log_in(&pooler, role, &database);
            assert_eq!(client.value("SELECT current_user"), role.name, "{auth_type}");
        }
    }
}

/// Neither client shows a key, so the verifier makes no proof for PostgreSQL. A wrong proof would be a
/// failed login in its log, and tools that lock users count those.
#[test]
fn a_verifier_makes_no_login_fail_in_postgresql() {
    let postgres = Postgres::shared();
    for auth_type in ["trust", "plain"] {
        let (setup, database) = setup(auth_type);
        let pooler = setup.start();
        let role = postgres.role(ServerAuth::Scram);
        let refused = pooler.login(&role.name, &database, &role.password);
        let error = refused.expect_err("there is nothing to log in with");
        assert_eq!(error.message(), "server login failed: wrong password type", "{auth_type}");
        assert_eq!(error.code(), "08P01");
        let failure = format!("password authentication failed for user \"{}\"", role.name);
        assert!(!postgres.log().contains(&failure), "{auth_type}");
        // The log would have it.
        let wrong = RawClient::login(postgres.port(), &role.name, &database, "wrong");
        assert!(wrong.is_err() && postgres.log().contains(&failure));
    }
}

#[test]
fn a_password_changed_in_postgresql_counts_at_the_next_login() {
    let postgres = Postgres::shared();
    let (setup, database) = setup("md5");
    let pooler = setup.start();
    let mut role = postgres.role(ServerAuth::Scram);
    log_in(&pooler, &role, &database);
    postgres.sql("postgres", &format!("ALTER ROLE {} PASSWORD 'changed'", role.name));
    assert!(pooler.login(&role.name, &database, &role.password).is_err());
    role.password = "changed".into();
    let (mut client, _) = log_in(&pooler, &role, &database);
    assert_eq!(client.value("SELECT current_user"), role.name);
}

#[test]
fn expired_passwords_and_unknown_users_are_refused_strict() {
    let postgres = Postgres::shared();
    let (setup, database) = setup("md5");
    let pooler = setup.start();
    let role = postgres.role(ServerAuth::Md5);
    postgres.sql("postgres", &format!("ALTER ROLE {} VALID UNTIL '2001-01-01'", role.name));
    let error = pooler.login(&role.name, &database, &role.password).expect_err("expired");
    assert_eq!(error.message(), "password authentication failed");
    let error = pooler.login("nobody", &database, "x").expect_err("unknown");
    assert_eq!(error.summary(), ("FATAL", "08P01", "no such user"));
    let name = "robert'); DROP TABLE students;--";
    let error = pooler.login(name, &database, "x").expect_err("unknown");
    assert_eq!(error.summary(), ("FATAL", "08P01", "no such user"));
}

#[test]
fn invented_user_names_leave_no_pools_behind_core() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let (setup, database) = setup("md5");
    let host = format!("host=127.0.0.1 port={}", postgres.port());
    let setup = setup.database("*", &host).set("server_login_retry", 1);
    let mut pooler = setup.start();
    let pools = |pooler: &Pooler| {
        let names = pooler.admin("SHOW POOLS").column("database").join(" ");
        names.replace("pgbouncer", "").trim().to_owned()
    };
    let invent = |pooler: &Pooler, n: u32| {
        let error = pooler.login("nobody", &format!("invented{n}"), "x").expect_err("unknown");
        error.message().to_owned()
    };
    for n in 0..10 {
        assert_eq!(invent(&pooler, n), format!("database \"invented{n}\" does not exist"));
    }
    eventually("they are forgotten", PATIENCE, || pools(&pooler).is_empty().then_some(()));

    // If all names lead to the same database, a single pool runs the queries.
    pooler.reconfigure(|ini| ini.database("*", &format!("{host} dbname={database}")));
    pooler.reload();
    for n in 0..10 {
        assert_eq!(invent(&pooler, n), "no such user");
    }
    assert_eq!(pools(&pooler), "*");
    let role = postgres.role(ServerAuth::Md5);
    let (mut client, _) = log_in(&pooler, &role, "invented");
    assert_eq!(client.value("SELECT current_database()"), database);
}

#[test]
fn psql_logs_in_and_parallel_logins_share_few_servers() {
    let postgres = Postgres::shared();
    let (setup, database) = setup("scram-sha-256");
    let pooler = setup.set("default_pool_size", 2).start();
    let role = postgres.role(ServerAuth::Scram);
    let mut psql = Postgres::client_program("psql", pooler.port(), &database);
    psql.env("PGUSER", &role.name).env("PGPASSWORD", &role.password);
    let text = support::run(psql.args(["-XAtc", "SELECT current_user"]));
    assert_eq!(text.trim(), role.name);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let (mut client, _) = log_in(&pooler, &role, &database);
                assert_eq!(client.value("SELECT current_user"), role.name);
            });
        }
    });
    assert!(postgres.backends(&database).len() <= 4);
}

#[test]
fn a_clients_settings_do_not_reach_auth_query() {
    let postgres = Postgres::shared();
    let (setup, database) = setup("md5");
    let role = postgres.role(ServerAuth::Md5);
    postgres.sql(
        &database,
        "CREATE TABLE public.seen (zone text); GRANT INSERT ON public.seen TO public; \
         CREATE FUNCTION public.spy(who text) RETURNS TABLE (name text, secret text) \
         LANGUAGE sql AS $$ INSERT INTO public.seen SELECT current_setting('timezone'); \
         SELECT name, secret FROM public.lookup($1) $$",
    );
    let pooler = setup.set("auth_query", "SELECT name, secret FROM public.spy($1)").start();
    let mut client = RawClient::connect(pooler.port());
    let startup = [("user", &*role.name), ("database", &*database), ("timezone", "Asia/Tokyo")];
    client.authenticate(&startup, &role.password).expect("the right password");
    assert_eq!(client.value("SHOW timezone"), "Asia/Tokyo");
    let seen = postgres.sql(&database, "SELECT count(*) FROM seen WHERE zone = 'Asia/Tokyo'");
    assert_eq!(seen, [[Some("0".to_owned())]]);
    let all = postgres.sql(&database, "SELECT count(*) > 0 FROM seen");
    assert_eq!(all, [[Some("t".to_owned())]]);
}

#[test]
fn a_query_that_fails_is_a_mistake_in_the_configuration() {
    let (setup, database) = setup("md5");
    let pooler = setup.set("auth_query", "SELECT 1 / 0, $1").start();
    let error = pooler.login("nobody", &database, "x").expect_err("no answer");
    assert_eq!(error.summary(), ("FATAL", "08P01", "bouncer config error"));
    pooler.log_contains("error response from auth_query");
}

/// A typo in this name locks out all users that are not in `auth_file`. Only the log tells the
/// reason.
#[test]
fn a_database_to_ask_that_is_not_there_is_named_in_the_log() {
    // PgBouncer 1.18 does not support `auth_dbname`.
    if !support::only_weir() {
        return;
    }
    let (setup, database) = setup("md5");
    let pooler = setup.set("auth_dbname", "nowhere").start();
    let error = pooler.login("somebody", &database, "x").expect_err("no answer");
    assert_eq!(error.summary(), ("FATAL", "08P01", "bouncer config error"));
    pooler.log_contains("authentication database \"nowhere\" is not configured.");
}

#[test]
fn another_database_may_be_asked() {
    // PgBouncer 1.18 does not support `auth_dbname` of a database.
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let (setup, asked) = setup("md5");
    let database = postgres.database();
    let role = postgres.role(ServerAuth::Scram);
    let pooler = setup.database(&database, &format!("auth_dbname={asked}")).start();
    let (mut client, _) = log_in(&pooler, &role, &database);
    assert_eq!(client.value("SELECT current_database()"), database);
}

#[test]
fn the_default_query_works_for_a_superuser() {
    let postgres = Postgres::shared();
    let asker = postgres.role(ServerAuth::Scram);
    postgres.sql("postgres", &format!("ALTER ROLE {} SUPERUSER", asker.name));
    let role = postgres.role(ServerAuth::Scram);
    let (setup, database) = support::setup("transaction");
    let setup = setup.set("auth_type", "md5").set("auth_user", &asker.name);
    let pooler: Pooler = setup.secret(&asker.name, &asker.password).start();
    let (mut client, _) = log_in(&pooler, &role, &database);
    assert_eq!(client.value("SELECT current_user"), role.name);
    assert!(pooler.login(Role::APP, &database, Role::APP_PASSWORD).is_ok());
}

/// The owner of a database may set a `search_path` for all its sessions.
#[test]
fn the_owner_of_a_database_cannot_change_what_the_default_query_reads_core_strict() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let asker = postgres.role(ServerAuth::Scram);
    postgres.sql("postgres", &format!("ALTER ROLE {} SUPERUSER", asker.name));
    let victim = postgres.role(ServerAuth::Trust);
    let (setup, database) = support::setup("transaction");
    postgres.sql(
        &database,
        &format!(
            "CREATE SCHEMA evil; GRANT USAGE ON SCHEMA evil TO PUBLIC; \
             CREATE TABLE evil.pg_authid (rolname text, rolpassword text, rolvaliduntil timestamptz, \
             rolcanlogin bool); GRANT SELECT ON evil.pg_authid TO PUBLIC; \
             INSERT INTO evil.pg_authid VALUES ('{}', 'the wrong one', NULL, true); \
             ALTER DATABASE {database} SET search_path = evil, pg_catalog",
            victim.name
        ),
    );
    for query in [None, Some("SELECT rolname, rolpassword FROM pg_authid WHERE rolname = $1")] {
        let setup = setup
            .clone()
            .set("auth_type", "plain")
            .set("auth_user", &asker.name)
            .set("default_pool_size", 1)
            .secret(&asker.name, &asker.password);
        let pooler = match query {
            Some(query) => setup.set("auth_query", query).start(),
            None => setup.start(),
        };
        assert!(pooler.login(&victim.name, &database, "the wrong one").is_err(), "{query:?}");
        let (mut client, _) = log_in(&pooler, &victim, &database);
        assert_eq!(client.value("SELECT current_user"), victim.name);
        // The server that ran the query has its old `search_path` again.
        let mut own = pooler.login(&asker.name, &database, &asker.password).expect("a client");
        assert_eq!(own.value("SHOW search_path"), "evil, pg_catalog");
    }
}

/// CVE-2025-12819: if `search_path` of a startup packet is applied before the login, it changes the
/// tables that an unqualified `auth_query` reads.
#[test]
fn a_startup_packet_does_not_change_what_auth_query_reads() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let asker = postgres.role(ServerAuth::Scram);
    for mode in ["session", "transaction", "auto"] {
        let (setup, database) = support::setup(mode);
        let victim = postgres.role(ServerAuth::Trust);
        postgres.sql(
            &database,
            &format!(
                "CREATE SCHEMA evil; GRANT USAGE ON SCHEMA evil TO PUBLIC; \
                 CREATE TABLE public.users (name text, secret text); \
                 CREATE TABLE evil.users (name text, secret text); \
                 GRANT SELECT ON public.users, evil.users TO PUBLIC; \
                 INSERT INTO public.users VALUES ('{0}', 'the right one'); \
                 INSERT INTO evil.users VALUES ('{0}', 'the wrong one')",
                victim.name
            ),
        );
        let pooler = setup
            .set("auth_type", "plain")
            .set("auth_user", &asker.name)
            .set("auth_query", "SELECT name, secret FROM users WHERE name = $1")
            .set("track_extra_parameters", "IntervalStyle, search_path")
            .secret(&asker.name, &asker.password)
            .start();
        for options in [("search_path", "evil"), ("options", "-c search_path=evil")] {
            let startup = [("user", &*victim.name), ("database", &*database), options];
            let mut client = RawClient::connect(pooler.port());
            let told = client.try_authenticate(&startup, "the wrong one");
            let error = told.iter().find_map(testkit::Message::error);
            assert!(error.is_some(), "{mode}: let in with the password of another schema");
        }
        let right = pooler.login(&victim.name, &database, "the right one");
        assert!(right.is_ok(), "{mode}: {:?}", right.err());
    }
}
