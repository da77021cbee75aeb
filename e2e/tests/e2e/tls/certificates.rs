//! Accepted certificates: those of version 1, as in PostgreSQL's manual, and clients' optional
//! ones. The crate `x509` compares many more with OpenSSL's verdicts.

use std::process::Command;

use super::{psql, refusal, setup, value};
use crate::support;
use testkit::{
    Authority, Identity, ManualAuthority, Pooler, Postgres, RawClient, Setup, Wanted, open_folder,
};

const IN_USE: &str = "SELECT ssl::text FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

/// Returns psql that connects over TLS with this certificate.
fn showing(pooler: &Pooler, database: &str, own: &Identity) -> Command {
    let mut command = psql(pooler, database, &[("PGSSLMODE", "require")]);
    command.envs([("PGSSLCERT", own.certificate()), ("PGSSLKEY", own.key())]);
    command
}

/// Returns a pooler for this server, which it connects to by this name.
fn before(postgres: &Postgres, host: &str, sslmode: &str) -> (Setup, String) {
    let database = postgres.database();
    let setup = Pooler::before(postgres)
        .set("server_tls_sslmode", sslmode)
        .set("server_login_retry", 0)
        .set("query_wait_timeout", 2)
        .database_at(&database, &format!("host={host} port={}", postgres.port()));
    (setup, database)
}

#[test]
fn a_server_may_have_a_certificate_of_version_1() {
    let (authority, stranger) = (ManualAuthority::new("root"), ManualAuthority::new("stranger"));
    let postgres = Postgres::start();
    postgres.offer_tls(&authority.issue("localhost"));
    for (host, mode, ca) in [
        ("127.0.0.1", "prefer", None),
        ("127.0.0.1", "require", None),
        ("127.0.0.1", "verify-ca", Some(&authority)),
        // The certificate has no alternative name, so the common name counts.
        ("localhost", "verify-full", Some(&authority)),
    ] {
        let (mut setup, database) = before(&postgres, host, mode);
        if let Some(ca) = ca {
            setup = setup.set("server_tls_ca_file", ca.file());
        }
        assert_eq!(setup.start().client(&database).value(IN_USE), "true", "{mode}");
    }
    let wrong_name = "name \"127.0.0.1\" not present in server certificate";
    let unknown = "unable to get issuer certificate";
    for (host, mode, ca, reason) in [
        ("127.0.0.1", "verify-full", &authority, wrong_name),
        ("localhost", "verify-full", &stranger, unknown),
        ("localhost", "verify-ca", &stranger, unknown),
    ] {
        let (setup, database) = before(&postgres, host, mode);
        let pooler = setup.set("server_tls_ca_file", ca.file()).start();
        assert!(!is_served(&pooler, &database), "{mode}");
        let server = format!("127.0.0.1:{}", postgres.port());
        pooler.log_contains(&format!(
            "TLS to the server at {server} failed: certificate verify failed: {reason}"
        ));
    }
}

fn is_served(pooler: &Pooler, database: &str) -> bool {
    let mut client = RawClient::connect(pooler.port());
    let startup = [("user", testkit::Role::APP), ("database", database)];
    client.authenticate(&startup, testkit::Role::APP_PASSWORD).is_ok()
}

#[test]
fn without_a_ca_file_the_systems_authorities_count_for_servers() {
    if !support::only_weir() {
        return;
    }
    let (authority, stranger) = (Authority::new("weir test"), Authority::new("somebody else"));
    let postgres = Postgres::start();
    let own = Wanted { name: "localhost", hosts: &["localhost"], expired: false };
    postgres.offer_tls(&authority.issue(&own));
    for (system, served) in [(&authority, true), (&stranger, false)] {
        // Only verify-full looks at the name.
        for (mode, host, served) in [
            ("verify-full", "localhost", served),
            ("verify-full", "127.0.0.1", false),
            ("verify-ca", "localhost", served),
            ("verify-ca", "127.0.0.1", served),
        ] {
            let (setup, database) = before(&postgres, host, mode);
            let pooler = setup.environment("SSL_CERT_FILE", system.file()).start();
            assert_eq!(is_served(&pooler, &database), served, "{mode}, {host}");
        }
    }
}

/// As for libpq: these certificates could not be verified, or only by OpenSSL.
#[test]
fn prefer_and_require_judge_no_certificate() {
    if !support::only_weir() {
        return;
    }
    let (manual, authority) = (ManualAuthority::new("root"), Authority::new("weir test"));
    let postgres = Postgres::start();
    postgres.permit_short_keys();
    let pss = ["-newkey", "rsa-pss", "-pkeyopt", "rsa_keygen_bits:2048"];
    let expired = Wanted { name: "localhost", hosts: &["localhost"], expired: true };
    let both = &["tlsv1.2", "tlsv1.3"][..];
    for (kind, own, ca, versions, is_good) in [
        (
            "RSA 1024",
            manual.issue_for("short", &["-newkey", "rsa:1024"]),
            manual.file(),
            both,
            false,
        ),
        ("RSA-PSS", manual.issue_for("localhost", &pss), manual.file(), &["tlsv1.3"], true),
        ("expired", authority.issue(&expired), authority.file(), both, false),
    ] {
        postgres.offer_tls(&own);
        for version in versions {
            for mode in ["prefer", "require"] {
                let (setup, database) = before(&postgres, "localhost", mode);
                let pooler = setup.set("server_tls_protocols", version).start();
                assert!(is_served(&pooler, &database), "{kind}, {version}, {mode}");
                assert_eq!(pooler.client(&database).value(IN_USE), "true", "{kind}, {mode}");
            }
            let (setup, database) = before(&postgres, "localhost", "verify-full");
            let setup = setup.set("server_tls_protocols", version).set("server_tls_ca_file", ca);
            assert_eq!(is_served(&setup.start(), &database), is_good, "{kind}, {version}");
        }
    }
}

/// No client offers this curve, libpq neither.
#[test]
fn a_server_with_a_key_on_a_curve_of_bitcoin_is_out_of_reach() {
    let authority = ManualAuthority::new("root");
    let postgres = Postgres::start();
    postgres.offer_tls(&authority.issue_on("localhost", "secp256k1"));
    let (setup, database) = before(&postgres, "localhost", "require");
    let mut command = Postgres::client_program("psql", postgres.port(), &database);
    refusal(command.env("PGSSLMODE", "require"));
    assert!(!is_served(&setup.start(), &database));
}

#[test]
fn a_client_and_weir_may_have_certificates_of_version_1() {
    let (authority, stranger) = (ManualAuthority::new("root"), ManualAuthority::new("stranger"));
    let (setup, database) = setup("verify-full", &authority.issue("localhost"));
    let pooler = setup.set("client_tls_ca_file", authority.file()).start();
    let mut command = showing(&pooler, &database, &authority.issue("app"));
    command.envs([("PGSSLMODE", "verify-full"), ("PGSSLROOTCERT", authority.file())]);
    assert_eq!(value(&mut command, "SELECT 2"), "2");
    refusal(&mut showing(&pooler, &database, &stranger.issue("app")));
}

/// A server with P-521 needs TLS 1.3: in TLS 1.2 it would use that curve for the key exchange as
/// well.
#[test]
fn keys_may_be_on_each_usual_curve() {
    let authority = ManualAuthority::new("root");
    let postgres = Postgres::start();
    for curve in ["P-256", "P-384", "P-521"] {
        let (own, server) =
            (authority.issue_on("app", curve), authority.issue_on("localhost", curve));
        postgres.offer_tls(&server);
        for version in ["TLSv1.2", "TLSv1.3"] {
            let (setup, database) = before(&postgres, "localhost", "verify-full");
            let pooler = setup
                .set("server_tls_ca_file", authority.file())
                .set("client_tls_sslmode", "verify-full")
                .set("client_tls_ca_file", authority.file())
                .set("client_tls_cert_file", server.certificate())
                .set("client_tls_key_file", server.key())
                .start();
            let mut command = showing(&pooler, &database, &own);
            command.env("PGSSLMAXPROTOCOLVERSION", version);
            assert_eq!(value(&mut command, IN_USE), "true", "{curve}, {version}");
        }
    }
}

#[test]
fn a_certificate_need_not_be_shown_but_must_be_good() {
    let (authority, stranger) = (Authority::new("weir test"), Authority::new("somebody else"));
    for mode in ["allow", "prefer", "require"] {
        let (setup, database) = setup(mode, &authority.server());
        let pooler = setup.set("client_tls_ca_file", authority.file()).start();
        let mut silent = psql(&pooler, &database, &[("PGSSLMODE", "require")]);
        assert_eq!(value(&mut silent, "SELECT 2"), "2", "{mode}");
        let mut good = showing(&pooler, &database, &authority.user("app"));
        assert_eq!(value(&mut good, "SELECT 3"), "3", "{mode}");
        refusal(&mut showing(&pooler, &database, &stranger.user("app")));
        pooler.log_contains("TLS handshake failed: certificate verify failed");
    }
}

#[test]
fn a_rule_may_ask_for_a_certificate_where_tls_does_not() {
    let authority = Authority::new("weir test");
    let rules = open_folder("cert").join("hba.conf");
    std::fs::write(&rules, "hostssl all app all cert\n").expect("our own folder");
    let own = authority.user("app");
    for (ca, is_let_in) in [(authority.file(), true), ("", false)] {
        let (setup, database) = setup("prefer", &authority.server());
        let pooler = setup
            .set("client_tls_ca_file", ca)
            .set("auth_type", "hba")
            .set("auth_hba_file", rules.display())
            .start();
        let refused = "certificate authentication failed";
        let said = refusal(&mut psql(&pooler, &database, &[("PGSSLMODE", "require")]));
        assert!(said.contains(refused), "{said}");
        let mut shown = showing(&pooler, &database, &own);
        if is_let_in {
            assert_eq!(value(&mut shown, "SELECT 2"), "2");
        } else {
            let said = refusal(&mut shown);
            assert!(said.contains(refused), "{said}");
        }
    }
}

/// The tests of `x509` cover the other files that are not authorities.
#[test]
fn a_file_with_only_an_intermediate_lets_nobody_in_core_strict() {
    let authority = Authority::new("weir test");
    let between = authority.intermediate("between");
    let (setup, database) = setup("verify-full", &authority.server());
    let pooler = setup.set("client_tls_ca_file", between.file()).start();
    refusal(&mut showing(&pooler, &database, &between.user("app")));
    pooler.log_contains("TLS handshake failed: certificate verify failed");
}
