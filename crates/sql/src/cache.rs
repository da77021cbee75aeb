//! A cache of the signs of recurring texts, by a digest of the text.

use core::hash::Hasher;

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;

use crate::names::mix;
use crate::scanner::scan_either;
use crate::signs::Seen;

/// A table of fixed size, without chains: if two texts have the same slot, the later one stays.
///
/// A text is identified by its length and two digests of 64 bits. Their keys come from the seed. A
/// client that does not know the seed cannot make two texts that are confused.
pub struct Cache {
    /// Both parts of a key must be secret. With the crate's own fixed part, some texts have equal
    /// digests for every other part.
    keys: [(u64, SharedSeed); 2],
    slots: Box<[Slot]>,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    /// No text has this tag: `len` has its highest bit set and is never 0.
    tag: [u64; 2],
    len: u64,
    seen: Seen,
}

impl Cache {
    /// `seed` must be random and secret. A slot takes 40 bytes; their number is rounded up to a
    /// power of two.
    pub fn new(seed: u64, slots: usize) -> Self {
        let keys = [seed, mix(!seed)].map(|seed| (mix(seed), SharedSeed::from_u64(seed)));
        let slots = vec![Slot::default(); slots.next_power_of_two()];
        Self { keys, slots: slots.into_boxed_slice() }
    }

    /// As [`scan_either`].
    pub fn scan(&mut self, text: &[u8]) -> Seen {
        let tag = [&self.keys[0], &self.keys[1]].map(|(seed, shared)| {
            let mut hasher = FoldHasher::with_seed(*seed, shared);
            hasher.write(text);
            hasher.finish()
        });
        let len = text.len() as u64 | 1 << 63;
        let place = tag[0] as usize & (self.slots.len() - 1);
        let Some(slot) = self.slots.get_mut(place) else { return scan_either(text) };
        if slot.tag != tag || slot.len != len {
            *slot = Slot { tag, len, seen: scan_either(text) };
        }
        slot.seen
    }
}

impl core::fmt::Debug for Cache {
    /// Formats the cache without its keys.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Cache").field("slots", &self.slots.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scanner::scan;

    #[test]
    fn a_text_is_remembered_and_told_from_others() {
        let mut cache = Cache::new(7, 4);
        let texts: Vec<_> = (0..200)
            .map(|n| match n % 3 {
                0 => format!("SELECT {n}"),
                1 => format!("SET x = {n}"),
                _ => format!("SELECT 'a\\', set_config('a', 'b', false) --' {n}"),
            })
            .collect();
        for _ in 0..2 {
            for text in &texts {
                let expected = scan(text.as_bytes(), true) | scan(text.as_bytes(), false);
                assert_eq!(cache.scan(text.as_bytes()), expected, "{text}");
                assert_eq!(cache.scan(text.as_bytes()), expected, "{text}");
            }
        }
    }

    #[test]
    fn the_empty_text_is_no_empty_slot() {
        for seed in 0..100 {
            assert_eq!(Cache::new(seed, 0).scan(b""), Seen::default());
        }
    }
}
