//! Chains of certificates, and the results of OpenSSL and Weir.
//!
//! The first column has `C` if the certificate is valid for a client and `S` if it is valid for a
//! server. The test asks the `openssl` command as well, so the column cannot be wrong.

mod openssl;

use std::time::{SystemTime, UNIX_EPOCH};

use openssl::{Made, Workshop};
use proptest::{prelude::*, test_runner::TestRunner};
use weir_x509::{Anchors, Certificate, Host, Purpose, Refusal};
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _};

const CHAINS: &[(&str, &str)] = &[
    // Version 1, as in PostgreSQL's manual.
    ("CS", "own"),
    ("CS", "root | leaf < root"),
    ("CS", "root ca | leaf < root"),
    ("--", "root | middle < root | leaf < middle"),
    ("--", "root ca | middle < root | leaf < middle"),
    ("--", "root ca kept | middle < root trusted | leaf < middle"),
    ("--", "root ca | own"),
    // Roots of version 3.
    ("CS", "root ca | leaf < root basicConstraints=CA:FALSE"),
    ("CS", "root basicConstraints=CA:TRUE | leaf < root basicConstraints=CA:FALSE"),
    ("--", "root basicConstraints=CA:FALSE | leaf < root"),
    ("--", "root basicConstraints=critical,CA:FALSE | leaf < root basicConstraints=CA:FALSE"),
    ("--", "root subjectKeyIdentifier=hash | leaf < root"),
    ("CS", "root keyUsage=keyCertSign | leaf < root"),
    ("--", "root keyUsage=digitalSignature | leaf < root"),
    ("--", "root basicConstraints=CA:TRUE keyUsage=digitalSignature | leaf < root"),
    ("--", "root basicConstraints=CA:TRUE keyUsage=cRLSign | leaf < root"),
    ("CS", "root basicConstraints=CA:TRUE keyUsage=digitalSignature,keyCertSign | leaf < root"),
    ("--", "root ca days=-20..-1 | leaf < root"),
    ("--", "root ca days=1..20 | leaf < root"),
    ("--", "root ca | other ca | leaf < other"),
    ("--", "root ca | other subject=/CN=root kept ca | leaf < other"),
    ("CS", "root ca | twin subject=/CN=ROOT as=root kept ca | leaf < twin"),
    (
        "CS",
        "root subject=/O=Weir__Test/CN=r ca | twin as=root kept ca subject=/O=weir_test/CN=R | \
            leaf < twin",
    ),
    ("--", "root ca | twin subject=/CN=root/O=x as=root kept ca | leaf < twin"),
    // Self-signed certificates of peers.
    ("CS", "own ca basicConstraints=CA:TRUE keyUsage=keyCertSign,digitalSignature"),
    ("CS", "own basicConstraints=CA:TRUE"),
    ("CS", "own basicConstraints=CA:FALSE"),
    ("CS", "own basicConstraints=CA:FALSE keyUsage=digitalSignature"),
    ("--", "own ca"),
    ("--", "own days=-2..-1"),
    ("--", "own days=1..2"),
    ("--", "own basicConstraints=CA:TRUE | twin subject=/CN=own basicConstraints=CA:TRUE"),
    ("--", "own basicConstraints=CA:TRUE | again subject=/CN=own as=own basicConstraints=CA:TRUE"),
    ("--", "own | leaf < own | end < leaf"),
    ("CS", "other ca | own trusted"),
    // Chains of several.
    ("CS", "root ca | middle < root ca | leaf < middle"),
    ("--", "root ca | middle < root ca kept | leaf < middle"),
    ("CS", "root ca | middle < root ca trusted | leaf < middle"),
    ("--", "root ca kept | middle < root ca trusted | leaf < middle"),
    ("--", "root ca sent | middle < root ca trusted | leaf < middle"),
    ("--", "root ca | middle < root basicConstraints=CA:FALSE | leaf < middle"),
    ("--", "root ca | middle < root subjectKeyIdentifier=hash | leaf < middle"),
    ("--", "root ca | middle < root keyUsage=keyCertSign | leaf < middle"),
    (
        "--",
        "root ca | middle < root basicConstraints=CA:TRUE keyUsage=digitalSignature | \
            leaf < middle",
    ),
    ("CS", "root ca | middle < root basicConstraints=CA:TRUE | leaf < middle"),
    ("--", "root ca | middle < root ca days=-2..-1 | leaf < middle"),
    ("--", "root ca | middle < root ca days=1..2 | leaf < middle"),
    ("--", "root ca | middle < root ca | leaf < middle days=-2..-1"),
    ("--", "root ca | middle < root ca | leaf < middle days=1..2"),
    (
        "CS",
        "root ca | old < root ca days=-5..-1 subject=/CN=m as=m | \
            new < root ca subject=/CN=m as=m | leaf < new",
    ),
    (
        "CS",
        "root ca | a < root ca | b < a ca | c < b ca | d < c ca | e < d ca | f < e ca | \
            leaf < f",
    ),
    (
        "--",
        "root ca | a < root ca | b < a ca | c < b ca | d < c ca | e < d ca | f < e ca | \
            g < f ca | leaf < g",
    ),
    ("CS", "root ca | b < root ca | stray ca | a < b ca | leaf < a"),
    ("CS", "root ca | old ca | cross < old subject=/CN=root as=root ca | leaf < root"),
    ("CS", "old ca | new ca kept | cross < old subject=/CN=new as=new ca | leaf < new"),
    // Path lengths.
    ("CS", "root basicConstraints=CA:TRUE,pathlen:0 | leaf < root"),
    ("--", "root basicConstraints=CA:TRUE,pathlen:0 | middle < root ca | leaf < middle"),
    ("CS", "root basicConstraints=CA:TRUE,pathlen:1 | middle < root ca | leaf < middle"),
    ("--", "root basicConstraints=CA:TRUE,pathlen:1 | a < root ca | b < a ca | leaf < b"),
    ("--", "root ca | a < root basicConstraints=CA:TRUE,pathlen:0 | b < a ca | leaf < b"),
    ("CS", "root ca | a < root basicConstraints=CA:TRUE,pathlen:0 | leaf < a"),
    (
        "CS",
        "root ca | a < root basicConstraints=CA:TRUE,pathlen:0 | leaf < a ca \
            keyUsage=digitalSignature",
    ),
    (
        "CS",
        "root basicConstraints=CA:TRUE,pathlen:1 | a < root ca subjectKeyIdentifier=hash | \
            b < a subject=/CN=a ca subjectKeyIdentifier=hash authorityKeyIdentifier=keyid | \
            leaf < b authorityKeyIdentifier=keyid",
    ),
    (
        "--",
        "root basicConstraints=CA:TRUE,pathlen:1 | a < root ca subjectKeyIdentifier=hash | \
            b < a ca subjectKeyIdentifier=hash authorityKeyIdentifier=keyid | \
            leaf < b authorityKeyIdentifier=keyid",
    ),
    // The permitted uses of a peer's certificate.
    ("CS", "root ca | leaf < root keyUsage=digitalSignature"),
    ("-S", "root ca | leaf < root keyUsage=keyEncipherment"),
    ("CS", "root ca | leaf < root keyUsage=keyAgreement"),
    ("--", "root ca | leaf < root keyUsage=nonRepudiation"),
    ("--", "root ca | leaf < root keyUsage=critical,dataEncipherment"),
    ("C-", "root ca | leaf < root extendedKeyUsage=clientAuth"),
    ("-S", "root ca | leaf < root extendedKeyUsage=serverAuth"),
    ("CS", "root ca | leaf < root extendedKeyUsage=serverAuth,clientAuth"),
    ("--", "root ca | leaf < root extendedKeyUsage=codeSigning"),
    ("--", "root ca | leaf < root extendedKeyUsage=anyExtendedKeyUsage"),
    ("-S", "root ca | leaf < root extendedKeyUsage=msSGC"),
    ("-S", "root ca | leaf < root extendedKeyUsage=serverAuth keyUsage=keyEncipherment"),
    ("--", "root ca | leaf < root extendedKeyUsage=clientAuth keyUsage=keyEncipherment"),
    ("C-", "root ca | leaf < root nsCertType=client"),
    ("-S", "root ca | leaf < root nsCertType=server"),
    // The permitted uses of a CA's certificate.
    ("C-", "root ca extendedKeyUsage=clientAuth | leaf < root"),
    ("-S", "root ca | middle < root ca extendedKeyUsage=serverAuth | leaf < middle"),
    ("--", "root ca | middle < root ca extendedKeyUsage=codeSigning | leaf < middle"),
    ("CS", "root nsCertType=sslCA | leaf < root"),
    ("--", "root nsCertType=emailCA | leaf < root"),
    ("--", "root ca | middle < root nsCertType=sslCA | leaf < middle"),
    // Key identifiers.
    ("CS", "root ca subjectKeyIdentifier=hash | leaf < root authorityKeyIdentifier=keyid"),
    (
        "CS",
        "root ca subjectKeyIdentifier=hash | \
            leaf < root authorityKeyIdentifier=keyid,issuer:always",
    ),
    (
        "--",
        "root ca subjectKeyIdentifier=hash | other kept subject=/CN=root as=root ca \
            2.5.29.14=DER:04:04:01:02:03:04 | leaf < other authorityKeyIdentifier=keyid",
    ),
    (
        "--",
        "root ca | again kept subject=/CN=root as=root ca | \
            leaf < again authorityKeyIdentifier=issuer:always",
    ),
    (
        "CS",
        "other subject=/CN=root ca subjectKeyIdentifier=hash | \
            root trusted ca subjectKeyIdentifier=hash | leaf < root authorityKeyIdentifier=keyid",
    ),
    ("--", "other subject=/CN=root ca | root trusted ca | leaf < root"),
    ("CS", "root ca | other trusted subject=/CN=root ca | leaf < root"),
    // Extensions that are unknown or make no sense.
    ("CS", "root ca | leaf < root 1.2.3.4=ASN1:NULL"),
    ("--", "root ca | leaf < root 1.2.3.4=critical,ASN1:NULL"),
    ("--", "root ca 1.2.3.4=critical,ASN1:NULL | leaf < root"),
    ("--", "root ca | middle < root ca 1.2.3.4=critical,ASN1:NULL | leaf < middle"),
    ("--", "root ca | leaf < root subjectKeyIdentifier=critical,hash"),
    ("CS", "root ca | leaf < root certificatePolicies=critical,1.2.3.4"),
    ("CS", "root ca | leaf < root inhibitAnyPolicy=critical,0"),
    ("CS", "root ca | leaf < root noCheck=critical,ignored"),
    ("--", "root ca | leaf < root basicConstraints=DER:01:02"),
    ("--", "root ca | leaf < root keyUsage=DER:03:02:00:00"),
    ("--", "root ca | leaf < root subjectAltName=DER:04:00"),
    ("--", "root ca | leaf < root extendedKeyUsage=DER:05:00"),
    ("--", "root basicConstraints=CA:TRUE keyUsage=DER:05:00 | leaf < root"),
    (
        "--",
        "root ca | leaf < root 1.3.6.1.5.5.7.1.14=DER:30:0c:30:0a:06:08:2b:06:01:05:05:07:15:01",
    ),
    // Keys and signatures.
    ("CS", "root ca key=p384 | leaf < root key=p384"),
    ("CS", "root ca key=p521 md=sha512 | leaf < root md=sha512 key=p521"),
    ("CS", "root ca key=p521 | leaf < root md=sha224"),
    ("CS", "root ca | leaf < root md=sha512"),
    ("CS", "root ca | leaf < root md=sha384"),
    ("CS", "root ca | leaf < root md=sha224"),
    ("CS", "root ca key=p384 | leaf < root md=sha512"),
    ("CS", "root ca key=p384 | leaf < root md=sha256"),
    ("CS", "root ca key=p384 | leaf < root md=sha224"),
    ("--", "root ca | leaf < root md=sha1"),
    ("CS", "root ca md=sha1 | leaf < root"),
    ("CS", "own md=sha1"),
    ("CS", "root ca key=rsa2048 | leaf < root key=rsa2048"),
    ("CS", "root ca key=rsa2048 | leaf < root md=sha384"),
    ("CS", "root ca key=rsa2048 | leaf < root md=sha512"),
    ("--", "root ca key=rsa2048 | leaf < root md=sha1"),
    ("--", "root ca key=rsa1024 | leaf < root"),
    ("--", "root ca | leaf < root key=rsa1024"),
    ("--", "own key=rsa1024"),
    ("--", "root ca | other key=rsa2048 ca kept subject=/CN=root | leaf < other"),
    ("CS", "root ca key=ed25519 md=null | leaf < root md=null"),
    ("CS", "root ca | leaf < root key=ed25519"),
    // Name constraints.
    (
        "CS",
        "root ca nameConstraints=permitted;DNS:example | leaf < root subjectAltName=DNS:a.example",
    ),
    ("--", "root ca nameConstraints=permitted;DNS:example | leaf < root subjectAltName=DNS:a.test"),
    (
        "--",
        "root ca nameConstraints=excluded;DNS:example | leaf < root subjectAltName=DNS:a.example",
    ),
    ("CS", "root ca nameConstraints=excluded;DNS:example | leaf < root subjectAltName=DNS:a.test"),
    (
        "--",
        "root ca nameConstraints=critical,permitted;DNS:example | \
            leaf < root subject=/CN=a.test",
    ),
    ("CS", "root ca nameConstraints=permitted;DNS:example | leaf < root subject=/CN=app"),
    (
        "CS",
        "root ca nameConstraints=permitted;IP:10.0.0.0/255.0.0.0 | \
            leaf < root subjectAltName=IP:10.1.2.3",
    ),
    (
        "--",
        "root ca nameConstraints=permitted;IP:10.0.0.0/255.0.0.0 | \
            leaf < root subjectAltName=IP:11.1.2.3",
    ),
    (
        "--",
        "root ca nameConstraints=permitted;email:example | leaf < root subjectAltName=email:a@test",
    ),
    (
        "--",
        "root ca nameConstraints=permitted;email:example | \
            leaf < root subject=/CN=a/emailAddress=a@test",
    ),
    (
        "--",
        "root ca nameConstraints=permitted;URI:.example | \
            leaf < root subjectAltName=URI:https://test/",
    ),
    (
        "--",
        "root ca nameConstraints=permitted;otherName:1.2.3;UTF8:a | \
            leaf < root subjectAltName=otherName:1.2.3;UTF8:b",
    ),
    (
        "--",
        "root ca | middle < root ca nameConstraints=excluded;DNS:example | \
            low < middle ca | leaf < low subjectAltName=DNS:a.example",
    ),
    ("CS", "root ca nameConstraints=permitted;DNS:example | middle < root ca | leaf < middle"),
];

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
