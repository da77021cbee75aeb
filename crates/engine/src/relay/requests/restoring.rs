//! A client's settings go out in one write with its request (`lifecycle/ahead.rs`). The request is
//! handled as if the server had the settings already.

use wire::frontend;

use super::{Requests, Stop};
use crate::client::Client;
use crate::engine::Engine;
use crate::ids::{ClientId, ServerId};
use crate::lifecycle::ahead::settings_entry;
use crate::server::Server;
use crate::shell::{Exchange, Io};
use crate::values::Values;

/// The settings of the client whose request is handled.
#[derive(Debug)]
pub(super) struct Restoring {
    sql: Vec<u8>,
    /// Serial number of the message with the settings.
    serial: u64,
    /// The server's values before.
    before: Values,
}

impl Restoring {
    pub(super) fn begin(
        sql: Vec<u8>,
        client: &Client,
        server: &mut Server,
        serial: &mut u64,
    ) -> Self {
        *serial += 1;
        // A simple Query drops the unnamed statement.
        server.unnamed = 0;
        let before = std::mem::replace(&mut server.vars, client.vars.clone());
        Self { sql, serial: *serial, before }
    }

    /// The settings were not sent. Returns their SQL.
    pub(super) fn undo(self, server: &mut Server) -> Vec<u8> {
        server.vars = self.before;
        self.sql
    }

    /// Writes the settings before `request`. Returns None if nothing can be sent yet.
    pub(super) fn precede<X>(
        &self,
        requests: &mut Requests<'_, X>,
        stop: &Stop,
    ) -> Option<Vec<u8>> {
        let Stop::Incomplete = stop else { return None };
        let request = requests.out.finish();
        let ahead = requests.server.session.ahead.as_ref().filter(|_| !request.is_empty())?;
        let mut messages = Vec::with_capacity(self.sql.len() + request.len() + 64);
        frontend::query(&mut messages, &ahead.marked(&self.sql));
        messages.extend_from_slice(request);
        requests.server.ledger.owe_first(settings_entry(self.serial));
        Some(messages)
    }
}

impl<X: Exchange> Engine<X> {
    /// Nothing was sent: the request has to wait, or needs no server. What is left of it is held.
    pub(super) fn restore_later(
        &mut self,
        id: ClientId,
        on: ServerId,
        restoring: Restoring,
        io: &mut impl Io<X>,
    ) {
        let client = &mut self.clients[id.0 as usize];
        let server = &mut *self.servers[on.0 as usize];
        let sql = restoring.undo(server);
        if let Some(own) = &mut client.extended {
            own.rewound = false;
        }
        if server.ledger.owes_nothing() && !client.stream.holds_message() {
            if let Some(ahead) = &mut server.session.ahead {
                ahead.put_off(sql);
            }
            return self.give_back_unused(id, on, io);
        }
        self.apply_first(id, on, &sql, io);
    }
}
