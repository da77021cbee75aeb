//! Where a stream of bytes is cut into reads.

use crate::rng::Rng;

#[derive(Clone, Debug)]
pub(crate) enum Cuts {
    /// All there is in one read.
    Whole,
    /// One byte a read.
    Bytes,
    /// Mostly short reads, some long ones.
    Random(Rng),
}

impl Cuts {
    /// How many of `len` bytes, which are not 0, the next read brings.
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
