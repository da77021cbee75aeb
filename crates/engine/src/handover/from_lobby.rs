//! A client of a direct pool leaves the lobby together with its server, because it listens. It is a
//! proxied client from then on. The lobby's file has its state, as the library has written it
//! (`extension/guest.c`, `names.c`, `unnamed.c`).

use config::PoolMode;
use wire::frontend;

use crate::client::{Client, Extended, KeyForm, StatementNames};
use crate::engine::Engine;
use crate::engine::work::{self, Work};
use crate::handover::import::seen_in_parse;
use crate::ids::{ClientId, Micros, ServerId, Waiter};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::link::complete_vars;
use crate::lifecycle::pair;
use crate::login::auth::{Login, Peer};
use crate::notify::listening::{Listening, News};
use crate::phase::Restored;
use crate::relay::parse_context::ParseContext;
use crate::relay::prepared::ClientStatements;
use crate::server::{Preparation, ServerPhase};
use crate::session::carried::{Carried, Setting};
use crate::session::on_server::WayBack;
use crate::session::pins::{Pinned, Pins};
use crate::session::probe::Left;
use crate::session::state_report;
use crate::shell::{Exchange, Guest};
use crate::values::Values;
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

impl<X: Exchange> Engine<X> {
    /// Adds a client that has left its lobby. It counts in the limits already.
    /// [`Engine::begin_imported`] begins to serve it.
    pub fn take_from_lobby(&mut self, leaver: LobbyLeaver, now: Micros) -> ClientId {
        let LobbyLeaver { guest, server, serial, state, channels } = leaver;
        let pool = guest.pool;
        self.pools.view(pool);
        let login = Login::new(Peer::default(), guest.identity);
        let mut client = Client::new(guest.serial, login, guest.connected_at);
        client.phase.restore(Restored::Idle);
        client.counted = guest.is_counted;
        client.pool = Some(pool);
        let found = self.servers.get(server).filter(|found| found.serial == serial);
        let epoch = found.map_or(u64::MAX, |found| found.epoch);
        client.role_changes = self.pools.exchange.pool(pool, |pool| pool.role_changes_at(epoch));
        client.key = guest.key;
        client.key_form = if guest.tag.is_empty() { KeyForm::Short } else { KeyForm::Long };
        client.request_at = now;
        client.statement_names = StatementNames::Translated;
        let id = self.clients.insert(client);
        self.keys.insert(guest.key, id);
        let [settings, names, unnamed] = parts(&state);
        self.take_settings(id, settings);
        self.take_statements(id, names, unnamed);
        let channels = items(&channels).filter(|(letter, _)| *letter == b'l');
        let channels = channels.filter_map(|(_, name)| state_report::text(name)).collect();
        let left = Left::of_session(Vec::new(), Vec::new(), channels, Pins::NONE);
        if !self.take_server(id, (server, serial), &left, now) {
            // It listens again, and is told that it may have missed something.
            self.clients[id].vars.change(|vars| {
                vars.channels = left.channels.unwrap_or_default();
            });
            let mut listening = Box::new(Listening::new(pool));
            listening.keep(News::Gap);
            self.clients[id].session_mut().listening = Some(listening);
        }
        id
    }

    /// The values of its startup packet, and those that it has set.
    fn take_settings(&mut self, id: ClientId, text: &[u8]) {
        let welcome = self.clients[id]
            .pool
            .and_then(|pool| self.pools.exchange.pool(pool, |pool| pool.welcome.clone()));
        let welcome = welcome.unwrap_or_default();
        let mut given = Slots::default();
        let startup = vars_of(&self.context.names, text, b'd', &welcome, &mut given);
        self.clients[id].vars = Values::new(startup);
        let client = &mut self.clients[id];
        complete_vars(client, &welcome, &self.context.names, &mut self.context.shared_vars);
        // RESET goes back to these.
        let startup = self.clients[id].session_mut().startup.clone();
        let set = vars_of(&self.context.names, text, b's', &welcome, &mut given);
        let client = &mut self.clients[id];
        client.given = given;
        if !set.is_empty() {
            let mut own = set.or(&startup);
            own.carried = set.carried.with(startup.carried.all().iter());
            client.vars = self.context.shared_vars.share(Values::new(own));
        }
    }

    fn take_statements(&mut self, id: ClientId, names: &[u8], unnamed: &[u8]) {
        // From now on each means what its text means with the client's own settings.
        let context = ParseContext::of(&self.clients[id].vars, &self.context.names);
        let mut statements = ClientStatements::default();
        for (_, pair) in items(names).filter(|(letter, _)| *letter == b'n') {
            let Some((named, types)) = state_report::pair_of(pair).and_then(statement) else {
                continue;
            };
            let statement = self.pools.exchange.intern(&named.value, &types, context);
            statements.import(named.name.into(), statement, self.context.next_serial(), None);
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
        let has_unnamed = !unnamed_parse.is_empty();
        self.clients[id].extended = Some(Box::new(Extended {
            statements,
            unnamed: if has_unnamed { self.context.next_serial() } else { 0 },
            unnamed_seen: seen_in_parse(&unnamed_parse),
            unnamed_parse,
            ..Extended::default()
        }));
    }

    /// Gives the client its server, which it keeps for the channels. Returns false if the server is
    /// gone.
    fn take_server(
        &mut self,
        id: ClientId,
        (on, serial): (ServerId, u64),
        left: &Left,
        now: Micros,
    ) -> bool {
        let found = self.servers.get_mut(on);
        let Some(server) = found.filter(|server| server.serial == serial) else { return false };
        let ServerPhase::Attending { came, .. } = *server.phase else { return false };
        let (pool, epoch) = (server.pool, server.epoch);
        self.pools.exchange.pool(pool, |pool| {
            if came {
                pool.attending_gone(epoch);
            }
            pool.is_told = true;
        });
        if server.mode != PoolMode::Auto {
            // It was opened before a change of the pool's mode. No other mode knows of channels.
            server.doomed = Some(CloseReason::Obsolete);
            let left = work::Left::default();
            self.work.push_back(Work::TakeBack { server: on, serial, left });
            return false;
        }
        // Its session has no settings of the client's: the library has taken them back.
        server.phase.leave_lobby(Preparation::Apply);
        let pinned = Pinned { pins: Pins::LISTEN, since: now, fingerprint: 0 };
        let session = server.session.own();
        session.pinned = Some(Box::new(pinned));
        session.way_back = WayBack::Open;
        let client = &mut self.clients[id];
        pair::link(id, client, on, server);
        client.phase.prepare(Waiter::served(id, pool, now));
        // The listener cannot have the others, so the client keeps its server for them.
        self.take_channels(id, on, left);
        true
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
    for Setting { mut name, value } in all.filter_map(|(_, pair)| state_report::pair_of(pair)) {
        if name.contains(&b'.') {
            name.make_ascii_lowercase();
        }
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

/// Returns the letter and the rest of each item of a text.
fn items(text: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    text.split(|byte| *byte == b';').filter_map(|item| match item {
        [letter, b':', rest @ ..] => Some((*letter, rest)),
        _ => None,
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
        let all = all.filter_map(|(_, pair)| state_report::pair_of(pair));
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
