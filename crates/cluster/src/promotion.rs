//! A change of the primary that Weir carries out itself, step by step.
//!
//! Planned (SWITCHOVER). Clients wait from the first step to the last one.
//!
//! ```text
//! Drain ─► (Close ─► Closing) ─► Mark ─► Stop ─► Leave ─► CatchUp ─► Promote ─► Verify ─► the new primary
//!   │                  │          │       │        │         │
//!   │                  │          │       └────────┴─────────┴──► Start ─► Return ─► a failure
//!   └──────────────────┴──────────┴──► a failure; the old primary goes on
//! ```
//!
//! Planned, by a cluster manager, which stops and promotes the nodes itself:
//!
//! ```text
//! Drain ─► (Close ─► Closing) ─► Request ─► Settle ─► the new primary
//!   │                  │            │         │
//!   └──────────────────┴────────────┴─────────┴──► a failure
//! ```
//!
//! Unplanned (`failover = own`), when the primary is lost:
//!
//! ```text
//! Judge ──► Fence ──► Elect ──► Promote ──► Verify ──► the new primary
//!   │         │         │                    │
//!   └─────────┴─────────┴────────────────────┴──► a failure; the cluster has no primary
//! ```
//!
//! After a failure the caller begins again, with the steps that were done about this loss
//! ([`Past`]): a fence that has succeeded is not repeated. If a node was ordered to promote itself,
//! no other node may be promoted.
//!
//! The caller carries out the orders, one at a time, and reports the outcome ([`Promotion::done`]).
//! `Promotion` checks the outcome by facts: a node that is reported as stopped must refuse
//! connections, and a node that is reported as promoted must be the primary by the rules of
//! `cluster.rs`.
//!
//! Invariant: no node is promoted while the old primary may accept writes. When a promotion has been
//! ordered, the old primary is never started again, and no other node is promoted.

use crate::Micros;
use crate::cluster::{Cluster, NodeId};
use crate::fact::{Lsn, Role};
use crate::failure::{Failure, Refusal, Risk};
use crate::past::Past;
use crate::verdict::Verdict;

/// SWITCHOVER refuses a standby that is further behind, because clients would wait for its replay.
const LAG_MAX: u64 = 16 << 20;
/// The time for which a step waits for a fact, unless the configuration has a time for it.
const PATIENCE: Micros = 10_000_000;
/// The time for the answers of all standbys before one of them is chosen.
const ELECTION: Micros = 2_000_000;
/// The pause before `start_command` is repeated.
const START_PAUSE: Micros = 1_000_000;
/// A standby is chosen by facts that are not older. Weir may have been stopped (SIGSTOP) meanwhile.
const FRESH: Micros = 2_000_000;
/// The time after a failed request in which a cluster manager may still stop the old primary.
const SETTLING: Micros = 1_000_000;

/// The action on running transactions when `switchover_drain` is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overtime {
    /// The switchover is given up.
    Refuse,
    /// Their connections are closed.
    Close,
}

/// The party that stops and promotes the nodes of a switchover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Weir,
    /// A cluster manager, by one request.
    Manager,
}

/// The limits of a promotion, from the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The time for running transactions.
    pub drain: Micros,
    pub overtime: Overtime,
    /// The party that carries out a switchover.
    pub by: By,
    /// Bytes of WAL that may be lost without a quorum of synchronous standbys. None: nobody is
    /// promoted without such a quorum.
    pub max_loss: Option<u64>,
}

/// An action that the caller must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Call again after some milliseconds.
    Wait,
    /// Close the server connections at the old primary.
    Close,
    /// Ask the old primary for the end of its WAL.
    Mark(NodeId),
    /// Run `stop_command` for the old primary.
    Stop(NodeId),
    /// Run `start_command` for the old primary, which was stopped.
    Start(NodeId),
    /// Run `fence_command` for the old primary, which is lost.
    Fence(NodeId),
    Promote(NodeId),
    /// Have the cluster manager make this node the primary.
    Request(NodeId),
}

/// The outcome of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The end of the WAL.
    At(Lsn),
    /// The order has failed, or did not end in time. It may still have had its effect.
    Failed(String),
    /// The order was not sent, so it has no effect.
    Unsent(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Drain,
    Close,
    Closing,
    Mark,
    Stop(Lsn),
    Leave(Lsn),
    CatchUp(Lsn),
    Start(Back),
    /// With the failure of `start_command`, if it has failed.
    Return(Back, Option<String>),
    Judge,
    Fence,
    Elect,
    Promote(NodeId),
    /// With the failure of the order, if it has failed.
    Verify(NodeId, Option<String>),
    Request(NodeId),
    /// With the failure of the request, if it has failed.
    Settle(NodeId, Option<String>),
    Ended(Result<NodeId, Failure>),
}

/// The way back to the old primary.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Back {
    why: Failure,
    /// When it began.
    since: Micros,
}

impl Step {
    /// The way back to the old primary begins.
    fn back(why: Failure, since: Micros) -> Self {
        Self::Start(Back { why, since })
    }
}

/// A change of the primary that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promotion {
    from: NodeId,
    to: Option<NodeId>,
    limits: Limits,
    step: Step,
    /// When the step began.
    since: Micros,
    /// When the next order was asked for last.
    looked_at: Micros,
    past: Past,
}

impl Promotion {
    /// Begins a planned change to the standby `to`.
    ///
    /// # Errors
    /// When there is no primary, or the node is not a standby that follows it closely.
    pub fn planned(
        cluster: &Cluster,
        to: NodeId,
        limits: Limits,
        now: Micros,
    ) -> Result<Self, Refusal> {
        let from = cluster.primary().map_err(|why| Refusal::NoPrimary(why.to_string()))?;
        let node = cluster.name(to).to_owned();
        let verdict = cluster.verdict(to);
        match verdict {
            Verdict::Readable => {}
            Verdict::Writable => return Err(Refusal::IsPrimary(node)),
            Verdict::Unknown(_)
            | Verdict::Unfit(_)
            | Verdict::FalsePrimary(_)
            | Verdict::Down(_) => {
                let why = verdict.reason().map_or_else(String::new, |why| format!(": {why}"));
                return Err(Refusal::Unfit { node, word: verdict.word(), why });
            }
        }
        let wal = |node| cluster.sample(node).map_or(0, |sample| sample.wal.0);
        let bytes = wal(from).saturating_sub(wal(to));
        if bytes > LAG_MAX {
            return Err(Refusal::Behind { node, bytes });
        }
        let past = Past::of(from, cluster.timeline());
        let step = Step::Drain;
        Ok(Self { from, to: Some(to), limits, step, since: now, looked_at: now, past })
    }

    /// Begins a failover, if the primary is certainly down. `past`: the steps that the last
    /// promotion has done.
    #[must_use]
    pub fn unplanned(cluster: &Cluster, limits: Limits, past: &Past, now: Micros) -> Option<Self> {
        let from = cluster.lost_primary()?;
        let past = past.clone().about(from, cluster.timeline());
        let step = if past.is_fenced { Step::Elect } else { Step::Judge };
        Some(Self { from, to: None, limits, step, since: now, looked_at: now, past })
    }

    /// Returns the steps that were done, for the next attempt.
    #[must_use]
    pub fn past(&self) -> &Past {
        &self.past
    }

    /// Returns the node that is to become the primary, once it is chosen.
    #[must_use]
    pub fn target(&self) -> Option<NodeId> {
        self.to
    }

    /// Returns the old primary.
    #[must_use]
    pub fn source(&self) -> NodeId {
        self.from
    }

    /// Returns the next order, or the end. `servers`: server connections at the old primary.
    ///
    /// # Errors
    /// The end of the promotion: the new primary, or why it has failed.
    pub fn next(
        &mut self,
        cluster: &Cluster,
        servers: u32,
        now: Micros,
    ) -> Result<Order, Result<NodeId, Failure>> {
        let is_outdated = now.saturating_sub(self.looked_at) >= FRESH;
        if is_outdated && matches!(self.step, Step::Judge | Step::Elect) {
            // The old primary may have been started meanwhile.
            self.since = now;
        }
        self.looked_at = now;
        let is_over = |limit: Micros| now.saturating_sub(self.since) >= limit;
        let step = match &self.step {
            Step::Drain | Step::Closing => match self.drained(cluster, servers, now) {
                Ok(Some(step)) => step,
                Ok(None) => return Ok(Order::Wait),
                Err(why) => Step::Ended(Err(why)),
            },
            Step::Leave(mark) => match cluster.is_stopped(self.from) {
                true => Step::CatchUp(*mark),
                false if is_over(PATIENCE) => self.still_runs(cluster, now),
                false => return Ok(Order::Wait),
            },
            // Something has started it again.
            Step::CatchUp(_) if !cluster.is_stopped(self.from) => self.still_runs(cluster, now),
            Step::CatchUp(mark) => match self.to {
                Some(to) if self.has_replayed(cluster, to, *mark) => Step::Promote(to),
                Some(to) if is_over(PATIENCE) => {
                    Step::back(Failure::NotReplayed(cluster.name(to).to_owned()), now)
                }
                _ => return Ok(Order::Wait),
            },
            Step::Return(back, trouble) => {
                match self.returned(cluster, back, trouble.as_ref(), now) {
                    Some(step) => step,
                    None => return Ok(Order::Wait),
                }
            }
            Step::Judge => match self.elect(cluster, now) {
                None => return Ok(Order::Wait),
                Some(Ok(_)) => Step::Fence,
                Some(Err(why)) => Step::Ended(Err(why)),
            },
            Step::Elect => match self.elect(cluster, now) {
                None => return Ok(Order::Wait),
                Some(Ok(to)) => Step::Promote(to),
                Some(Err(why)) => Step::Ended(Err(why)),
            },
            Step::Verify(to, why) | Step::Settle(to, why) => {
                match self.outcome(cluster, *to, why.as_ref(), now) {
                    Some(end) => Step::Ended(end),
                    None => return Ok(Order::Wait),
                }
            }
            Step::Fence if cluster.primary().is_ok() => Step::Ended(Err(Failure::Returned)),
            Step::Close
            | Step::Mark
            | Step::Stop(_)
            | Step::Start(_)
            | Step::Fence
            | Step::Promote(_)
            | Step::Request(_)
            | Step::Ended(_) => self.step.clone(),
        };
        self.enter(step, now);
        match &self.step {
            Step::Close => Ok(Order::Close),
            Step::Mark => Ok(Order::Mark(self.from)),
            Step::Stop(_) => Ok(Order::Stop(self.from)),
            Step::Start(_) => Ok(Order::Start(self.from)),
            Step::Fence => Ok(Order::Fence(self.from)),
            Step::Promote(to) => {
                self.to = Some(*to);
                Ok(Order::Promote(*to))
            }
            Step::Request(to) => Ok(Order::Request(*to)),
            Step::Ended(end) => Err(end.clone()),
            Step::Drain
            | Step::Closing
            | Step::Leave(_)
            | Step::CatchUp(_)
            | Step::Return(..)
            | Step::Judge
            | Step::Elect
            | Step::Verify(..)
            | Step::Settle(..) => Ok(Order::Wait),
        }
    }

    /// May the order to promote a node, which was given at the last call of `next`, still be sent?
    #[must_use]
    pub fn may_promote(&self, cluster: &Cluster, now: Micros) -> bool {
        let is_fresh = now.saturating_sub(self.looked_at) < FRESH;
        let is_planned = !self.past.is_fenced;
        is_planned || is_fresh && cluster.primary().is_err() && cluster.is_down(self.from)
    }

    /// Learns the outcome of the last order.
    pub fn done(&mut self, outcome: Outcome, now: Micros) {
        match (&self.step, &outcome) {
            (Step::Fence, Outcome::Done) => self.past.is_fenced = true,
            // Even if the order has failed, it may have arrived.
            (Step::Promote(to), Outcome::Done | Outcome::Failed(_)) => {
                self.past.ordered = Some(*to)
            }
            (_, Outcome::Done | Outcome::At(_) | Outcome::Failed(_) | Outcome::Unsent(_)) => {}
        }
        let step = match (self.step.clone(), outcome) {
            (Step::Close, Outcome::Done | Outcome::Failed(_) | Outcome::Unsent(_)) => Step::Closing,
            (Step::Mark, Outcome::At(mark)) => Step::Stop(mark),
            (Step::Mark, Outcome::Failed(why) | Outcome::Unsent(why)) => {
                Step::Ended(Err(Failure::NoMark(why)))
            }
            (Step::Stop(mark), Outcome::Done) => Step::Leave(mark),
            // It may have stopped nevertheless.
            (Step::Stop(_), Outcome::Failed(why) | Outcome::Unsent(why)) => {
                Step::back(Failure::NotStopped(why), now)
            }
            (Step::Start(back), Outcome::Done) => Step::Return(back, None),
            (Step::Start(back), Outcome::Failed(why) | Outcome::Unsent(why)) => {
                Step::Return(back, Some(why))
            }
            (Step::Fence, Outcome::Done) => Step::Elect,
            (Step::Fence, Outcome::Failed(why) | Outcome::Unsent(why)) => {
                Step::Ended(Err(Failure::NotFenced(why)))
            }
            (Step::Promote(to), Outcome::Done) => Step::Verify(to, None),
            (Step::Promote(_), Outcome::Unsent(why)) if self.past.is_fenced => {
                Step::Ended(Err(Failure::Unsent(why)))
            }
            // The order may have arrived nevertheless, so there is no way back.
            (Step::Promote(to), Outcome::Failed(why) | Outcome::Unsent(why)) => {
                Step::Verify(to, Some(why))
            }
            (Step::Request(to), Outcome::Done) => Step::Settle(to, None),
            (Step::Request(to), Outcome::Failed(why)) => Step::Settle(to, Some(why)),
            (Step::Request(_), Outcome::Unsent(why)) => Step::Ended(Err(Failure::Refused(why))),
            (step, Outcome::Done | Outcome::At(_) | Outcome::Failed(_) | Outcome::Unsent(_)) => {
                step
            }
        };
        self.enter(step, now);
    }

    fn still_runs(&self, cluster: &Cluster, now: Micros) -> Step {
        Step::back(Failure::StillRuns(cluster.name(self.from).to_owned()), now)
    }

    /// Returns the step that follows `Step::Return`. None: the old primary does not serve again
    /// yet.
    fn returned(
        &self,
        cluster: &Cluster,
        back: &Back,
        trouble: Option<&String>,
        now: Micros,
    ) -> Option<Step> {
        let is_over = |since: Micros, limit| now.saturating_sub(since) >= limit;
        let is_heard = cluster.sampled_at(self.from) > self.since;
        match (cluster.primary() == Ok(self.from) && is_heard, trouble) {
            (true, _) => Some(Step::Ended(Err(back.why.clone()))),
            (false, None) => is_over(self.since, PATIENCE).then(|| {
                let (why, node) = (Box::new(back.why.clone()), cluster.name(self.from).to_owned());
                Step::Ended(Err(Failure::NotBack { why, node }))
            }),
            // A command that did not end in time may have started the server.
            (false, Some(_)) if !is_over(self.since, START_PAUSE) => None,
            (false, Some(trouble)) if is_over(back.since, PATIENCE) => {
                let (why, trouble) = (Box::new(back.why.clone()), trouble.clone());
                Some(Step::Ended(Err(Failure::NotStarted { why, trouble })))
            }
            (false, Some(_)) => Some(Step::Start(back.clone())),
        }
    }

    /// Returns the end after an order or a request to promote `to`. None: it may not be done yet.
    fn outcome(
        &self,
        cluster: &Cluster,
        to: NodeId,
        why: Option<&String>,
        now: Micros,
    ) -> Option<Result<NodeId, Failure>> {
        let is_over = |limit| now.saturating_sub(self.since) >= limit;
        let name = |node| cluster.name(node).to_owned();
        let words = why.map_or_else(String::new, |why| format!(": {why}"));
        match cluster.primary() {
            Ok(primary) if primary == to => Some(Ok(to)),
            Ok(other) if other != self.from => Some(Err(Failure::Another(name(other)))),
            Ok(from) if matches!(self.step, Step::Settle(..)) => {
                let is_heard = cluster.sampled_at(from) > self.since;
                let limit = if why.is_some() && is_heard { SETTLING } else { PATIENCE };
                let failure = Failure::NotMoved { node: name(from), why: words };
                is_over(limit).then_some(Err(failure))
            }
            Ok(_) | Err(_) => {
                let failure = Failure::NotPromoted { node: name(to), why: words };
                is_over(PATIENCE).then_some(Err(failure))
            }
        }
    }

    fn enter(&mut self, step: Step, now: Micros) {
        if self.step != step {
            (self.step, self.since) = (step, now);
        }
    }

    /// Returns the step that follows when clients have no server any more.
    fn drained(
        &self,
        cluster: &Cluster,
        servers: u32,
        now: Micros,
    ) -> Result<Option<Step>, Failure> {
        match cluster.primary() {
            Ok(primary) if primary == self.from => {}
            Ok(other) => return Err(Failure::Another(cluster.name(other).to_owned())),
            Err(why) => return Err(Failure::PrimaryLost(why.to_string())),
        }
        let to = self.to.unwrap_or(self.from);
        let verdict = cluster.verdict(to);
        if *verdict != Verdict::Readable {
            let node = cluster.name(to).to_owned();
            return Err(Failure::TargetLost { node, word: verdict.word() });
        }
        let is_closing = self.step == Step::Closing;
        let limit = if is_closing { PATIENCE } else { self.limits.drain };
        match self.limits.overtime {
            _ if servers == 0 => Ok(Some(match self.limits.by {
                By::Weir => Step::Mark,
                By::Manager => Step::Request(to),
            })),
            _ if now.saturating_sub(self.since) < limit => Ok(None),
            Overtime::Close if !is_closing => Ok(Some(Step::Close)),
            Overtime::Close | Overtime::Refuse => Err(Failure::Busy { servers }),
        }
    }

    /// Has the standby replayed all that the old primary has sent? A fast shutdown sends all WAL
    /// before the connection of the standby ends.
    fn has_replayed(&self, cluster: &Cluster, to: NodeId, mark: Lsn) -> bool {
        cluster.sample(to).is_some_and(|sample| {
            cluster.sampled_at(to) > self.since
                && sample.role == Role::Standby(None)
                && sample.wal.settled() >= sample.received.settled()
                && sample.wal.settled() >= mark.settled()
        })
    }

    /// Chooses the standby that has received most. None: not all have answered since the step began.
    fn elect(&self, cluster: &Cluster, now: Micros) -> Option<Result<NodeId, Failure>> {
        match cluster.primary() {
            Ok(primary) if primary == self.from => return Some(Err(Failure::Returned)),
            Ok(other) => return Some(Err(Failure::Another(cluster.name(other).to_owned()))),
            // It runs, although it does not serve yet.
            Err(_) if !cluster.is_down(self.from) => return Some(Err(Failure::Returned)),
            Err(_) => {}
        }
        let timeline = cluster.timeline();
        if !self.past.is_about(self.from, timeline) {
            return Some(Err(Failure::NewTimeline { timeline }));
        }
        let is_over = now.saturating_sub(self.since) >= ELECTION;
        let nodes = || cluster.nodes().filter(|node| *node != self.from);
        let has_answered = |node: &NodeId| cluster.sampled_at(*node) > self.since;
        // After a fence, the old primary is asked as well: it may have been started again. If it is
        // silent, it may run.
        let has_refused = cluster.asked_at(self.from) > self.since && cluster.refuses(self.from);
        let is_stopped = self.step == Step::Judge || has_refused;
        let is_settled = |node| has_answered(&node) || cluster.is_down(node);
        let is_complete = is_stopped && nodes().all(is_settled);
        if !is_over && !is_complete {
            return None;
        }
        let standby = |node: NodeId| {
            let sample = cluster.own_sample(node).filter(|_| has_answered(&node))?;
            let fits = sample.timeline == timeline && matches!(sample.role, Role::Standby(_));
            fits.then_some((sample.received.max(sample.wal), std::cmp::Reverse(node)))
        };
        if let Some(to) = self.past.ordered {
            // It was chosen by these rules before.
            return match standby(to) {
                Some(_) => Some(Ok(to)),
                None if !is_over => None,
                None => Some(Err(Failure::Ordered(cluster.name(to).to_owned()))),
            };
        }
        // The commits of a detached node are of no use, so it counts as one that does not answer.
        let attached = nodes().filter(|node| !cluster.is_detached(*node));
        let candidates: Vec<_> = attached.filter_map(standby).collect();
        let Some((received, std::cmp::Reverse(to))) = candidates.iter().max().copied() else {
            return Some(Err(Failure::NoCandidate { timeline }));
        };
        let bytes = cluster.written().0.saturating_sub(received.0);
        let may_lose = self.limits.max_loss.is_some_and(|limit| bytes <= limit);
        let answers = |node: NodeId| candidates.iter().any(|one| one.1.0 == node);
        Some(match self.risk(cluster, received, answers) {
            Some(why) if !may_lose => Err(Failure::Loss { why, bytes }),
            Some(_) | None => Ok(to),
        })
    }

    /// Returns why a commit may be lost if a standby that has received this much is promoted.
    fn risk(
        &self,
        cluster: &Cluster,
        received: Lsn,
        answers: impl Fn(NodeId) -> bool,
    ) -> Option<Risk> {
        let own = match cluster.guarantee() {
            Ok(own) => own,
            Err(doubt) => return Some(Risk::Doubt(doubt.clone())),
        };
        let others = own.nodes.iter().filter(|node| **node != self.from);
        let missing = others.filter(|node| !answers(**node)).count() as u32;
        let (quorum, since) = (own.quorum, own.since);
        // Otherwise at least one of the nodes for which a commit has waited answers.
        if missing >= quorum {
            return Some(Risk::Missing { missing, quorum });
        }
        (received.settled() < since.settled()).then_some(Risk::Behind { since })
    }
}

#[cfg(test)]
mod tests;
