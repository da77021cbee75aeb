//! Statements that a client has prepared by SQL's PREPARE are prepared on the server it is given
//! (`pool_mode = auto`), each by a message of its own, so that PostgreSQL shows its text as it was.
//!
//! ```text
//!  prepare ─► Statements ─┬─ all are there ─► ready
//!                         └─ one failed ─► Recount (which are there?) ─► ready
//! ```
//!
//! One that fails (its table is gone) stays the client's: it is tried again on the next server.

use std::sync::Arc;

use wire::frontend;

use super::Engine;
use crate::ids::{ClientId, Micros, ServerId};
use crate::ledger::{Entry, Expect, Verb};
use crate::probe::{self, Probe, Topics};
use crate::server::{Preparation, ServerPhase};
use crate::shell::{Exchange, Io};

const RECOUNT: Topics = Topics { settings: false, objects: true };

impl<X: Exchange> Engine<X> {
    /// True if there is nothing to prepare, and the client may be read.
    pub(super) fn prepare_statements(
        &mut self,
        id: ClientId,
        on: ServerId,
        now: Micros,
        io: &mut impl Io,
    ) -> bool {
        let client = &self.clients[id.0 as usize];
        let server = &mut self.servers[on.0 as usize];
        let mut out = Vec::new();
        for missing in client.vars.prepared.without(&server.vars.prepared) {
            frontend::query(&mut out, &missing.value);
            self.serial += 1;
            let mut entry = Entry::new(Expect::Query, Verb::Internal);
            entry.serial = self.serial;
            server.ledger.owe(entry);
        }
        if out.is_empty() {
            return self.ready(id, on, now, io);
        }
        server.phase = ServerPhase::Preparing(Preparation::Statements);
        server.own_error = None;
        server.asked_at = now;
        server.unnamed = 0;
        io.send_server(on, &out);
        false
    }

    /// Every one was answered. True if the client may be read.
    pub(super) fn statements_prepared(
        &mut self,
        id: ClientId,
        on: ServerId,
        now: Micros,
        io: &mut impl Io,
    ) -> bool {
        let server = &mut self.servers[on.0 as usize];
        if server.own_error.take().is_none() {
            server.vars = self.clients[id.0 as usize].vars.clone();
            return self.ready(id, on, now, io);
        }
        server.phase = ServerPhase::Preparing(Preparation::Recount);
        server.probe = Some(Box::new(Probe::new(RECOUNT)));
        let sql = probe::question(RECOUNT, b"", std::iter::empty());
        self.send_own_query(on, &sql, now, io);
        false
    }

    /// It is known which there are. True if the client may be read.
    pub(super) fn recounted(
        &mut self,
        id: ClientId,
        on: ServerId,
        now: Micros,
        io: &mut impl Io,
    ) -> bool {
        let server = &mut self.servers[on.0 as usize];
        let left = server.probe.take().and_then(|probe| probe.finish());
        let there = left.and_then(|left| left.prepared).filter(|_| server.own_error.is_none());
        let Some(there) = there else {
            self.server_closed(on, "settings could not be undone", now, io);
            return false;
        };
        Arc::make_mut(&mut server.vars).prepared = there;
        self.ready(id, on, now, io)
    }
}
