//! Prepares a client's statements of SQL's PREPARE on its next server (`pool_mode = auto`). Each
//! has a message of its own, so that PostgreSQL shows its original text.
//!
//! ```text
//!  prepare ─► Statements ─┬─ all are there ─► ready
//!                         └─ one failed ─► Recount (which are there?) ─► ready
//! ```
//!
//! A server that reports its state is not asked.
//!
//! A statement that fails (its table is gone) is kept, and tried again on the next server.

use crate::engine::Engine;
use crate::ids::{ClientId, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::preparation::Readable;
use crate::server::Preparation;
use crate::session::probe::{self, Topics};
use crate::session::state::AllLent;
use crate::shell::{Exchange, Io};

const RECOUNT: Topics = Topics { settings: false, objects: true };

impl<X: Exchange> Engine<X> {
    /// Prepares the statements that the server lacks.
    pub(crate) fn prepare_statements(
        &mut self,
        id: ClientId,
        on: ServerId,
        io: &mut impl Io<X>,
    ) -> Readable {
        let wanted = self.clients[id].vars.clone();
        let there = self.servers[on].vars.clone();
        let mut missing = wanted.prepared.without(&there.prepared).peekable();
        if missing.peek().is_none() {
            return self.ready(id, on, io);
        }
        let server = &mut *self.servers[on];
        server.phase.prepare(Preparation::Statements);
        let missing = missing.map(|one| &*one.value);
        server.send_own_queries(on, missing, &mut self.context, io);
        Readable::NotYet
    }

    /// Continues after the replies to all statements.
    pub(crate) fn statements_prepared(
        &mut self,
        id: ClientId,
        on: ServerId,
        io: &mut impl Io<X>,
    ) -> Readable {
        let server = &mut *self.servers[on];
        if server.own_error.take().is_none() {
            let prepared = self.clients[id].vars.prepared.clone();
            server.vars.change(|vars| vars.prepared = prepared);
            return self.prepare(id, on, io);
        }
        let reported = server.session.state_report.as_ref().and_then(|report| report.state());
        if let Some(there) = reported.and_then(|left| left.prepared) {
            server.vars.change(|vars| vars.prepared = there);
            return self.ready(id, on, io);
        }
        let sql = probe::question(RECOUNT, b"", std::iter::empty(), &AllLent::new());
        let server = &mut *self.servers[on];
        server.ask_what_is_left(on, Preparation::Recount, RECOUNT, &sql, &mut self.context, io);
        Readable::NotYet
    }

    /// Records the statements that exist, after some have failed.
    pub(crate) fn recounted(
        &mut self,
        id: ClientId,
        on: ServerId,
        io: &mut impl Io<X>,
    ) -> Readable {
        let server = &mut *self.servers[on];
        let left = server.phase.probe().and_then(Option::take).and_then(|probe| probe.finish());
        let there = left.and_then(|left| left.prepared).filter(|_| server.own_error.is_none());
        let Some(there) = there else {
            self.lose_server(on, CloseReason::SettingsNotUndone, io);
            return Readable::NotYet;
        };
        server.vars.change(|vars| vars.prepared = there);
        self.ready(id, on, io)
    }
}
