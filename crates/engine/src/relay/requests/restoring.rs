//! Messages of Weir's own that go out in one write with a client's request: the client's settings
//! (`lifecycle/ahead.rs`) and its address. The request is handled as if the server had the settings
//! already.

use wire::frontend;

use super::{Requests, Stop};
use crate::client::Client;
use crate::engine::Engine;
use crate::ids::{ClientId, ServerId};
use crate::relay::ledger::{Entry, Expect, Verb};
use crate::server::Server;
use crate::shell::{Exchange, Io};
use crate::values::Values;

/// The address is a parameter, because other sessions of the same user can read the text.
const SHOW_ADDRESS: &[u8] = b"SELECT pg_catalog.set_config('weir.client',$1,false)";

/// The settings of the client whose request is handled.
#[derive(Debug)]
pub(super) struct Restoring {
    sql: Vec<u8>,
    /// The server's values before.
    before: Values,
}

impl Restoring {
    pub(super) fn begin(sql: Vec<u8>, client: &Client, server: &mut Server) -> Self {
        let before = std::mem::replace(&mut server.vars, client.vars.clone());
        Self { sql, before }
    }

    /// The settings were not sent. Returns their SQL.
    pub(super) fn undo(self, server: &mut Server) -> Vec<u8> {
        server.vars = self.before;
        self.sql
    }
}

/// Messages before the request, and their entries in the ledger.
#[derive(Debug, Default)]
pub(super) struct Preface {
    messages: Vec<u8>,
    entries: Vec<Entry>,
}

impl Preface {
    /// Writes what the server must know before the request. `address` is the client's, if the
    /// server has to show it.
    pub(super) fn new(
        restoring: Option<&Restoring>,
        address: Option<&str>,
        server: &mut Server,
        serial: &mut u64,
    ) -> Option<Self> {
        let ahead = server.session.ahead.as_ref()?;
        let mut preface = Self::default();
        if let Some(restoring) = restoring {
            frontend::query(&mut preface.messages, &ahead.marked(&restoring.sql));
            preface.expect(Expect::Query, serial);
        }
        if let Some(address) = address {
            let value = ahead.of_address(address);
            let messages = &mut preface.messages;
            frontend::parse(messages, b"", SHOW_ADDRESS, frontend::NO_TYPES);
            frontend::bind_text(messages, b"", &[Some(&value)]);
            frontend::execute(messages, b"", 0);
            frontend::sync(messages);
            for expect in [Expect::Parse, Expect::Bind, Expect::Execute, Expect::Sync] {
                preface.expect(expect, serial);
            }
        }
        if preface.entries.is_empty() {
            return None;
        }
        // All of these messages drop the unnamed statement.
        server.unnamed = 0;
        Some(preface)
    }

    fn expect(&mut self, expect: Expect, serial: &mut u64) {
        *serial += 1;
        let mut entry = Entry::new(expect, Verb::Internal);
        entry.serial = *serial;
        self.entries.push(entry);
    }

    /// Returns these messages and the request. None if the request is not sent now.
    pub(super) fn precede<X>(self, requests: &mut Requests<'_, X>, stop: &Stop) -> Option<Vec<u8>> {
        let Stop::Incomplete = stop else { return None };
        let request = requests.out.finish();
        if request.is_empty() {
            return None;
        }
        let Self { mut messages, entries } = self;
        messages.extend_from_slice(request);
        let ledger = &mut requests.server.ledger;
        entries.into_iter().rev().for_each(|entry| ledger.owe_first(entry));
        Some(messages)
    }
}

impl<X: Exchange> Engine<X> {
    /// Returns the client's address, if its request is the first on this server and the server is
    /// to show it.
    pub(super) fn address_to_show(
        &self,
        id: ClientId,
        on: ServerId,
        io: &impl Io<X>,
    ) -> Option<String> {
        let (client, server) = (self.client(id), self.server(on));
        let ahead = server.session.ahead.as_ref()?;
        let is_due = self.config.global.server_client_address
            && !ahead.shows(client.serial)
            && server.status == b'I'
            && server.ledger.is_at_rest();
        is_due.then(|| io.client_place(id))
    }

    /// The settings were not sent: the request has to wait, or needs no server. Its rest is
    /// held.
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
