//! How often a user's password may be guessed (`auth_failure_delay`). Each failed login of a user
//! from one address costs so much time; who is behind by more than a few failures has the next
//! proof looked at only when enough time has gone by. What is right costs nothing.
//!
//! Counted by user *and* address: whoever guesses somebody's password from elsewhere slows down
//! himself alone. Plain bookkeeping; it knows no clock and stands behind the lock of the `Limits`.

use core::net::IpAddr;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;

use crate::ids::Micros;

/// Failures in a row that are not slowed: people mistype.
pub const FREE: u64 = 5;
/// Users and addresses remembered. Beyond that, those are forgotten who are nearest to being
/// forgiven.
const KNOWN_MAX: usize = 16_384;

#[derive(Debug, Default)]
pub struct Guesses {
    /// By a hash of user and address that nobody outside can compute: when all their failures will
    /// be forgiven.
    forgiven_at: HashMap<u64, Micros>,
    hashes: RandomState,
}

impl Guesses {
    /// May a proof be looked at now?
    pub fn may_try(&self, origin: Origin, user: &str, delay: Micros, now: Micros) -> bool {
        let forgiven_at = self.forgiven_at.get(&self.key(origin, user)).copied();
        forgiven_at.is_none_or(|at| at <= now + (FREE - 1) * delay)
    }

    /// A proof was wrong.
    pub fn failed(&mut self, origin: Origin, user: &str, delay: Micros, now: Micros) {
        if delay == 0 {
            return;
        }
        let key = self.key(origin, user);
        if self.forgiven_at.len() >= KNOWN_MAX && !self.forgiven_at.contains_key(&key) {
            self.make_room(now);
        }
        let at = self.forgiven_at.entry(key).or_insert(now);
        *at = (*at).max(now) + delay;
    }

    /// All is forgiven: what was wrong may be right by the new configuration.
    pub fn clear(&mut self) {
        self.forgiven_at.clear();
    }

    fn make_room(&mut self, now: Micros) {
        self.forgiven_at.retain(|_, at| *at > now);
        if self.forgiven_at.len() >= KNOWN_MAX {
            let mut all: Vec<Micros> = self.forgiven_at.values().copied().collect();
            let (_, middle, _) = all.select_nth_unstable(KNOWN_MAX / 2);
            let middle = *middle;
            self.forgiven_at.retain(|_, at| *at > middle);
        }
    }

    fn key(&self, origin: Origin, user: &str) -> u64 {
        self.hashes.hash_one((origin, user))
    }
}

/// Where guesses come from: an IPv4 address, the first half of an IPv6 address (who has one of that
/// network has all), or a unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    Unix,
    V4(u32),
    V6(u64),
}

impl Origin {
    /// None is a unix socket.
    pub fn new(address: Option<IpAddr>) -> Self {
        match address {
            None => Self::Unix,
            Some(IpAddr::V4(ip)) => Self::V4(ip.to_bits()),
            Some(IpAddr::V6(ip)) => Self::V6((ip.to_bits() >> 64) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Origin = Origin::V4(1);
    const DELAY: Micros = 1_000_000;

    #[test]
    fn a_few_failures_are_free_and_then_each_costs_the_delay() {
        let mut guesses = Guesses::default();
        for _ in 0..FREE {
            assert!(guesses.may_try(HERE, "u", DELAY, 10));
            guesses.failed(HERE, "u", DELAY, 10);
        }
        for n in 1..=20 {
            let free_at = 10 + n * DELAY;
            assert!(!guesses.may_try(HERE, "u", DELAY, free_at - 1), "failure {n}");
            assert!(guesses.may_try(HERE, "u", DELAY, free_at), "failure {n}");
            guesses.failed(HERE, "u", DELAY, free_at);
        }
        assert!(guesses.may_try(HERE, "u", DELAY, 100 * DELAY), "it is forgiven");
    }

    #[test]
    fn others_are_not_slowed() {
        let mut guesses = Guesses::default();
        (0..100).for_each(|_| guesses.failed(HERE, "u", DELAY, 10));
        assert!(!guesses.may_try(HERE, "u", DELAY, 10));
        assert!(guesses.may_try(HERE, "v", DELAY, 10));
        assert!(guesses.may_try(Origin::V4(2), "u", DELAY, 10));
        guesses.clear();
        assert!(guesses.may_try(HERE, "u", DELAY, 10));
    }

    #[test]
    fn who_has_one_address_of_a_network_has_all_and_is_nobody_else() {
        let of = |address: &str| Origin::new(Some(address.parse().unwrap()));
        assert_eq!(of("2001:db8::1"), of("2001:db8::2"));
        let others =
            [Origin::new(None), of("::1"), of("127.0.0.1"), of("0.0.0.1"), of("2001:db8::1")];
        for (at, one) in others.iter().enumerate() {
            assert!(!others[at + 1..].contains(one), "{one:?}");
        }
    }

    #[test]
    fn without_a_delay_nothing_is_counted() {
        let mut guesses = Guesses::default();
        (0..100).for_each(|_| guesses.failed(HERE, "u", 0, 10));
        assert!(guesses.may_try(HERE, "u", 0, 10) && guesses.forgiven_at.is_empty());
    }

    #[test]
    fn memory_is_bounded_and_the_busiest_are_remembered() {
        let mut guesses = Guesses::default();
        for n in 0..100 {
            guesses.failed(HERE, "u", DELAY, 10 + n);
        }
        for n in 0..200_000 {
            guesses.failed(Origin::V6(n), "v", DELAY, 200);
        }
        assert!(guesses.forgiven_at.len() <= KNOWN_MAX);
        assert!(!guesses.may_try(HERE, "u", DELAY, 200));
    }
}
