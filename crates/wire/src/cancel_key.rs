//! Cancel keys. Long ones, as protocol 3.2 allows them, are the four bytes of protocol 3.0 and
//! behind them a tag that nobody can make up without the pooler's own secret. Nothing has to be
//! remembered for a key to be checked.
//!
//! Among peers a key tells whose it is, at PgBouncer's places: the second and third byte of its
//! eight are the peer's number, the low byte first, and the lowest two bits of the eighth say how
//! often a request may still be passed on.

use subtle::ConstantTimeEq as _;

use crate::scram::hmac;

/// Bytes of a long secret. PostgreSQL 18 gives out as many.
pub const LONG_SECRET_LEN: usize = 32;
/// Of these, the bytes behind the first four.
pub const TAG_LEN: usize = LONG_SECRET_LEN - 4;

/// The part of a key that makes it hard to guess.
pub type Tag = [u8; TAG_LEN];

/// How often a request may be passed on at most.
const TTL_MASK: u64 = 3;
const PEER_MASK: u64 = 0x00ff_ff00_0000_0000;
/// The greatest process id that Linux can be told to give out (`PID_MAX_LIMIT`).
const PROCESS_ID_MAX: u64 = 4_194_304;
/// A bit of the process id that the peer's number leaves free.
const ABOVE_PROCESS_IDS: u64 = 1 << 62;

/// Makes a key one of this peer's.
#[must_use]
pub fn of_peer(key: u64, peer: u16) -> u64 {
    let [low, high] = peer.to_le_bytes();
    fresh(key & !PEER_MASK) | u64::from(low) << 48 | u64::from(high) << 40
}

/// Makes the key's process id one that no process can have. Otherwise a client that gives its id to
/// `pg_terminate_backend` could end another client's server.
#[must_use]
pub fn of_no_process(key: u64) -> u64 {
    match key >> 32 <= PROCESS_ID_MAX {
        true => key | ABOVE_PROCESS_IDS,
        false => key,
    }
}

/// Is it a process id that no process can have, and so one that we may have given out?
#[must_use]
pub fn is_of_no_process(process_id: u32) -> bool {
    u64::from(process_id) > PROCESS_ID_MAX
}

/// The peer that made the key.
#[must_use]
pub fn peer(key: u64) -> u16 {
    let [_, low, high, ..] = key.to_be_bytes();
    u16::from_le_bytes([low, high])
}

/// A peer's key as it was given out, however often it was passed on since.
#[must_use]
pub fn fresh(key: u64) -> u64 {
    key | TTL_MASK
}

/// The key to pass on to the peer it belongs to; `None` if that was done too often.
#[must_use]
pub fn passed_on(key: u64) -> Option<u64> {
    (key & TTL_MASK > 0).then(|| key - 1)
}

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

    #[test]
    fn a_process_id_of_ours_is_above_those_of_the_system() {
        for (key, expected) in [
            (0x0000_0000_eeff_1123, 0x4000_0000_eeff_1123),
            (0x0040_0000_eeff_1123, 0x4040_0000_eeff_1123),
            (0x0040_0001_eeff_1123, 0x0040_0001_eeff_1123),
            (0x7fff_ffff_eeff_1123, 0x7fff_ffff_eeff_1123),
        ] {
            assert_eq!(of_no_process(key), expected, "{key:x}");
        }
        let key = of_no_process(of_peer(0x0000_0012_eeff_1123, 1));
        assert_eq!((key >> 32, peer(key)), (0x4001_0012, 1));
    }

    #[test]
    fn a_peers_key_has_its_number_where_pgbouncer_has_it() {
        let key = of_peer(0x7abb_ccdd_eeff_1120, 0x1234);
        assert_eq!(key, 0x7a34_12dd_eeff_1123);
        assert_eq!(peer(key), 0x1234);
        let mut last = key;
        for _ in 0..3 {
            last = passed_on(last).unwrap();
            assert_eq!((fresh(last), peer(last)), (key, 0x1234));
        }
        assert_eq!(passed_on(last), None);
    }
}
