//! A server reports a new value of a parameter (ParameterStatus). New clients are told new defaults
//! (`lifecycle/defaults.rs`).
//!
//! In auto mode, there are three cases of a tracked parameter:
//!
//! * A text of the client may have set the parameter. The client carries the new value to other
//!   servers from now on.
//! * No text can have set it. So the server's default has changed, after a reload of
//!   its configuration. A client that has set its own value keeps it and is not told. The server
//!   gets the client's value with the next transaction. All other clients follow the new default.
//! * The server sends state reports. The report at the end of the transaction tells which of the
//!   two cases it is (`Pair::explain_changes`).
//!
//! In transaction and statement mode Weir does not read texts. The new value counts as the client's
//! own if SET has run. Otherwise RESET shows whose it is, after the transaction.

use config::PoolMode;
use wire::messages::ParameterStatus;

use super::Replies;
use crate::relay::changes::Reported;
use crate::relay::ledger::Owner;
use crate::server::{Preparation, RECOVERY, ServerPhase};
use crate::session::state_report;
use crate::values::Values;

impl Replies<'_, '_> {
    /// Returns the receiver of the new value.
    pub(super) fn parameter_status(&mut self, status: &ParameterStatus<'_>) -> Owner {
        // The client is told, whatever the server is answering at the moment.
        let owner = Owner::Client;
        if status.name == state_report::NAME {
            self.news.bad_report |= !self.server.hear_state(status.value);
            return Owner::Nobody;
        }
        let Some(slot) = self.names.slot(status.name) else {
            if (status.name, status.value) == (RECOVERY, b"off") {
                (self.news.left_recovery, self.news.promoted) = (true, true);
            }
            return owner;
        };
        let set = |values: &mut Values| values.change(|vars| vars.set(slot, status.value));
        let Some(client) = &mut self.client else {
            if let Some(ahead) = self.server.ahead_mut() {
                ahead.note_reported(slot);
            }
            let phase = &*self.server.phase;
            if matches!(phase, ServerPhase::Preparing(Preparation::TellPrincipal(_))) {
                // It is asked about roles and databases, and sets nothing.
                self.news.defaults.add(slot);
            } else if matches!(phase, ServerPhase::Settling(_)) {
                self.server.changes.explain(slot);
            }
            set(&mut self.server.vars);
            return owner;
        };
        let is_auto = self.server.mode == PoolMode::Auto;
        let may_set = self.server.session.may_set;
        let reports = self.server.session.state_report.is_some();
        if is_auto && (may_set || reports) {
            // The new value may last for the transaction only (SET LOCAL), even if no text looked
            // suspicious. The session returns to the remembered value.
            client.session_mut();
            self.server.remember_vars();
        }
        if is_auto && reports {
            self.server.note_changed(slot);
        }
        // The server has already left the client's value by itself. If the client sets the parameter
        // now, the report says so.
        let has_left = reports
            && client.vars.given().has(slot)
            && client.vars.get(slot) != self.server.vars.get(slot);
        if !is_auto && self.server.mode != PoolMode::Session {
            self.server.changes.report(slot, &client.vars);
        }
        if self.server.mode == PoolMode::Session {
            client.vars.give(slot);
        }
        if is_auto && (!may_set || has_left) {
            if client.vars.given().has(slot) {
                set(&mut self.server.vars);
                self.server.has_changed_by_itself();
                return Owner::Nobody;
            }
            if !reports {
                client.session.iter_mut().for_each(|session| set(&mut session.startup));
            }
        }
        if is_auto && client.vars.given().has(slot) {
            self.server.session.own().followed.get_or_insert_with(|| client.vars.clone());
        }
        let is_in_transaction = !self.server.status.is_idle() || !self.server.ledger.is_at_rest();
        if self.settings.keeps_clients && is_in_transaction {
            self.server.changes.keep(&client.vars);
        }
        let shared = client.vars.is(&self.server.vars);
        set(&mut self.server.vars);
        match shared {
            true => *client.vars = self.server.vars.clone(),
            false => set(&mut client.vars),
        }
        owner
    }

    /// The transaction is over in which the server has reported these parameters, in transaction or
    /// statement mode.
    #[cold]
    pub(super) fn explain(&mut self, reported: &Reported) {
        let (Some(client), Some(id), Some(before)) =
            (&mut self.client, *self.server.client, &reported.before)
        else {
            return;
        };
        for slot in reported.slots.each(self.names.len()) {
            if client.vars.get(slot) == before.get(slot) {
                // It was set for the transaction only, or rolled back.
            } else if reported.resets && !reported.sets {
                client.vars.follow(slot);
            } else {
                client.vars.give(slot);
                if !reported.sets {
                    self.server.changes.leave_unexplained(slot, (id, client.serial));
                }
            }
        }
    }
}
