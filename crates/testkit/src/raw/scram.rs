//! SCRAM-SHA-256 (RFC 5802, RFC 7677) from the client's side, for ASCII passwords.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use std::sync::atomic::{AtomicU32, Ordering};

/// Base64 of `n,,`: no channel binding.
const BINDING: &str = "biws";

/// One exchange.
pub(super) struct Scram {
    password: String,
    nonce: String,
    server_signature: Vec<u8>,
}

impl Scram {
    pub(super) fn new(password: &str) -> Self {
        static EXCHANGES: AtomicU32 = AtomicU32::new(0);
        // Always of the same length, so that the lengths of two exchanges can be compared.
        let nonce = format!("testkit{:08}", EXCHANGES.fetch_add(1, Ordering::Relaxed));
        Self { password: password.to_owned(), nonce, server_signature: Vec::new() }
    }

    pub(super) fn first(&self) -> String {
        format!("n,,{}", self.first_bare())
    }

    /// Returns the proof for the server's challenge.
    #[track_caller]
    pub(super) fn answer(&mut self, challenge: &str) -> String {
        let nonce = attribute(challenge, "r=");
        assert!(nonce.starts_with(&self.nonce), "the server's nonce does not begin with ours");
        let salt = BASE64.decode(attribute(challenge, "s=")).expect("salt is base64");
        let iterations = attribute(challenge, "i=").parse().expect("iterations is a number");

        let salted = salted_password(self.password.as_bytes(), &salt, iterations);
        let client_key = hmac(&salted, b"Client Key");
        let server_key = hmac(&salted, b"Server Key");
        let unproven = format!("c={BINDING},r={nonce}");
        let signed = format!("{},{challenge},{unproven}", self.first_bare());
        let signature = hmac(&Sha256::digest(&client_key), signed.as_bytes());
        self.server_signature = hmac(&server_key, signed.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(k, s)| k ^ s).collect();
        format!("{unproven},p={}", BASE64.encode(proof))
    }

    /// Checks the proof that the server knows the password.
    #[track_caller]
    pub(super) fn check_final(&self, message: &str) {
        let signature = BASE64.decode(attribute(message, "v=")).expect("signature is base64");
        assert_eq!(signature, self.server_signature, "the server's signature is wrong");
    }

    fn first_bare(&self) -> String {
        format!("n=,r={}", self.nonce)
    }
}

fn attribute<'a>(message: &'a str, key: &str) -> &'a str {
    message
        .split(',')
        .find_map(|part| part.strip_prefix(key))
        .unwrap_or_else(|| panic!("no {key} in SCRAM message {message}"))
}

fn salted_password(password: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
    let mut block = hmac(password, &[salt, &1u32.to_be_bytes()].concat());
    let mut result = block.clone();
    for _ in 1..iterations {
        block = hmac(password, &block);
        result.iter_mut().zip(&block).for_each(|(r, b)| *r ^= b);
    }
    result
}

fn hmac(key: &[u8], data: &[u8]) -> Vec<u8> {
    let mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.chain_update(data).finalize().into_bytes().to_vec()
}
