//! Any bytes of a client that has not logged in.
//!
//! The first byte chooses the settings, the second is a seed for cuts, and the rest are the
//! client's bytes. No client may log in without the password if there is one. Cuts must make no
//! difference. A readable packet, written and read again, must be the same.

use config::{AccessPolicy, AuthType, Config};
use wire::startup::{StartupRequest, packet_len, parse, parse_options};
use wire::{backend, frontend};

use crate::cuts::Cuts;
use crate::rng::Rng;
use crate::seen::{Seen, messages};
use crate::world::{World, base_config};

const LEN_MAX: usize = 4_096;
const AUTHENTICATION_OK: [u8; 4] = [0; 4];

pub fn startup(data: &[u8]) {
    let [settings, seed, bytes @ ..] = data else { return };
    let bytes = &bytes[..bytes.len().min(LEN_MAX)];
    write_again(bytes);
    let _ = parse_options(bytes);
    let settings = Settings { byte: *settings, secret: Rng::of(data).next() };
    let whole = play(&settings, bytes, &Cuts::Whole);
    let cut = play(&settings, bytes, &Cuts::Random(Rng::new(u64::from(*seed))));
    // Bytes in the same read as a request for encryption are an attack. In a later read they are a
    // login.
    if asks_for_encryption(bytes) {
        return;
    }
    // The engine does not look at an incomplete message that comes with a login.
    // If invalid bytes follow a request, the connection may end before the request's reply.
    let (a, b) = (whole.without_farewell().0, cut.without_farewell().0);
    let is_same = match is_let_in(&whole.got) {
        true => a.starts_with(b) || b.starts_with(a),
        false => whole.essence() == cut.essence(),
    };
    assert!(is_same, "in one piece:{whole:?}\ncut:{cut:?}");
}

struct Settings {
    byte: u8,
    /// A secret that no input can contain, since it is made of the whole input.
    secret: u64,
}

impl Settings {
    fn config(&self) -> Config {
        let mut config = base_config();
        let global = &mut config.global;
        global.auth_type = match self.byte & 7 {
            0 => AuthType::Trust,
            1 => AuthType::Any,
            2 | 3 => AuthType::Plain,
            4 => AuthType::Md5,
            _ => AuthType::ScramSha256,
        };
        global.admin_users = vec!["alice".into()];
        if self.byte & 8 != 0 {
            global.ignore_startup_parameters = vec!["extra_float_digits".into(), "options".into()];
        }
        if self.byte & 16 != 0 {
            config.access = AccessPolicy::ProvenByServer;
        }
        if self.is_locked() {
            config.auth_file.users.insert("alice".into(), format!("{:016x}", self.secret));
        }
        config
    }

    /// Returns whether there is a password that the input cannot contain.
    fn is_locked(&self) -> bool {
        self.byte & 7 > 2 && self.byte & 16 == 0
    }
}

fn play(settings: &Settings, bytes: &[u8], cuts: &Cuts) -> Seen {
    let mut world = World::new(settings.config(), cuts.clone());
    let client = world.connect();
    let mut cuts = cuts.clone();
    let mut rest = bytes;
    while !rest.is_empty() && world.net.clients[client].id.is_some() {
        let (piece, behind) = rest.split_at(cuts.next(rest.len()));
        world.send(client, piece);
        rest = behind;
    }
    let end = &world.net.clients[client];
    let seen = Seen { got: end.got.clone(), closed: end.id.is_none() };
    if settings.is_locked() {
        assert!(!is_let_in(&seen.got), "let in without the password:{seen:?}");
        assert_eq!(world.net.consoles, 0, "let in to the console without the password");
    }
    world.leave(client);
    assert_eq!(world.table_sizes().0, 0, "clients left over");
    // The engine does not count clients any more that it has handed over to the console.
    assert_eq!(world.clients_counted() as usize, world.net.consoles, "clients still counted");
    seen
}

fn is_let_in(got: &[u8]) -> bool {
    // The answer to a request for encryption is a single byte.
    let refusals = got.iter().take_while(|byte| **byte == b'N').count();
    messages(&got[refusals..])
        .any(|(code, body)| code == backend::AUTHENTICATION && body == AUTHENTICATION_OK)
}

fn asks_for_encryption(bytes: &[u8]) -> bool {
    bytes.windows(4).any(|code| matches!(code, b"\x04\xd2\x16\x2f" | b"\x04\xd2\x16\x30"))
}

fn write_again(bytes: &[u8]) {
    let Ok(Some(len)) = packet_len(bytes) else { return };
    let Some(Ok(StartupRequest::Startup(packet))) = bytes.get(..len).map(parse) else { return };
    let pairs: Vec<_> = packet.parameters().collect();
    let texts: Option<Vec<(&str, &str)>> = pairs
        .iter()
        .map(|(name, value)| Some((str::from_utf8(name).ok()?, str::from_utf8(value).ok()?)))
        .collect();
    let Some(texts) = texts else { return };
    let mut written = Vec::new();
    frontend::startup(&mut written, 0, &texts);
    let Ok(StartupRequest::Startup(again)) = parse(&written) else {
        panic!("a packet of ours cannot be read: {}", written.escape_ascii());
    };
    assert_eq!(again.parameters().collect::<Vec<_>>(), pairs);
}
