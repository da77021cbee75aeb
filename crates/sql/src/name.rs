//! The name of a token, folded as PostgreSQL folds it, in a fixed-size buffer.
//!
//! Most names have at most sixteen bytes. These are read at once: the compiler uses vector
//! instructions, and no branch depends on a name's length.

use crate::names::{digest, mix};

/// PostgreSQL's NAMEDATALEN, less the zero byte. The server cuts longer names.
pub(crate) const LEN_MAX: usize = 63;

/// The number of bytes that are read at once.
const BLOCK: usize = 16;

#[derive(Clone, Debug)]
pub(crate) struct Name {
    /// Zero after a name that is shorter than a block, up to the block's end.
    bytes: [u8; LEN_MAX],
    /// The length as written, including bytes that did not fit.
    len: usize,
}

impl Name {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; LEN_MAX], len: 0 }
    }

    /// Returns a name as the catalogs have it.
    pub(crate) fn of(name: &[u8]) -> Self {
        let mut this = Self::new();
        this.push_while(name, Some);
        this
    }

    pub(crate) fn clear(&mut self) {
        self.begin([0; BLOCK], 0);
    }

    /// Replaces the name by the identifier at the beginning of `bytes`, folded. Returns its length.
    #[inline(always)]
    pub(crate) fn read_word(&mut self, bytes: &[u8]) -> usize {
        let Some(block) = bytes.first_chunk::<BLOCK>() else {
            self.clear();
            return self.push_word(bytes);
        };
        let (block, len) = word(block);
        self.begin(block, len);
        if len < BLOCK {
            return len;
        }
        BLOCK + self.push_word(bytes.get(BLOCK..).unwrap_or_default())
    }

    /// Replaces the name by everything before a double quote, unfolded. Returns its length.
    #[inline(always)]
    pub(crate) fn read_quoted(&mut self, bytes: &[u8]) -> usize {
        let Some(block) = bytes.first_chunk::<BLOCK>() else {
            self.clear();
            return self.push_quoted(bytes);
        };
        let len = quote(block);
        self.begin(*block, len);
        if len < BLOCK {
            return len;
        }
        BLOCK + self.push_quoted(bytes.get(BLOCK..).unwrap_or_default())
    }

    /// Continues an identifier. Returns the number of bytes read.
    pub(crate) fn push_word(&mut self, bytes: &[u8]) -> usize {
        self.push_while(bytes, |byte| is_word(byte).then(|| folded(byte)))
    }

    /// Continues a name in quotes. Returns the number of bytes read.
    pub(crate) fn push_quoted(&mut self, bytes: &[u8]) -> usize {
        self.push_while(bytes, |byte| (byte != b'"').then_some(byte))
    }

    /// Continues a dollar quote's tag, which is not folded.
    pub(crate) fn push_tag(&mut self, bytes: &[u8]) -> usize {
        self.push_while(bytes, |byte| (is_word(byte) && byte != b'$').then_some(byte))
    }

    pub(crate) fn push_byte(&mut self, byte: u8) {
        self.push_while(&[byte], Some);
    }

    /// Folds the bytes written so far.
    pub(crate) fn fold(&mut self) {
        self.bytes.make_ascii_lowercase();
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }

    /// Returns a unique number for each name of at most a block; 0 for all others.
    #[inline]
    pub(crate) fn key(&self) -> u128 {
        match self.bytes.first_chunk::<BLOCK>() {
            Some(block) if self.len <= BLOCK => u128::from_le_bytes(*block),
            _ => 0,
        }
    }

    /// Returns a digest that distinguishes names, as [`names::digest`](crate::names::digest) does.
    #[inline]
    pub(crate) fn digest(&self) -> u64 {
        match self.key() {
            0 => digest(self.as_bytes()),
            key => mix(key as u64 ^ ((key >> 64) as u64).rotate_left(29)),
        }
    }

    /// Did some of the name not fit?
    pub(crate) fn is_cut(&self) -> bool {
        self.len > LEN_MAX
    }

    /// Begins a name with the first `len` bytes of a block.
    #[inline]
    fn begin(&mut self, block: [u8; BLOCK], len: usize) {
        let unused = 8 * (BLOCK - len) as u32;
        let kept = u128::from_le_bytes(block) & u128::MAX.checked_shr(unused).unwrap_or(0);
        if let Some(place) = self.bytes.first_chunk_mut() {
            *place = kept.to_le_bytes();
        }
        self.len = len;
    }

    #[inline]
    fn push_while(&mut self, bytes: &[u8], read: impl Fn(u8) -> Option<u8>) -> usize {
        let mut pushed = 0;
        for byte in bytes {
            let Some(letter) = read(*byte) else { break };
            if let Some(place) = self.bytes.get_mut(self.len + pushed) {
                *place = letter;
            }
            pushed += 1;
        }
        self.len += pushed;
        pushed
    }
}

/// Returns the key of a word, as [`Name::key`] does.
#[expect(clippy::indexing_slicing, reason = "at compile time, where it is an error")]
pub(crate) const fn key(word: &str) -> u128 {
    let mut block = [0; BLOCK];
    let mut at = 0;
    while at < word.len() {
        block[at] = word.as_bytes()[at];
        at += 1;
    }
    u128::from_le_bytes(block)
}

/// Can an identifier contain this byte? It begins with no digit and no dollar.
#[inline]
pub(crate) const fn is_word(byte: u8) -> bool {
    // Without `||` and `&&`, which would be branches.
    ((byte | 0x20).wrapping_sub(b'a') < 26)
        | (byte.wrapping_sub(b'0') < 10)
        | (byte == b'_')
        | (byte == b'$')
        | (byte >= 0x80)
}

#[inline]
const fn folded(byte: u8) -> u8 {
    byte | ((byte.wrapping_sub(b'A') < 26) as u8) << 5
}

/// Returns the bytes, folded, and how many of the first ones belong to a word.
#[inline]
fn word(block: &[u8; BLOCK]) -> ([u8; BLOCK], usize) {
    let (mut changed, mut other) = ([0; BLOCK], [0; BLOCK]);
    for ((changed, other), byte) in changed.iter_mut().zip(&mut other).zip(block) {
        *changed = folded(*byte);
        *other = u8::from(!is_word(*byte));
    }
    (changed, u128::from_le_bytes(other).trailing_zeros() as usize / 8)
}

/// Returns the position of the first double quote; [`BLOCK`] if there is none.
#[inline]
fn quote(block: &[u8; BLOCK]) -> usize {
    const fn all(byte: u8) -> u128 {
        u128::from_le_bytes([byte; BLOCK])
    }
    // Zero where the quotes are. The lowest byte that borrows in the difference was zero.
    let other = u128::from_le_bytes(*block) ^ all(b'"');
    let quotes = other.wrapping_sub(all(1)) & !other & all(0x80);
    quotes.trailing_zeros() as usize / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_once_is_as_one_by_one() {
        for len in 0..80 {
            for tail in
                ["", " ", "\"a", "=aaaaaaaaaaaaaaaaaaaaaaa", "\u{e9}Z$9_ 123456789012345678"]
            {
                let text =
                    "A[z`{@é9/:_$Bc".repeat(9)[..].replace(['[', '`', '{', '@', '/', ':'], "x");
                let text = format!("{}{tail}", text.chars().take(len).collect::<String>());
                let (mut one, mut other) = (Name::new(), Name::new());
                one.read_quoted(b"something longer than that");
                let read = one.read_word(text.as_bytes());
                let pushed = text.bytes().take_while(|byte| other.push_word(&[*byte]) == 1).count();
                assert_eq!((read, one.as_bytes()), (pushed, other.as_bytes()), "{text}");
                assert_eq!(one.key(), other.key(), "{text}");
            }
        }
    }

    #[test]
    fn bytes_of_words_are_those_of_the_manual() {
        for byte in 0..=u8::MAX {
            let letter = byte.is_ascii_alphanumeric() || b"_$".contains(&byte) || byte >= 0x80;
            assert_eq!(is_word(byte), letter, "{byte}");
            if letter {
                assert_eq!(folded(byte), byte.to_ascii_lowercase());
            }
        }
    }
}
