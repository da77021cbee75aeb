//! Cancel keys. Long ones (protocol 3.2) are the four bytes of protocol 3.0, followed by a tag that
//! only Weir's own secret can produce. Checking a key needs no stored data.
//!
//! Among peers a key contains its peer, at PgBouncer's positions. The second and third of its eight
//! bytes are the peer's number, low byte first. The lowest two bits of the eighth byte say how
//! often a request may still be forwarded.

use subtle::ConstantTimeEq as _;

use crate::scram::hmac;

/// Length of a long secret in bytes, as in PostgreSQL 18.
pub const LONG_SECRET_LEN: usize = 32;
/// The number of these bytes that follow the first four.
pub const TAG_LEN: usize = LONG_SECRET_LEN - 4;

/// The part of a key that makes it hard to guess.
pub type Tag = [u8; TAG_LEN];

/// The bits that count how often a request may be forwarded.
const TTL_MASK: u64 = 3;
const PEER_MASK: u64 = 0x00ff_ff00_0000_0000;
/// The greatest process id that Linux can be configured to use (`PID_MAX_LIMIT`).
const PROCESS_ID_MAX: u64 = 4_194_304;
/// A bit of the process id that the peer's number leaves free.
const ABOVE_PROCESS_IDS: u64 = 1 << 62;

/// Puts this peer's number into a key.
#[must_use]
pub fn of_peer(key: u64, peer: u16) -> u64 {
    let [low, high] = peer.to_le_bytes();
    fresh(key & !PEER_MASK) | u64::from(low) << 48 | u64::from(high) << 40
}

/// Changes the key's process id to one that no process can have. Otherwise a client that passes its
/// id to `pg_terminate_backend` could terminate another client's server.
#[must_use]
pub fn of_no_process(key: u64) -> u64 {
    match key >> 32 <= PROCESS_ID_MAX {
        true => key | ABOVE_PROCESS_IDS,
        false => key,
    }
}

/// Is it a process id that no process can have, so that Weir may have created it?
#[must_use]
pub fn is_of_no_process(process_id: u32) -> bool {
    u64::from(process_id) > PROCESS_ID_MAX
}

/// Returns the peer that made the key.
#[must_use]
pub fn peer(key: u64) -> u16 {
    let [_, low, high, ..] = key.to_be_bytes();
    u16::from_le_bytes([low, high])
}

/// Returns a peer's key as it was created, however often it was forwarded since.
#[must_use]
pub fn fresh(key: u64) -> u64 {
    key | TTL_MASK
}

/// Returns the key to forward to its peer; `None` if it was forwarded too often.
#[must_use]
pub fn passed_on(key: u64) -> Option<u64> {
    (key & TTL_MASK > 0).then(|| key - 1)
}

/// Returns the tag of the key with this process id (upper half) and short secret (lower half).
#[must_use]
pub fn tag(seed: &[u8; 32], key: u64) -> Tag {
    let whole = hmac(seed, &[b"cancel key", &key.to_be_bytes()]);
    let mut tag = [0; TAG_LEN];
    tag.iter_mut().zip(whole).for_each(|(byte, from)| *byte = from);
    tag
}

/// Is this the key's tag? The time does not depend on where they differ.
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
