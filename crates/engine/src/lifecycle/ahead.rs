//! Restores a client's settings in one write with its request (`session/ahead.rs`).
//!
//! ```text
//!  prepare ─► Linked, the settings are pending ─┬─ a whole request ─► Ahead: settings, request
//!                                               └─ part of one ─► Apply (`apply.rs`)
//!  Ahead ─┬─ taken ─► Linked: the replies to the request follow
//!         └─ refused ─► the server is closed; another one gets the settings first, then the request
//! ```
//!
//! In the step `Ahead` the client is not read, and replies belong to the settings. If the server
//! refuses them, its library refuses the request, too. So the request has not run and can be sent
//! again.

use wire::{Header, frontend};

use crate::client::Client;
use crate::ids::{ClientId, Micros, Waiter};
use crate::lifecycle::pair::Pair;
use crate::lifecycle::reserved::drop_reserved;
use crate::lifecycle::while_waiting::Steps;
use crate::relay::kept_request::KEPT_LEN_MAX;
use crate::relay::ledger::Expect;
use crate::server::{Preparation, Server};
use crate::shell::{Exchange, Io};

/// The server's answer to settings that were sent with a request.
#[derive(Debug)]
pub(crate) enum Ahead {
    /// Replies to the request follow.
    Taken,
    /// The server has run neither. This request goes to another server.
    Refused(Vec<u8>),
}

impl<X: Exchange> Pair<'_, X> {
    /// Restores the settings, and holds the request until the server has accepted them.
    pub(crate) fn apply_first(&mut self, sql: &[u8], io: &mut impl Io<X>) {
        await_settings(self.id, self.client, self.server, Preparation::Apply, io.now());
        self.server.unnamed.destroy();
        let mut messages = Vec::new();
        frontend::query(&mut messages, sql);
        self.server.ask(self.on, &[Expect::Query], 0, &messages, self.context, io);
    }

    /// The server has answered the settings.
    pub(crate) fn ahead_answered(&mut self, io: &mut impl Io<X>) -> Ahead {
        let server = &mut *self.server;
        if server.own_error.is_some() {
            drop_reserved(self.id, self.client, server, io);
            return Ahead::Refused(server.phase.take_request().unwrap_or_default());
        }
        let (there, session) = (&mut server.vars, server.session.get_mut());
        if let Some(ahead) = session.and_then(|own| own.ahead.as_mut()) {
            ahead.answered(there, &self.context.names);
        }
        // If a reload has changed a default, the request has seen the new one.
        self.applied(io);
        self.server.phase.link();
        self.client.phase.link();
        Ahead::Taken
    }
}

/// May the client's settings go out with its request? They must be all that differs.
#[inline]
pub(crate) fn may_go_ahead(client: &Client, server: &Server) -> bool {
    let is_new = client.session.as_ref().is_none_or(|own| own.refusals == 0)
        && !client.resent.is_so()
        && !client.while_waiting.is_due(Steps::FAILS);
    let (own, there) = (&client.vars, &server.vars);
    server.session.ahead.is_some()
        && is_new
        && client.is_welcomed()
        && client.replication.is_none()
        && !server.has_traces()
        && server.is_clean()
        && own.prepared == there.prepared
        && own.channels.is_empty()
        && there.channels.is_empty()
        // If the server refuses, it is closed, although it may accept the other order.
        && !own.carried.depend_on_order(&there.carried)
}

/// Holds the client back until the server has answered its settings. In the step `Ahead` its request
/// was sent with them.
#[inline]
pub(crate) fn await_settings(
    id: ClientId,
    client: &mut Client,
    server: &mut Server,
    step: Preparation,
    now: Micros,
) {
    let waiter = Waiter::served(id, server.pool, now);
    server.begin_to_ask(now);
    server.phase.ask(step);
    client.phase.hold_back(waiter);
}

/// Is this one request and nothing else: a Query, a FunctionCall, or a batch with its Sync?
pub(crate) fn is_whole_request(mut input: &[u8]) -> bool {
    if input.len() > KEPT_LEN_MAX {
        return false;
    }
    loop {
        let Ok(Some(header)) = Header::parse(input) else { return false };
        let Some((_, rest)) = input.split_at_checked(header.total) else { return false };
        match header.code {
            frontend::QUERY | frontend::FUNCTION_CALL | frontend::SYNC => return rest.is_empty(),
            frontend::PARSE
            | frontend::BIND
            | frontend::DESCRIBE
            | frontend::EXECUTE
            | frontend::CLOSE => input = rest,
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_whole_up_to_its_query_or_sync() {
        let (mut query, mut sync, mut parse) = (Vec::new(), Vec::new(), Vec::new());
        frontend::query(&mut query, b"SELECT 1");
        frontend::sync(&mut sync);
        frontend::parse(&mut parse, b"", b"SELECT 1", frontend::NO_TYPES);
        let batch = [&parse[..], &sync].concat();
        assert!(is_whole_request(&query) && is_whole_request(&sync) && is_whole_request(&batch));
        let half = &query[..query.len() - 1];
        let two = [&query[..], &query].concat();
        let mut long = Vec::new();
        frontend::query(&mut long, &[b' '; KEPT_LEN_MAX]);
        for other in [&[][..], half, &two, &parse, &[&batch[..], &parse].concat(), &long] {
            assert!(!is_whole_request(other), "{other:?}");
        }
        let mut copy = Vec::new();
        frontend::copy_data(&mut copy, b"1\n");
        assert!(!is_whole_request(&copy));
    }
}
