//! The terms around a change of the primary, which the leader writes.
//!
//! ```text
//! planned:    Draining, until all wait ─► Closed, until all wait ─┐
//! unplanned:                              Closed, until all wait ─┴► the steps of the promotion ─► Serving
//! ```
//!
//! Before a fence and before each order to a node, the leader checks that it still leads. The fence and
//! the ordered node are written down, so that the next leader neither repeats the one nor orders another
//! node.

use super::majority::Hesitation;
use super::membership::Membership;
use super::records::{Phase, Term, Writer};
use crate::Micros;

/// The time for etcd to write a term.
const PATIENCE: Micros = 10_000_000;

/// A change that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Succession {
    /// The term that was proposed last.
    term: Term,
    /// The members must have confirmed the term of this number, or a later one.
    waits_from: u64,
    proposed_at: Micros,
}

/// Is it the turn of the next step?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    Now,
    /// Not yet, with the reason.
    Later(Hesitation),
    /// Never: another member may lead.
    Lost(Hesitation),
}

impl Succession {
    /// Begins to replace the lost writer `node`.
    ///
    /// # Errors
    /// Why this member may not.
    pub fn after_loss(
        membership: &mut Membership,
        node: &str,
        now: Micros,
    ) -> Result<Self, Hesitation> {
        membership.may_begin(node, now)?;
        let last = membership.view().present().ok_or(Hesitation::NoTerm)?;
        // The steps that another leader has done about this loss are still done.
        let phase = match &last.phase {
            Phase::Closed { .. } => last.phase.clone(),
            Phase::Serving | Phase::Draining { .. } => {
                Phase::Closed { is_fenced: false, ordered: None }
            }
        };
        Ok(Self::of(membership, phase, now))
    }

    /// Begins to replace the writer by the node `to`.
    ///
    /// # Errors
    /// Why this member may not.
    pub fn by_order(
        membership: &mut Membership,
        to: &str,
        now: Micros,
    ) -> Result<Self, Hesitation> {
        membership.may_lead_on(now)?;
        let last = membership.view().present().ok_or(Hesitation::NoTerm)?;
        match &last.phase {
            Phase::Serving => Ok(Self::of(membership, Phase::Draining { to: to.to_owned() }, now)),
            Phase::Draining { .. } | Phase::Closed { .. } => {
                Err(Hesitation::Changing(last.writer.node.clone()))
            }
        }
    }

    fn of(membership: &mut Membership, phase: Phase, now: Micros) -> Self {
        let last = membership.view().present();
        let writer = last.map_or_else(
            || Writer { node: String::new(), timeline: 0, system: 0 },
            |last| last.writer.clone(),
        );
        let term = Term::after(last, writer, phase);
        membership.propose(term.clone());
        Self { waits_from: term.number, term, proposed_at: now }
    }

    /// Returns the term of the change, as it was proposed last.
    #[must_use]
    pub fn term(&self) -> &Term {
        &self.term
    }

    /// Is the last term written, and do all members wait in it?
    #[must_use]
    pub fn turn(&self, membership: &mut Membership, now: Micros) -> Turn {
        if let Err(why) = membership.may_lead_on(now) {
            return Turn::Lost(why);
        }
        match membership.view().present() {
            Some(term) if *term == self.term => {}
            // Another leader has written it.
            Some(term) if term.number >= self.term.number => {
                return Turn::Lost(Hesitation::Overtaken);
            }
            _ if now >= self.proposed_at + PATIENCE => return Turn::Lost(Hesitation::Unwritten),
            _ => {
                // The last attempt may have failed. A second one does no harm: it needs the same term.
                membership.propose(self.term.clone());
                return Turn::Later(Hesitation::Unwritten);
            }
        }
        match membership.do_all_wait(self.waits_from, now) {
            Ok(()) => Turn::Now,
            Err(why @ (Hesitation::Awaited(_) | Hesitation::Busy | Hesitation::Predecessor)) => {
                Turn::Later(why)
            }
            Err(why) => Turn::Lost(why),
        }
    }

    /// Goes on with connections closed (a planned change, when its drain is over).
    pub fn close(&mut self, membership: &mut Membership, now: Micros) {
        self.advance(membership, Phase::Closed { is_fenced: false, ordered: None }, now);
        self.waits_from = self.term.number;
    }

    /// The fence has succeeded.
    pub fn fenced(&mut self, membership: &mut Membership, now: Micros) {
        self.advance(membership, Phase::Closed { is_fenced: true, ordered: None }, now);
    }

    /// The node is about to be ordered to promote itself.
    pub fn orders(&mut self, node: &str, membership: &mut Membership, now: Micros) {
        let is_fenced = matches!(self.term.phase, Phase::Closed { is_fenced: true, .. });
        self.advance(membership, Phase::Closed { is_fenced, ordered: Some(node.to_owned()) }, now);
    }

    /// The change has ended, and this is the primary now.
    pub fn ends(&mut self, writer: Writer, membership: &mut Membership, now: Micros) {
        let last = Some(&self.term);
        self.term = Term::after(last, writer, Phase::Serving);
        self.proposed_at = now;
        membership.propose(self.term.clone());
    }

    fn advance(&mut self, membership: &mut Membership, phase: Phase, now: Micros) {
        if self.term.phase == phase {
            return;
        }
        self.term = Term::after(Some(&self.term), self.term.writer.clone(), phase);
        self.proposed_at = now;
        membership.propose(self.term.clone());
    }
}
