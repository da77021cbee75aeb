//! A set of names, built at compile time from a text with one name per line.
//!
//! Not a perfect hash: the table is at most half full, and a name is in its slot or shortly after
//! it.

/// `SLOTS` is a power of two and at least twice the number of names.
pub(crate) struct Names<const SLOTS: usize> {
    text: &'static [u8],
    /// The position of the name in the text, and above it the name's number.
    slots: [u32; SLOTS],
}

const EMPTY: u32 = u32::MAX;
const START_BITS: u32 = 16;

impl<const SLOTS: usize> Names<SLOTS> {
    /// Returns the names. Of two equal ones the first is found.
    #[expect(clippy::indexing_slicing, reason = "at compile time, where it is an error")]
    pub(crate) const fn of(text: &'static str) -> Self {
        let text = text.as_bytes();
        assert!(SLOTS.is_power_of_two() && text.len() < 1 << START_BITS);
        let mut slots = [EMPTY; SLOTS];
        let (mut start, mut ordinal) = (0, 0);
        while start < text.len() {
            let mut end = start;
            while text[end] != b'\n' {
                end += 1;
            }
            let (_, rest) = text.split_at(start);
            let (name, _) = rest.split_at(end - start);
            let mut at = Self::place(digest(name));
            while slots[at] != EMPTY {
                at = (at + 1) % SLOTS;
            }
            slots[at] = ordinal << START_BITS | start as u32;
            ordinal += 1;
            assert!((ordinal as usize) * 2 <= SLOTS);
            start = end + 1;
        }
        Self { text, slots }
    }

    /// Returns the number of the name, from 0.
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        let first = Self::place(digest(name));
        for slot in self.slots.iter().skip(first).chain(&self.slots) {
            if *slot == EMPTY {
                return None;
            }
            let start = (slot & ((1 << START_BITS) - 1)) as usize;
            let rest = self.text.get(start..)?;
            if rest.starts_with(name) && rest.get(name.len()) == Some(&b'\n') {
                return Some((slot >> START_BITS) as usize);
            }
        }
        None
    }

    const fn place(digest: u64) -> usize {
        // The upper bits are mixed well.
        (digest >> 32) as usize % SLOTS
    }
}

/// Returns a digest that distinguishes names. Names with equal digests are easy to find, so nothing
/// may depend on it.
pub(crate) const fn digest(name: &[u8]) -> u64 {
    let (head, tail) = match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        (Some(head), Some(tail)) => (u64::from_le_bytes(*head), u64::from_le_bytes(*tail)),
        _ => match (name.first_chunk::<4>(), name.last_chunk::<4>()) {
            (Some(head), Some(tail)) => {
                (u32::from_le_bytes(*head) as u64, u32::from_le_bytes(*tail) as u64)
            }
            _ => match name {
                [] => (0, 0),
                [one] => (*one as u64, 0),
                [one, two] => (*one as u64, *two as u64),
                [one, two, rest @ ..] => {
                    let last = match rest.last() {
                        Some(last) => *last as u64,
                        None => 0,
                    };
                    (*one as u64, (*two as u64) << 8 | last)
                }
            },
        },
    };
    let mixed = mix(head ^ tail.rotate_left(29));
    if name.len() <= 16 {
        return mix(mixed ^ name.len() as u64);
    }
    // Only the middle is left.
    let (_, rest) = name.split_at(8);
    let (middle, _) = rest.split_at(name.len() - 16);
    mix(mixed ^ digest(middle) ^ name.len() as u64)
}

/// Mixes the bits: every bit of the result depends on every bit.
pub(crate) const fn mix(bits: u64) -> u64 {
    let bits = (bits ^ bits >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits ^ bits >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "of\nset\nset_config\npg_stat_get_xact_tuples_deleted\nset\n";
    static NAMES: Names<16> = Names::of(TEXT);

    #[test]
    fn names_are_found_and_others_are_not() {
        for (name, place) in [
            ("of", Some(0)),
            ("set", Some(1)),
            ("set_config", Some(2)),
            ("pg_stat_get_xact_tuples_deleted", Some(3)),
            ("", None),
            ("s", None),
            ("se", None),
            ("set\nset_config", None),
            ("set_confi", None),
            ("set_configs", None),
        ] {
            assert_eq!(NAMES.find(name.as_bytes()), place, "{name}");
        }
    }

    #[test]
    fn names_have_digests_of_their_own() {
        let all = concat!(include_str!("functions/builtin.txt"), "a\nb\nab\nba\naa\nbb\naaa\n");
        let mut digests: Vec<_> = all.lines().map(|name| digest(name.as_bytes())).collect();
        digests.sort_unstable();
        assert!(digests.windows(2).all(|two| two[0] != two[1]));
    }
}
