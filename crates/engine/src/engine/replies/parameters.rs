//! A tracked parameter has another value on the server (ParameterStatus): it is its client's own from
//! now on, on whatever server.

use wire::messages::ParameterStatus;

use super::Replies;
use crate::mutant::{self, Mutant};

impl Replies<'_> {
    pub(super) fn parameter_status(&mut self, status: &ParameterStatus<'_>) {
        let Some(slot) = self.names.slot(status.name) else { return };
        if self.server.status != b'I' && mutant::is(Mutant::MissesSetInTransaction) {
            return;
        }
        let Some(client) = &mut self.client else {
            return self.server.vars.change(|vars| vars.set(slot, status.value));
        };
        if self.settings.is_auto() {
            // It may last for the transaction only (SET LOCAL), and nobody need have been suspicious:
            // what there was before is what the session began with, and what it comes back to.
            client.session_mut();
            self.server.remember_vars();
        }
        let shared = client.vars.is(&self.server.vars);
        self.server.vars.change(|vars| vars.set(slot, status.value));
        if shared {
            client.vars = self.server.vars.clone();
        } else {
            client.vars.change(|vars| vars.set(slot, status.value));
        }
    }
}
