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

use crate::engine::Engine;
use crate::ids::{PoolId, ServerId};
use crate::lifecycle::attend::{expect_backend, new_ticket};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::open::TICKET;
use crate::notify::connection::unfit;
use crate::server::Settling;
use crate::session::on_server::WayBack;
use crate::session::verdict::FORGET;
use crate::shell::{Exchange, Io};

impl<X: Exchange> Engine<X> {
    /// Sends an idle server of the pool to the lobby. Returns false if there is none.
    pub(crate) fn enlist_idle(&mut self, pool: PoolId, io: &mut impl Io<X>) -> bool {
        let worker = self.context.worker;
        let idle = self.pools.exchange.pool(pool, |pool| pool.take_for_lobby(worker));
        let Some(parked) = idle else { return false };
        let id = self.attach(parked, io);
        self.enlist(id, io);
        true
    }

    /// Ends the session on a server that nobody uses, and gives its backend a ticket.
    pub(crate) fn enlist(&mut self, id: ServerId, io: &mut impl Io<X>) {
        let ticket = new_ticket(&self.context.config, io);
        let server = &mut *self.servers[id];
        server.phase.settle(Settling::Enlist);
        let session = server.session.own();
        let Some(ahead) = &session.ahead else {
            return self.close_server(id, CloseReason::LeftLobby, io);
        };
        // SET would be a new text for pg_stat_statements each time.
        let set = format!("SELECT pg_catalog.set_config('{TICKET}','{ticket}',false)");
        let set = ahead.marked(set.as_bytes());
        session.way_back = WayBack::Ticket(ticket);
        server.send_own_queries(id, [FORGET, &set].into_iter(), &mut self.context, io);
    }

    /// The backend has its ticket, and comes to the lobby now.
    pub(crate) fn enlisted(&mut self, id: ServerId, io: &mut impl Io<X>) {
        let server = &mut *self.servers[id];
        server.clear_session();
        let (pool, epoch) = (server.pool, server.epoch);
        let session = server.session.own();
        session.ahead.iter_mut().for_each(|ahead| ahead.note_shown(0));
        let way_back = std::mem::take(&mut session.way_back);
        let reports = session.state_report.is_some();
        let why = self.pools.exchange.pool(pool, |pool| {
            unfit(pool, epoch).or(pool.proxied().map(|_| CloseReason::LeftLobby))
        });
        let WayBack::Ticket(ticket) = way_back else {
            return self.close_server(id, CloseReason::LeftLobby, io);
        };
        let worker = self.context.worker;
        expect_backend(id, &mut self.servers[id], ticket, worker, io);
        if let Some(why) = why.or((!reports).then_some(CloseReason::LeftLobby)) {
            self.close_server(id, why, io);
        }
    }
}
