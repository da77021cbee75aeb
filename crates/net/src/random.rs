//! Unpredictable random bytes from the system.

/// The number of bytes that a worker requests at once; a login takes 8 to 30 of them.
const RESERVE_LEN: usize = 512;

/// # Panics
/// When the system has no random numbers: keys and nonces made without them would be a lie.
pub fn fill(bytes: &mut [u8]) {
    if let Err(error) = getrandom::fill(bytes) {
        panic!("the system gives no random numbers: {error}");
    }
}

/// Random bytes that were requested in advance, to save system calls. Each is used once and then
/// erased.
#[derive(Debug)]
pub struct Reserve {
    bytes: [u8; RESERVE_LEN],
    used: usize,
}

impl Default for Reserve {
    fn default() -> Self {
        Self::new()
    }
}

impl Reserve {
    #[must_use]
    pub fn new() -> Self {
        Self { bytes: [0; RESERVE_LEN], used: RESERVE_LEN }
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        if bytes.len() > RESERVE_LEN - self.used {
            if bytes.len() > RESERVE_LEN {
                return fill(bytes);
            }
            fill(&mut self.bytes);
            self.used = 0;
        }
        let taken = &mut self.bytes[self.used..][..bytes.len()];
        bytes.copy_from_slice(taken);
        taken.fill(0);
        self.used += bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_bytes_are_given_twice_or_kept() {
        let mut reserve = Reserve::new();
        let mut seen = HashSet::new();
        for len in (8..40).cycle().take(1_000) {
            let mut bytes = vec![0; len];
            reserve.fill(&mut bytes);
            assert!(bytes.iter().any(|byte| *byte != 0));
            assert!(reserve.bytes[..reserve.used].iter().all(|byte| *byte == 0));
            assert!(seen.insert(bytes[..8].to_vec()));
        }
        let mut many = vec![0; 2 * RESERVE_LEN];
        reserve.fill(&mut many);
        assert!(many[RESERVE_LEN..].iter().any(|byte| *byte != 0));
    }
}
