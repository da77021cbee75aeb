//! What is notified in the simulated databases: PostgreSQL's queue, which has one order for all who
//! read it. A reference has one of its own, in which nobody else notifies.

use std::cell::{Ref, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use wire::messages::NotificationResponse;

use crate::sql::Tag;

#[derive(Clone, Debug)]
pub(crate) struct Notification {
    pub(crate) database: String,
    pub(crate) channel: String,
    pub(crate) payload: String,
    /// Of the server process.
    pub(crate) pid: u32,
}

impl Notification {
    /// The simulated client that has notified.
    fn sender(&self) -> Option<usize> {
        Tag::parse(&self.payload).map(|tag| tag.client)
    }
}

#[derive(Debug, Default)]
struct Queue {
    all: Vec<Notification>,
    /// How many connections that listened for others were lost.
    losses: usize,
    /// So many notifications there were when the last of them was lost.
    lost_at: usize,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Bus(Rc<RefCell<Queue>>);

impl Bus {
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().all.len()
    }

    pub(crate) fn push(&self, new: Notification) {
        self.0.borrow_mut().all.push(new);
    }

    pub(crate) fn all(&self) -> Ref<'_, [Notification]> {
        Ref::map(self.0.borrow(), |queue| queue.all.as_slice())
    }

    pub(crate) fn count_loss(&self) {
        let mut all = self.0.borrow_mut();
        all.losses += 1;
        all.lost_at = all.all.len();
    }

    fn lost_at(&self) -> usize {
        self.0.borrow().lost_at
    }

    fn losses(&self) -> usize {
        self.0.borrow().losses
    }
}

/// What a client must hear of others, and may. What it notifies itself its reference knows.
#[derive(Debug)]
pub(crate) struct Hearing {
    bus: Bus,
    database: String,
    client: usize,
    /// Channels that it may hear of.
    may: BTreeSet<String>,
    /// Channels that it must hear of, and from where in the queue on.
    must: BTreeMap<String, usize>,
    heard: HashSet<usize>,
    /// By sender and channel: what it was told of last.
    last: HashMap<(usize, String), usize>,
}

impl Hearing {
    pub(crate) fn new(bus: Bus, database: String, client: usize) -> Self {
        Self {
            bus,
            database,
            client,
            may: BTreeSet::new(),
            must: BTreeMap::new(),
            heard: HashSet::new(),
            last: HashMap::new(),
        }
    }

    /// By what the client has sent it listens to these at some moment, and to those no longer.
    pub(crate) fn changed(&mut self, begun: BTreeSet<String>, ended: &BTreeSet<String>) {
        self.may.extend(begun);
        ended.iter().for_each(|channel| {
            self.must.remove(channel);
        });
    }

    /// All that was sent is answered: these are its channels.
    pub(crate) fn answered(&mut self, channels: &BTreeSet<String>) {
        if self.may.is_empty() {
            return;
        }
        self.may.clone_from(channels);
        self.must.retain(|channel, _| channels.contains(channel));
        for channel in channels {
            self.must.entry(channel.clone()).or_insert(self.bus.len());
        }
    }

    fn find(&self, said: &NotificationResponse<'_>) -> Option<usize> {
        self.bus.all().iter().position(|one| {
            one.database == self.database
                && one.channel.as_bytes() == said.channel
                && one.payload.as_bytes() == said.payload
        })
    }

    /// It is told of what it has done itself; whether now is the time its reference knows.
    pub(crate) fn echoed(&mut self, said: &NotificationResponse<'_>) -> Result<(), String> {
        match self.find(said).is_none_or(|at| self.heard.insert(at)) {
            true => Ok(()),
            false => Err(format!("told of its own {} twice", shown(said.payload))),
        }
    }

    /// It is told of another's; or as if it were another's of its own, which may be where it has
    /// given up the channel for a moment in which it notified.
    pub(crate) fn told(&mut self, said: &NotificationResponse<'_>) -> Result<(), String> {
        let at = self.find(said);
        let shown = || shown(said.payload);
        let at = at.ok_or_else(|| format!("told of {}, which was not notified", shown()))?;
        let all = self.bus.all();
        let (one, sender) = (&all[at], all[at].sender().unwrap_or_default());
        if one.pid != said.pid {
            return Err(format!("told of {} by {}, it was {}", shown(), said.pid, one.pid));
        }
        if !self.may.contains(&one.channel) {
            return Err(format!("told of {} on {}, not listening", shown(), one.channel));
        }
        if !self.heard.insert(at) {
            // The listener may have told it just before it was lost, and the client's own server behind that.
            return match at < self.bus.lost_at() {
                true => Ok(()),
                false => Err(format!("told of {} twice", shown())),
            };
        }
        match self.last.insert((sender, one.channel.clone()), at) {
            Some(before) if before > at => Err(format!("told of {} too late", shown())),
            _ => Ok(()),
        }
    }

    /// It is told that it may have missed something.
    pub(crate) fn missed(&mut self) -> Result<(), String> {
        if self.bus.losses() == 0 {
            return Err("told that notifications were lost, and none was".into());
        }
        let now = self.bus.len();
        self.must.values_mut().for_each(|from| *from = now);
        // What it has heard from its server while there was no listener it may hear once more.
        self.heard.clear();
        self.last.clear();
        Ok(())
    }

    /// What it has to hear yet.
    pub(crate) fn lacks(&self) -> Option<String> {
        let from = self.must.values().copied().min()?;
        let all = self.bus.all();
        let is_due = |(at, one): &(usize, &Notification)| {
            one.database == self.database
                && self.must.get(&one.channel).is_some_and(|from| at >= from)
                && one.sender().is_some_and(|sender| sender != self.client)
                && !self.heard.contains(at)
        };
        let mut due = all.iter().enumerate().skip(from).filter(is_due);
        due.next().map(|(_, one)| format!("{} on {}", one.payload, one.channel))
    }
}

fn shown(payload: &[u8]) -> String {
    String::from_utf8_lossy(payload).into_owned()
}
