//! The rules for all nodes of a cluster together: which one is the primary, which standbys follow
//! it, and which nodes are not to be used.
//!
//! ```text
//!            first facts of all nodes                  Fact: not its primary any more
//!   waiting ───────────────────────────► primary ◄──────────────────────────► no primary
//!                                                 Fact: a primary of a new timeline,
//!                                                 or the same node again
//! ```
//!
//! 1. *Primary*: the only server that is not in recovery, has the cluster's system identifier, and
//!    has the highest timeline that was seen. If there are two, the present primary stays.
//! 2. *The primary of a timeline is one server.* Another node becomes the primary of the same
//!    timeline only if it is that server: it has not been restarted; or the primary is gone, and
//!    the node has all WAL that the primary was seen to have (`claim.rs`).
//! 3. *Readable*: in recovery, streams, follows the timeline of the primary, and is not detached.
//! 4. *Detached*: an operator has taken the node out of use as a standby. It is not readable, and is not
//!    promoted by Weir. If something else promotes it, it is the primary as any other node.
//!
//! A role that the configuration or a cluster manager gives to a node does not count.

mod safety;

use crate::Micros;
use crate::claim::{Claim, Flaw};
use crate::commits::{Commits, Replication};
use crate::fact::{Fact, Lsn, Role, Sample};
use crate::history::{History, Lost};
use crate::node::{Node, Standing};
use crate::verdict::{Reason, Verdict};

/// When to ask a node again that has refused a connection once.
const DOUBT_PAUSE: Micros = 50_000;
/// The longest time between two questions while there is no primary.
const SEARCH_PAUSE: Micros = 100_000;
/// A node that is down is asked less often: once in this many sample intervals, but at least
/// every [`DOWN_PAUSE_MAX`].
const DOWN_INTERVALS: Micros = 5;
const DOWN_PAUSE_MAX: Micros = 5_000_000;

const UNASKED: Verdict = Verdict::Unknown(Reason::NotAsked);

/// A node by its place in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u16);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub sample_interval: Micros,
    pub health_timeout: Micros,
}

/// A change that [`Cluster::judge`] has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The verdict about a node has changed.
    Verdict { node: NodeId, verdict: Verdict },
    /// The cluster has this primary now.
    Opened { primary: NodeId, timeline: u32 },
    /// The cluster has no primary any more, or the reason has changed.
    Shut { reason: Reason },
}

#[derive(Clone, Debug)]
pub struct Cluster {
    settings: Settings,
    nodes: Vec<Node>,
    verdicts: Vec<Verdict>,
    /// The system identifier of the cluster, once it is known.
    system: Option<u64>,
    /// The highest timeline that was seen on a node of the cluster.
    newest: u32,
    /// The last primary.
    last: Option<Last>,
    state: Result<Primary, Reason>,
    /// The end of the WAL of the last primary.
    written: Lsn,
    /// The guarantee for the commits of the last primary.
    commits: Commits,
    /// While Weir changes the primary: why, for the history.
    intent: Option<String>,
    history: History,
}

/// A server as the primary of its timeline, at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Primary {
    node: NodeId,
    timeline: u32,
    /// See [`Sample::started`].
    started: u64,
}

/// The last primary. Its node may not be a node any more.
#[derive(Clone, Copy, Debug)]
struct Last {
    node: Option<NodeId>,
    timeline: u32,
    started: u64,
    /// When its first answer as the primary had arrived.
    since: Micros,
    /// Another server was seen at its node since.
    has_left: bool,
}

impl Cluster {
    /// Returns a cluster of these nodes, of which nothing is known yet.
    pub fn new(settings: Settings, names: impl IntoIterator<Item = String>, now: Micros) -> Self {
        let nodes: Vec<_> = names.into_iter().map(Node::new).collect();
        let mut history = History::default();
        history.lost(None, "start".to_owned(), now);
        let reason = if nodes.is_empty() { Reason::NoNodes } else { Reason::NobodyAnswers };
        Self {
            settings,
            verdicts: vec![UNASKED; nodes.len()],
            nodes,
            system: None,
            newest: 0,
            last: None,
            state: Err(reason),
            written: Lsn::default(),
            commits: Commits::default(),
            intent: None,
            history,
        }
    }

    /// Returns a copy that judges with other settings.
    #[must_use]
    pub fn with_settings(&self, settings: Settings) -> Self {
        Self { settings, ..self.clone() }
    }

    /// Returns a copy with other nodes: for each, its name, and its number so far if it is known.
    /// The system identifier, the timeline and the history stay.
    #[must_use]
    pub fn with_nodes(
        &self,
        nodes: impl IntoIterator<Item = (String, Option<NodeId>)>,
        now: Micros,
    ) -> Self {
        let mut new = self.clone();
        let nodes: Vec<_> = nodes.into_iter().collect();
        let followed = |old: NodeId| {
            let at = nodes.iter().position(|(_, known)| *known == Some(old))?;
            Some(NodeId(at as u16))
        };
        new.last = self.last.map(|last| Last { node: last.node.and_then(followed), ..last });
        new.state = match self.state.clone().map(|own| (own, followed(own.node))) {
            Ok((own, Some(node))) => Ok(Primary { node, ..own }),
            Ok((own, None)) => {
                let (node, why) = (self.name(own.node).to_owned(), Box::new(Reason::Removed));
                let lost = Err(Reason::Lost { node, why });
                new.note(&lost, now);
                lost
            }
            Err(reason) => Err(reason),
        };
        let number = |old| {
            let at = nodes.iter().position(|(_, known)| *known == Some(old))?;
            Some(NodeId(at as u16))
        };
        new.commits.renumber(number);
        let known = |at: Option<NodeId>| at.map(|at| usize::from(at.0));
        let verdict = |at| known(at).map_or(UNASKED, |at| self.verdicts[at].clone());
        new.verdicts = nodes.iter().map(|(_, at)| verdict(*at)).collect();
        let node =
            |(name, at)| known(at).map_or_else(|| Node::new(name), |at| self.nodes[at].clone());
        new.nodes = nodes.into_iter().map(node).collect();
        new
    }

    /// Learns a fact about a node. The question was sent at `asked_at`.
    pub fn learn(&mut self, node: NodeId, fact: Fact, asked_at: Micros) {
        if let Some(node) = self.nodes.get_mut(usize::from(node.0)) {
            node.learn(fact, asked_at);
        }
    }

    /// Learns which nodes the source of the nodes names. A primary that it does not name any more
    /// stays a node until another one is the primary.
    pub fn set_named(&mut self, is_named: impl Fn(NodeId) -> bool) {
        for (at, node) in self.nodes.iter_mut().enumerate() {
            node.is_named = is_named(NodeId(at as u16));
        }
    }

    /// Takes a node out of use as a standby, or back into use.
    pub fn set_detached(&mut self, node: NodeId, is_detached: bool) {
        if let Some(node) = self.nodes.get_mut(usize::from(node.0)) {
            node.is_detached = is_detached;
        }
    }

    /// Has an operator taken the node out of use as a standby?
    #[must_use]
    pub fn is_detached(&self, node: NodeId) -> bool {
        self.nodes[usize::from(node.0)].is_detached
    }

    /// Learns what a node has told about replication, together with the answer that is learnt next.
    pub fn learn_replication(&mut self, node: NodeId, told: Replication, asked_at: Micros) {
        if let Some(node) = self.nodes.get_mut(usize::from(node.0)) {
            node.learn_replication(told, asked_at);
        }
    }

    /// Judges all nodes. Returns the changes since the last call.
    pub fn judge(&mut self, now: Micros) -> Vec<Change> {
        for node in &mut self.nodes {
            node.expire(self.settings.health_timeout, now);
        }
        let standings: Vec<_> = self.nodes.iter().map(Node::standing).collect();
        self.adopt_system(&standings);
        self.learn_timeline();
        self.follow_claims(now);
        self.compare_claims();
        self.follow_departure(&standings);
        let state = self.choose(&standings, now);
        if let Ok(primary) = state {
            let Primary { node, timeline, started } = primary;
            let claims = self.nodes.iter_mut().filter_map(|node| node.claim.as_mut());
            claims.filter(|claim| claim.started == started).for_each(Claim::accept);
            let is_same = |last: &Last| last.started == started && last.timeline == timeline;
            let since = match self.last.filter(is_same) {
                Some(last) => last.since,
                None => self.claim(node).map_or(now, |claim| claim.since),
            };
            self.last = Some(Last { node: Some(node), timeline, started, since, has_left: false });
            if let Some(sample) = self.own(&standings[usize::from(node.0)]) {
                self.written = sample.wal;
                self.judge_commits(primary, sample.wal, now);
            }
            // The servers that were heard before it was the primary.
            self.compare_claims();
        }
        let mut changes = Vec::new();
        for at in 0..self.nodes.len() {
            let verdict = self.verdict_of(at, &standings, &state);
            if self.verdicts[at] != verdict {
                self.verdicts[at] = verdict.clone();
                changes.push(Change::Verdict { node: NodeId(at as u16), verdict });
            }
        }
        if self.state != state {
            self.note(&state, now);
            changes.push(match &state {
                Ok(Primary { node, timeline, .. }) => {
                    Change::Opened { primary: *node, timeline: *timeline }
                }
                Err(reason) => Change::Shut { reason: reason.clone() },
            });
            self.state = state;
        }
        changes
    }

    /// Returns the primary, or why there is none.
    ///
    /// # Errors
    /// When there is no node to which transactions may go.
    pub fn primary(&self) -> Result<NodeId, &Reason> {
        self.state.as_ref().map(|primary| primary.node)
    }

    /// Returns the primary, or the last one while there is none.
    #[must_use]
    pub fn last_primary(&self) -> Option<NodeId> {
        self.last.and_then(|last| last.node)
    }

    /// Returns the start of the server that is the primary, or was the last one.
    #[must_use]
    pub fn last_start(&self) -> Option<u64> {
        self.last.map(|last| last.started)
    }

    /// Returns the lost primary, if it is certainly down and no other node is the primary.
    #[must_use]
    pub fn lost_primary(&self) -> Option<NodeId> {
        let node = self.last.filter(|last| last.timeline == self.newest)?.node?;
        let is_down = self.state.is_err() && self.nodes[usize::from(node.0)].is_down();
        is_down.then_some(node)
    }

    /// Does the node refuse connections? A node that is only silent may run.
    #[must_use]
    pub fn is_stopped(&self, node: NodeId) -> bool {
        self.nodes[usize::from(node.0)].is_stopped()
    }

    /// Returns the nodes, in the order of the configuration.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u16).map(NodeId)
    }

    #[must_use]
    pub fn name(&self, node: NodeId) -> &str {
        &self.nodes[usize::from(node.0)].name
    }

    /// Returns when the question for the node's last sample was sent. Facts without an answer do not
    /// make a sample newer.
    #[must_use]
    pub fn sampled_at(&self, node: NodeId) -> Micros {
        let node = &self.nodes[usize::from(node.0)];
        node.sampled_at
    }

    /// Is the node certainly down?
    #[must_use]
    pub fn is_down(&self, node: NodeId) -> bool {
        self.nodes[usize::from(node.0)].is_down()
    }

    /// Has the node refused the last connection?
    #[must_use]
    pub fn refuses(&self, node: NodeId) -> bool {
        self.nodes[usize::from(node.0)].refuses()
    }

    /// Returns when the question for the node's last fact was sent, answered or not.
    #[must_use]
    pub fn asked_at(&self, node: NodeId) -> Micros {
        self.nodes[usize::from(node.0)].asked_at
    }

    /// Returns the end of the WAL of the last primary, by its last answer.
    #[must_use]
    pub fn written(&self) -> Lsn {
        self.written
    }

    /// Sets why Weir changes the primary, for the history. None: the change is over.
    pub fn intend(&mut self, intent: Option<String>) {
        self.intent = intent;
    }

    /// Returns the last answer of a node that belongs to the cluster.
    #[must_use]
    pub fn own_sample(&self, node: NodeId) -> Option<Sample> {
        self.own(&self.nodes[usize::from(node.0)].standing())
    }

    /// Returns the highest timeline that was seen; 0 = none.
    #[must_use]
    pub fn timeline(&self) -> u32 {
        self.newest
    }

    /// Returns the system identifier, once it is known.
    #[must_use]
    pub fn system(&self) -> Option<u64> {
        self.system
    }

    #[must_use]
    pub fn verdict(&self, node: NodeId) -> &Verdict {
        &self.verdicts[usize::from(node.0)]
    }

    /// Returns the last answer of a node that is not down.
    #[must_use]
    pub fn sample(&self, node: NodeId) -> Option<Sample> {
        match self.nodes[usize::from(node.0)].standing() {
            Standing::Present(sample) => Some(sample),
            Standing::Unknown(_) | Standing::Unready | Standing::Down(_) => None,
        }
    }

    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Returns the time from the last answer of a node to the next question.
    #[must_use]
    pub fn pause(&self, node: NodeId) -> Micros {
        let interval = self.settings.sample_interval;
        let node = &self.nodes[usize::from(node.0)];
        match &self.state {
            _ if node.is_in_doubt() => DOUBT_PAUSE.min(interval),
            Err(_) => SEARCH_PAUSE.min(interval),
            Ok(_) if node.is_down() => (DOWN_INTERVALS * interval).min(DOWN_PAUSE_MAX),
            Ok(_) => interval,
        }
    }

    /// Learns the system identifier: the one that most nodes have, or that all answering nodes
    /// have. It never changes later, so a node of another cluster is never used.
    fn adopt_system(&mut self, standings: &[Standing]) {
        if self.system.is_some() {
            return;
        }
        let seen: Vec<_> = standings.iter().filter_map(system_of).collect();
        let has_majority = |system: &u64| {
            seen.iter().filter(|other| *other == system).count() * 2 > standings.len()
        };
        let all_agree = || seen.windows(2).all(|pair| pair[0] == pair[1]) && self.all_are_heard();
        self.system = match seen.iter().copied().find(has_majority) {
            Some(system) => Some(system),
            None if all_agree() => seen.first().copied(),
            None => None,
        };
    }

    fn all_are_heard(&self) -> bool {
        self.nodes.iter().all(|node| node.is_heard)
    }

    /// Learns the highest timeline, also from nodes that were lost before the system was known.
    fn learn_timeline(&mut self) {
        let Some(system) = self.system else { return };
        let timelines = self.nodes.iter().filter_map(|node| node.timeline_of(system));
        self.newest = timelines.fold(self.newest, u32::max);
    }

    /// Returns the sample of a node that belongs to the cluster.
    fn own(&self, standing: &Standing) -> Option<Sample> {
        match standing {
            Standing::Present(sample) if Some(sample.system) == self.system => Some(*sample),
            Standing::Present(_) | Standing::Unknown(_) | Standing::Unready | Standing::Down(_) => {
                None
            }
        }
    }

    /// Follows what the nodes say about themselves. The claim of a node without an answer stays: it
    /// may be heard again.
    fn follow_claims(&mut self, now: Micros) {
        let standbys: Vec<_> = self.nodes.iter().filter_map(|node| node.standby).collect();
        let start = |node: &Node| node.claim.as_ref().map(|claim| claim.started);
        let starts: Vec<_> = self.nodes.iter().map(start).collect();
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let Some(sample) = node.sample else { continue };
            let was_standby = standbys.contains(&sample.started);
            let asked_at = node.sampled_at;
            // A server that is known at another node already has another address now. It was not
            // restarted here, so the server that was here is not its past.
            let is_at_other = starts
                .iter()
                .enumerate()
                .any(|(other, start)| other != at && *start == Some(sample.started));
            let before =
                node.claim.take().filter(|own| own.started == sample.started || !is_at_other);
            node.claim = Claim::followed(before, &sample, was_standby, asked_at, now);
        }
    }

    /// Finds the servers that are certainly not the last primary.
    fn compare_claims(&mut self) {
        self.relate_claims();
        let Some(last) = self.last else { return };
        let is_primary = |claim: &Claim| claim.started == last.started;
        let primary = last.node.and_then(|node| self.claim(node)).cloned();
        let primary = primary.filter(is_primary);
        for claim in self.nodes.iter_mut().filter_map(|node| node.claim.as_mut()) {
            if !is_primary(claim) {
                claim.compare(primary.as_ref(), self.written, last.since);
            }
        }
        self.relate_claims();
    }

    /// A server may have several addresses. All that was seen of it counts for each of them. Servers
    /// that run at the same time are different ones.
    fn relate_claims(&mut self) {
        let all: Vec<_> = self.nodes.iter().filter_map(|node| node.claim.clone()).collect();
        for claim in self.nodes.iter_mut().filter_map(|node| node.claim.as_mut()) {
            all.iter().for_each(|other| claim.unite(other));
            all.iter().for_each(|other| claim.meet(other));
        }
    }

    /// Returns the claim of a node.
    fn claim(&self, node: NodeId) -> Option<&Claim> {
        self.nodes[usize::from(node.0)].claim.as_ref()
    }

    /// Notes that another server is at the node of the last primary.
    fn follow_departure(&mut self, standings: &[Standing]) {
        let Some(last) = &mut self.last else { return };
        let Some(node) = last.node else { return };
        if let Standing::Present(own) = &standings[usize::from(node.0)] {
            last.has_left |= Some(own.system) != self.system || own.started != last.started;
        }
    }

    /// Returns the server of a node that accepts writes on this timeline.
    fn claimant(&self, at: usize, standings: &[Standing], timeline: u32) -> Option<Primary> {
        let own = self.own(&standings[at])?;
        let claims = own.role == Role::Primary && own.timeline == timeline;
        let node = NodeId(at as u16);
        claims.then_some(Primary { node, timeline, started: own.started })
    }

    /// Chooses the primary, by rules 1 and 2.
    fn choose(&self, standings: &[Standing], now: Micros) -> Result<Primary, Reason> {
        let timeline = self.newest;
        let claimants =
            (0..standings.len()).filter_map(|at| self.claimant(at, standings, timeline));
        let mut claimants: Vec<_> = claimants.collect();
        let last = self.last.filter(|last| last.timeline == timeline);
        if let Some(last) = last {
            let is_same = |own: &&Primary| own.started == last.started;
            let is_there = |own: &&Primary| Some(own.node) == last.node;
            let same = claimants.iter().filter(is_same);
            if let Some(own) = same.clone().find(is_there).or(same.clone().next()) {
                return Ok(*own);
            }
            let is_gone = |own: &Primary| self.is_gone(last, own.node, standings, now);
            let succeeds = |own: &Primary| {
                (is_gone(own) || Some(own.node) == last.node) && self.flaw(own.node).is_none()
            };
            claimants.retain(succeeds);
        } else if self.last.is_none()
            && let Some(missing) = self.nodes.iter().find(|node| !node.is_heard)
        {
            // A node that was not heard yet may have a higher timeline.
            return Err(Reason::WaitsFor(missing.name.clone()));
        }
        let Some(first) = claimants.first() else {
            return Err(match last {
                Some(last) => self.lost(last, standings),
                None => self.no_claimant(standings),
            });
        };
        // Two addresses of one server are no two primaries.
        if claimants.iter().all(|own| own.started == first.started) {
            return Ok(*first);
        }
        let name = |own: &Primary| self.name(own.node).to_owned();
        Err(Reason::TwoPrimaries { timeline, nodes: claimants.iter().map(name).collect() })
    }

    /// Returns why this node is not the last primary, at another address or restarted.
    fn flaw(&self, node: NodeId) -> Option<Flaw> {
        self.claim(node)?.flaw(self.written)
    }

    /// Is the last primary certainly not at its node any more, so that it may be at another one? A
    /// node that is only silent may run. A node that was a standby may have been restarted without
    /// recovery. So it is not enough for it that nothing is at the node of the primary, unless another
    /// server was seen there before.
    fn is_gone(&self, last: Last, other: NodeId, standings: &[Standing], now: Micros) -> bool {
        let Some(at) = last.node.map(|node| usize::from(node.0)) else { return true };
        let node = &self.nodes[at];
        let is_another = match &standings[at] {
            Standing::Present(own) => {
                Some(own.system) != self.system || own.started != last.started
            }
            Standing::Unknown(_) | Standing::Unready | Standing::Down(_) => false,
        };
        let was_standby = self.nodes[usize::from(other.0)].standby.is_some();
        let is_unnamed = || !node.is_named && node.is_unheard(self.settings.health_timeout, now);
        let may_be_elsewhere = last.has_left || !was_standby || !node.is_named;
        is_another || may_be_elsewhere && node.is_empty() || is_unnamed()
    }

    /// Returns why the last primary is not the primary any more.
    fn lost(&self, last: Last, standings: &[Standing]) -> Reason {
        let Some(at) = last.node.map(|node| usize::from(node.0)) else {
            return Reason::NoneWrites { timeline: last.timeline };
        };
        let why = match &standings[at] {
            Standing::Down(why) | Standing::Unknown(why) => why.clone(),
            Standing::Unready => Reason::Unready,
            Standing::Present(sample) => match self.own(&standings[at]) {
                None => self.stranger(sample.system),
                Some(own) if own.timeline < last.timeline => {
                    Reason::OldTimeline { own: own.timeline, newest: last.timeline }
                }
                Some(own) if own.role == Role::Primary => self.other_server(at, last),
                Some(_) => Reason::NoneWrites { timeline: last.timeline },
            },
        };
        Reason::Lost { node: self.nodes[at].name.clone(), why: Box::new(why) }
    }

    fn no_claimant(&self, standings: &[Standing]) -> Reason {
        match (self.system, standings.iter().any(|one| system_of(one).is_some())) {
            (Some(_), _) => Reason::NoneWrites { timeline: self.newest },
            (None, true) => Reason::Strangers,
            (None, false) => Reason::NobodyAnswers,
        }
    }

    fn stranger(&self, own: u64) -> Reason {
        match self.system {
            Some(cluster) => Reason::Stranger { own, cluster },
            None => Reason::NoIdentifier { own },
        }
    }

    fn verdict_of(
        &self,
        at: usize,
        standings: &[Standing],
        state: &Result<Primary, Reason>,
    ) -> Verdict {
        let own = match &standings[at] {
            Standing::Down(reason) => return Verdict::Down(reason.clone()),
            Standing::Unknown(reason) => return Verdict::Unknown(reason.clone()),
            Standing::Unready => return Verdict::Unfit(Reason::Unready),
            Standing::Present(sample) => match self.own(&standings[at]) {
                None => return Verdict::Unfit(self.stranger(sample.system)),
                Some(own) => own,
            },
        };
        match (own.role, state) {
            (Role::Primary, Ok(primary)) if usize::from(primary.node.0) == at => Verdict::Writable,
            (Role::Primary, Ok(primary)) if primary.started == own.started => {
                let node = self.name(primary.node).to_owned();
                Verdict::Unfit(Reason::SameServer { node })
            }
            (Role::Primary, _) => Verdict::FalsePrimary(self.false_primary(at, own, state)),
            (Role::Standby(_), _) if self.nodes[at].is_detached => Verdict::Unfit(Reason::Detached),
            (Role::Standby(_), Err(_)) => Verdict::Unfit(self.orphan(own.timeline)),
            (Role::Standby(receiver), Ok(primary)) => {
                let timeline = receiver.map_or(own.timeline, |receiver| receiver.timeline);
                match receiver {
                    _ if timeline != primary.timeline => Verdict::Unfit(Reason::OldTimeline {
                        own: timeline,
                        newest: primary.timeline,
                    }),
                    None => Verdict::Unfit(Reason::NotStreaming),
                    Some(_) => Verdict::Readable,
                }
            }
        }
    }

    /// Returns why a standby of this timeline is not readable while there is no primary.
    /// [`Reason::NoPrimary`]: only because of that, and it is a standby of the last one.
    fn orphan(&self, own: u32) -> Reason {
        let newest = self.newest;
        match self.last {
            _ if own < newest => Reason::OldTimeline { own, newest },
            Some(last) if last.timeline < newest => Reason::NoneWrites { timeline: newest },
            Some(_) | None => Reason::NoPrimary,
        }
    }

    /// Returns why a node that accepts writes is not the primary.
    fn false_primary(&self, at: usize, own: Sample, state: &Result<Primary, Reason>) -> Reason {
        if own.timeline < self.newest {
            return Reason::OldTimeline { own: own.timeline, newest: self.newest };
        }
        let last = self.last.filter(|last| last.timeline == self.newest);
        match (state, last) {
            (Err(reason @ Reason::TwoPrimaries { .. }), _) => reason.clone(),
            (Ok(primary), Some(last)) if usize::from(primary.node.0) != at => {
                self.second(last.timeline, primary.node)
            }
            (_, Some(last)) => self.other_server(at, last),
            (Err(reason), None) => reason.clone(),
            (Ok(_), None) => Reason::NoPrimary,
        }
    }

    /// Returns why a node that accepts writes is not the server that was the primary.
    fn other_server(&self, at: usize, last: Last) -> Reason {
        let timeline = last.timeline;
        match (self.flaw(NodeId(at as u16)), last.node) {
            (Some(Flaw::Behind(own)), _) => Reason::OldCopy { own, primary: self.written },
            (_, Some(node)) if usize::from(node.0) != at => self.second(timeline, node),
            (Some(Flaw::Another) | None, _) => Reason::Beside { timeline },
        }
    }

    fn second(&self, timeline: u32, primary: NodeId) -> Reason {
        Reason::SecondOfTimeline { timeline, primary: self.name(primary).to_owned() }
    }

    fn note(&mut self, state: &Result<Primary, Reason>, now: Micros) {
        if let Ok(primary) = &self.state {
            let reason = match state {
                Ok(new) if new.timeline > primary.timeline => {
                    Reason::OldTimeline { own: primary.timeline, newest: new.timeline }
                }
                Ok(new) if new.node == primary.node => Reason::Restarted,
                Ok(new) => Reason::Moved { node: self.name(new.node).to_owned() },
                Err(reason) => reason.clone(),
            };
            let standbys = self.nodes().filter_map(|node| self.own_sample(node));
            let standbys = standbys.filter(|sample| sample.role != Role::Primary);
            let received = standbys.map(|sample| sample.received.max(sample.wal)).max();
            let lost = Lost {
                node: self.nodes[usize::from(primary.node.0)].name.clone(),
                timeline: primary.timeline,
                at_risk: self.written.0.saturating_sub(received.unwrap_or_default().0),
            };
            let reason = self.intent.clone().unwrap_or_else(|| reason.to_string());
            self.history.lost(Some(lost), reason, now);
        }
        if let Ok(primary) = state {
            let name = &self.nodes[usize::from(primary.node.0)].name;
            self.history.found(name, primary.timeline, now);
        }
    }
}

fn system_of(standing: &Standing) -> Option<u64> {
    match standing {
        Standing::Present(sample) => Some(sample.system),
        Standing::Unknown(_) | Standing::Unready | Standing::Down(_) => None,
    }
}

#[cfg(test)]
mod tests;
