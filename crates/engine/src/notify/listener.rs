//! The one connection that listens for all clients of a pool (`pool_mode = auto`): plain data.
//! What happens to it is in `notify/connection.rs`, on the worker that owns it; what a client has of
//! it in [`crate::notify::listening`].
//!
//! Nothing here outlives the connection: whoever listens knows what to, and asks anew.

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

/// A client asks to be told of channels.
#[derive(Clone, Debug)]
pub struct Subscription {
    pub who: Subscriber,
    /// Its number for this letter.
    pub request: u64,
    /// To be told of from the moment at which the listener has them.
    pub at_once: Vec<Channel>,
    /// To be told of from the mark on.
    pub from_mark: Vec<Channel>,
    /// The client has been told that it has to wait.
    pub is_warned: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Listener {
    pub stage: Stage,
    /// No attempt to open it is made before.
    pub retry_at: Micros,
    /// It found no seat: other pools' listeners that are not needed make room for it.
    pub lacks_seat: bool,
    /// Since when nobody listens.
    pub unused_since: Micros,
    channels: BTreeMap<Channel, Listened>,
    /// Channels that the connection may have to begin or to stop listening to.
    changed: BTreeSet<Channel>,
    /// Not answered yet.
    waiting: Vec<Subscription>,
    /// Answered; their mark has not been seen.
    unmarked: Vec<Subscription>,
}

#[derive(Debug, Default)]
pub(crate) enum Stage {
    #[default]
    Closed,
    Opening,
    Open {
        server: ServerId,
        /// The channel by which clients say from where on they want to hear.
        mark: Arc<[u8]>,
        /// What it is being asked at the moment.
        asked: Vec<(Channel, bool)>,
    },
}

/// What is known of a channel.
#[derive(Debug, Default)]
struct Listened {
    /// Does the connection listen to it, and has not been told to stop?
    is_there: bool,
    told: BTreeSet<Subscriber>,
    /// How many wait for it, or for their mark.
    awaited: usize,
}

impl Listened {
    fn is_wanted(&self) -> bool {
        !self.told.is_empty() || self.awaited > 0
    }
}

impl Listener {
    /// It is not there, and not tried before that moment.
    pub(crate) fn retried_at(retry_at: Micros) -> Self {
        Self { retry_at, ..Self::default() }
    }

    /// Does anybody want anything of it?
    pub(crate) fn is_needed(&self) -> bool {
        // The mark's channel is its own.
        self.channels.len() > usize::from(matches!(self.stage, Stage::Open { .. }))
    }

    /// The connection is open and listens to the mark.
    pub(crate) fn open(&mut self, server: ServerId, mark: Arc<[u8]>) {
        let name = Channel::from(&*mark);
        self.stage = Stage::Open { server, mark, asked: Vec::new() };
        self.channels.entry(name.clone()).or_default().awaited = 1;
        self.changed.insert(name);
    }

    /// A client that asks for a channel once more has not got it, and waits for it in another way now.
    /// Its other channels may be on their way: their mark is in the queue.
    pub(crate) fn subscribe(&mut self, new: Subscription) {
        let anew: Vec<_> = new.at_once.iter().chain(&new.from_mark).cloned().collect();
        self.withdraw(new.who, Some(&anew));
        for channel in new.at_once.iter().chain(&new.from_mark) {
            self.channels.entry(channel.clone()).or_default().awaited += 1;
            self.changed.insert(channel.clone());
        }
        self.waiting.push(new);
    }

    /// That client wants to hear no more of these channels; None: of none.
    pub(crate) fn unsubscribe(&mut self, who: Subscriber, channels: Option<&[Channel]>) {
        self.withdraw(who, channels);
        for (name, channel) in &mut self.channels {
            if channels.is_none_or(|all| all.contains(name)) && channel.told.remove(&who) {
                self.changed.insert(name.clone());
            }
        }
    }

    /// It has not got these yet, and does not wait for them any more; None: for any.
    fn withdraw(&mut self, who: Subscriber, channels: Option<&[Channel]>) {
        let is_given_up = |name: &mut Channel| channels.is_none_or(|all| all.contains(name));
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

    /// The SQL that the connection is to run now; None if it is at work, or there is nothing to do.
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
                // Who comes while it stops to listen waits until it listens again.
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

    /// The connection has done as it was told. Those whose channels are all there now.
    pub(crate) fn obeyed(&mut self) -> Vec<Subscription> {
        let Stage::Open { asked, .. } = &mut self.stage else { return Vec::new() };
        for (name, is_there) in std::mem::take(asked) {
            if let Some(channel) = self.channels.get_mut(&name) {
                channel.is_there = is_there;
                // Somebody may have come or gone meanwhile.
                self.changed.insert(name);
            }
        }
        self.take_ready()
    }

    /// Those who wait for nothing more than an answer.
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

    /// Returns the clients that have lost their listener and have not been warned. They count as warned
    /// from now on.
    pub(crate) fn take_deaf(&mut self) -> Vec<Subscriber> {
        let mut deaf = Vec::new();
        for one in self.waiting.iter_mut().filter(|one| !one.at_once.is_empty()) {
            if !std::mem::replace(&mut one.is_warned, true) {
                deaf.push(one.who);
            }
        }
        deaf
    }

    /// A notification on the mark's channel: that client is told from here on.
    pub(crate) fn marked(&mut self, payload: &[u8]) {
        let is_it = |one: &Subscription| one.token().as_bytes() == payload;
        let Some(at) = self.unmarked.iter().position(is_it) else { return };
        let one = self.unmarked.swap_remove(at);
        for name in one.from_mark {
            self.channels.entry(name.clone()).or_default().told.insert(one.who);
            release(&mut self.channels, &mut self.changed, name);
        }
    }

    /// Who is to be told of this channel.
    pub(crate) fn told_of(&self, channel: &[u8]) -> impl Iterator<Item = Subscriber> {
        self.channels.get(channel).into_iter().flat_map(|one| one.told.iter().copied())
    }
}

/// One fewer waits for that channel.
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
    /// What stands in its mark.
    pub fn token(&self) -> String {
        token(self.who, self.request)
    }
}

pub(crate) fn token(who: Subscriber, request: u64) -> String {
    format!("{}.{}.{}.{request}", who.worker.0, who.client.0, who.serial)
}
