//! A client and its server ([`Pair`]), and the links between the two. The methods of a pair are in the
//! files about its subjects, such as `prepare.rs`, `apply.rs`, `session/verdict.rs` and
//! `relay/resend.rs`.
//!
//! Only this file makes and ends links. The conditions are asserted in release builds too: otherwise
//! a client could get another one's rows.

use config::PoolMode;

use crate::admission::one_pool::OnePool;
use crate::client::Client;
use crate::context::Context;
use crate::ids::{ClientId, ServerId};
use crate::lifecycle::link::join;
use crate::notify::listen::Channels;
use crate::server::Server;
use crate::shell::Exchange;

/// A client and its server.
#[derive(Debug)]
pub(crate) struct Pair<'a, X> {
    pub(crate) id: ClientId,
    pub(crate) client: &'a mut Client,
    pub(crate) on: ServerId,
    pub(crate) server: &'a mut Server,
    /// The server's pool.
    pub(crate) pool: OnePool<'a, X>,
    pub(crate) context: &'a mut Context,
}

impl<X: Exchange> Pair<'_, X> {
    /// Returns the mode in which the server is used.
    pub(crate) fn mode(&self) -> PoolMode {
        self.server.mode_in(self.pool.view.settings.mode)
    }

    /// Returns the client's channels.
    pub(crate) fn channels(&mut self) -> Channels<'_, X> {
        let Self { id, client, on, server, pool, context } = self;
        Channels { id: *id, client, server: Some((*on, server)), context, exchange: pool.exchange }
    }
}

/// Gives the logged-in server to the client.
#[inline]
pub(crate) fn lend(id: ClientId, client: &mut Client, on: ServerId, server: &mut Server) {
    server.uses += 1;
    link(id, client, on, server);
}

/// Gives the server to the client, for which it may still log in.
#[inline]
pub(crate) fn link(id: ClientId, client: &mut Client, on: ServerId, server: &mut Server) {
    assert!(server.is_clean(), "a dirty server was given to a client");
    link_again(id, client, on, server);
}

/// Links them as they were in another process. The server may be in the client's transaction.
#[inline]
pub(crate) fn link_again(id: ClientId, client: &mut Client, on: ServerId, server: &mut Server) {
    join((&mut client.server, on), (&mut server.client, id));
}

/// Takes the server from the client, which has used it.
#[inline]
pub(crate) fn release(client: &mut Client, server: &mut Server) {
    client.server.end();
    server.lose_client(client.serial);
}

/// Parts a client from a server that it has not used, or that is closed next.
pub(crate) fn part(client: &mut Client, server: &mut Server) {
    client.server.end();
    server.client.end();
}

impl Client {
    /// Its server is closed.
    pub(crate) fn lose_server(&mut self) {
        self.server.end();
    }
}

impl Server {
    /// Unlinks the client, which has this serial number.
    pub(crate) fn lose_client(&mut self, serial: u64) {
        self.client.end();
        self.context_change.end_transaction(false);
        self.kept.lose_client();
        if let Some(session) = self.session.get_mut() {
            session.lose_client(serial);
        }
    }

    /// Prepares it for the pool, whose next client may be anybody's.
    #[inline]
    pub(crate) fn park(&mut self) {
        assert!(self.client.is_none(), "a client's server was parked");
        assert!(self.is_clean(), "a dirty server was parked");
        self.phase.park();
    }
}
