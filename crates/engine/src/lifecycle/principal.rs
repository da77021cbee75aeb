//! Asks a server without a client what a new server of its pool would be
//! (`admission/pool/principal.rs`), and replaces the pool's servers if they are something else.
//!
//! ```text
//!  a client has logged in, a server is idle ─┐
//!  a server is free, and a check is due ─────┴─► TellPrincipal ─► answer ─► place ─► the client goes on
//! ```
//!
//! A client that has logged in before the role changed gets no server of the new role: it is
//! disconnected. A client that keeps its server keeps it, as a direct connection keeps its role.

use crate::admission::pool::{Answer, role_changes};
use crate::engine::Engine;
use crate::engine::work::Work;
use crate::ids::{ClientId, Newcomer, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::preparation::PrincipalQuestion;
use crate::server::Preparation;
use crate::shell::{Exchange, Io};
use crate::vars::quote_bytes;

/// Returns the question. Its first column has the OIDs of this server's role and database, as they
/// were at its login. The second column has what a new server would get for these names.
fn question(user: &str, database: &str) -> Vec<u8> {
    let mut sql = b"SELECT pg_catalog.concat_ws(' ', own.usesysid, own.datid), \
        pg_catalog.concat_ws(' ', r.oid, d.oid, (SELECT pg_catalog.string_agg(\
        pg_catalog.concat_ws('.', s.setdatabase, s.setrole, s.xmin, s.ctid), ' ' \
        ORDER BY s.setdatabase, s.setrole) FROM pg_catalog.pg_db_role_setting s \
        WHERE (s.setdatabase OPERATOR(pg_catalog.=) 0 \
        OR s.setdatabase OPERATOR(pg_catalog.=) d.oid) \
        AND (s.setrole OPERATOR(pg_catalog.=) 0 OR s.setrole OPERATOR(pg_catalog.=) r.oid))) \
        FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) own \
        LEFT JOIN pg_catalog.pg_roles r ON r.rolname OPERATOR(pg_catalog.=) "
        .to_vec();
    quote_bytes(user.as_bytes(), &mut sql);
    sql.extend_from_slice(
        b"::pg_catalog.name \
        LEFT JOIN pg_catalog.pg_database d ON d.datname OPERATOR(pg_catalog.=) ",
    );
    quote_bytes(database.as_bytes(), &mut sql);
    sql.extend_from_slice(b"::pg_catalog.name");
    sql
}

impl<X: Exchange> Engine<X> {
    /// Asks a server that has no client and is clean.
    pub(crate) fn ask_principal(
        &mut self,
        on: ServerId,
        newcomer: Option<Newcomer>,
        io: &mut impl Io<X>,
    ) {
        let settings = self.pools.settings(self.servers[on].pool);
        let sql = question(settings.login_user(), settings.database_name());
        let question = PrincipalQuestion { answer: Some(Box::default()), newcomer };
        let step = Preparation::TellPrincipal(Box::new(question));
        self.servers[on].phase.prepare(step);
        self.send_own_query(on, &sql, io);
    }

    /// Reads the completed answer.
    pub(crate) fn principal_told(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let server = &mut *self.servers[on];
        let error = server.own_error.take();
        let newcomer = server.phase.end_question();
        let Some((answer, newcomer)) = newcomer else { return };
        let (pool, epoch) = (server.pool, server.epoch);
        let found = answer.and_then(|answer| answer.finish(error.as_ref()).ok().flatten());
        let answer =
            found.and_then(|found| Answer::parse(&found.user, &found.secret.unwrap_or_default()));
        let is_changed = self.pools.exchange.pool(pool, |pool| pool.learn_principal(epoch, answer));
        if is_changed {
            self.principal_changed(pool, io);
        }
        let server = &*self.servers[on];
        match server.doomed {
            Some(reason) => self.close_server(on, reason, io),
            None if server.is_clean() => self.place(on, io),
            None => self.close_server(on, CloseReason::GotDirty, io),
        }
        self.work.extend(newcomer.map(Work::Checked));
    }

    /// Deals with the loss of a server that was asked. Another one may tell.
    pub(crate) fn lose_asked(
        &mut self,
        on: ServerId,
        reason: CloseReason<'_>,
        io: &mut impl Io<X>,
    ) {
        let server = &mut *self.servers[on];
        let (pool, opened_at) = (server.pool, server.times.opened_at);
        let newcomer = server.phase.end_question().and_then(|(_, newcomer)| newcomer);
        self.pools.exchange.pool(pool, |pool| pool.ask_another(opened_at, io.now()));
        self.close_server(on, reason, io);
        self.work.extend(newcomer.map(Work::Checked));
    }

    /// Would this server run the client's statements as another role than it has logged in as?
    #[inline]
    pub(crate) fn has_another_role(&mut self, id: ClientId, on: ServerId) -> bool {
        let (client, server) = (&self.clients[id], &*self.servers[on]);
        let (pool, logged_in_with) = (client.pool, client.role_changes);
        let now = match pool {
            Some(pool) if pool != server.pool => self.pools.one(pool).role_changes(),
            Some(_) | None => role_changes(server.epoch),
        };
        now != logged_in_with && self.clients[id].is_welcomed()
    }
}
