//! Limits guessing of passwords (`auth_failure_delay`). Each failed login of a user from one
//! address costs a fixed time. After a few failures, the next proof is checked only when that time
//! has passed. A right password costs nothing.
//!
//! Failures are counted by user *and* address, so an attacker elsewhere does not slow down the
//! user. Plain bookkeeping: it knows no clock, and is behind the lock of the `Limits`.

use core::net::IpAddr;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;

use crate::ids::Micros;

/// Failures in a row without a delay: people mistype.
pub const FREE: u64 = 5;
/// Maximal number of remembered users and addresses. Beyond it, the entries that would expire first
/// are forgotten.
const KNOWN_MAX: usize = 16_384;

#[derive(Debug, Default)]
pub struct Guesses {
    /// When the delay of a user and address is over. The key is a hash that an attacker cannot
    /// compute.
    forgiven_at: HashMap<u64, Micros>,
    hashes: RandomState,
}

impl Guesses {
    /// May a proof be checked now?
    pub fn may_try(&self, origin: Origin, user: &str, delay: Micros, now: Micros) -> bool {
        let forgiven_at = self.forgiven_at.get(&self.key(origin, user)).copied();
        forgiven_at.is_none_or(|at| at <= now + (FREE - 1) * delay)
    }

    /// Counts a wrong proof.
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

    /// Forgets all failures: a password may be right under the new configuration.
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

/// The source of guesses: an IPv4 address, an IPv6 network, or a unix socket. Of an IPv6 address
/// only the first half counts, because one host may use all addresses of its network.
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
    fn an_ipv6_network_counts_as_one_origin() {
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
