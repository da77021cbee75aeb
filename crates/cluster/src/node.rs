//! The knowledge about one node, and when it was learnt.

use crate::Micros;
use crate::claim::Claim;
use crate::commits::Replication;
use crate::fact::{Fact, Role, Sample};
use crate::verdict::Reason;

/// A node is *down* after this many times `health_timeout` without an answer.
const SILENCE: Micros = 2;

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    /// The last answer, unless something happened since that may have changed the node's role.
    pub(crate) sample: Option<Sample>,
    /// The start of the server that answered last in recovery.
    pub(crate) standby: Option<u64>,
    /// The last answer of all, and the highest timeline of its system that the node has shown.
    known: Option<Sample>,
    /// When the question of the latest fact was sent.
    pub(crate) asked_at: Micros,
    /// When the question for the last sample was sent.
    pub(crate) sampled_at: Micros,
    /// Has any fact come?
    pub(crate) is_heard: bool,
    /// Does the source of the nodes still name it? A primary that is not named any more stays a
    /// node until another one is the primary.
    pub(crate) is_named: bool,
    /// Has an operator taken it out of use as a standby?
    pub(crate) is_detached: bool,
    /// Since it says that it is the primary of its timeline.
    pub(crate) claim: Option<Claim>,
    /// The refused connections since the last answer or silence.
    refusals: u32,
    condition: Condition,
    /// The state of its replication, and when the question for it was sent.
    replication: Option<(Replication, Micros)>,
    /// The last known name of its WAL receiver.
    receiver: Option<String>,
    /// Since when it certainly receives no WAL, by the time of a question.
    apart_since: Option<Micros>,
}

/// The outcome of the latest questions.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Answers,
    /// It has refused a connection once.
    Refused,
    /// Since when there is no answer.
    Silent(Micros),
    Unready,
    Unasked(String),
    /// Down for this reason, until it answers.
    Down(Reason),
}

/// The state of a node, without regard to the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Unknown(Reason),
    Unready,
    Down(Reason),
    Present(Sample),
}

impl Node {
    pub(crate) fn new(name: String) -> Self {
        Self {
            name,
            sample: None,
            standby: None,
            known: None,
            asked_at: 0,
            sampled_at: 0,
            is_heard: false,
            is_named: true,
            is_detached: false,
            claim: None,
            refusals: 0,
            condition: Condition::Answers,
            replication: None,
            receiver: None,
            apart_since: None,
        }
    }

    /// Learns what the node tells about replication, with its answer to the question that was sent
    /// at `asked_at`.
    pub(crate) fn learn_replication(&mut self, replication: Replication, asked_at: Micros) {
        if self.asked_at > asked_at {
            return;
        }
        if replication.receiver.is_some() {
            self.receiver.clone_from(&replication.receiver);
        }
        self.replication = Some((replication, asked_at));
    }

    /// Returns what the node has told about replication with its last sample, unless something
    /// happened since.
    pub(crate) fn replication(&self) -> Option<&Replication> {
        let (replication, asked_at) = self.replication.as_ref()?;
        (self.sample.is_some() && *asked_at == self.sampled_at).then_some(replication)
    }

    /// Returns the name of its WAL receiver, or else its name in the configuration.
    pub(crate) fn standby_name(&self) -> &str {
        self.receiver.as_ref().unwrap_or(&self.name)
    }

    /// Did it certainly receive no WAL at this time?
    pub(crate) fn was_apart(&self, at: Micros) -> bool {
        self.asked_at > at && self.apart_since.is_some_and(|since| since < at)
    }

    /// Learns a fact, whose question was sent at `asked_at`. An answer that arrives after the
    /// answer to a later question is ignored.
    pub(crate) fn learn(&mut self, fact: Fact, asked_at: Micros) {
        if asked_at < self.asked_at {
            return;
        }
        self.asked_at = asked_at;
        self.is_heard = true;
        self.refusals = if fact == Fact::Refused { self.refusals.saturating_add(1) } else { 0 };
        self.learn_condition(fact, asked_at);
        let is_apart = match (&self.condition, self.sample) {
            (Condition::Down(why), _) => *why == Reason::Refused,
            (_, Some(sample)) => matches!(sample.role, Role::Primary | Role::Standby(None)),
            (_, None) => false,
        };
        self.apart_since = is_apart.then(|| self.apart_since.unwrap_or(asked_at));
    }

    fn learn_condition(&mut self, fact: Fact, asked_at: Micros) {
        self.condition = match (fact, &self.condition) {
            (Fact::Seen(mut sample), _) => {
                sample.timeline = self.timeline_by(sample);
                (self.sample, self.sampled_at) = (Some(sample), asked_at);
                if sample.role != Role::Primary {
                    self.standby = Some(sample.started);
                }
                let before = self.known.filter(|known| known.system == sample.system);
                let highest = before.map_or(0, |known| known.timeline).max(sample.timeline);
                self.known = Some(Sample { timeline: highest, ..sample });
                Condition::Answers
            }
            // The machine answers again, and PostgreSQL does not run there.
            (Fact::Refused, Condition::Down(Reason::Silent)) => Condition::Down(Reason::Refused),
            (Fact::Refused | Fact::Silent, Condition::Down(_)) => return,
            (Fact::Silent, Condition::Silent(_)) => return,
            // The second failure in a row. A single refusal may be a restart that is over within
            // milliseconds, or a full queue of connections.
            (Fact::Refused | Fact::Silent, Condition::Refused)
            | (Fact::Refused, Condition::Silent(_)) => {
                self.sample = None;
                Condition::Down(Reason::Refused)
            }
            (Fact::Refused, _) => Condition::Refused,
            (Fact::Silent, _) => Condition::Silent(asked_at),
            (Fact::Unready, _) => {
                // Its role may be another one when it has started.
                self.sample = None;
                Condition::Unready
            }
            // The node runs, so its last known role still holds.
            (Fact::Unasked(obstacle), _) => Condition::Unasked(obstacle.to_string()),
        };
    }

    /// Returns the timeline of an answer. The control file of a standby may have an older one than
    /// it replays, until the next restart point. The WAL receiver has the right one while it runs.
    /// Another server may be at the address of the node now, so the start must be the same.
    fn timeline_by(&self, sample: Sample) -> u32 {
        let is_same = |one: &Sample| (one.system, one.started) == (sample.system, sample.started);
        let is_standby = |one: &Sample| one.role != Role::Primary && is_same(one);
        let before = self.sample.filter(|before| is_standby(before) && is_standby(&sample));
        before.map_or(0, |before| before.timeline).max(sample.timeline)
    }

    /// Marks the node as down if it has been silent for too long. A node that is not named any more
    /// is forgotten if it does not tell its state: another server may have its address.
    pub(crate) fn expire(&mut self, health_timeout: Micros, now: Micros) {
        if !self.is_named && self.is_unheard(health_timeout, now) {
            self.sample = None;
        }
        if let Condition::Silent(since) = self.condition
            && now.saturating_sub(since) >= SILENCE * health_timeout
        {
            self.sample = None;
            self.condition = Condition::Down(Reason::Silent);
        }
    }

    /// Has it not answered for so long that it counts as silent?
    pub(crate) fn is_unheard(&self, health_timeout: Micros, now: Micros) -> bool {
        now.saturating_sub(self.sampled_at) >= SILENCE * health_timeout
    }

    /// Returns the highest timeline of this system that the node has shown.
    pub(crate) fn timeline_of(&self, system: u64) -> Option<u32> {
        self.known.filter(|known| known.system == system).map(|known| known.timeline)
    }

    pub(crate) fn standing(&self) -> Standing {
        match (&self.condition, self.sample) {
            (Condition::Down(reason), _) => Standing::Down(reason.clone()),
            (Condition::Unready, _) => Standing::Unready,
            (_, Some(sample)) => Standing::Present(sample),
            (Condition::Unasked(why), None) => Standing::Unknown(Reason::Obstacle(why.clone())),
            (Condition::Refused, None) => Standing::Unknown(Reason::Refused),
            (Condition::Silent(_), None) => Standing::Unknown(Reason::Silent),
            (Condition::Answers, None) => Standing::Unknown(Reason::NotAsked),
        }
    }

    /// Is it to be asked again soon, because the last answer is missing?
    pub(crate) fn is_in_doubt(&self) -> bool {
        match self.condition {
            Condition::Refused | Condition::Silent(_) => true,
            Condition::Answers
            | Condition::Unready
            | Condition::Unasked(_)
            | Condition::Down(_) => false,
        }
    }

    /// Has it refused connections, so that PostgreSQL does not run? A node that is only silent may
    /// run.
    pub(crate) fn is_stopped(&self) -> bool {
        self.condition == Condition::Down(Reason::Refused)
    }

    /// Was its last fact a refusal?
    pub(crate) fn refuses(&self) -> bool {
        self.refusals > 0
    }

    /// Does nothing listen at its address? A single refusal may be one of a full queue.
    pub(crate) fn is_empty(&self) -> bool {
        self.refusals >= 2
    }

    pub(crate) fn is_down(&self) -> bool {
        match self.condition {
            Condition::Down(_) => true,
            Condition::Answers
            | Condition::Refused
            | Condition::Silent(_)
            | Condition::Unready
            | Condition::Unasked(_) => false,
        }
    }
}
