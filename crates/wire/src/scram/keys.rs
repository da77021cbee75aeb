//! The hashes of SCRAM: from a password to keys, and from keys to proofs and signatures.

use std::fmt;

use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

use super::saslprep::saslprep;

/// The two keys derived from a password, a salt and a number of iterations. At servers with the
/// same verifier they are equivalent to the password. `Debug` does not show them.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramKeys {
    /// Proves the client to the server.
    pub client_key: [u8; 32],
    /// Proves the server to the client.
    pub server_key: [u8; 32],
}

impl ScramKeys {
    /// Derives the keys, which costs two SHA-256 blocks per iteration (about a millisecond for
    /// PostgreSQL's 4096).
    #[must_use]
    pub fn from_password(password: &[u8], salt: &[u8], iterations: u32) -> Self {
        let salted = salted_password(&saslprep(password), salt, iterations);
        Self {
            client_key: hmac(&salted, &[b"Client Key"]),
            server_key: hmac(&salted, &[b"Server Key"]),
        }
    }
}

impl fmt::Debug for ScramKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScramKeys").finish_non_exhaustive()
    }
}

/// PBKDF2 with HMAC-SHA-256, of which SCRAM needs one block.
fn salted_password(password: &[u8], salt: &[u8], iterations: u32) -> [u8; 32] {
    let keyed = keyed(password);
    let first = keyed.clone().chain_update(salt).chain_update(1_u32.to_be_bytes());
    let mut block: [u8; 32] = first.finalize().into_bytes().into();
    let mut salted = block;
    for _ in 1..iterations {
        block = keyed.clone().chain_update(block).finalize().into_bytes().into();
        salted = xor(salted, block);
    }
    salted
}

/// Returns the HMAC-SHA-256 of the concatenated parts.
pub(crate) fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = keyed(key);
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// Pads the key to a block here, because the constructor for any length returns a Result.
fn keyed(key: &[u8]) -> Hmac<Sha256> {
    let hashed;
    let key = if key.len() > 64 {
        hashed = sha256(key);
        &hashed[..]
    } else {
        key
    };
    let mut block = [0; 64];
    for (slot, byte) in block.iter_mut().zip(key) {
        *slot = *byte;
    }
    Hmac::new(&block.into())
}

pub(super) fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

pub(super) fn xor(mut left: [u8; 32], right: [u8; 32]) -> [u8; 32] {
    for (byte, other) in left.iter_mut().zip(right) {
        *byte ^= other;
    }
    left
}
