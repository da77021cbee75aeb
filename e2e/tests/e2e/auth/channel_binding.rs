//! SCRAM with channel binding on both sides: clients that support it use it, and it detects an
//! attacker who relays the connection with a certificate of their own.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::support;
use testkit::{Authority, Identity, Pooler, Postgres, Role, ServerAuth, Setup, Signature};

/// A program that relays between the two ends of a TLS connection.
struct Interceptor {
    child: Child,
    port: u16,
}

impl Interceptor {
    fn before(port: u16) -> Self {
        Self::with(Signature::Sha256, port)
    }

    /// With a certificate that is signed this way.
    fn with(signature: Signature, port: u16) -> Self {
        let own = Authority::signing_with("somebody else", signature).server();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/interceptor.py");
        let mut child = Command::new("/usr/bin/python3")
            .arg("-B")
            .arg(script)
            .args([own.certificate(), own.key(), &port.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is there");
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        output.read_line(&mut line).expect("it says where it listens");
        Self { child, port: line.trim().parse().expect("a port") }
    }
}

impl Drop for Interceptor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a pooler with TLS that asks for SCRAM.
fn setup(own: &Identity) -> (Setup, String) {
    let (setup, database) = support::setup("transaction");
    let setup = setup
        .set("auth_type", "scram-sha-256")
        .set("client_tls_sslmode", "allow")
        .set("client_tls_cert_file", own.certificate())
        .set("client_tls_key_file", own.key());
    (setup, database)
}

fn psql(port: u16, database: &str, binding: &str, password: &str) -> Output {
    Postgres::client_program("psql", port, database)
        .env("PGSSLMODE", "require")
        .env("PGCHANNELBINDING", binding)
        .env("PGPASSWORD", password)
        .args(["-X", "-Atc", "SELECT 7"])
        .output()
        .expect("psql runs")
}

#[track_caller]
fn let_in(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "7");
}

#[track_caller]
fn refused(output: &Output, why: &str) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains(why), "{error}");
}

#[test]
fn psql_works_with_each_setting_of_channel_binding() {
    if !support::only_weir() {
        return;
    }
    // The signature of the certificate determines the digest: SHA-256 or SHA-384.
    for kind in [Signature::Sha256, Signature::Sha384] {
        let (setup, database) = setup(&Authority::signing_with("weir test", kind).server());
        let pooler = setup.start();
        for binding in ["require", "prefer", "disable"] {
            let_in(&psql(pooler.port(), &database, binding, Role::APP_PASSWORD));
        }
        let wrong = psql(pooler.port(), &database, "require", "wrong");
        refused(&wrong, "SASL authentication failed");
    }
}

#[test]
fn a_certificate_that_has_no_digest_cannot_be_bound_to() {
    if !support::only_weir() {
        return;
    }
    // RFC 5929 defines no digest for Ed25519.
    let authority = Authority::signing_with("weir test", Signature::Ed25519);
    let (setup, database) = setup(&authority.server());
    let pooler = setup.start();
    let_in(&psql(pooler.port(), &database, "disable", Role::APP_PASSWORD));
    let insisting = psql(pooler.port(), &database, "require", Role::APP_PASSWORD);
    assert!(!insisting.status.success());
}

#[test]
fn an_attacker_between_client_and_pooler_is_detected_core_strict() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = setup(&Authority::new("weir test").server());
    let pooler = setup.start();
    let between = Interceptor::before(pooler.port());
    let tried = |binding| psql(between.port, &database, binding, Role::APP_PASSWORD);
    // `sslmode=require` without channel binding does not detect the attacker.
    let_in(&tried("disable"));
    for binding in ["prefer", "require"] {
        refused(&tried(binding), "SCRAM channel binding check failed");
    }
}

#[test]
fn an_attacker_between_pooler_and_server_is_detected_strict() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::start();
    postgres.offer_tls(&Authority::new("weir test").server());
    let database = postgres.database();
    let role = postgres.role(ServerAuth::Scram);
    let start = |port: u16| {
        let connection = format!("host=127.0.0.1 port={port} dbname={database}");
        Pooler::before(&postgres)
            .set("server_tls_sslmode", "require")
            .set("query_wait_timeout", 3)
            .database_at(&database, &connection)
            .secret(&role.name, &role.password)
            .start()
    };
    let straight = start(postgres.port());
    let mut client = straight.login(&role.name, &database, &role.password).expect("let in");
    assert_eq!(client.value("SELECT current_user"), role.name);

    // A certificate without a digest cannot be bound to.
    for (signature, why) in [
        (Signature::Sha256, "SCRAM channel binding check failed"),
        (Signature::Ed25519, "no digest for SCRAM channel binding"),
    ] {
        let between = Interceptor::with(signature, postgres.port());
        let deceived = start(between.port);
        assert!(deceived.login(&role.name, &database, &role.password).is_err());
        deceived.log_contains(why);
    }
}
