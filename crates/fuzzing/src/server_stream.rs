//! Any bytes of a server, with a well-behaved client in front of the engine.
//!
//! The first byte chooses the settings, the second is a seed for cuts, and the rest are the first
//! server's bytes, which it sends when it gets the first request. They are played in one piece and
//! cut at random. Every message to the client must be the server's, in order and unchanged, or one
//! of the few that the engine makes itself. Cuts must make no difference.

use config::{Config, PoolMode};
use wire::{HEADER_LEN, backend, frontend};

use crate::cuts::Cuts;
use crate::postgres::{Dialect, Postgres};
use crate::rng::Rng;
use crate::seen::{Seen, message};
use crate::world::{Mind, World, base_config};

const LEN_MAX: usize = 4_096;
/// The maximum length of an input that is played byte by byte.
const BYTES_LEN_MAX: usize = 256;

pub fn server_stream(data: &[u8]) {
    let [settings, seed, said @ ..] = data else { return };
    let said = &said[..said.len().min(LEN_MAX)];
    let settings = Settings(*settings);
    let whole = play(settings, said, Cuts::Whole);
    let mut others = vec![Cuts::Random(Rng::new(u64::from(*seed)))];
    if said.len() <= BYTES_LEN_MAX {
        others.push(Cuts::Bytes);
    }
    for cuts in others {
        let other = play(settings, said, cuts);
        if settings.is_logged_in() {
            settings.compare(&whole, &other);
        }
    }
}

#[derive(Clone, Copy)]
struct Settings(u8);

impl Settings {
    fn is_session(self) -> bool {
        self.0 & 1 == 0
    }

    /// Returns whether the input's bytes follow a complete login.
    fn is_logged_in(self) -> bool {
        self.0 & 2 == 0
    }

    fn config(self) -> Config {
        let mut config = base_config();
        config.global.pool_mode =
            if self.is_session() { PoolMode::Session } else { PoolMode::Transaction };
        config.global.default_pool_size = 1;
        config
    }

    /// Returns the client's requests.
    fn requests(self) -> Vec<u8> {
        let mut out = Vec::new();
        match self.0 >> 2 & 3 {
            0 => frontend::query(&mut out, b"1 a"),
            1 => batch(&mut out, "s"),
            2 => {
                frontend::query(&mut out, b"copy in");
                frontend::copy_data(&mut out, b"line");
                frontend::copy_done(&mut out);
            }
            _ => {
                batch(&mut out, "");
                frontend::close_statement(&mut out, b"s");
                batch(&mut out, "s");
                frontend::query(&mut out, b"1 a");
            }
        }
        out
    }

    /// Compares two runs. A client that may lose its server in the middle of an input sees a
    /// beginning of it, or all of it. The text of the pooler's error may depend on the part of a
    /// bad message that it has seen.
    fn compare(self, whole: &Seen, other: &Seen) {
        let (a, b) = (whole.without_farewell().0, other.without_farewell().0);
        let is_same = match self.is_session() {
            true => a == b && whole.closed == other.closed,
            false => a.starts_with(b) || b.starts_with(a),
        };
        assert!(is_same, "in one piece:{whole:?}\ncut:{other:?}");
    }
}

fn batch(out: &mut Vec<u8>, name: &str) {
    frontend::parse(out, name.as_bytes(), b"1 a", frontend::NO_TYPES);
    frontend::bind_text(out, name.as_bytes(), &[]);
    frontend::describe_portal(out, b"");
    frontend::execute(out, b"", 0);
    frontend::sync(out);
}

fn play(settings: Settings, said: &[u8], cuts: Cuts) -> Seen {
    let mut world = World::new(settings.config(), cuts);
    let logged_in = settings.is_logged_in();
    if logged_in {
        world.next_minds.push(Mind::Model(Box::new(Postgres::fresh(Dialect::default()))));
    } else {
        world.next_minds.push(Mind::Script(said.to_vec()));
    }
    let client = if logged_in {
        let client = world.log_in();
        world.script_first_server(said);
        client
    } else {
        let client = world.connect();
        let mut packet = Vec::new();
        frontend::startup(&mut packet, 0, &[("user", "alice"), ("database", "app")]);
        world.send(client, &packet);
        client
    };
    world.send(client, &settings.requests());
    let end = &world.net.clients[client];
    let seen = Seen { got: end.got.clone(), closed: end.id.is_none() };
    if logged_in {
        check_origin(&seen, said);
    }
    world.leave(client);
    // The next client is always served, if necessary by another server.
    world.wait(20);
    let next = world.log_in();
    let mut query = Vec::new();
    frontend::query(&mut query, b"1 next");
    world.send(next, &query);
    check_next(&world, next);
    seen
}

/// Checks that every message to the client is the server's, or one that the engine makes.
fn check_origin(seen: &Seen, said: &[u8]) {
    let (got, _) = seen.without_farewell();
    let mut got = got;
    let mut said = said;
    while let Some((code, body)) = message(got) {
        let len = HEADER_LEN + body.len();
        let is_made = matches!(code, backend::PARSE_COMPLETE | backend::CLOSE_COMPLETE);
        let is_ours = is_made && body.is_empty();
        let is_sent = skip_to(&mut said, |sent| sent == &got[..len]);
        let is_known = is_sent || is_ours || is_reworded(&mut said, &got[..len]);
        assert!(is_known, "the client got what nobody sent:{seen:?}");
        got = &got[len..];
    }
    let at_end = got.is_empty() || ends_with_part(said, got);
    assert!(at_end, "the client got part of a message that nobody sent: {seen:?}");
}

/// Returns whether the error is a server's error in which the client's name replaces the pooler's
/// name of the statement.
fn is_reworded(said: &mut &[u8], error: &[u8]) -> bool {
    let ours = b"\"weir_1\"";
    let in_its_words = |sent: &[u8]| {
        let at = sent.windows(ours.len()).position(|part| part == ours)?;
        let (before, behind) = (&sent[HEADER_LEN..at], &sent[at + ours.len()..]);
        Some([before, b"\"s\"", behind].concat())
    };
    let got = &error[HEADER_LEN..];
    error[0] == backend::ERROR
        && skip_to(said, |sent| {
            sent[0] == backend::ERROR && in_its_words(sent).is_some_and(|said| said == got)
        })
}

/// Skips up to the end of the first message for which `is_it` is true. Returns false, without
/// skipping, if there is none.
fn skip_to(said: &mut &[u8], is_it: impl Fn(&[u8]) -> bool) -> bool {
    let mut rest = *said;
    while let Some((_, body)) = message(rest) {
        let (found, behind) = rest.split_at(HEADER_LEN + body.len());
        rest = behind;
        if is_it(found) {
            *said = rest;
            return true;
        }
    }
    false
}

/// Returns whether `part` is the beginning of one of these messages.
fn ends_with_part(mut said: &[u8], part: &[u8]) -> bool {
    loop {
        if said.starts_with(part) {
            return true;
        }
        let Some((_, body)) = message(said) else { return false };
        said = &said[HEADER_LEN + body.len()..];
    }
}

/// Checks that the next client is answered, refused, or waits for a server that does not answer. It
/// must never see data of the previous client.
fn check_next(world: &World, next: usize) {
    let mut expected = Vec::new();
    let mut direct = Postgres::logged_in(Dialect::default());
    let mut query = Vec::new();
    frontend::query(&mut query, b"1 next");
    direct.feed(&query, &mut expected);
    let end = &world.net.clients[next];
    let seen = Seen { got: end.got.clone(), closed: end.id.is_none() };
    let (got, _) = seen.without_farewell();
    assert!(got.is_empty() || got == expected, "the next client saw:{seen:?}");
}
