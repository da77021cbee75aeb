//! A client of a direct pool leaves the lobby together with its server, because it listens. It is a
//! proxied client from then on. The lobby's file has its state, as the library has written it
//! (`extension/guest.c`, `names.c`, `unnamed.c`).

use wire::frontend;

use crate::cancel::client_key::ClientKey;
use crate::client::{Client, Extended, StatementNames};
use crate::context::Context;
use crate::ids::{Micros, ServerId};
use crate::login::auth::{Login, Peer};
use crate::phase::Restored;
use crate::relay::parse_context::ParseContext;
use crate::relay::prepared::ClientStatements;
use crate::relay::unnamed::ClientUnnamed;
use crate::server::{Preparation, Server};
use crate::session::carried::{Carried, Setting};
use crate::session::left::{ALL, Left, Told};
use crate::session::on_server::WayBack;
use crate::session::pins::{Pinned, Pins};
use crate::session::written::{items, pair_of, setting_of};
use crate::shell::{Exchange, Guest};
use crate::values::{ClientValues, Values};
use crate::vars::{Slots, TrackedNames, Vars, Welcome};

/// A client that leaves its lobby, and its server.
#[derive(Clone, Debug)]
pub struct LobbyLeaver {
    pub guest: Guest,
    pub server: ServerId,
    pub serial: u64,
    /// The client's state: settings, statements, the unnamed statement.
    pub state: Vec<u8>,
    /// The channels to which the server listens for it.
    pub channels: Vec<u8>,
}

impl LobbyLeaver {
    /// Returns the client, without its server and its state. `role_changes`: its pool's count when its
    /// server was opened.
    pub(crate) fn client(&self, role_changes: u16, now: Micros) -> Client {
        let guest = &self.guest;
        let login = Login::new(Peer::default(), guest.identity.clone());
        let mut client = Client::new(guest.serial, login, guest.connected_at);
        client.phase.restore(Restored::Idle);
        client.pool.enter(guest.pool, role_changes);
        if guest.is_counted {
            client.pool.count();
        }
        client.key = ClientKey::imported(guest.key, !guest.tag.is_empty());
        client.times.request_came(now);
        client.statement_names = StatementNames::Translated;
        client
    }

    /// Returns the channels to which its server listens.
    pub(crate) fn left(&self) -> Left {
        let channels = items(&self.channels).filter(|(letter, _)| *letter == b'l');
        let mut told = Told::default();
        channels.for_each(|(_, name)| _ = told.channel(name));
        told.left(ALL)
    }

    /// Gives the client its settings and its statements. `welcome`: its pool's.
    pub(crate) fn restore<X: Exchange>(
        &self,
        client: &mut Client,
        welcome: &Welcome,
        context: &mut Context,
        exchange: &mut X,
    ) {
        let [settings, names, unnamed] = parts(&self.state);
        take_settings(client, settings, welcome, context);
        take_statements(client, names, unnamed, context, exchange);
    }
}

/// The values of its startup packet, and those that it has set.
fn take_settings(client: &mut Client, text: &[u8], welcome: &Welcome, context: &mut Context) {
    let mut given = Slots::default();
    let startup = vars_of(&context.names, text, b'd', welcome, &mut given);
    *client.vars = Values::new(startup);
    client.complete_vars(welcome, context);
    // RESET goes back to these.
    let startup = client.session_mut().startup.clone();
    let set = vars_of(&context.names, text, b's', welcome, &mut given);
    client.vars = ClientValues::new(client.vars.clone(), given);
    if !set.is_empty() {
        let mut own = set.or(&startup);
        own.carried = set.carried.with(startup.carried.all().iter());
        *client.vars = context.shared_vars.share(Values::new(own));
    }
}

fn take_statements<X: Exchange>(
    client: &mut Client,
    names: &[u8],
    unnamed: &[u8],
    context: &mut Context,
    exchange: &mut X,
) {
    // From now on each means what its text means with the client's own settings.
    let meaning = ParseContext::of(&client.vars, &context.names);
    let mut statements = ClientStatements::default();
    for (_, pair) in items(names).filter(|(letter, _)| *letter == b'n') {
        let Some((named, types)) = pair_of(pair).and_then(statement) else {
            continue;
        };
        let statement = exchange.intern(&named.value, &types, meaning);
        statements.import(named.name.into(), statement, context.next_serial(), None);
    }
    let mut unnamed_parse = Vec::new();
    // An empty name, the text, and the types: the body of a Parse message.
    let body = unnamed.get(1..).unwrap_or_default();
    if let Some(end) = body.iter().position(|byte| *byte == 0) {
        frontend::parse(&mut unnamed_parse, b"", &body[..end], &body[end + 1..]);
    }
    if statements.is_empty() && unnamed_parse.is_empty() {
        return;
    }
    let serial = if unnamed_parse.is_empty() { 0 } else { context.next_serial() };
    client.extended = Some(Box::new(Extended {
        statements,
        unnamed: ClientUnnamed::imported(serial, unnamed_parse),
        ..Extended::default()
    }));
}

impl Server {
    /// Leaves the lobby for its client, which keeps it for its channels. Its session has no settings
    /// of the client's: the library has taken them back.
    pub(crate) fn leave_with(&mut self, now: Micros) {
        self.phase.leave_lobby(Preparation::Apply);
        let pinned = Pinned { pins: Pins::LISTEN, since: now, fingerprint: 0 };
        let session = self.session.own();
        session.pinned = Some(Box::new(pinned));
        session.way_back = WayBack::Open;
    }
}

/// Returns the settings of one kind. Those that the server does not report are carried.
fn vars_of(
    names: &TrackedNames,
    text: &[u8],
    kind: u8,
    welcome: &Welcome,
    given: &mut Slots,
) -> Vars {
    let mut vars = Vars::default();
    let mut carried = Vec::new();
    let all = items(text).filter(|(letter, _)| *letter == kind);
    for Setting { name, value } in all.filter_map(|(_, pair)| setting_of(pair)) {
        match names.slot(&name) {
            Some(slot) if kind == b'd' || welcome.vars.get(slot).is_some() => {
                vars.set(slot, &value);
                given.add(slot);
            }
            Some(_) | None => carried.push(Setting { name, value }),
        }
    }
    vars.carried = Carried::new(carried);
    vars
}

/// Returns the three parts of a client's state in the lobby's file; empty ones if it is not sound.
fn parts(state: &[u8]) -> [&[u8]; 3] {
    let Some((lens, rest)) = state.split_first_chunk::<12>() else { return [&[]; 3] };
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *lens;
    let lens = [[a, b, c, d], [e, f, g, h], [i, j, k, l]];
    let mut rest = rest;
    lens.map(|len| {
        let len = u32::from_ne_bytes(len) as usize;
        let (part, behind) = rest.split_at_checked(len).unwrap_or_default();
        rest = behind;
        part
    })
}

/// Reads a statement: its name with its text, and its types. In the value, the number of its label
/// (`extension/context.c`), a digest, the number of types, and the types come before the text.
fn statement(named: Setting) -> Option<(Setting, Vec<u8>)> {
    let mut words = named.value.splitn(4, |byte| *byte == b',');
    let (_, _) = (words.next()?, words.next()?);
    let count: u16 = number(words.next()?)?;
    let mut rest = words.next()?;
    let mut types = count.to_be_bytes().to_vec();
    for _ in 0..count {
        let end = rest.iter().position(|byte| *byte == b',')?;
        let oid: u32 = number(&rest[..end])?;
        types.extend_from_slice(&oid.to_be_bytes());
        rest = &rest[end + 1..];
    }
    let value = rest.into();
    Some((Setting { name: named.name, value }, types))
}

fn number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_has_three_parts() {
        let mut state: Vec<u8> = [1u32, 2, 3].iter().flat_map(|len| len.to_ne_bytes()).collect();
        state.extend_from_slice(b"abbccc");
        assert_eq!(parts(&state), [&b"a"[..], b"bb", b"ccc"]);
        state.pop();
        assert_eq!(parts(&state), [&b"a"[..], b"bb", b""]);
        assert_eq!(parts(b"short"), [b""; 3]);
    }

    #[test]
    fn statements_are_read_as_the_library_writes_them() {
        let text =
            b";c:0=10=ISO\\054 MDY;c:5=10=;n:s\\303\\244=0,4,2,23,25,SELECT $1\\073 '\\075', $2;\
                     n:t=1,2,0,SELECT 1";
        let all = items(text).filter(|(letter, _)| *letter == b'n');
        let all = all.filter_map(|(_, pair)| pair_of(pair));
        let all: Vec<_> = all.filter_map(statement).collect();
        let types = vec![0, 2, 0, 0, 0, 23, 0, 0, 0, 25];
        let named = |name: &str, value: &[u8]| Setting {
            name: name.as_bytes().into(),
            value: value.into(),
        };
        assert_eq!(all[0], (named("sä", b"SELECT $1; '=', $2"), types));
        assert_eq!(all[1], (named("t", b"SELECT 1"), vec![0, 0]));
        assert_eq!(statement(named("x", b"1,2,3,23,SELECT")), None);
    }
}
