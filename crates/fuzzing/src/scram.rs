//! Both sides of SCRAM: hostile messages, and an honest exchange with one altered message.
//!
//! The first byte chooses the test. The rest are one or two messages, separated by a NUL, or the
//! change: the message, the position, and the new bytes.

use std::sync::Arc;

use wire::scram::{ITERATIONS_DEFAULT, MECHANISM, NONCE_LEN, ScramClient, ScramKeys, ScramSecret};
use wire::scram::{ScramServer, ScramVerifier};
use wire::secret::Secret;

use crate::rng::Rng;

const LEN_MAX: usize = 4_096;
/// A single iteration suffices, since the secret cannot be guessed in a test.
const ITERATIONS: u32 = 1;

pub fn scram(data: &[u8]) {
    let [choice, rest @ ..] = data else { return };
    let rest = &rest[..rest.len().min(LEN_MAX)];
    let secret = Rng::of(data).next().to_be_bytes();
    match choice % 4 {
        0 => hostile_client(rest, &secret),
        1 => hostile_server(rest, &secret),
        2 => tampered(rest, &secret),
        _ => stored(rest),
    }
}

fn nonce(fill: u8) -> [u8; NONCE_LEN] {
    [fill; NONCE_LEN]
}

fn two(bytes: &[u8]) -> (&[u8], &[u8]) {
    let at = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    (&bytes[..at], bytes.get(at + 1..).unwrap_or_default())
}

fn hostile_client(bytes: &[u8], secret: &[u8]) {
    let (first, last) = two(bytes);
    let verifier = ScramVerifier::from_password(secret, b"salt", ITERATIONS);
    let mut server = ScramServer::new(verifier, nonce(7));
    let _ = server.client_first(MECHANISM.as_bytes(), first);
    assert!(server.client_final(last).is_err(), "let in without the password");
    assert!(server.client_first(MECHANISM.as_bytes(), first).is_err(), "an exchange begins twice");
}

fn hostile_server(bytes: &[u8], secret: &[u8]) {
    let (first, last) = two(bytes);
    let keys = ScramKeys::from_password(secret, b"salt", ITERATIONS);
    let mut client = ScramClient::new(ScramSecret::Keys(keys), nonce(7));
    client.first();
    let _ = client.server_first(first);
    assert!(client.server_final(last).is_err(), "a server that does not know the keys is believed");
}

/// Checks that an altered message never succeeds, and that an unaltered exchange does.
fn tampered(bytes: &[u8], secret: &[u8]) {
    let [which, at_high, at_low, put @ ..] = bytes else { return };
    let at = usize::from(u16::from_be_bytes([*at_high, *at_low]));
    let verifier = ScramVerifier::from_password(secret, b"salt", ITERATIONS);
    // Tests with and without channel binding.
    let end_point: Arc<[u8]> = if which & 0x80 == 0 { [].into() } else { [3; 32].into() };
    let mut server = ScramServer::new(verifier, nonce(1)).bound_to(&end_point);
    let mut client = ScramClient::new(ScramSecret::Password(secret.to_vec()), nonce(2))
        .bound_to(&end_point, true);
    let mechanism = client.mechanism().as_bytes();
    let mut changed = false;
    let mut is_extended = false;
    let mut step = 0;
    let mut pass = |message: Vec<u8>| {
        step += 1;
        if step != which % 4 + 1 {
            return message;
        }
        let mut other = message.clone();
        let end = at + put.len();
        if end <= other.len() {
            other[at..end].copy_from_slice(put);
        } else {
            other.extend_from_slice(put);
        }
        // Bytes after the server's signature are not signed and have no meaning.
        is_extended = step == 4 && other.starts_with(&[&message, &b","[..]].concat());
        changed = other != message;
        other
    };
    let first = pass(client.first());
    let agreed = (|| {
        let challenge = pass(server.client_first(mechanism, &first).ok()?);
        if asks_for_much(&challenge) {
            return None;
        }
        let proof = pass(client.server_first(&challenge).ok()?);
        let finished = server.client_final(&proof).ok()?;
        client.server_final(&pass(finished.reply)).ok()
    })();
    assert!(is_extended || agreed.is_some() != changed, "changed: {changed}");
}

/// Returns whether the challenge has too many iterations for a test. A million are allowed, and
/// take a second.
fn asks_for_much(challenge: &[u8]) -> bool {
    let text = String::from_utf8_lossy(challenge);
    let iterations = text.rsplit(",i=").next().and_then(|text| text.parse::<u32>().ok());
    iterations.is_none_or(|iterations| iterations > ITERATIONS_DEFAULT)
}

/// Checks the text of a secret in an auth_file.
fn stored(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Some(verifier) = ScramVerifier::parse(&text) else { return };
    let written = verifier.to_string();
    assert_eq!(ScramVerifier::parse(&written), Some(verifier), "{written}");
    assert!(matches!(Secret::parse(&text), Secret::Scram(_)));
}
