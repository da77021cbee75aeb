//! What the shell and an operator learn of one worker's connections.

use crate::client::Client;
use crate::engine::Engine;
use crate::ids::{ClientId, ServerId};
use crate::shell::Exchange;

impl<X: Exchange> Engine<X> {
    pub fn client_ids(&self) -> impl Iterator<Item = ClientId> {
        self.clients.ids()
    }

    pub fn server_ids(&self) -> impl Iterator<Item = ServerId> {
        self.servers.ids()
    }

    /// Is no message of the client half read?
    pub fn client_at_rest(&self, id: ClientId) -> bool {
        self.clients.get(id).is_none_or(Client::is_read_whole)
    }

    /// Is no message of the server half read?
    pub fn server_at_rest(&self, id: ServerId) -> bool {
        self.servers.get(id).is_none_or(|server| server.is_read_whole())
    }

    /// Has the server sent all replies?
    pub fn owes_nothing(&self, id: ServerId) -> bool {
        self.servers.get(id).is_none_or(|server| server.ledger.owes_nothing())
    }
}
