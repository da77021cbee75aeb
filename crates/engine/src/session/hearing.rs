//! The replies of a server about its session: the outcome of the client's texts, and state reports
//! (`state_report.rs`): whose they are, and when they cannot be used.

use crate::server::{Preparation, Server, ServerPhase};
use crate::session::on_server::SchemaChanges;

impl Server {
    /// Takes a state report. Returns false if it has not the form that Weir knows.
    pub fn hear_state(&mut self, value: &[u8]) -> bool {
        let is_clients = match *self.phase {
            ServerPhase::Linked | ServerPhase::Finishing => true,
            ServerPhase::Preparing(ref step) => step.is_clients(),
            ServerPhase::Connecting(_)
            | ServerPhase::Login(_)
            | ServerPhase::Parked
            | ServerPhase::Settling(_)
            | ServerPhase::Listening
            | ServerPhase::Attending { .. } => false,
        };
        if is_clients {
            self.remember_vars();
        }
        let Some(session) = self.session.get_mut() else { return true };
        let Some(report) = &mut session.state_report else { return true };
        let is_sound = report.hear(value, is_clients);
        let is_ahead = matches!(*self.phase, ServerPhase::Preparing(Preparation::Ahead(_)));
        if is_clients {
            session.traces.note_report();
        } else if is_ahead && !report.is_known() {
            // The request is under way, so it is judged by the next report.
            report.resume();
            session.traces.note_report();
        } else if !report.is_known() {
            // The report is not understood, so later ones would not show a client's state either.
            session.state_report = None;
            if let Some(Some(probe)) = self.phase.probe() {
                probe.doubt();
            }
        }
        is_sound
    }

    /// Notes the tag of a command of the client's that is complete.
    #[inline]
    pub fn note_completed(&mut self, tag: &[u8]) {
        if let Some(session) = self.session.get_mut().filter(|own| !own.traces.is_empty()) {
            session.traces.outcome.completed(tag);
        }
    }

    /// Notes that the client's transaction may change the schema, although its tags do not show it.
    pub fn note_unseen_changes(&mut self) {
        if let Some(session) = self.session.get_mut() {
            session.schema = SchemaChanges::MayBeUnseen;
        }
    }

    /// Notes that the client's query has failed. A procedure may have committed before, if it
    /// `was_executed`.
    pub fn note_failed(&mut self, was_executed: bool) {
        if let Some(session) = self.session.get_mut() {
            session.traces.outcome.doubtful = true;
            session.traces.outcome.undone = true;
            session.traces.outcome.ran |= was_executed;
        }
    }

    /// Notes the change of a tracked parameter. If no known text explains it, it is a trace.
    pub fn note_changed(&mut self, slot: usize) {
        let session = self.session.own();
        if !session.may_set {
            session.traces.note_report();
        }
        if let Some(report) = &mut session.state_report {
            report.note_changed(slot);
        }
    }
}
