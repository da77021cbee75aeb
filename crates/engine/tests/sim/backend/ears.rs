//! LISTEN, UNLISTEN and NOTIFY as in PostgreSQL: they take effect with the commit, and
//! notifications are sent outside of transactions.

use std::collections::BTreeSet;

use wire::backend;

use super::{Backend, Block};
use crate::bus::{Bus, Notification};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Listen(String),
    /// One channel, or all.
    Unlisten(Option<String>),
    Notify(String, String),
}

impl Order {
    pub(super) fn tag(&self) -> &'static str {
        match self {
            Self::Listen(_) => "LISTEN",
            Self::Unlisten(_) => "UNLISTEN",
            Self::Notify(..) => "NOTIFY",
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Ears {
    bus: Bus,
    pub(super) database: String,
    channels: BTreeSet<String>,
    /// The orders of the current transaction.
    pub(super) orders: Vec<Order>,
    /// The position in the queue up to which it has read.
    at: usize,
    /// Channels that were listened to and given up since the last question.
    begun: BTreeSet<String>,
    ended: BTreeSet<String>,
}

impl Ears {
    pub(super) fn new(bus: Bus) -> Self {
        Self { bus, ..Self::default() }
    }

    pub(crate) fn channels(&self) -> &BTreeSet<String> {
        &self.channels
    }

    /// Has it listened? Weir may not know yet that it does not listen any more.
    pub(crate) fn has_listened(&self) -> bool {
        !self.channels.is_empty() || !self.ended.is_empty()
    }

    /// The channels that it has given up since the last question.
    pub(crate) fn ended(&self) -> &BTreeSet<String> {
        &self.ended
    }

    /// Does it listen for others?
    pub(crate) fn is_listener(&self) -> bool {
        self.channels.iter().any(|channel| channel.starts_with("_weir_"))
    }

    pub(crate) fn take_changes(&mut self) -> (BTreeSet<String>, BTreeSet<String>) {
        (std::mem::take(&mut self.begun), std::mem::take(&mut self.ended))
    }

    fn has_news(&self) -> bool {
        let is_ours = |one: &Notification| {
            one.database == self.database && self.channels.contains(&one.channel)
        };
        !self.channels.is_empty() && self.bus.all()[self.at..].iter().any(is_ours)
    }

    /// The notifications on its channels since the last call.
    fn read(&mut self) -> Vec<Notification> {
        let is_ours = |one: &Notification| {
            one.database == self.database && self.channels.contains(&one.channel)
        };
        let (from, to) = (self.at, self.bus.len());
        self.at = to;
        let ours: Vec<_> = (from..to).filter(|at| is_ours(&self.bus.all()[*at])).collect();
        if !self.is_listener() {
            ours.iter().for_each(|at| self.bus.count_teller(*at));
        }
        ours.iter().map(|at| self.bus.all()[*at].clone()).collect()
    }

    /// Carries out the orders of the transaction.
    pub(super) fn commit(&mut self, pid: u32) {
        if self.orders.is_empty() {
            return;
        }
        // A session without channels starts at the end of the queue. A session with channels keeps its
        // place: on a new channel it also hears earlier notifications that it has not read yet.
        if self.channels.is_empty() {
            self.at = self.bus.len();
        }
        let mut said = Vec::new();
        for order in std::mem::take(&mut self.orders) {
            match order {
                Order::Listen(channel) => {
                    self.begun.insert(channel.clone());
                    self.channels.insert(channel);
                }
                Order::Unlisten(Some(channel)) => {
                    self.channels.remove(&channel);
                    self.ended.insert(channel);
                }
                Order::Unlisten(None) => self.ended.append(&mut self.channels),
                Order::Notify(channel, payload) => said.push((channel, payload)),
            }
        }
        for (channel, payload) in said {
            let database = self.database.clone();
            self.bus.push(Notification { database, channel, payload, pid });
        }
    }
}

impl Backend {
    /// Is it between transactions, and are there notifications of others?
    pub(crate) fn has_news(&self) -> bool {
        self.is_at_rest() && self.is_running() && self.ears.has_news()
    }

    pub(crate) fn tell_news(&mut self) {
        self.write_news();
        self.flush();
    }

    /// Writes the notifications that are due now.
    pub(super) fn write_news(&mut self) {
        if self.block != Block::Idle || self.ears.channels.is_empty() {
            return;
        }
        for one in self.ears.read() {
            let (channel, payload) = (one.channel.as_bytes(), one.payload.as_bytes());
            backend::notification(&mut self.buffered, one.pid, channel, payload);
        }
    }
}
