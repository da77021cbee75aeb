//! The form in which a server stores a user's password.

use std::fmt;

use subtle::ConstantTimeEq;

use super::attributes::{decode, decode_key, encode};
use super::exchange::MECHANISM;
use super::keys::{ScramKeys, hmac, sha256};

/// The value PostgreSQL keeps in `pg_authid.rolpassword`. It suffices to check a client's proof,
/// not to give one. `Display` writes the stored form; `Debug` shows no keys.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramVerifier {
    /// At least 1.
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
    /// should be random; PostgreSQL's has 16 bytes. No iterations count as one.
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

    /// A verifier that no password satisfies, for a user who does not exist. The same seed and
    /// name give the same salt each time, so that asking twice does not tell that it is made up.
    /// The seed must be secret, and should live as long as the process or longer.
    #[must_use]
    pub fn mock(seed: &[u8; 32], user: &[u8], iterations: u32) -> Self {
        Self {
            iterations: iterations.max(1),
            salt: Self::salt(seed, user).to_vec(),
            stored_key: hmac(seed, &[b"stored key", user]),
            server_key: hmac(seed, &[b"server key", user]),
        }
    }

    /// A salt for a user of whom only the password is known, or nothing at all: the same for the
    /// same seed and name, and nobody who has not the seed can tell it from a random one.
    #[must_use]
    pub fn salt(seed: &[u8; 32], user: &[u8]) -> [u8; 16] {
        let digest = hmac(seed, &[b"salt", user]);
        digest.first_chunk().copied().unwrap_or_default()
    }

    /// Whether the verifier was made from this password, at the cost of deriving the keys.
    #[must_use]
    pub fn verify_password(&self, password: &[u8]) -> bool {
        let keys = ScramKeys::from_password(password, &self.salt, self.iterations);
        self.verify_client_key(&keys.client_key)
    }

    /// Whether this is the key the verifier was made from. Takes the same time for all wrong ones.
    #[must_use]
    pub fn verify_client_key(&self, client_key: &[u8; 32]) -> bool {
        sha256(client_key).ct_eq(&self.stored_key).into()
    }
}

/// Digits only (`parse` alone would take a sign), and not zero.
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
