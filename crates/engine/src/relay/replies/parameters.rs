//! A tracked parameter has another value on the server (ParameterStatus).
//!
//! If its client has set it, that is the client's own from now on, on whatever server. In auto mode it
//! is known whether anything that was sent may have set it. If not, it is the server's own default that
//! is another one, since its configuration was reloaded: who has said what it wants keeps that, as on a
//! connection of its own, and does not hear of it; the server is given it with the next transaction.
//! Everybody else follows. A server that reports its state tells which of the two it is when the
//! transaction is over (`Engine::explain_changes`).

use config::PoolMode;
use wire::messages::ParameterStatus;

use super::Replies;
use crate::relay::ledger::Owner;
use crate::session::state_report;
use crate::values::Values;

impl Replies<'_> {
    /// Who is to be told of it?
    pub(super) fn parameter_status(&mut self, status: &ParameterStatus<'_>) -> Owner {
        // Whatever the server is answering: it says what it has, and its client is told of that.
        let owner = Owner::Client;
        if status.name == state_report::NAME {
            self.server.hear_state(status.value);
            return Owner::Nobody;
        }
        let Some(slot) = self.names.slot(status.name) else { return owner };
        let set = |values: &mut Values| values.change(|vars| vars.set(slot, status.value));
        let Some(client) = &mut self.client else {
            set(&mut self.server.vars);
            return owner;
        };
        let is_auto = self.server.mode == PoolMode::Auto;
        let may_set = self.server.session.may_set;
        let reports = self.server.session.state_report.is_some();
        if is_auto && (may_set || reports) {
            // It may last for the transaction only (SET LOCAL), and nobody need have been suspicious:
            // what there was before is what the session began with, and what it comes back to.
            client.session_mut();
            self.server.remember_vars();
        }
        if is_auto && !may_set {
            if reports {
                self.server.note_unexplained(slot);
            }
            if client.given.has(slot) {
                set(&mut self.server.vars);
                self.server.has_changed_by_itself();
                return Owner::Nobody;
            }
            if !reports {
                client.session.iter_mut().for_each(|session| set(&mut session.startup));
            }
        }
        let shared = client.vars.is(&self.server.vars);
        set(&mut self.server.vars);
        match shared {
            true => client.vars = self.server.vars.clone(),
            false => set(&mut client.vars),
        }
        owner
    }
}
