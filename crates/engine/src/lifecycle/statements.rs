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

use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::pair::Pair;
use crate::lifecycle::prepare::{Answered, Prepared};
use crate::server::Preparation;
use crate::session::left::Topics;
use crate::session::probe;
use crate::session::state::AllLent;
use crate::shell::{Exchange, Io};

const RECOUNT: Topics = Topics { settings: false, objects: true };

impl<X: Exchange> Pair<'_, X> {
    /// Prepares the statements that the server lacks.
    pub(crate) fn prepare_statements(&mut self, io: &mut impl Io<X>) -> Prepared {
        let wanted = self.client.vars.clone();
        let there = self.server.vars.clone();
        let mut missing = wanted.prepared.without(&there.prepared).peekable();
        if missing.peek().is_none() {
            return Prepared::Ready;
        }
        self.server.phase.prepare(Preparation::Statements);
        let missing = missing.map(|one| &*one.value);
        self.server.send_own_queries(self.on, missing, self.context, io);
        Prepared::NotYet
    }

    /// Continues after the replies to all statements.
    pub(crate) fn statements_prepared(&mut self, io: &mut impl Io<X>) -> Prepared {
        let server = &mut *self.server;
        if server.own_error.take().is_none() {
            let prepared = self.client.vars.prepared.clone();
            server.vars.change(|vars| vars.prepared = prepared);
            return self.prepare(io);
        }
        let reported = server.session.state_report.as_ref().and_then(|report| report.state());
        if let Some(there) = reported.and_then(|left| left.prepared) {
            server.vars.change(|vars| vars.prepared = there);
            return Prepared::Ready;
        }
        let sql = probe::question(RECOUNT, b"", std::iter::empty(), &AllLent::new());
        let step = Preparation::Recount;
        server.ask_what_is_left(self.on, step, RECOUNT, &sql, self.context, io);
        Prepared::NotYet
    }

    /// Records the statements that exist, after some have failed.
    pub(crate) fn recounted(&mut self) -> Answered {
        let server = &mut *self.server;
        let left = server.phase.probe().and_then(Option::take).and_then(|probe| probe.finish());
        let there = left.and_then(|left| left.prepared).filter(|_| !server.own_error.is_some());
        let Some(there) = there else {
            return Answered::Lost(CloseReason::SettingsNotUndone);
        };
        server.vars.change(|vars| vars.prepared = there);
        Answered::GoesOn(Prepared::Ready)
    }
}
