//! Chains of certificates, and the results of OpenSSL and Weir. The test asks the `openssl` command
//! as well, so the column of the table cannot be wrong.

mod chains;
#[expect(dead_code, reason = "the tests of net need more of it")]
mod openssl;

use std::time::{SystemTime, UNIX_EPOCH};

use chains::CHAINS;
use openssl::{Made, Workshop};
use proptest::{prelude::*, test_runner::TestRunner};
use weir_x509::{Anchors, Certificate, Host, Purpose, Refusal};
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _};

/// A server's certificate, the host it was reached by, and whether it is for that host.
const HOSTS: &[(&str, &str, bool)] = &[
    ("own subject=/CN=db.example.com", "db.example.com", true),
    ("own subject=/CN=db.example.com", "DB.example.com", true),
    ("own subject=/CN=db.example.com", "other.example.com", false),
    ("own subject=/CN=x subjectAltName=DNS:db.example.com", "db.example.com", true),
    ("own subject=/CN=x subjectAltName=DNS:a.b.c,DNS:db.example.com", "db.example.com", true),
    ("own subject=/CN=db.example.com subjectAltName=DNS:other", "db.example.com", false),
    ("own subject=/CN=db.example.com subjectAltName=IP:10.0.0.1", "db.example.com", true),
    ("own subject=/CN=db.example.com subjectAltName=email:a@b", "db.example.com", true),
    ("own subjectAltName=DNS:*.example.com", "db.example.com", true),
    ("own subjectAltName=DNS:*.example.com", "a.b.example.com", false),
    ("own subjectAltName=DNS:*.example.com", "example.com", false),
    ("own subjectAltName=DNS:*.com", "example.com", false),
    ("own subject=/CN=*.example.com", "db.example.com", true),
    ("own subject=/O=db.example.com", "db.example.com", false),
];

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs().cast_signed()
}

fn read(ders: &[Vec<u8>]) -> Vec<Certificate> {
    ders.iter().map(|der| Certificate::read(der).expect("OpenSSL made it")).collect()
}

fn judge(made: &Made, purpose: Purpose) -> Result<(), Refusal> {
    let own = Certificate::read(&made.own_der).expect("OpenSSL made it");
    Anchors::new(read(&made.trusted)).verify(&own, &read(&made.sent), purpose, now())
}

/// Returns the lines about which OpenSSL, Weir and the column disagree.
fn disagreements(chains: &[(&str, &str)], folder: &str) -> Vec<String> {
    let workshop = Workshop::new(folder);
    let mut wrong = Vec::new();
    for (verdict, line) in chains {
        let made = workshop.make(line);
        for (purpose, letter) in [(Purpose::Client, 'C'), (Purpose::Server, 'S')] {
            let (theirs, ours) = (made.verify(purpose, &[]), judge(&made, purpose));
            let expected = verdict.contains(letter);
            if theirs.is_ok() != expected || ours.is_ok() != expected {
                wrong.push(format!("{line}\n  {purpose:?}: {verdict}, {theirs:?}, {ours:?}"));
            }
        }
    }
    wrong
}

#[test]
fn of_each_chain_openssl_and_weir_say_the_same() {
    assert!(CHAINS.len() >= 60);
    // OpenSSL takes most of the time, because it starts again for each step.
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let parts = CHAINS.chunks(CHAINS.len().div_ceil(threads)).enumerate();
        let parts = parts
            .map(|(at, part)| scope.spawn(move || disagreements(part, &format!("chains{at}"))));
        let parts: Vec<_> = parts.collect();
        parts.into_iter().flat_map(|part| part.join().expect("openssl works")).collect()
    });
    assert!(wrong.is_empty(), "{} verdicts differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn of_each_host_openssl_and_weir_say_the_same() {
    let workshop = Workshop::new("hosts");
    for (line, host, expected) in HOSTS {
        let made = workshop.make(line);
        let theirs = made.verify(Purpose::Server, &["-verify_hostname", host]);
        let own = Certificate::read(&made.own_der).unwrap();
        assert_eq!(theirs.is_ok(), *expected, "OpenSSL: {host}, {line}");
        assert_eq!(own.is_for(Host::Name(host)), *expected, "{host}, {line}");
    }
}

#[test]
fn an_address_may_be_the_common_name_as_for_libpq() {
    let workshop = Workshop::new("addresses");
    for (line, expected) in [
        ("own subject=/CN=127.0.0.1", true),
        ("own subject=/CN=x subjectAltName=IP:127.0.0.1", true),
        ("own subject=/CN=127.0.0.1 subjectAltName=IP:127.0.0.2", false),
        ("own subject=/CN=127.0.0.1 subjectAltName=DNS:localhost", true),
        ("own subject=/CN=x subjectAltName=DNS:127.0.0.1", true),
        ("own subject=/CN=127.0.0.2", false),
    ] {
        let own = Certificate::read(&workshop.make(line).own_der).unwrap();
        let address = Host::Address([127, 0, 0, 1].into());
        assert_eq!(own.is_for(address), expected, "{line}");
    }
}

/// The bytes before the signed part of a certificate of 256 bytes and more.
const FRAME_LEN: usize = 4;

/// The signed part of a certificate.
fn signed(der: &[u8]) -> Option<&[u8]> {
    let (_, read) = X509Certificate::from_der(der).expect("OpenSSL made it");
    der.get(FRAME_LEN..FRAME_LEN + read.tbs_certificate.as_ref().len())
}

/// An invalid certificate is refused, and nothing worse happens.
#[test]
fn any_bytes_are_refused_or_judged() {
    let workshop = Workshop::new("bytes");
    let made = workshop.make(
        "root ca nameConstraints=permitted;DNS:example | middle < root ca | leaf < middle \
         keyUsage=digitalSignature extendedKeyUsage=clientAuth subjectAltName=DNS:a.example,email:a@b",
    );
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4);
    let config = ProptestConfig { cases: 20_000, ..ProptestConfig::default() };
    let mut runner = TestRunner::new(config);
    let outcome = runner.run(&(changes, 0..3usize), |(changes, which)| {
        let mut ders = [made.own_der.clone(), made.sent[0].clone(), made.trusted[0].clone()];
        for (at, byte) in changes {
            let at = at.index(ders[which].len());
            ders[which][at] ^= byte;
        }
        let Ok(all) = ders.iter().map(|der| Certificate::read(der)).collect::<Result<Vec<_>, _>>()
        else {
            return Ok(());
        };
        let anchors = Anchors::new(vec![all[2].clone()]);
        let verdict = anchors.verify(&all[0], &all[1..2], Purpose::Client, now());
        let _ = all[0].is_for(Host::Name("a.example"));
        // Below the root, every signed byte counts; the bytes around them do not matter.
        let before = [&made.own_der, &made.sent[0], &made.trusted[0]][which];
        let is_forged = signed(before)
            != ders[which].get(FRAME_LEN..FRAME_LEN + signed(before).map_or(0, <[u8]>::len));
        prop_assert!(which == 2 || verdict.is_err() || !is_forged);
        Ok(())
    });
    outcome.unwrap();
}
