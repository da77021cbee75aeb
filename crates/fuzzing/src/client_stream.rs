//! Any bytes of a logged-in client, with models of PostgreSQL behind the engine.
//!
//! The first byte chooses the settings, the second is a seed for cuts, and the rest are the
//! client's bytes. They are played three times: in one piece alone, byte by byte, and cut at random
//! while another client works in the same pool. Each time the client must see the same as without a
//! pooler, until one side ends the connection, and the other client must get exactly its own
//! replies.

use config::{Config, PoolMode};
use wire::frontend;

use crate::cuts::Cuts;
use crate::postgres::{Dialect, Postgres};
use crate::rng::Rng;
use crate::seen::Seen;
use crate::world::{World, base_config};

/// The maximum length of an input. Longer ones take time and show nothing new.
const LEN_MAX: usize = 4_096;
/// The maximum length of an input that is played byte by byte.
const BYTES_LEN_MAX: usize = 256;

/// The reasons for which the pooler may disconnect a client that PostgreSQL would have kept.
const ALLOWED: [&str; 7] = [
    "broken Parse packet",
    "broken Bind packet",
    "broken Describe packet",
    "broken Close packet",
    "broken Flush packet",
    "broken CopyDone or CopyFail packet",
    "transaction blocks not allowed in statement pooling mode",
];

/// The beginning of the reason if a message is longer than `max_packet_size`.
const TOO_LONG: &str = "bad packet header: ";

pub fn client_stream(data: &[u8]) {
    let [settings, seed, bytes @ ..] = data else { return };
    let bytes = &bytes[..bytes.len().min(LEN_MAX)];
    let settings = Settings(*settings);
    let direct = Direct::of(bytes);
    let is_judged = settings.keeps_sessions() && !names_ours(bytes) && !direct.out_of_step;
    let rng = Rng::new(u64::from(*seed));
    let mut plays = vec![(Cuts::Whole, None), (Cuts::Random(rng.clone()), Some(rng))];
    if bytes.len() <= BYTES_LEN_MAX {
        plays.push((Cuts::Bytes, None));
    }
    for (cuts, noise) in plays {
        let seen = through(settings, bytes, &cuts, noise);
        if is_judged {
            direct.compare(&seen);
        }
    }
}

#[derive(Clone, Copy)]
struct Settings(u8);

impl Settings {
    fn mode(self) -> PoolMode {
        match self.0 & 3 {
            0 => PoolMode::Session,
            1 | 2 => PoolMode::Transaction,
            _ => PoolMode::Statement,
        }
    }

    fn max_prepared_statements(self) -> u32 {
        [200, 1, 2, 0][usize::from(self.0 >> 2 & 3)]
    }

    /// Returns whether clients share servers.
    fn pools(self) -> bool {
        self.mode() != PoolMode::Session
    }

    /// Returns whether a client finds its prepared statements on any server.
    fn keeps_sessions(self) -> bool {
        self.max_prepared_statements() > 0 || !self.pools()
    }

    fn config(self) -> Config {
        let mut config = base_config();
        config.global.pool_mode = self.mode();
        config.global.max_prepared_statements = self.max_prepared_statements();
        config.global.default_pool_size = self.pool_size();
        config
    }

    /// Returns the number of servers. In session mode each client keeps its server.
    fn pool_size(self) -> u32 {
        if !self.pools() || self.0 & 16 != 0 { 2 } else { 1 }
    }
}

/// Returns whether a name is like those that the pooler gives to statements. Errors about such a
/// name have another text.
fn names_ours(bytes: &[u8]) -> bool {
    bytes.windows(5).any(|part| part == b"weir_")
}

/// The client's view of PostgreSQL without a pooler.
struct Direct {
    seen: Seen,
    /// The length of the replies that must have come. The rest may wait for a Sync.
    due: usize,
    /// True if the pooler can continue where PostgreSQL cannot.
    out_of_step: bool,
    /// True if the bytes end in the middle of a message.
    ends_early: bool,
}

impl Direct {
    fn of(bytes: &[u8]) -> Self {
        let mut postgres = Postgres::logged_in(Dialect::default());
        let mut got = Vec::new();
        postgres.feed(bytes, &mut got);
        let seen = Seen { got, closed: postgres.is_closed() };
        Self {
            seen,
            due: postgres.due(),
            out_of_step: postgres.is_out_of_step(),
            ends_early: postgres.is_mid_message(),
        }
    }

    fn compare(&self, seen: &Seen) {
        let direct = &self.seen;
        if !seen.closed && !direct.closed {
            let is_same = direct.got.starts_with(&seen.got) && seen.got.len() >= self.due;
            // A statement that the pooler prepares for a Bind may fail before the whole Bind has
            // arrived.
            let is_early = self.ends_early && seen.got.starts_with(&direct.got);
            assert!(is_same || is_early, "the pooler shows:{seen:?}\nPostgreSQL shows:{direct:?}");
            return;
        }
        let (got, farewell) = seen.without_farewell();
        assert!(
            direct.got.starts_with(got),
            "what came before the end, through the pooler:{seen:?}\nPostgreSQL shows:{direct:?}"
        );
        assert!(seen.closed, "PostgreSQL ends the connection and the pooler does not:{seen:?}");
        let allowed = farewell
            .as_deref()
            .is_some_and(|why| ALLOWED.contains(&why) || why.starts_with(TOO_LONG));
        // No error can follow in the middle of a message.
        let allowed = allowed || seen.ends_in_a_message();
        assert!(direct.closed || allowed, "the pooler ends the connection for no reason:{seen:?}");
    }
}

/// Returns the client's view through the engine.
fn through(settings: Settings, bytes: &[u8], cuts: &Cuts, noise: Option<Rng>) -> Seen {
    let mut world = World::new(settings.config(), cuts.clone());
    let mut other = noise.map(|rng| Other::new(&mut world, rng, settings));
    let client = world.log_in();
    let mut cuts = cuts.clone();
    let mut rest = bytes;
    while !rest.is_empty() && world.net.clients[client].id.is_some() {
        let (piece, behind) = rest.split_at(cuts.next(rest.len()));
        world.send(client, piece);
        rest = behind;
        if let Some(other) = &mut other {
            other.disturb(&mut world);
        }
    }
    let end = &world.net.clients[client];
    let seen = Seen { got: end.got.clone(), closed: end.id.is_none() };
    world.leave(client);
    let mut clients = 0;
    if let Some(other) = other {
        other.check_all(&world);
        clients = 1;
    }
    assert_eq!(world.table_sizes().0, clients, "clients left over");
    assert_eq!(world.clients_counted(), clients as u32, "clients still counted");
    seen
}

/// A well-behaved client that shares the pool.
struct Other {
    at: usize,
    rng: Rng,
    turn: u64,
    /// True if the client may use prepared statements.
    prepares: bool,
    /// True if the client may keep a server, so that the other client gets another one.
    lingers: bool,
    in_transaction: bool,
    /// A PostgreSQL of its own, and all its replies.
    direct: Postgres,
    expected: Vec<u8>,
}

impl Other {
    fn new(world: &mut World, rng: Rng, settings: Settings) -> Self {
        Self {
            at: world.log_in(),
            rng,
            turn: 0,
            prepares: settings.keeps_sessions(),
            lingers: settings.mode() == PoolMode::Transaction && settings.pool_size() > 1,
            in_transaction: false,
            direct: Postgres::logged_in(Dialect::default()),
            expected: Vec::new(),
        }
    }

    fn disturb(&mut self, world: &mut World) {
        // Occasionally waits so long that servers are checked before their next use.
        if self.turn < 8 && self.rng.one_in(16) {
            world.wait(35);
        }
        if self.rng.one_in(2) && self.is_answered(world) {
            self.turn += 1;
            let mut batch = Vec::new();
            if self.lingers && self.rng.one_in(4) {
                let sql = if self.in_transaction { "commit" } else { "begin" };
                self.in_transaction = !self.in_transaction;
                frontend::query(&mut batch, sql.as_bytes());
            } else {
                self.write_batch(&mut batch);
            }
            self.direct.feed(&batch, &mut self.expected);
            world.send(self.at, &batch);
        }
        self.check(world);
    }

    fn write_batch(&mut self, out: &mut Vec<u8>) {
        let sql = format!("2 of the other, {}", self.turn);
        let kind = if self.prepares { self.rng.below(4) } else { 0 };
        if kind == 0 {
            return frontend::query(out, sql.as_bytes());
        }
        // The statement has a text that the other client may use as well, a text that is used only
        // once, or no name.
        let (name, sql) = match kind {
            1 => ("", sql.as_str()),
            2 => ("s", "1 s"),
            _ => ("t", sql.as_str()),
        };
        frontend::close_statement(out, name.as_bytes());
        frontend::parse(out, name.as_bytes(), sql.as_bytes(), frontend::NO_TYPES);
        frontend::bind_text(out, name.as_bytes(), &[]);
        frontend::describe_portal(out, b"");
        frontend::execute(out, b"", 0);
        frontend::sync(out);
    }

    fn is_answered(&self, world: &World) -> bool {
        world.net.clients[self.at].got.len() == self.expected.len()
    }

    fn seen(&self, world: &World) -> Seen {
        let end = &world.net.clients[self.at];
        Seen { got: end.got.clone(), closed: end.id.is_none() }
    }

    fn check(&self, world: &World) {
        let seen = self.seen(world);
        let expected = Seen { got: self.expected.clone(), closed: false };
        assert!(
            expected.got.starts_with(&seen.got) && !seen.closed,
            "another client saw:{seen:?}\nand should have seen:{expected:?}"
        );
    }

    /// Checks the client after nothing delays it any more.
    fn check_all(&self, world: &World) {
        self.check(world);
        assert!(self.is_answered(world), "another client waits for ever:{:?}", self.seen(world));
    }
}
