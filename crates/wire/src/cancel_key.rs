//! Long cancel keys, as protocol 3.2 allows them: the four bytes of protocol 3.0, and behind them
//! a tag that nobody can make up without the pooler's own secret. Nothing has to be remembered
//! for a key to be checked.

use subtle::ConstantTimeEq as _;

use crate::scram::hmac;

/// Bytes of a long secret. PostgreSQL 18 gives out as many.
pub const LONG_SECRET_LEN: usize = 32;
/// Of these, the bytes behind the first four.
pub const TAG_LEN: usize = LONG_SECRET_LEN - 4;

/// What makes a key hard to guess.
pub type Tag = [u8; TAG_LEN];

/// The tag of the key with this process id (upper half) and short secret (lower half).
#[must_use]
pub fn tag(seed: &[u8; 32], key: u64) -> Tag {
    let whole = hmac(seed, &[b"cancel key", &key.to_be_bytes()]);
    let mut tag = [0; TAG_LEN];
    tag.iter_mut().zip(whole).for_each(|(byte, from)| *byte = from);
    tag
}

/// Is this the key's tag? Takes the same time wherever the first difference is.
#[must_use]
pub fn verify(seed: &[u8; 32], key: u64, given: &Tag) -> bool {
    tag(seed, key).ct_eq(given).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_belongs_to_one_key_and_one_seed() {
        let given = tag(&[1; 32], 7);
        assert!(verify(&[1; 32], 7, &given));
        assert!(!verify(&[1; 32], 8, &given) && !verify(&[2; 32], 7, &given));
        let mut wrong = given;
        wrong[TAG_LEN - 1] ^= 1;
        assert!(!verify(&[1; 32], 7, &wrong));
    }
}
