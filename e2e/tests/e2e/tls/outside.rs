//! Weir's TLS as others see it: `openssl`, and clients with revoked certificates.

use std::process::Command;

use super::setup;
use crate::support;
use testkit::Authority;

#[test]
fn openssl_sees_the_certificate_and_chooses_the_version() {
    let authority = Authority::new("weir test");
    let (setup, _) = setup("require", &authority.intermediate("between").server());
    let pooler = setup.start();
    let connect = |more: &[&str]| {
        let mut openssl = Command::new("openssl");
        openssl
            .args(["s_client", "-starttls", "postgres", "-verify_return_error", "-brief"])
            .args(["-connect", &format!("127.0.0.1:{}", pooler.port())])
            .args(["-verify_hostname", "localhost", "-CAfile", authority.file()])
            .args(more);
        let output = support::run_any(&mut openssl);
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    };
    for (version, shown) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let (connected, said) = connect(&[version]);
        let fine = said.contains("Verification: OK") && said.contains(shown);
        assert!(connected && fine, "{version}: {said}");
    }
    for refused in [
        &["-tls1_1"][..],
        &["-verify_hostname", "elsewhere"],
        &["-CAfile", Authority::new("somebody else").file()],
    ] {
        let (connected, said) = connect(refused);
        assert!(!connected, "{refused:?}: {said}");
    }
}

/// Neither pooler has a key for revocation lists. A list in the file of the authorities has no
/// effect.
#[test]
fn a_revoked_certificate_is_one_of_its_authority_all_the_same_core() {
    let authority = Authority::new("weir test");
    let revoked = authority.user("app");
    let (setup, database) = setup("verify-full", &authority.server());
    let pooler = setup.set("client_tls_ca_file", authority.revoke(&revoked)).start();
    let mut psql = pooler.client_program("psql", &database);
    psql.env("PGSSLMODE", "require").args(["-XAtc", "SELECT 1"]);
    psql.env("PGSSLCERT", revoked.certificate()).env("PGSSLKEY", revoked.key());
    assert_eq!(support::run(&mut psql).trim(), "1");
}
