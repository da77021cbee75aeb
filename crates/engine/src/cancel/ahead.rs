//! A client that waits for a server may be about to cancel the very query for whose server it waits:
//! in a pool that is used up by slow queries nothing else would end them. So when it has waited for a
//! moment, what it has sent is looked at where it lies, in the kernel. What Weir can do by itself it does
//! then; the answer waits for a server, as everything else does.
//!
//! Not with TLS, whose bytes would have to be read to be understood.

use wire::messages::{Parse, bind_names};
use wire::{HEADER_LEN, Header, frontend};

use crate::cancel::signaling::Call;
use crate::client::{Client, ClientPhase};
use crate::engine::Engine;
use crate::ids::Micros;
use crate::relay::requests::call_of;
use crate::shell::{Exchange, Io};

/// So long a client waits before that, in microseconds.
const LOOK_AFTER: Micros = 100_000;
/// So much is looked at, in bytes: a call is short.
const LOOKED_LEN_MAX: usize = 1_024;

impl<X: Exchange> Engine<X> {
    /// Looks once at what each client has sent that has waited for a moment.
    pub(crate) fn look_ahead(&mut self, now: Micros, io: &mut impl Io<X>) {
        let is_due = |client: &Client| match client.phase {
            ClientPhase::Waiting(waiter) => {
                client.is_welcomed()
                    && !client.while_waiting.looked_at
                    && now.saturating_sub(waiter.since) >= LOOK_AFTER
            }
            _ => false,
        };
        for id in self.clients_where(is_due) {
            // One of those before it may have terminated it.
            let Some(client) = self.clients.get_mut(id.0 as usize) else { continue };
            client.while_waiting.looked_at = true;
            let is_between = client.stream.remaining == 0;
            let is_auto = client.pool.is_some_and(|pool| self.settings(pool).is_auto());
            if !is_between || !is_auto {
                continue;
            }
            let mut bytes = self.client(id).stream.held.to_vec();
            let held = bytes.len().min(LOOKED_LEN_MAX);
            bytes.resize(LOOKED_LEN_MAX, 0);
            let there = bytes.get_mut(held..).map_or(0, |rest| io.peek_client(id, rest));
            bytes.truncate(held + there);
            let client = self.client(id);
            let call = first_call(client, &bytes);
            if let Some(call) = call.filter(|call| call.process_id != client.process_id()) {
                self.find_process(id, call, now, io);
            }
        }
    }
}

/// The call that the client's first effective message is.
fn first_call(client: &Client, mut input: &[u8]) -> Option<Call> {
    let own = client.extended.as_ref();
    let mut unnamed = own.and_then(|own| Parse::decode(own.unnamed_parse.get(HEADER_LEN..)?).ok());
    let mut named = Vec::new();
    loop {
        let header = Header::parse(input).ok()??;
        let (message, rest) = input.split_at_checked(header.total)?;
        let body = message.get(HEADER_LEN..)?;
        input = rest;
        match header.code {
            frontend::QUERY => {
                return call_of(body.strip_suffix(&[0])?, None).map(|(call, _)| call);
            }
            frontend::PARSE => match Parse::decode(body).ok()? {
                parse if parse.name.is_empty() => unnamed = Some(parse),
                parse => named.push(parse),
            },
            frontend::BIND => {
                let (_, name, _) = bind_names(body)?;
                let of_name = named.iter().find(|parse| parse.name == name);
                let parse = if name.is_empty() { unnamed.as_ref() } else { of_name };
                if let Some(parse) = parse {
                    return call_of(parse.sql, Some((parse.types_raw, body))).map(|(call, _)| call);
                }
                let used = own?.statements.find(name)?.used.statement;
                return call_of(&used.sql, Some((&used.types, body))).map(|(call, _)| call);
            }
            frontend::DESCRIBE | frontend::SYNC | frontend::FLUSH => {}
            _ => return None,
        }
    }
}
