//! Synchronous commits of the simulated primary: who confirms them, by PostgreSQL's rules. Programs
//! that are no nodes come, confirm and go.
//!
//! Two things cannot be known from samples, and are left out: a program with the name of a node that
//! no sample has shown, and commits under settings that were made weaker after the last sample.

use cluster::{Micros, Replication};

use crate::rng::Rng;

const STANDBYS: [usize; 2] = [1, 2];
/// The time in which the primary's other processes follow new settings, after its sessions.
const SETTINGS_LAG: Micros = 10_000;

/// A value of `synchronous_standby_names`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Setting {
    quorum: usize,
    names: &'static [&'static str],
}

const ASYNCHRONOUS: Setting = Setting { quorum: 0, names: &[] };

/// A WAL sender of a program that is no node.
#[derive(Clone, Copy, Debug)]
struct Stranger {
    name: &'static str,
    /// Weir has got a sample with it.
    is_seen: bool,
}

#[derive(Debug)]
pub(crate) struct Commits {
    /// The names of the standbys' WAL receivers.
    receivers: [&'static str; 2],
    shown: Setting,
    /// The number of changes so far.
    loads: u32,
    /// The setting by which commits wait, and the next one, from when on.
    real: Setting,
    next: Option<(Setting, Micros)>,
    stranger: Option<Stranger>,
    /// When commits are asynchronous for a moment between two samples.
    blip_at: Micros,
    /// The end of the last commit of that time, until a sample tells that settings were read again.
    blip: Option<u64>,
    /// The end of the last commit that a client was told of.
    pub(crate) acknowledged: u64,
}

impl Commits {
    /// `loss_at`: when the primary is lost.
    pub(crate) fn new(loss_at: Micros, rng: &mut Rng) -> Self {
        let receivers = if rng.one_in(6) { ["b", "b"] } else { ["b", "c"] };
        let shown = setting(rng);
        let blip_at = if rng.one_in(3) { loss_at - rng.below(300_000) } else { Micros::MAX };
        Self {
            receivers,
            shown,
            loads: 0,
            real: shown,
            next: None,
            stranger: None,
            blip_at,
            blip: None,
            acknowledged: 0,
        }
    }

    /// Returns what a node tells.
    pub(crate) fn told(&self, at: usize, streams: [bool; 2]) -> Replication {
        let is_primary = at == 0;
        let Setting { quorum, names } = self.shown;
        let nodes = self.receivers.iter().zip(streams).filter(|one| one.1).map(|one| *one.0);
        let senders = nodes.chain(self.stranger.map(|one| one.name)).map(str::to_owned);
        let receiver = STANDBYS.iter().position(|standby| *standby == at);
        let receiver = receiver.filter(|number| streams[*number]);
        Replication {
            names: match quorum {
                0 => String::new(),
                _ => format!("ANY {quorum} ({})", names.join(", ")),
            },
            level: "on".to_owned(),
            loaded: self.loads.to_string(),
            senders: if is_primary { senders.collect() } else { Vec::new() },
            receiver: receiver.map(|number| self.receivers[number].to_owned()),
        }
    }

    /// Weir has got a sample of the primary.
    pub(crate) fn seen(&mut self, told: &Replication, now: Micros) {
        if let Some(stranger) = &mut self.stranger {
            let is_it = |name: &String| name == stranger.name;
            let nodes = self.receivers.iter().filter(|name| **name == stranger.name).count();
            stranger.is_seen |= told.senders.iter().filter(|name| is_it(name)).count() > nodes;
        }
        if told.loaded == self.loads.to_string() {
            self.acknowledged = self.acknowledged.max(self.blip.take().unwrap_or_default());
        }
        if told.loaded == self.loads.to_string()
            && let Some((next, at)) = &mut self.next
            && *at == Micros::MAX
        {
            debug_assert!(*next == self.shown);
            *at = now;
        }
    }

    /// Time passes: strangers come and go, settings change, and commits are acknowledged.
    pub(crate) fn live(&mut self, wal: u64, received: [u64; 2], now: Micros, rng: &mut Rng) {
        if rng.one_in(80) {
            let names = ["receivewal", "d", "d", "d", "b", "c", "a", "B"];
            self.stranger = match self.stranger {
                Some(_) => None,
                None => rng.pick(&names).map(|name| Stranger { name, is_seen: false }),
            };
        }
        if now >= self.blip_at {
            (self.blip_at, self.blip) = (Micros::MAX, Some(wal));
            self.loads += 1;
        }
        if rng.one_in(400) && self.next.is_none() {
            (self.shown, self.loads) = (setting(rng), self.loads + 1);
            let is_stronger = self.real == ASYNCHRONOUS;
            let at = if is_stronger { now + rng.below(SETTINGS_LAG) } else { Micros::MAX };
            self.next = Some((self.shown, at));
        }
        if let Some((real, _)) = self.next.take_if(|next| next.1 <= now) {
            self.real = real;
        }
        self.acknowledged = self.acknowledged.max(self.safe(wal, received));
    }

    /// Returns the end of the WAL that is confirmed by as many as commits wait for.
    fn safe(&self, wal: u64, received: [u64; 2]) -> u64 {
        let Setting { quorum, names } = self.real;
        if quorum == 0 {
            return wal;
        }
        let counts = |name: &str| {
            names.iter().any(|listed| *listed == "*" || listed.eq_ignore_ascii_case(name))
        };
        let nodes = self.receivers.iter().zip(received).filter(|one| counts(one.0));
        let mut confirmed: Vec<_> = nodes.map(|one| one.1).collect();
        if let Some(stranger) = self.stranger.filter(|one| counts(one.name)) {
            let has_the_name_of_a_node =
                ["a", "b", "c"].iter().any(|node| stranger.name.eq_ignore_ascii_case(node));
            let is_named = names.iter().all(|listed| *listed != "*");
            if stranger.is_seen || !(has_the_name_of_a_node && is_named) {
                confirmed.push(wal);
            }
        }
        confirmed.sort_unstable_by(|one, other| other.cmp(one));
        confirmed.get(quorum - 1).copied().unwrap_or_default()
    }
}

fn setting(rng: &mut Rng) -> Setting {
    let names: [&[&str]; 9] = [
        &["a", "b", "c"],
        &["a", "b", "c"],
        &["b", "c"],
        &["B", "c"],
        &["*"],
        &["*"],
        &["b", "d"],
        &["d", "b", "c"],
        &["b"],
    ];
    match rng.one_in(6) {
        true => ASYNCHRONOUS,
        false => Setting {
            quorum: if rng.one_in(3) { 2 } else { 1 },
            names: rng.pick(&names).expect("there are some"),
        },
    }
}
