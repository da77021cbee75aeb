//! Notifications in the simulated databases. PostgreSQL's queue has one order for all sessions that
//! read it. A reference has its own queue, in which no other session notifies.

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
    /// Process id of the server.
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
    /// By position: the number of servers that have told their clients.
    tellers: HashMap<usize, usize>,
    /// Number of connections that listened and were lost.
    losses: usize,
    /// Number of notifications when the last of Weir's listeners was lost.
    lost_at: usize,
    /// Weir opens no listener: it shuts down, or a limit has no seat for one.
    has_no_listeners: bool,
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

    /// A server has sent the notification at this position.
    pub(crate) fn count_teller(&self, at: usize) {
        *self.0.borrow_mut().tellers.entry(at).or_default() += 1;
    }

    fn tellers(&self, at: usize) -> usize {
        self.0.borrow().tellers.get(&at).copied().unwrap_or(0)
    }

    pub(crate) fn count_loss(&self) {
        let mut all = self.0.borrow_mut();
        all.losses += 1;
        all.lost_at = all.all.len();
    }

    /// A server that listened for its client is lost, and the client keeps its connection.
    pub(crate) fn count_deafened(&self) {
        self.0.borrow_mut().losses += 1;
    }

    pub(crate) fn forbid_listeners(&self) {
        self.0.borrow_mut().has_no_listeners = true;
    }

    fn has_no_listeners(&self) -> bool {
        self.0.borrow().has_no_listeners
    }

    fn lost_at(&self) -> usize {
        self.0.borrow().lost_at
    }

    fn losses(&self) -> usize {
        self.0.borrow().losses
    }
}

/// The notifications of others that a client must get, and those that it may get. Its reference
/// knows its own ones.
#[derive(Debug)]
pub(crate) struct Hearing {
    bus: Bus,
    database: String,
    client: usize,
    /// Channels of which it may get notifications.
    may: BTreeSet<String>,
    /// Channels to which it has ever listened.
    all: BTreeSet<String>,
    /// Channels that it has given up on a server that was lost then. Weir may not know that.
    revived: BTreeSet<String>,
    /// Channels of which it must get notifications, and their first position in the queue.
    must: BTreeMap<String, usize>,
    heard: HashSet<usize>,
    /// The number of times that it got a notification again.
    repeated: HashMap<usize, usize>,
    /// By sender and channel: the last notification that it got.
    last: HashMap<(usize, String), usize>,
    /// It was told that no connection listens for it.
    is_deaf: bool,
}

impl Hearing {
    pub(crate) fn new(bus: Bus, database: String, client: usize) -> Self {
        Self {
            bus,
            database,
            client,
            may: BTreeSet::new(),
            all: BTreeSet::new(),
            revived: BTreeSet::new(),
            must: BTreeMap::new(),
            heard: HashSet::new(),
            repeated: HashMap::new(),
            last: HashMap::new(),
            is_deaf: false,
        }
    }

    pub(crate) fn client(&self) -> usize {
        self.client
    }

    /// The client has sent more. It listens to `begun` at some moment, and no longer to `ended`.
    pub(crate) fn changed(&mut self, begun: BTreeSet<String>, ended: &BTreeSet<String>) {
        self.revived.retain(|channel| !begun.contains(channel));
        self.all.extend(begun.iter().cloned());
        self.may.extend(begun);
        ended.iter().for_each(|channel| {
            self.must.remove(channel);
        });
    }

    /// Its server is lost, on which these channels were given up.
    pub(crate) fn lost_server(&mut self, ended: &BTreeSet<String>) {
        self.revived.extend(ended.intersection(&self.all).cloned());
    }

    /// Everything that it sent is answered. It now listens to these channels.
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

    /// It gets its own notification. Its reference knows whether that is allowed now.
    pub(crate) fn echoed(&mut self, said: &NotificationResponse<'_>) -> Result<(), String> {
        match self.find(said).is_none_or(|at| self.heard.insert(at)) {
            true => Ok(()),
            false => Err(format!("told of its own {} twice", shown(said.payload))),
        }
    }

    /// It gets another client's notification. Its own one may also arrive like that, if it stopped
    /// listening for a moment and notified then.
    pub(crate) fn told(&mut self, said: &NotificationResponse<'_>) -> Result<(), String> {
        let at = self.find(said);
        let shown = || shown(said.payload);
        let at = at.ok_or_else(|| format!("told of {}, which was not notified", shown()))?;
        let all = self.bus.all();
        let (one, sender) = (&all[at], all[at].sender().unwrap_or_default());
        if one.pid != said.pid {
            return Err(format!("told of {} by {}, it was {}", shown(), said.pid, one.pid));
        }
        if !self.may.contains(&one.channel) && !self.revived.contains(&one.channel) {
            return Err(format!("told of {} on {}, not listening", shown(), one.channel));
        }
        if !self.heard.insert(at) {
            // The lost listener may have delivered it, and then the client's own server. Without a
            // listener, each server that the client gets may deliver it, once.
            let repeated = self.repeated.entry(at).or_default();
            *repeated += 1;
            let is_repeated = self.is_deaf && *repeated < self.bus.tellers(at);
            return match is_repeated || at < self.bus.lost_at() {
                true => Ok(()),
                false => Err(format!("told of {} twice", shown())),
            };
        }
        match self.last.insert((sender, one.channel.clone()), at) {
            Some(before) if before > at => Err(format!("told of {} too late", shown())),
            _ => Ok(()),
        }
    }

    /// It is told that notifications may be lost, or that none arrive.
    pub(crate) fn missed(&mut self, is_deaf: bool) -> Result<(), String> {
        self.is_deaf = is_deaf;
        if self.bus.losses() == 0 {
            return Err("told that notifications were lost, and none was".into());
        }
        let now = self.bus.len();
        self.must.values_mut().for_each(|from| *from = now);
        // Without a listener its server delivered, and the new listener may deliver again.
        self.heard.clear();
        self.repeated.clear();
        self.last.clear();
        Ok(())
    }

    /// The notification that it still has to get.
    pub(crate) fn lacks(&self) -> Option<String> {
        if self.is_deaf && self.bus.has_no_listeners() {
            return None;
        }
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
