//! The split of a stream of bytes into reads.

use crate::rng::Rng;

#[derive(Clone, Debug)]
pub(crate) enum Cuts {
    /// All available bytes in one read.
    Whole,
    /// One byte per read.
    Bytes,
    /// Mostly short reads, and some long ones.
    Random(Rng),
}

impl Cuts {
    /// Returns the length of the next read, out of `len` bytes, which is not 0.
    pub(crate) fn next(&mut self, len: usize) -> usize {
        match self {
            Self::Whole => len,
            Self::Bytes => 1,
            Self::Random(rng) => match rng.below(4) {
                0 => len,
                1 => 1 + rng.below(4).min(len - 1),
                _ => 1 + rng.below(len),
            },
        }
    }
}
