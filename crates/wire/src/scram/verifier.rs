//! The form in which a server stores a user's password.

use std::fmt;

use subtle::ConstantTimeEq;

use super::attributes::{decode, decode_key, encode};
use super::exchange::{ITERATIONS_MAX, MECHANISM};
use super::keys::{ScramKeys, hmac, sha256};

/// The value of PostgreSQL's `pg_authid.rolpassword`. It suffices to check a client's proof, but
/// not to produce one. `Display` writes the stored form; `Debug` shows no keys.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramVerifier {
    /// The number of iterations, at least 1.
    pub iterations: u32,
    pub salt: Vec<u8>,
    /// The SHA-256 of the client key.
    pub stored_key: [u8; 32],
    pub server_key: [u8; 32],
}

impl ScramVerifier {
    /// Reads `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(MECHANISM)?.strip_prefix('$')?;
        let (parameters, keys) = rest.split_once('$')?;
        let (iterations, salt) = parameters.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        Some(Self {
            iterations: parse_iterations(iterations.as_bytes())?,
            salt: decode(salt.as_bytes())?,
            stored_key: decode_key(stored_key.as_bytes())?,
            server_key: decode_key(server_key.as_bytes())?,
        })
    }

    /// Derives the verifier from a password, at the cost of [`ScramKeys::from_password`]. The salt
    /// should be random; PostgreSQL's has 16 bytes. 0 iterations count as 1.
    #[must_use]
    pub fn from_password(password: &[u8], salt: &[u8], iterations: u32) -> Self {
        let keys = ScramKeys::from_password(password, salt, iterations);
        Self {
            iterations: iterations.max(1),
            salt: salt.to_vec(),
            stored_key: sha256(&keys.client_key),
            server_key: keys.server_key,
        }
    }

    /// Returns a verifier that no password satisfies, for an unknown user. The same seed and name
    /// always give the same salt, so repeated logins do not reveal it as made up. The seed must be
    /// secret, and should live at least as long as the process.
    #[must_use]
    pub fn mock(seed: &[u8; 32], user: &[u8], iterations: u32) -> Self {
        Self {
            iterations: iterations.max(1),
            salt: Self::salt(seed, user).to_vec(),
            stored_key: hmac(seed, &[b"stored key", user]),
            server_key: hmac(seed, &[b"server key", user]),
        }
    }

    /// Returns a salt for a user without a stored one: always the same for the same seed and name.
    /// Without the seed it looks random.
    #[must_use]
    pub fn salt(seed: &[u8; 32], user: &[u8]) -> [u8; 16] {
        let digest = hmac(seed, &[b"salt", user]);
        digest.first_chunk().copied().unwrap_or_default()
    }

    /// Was the verifier made from this password? Deriving the keys takes time.
    #[must_use]
    pub fn verify_password(&self, password: &[u8]) -> bool {
        // Roles choose their own verifiers in PostgreSQL, and each iteration takes time here.
        if self.iterations > ITERATIONS_MAX {
            return false;
        }
        let keys = ScramKeys::from_password(password, &self.salt, self.iterations);
        self.verify_client_key(&keys.client_key)
    }

    /// Was the verifier made from this key? The time is the same for all wrong keys.
    #[must_use]
    pub fn verify_client_key(&self, client_key: &[u8; 32]) -> bool {
        sha256(client_key).ct_eq(&self.stored_key).into()
    }
}

/// Accepts only digits (`parse` alone would accept a sign), and not zero.
pub(super) fn parse_iterations(text: &[u8]) -> Option<u32> {
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(text).ok()?.parse().ok().filter(|iterations| *iterations > 0)
}

impl fmt::Display for ScramVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [salt, stored_key, server_key] =
            [&self.salt[..], &self.stored_key, &self.server_key].map(encode);
        write!(f, "{MECHANISM}${}:{salt}${stored_key}:{server_key}", self.iterations)
    }
}

impl fmt::Debug for ScramVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScramVerifier")
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}
