//! A server that is in use here goes to its pool's lobby (docs/direct.md), where it may have been
//! before. So a client that listens costs no login: its backend goes back.
//!
//! ```text
//!  a server that has left the lobby with a client is free ─┐
//!  the lobby needs a server, and an ordinary one is idle ──┴─► Settling(Enlist): DISCARD ALL, a ticket
//!     ─► Attending ─► as after a login (attend.rs)
//! ```
//!
//! The thread of the lobbies learns of the ticket when the server has replied to everything. So no
//! reply is under way when the backend serves a client.

use crate::admission::one_pool::OnePool;
use crate::context::Context;
use crate::ids::ServerId;
use crate::lifecycle::attend::{expect_backend, new_ticket};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::open::TICKET;
use crate::notify::connection::unfit;
use crate::server::{Server, Settling};
use crate::session::on_server::WayBack;
use crate::session::verdict::FORGET;
use crate::shell::{Exchange, Io};

/// Ends the session on a server that nobody uses, and gives its backend a ticket. Returns why the
/// server must be closed instead, if it must.
pub(crate) fn begin<X: Exchange>(
    id: ServerId,
    server: &mut Server,
    context: &mut Context,
    io: &mut impl Io<X>,
) -> Option<CloseReason<'static>> {
    let ticket = new_ticket(&context.config, io);
    server.phase.settle(Settling::Enlist);
    let session = server.session.own();
    let Some(ahead) = &session.ahead else { return Some(CloseReason::LeftLobby) };
    // SET would be a new text for pg_stat_statements each time.
    let set = format!("SELECT pg_catalog.set_config('{TICKET}','{ticket}',false)");
    let set = ahead.marked(set.as_bytes());
    session.way_back = WayBack::Ticket(ticket);
    server.send_own_queries(id, [FORGET, &set].into_iter(), context, io);
    None
}

/// The backend has its ticket, and comes to the lobby now. Returns why its server must be closed, if
/// it must.
pub(crate) fn end<X: Exchange>(
    id: ServerId,
    server: &mut Server,
    pool: &mut OnePool<'_, X>,
    context: &Context,
    io: &mut impl Io<X>,
) -> Option<CloseReason<'static>> {
    server.clear_session();
    let epoch = server.epoch;
    let session = server.session.own();
    session.ahead.iter_mut().for_each(|ahead| ahead.note_shown(0));
    let way_back = std::mem::take(&mut session.way_back);
    let reports = session.state_report.is_some();
    let why =
        pool.lock(|pool| unfit(pool, epoch).or(pool.proxied().map(|_| CloseReason::LeftLobby)));
    let WayBack::Ticket(ticket) = way_back else { return Some(CloseReason::LeftLobby) };
    expect_backend(id, server, ticket, context.worker, io);
    why.or((!reports).then_some(CloseReason::LeftLobby))
}
