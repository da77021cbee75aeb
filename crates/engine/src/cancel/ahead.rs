//! Looks for signals in the unread bytes of waiting clients. In a pool that is used up by slow
//! queries, a waiting client may be about to cancel one of them, and nothing else would end them.
//! So after a short wait, its bytes are examined in the kernel's buffer. Weir sends the signal at
//! once; the reply waits for a server like any other.
//!
//! Not with TLS: encrypted bytes cannot be examined without reading them.

use wire::messages::{Parse, bind_names};
use wire::{HEADER_LEN, Header, frontend};

use crate::cancel::call::call_of;
use crate::cancel::signaling::Call;
use crate::client::{Client, ClientPhase};
use crate::ids::{ClientId, Micros};
use crate::shell::{Exchange, Io};

/// The time that a client waits before its bytes are examined, in microseconds.
const LOOK_AFTER: Micros = 100_000;
/// The number of bytes that are examined: such a call is short.
const LOOKED_LEN_MAX: usize = 1_024;

impl Client {
    /// Has it waited long enough for its bytes to be examined, once per wait?
    pub(crate) fn may_look_ahead(&self, now: Micros) -> bool {
        match *self.phase {
            ClientPhase::Waiting(waiter) => {
                self.is_welcomed()
                    && !self.while_waiting.has_looked()
                    && now.saturating_sub(waiter.since) >= LOOK_AFTER
            }
            ClientPhase::Login(_)
            | ClientPhase::Idle
            | ClientPhase::Preparing(_)
            | ClientPhase::Linked
            | ClientPhase::Failed(_)
            | ClientPhase::Canceling { .. } => false,
        }
    }

    /// Examines its bytes. Returns the signal for another client that they begin with. `is_auto`:
    /// its pool's mode is.
    pub(crate) fn look_ahead<X: Exchange>(
        &mut self,
        id: ClientId,
        is_auto: bool,
        io: &mut impl Io<X>,
    ) -> Option<Call> {
        self.while_waiting.look();
        let is_between = self.stream.remaining() == 0;
        if !is_between || !is_auto {
            return None;
        }
        let mut bytes = self.stream.held().to_vec();
        let held = bytes.len().min(LOOKED_LEN_MAX);
        bytes.resize(LOOKED_LEN_MAX, 0);
        let there = bytes.get_mut(held..).map_or(0, |rest| io.peek_client(id, rest));
        bytes.truncate(held + there);
        first_call(self, &bytes).filter(|call| call.process_id != self.process_id())
    }
}

/// Returns the call in the client's first effective message, if that is one.
fn first_call(client: &Client, mut input: &[u8]) -> Option<Call> {
    let own = client.extended.as_ref();
    let mut unnamed = own.and_then(|own| own.unnamed.kept());
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
