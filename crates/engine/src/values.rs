//! Sets of values ([`Vars`]) as clients and servers hold them. They are shared, since most are
//! equal. Each has a digest, by which a pool finds a server with its client's values.
//!
//! A client and a server of one worker with equal sets share one set ([`SharedVars`]), so that
//! linking them compares two pointers.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, Hasher};
use std::num::NonZeroU64;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

use foldhash::fast::{FixedState, RandomState};

use crate::vars::{Slots, Vars};

/// A hash of a set, equal for equal sets in every worker. Collisions can be constructed, so equal
/// digests only show that a server probably fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digest(NonZeroU64);

impl Digest {
    #[inline]
    fn of(vars: &Vars) -> Self {
        Self(NonZeroU64::new(FixedState::default().hash_one(vars)).unwrap_or(NonZeroU64::MIN))
    }
}

/// A set of values, possibly shared.
#[derive(Clone, Debug, Default)]
pub struct Values(Arc<Digested>);

#[derive(Clone, Debug, Default)]
struct Digested {
    vars: Vars,
    /// Computed on first use: not every set from a login is looked up.
    digest: OnceLock<Digest>,
}

impl Values {
    pub fn new(vars: Vars) -> Self {
        Self(Arc::new(Digested { vars, digest: OnceLock::new() }))
    }

    #[inline]
    pub fn digest(&self) -> Digest {
        *self.0.digest.get_or_init(|| Digest::of(&self.0.vars))
    }

    /// Are both the same shared set, not only equal?
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Changes this set; other holders keep the old one.
    #[cold]
    pub fn change(&mut self, change: impl FnOnce(&mut Vars)) {
        let own = Arc::make_mut(&mut self.0);
        change(&mut own.vars);
        own.digest = OnceLock::new();
    }

    fn is_held_by_others(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl Deref for Values {
    type Target = Vars;

    fn deref(&self) -> &Vars {
        &self.0.vars
    }
}

impl PartialEq for Values {
    fn eq(&self, other: &Self) -> bool {
        self.is(other) || (self.digest() == other.digest() && **self == **other)
    }
}

impl Eq for Values {}

impl Hash for Values {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest().hash(state);
    }
}

/// The values of a client, which its server should have.
#[derive(Debug, Default)]
pub struct ClientValues {
    values: Values,
    /// The parameters whose values the client gave itself; the others have the server's values.
    given: Slots,
}

impl ClientValues {
    pub(crate) fn new(values: Values, given: Slots) -> Self {
        Self { values, given }
    }

    #[inline]
    pub(crate) fn given(&self) -> Slots {
        self.given
    }

    /// The client gives this parameter a value itself.
    pub(crate) fn give(&mut self, slot: usize) {
        self.given.add(slot);
    }

    /// The parameter has the server's value from now on.
    pub(crate) fn follow(&mut self, slot: usize) {
        self.given.remove(slot);
    }
}

impl Deref for ClientValues {
    type Target = Values;

    #[inline]
    fn deref(&self) -> &Values {
        &self.values
    }
}

impl DerefMut for ClientValues {
    #[inline]
    fn deref_mut(&mut self) -> &mut Values {
        &mut self.values
    }
}

/// The sets of values that clients of one worker have, each once. A set that a client has just
/// changed is not included until it is applied to another server.
#[derive(Debug, Default)]
pub struct SharedVars {
    known: HashSet<Values, RandomState>,
    /// At this number of sets, unused ones are removed.
    sweep_at: usize,
}

impl SharedVars {
    /// Returns the shared set that equals `values`.
    pub fn share(&mut self, values: Values) -> Values {
        if let Some(known) = self.known.get(&values) {
            return known.clone();
        }
        if self.known.len() >= self.sweep_at.max(64) {
            self.known.retain(Values::is_held_by_others);
            self.sweep_at = self.known.len() * 2;
        }
        self.known.insert(values.clone());
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Values {
        let mut vars = Vars::default();
        vars.set(4, text.as_bytes());
        Values::new(vars)
    }

    #[test]
    fn equal_values_are_shared_and_unused_ones_forgotten() {
        let mut shared = SharedVars::default();
        let kept = shared.share(of("kept"));
        for n in 0..1000 {
            shared.share(of(&n.to_string()));
        }
        assert!(shared.known.len() <= 65, "{} sets kept", shared.known.len());
        assert!(kept.is(&shared.share(of("kept"))));
    }

    #[test]
    fn a_digest_follows_every_change() {
        let (one, mut other) = (of("a"), of("a"));
        assert!(one == other && one.digest() == other.digest() && !one.is(&other));
        let held = other.clone();
        other.change(|vars| vars.set(4, b"b"));
        assert!(one != other && one.digest() != other.digest());
        assert_eq!(held, one, "who held the same set keeps it");
        assert_eq!(other.digest(), of("b").digest());
    }
}
