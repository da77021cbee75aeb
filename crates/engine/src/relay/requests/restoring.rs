//! Messages of Weir's own that go out in one write with a client's request: the client's settings
//! (`lifecycle/ahead.rs`) and its address. The request is handled as if the server had the settings
//! already.

use wire::frontend;

use super::{Input, Ran, Requests, Stop, Violation};
use crate::cancel::signaling::Call;
use crate::client::Client;
use crate::context::Context;
use crate::ids::{ClientId, Micros, ServerId};
use crate::lifecycle::ahead::{await_settings, is_whole_request};
use crate::lifecycle::pair::Pair;
use crate::relay::kept_request::Used;
use crate::relay::ledger::{Entry, Expect, Verb};
use crate::server::{Preparation, Server};
use crate::shell::{Exchange, Io};
use crate::values::Values;

/// The address is a parameter, because other sessions of the same user can read the text.
const SHOW_ADDRESS: &[u8] = b"SELECT pg_catalog.set_config('weir.client',$1,false)";

/// The settings of the client whose request is handled.
#[derive(Debug)]
pub(crate) struct Restoring {
    sql: Vec<u8>,
    /// The server's values before.
    before: Values,
}

impl Restoring {
    fn begin(sql: Vec<u8>, client: &Client, server: &mut Server) -> Self {
        let before = std::mem::replace(&mut server.vars, client.vars.clone());
        Self { sql, before }
    }

    /// The settings were not sent. Returns their SQL.
    fn undo(self, server: &mut Server) -> Vec<u8> {
        server.vars = self.before;
        self.sql
    }
}

/// The settings of a client with a request.
pub(crate) enum Due {
    /// They and the address go out with the request; None if neither is due.
    Now(Option<Box<Preface>>),
    /// This SQL restores them before the request, which is not whole.
    First(Vec<u8>),
}

impl Due {
    /// Returns what the server must know before this input.
    #[inline(never)]
    pub(crate) fn before<X: Exchange>(
        input: &Input<'_>,
        id: ClientId,
        client: &Client,
        server: &mut Server,
        context: &mut Context,
        io: &impl Io<X>,
    ) -> Self {
        let shows = context.config.global.server_client_address;
        let address = address_to_show(id, client, server, shows, io);
        let mut restoring = None;
        if !input.all().is_empty()
            && let Some(ahead) = server.ahead_mut()
            && let Some(sql) = ahead.take()
        {
            if !is_whole_request(input.all()) {
                return Self::First(sql);
            }
            restoring = Some(Restoring::begin(sql, client, server));
        }
        Self::Now(Preface::new(restoring, address.as_deref(), server, &mut context.serial))
    }
}

/// Messages before the request, and their entries in the ledger.
#[derive(Debug, Default)]
pub(crate) struct Preface {
    messages: Vec<u8>,
    entries: Vec<Entry>,
    restoring: Option<Restoring>,
    /// Does it show the client's address?
    shows: bool,
}

impl Preface {
    /// Writes what the server must know before the request. `address` is the client's, if the
    /// server has to show it.
    fn new(
        restoring: Option<Restoring>,
        address: Option<&str>,
        server: &mut Server,
        serial: &mut u64,
    ) -> Option<Box<Self>> {
        let ahead = server.session.ahead.as_ref()?;
        let mut preface = Self::default();
        if let Some(restoring) = &restoring {
            frontend::query(&mut preface.messages, &ahead.marked(&restoring.sql));
            preface.expect(Expect::Query, serial);
        }
        preface.restoring = restoring;
        if let Some(address) = address {
            preface.shows = true;
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
        server.unnamed.destroy();
        Some(Box::new(preface))
    }

    pub(crate) fn restoring(self) -> Option<Restoring> {
        self.restoring
    }

    fn expect(&mut self, expect: Expect, serial: &mut u64) {
        *serial += 1;
        let mut entry = Entry::new(expect, Verb::Internal);
        entry.serial = *serial;
        self.entries.push(entry);
    }

    /// Sends these messages and the request. Returns whether they have gone out, and whether the
    /// server still takes bytes. If the request cannot go out yet, the settings wait with it.
    pub(super) fn send<X: Exchange>(
        &mut self,
        requests: &mut Requests<'_, X>,
        stop: &Stop,
        on: ServerId,
        io: &mut impl Io<X>,
    ) -> (bool, bool) {
        let request = requests.out.finish();
        if request.is_empty() {
            return (false, true);
        }
        if !matches!(stop, Stop::Incomplete) {
            return (false, self.restoring.is_some() || io.send_server(on, request));
        }
        self.messages.extend_from_slice(request);
        let server = &mut *requests.server;
        let entries = std::mem::take(&mut self.entries);
        entries.into_iter().rev().for_each(|entry| server.ledger.owe_first(entry));
        if self.shows
            && let Some(ahead) = server.ahead_mut()
        {
            ahead.note_shown(requests.client.serial);
        }
        (true, io.send_server(on, &self.messages))
    }
}

/// The result of an input.
pub(crate) enum Followed {
    /// The settings and the request were sent. The client is held back until the settings are
    /// accepted.
    Sent,
    /// The settings must be restored by this SQL before the request, whose rest is held.
    First(Vec<u8>),
    /// The client needs no server yet, unless it has sent something.
    Unused,
    /// See [`Stop::Outdated`].
    Outdated(Used),
    /// See [`Stop::Signal`].
    Signal(Call),
    Terminate,
    Violation(Violation),
}

impl Ran {
    /// Continues after an input without settings before it.
    #[inline(always)]
    pub(crate) fn follow(self, client: &mut Client, input: Input<'_>) -> Followed {
        let followed = match self.stop {
            Stop::Incomplete => Followed::Unused,
            Stop::Outdated(of) => Followed::Outdated(of),
            Stop::Signal(call) => Followed::Signal(call),
            Stop::Terminate => return Followed::Terminate,
            Stop::Violation(violation) => return Followed::Violation(violation),
        };
        input.hold_rest(client, self.used);
        followed
    }
}

impl<X: Exchange> Pair<'_, X> {
    /// Restores the client's settings, and holds the request.
    #[inline(never)]
    pub(crate) fn restore_first(&mut self, sql: &[u8], input: Input<'_>, io: &mut impl Io<X>) {
        self.pool.view.stats.received += input.bytes.len() as u64;
        input.hold_rest(self.client, 0);
        self.apply_first(sql, io);
    }
}

impl Restoring {
    /// Continues after the input.
    #[inline(never)]
    pub(crate) fn follow(
        self,
        id: ClientId,
        client: &mut Client,
        server: &mut Server,
        ran: Ran,
        input: Input<'_>,
        now: Micros,
    ) -> Followed {
        let Ran { stop, used, begun_at, prefaced, .. } = ran;
        match stop {
            Stop::Terminate => {
                self.undo(server);
                return Followed::Terminate;
            }
            Stop::Violation(violation) => {
                self.undo(server);
                return Followed::Violation(violation);
            }
            Stop::Incomplete | Stop::Outdated(_) | Stop::Signal(_) => {}
        }
        // The messages before the first one that the server answers have their replies.
        let from = begun_at.unwrap_or_default();
        let request = prefaced.then(|| input.all()[from..used].to_vec());
        input.hold_rest(client, used);
        let Some(request) = request else { return self.put_off(client, server) };
        if let Some(ahead) = server.ahead_mut() {
            ahead.sent(self.before);
        }
        await_settings(id, client, server, Preparation::Ahead(request), now);
        Followed::Sent
    }

    /// The settings were not sent: the request has to wait, or needs no server.
    fn put_off(self, client: &mut Client, server: &mut Server) -> Followed {
        let sql = self.undo(server);
        if let Some(own) = &mut client.extended {
            own.repeats.go_on();
        }
        if !server.ledger.owes_nothing() || client.stream.holds_message() {
            return Followed::First(sql);
        }
        if let Some(ahead) = server.ahead_mut() {
            ahead.put_off(sql);
        }
        Followed::Unused
    }
}

/// Returns the client's address, if its request is the first on this server and the server is
/// to show it. `shows` is the setting `server_client_address`.
fn address_to_show<X: Exchange>(
    id: ClientId,
    client: &Client,
    server: &Server,
    shows: bool,
    io: &impl Io<X>,
) -> Option<String> {
    let ahead = server.session.ahead.as_ref()?;
    let is_due = shows
        && !ahead.shows(client.serial)
        && server.status.is_idle()
        && server.ledger.is_at_rest();
    is_due.then(|| io.client_place(id))
}
