//! Caches of what is known about recurring texts, by a digest of the text.

use core::hash::Hasher;

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;

use crate::catalog::view::CatalogView;
use crate::names::mix;
use crate::reads::{Verdict, read_verdict};
use crate::scanner::scan_either;
use crate::signs::Seen;

/// A table of fixed size, without chains: if two texts have the same slot, the later one stays.
///
/// A text is identified by its length and two digests of 64 bits. Their keys come from the seed. A
/// client that does not know the seed cannot make two texts that are confused.
pub struct Cache<V = Seen> {
    /// Both parts of a key must be secret. With the crate's own fixed part, some texts have equal
    /// digests for every other part.
    keys: [(u64, SharedSeed); 2],
    slots: Box<[Slot<V>]>,
}

#[derive(Clone, Copy, Default)]
struct Slot<V> {
    /// No text has this tag: `len` has its highest bit set and is never 0.
    tag: [u64; 2],
    len: u64,
    value: V,
}

impl<V: Copy + Default> Cache<V> {
    /// `seed` must be random and secret. A slot takes 40 bytes; their number is rounded up to a
    /// power of two.
    pub fn new(seed: u64, slots: usize) -> Self {
        let keys = [seed, mix(!seed)].map(|seed| (mix(seed), SharedSeed::from_u64(seed)));
        let slots = vec![Slot::default(); slots.next_power_of_two()];
        Self { keys, slots: slots.into_boxed_slice() }
    }

    /// Returns the value of a text. Texts with another `salt` are other texts.
    #[inline]
    fn value(&mut self, text: &[u8], salt: u64, make: impl FnOnce() -> V) -> V {
        let mut tag = [&self.keys[0], &self.keys[1]].map(|(seed, shared)| {
            let mut hasher = FoldHasher::with_seed(*seed, shared);
            hasher.write(text);
            hasher.finish()
        });
        tag[1] ^= salt;
        let len = text.len() as u64 | 1 << 63;
        let place = tag[0] as usize & (self.slots.len() - 1);
        let Some(slot) = self.slots.get_mut(place) else { return make() };
        if slot.tag != tag || slot.len != len {
            *slot = Slot { tag, len, value: make() };
        }
        slot.value
    }
}

impl Cache {
    /// As [`scan_either`].
    pub fn scan(&mut self, text: &[u8]) -> Seen {
        self.value(text, 0, || scan_either(text))
    }
}

impl Cache<Option<Verdict>> {
    /// Returns the verdict on a text. `view` has this number among all views; 0 = there is none.
    pub fn judge(&mut self, text: &[u8], view: Option<&CatalogView>, number: u64) -> Verdict {
        let judge = || read_verdict(text, scan_either(text), view).verdict;
        self.value(text, number, || Some(judge())).unwrap_or_else(judge)
    }
}

impl<V> core::fmt::Debug for Cache<V> {
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
        let mut cache = Cache::<Seen>::new(7, 4);
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
            assert_eq!(Cache::<Seen>::new(seed, 0).scan(b""), Seen::default());
        }
    }

    #[test]
    fn a_verdict_is_remembered_for_its_view_alone() {
        let mut cache = Cache::<Option<Verdict>>::new(7, 4);
        let mut catalog = crate::Catalog::default();
        let row = [Some("20000"), Some("danger"), Some("t"), Some("sql"), Some("")];
        catalog.add(crate::CatalogPart::Functions, &row).unwrap();
        let view = catalog.view();
        for _ in 0..2 {
            assert_eq!(cache.judge(b"SELECT danger()", None, 0), Verdict::Read);
            let refused = Verdict::Refused(crate::Refusal::Name);
            assert_eq!(cache.judge(b"SELECT danger()", Some(&view), 1), refused);
        }
    }
}
