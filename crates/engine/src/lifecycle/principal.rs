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

use crate::admission::one_pool::OnePool;
use crate::admission::pool::Answer;
use crate::context::Context;
use crate::ids::{Micros, Newcomer, ServerId};
use crate::lifecycle::preparation::PrincipalQuestion;
use crate::server::{Preparation, Server};
use crate::settings::PoolSettings;
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

/// The end of a question.
#[derive(Debug)]
pub(crate) struct Told {
    /// All servers of the pool are to be replaced.
    pub(crate) is_changed: bool,
    /// The client whose login has waited for the answer.
    pub(crate) newcomer: Option<Newcomer>,
}

/// Asks a server that has no client and is clean. `settings`: its pool's.
pub(crate) fn ask<X: Exchange>(
    on: ServerId,
    server: &mut Server,
    newcomer: Option<Newcomer>,
    settings: &PoolSettings,
    context: &mut Context,
    io: &mut impl Io<X>,
) {
    let sql = question(settings.login_user(), settings.database_name());
    let question = PrincipalQuestion { answer: Some(Box::default()), newcomer };
    server.phase.prepare(Preparation::TellPrincipal(Box::new(question)));
    server.send_own_queries(on, [&*sql].into_iter(), context, io);
}

/// Reads the completed answer. Returns `None` if nothing was asked.
pub(crate) fn told<X: Exchange>(server: &mut Server, pool: &mut OnePool<'_, X>) -> Option<Told> {
    let error = server.own_error.take();
    let (answer, newcomer) = server.phase.end_question()?;
    let epoch = server.epoch;
    let found = answer.and_then(|answer| answer.finish(error.as_ref()).ok().flatten());
    let answer =
        found.and_then(|found| Answer::parse(&found.user, &found.secret.unwrap_or_default()));
    let is_changed = pool.lock(|pool| pool.learn_principal(epoch, answer));
    Some(Told { is_changed, newcomer })
}

/// The server that was asked is lost: another one may tell. Returns the client whose login has
/// waited for the answer.
pub(crate) fn lost<X: Exchange>(
    server: &mut Server,
    pool: &mut OnePool<'_, X>,
    now: Micros,
) -> Option<Newcomer> {
    let opened_at = server.times.opened_at();
    let newcomer = server.phase.end_question().and_then(|(_, newcomer)| newcomer);
    pool.lock(|pool| pool.ask_another(opened_at, now));
    newcomer
}
