//! A server's messages about prepared statements: row descriptions and errors. An error is reworded
//! with the client's own name, or the request is sent again (`resend.rs`).

use wire::backend;
use wire::error_fields::ErrorFields;
use wire::sqlstate::{INVALID_STATEMENT_NAME, QUERY_CANCELED};

use super::Replies;
use crate::lifecycle::close_reason::CloseReason;
use crate::relay::kept_request::{
    KEPT_LEN_MAX, Refused, Used, changed_result, is_changed_result, is_of_changed_name,
};
use crate::relay::ledger::{Owner, Settled};
use crate::relay::prepared::Shape;
use crate::server::{Preparation, ServerPhase};

impl Replies<'_, '_> {
    /// The server has described a statement's rows, to the client or to Weir.
    pub(super) fn described(&mut self, settled: &Settled, shape: Option<Shape>) {
        if let Some(refused) = self.server.kept.refused().filter(|_| settled.owner == Owner::Nobody)
        {
            refused.shape = shape;
        } else if let Some(shape) = shape {
            self.server.statements.set_shape(settled.statement, settled.serial, shape);
            if let Some(extended) = self.client.as_mut().and_then(|own| own.extended.as_mut()) {
                extended.statements.set_shape(settled.statement, shape, settled.serial);
            }
        }
    }

    /// Keeps the error for Weir's own step that asked. Between a client's messages no step asks: what was
    /// lent to the client's transaction failed.
    pub(super) fn keep_own_error(&mut self, error: ErrorFields) {
        if !matches!(*self.server.phase, ServerPhase::Linked) {
            self.server.own_error.keep(error);
        }
    }

    /// A message of Weir's own has failed. If this also fails the client's transaction, the client
    /// is told.
    pub(super) fn own_error(&mut self, fields: ErrorFields) {
        self.keep_own_error(fields.clone());
        let confirms = matches!(*self.server.phase, ServerPhase::Preparing(Preparation::Confirm));
        let tells = confirms || fields.sqlstate() == QUERY_CANCELED.as_bytes();
        let refused = self.server.kept.refused();
        if let Some(refused) = refused.filter(|refused| tells || refused.is_lost) {
            refused.error = fields;
        }
    }

    /// A message that names one of Weir's statements has failed.
    pub(super) fn statement_error(&mut self, fields: ErrorFields, settled: &Settled) -> Owner {
        let is_lost = is_lost(&fields, settled.statement);
        if is_lost || is_changed_result(&fields) {
            let since = self.server.statements.since(settled.statement);
            match is_lost {
                true => self.server.statements.doubt_all(),
                false => self.server.statements.doubt(settled.statement),
            }
            if let Some(used) = self.renewable(settled) {
                let was_older = since.is_some_and(|since| since < used.since);
                // If the statement has other columns now, this is PostgreSQL's error.
                let error = if is_lost { changed_result() } else { fields.clone() };
                let end = self.server.ledger.take_over_batch();
                let shape = None;
                self.server.kept.refuse(Refused { error, was_older, is_lost, end, shape });
                self.refused = true;
                return Owner::Nobody;
            } else if !is_lost {
                return Owner::Client;
            }
        }
        if is_of_changed_name(&fields) {
            backend::error(self.out.insert(), &changed_result());
            return Owner::Nobody;
        }
        match self.error_about_statement(fields, settled) {
            Some(reworded) => {
                backend::error(self.out.insert(), &reworded);
                Owner::Nobody
            }
            None => Owner::Client,
        }
    }

    /// Returns the use of a statement that has failed, if the whole request can be sent again. The
    /// statement must be the client's first request outside a transaction, with nothing after its
    /// batch.
    fn renewable(&self, settled: &Settled) -> Option<Used> {
        let outline = self.server.kept.outline()?;
        let used = outline.uses.as_ref()?;
        let own = self.client.as_ref().and_then(|client| client.extended.as_ref());
        let is_first_try = own.is_some_and(|own| own.repeats.may_renew());
        let is_all = is_first_try
            && outline.first == settled.serial
            && used.statement.id == settled.statement
            && self.server.status.is_idle()
            && self.server.ledger.only_ends_batch()
            && self.client.as_ref().is_some_and(|own| own.stream.remaining() <= KEPT_LEN_MAX);
        is_all.then(|| used.clone())
    }

    /// If the error names one of Weir's statements, notes what it says about the server. Returns
    /// the error with the client's own name.
    fn error_about_statement(
        &mut self,
        mut fields: ErrorFields,
        settled: &Settled,
    ) -> Option<ErrorFields> {
        let (text, at, len) = names(&fields, settled.statement)?;
        if fields.sqlstate() == b"42P05" && settled.taken.is_none() {
            self.server.doomed.condemn(CloseReason::OutOfStep);
        }
        let extended = self.client.as_deref()?.extended.as_deref()?;
        let taken = settled.taken.as_deref();
        let name = taken.or_else(|| extended.names_used.of(settled.serial))?;
        let message = [&text[..=at], name, &text[at + len - 1..]].concat();
        fields.replace(b'M', message);
        Some(fields)
    }
}

/// Returns the error's text, and where it names the statement of that number: the place of the quoted name,
/// and its length.
fn names(error: &ErrorFields, statement: u64) -> Option<(&[u8], usize, usize)> {
    let own = format!("\"weir_{statement}\"");
    let text = error.get(b'M')?;
    let at = text.windows(own.len()).position(|part| part == own.as_bytes())?;
    Some((text, at, own.len()))
}

/// Does the server not have the statement any more? Something has deallocated it, and no command tag said
/// so: a function that runs DEALLOCATE ALL.
fn is_lost(error: &ErrorFields, statement: u64) -> bool {
    error.sqlstate() == INVALID_STATEMENT_NAME.as_bytes() && names(error, statement).is_some()
}
