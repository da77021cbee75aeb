//! Advice: the effect that auto mode would have on the clients of a pool in another mode, as far as
//! their texts show it.
//!
//! All numbers are upper bounds. A client counts as pinned from the first text that may pin it until
//! it sends DISCARD ALL or leaves, although auto mode unpins it as soon as the reason is gone.
//!
//! ```text
//!  a client needs a server of its own while it ─┬─ is in a transaction
//!                                               ├─ is pinned
//!                                               └─ is possibly pinned (only in `servers_possible`)
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use sql::Signs;

use super::texts::Text;
use crate::ids::PoolId;
use crate::session::pins::Pins;

/// Reasons that a worker keeps, each with its text.
pub const REASONS_MAX: usize = 1_024;

/// The way in which auto mode deals with session state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    Pinned,
    /// The text alone cannot tell.
    PossiblyPinned,
    Carried,
    /// The client shares servers, and the value is right for the present transaction only.
    NotKept,
}

impl Effect {
    pub fn words(self) -> &'static str {
        match self {
            Self::Pinned => "pinned",
            Self::PossiblyPinned => "possibly pinned",
            Self::Carried => "carried",
            Self::NotKept => "not kept",
        }
    }
}

/// Why a client would be pinned, or what would be carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A reason for a pin in auto mode.
    Pin(Effect, Pins),
    /// It calls a function that is not PostgreSQL's own, or runs a block of code.
    UnknownFunction,
    /// It was prepared before Weir watched.
    UnknownStatement,
    /// It asks for the process id of the server (`pg_backend_pid()`), perhaps to be known by it.
    ProcessId,
}

impl Reason {
    /// All reasons, each with a bit of [`Reasons`].
    const ALL: [Self; 14] = [
        Self::Pin(Effect::Pinned, Pins::TEMPORARY),
        Self::Pin(Effect::Pinned, Pins::LOCK),
        Self::Pin(Effect::Pinned, Pins::CURSOR),
        Self::Pin(Effect::Pinned, Pins::LOAD),
        Self::Pin(Effect::Pinned, Pins::SEED),
        Self::Pin(Effect::Pinned, Pins::SEQUENCE),
        Self::Pin(Effect::Pinned, Pins::FUNCTION),
        Self::Pin(Effect::PossiblyPinned, Pins::TEMPORARY),
        Self::UnknownFunction,
        Self::UnknownStatement,
        Self::Pin(Effect::Carried, Pins::SETTING),
        Self::Pin(Effect::Carried, Pins::LISTEN),
        Self::Pin(Effect::Carried, Pins::PREPARED),
        Self::ProcessId,
    ];

    pub fn effect(self) -> Effect {
        match self {
            Self::Pin(effect, _) => effect,
            Self::UnknownFunction | Self::UnknownStatement => Effect::PossiblyPinned,
            Self::ProcessId => Effect::NotKept,
        }
    }

    /// Returns the words of SHOW PINS.
    pub fn words(self) -> &'static str {
        match self {
            Self::Pin(_, pins) => pins.words().next().unwrap_or_default(),
            Self::UnknownFunction => "unknown function",
            Self::UnknownStatement => "unknown statement",
            Self::ProcessId => "process id",
        }
    }

    /// Returns the reasons that a text gives.
    fn of(text: &Text) -> impl Iterator<Item = Self> {
        let (signs, words) = (text.seen, text.words);
        Self::ALL.into_iter().filter(move |reason| {
            let has = |sign| signs.contains(sign);
            match *reason {
                Self::Pin(effect, Pins::TEMPORARY) => {
                    let is_certain = effect == Effect::Pinned;
                    has(Signs::TEMPORARY) && !words.on_commit_drop && words.temporary == is_certain
                }
                Self::Pin(_, Pins::LOCK) => has(Signs::LOCK) && words.locks,
                Self::Pin(_, Pins::CURSOR) => has(Signs::CURSOR),
                Self::Pin(_, Pins::LOAD) => has(Signs::LOAD),
                Self::Pin(_, Pins::SEED) => has(Signs::SEED),
                Self::Pin(_, Pins::SEQUENCE) => has(Signs::SEQUENCE),
                Self::Pin(_, Pins::FUNCTION) => text.is_pinned,
                Self::Pin(_, Pins::SETTING) => has(Signs::SETTINGS) && !words.discards_all,
                Self::Pin(_, Pins::LISTEN) => has(Signs::LISTEN),
                Self::Pin(_, Pins::PREPARED) => has(Signs::PREPARED),
                // The name of a new table before its columns looks like a call.
                Self::UnknownFunction => {
                    has(Signs::OPAQUE) && !has(Signs::TEMPORARY) && !text.is_pinned
                }
                Self::ProcessId => {
                    has(Signs::PROCESS_ID) && words.keeps_process_id && !text.is_pinned
                }
                Self::Pin(..) | Self::UnknownStatement => false,
            }
        })
    }
}

/// One client, as long as it is connected.
#[derive(Clone, Copy, Debug, Default)]
struct Client {
    pool: Option<PoolId>,
    /// True if the client is in a transaction.
    works: bool,
    /// The reasons that it has had, by their places in [`Reason::ALL`].
    had: Reasons,
    /// The reasons among these that it may still have.
    has: Reasons,
}

/// A set of reasons, by their places in [`Reason::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reasons(u16);

impl Reasons {
    fn contains(self, at: usize) -> bool {
        self.0 >> at & 1 == 1
    }

    fn add(&mut self, at: usize) {
        self.0 |= 1 << at;
    }

    fn have(self, effect: Effect) -> bool {
        let mut all = Reason::ALL.iter().enumerate();
        all.any(|(at, reason)| self.contains(at) && reason.effect() == effect)
    }

    /// Returns those that DISCARD ALL does not remove.
    fn lasting(self) -> Self {
        let mut left = Self::default();
        for (at, reason) in Reason::ALL.iter().enumerate() {
            if self.contains(at) && matches!(reason, Reason::Pin(_, Pins::LOAD | Pins::SEED)) {
                left.add(at);
            }
        }
        left
    }
}

/// A number and its highest value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Level {
    now: u64,
    peak: u64,
}

impl Level {
    fn change(&mut self, before: bool, after: bool) {
        self.now = (self.now + u64::from(after)).saturating_sub(u64::from(before));
        self.peak = self.peak.max(self.now);
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Pool {
    clients: u64,
    pinned: u64,
    possibly: u64,
    transactions: Level,
    servers: Level,
    servers_possible: Level,
}

/// The advice about one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolRow {
    pub pool: PoolId,
    /// Clients that have sent something.
    pub clients: u64,
    /// Clients among these that auto mode would have pinned.
    pub pinned: u64,
    /// Other clients, which auto mode may have pinned.
    pub possibly: u64,
    /// The highest number of transactions at the same time.
    pub transactions: u64,
    /// The highest number of clients at the same time that were in a transaction or pinned.
    pub servers: u64,
    /// The highest number of such clients, including those that were possibly pinned.
    pub servers_possible: u64,
}

impl PoolRow {
    /// Adds the figures of another worker. The sum of two peaks is an upper bound of the peak.
    pub fn add(&mut self, other: &Self) {
        self.clients += other.clients;
        self.pinned += other.pinned;
        self.possibly += other.possibly;
        self.transactions += other.transactions;
        self.servers += other.servers;
        self.servers_possible += other.servers_possible;
    }
}

/// A reason with one text.
#[derive(Clone, Debug)]
pub struct ReasonRow {
    pub pool: PoolId,
    pub reason: Reason,
    /// None if the text is not known.
    pub text: Option<Arc<Text>>,
    /// Clients whose first text with this reason it was.
    pub clients: u64,
    /// The number of times that it was run.
    pub count: u64,
    /// The `application_name` of the first of these clients.
    pub application: Box<str>,
}

#[derive(Debug, Default)]
pub(super) struct Advice {
    clients: HashMap<u64, Client, RandomState>,
    pools: HashMap<PoolId, Pool, RandomState>,
    reasons: HashMap<(PoolId, Reason, u64), ReasonRow, RandomState>,
}

impl Advice {
    /// A client has sent something.
    pub(super) fn works(&mut self, client: u64, pool: PoolId, in_transaction: bool) {
        self.change(client, Some(pool), |own| own.works = in_transaction);
    }

    /// A client's transaction is over.
    pub(super) fn rests(&mut self, client: u64) {
        self.change(client, None, |own| own.works = false);
    }

    pub(super) fn left(&mut self, client: u64) {
        self.change(client, None, |own| (own.works, own.has) = (false, Reasons::default()));
        self.clients.remove(&client);
    }

    /// A client runs a text.
    pub(super) fn runs(
        &mut self,
        client: u64,
        pool: PoolId,
        text: Option<&Arc<Text>>,
        application: &[u8],
    ) {
        let has_reason = |text: &Arc<Text>| !text.seen.is_empty() || text.is_pinned;
        if text.is_some_and(|text| !has_reason(text)) {
            return;
        }
        if text.is_some_and(|text| text.words.discards_all) {
            return self.change(client, Some(pool), |own| own.has = own.has.lasting());
        }
        let found: Vec<Reason> = match text {
            Some(text) => Reason::of(text).collect(),
            None => vec![Reason::UnknownStatement],
        };
        for reason in found {
            let at = Reason::ALL.iter().position(|one| *one == reason).unwrap_or_default();
            let mut is_first = false;
            self.change(client, Some(pool), |own| {
                is_first = !own.had.contains(at);
                own.had.add(at);
                own.has.add(at);
            });
            self.note(pool, reason, text, is_first, application);
        }
    }

    fn note(
        &mut self,
        pool: PoolId,
        reason: Reason,
        text: Option<&Arc<Text>>,
        is_first: bool,
        application: &[u8],
    ) {
        let key = (pool, reason, text.map_or(0, |text| text.fingerprint));
        if self.reasons.len() >= REASONS_MAX && !self.reasons.contains_key(&key) {
            return;
        }
        let row = self.reasons.entry(key).or_insert_with(|| ReasonRow {
            pool,
            reason,
            text: text.cloned(),
            clients: 0,
            count: 0,
            application: String::from_utf8_lossy(application).into(),
        });
        row.clients += u64::from(is_first);
        row.count += 1;
    }

    /// Changes a client, and the figures of its pool with it. Without a pool, only a known client.
    fn change(&mut self, client: u64, pool: Option<PoolId>, change: impl FnOnce(&mut Client)) {
        let own = match pool {
            Some(pool) => {
                let own = self.clients.entry(client).or_default();
                if own.pool.replace(pool).is_none() {
                    self.pools.entry(pool).or_default().clients += 1;
                }
                own
            }
            None => match self.clients.get_mut(&client) {
                Some(own) => own,
                None => return,
            },
        };
        let before = *own;
        change(own);
        let after = *own;
        let Some(pool) = after.pool.and_then(|pool| self.pools.get_mut(&pool)) else { return };
        let needs = |client: Client| client.works || client.has.have(Effect::Pinned);
        let may_need = |client: Client| needs(client) || client.has.have(Effect::PossiblyPinned);
        pool.transactions.change(before.works, after.works);
        pool.servers.change(needs(before), needs(after));
        pool.servers_possible.change(may_need(before), may_need(after));
        let pinned = |client: Client| client.had.have(Effect::Pinned);
        let possibly = |client: Client| client.had.have(Effect::PossiblyPinned) && !pinned(client);
        if before.had != after.had {
            pool.pinned = pool.pinned + u64::from(pinned(after)) - u64::from(pinned(before));
            pool.possibly =
                pool.possibly + u64::from(possibly(after)) - u64::from(possibly(before));
        }
    }

    pub(super) fn forget_pool(&mut self, pool: PoolId) {
        self.clients.retain(|_, client| client.pool != Some(pool));
        self.pools.remove(&pool);
        self.reasons.retain(|(of, _, _), _| *of != pool);
    }

    pub(super) fn pools(&self) -> impl Iterator<Item = PoolRow> {
        self.pools.iter().map(|(pool, figures)| PoolRow {
            pool: *pool,
            clients: figures.clients,
            pinned: figures.pinned,
            possibly: figures.possibly,
            transactions: figures.transactions.peak,
            servers: figures.servers.peak,
            servers_possible: figures.servers_possible.peak,
        })
    }

    pub(super) fn reasons(&self) -> impl Iterator<Item = ReasonRow> {
        self.reasons.values().cloned()
    }
}
