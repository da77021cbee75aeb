//! `auth_type = cert`, and `cert` in rules: the certificate names the user.

use std::process::Command;
use std::time::Duration;

use crate::support;
use testkit::{Authority, Identity, Pooler, Setup, Wanted, eventually, open_folder};

const REFUSED: &str = "certificate authentication failed";

/// Returns a pooler that demands certificates of this authority.
fn setup(authority: &Authority) -> (Setup, String) {
    let own = authority.server();
    let (setup, database) = support::setup("transaction");
    let setup = setup
        .set("auth_type", "cert")
        .set("client_tls_sslmode", "verify-full")
        .set("client_tls_ca_file", authority.file())
        .set("client_tls_cert_file", own.certificate())
        .set("client_tls_key_file", own.key());
    (setup, database)
}

/// Returns psql that runs `sql` with this certificate and without a password.
fn psql_with(pooler: &Pooler, database: &str, user: &str, own: &Identity, sql: &str) -> Command {
    let mut command = pooler.client_program("psql", database);
    command
        .env_remove("PGPASSWORD")
        .env("PGUSER", user)
        .env("PGSSLMODE", "require")
        .env("PGSSLCERT", own.certificate())
        .env("PGSSLKEY", own.key())
        .args(["-X", "-wAt", "-c", sql]);
    command
}

fn psql(pooler: &Pooler, database: &str, user: &str, own: &Identity) -> Command {
    psql_with(pooler, database, user, own, "SELECT current_user")
}

#[track_caller]
fn who(mut command: Command) -> String {
    support::run(&mut command).trim().to_owned()
}

#[track_caller]
fn refused(mut command: Command, why: &str) {
    let output = command.output().expect("psql runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains(why), "{error}");
}

#[test]
fn a_certificate_takes_the_place_of_a_password_core() {
    let (authority, stranger) = (Authority::new("weir test"), Authority::new("somebody else"));
    let (setup, database) = setup(&authority);
    let pooler = setup.secret("other", "x").start();
    let as_app = |own: &Identity| psql(&pooler, &database, "app", own);
    assert_eq!(who(as_app(&authority.user("app"))), "app");
    assert_eq!(who(as_app(&authority.intermediate("between").user("app"))), "app");
    let beside = Wanted { name: "somebody", hosts: &["app"], expired: false };
    assert_eq!(who(as_app(&authority.issue(&beside))), "app");

    refused(as_app(&authority.user("other")), REFUSED);
    refused(psql(&pooler, &database, "other", &authority.user("app")), REFUSED);
    pooler.log_contains("TLS certificate name mismatch");
    refused(psql(&pooler, &database, "nobody", &authority.user("nobody")), REFUSED);
    // Bad certificates are refused before authentication begins.
    let expired = authority.issue(&Wanted { name: "app", hosts: &[], expired: true });
    for bad in [expired, stranger.user("app")] {
        assert!(!as_app(&bad).status().expect("psql runs").success());
    }
}

#[test]
fn names_are_compared_letter_by_letter_core_strict() {
    // PgBouncer takes App for app, and accepts wildcards.
    if !support::only_weir() {
        return;
    }
    let authority = Authority::new("weir test");
    let (setup, database) = setup(&authority);
    let pooler = setup.start();
    refused(psql(&pooler, &database, "app", &authority.user("App")), REFUSED);
    refused(psql(&pooler, &database, "app", &authority.user("*")), REFUSED);
}

#[test]
fn without_tls_there_is_no_certificate() {
    let authority = Authority::new("weir test");
    let (setup, database) = setup(&authority);
    let pooler = setup.start();
    let mut local = pooler.client_program("psql", &database);
    local.env("PGHOST", pooler.socket_folder()).args(["-X", "-c", "SELECT 1"]);
    refused(local, REFUSED);
    pooler.log_contains("TLS connection required");
}

#[test]
fn a_rule_may_ask_for_a_certificate_and_map_its_name() {
    // PgBouncer has supported maps since 1.22.
    if !support::only_weir() {
        return;
    }
    let authority = Authority::new("weir test");
    let folder = open_folder("cert");
    let (rules, maps) = (folder.join("hba.conf"), folder.join("ident.conf"));
    std::fs::write(&rules, "hostssl all app all cert map=staff\nhostssl all all all cert\n")
        .expect("our own folder");
    std::fs::write(&maps, "staff jane app\nstaff jane other\n").expect("our own folder");
    let (setup, database) = setup(&authority);
    let setup = setup
        .set("auth_type", "hba")
        .set("auth_hba_file", rules.display())
        .set("auth_ident_file", maps.display());
    let mut pooler = setup.start();
    let jane = authority.user("jane");
    assert_eq!(who(psql(&pooler, &database, "app", &jane)), "app");
    refused(psql(&pooler, &database, "app", &authority.user("app")), REFUSED);
    pooler.log_contains("ident map: staff does not have a match");

    // If the pooler does not ask for certificates, clients send none.
    pooler.reconfigure(|ini| {
        ini.set("client_tls_sslmode", "require");
        ini.set("client_tls_ca_file", "");
    });
    pooler.signal("HUP");
    eventually("certificates are no longer asked for", Duration::from_secs(20), || {
        let output = psql(&pooler, &database, "app", &jane).output().expect("psql runs");
        (!output.status.success()).then_some(())
    });
    refused(psql(&pooler, &database, "app", &jane), REFUSED);
    pooler.log_contains("TLS client certificate required");
}

#[test]
fn an_administrator_may_log_in_with_a_certificate() {
    let authority = Authority::new("weir test");
    let (setup, _) = setup(&authority);
    let pooler = setup.set("admin_users", "jane").secret("jane", "x").start();
    let jane = authority.user("jane");
    let users = who(psql_with(&pooler, "pgbouncer", "jane", &jane, "SHOW USERS"));
    assert!(users.contains("jane"), "{users}");
}
