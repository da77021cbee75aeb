//! Logins are judged as the server does: by pg_hba.conf with the client's own address, and by the
//! roles.

use std::process::Command;
use std::time::{Duration, Instant};

use testkit::{Authority, Builtin, Postgres, Role, eventually};

use crate::support;

const SECOND: Duration = Duration::from_secs(1);

/// The SQLSTATE and the text of a refusal; empty for a login.
fn refusal(server: &Builtin, user: &str, password: &str) -> (String, String) {
    match server.login(user, "postgres", password) {
        Ok(_) => Default::default(),
        Err(error) => (error.code().to_owned(), error.message().to_owned()),
    }
}

/// Waits until a login fails or not, for at most a second.
#[track_caller]
fn until(server: &Builtin, what: &str, user: &str, password: &str, succeeds: bool) {
    let began = Instant::now();
    eventually(what, Duration::from_secs(10), || {
        (server.login(user, "postgres", password).is_ok() == succeeds).then_some(())
    });
    let took = began.elapsed();
    assert!(took < SECOND + Duration::from_millis(500), "{what}: it took {took:?}");
}

#[test]
fn only_the_right_password_of_a_known_role_lets_in_core_strict() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("");
    // A server connection of the role is there, which is no reason to skip the password.
    server.client("postgres").rows("SELECT 1");
    assert_eq!(refusal(&server, Role::APP, Role::APP_PASSWORD), Default::default());
    for (user, password) in
        [(Role::APP, "wrong"), (Role::APP, ""), ("nobody", "x"), ("postgres", "")]
    {
        assert_eq!(refusal(&server, user, password).0, "28P01", "{user} {password}");
    }
    // Groups cannot log in.
    assert_ne!(refusal(&server, "auth_trust", ""), Default::default());
}

/// A role may choose its own verifier.
#[test]
fn a_verifier_of_any_length_harms_nobody_else() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("");
    let zeros = "A".repeat(43);
    let kept = "SELECT rolpassword FROM pg_authid WHERE rolname = 'app'";
    let before = server.sql("postgres", kept)[0][0].clone().expect("it has one");
    // The second one cannot be compressed, so PostgreSQL keeps it out of line.
    let hashes = "SELECT string_agg(md5(i::text), '') FROM generate_series(1, 100) AS i";
    let hashes = server.sql("postgres", hashes)[0][0].clone().expect("a text");
    for (at, salt) in ["A".repeat(100_000), hashes].into_iter().enumerate() {
        let long = format!("'SCRAM-SHA-256$4096:{salt}${zeros}=:{zeros}='");
        server.sql("postgres", &format!("ALTER ROLE app PASSWORD {long}"));
        let later = format!("later{at}");
        server.sql("postgres", &format!("CREATE ROLE {later} LOGIN PASSWORD 'one'"));
        until(&server, "a role behind it", &later, "one", true);
        until(&server, "its own password", Role::APP, Role::APP_PASSWORD, false);
        server.sql("postgres", &format!("ALTER ROLE app PASSWORD '{before}'"));
        until(&server, "its own password again", Role::APP, Role::APP_PASSWORD, true);
    }
}

/// A long list of privileges is kept out of line.
#[test]
fn a_database_with_many_grantees_harms_nobody() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("");
    server.sql(
        "postgres",
        "DO $$ BEGIN FOR i IN 1..2000 LOOP EXECUTE format('CREATE ROLE g%s', i); \
         EXECUTE format('GRANT CONNECT ON DATABASE postgres TO g%s', i); END LOOP; END $$",
    );
    server.sql("postgres", "CREATE ROLE later LOGIN PASSWORD 'one'");
    until(&server, "a later role", "later", "one", true);
}

#[test]
fn changes_of_a_role_are_seen_within_a_second() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("weir.connection_proxies = 2");
    let sql = |text: &str| drop(server.sql("postgres", text));
    sql("CREATE ROLE eve LOGIN PASSWORD 'one'");
    until(&server, "a new role", "eve", "one", true);
    sql("ALTER ROLE eve PASSWORD 'two'");
    until(&server, "an old password", "eve", "one", false);
    until(&server, "a new password", "eve", "two", true);
    sql("ALTER ROLE eve NOLOGIN");
    until(&server, "NOLOGIN", "eve", "two", false);
    sql("ALTER ROLE eve LOGIN");
    until(&server, "LOGIN", "eve", "two", true);
    sql("ALTER ROLE eve VALID UNTIL '2001-01-01'");
    until(&server, "a password of the past", "eve", "two", false);
    sql("ALTER ROLE eve VALID UNTIL 'infinity'");
    until(&server, "an endless password", "eve", "two", true);
    sql("ALTER ROLE eve RENAME TO adam");
    until(&server, "the old name", "eve", "two", false);
    until(&server, "the new name", "adam", "two", true);
    sql("DROP ROLE adam");
    until(&server, "a dropped role", "adam", "two", false);
}

#[test]
fn a_password_ends_at_its_time() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("");
    let mut superuser = server.superuser("postgres");
    superuser.rows("CREATE ROLE brief LOGIN PASSWORD 'x'");
    until(&server, "the role", "brief", "x", true);
    let end = superuser.value("SELECT (clock_timestamp() + '2 s')::text");
    superuser.rows(&format!("ALTER ROLE brief VALID UNTIL '{end}'"));
    eventually("its password has ended", Duration::from_secs(4), || {
        server.login("brief", "postgres", "x").err().map(drop)
    });
}

#[test]
fn the_limit_of_a_role_counts_its_clients() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("");
    server.sql("postgres", "CREATE ROLE few LOGIN PASSWORD 'x' CONNECTION LIMIT 2");
    until(&server, "the role", "few", "x", true);
    eventually("two clients and no third", Duration::from_secs(10), || {
        let _two = [
            server.login("few", "postgres", "x").ok()?,
            server.login("few", "postgres", "x").ok()?,
        ];
        let third = server.login("few", "postgres", "x").err()?;
        assert_eq!(third.code(), "53300", "{third:?}");
        Some(())
    });
    assert!(server.login(Role::APP, "postgres", Role::APP_PASSWORD).is_ok());
}

#[test]
fn the_first_rule_for_the_clients_address_decides() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("");
    server.sql("postgres", "CREATE ROLE kin; GRANT kin TO app");
    server.sql("postgres", "CREATE DATABASE kin");
    let login = |database: &str| server.login(Role::APP, database, Role::APP_PASSWORD);
    let rules_are = |rules: &str, code: &str| {
        server.set_rules(rules);
        eventually(&format!("{rules} gives {code:?}"), Duration::from_secs(5), || {
            let got =
                login("postgres").map_or_else(|error| error.code().to_owned(), |_| String::new());
            (got == code).then_some(())
        });
    };
    rules_are("host all all 127.0.0.1/32 reject", "28000");
    rules_are("host all app 127.0.0.0/8 scram-sha-256", "");
    rules_are("host all all 192.0.2.0/24 scram-sha-256", "28000");
    rules_are("host all all samehost scram-sha-256", "");
    rules_are("host all +kin 127.0.0.1/32 reject\nhost all all all scram-sha-256", "28000");
    rules_are("host all \"+kin\" 127.0.0.1/32 reject\nhost all all all scram-sha-256", "");
    rules_are("host \"all\" all all reject\nhost all all all password", "");
    rules_are("hostssl all all all reject\nhostnossl all all all md5", "");
    // A database of the name of a group, for its members.
    server.set_rules("host samerole all all reject\nhost all all all scram-sha-256");
    eventually("the rule of the group's database", Duration::from_secs(5), || {
        login("kin").err().map(drop)
    });
    assert!(login("postgres").is_ok());
}

#[test]
fn a_method_that_does_not_work_is_named_with_its_line() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("");
    server.set_rules("host all all 127.0.0.1/32 ident");
    let text = eventually("the rule decides", Duration::from_secs(5), || {
        let (code, text) = refusal(&server, Role::APP, Role::APP_PASSWORD);
        (code == "28000").then_some(text)
    });
    assert_eq!(
        text,
        "the method \"ident\" of line 2 of pg_hba.conf, or one of its options, does not work \
         through Weir"
    );
    server.set_rules("host all all localhost scram-sha-256");
    eventually("the rule with a name decides", Duration::from_secs(5), || {
        let (_, text) = refusal(&server, Role::APP, Role::APP_PASSWORD);
        text.contains("line 2 of pg_hba.conf has a host name").then_some(())
    });
}

/// PostgreSQL has the verifiers in its tables and in their log, and no other file has one.
#[test]
fn no_file_holds_a_verifier_strict() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("");
    let kept = "SELECT rolpassword FROM pg_authid WHERE rolname = 'app'";
    let verifier = server.sql("postgres", kept)[0][0].clone().expect("it has one");
    let key = verifier.rsplit(':').next().expect("its last part").to_owned();
    server.reload();
    server.client("postgres").rows("SELECT 1");
    // Files that the server removes meanwhile are errors of grep.
    let mut grep = Command::new("grep");
    grep.args(["-rlsF", "--devices=skip", &key]).arg(server.socket_folder());
    let found = String::from_utf8_lossy(&support::run_any(&mut grep).stdout).into_owned();
    let others: Vec<_> = found
        .lines()
        .filter(|file| !file.contains("/global/") && !file.contains("/pg_wal/"))
        .collect();
    assert_eq!(others, [""; 0]);
    assert!(found.contains("/global/") || found.contains("/pg_wal/"), "{found}");
}

/// Each server connection is opened as its client's role.
#[test]
fn weir_never_logs_in_as_a_superuser_strict() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("log_connections = on");
    server.sql("postgres", "CREATE ROLE eve LOGIN PASSWORD 'one' IN ROLE app");
    until(&server, "a new role", "eve", "one", true);
    let as_superuser = || server.log().matches("connection authorized: user=postgres").count();
    let as_eve = || server.log().matches("connection authorized: user=eve").count();
    let before = as_superuser();
    let mut eve = server.login("eve", "postgres", "one").expect("it is let in");
    assert_eq!(eve.value("SELECT session_user || current_user"), "eveeve");
    eve.rows("SET ROLE app");
    assert_eq!(eve.value("SELECT session_user || current_user"), "eveapp");
    assert!(eve.query("SET SESSION AUTHORIZATION postgres").error.is_some());
    assert!(server.login("eve", "postgres", "wrong").is_err());
    assert!(as_eve() > 0);
    assert_eq!(as_superuser(), before);
}

#[test]
fn rules_with_mistakes_change_nothing() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("");
    server.set_rules("nonsense");
    server.log_contains(&["pg_hba.conf was not reloaded"]);
    // The pooler has heard of the reload when it knows a role that is made after it.
    server.sql("postgres", "CREATE ROLE late LOGIN PASSWORD 'x'");
    until(&server, "a new role", "late", "x", true);
    assert!(server.login(Role::APP, "postgres", Role::APP_PASSWORD).is_ok());
}

#[test]
fn the_servers_certificate_is_the_poolers() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("");
    server.offer_tls(&Authority::new("weir test").server());
    server.set_rules("hostssl all all 127.0.0.1/32 scram-sha-256");
    let psql = |mode: &str| {
        support::run_any(
            Postgres::client_program("psql", server.pooler_port(), "postgres")
                .env("PGSSLMODE", mode)
                .args(["-XAtc", "SELECT 'in'"]),
        )
    };
    eventually("a client with TLS is let in", Duration::from_secs(10), || {
        psql("require").status.success().then_some(())
    });
    let refused = String::from_utf8_lossy(&psql("disable").stderr).into_owned();
    assert!(refused.contains("no authentication method is found"), "{refused}");
}

#[test]
fn names_cannot_break_out_of_the_rules_strict() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("");
    let mut superuser = server.superuser("postgres");
    superuser
        .rows("CREATE ROLE \"x\nhost all all all trust\" LOGIN PASSWORD 'x' CONNECTION LIMIT 3");
    superuser.rows("CREATE ROLE \"we\"\"ird' = x\" LOGIN PASSWORD 'x' CONNECTION LIMIT 3");
    superuser.rows("CREATE ROLE \"all\" LOGIN PASSWORD 'x'");
    server.set_rules("host all \"all\",\"x\nhost all all all scram-sha-256");
    server.set_rules(
        "host all \"we\"\"ird' = x\" all scram-sha-256\nhost all +kin,\"all\" all scram-sha-256",
    );
    until(&server, "a strange name", "we\"ird' = x", "x", true);
    until(&server, "a role named all", "all", "x", true);
    assert_eq!(refusal(&server, Role::APP, Role::APP_PASSWORD).0, "28000");
}
