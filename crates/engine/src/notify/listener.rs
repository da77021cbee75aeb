//! The one connection that listens for all clients of a pool (`pool_mode = auto`): plain data.
//! `notify/connection.rs` handles it, on the worker that owns it. [`crate::notify::listening`] has
//! the client's side.
//!
//! The data ends with the connection: clients know their own channels and ask again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ids::{ClientId, Micros, ServerId, WorkerId};
use crate::session::carried::quote_identifier;

/// A client of any worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subscriber {
    pub worker: WorkerId,
    pub client: ClientId,
    pub serial: u64,
}

type Channel = Box<[u8]>;

/// A client's request for notifications of channels.
#[derive(Clone, Debug)]
pub struct Subscription {
    pub who: Subscriber,
    /// The client's number for this request.
    pub request: u64,
    /// Channels whose notifications are sent as soon as the listener listens.
    pub at_once: Vec<Channel>,
    /// Channels whose notifications are sent from the mark on.
    pub from_mark: Vec<Channel>,
    /// The client has been warned that it has no listener.
    pub is_warned: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Listener {
    pub stage: Stage,
    /// The time of the next attempt to open it.
    pub retry_at: Micros,
    /// The pause from which the next one grows.
    pub pause: Micros,
    /// It found no seat: unused listeners of other pools make room for it.
    pub lacks_seat: bool,
    /// Since when it has no channels.
    pub unused_since: Micros,
    /// The last command is running.
    reads_rest: bool,
    /// The last command has run: the connection has delivered all notifications that were committed
    /// before it.
    pub has_read_all: bool,
    channels: BTreeMap<Channel, Listened>,
    /// Channels whose LISTEN or UNLISTEN may be due.
    changed: BTreeSet<Channel>,
    /// Requests without an answer.
    waiting: Vec<Subscription>,
    /// Requests with an answer whose mark has not arrived.
    unmarked: Vec<Subscription>,
}

#[derive(Debug, Default)]
pub(crate) enum Stage {
    #[default]
    Closed,
    Opening,
    Open {
        server: ServerId,
        /// The channel on which clients' marks arrive.
        mark: Arc<[u8]>,
        /// The LISTEN (true) and UNLISTEN commands that are running.
        asked: Vec<(Channel, bool)>,
    },
}

/// The state of one channel.
#[derive(Debug, Default)]
struct Listened {
    /// The connection listens to the channel, and no UNLISTEN was sent.
    is_there: bool,
    told: BTreeSet<Subscriber>,
    /// The number of requests that wait for the channel or for their mark.
    awaited: usize,
}

impl Listened {
    fn is_wanted(&self) -> bool {
        !self.told.is_empty() || self.awaited > 0
    }
}

impl Listener {
    /// Returns a closed listener that is opened at `retry_at` at the earliest. The pause after the next
    /// failure grows from `pause`.
    pub(crate) fn retried_at(retry_at: Micros, pause: Micros) -> Self {
        Self { retry_at, pause, ..Self::default() }
    }

    /// Does any client need the listener?
    pub(crate) fn is_needed(&self) -> bool {
        // The channel of the mark does not count.
        self.channels.len() > usize::from(matches!(self.stage, Stage::Open { .. }))
    }

    /// Does any client wait for a closed listener? All channels are looked at.
    pub(crate) fn is_wanted(&self) -> bool {
        self.channels.values().any(Listened::is_wanted)
    }

    /// The connection is logged in: it must listen to the mark's channel.
    pub(crate) fn open(&mut self, server: ServerId, mark: Arc<[u8]>) {
        let name = Channel::from(&*mark);
        self.stage = Stage::Open { server, mark, asked: Vec::new() };
        self.channels.entry(name.clone()).or_default().awaited = 1;
        self.changed.insert(name);
    }

    /// Adds a request. It replaces earlier requests of the client for the same channels; its
    /// requests for other channels stay valid, since their marks may be on their way.
    pub(crate) fn subscribe(&mut self, new: Subscription) {
        let anew: Vec<_> = new.at_once.iter().chain(&new.from_mark).cloned().collect();
        self.withdraw(new.who, &anew);
        for channel in new.at_once.iter().chain(&new.from_mark) {
            self.channels.entry(channel.clone()).or_default().awaited += 1;
            self.changed.insert(channel.clone());
        }
        self.waiting.push(new);
    }

    /// Removes channels of a client. Other channels are not looked at, since there may be many.
    pub(crate) fn unsubscribe(&mut self, who: Subscriber, channels: &[Channel]) {
        self.withdraw(who, channels);
        for name in channels {
            if self.channels.get_mut(name).is_some_and(|channel| channel.told.remove(&who)) {
                self.changed.insert(name.clone());
            }
        }
    }

    /// Removes channels from the client's unfinished requests.
    fn withdraw(&mut self, who: Subscriber, channels: &[Channel]) {
        let is_given_up = |name: &mut Channel| channels.contains(name);
        for list in [&mut self.waiting, &mut self.unmarked] {
            for one in list.iter_mut().filter(|one| one.who == who) {
                let at_once = one.at_once.extract_if(.., is_given_up);
                for channel in at_once.chain(one.from_mark.extract_if(.., is_given_up)) {
                    release(&mut self.channels, &mut self.changed, channel);
                }
            }
            list.retain(|one| !(one.at_once.is_empty() && one.from_mark.is_empty()));
        }
    }

    /// Returns the next SQL for the connection. Returns None while a command is running, or if
    /// there is nothing to do.
    pub(crate) fn next_order(&mut self) -> Option<Vec<u8>> {
        let Stage::Open { asked, .. } = &mut self.stage else { return None };
        if !asked.is_empty() {
            return None;
        }
        let mut sql = Vec::new();
        for name in std::mem::take(&mut self.changed) {
            let Some(channel) = self.channels.get_mut(&name) else { continue };
            let wanted = channel.is_wanted();
            if wanted != channel.is_there {
                // A new client of a channel that is ending waits until LISTEN has run again.
                channel.is_there = false;
                sql.extend_from_slice(if wanted { b"LISTEN " } else { b"UNLISTEN " });
                quote_identifier(&name, &mut sql);
                sql.push(b';');
                asked.push((name, wanted));
            } else if !wanted {
                self.channels.remove(&name);
            }
        }
        (!sql.is_empty()).then_some(sql)
    }

    /// Returns SQL that changes nothing. PostgreSQL delivers all earlier notifications before the end
    /// of its reply.
    pub(crate) fn last_order(&mut self) -> Option<Vec<u8>> {
        let Stage::Open { mark, .. } = &self.stage else { return None };
        self.reads_rest = true;
        let mut sql = b"LISTEN ".to_vec();
        quote_identifier(mark, &mut sql);
        Some(sql)
    }

    /// Records the end of a command. Returns true if it was the last one: `ends` tells that no
    /// transaction has begun since.
    pub(crate) fn reads_no_more(&mut self, ends: bool) -> bool {
        self.has_read_all = std::mem::take(&mut self.reads_rest) && ends;
        self.has_read_all
    }

    /// Do clients of a lost listener wait for an answer?
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting.iter().any(|one| !one.at_once.is_empty())
    }

    /// Records that the commands have run. Returns the requests that are fulfilled now.
    pub(crate) fn obeyed(&mut self) -> Vec<Subscription> {
        let Stage::Open { asked, .. } = &mut self.stage else { return Vec::new() };
        for (name, is_there) in std::mem::take(asked) {
            if let Some(channel) = self.channels.get_mut(&name) {
                channel.is_there = is_there;
                // Clients may have come or gone meanwhile.
                self.changed.insert(name);
            }
        }
        self.take_ready()
    }

    /// Returns the requests whose channels are all listened to.
    pub(crate) fn take_ready(&mut self) -> Vec<Subscription> {
        if !matches!(self.stage, Stage::Open { .. }) {
            return Vec::new();
        }
        let Self { channels, waiting, changed, unmarked, .. } = self;
        let is_there = |name: &Channel| channels.get(name).is_some_and(|one| one.is_there);
        let (ready, rest): (Vec<_>, Vec<_>) = std::mem::take(waiting)
            .into_iter()
            .partition(|one| one.at_once.iter().chain(&one.from_mark).all(is_there));
        *waiting = rest;
        for one in &ready {
            for name in &one.at_once {
                channels.entry(name.clone()).or_default().told.insert(one.who);
                release(channels, changed, name.clone());
            }
            if !one.from_mark.is_empty() {
                unmarked.push(Subscription { at_once: Vec::new(), ..one.clone() });
            }
        }
        ready
    }

    /// Returns the clients that have lost their listener and are not warned yet. They count as
    /// warned from now on.
    pub(crate) fn take_deaf(&mut self) -> Vec<Subscriber> {
        let mut deaf = Vec::new();
        for one in self.waiting.iter_mut().filter(|one| !one.at_once.is_empty()) {
            if !std::mem::replace(&mut one.is_warned, true) {
                deaf.push(one.who);
            }
        }
        deaf
    }

    /// Takes a notification on the mark's channel: its client gets all later notifications.
    pub(crate) fn marked(&mut self, payload: &[u8]) {
        let is_it = |one: &Subscription| one.token().as_bytes() == payload;
        let Some(at) = self.unmarked.iter().position(is_it) else { return };
        let one = self.unmarked.swap_remove(at);
        for name in one.from_mark {
            self.channels.entry(name.clone()).or_default().told.insert(one.who);
            release(&mut self.channels, &mut self.changed, name);
        }
    }

    /// Returns the clients that get the notifications of this channel.
    pub(crate) fn told_of(&self, channel: &[u8]) -> impl Iterator<Item = Subscriber> {
        self.channels.get(channel).into_iter().flat_map(|one| one.told.iter().copied())
    }
}

/// Counts one waiting request for the channel less.
fn release(
    channels: &mut BTreeMap<Channel, Listened>,
    changed: &mut BTreeSet<Channel>,
    name: Channel,
) {
    if let Some(channel) = channels.get_mut(&name) {
        channel.awaited -= 1;
        changed.insert(name);
    }
}

impl Subscription {
    /// Returns the payload of the request's mark.
    pub fn token(&self) -> String {
        token(self.who, self.request)
    }
}

pub(crate) fn token(who: Subscriber, request: u64) -> String {
    format!("{}.{}.{}.{request}", who.worker.0, who.client.0, who.serial)
}
