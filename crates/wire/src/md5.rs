//! PostgreSQL's MD5 passwords: the stored hash, and the response that proves it.
//!
//! MD5 is broken as a hash, and the stored value suffices to log in. It is supported because
//! installations still have such values.

use md5::{Digest, Md5};
use subtle::ConstantTimeEq;

/// The first bytes of a stored value and of a response.
const PREFIX: &str = "md5";

/// Returns the stored form for a user: `md5` and 32 hexadecimal digits of the hash of password and
/// user name.
#[must_use]
pub fn hash(user: &[u8], password: &[u8]) -> String {
    prefixed_digest(password, user)
}

/// Returns the response to `salt` for the `stored` value (from [`hash`]): `md5` and 32 hexadecimal
/// digits.
#[must_use]
pub fn response(stored: &str, salt: [u8; 4]) -> String {
    let digits = stored.strip_prefix(PREFIX).unwrap_or(stored);
    prefixed_digest(digits.as_bytes(), &salt)
}

/// Is `given` the response to `salt` for the `stored` value? The time does not depend on where they
/// differ.
#[must_use]
pub fn verify(stored: &str, salt: [u8; 4], given: &[u8]) -> bool {
    response(stored, salt).as_bytes().ct_eq(given).into()
}

/// Has a stored value the form of [`hash`]? PostgreSQL accepts only lower-case digits, and treats
/// everything else as a cleartext password.
#[must_use]
pub fn is_stored(value: &str) -> bool {
    value.strip_prefix(PREFIX).is_some_and(|digits| {
        digits.len() == 32 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Returns the first 64 bits of a text's MD5: PostgreSQL's `left(md5(text), 16)` as a number. Use
/// it where an attacker gains nothing from collisions.
#[must_use]
pub fn fingerprint(text: &[u8]) -> u64 {
    let digest = Md5::digest(text);
    digest.iter().take(size_of::<u64>()).fold(0, |bits, byte| bits << 8 | u64::from(*byte))
}

fn prefixed_digest(first: &[u8], second: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digest = Md5::new().chain_update(first).chain_update(second).finalize();
    let mut text = String::with_capacity(PREFIX.len() + 2 * digest.len());
    text.push_str(PREFIX);
    for byte in digest {
        text.extend(
            [byte >> 4, byte & 0xf].iter().filter_map(|digit| DIGITS.get(usize::from(*digit))),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    // python: 'md5' + hashlib.md5(password + user).hexdigest()
    const VECTORS: &[(&str, &str, &str)] = &[
        ("alice", "secret", "md54a0a68b43b6cd5cf266fa02f196e2371"),
        ("postgres", "", "md5e8a48653851e28c69d0506508fb27fc5"),
        ("", "x", "md59dd4e461268c8034f5c8564e155c67a6"),
        ("Zoë", "pässwörd", "md5ea9e71707ec2e05232b63aa8318ba01f"),
    ];

    #[test]
    fn stored_values_are_postgresqls() {
        for (user, password, expected) in VECTORS {
            assert_eq!(hash(user.as_bytes(), password.as_bytes()), *expected);
            assert!(is_stored(expected));
        }
    }

    #[test]
    fn a_response_hashes_the_digits_with_the_salt() {
        let (stored, salt) = (hash(b"alice", b"secret"), [1, 2, 0xfe, 0]);
        let expected = "md5219241086d97207b1680e30a8d1e9331";
        assert_eq!(response(&stored, salt), expected);
        assert!(verify(&stored, salt, expected.as_bytes()));
        assert!(!verify(&stored, salt, &expected.as_bytes()[..34]));
        assert!(!verify(&stored, salt, b""));
        assert!(!verify(&stored, [1, 2, 0xfe, 1], expected.as_bytes()));
        assert!(!verify(&hash(b"alice", b"Secret"), salt, expected.as_bytes()));
    }

    /// From PostgreSQL's own `md5`.
    #[test]
    fn a_fingerprint_is_the_first_half_of_a_digest() {
        assert_eq!(fingerprint(b""), 0xd41d_8cd9_8f00_b204);
        assert_eq!(fingerprint(b"CREATE TEMP TABLE t (a int)"), 0x9d89_8643_d16f_72ed);
    }

    #[test]
    fn only_lower_case_digits_make_a_stored_value() {
        let stored = hash(b"u", b"p");
        assert!(!is_stored(&stored[..34]));
        assert!(!is_stored(&format!("{stored}0")));
        assert!(!is_stored(&stored.to_uppercase()));
        assert!(!is_stored(&stored.replace("md5", "MD5")));
        assert!(!is_stored("md5zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"));
    }
}
