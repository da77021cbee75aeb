//! The clients: each appends to lists, writes registers and reads both, one request after the other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use testkit::{Pooler, RawClient, eventually, frontend};

use super::history::{Act, Done, Key, Outcome, Place, Seen, Term, What};
use super::verdict::items;
use crate::cluster::hooks::connect_to;

/// The earlier writes that a read sees (`read_after_write`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// The session's own writes. If no standby has them yet, the primary runs the read.
    Session,
    /// The session's own writes, and the read waits for a standby that has them.
    SessionWaits,
    User,
    Strict,
}

/// The levels of the clients.
pub(super) const LEVELS: [Level; 8] = [
    Level::Session,
    Level::Session,
    Level::SessionWaits,
    Level::SessionWaits,
    Level::User,
    Level::User,
    Level::Strict,
    Level::Strict,
];
const REGISTERS: usize = 4;
/// Lists that are in use at a time, and the requests of a client after which others are used.
const LISTS: u64 = 4;
const WINDOW: u64 = 40;
/// Acknowledged writes of each client between two faults, and its reads on standbys.
const WRITES: u64 = 15;
const READS: u64 = 4;
/// A client of [`Level::Session`] reads the primary for some time behind a write. So it reads again and
/// again now and then: until a standby runs the read, or so many times.
const STREAK: usize = 200;
/// An answer comes within this time: the primary is replaced within `failover_wait`.
const PATIENCE: Duration = Duration::from_secs(90);

const TERM: &str = "substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8), \
    host(inet_server_addr()) || ':' || inet_server_port()";

impl Level {
    pub(super) const ALL: [Self; 4] = [Self::Session, Self::SessionWaits, Self::User, Self::Strict];

    pub(super) fn database(self) -> &'static str {
        match self {
            Self::Session => "by_session",
            Self::SessionWaits => "by_session_waits",
            Self::User => "by_user",
            Self::Strict => "strict",
        }
    }

    pub(super) fn keys(self) -> &'static str {
        match self {
            Self::Session => "read_after_write=session",
            Self::SessionWaits => "read_after_write=session when_stale=wait",
            Self::User => "read_after_write=user when_stale=wait",
            Self::Strict => "read_after_write=strict",
        }
    }
}

/// The clock of all clients, and what each has been told.
pub(super) struct Clock {
    begin: Instant,
    written: [AtomicU64; LEVELS.len()],
    read: [AtomicU64; LEVELS.len()],
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { begin: Instant::now(), written: Default::default(), read: Default::default() }
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Waits until each client has written some more, and has read some more on standbys.
    #[track_caller]
    pub(super) fn until_all_work(&self) {
        let counts = |of: &[AtomicU64; LEVELS.len()]| {
            of.iter().map(|count| count.load(Ordering::Relaxed)).collect::<Vec<_>>()
        };
        for (what, of, more) in
            [("writes", &self.written, WRITES), ("reads on a standby", &self.read, READS)]
        {
            let before = counts(of);
            eventually(&format!("each client {what}"), PATIENCE, || {
                counts(of)
                    .iter()
                    .zip(&before)
                    .all(|(now, before)| *now >= before + more)
                    .then_some(())
            });
        }
    }
}

/// Random numbers from a seed (SplitMix64).
#[derive(Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64, number: usize) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(number as u64))
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }
}

/// A client, and what it was told.
struct Worker<'a> {
    pooler: &'a Pooler,
    number: usize,
    session: usize,
    client: RawClient,
    clock: &'a Clock,
    acts: Vec<Act>,
}

/// Works until the time is over. Returns what was asked and told.
pub(super) fn work(
    pooler: &Pooler,
    number: usize,
    seed: u64,
    clock: &Clock,
    is_over: &AtomicBool,
) -> Vec<Act> {
    let mut dice = Dice::new(seed, number + 1);
    let client = connect_to(pooler, LEVELS[number].database());
    let mut worker = Worker { pooler, number, session: 0, client, clock, acts: Vec::new() };
    for at in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let key = match dice.below(5) {
            0..3 => Key::List(at / WINDOW * LISTS + dice.below(LISTS as usize) as u64),
            _ => Key::Register(dice.below(REGISTERS) as u64),
        };
        match dice.below(10) {
            0..6 => worker.write(key, format!("{number}-{at}"), dice.below(2) == 0),
            6..9 => drop(worker.read(key)),
            _ => drop((0..STREAK).find(|_| worker.read(key))),
        }
    }
    worker.acts
}

impl Worker<'_> {
    fn write(&mut self, key: Key, value: String, in_transaction: bool) {
        let begin = self.clock.now();
        let text = match key {
            Key::List(list) => format!(
                "INSERT INTO lists VALUES ({list}, ARRAY['{value}']) ON CONFLICT (id) DO UPDATE SET \
                 items = lists.items || excluded.items RETURNING {TERM}, cardinality(items)"
            ),
            Key::Register(register) => format!(
                "WITH own AS (INSERT INTO registers VALUES ({register}, '{value}', 1) ON CONFLICT (id) \
                 DO UPDATE SET value = excluded.value, number = registers.number + 1 \
                 RETURNING id, number, value) INSERT INTO versions SELECT * FROM own \
                 RETURNING {TERM}, number"
            ),
        };
        let (outcome, is_closed) = match in_transaction {
            false => told(run(&mut self.client, &text), None),
            true => told_in_transaction(&mut self.client, &text),
        };
        if matches!(outcome, Outcome::Acknowledged(_)) {
            self.clock.written[self.number].fetch_add(1, Ordering::Relaxed);
        }
        self.note(begin, What::Write { key, value, outcome });
        self.connect_if(is_closed);
    }

    /// Reads a key. Returns whether a standby has run it.
    fn read(&mut self, key: Key) -> bool {
        let begin = self.clock.now();
        let text = match key {
            Key::List(list) => format!(
                "SELECT timeline, node, array_to_string(items, ' ') FROM place LEFT JOIN lists \
                 ON id = {list}"
            ),
            Key::Register(register) => format!(
                "SELECT timeline, node, value, number FROM place LEFT JOIN registers \
                 ON id = {register}"
            ),
        };
        match run(&mut self.client, &text) {
            Ok(rows) => {
                let what = What::Read { key, seen: seen(key, &rows[0]), place: place(&rows[0]) };
                let is_on_standby = what.is_standby_read();
                self.clock.read[self.number].fetch_add(u64::from(is_on_standby), Ordering::Relaxed);
                self.note(begin, what);
                is_on_standby
            }
            Err(Failed { code, is_closed }) => {
                check_code(&code);
                self.connect_if(is_closed);
                false
            }
        }
    }

    fn note(&mut self, begin: Duration, what: What) {
        let (client, session, level) = (self.number, self.session, LEVELS[self.number]);
        let end = self.clock.now();
        self.acts.push(Act { client, session, level, begin, end, what });
    }

    fn connect_if(&mut self, is_closed: bool) {
        if is_closed {
            self.session += 1;
            self.client = connect_to(self.pooler, LEVELS[self.number].database());
        }
    }
}

type Row = Vec<Option<String>>;

/// Returns the outcome of a write, and whether the connection has ended. `done`: the answer before the
/// COMMIT, which this is about.
fn told(answer: Result<Vec<Row>, Failed>, done: Option<Done>) -> (Outcome, bool) {
    match answer {
        Ok(rows) => (Outcome::Acknowledged(done.unwrap_or_else(|| done_by(&rows[0]))), false),
        Err(Failed { code, is_closed }) => {
            check_code(&code);
            let is_undone = code == ROLLED_BACK && !is_closed;
            (if is_undone { Outcome::RolledBack } else { Outcome::Unknown(done) }, is_closed)
        }
    }
}

fn told_in_transaction(client: &mut RawClient, insert: &str) -> (Outcome, bool) {
    let rows = run(client, "BEGIN").and_then(|_| run(client, insert));
    let (outcome, is_closed) = match rows {
        Ok(rows) => told(run(client, "COMMIT"), Some(done_by(&rows[0]))),
        // Without its COMMIT, it cannot be there.
        Err(Failed { code, is_closed }) => {
            check_code(&code);
            (Outcome::RolledBack, is_closed)
        }
    };
    let is_done = matches!(outcome, Outcome::Acknowledged(_));
    let is_closed = is_closed || !is_done && run(client, "ROLLBACK").is_err();
    (outcome, is_closed)
}

const ROLLED_BACK: &str = "40001";

/// The codes that a client may get when a primary or a standby is lost. All else is a fault of Weir, also
/// a connection that ends without an error.
fn check_code(code: &str) {
    const ALLOWED: [&str; 5] = [ROLLED_BACK, "08007", "57P01", "57P02", "57P03"];
    assert!(ALLOWED.contains(&code), "an error of another kind: {code}");
}

const CLOSED: &str = "closed";

fn term(timeline: &str, node: &str) -> Term {
    let timeline = u32::from_str_radix(timeline, 16).expect("eight digits");
    Term { timeline, node: node.to_owned() }
}

/// Reads the answer to a write.
fn done_by(row: &Row) -> Done {
    let [timeline, node, number] =
        [0, 1, 2].map(|at| row[at].as_deref().expect("a primary tells all"));
    Done { term: term(timeline, node), number: number.parse().expect("a number") }
}

/// Returns the place that a row of a read tells.
fn place(row: &Row) -> Place {
    let node = row[1].clone().expect("an address");
    match &row[0] {
        Some(timeline) => Place::Primary(term(timeline, &node)),
        None => Place::Standby { node },
    }
}

fn seen(key: Key, row: &Row) -> Seen {
    let value = row[2].as_deref();
    match (key, value) {
        (Key::List(_), value) => Seen::All(value.map_or_else(Vec::new, items)),
        (Key::Register(_), None) => Seen::All(Vec::new()),
        (Key::Register(_), Some(value)) => {
            let version = row[3].as_deref().and_then(|text| text.parse().ok());
            Seen::Last(version.expect("a version"), value.to_owned())
        }
    }
}

struct Failed {
    code: String,
    is_closed: bool,
}

/// Runs a statement to its end.
fn run(client: &mut RawClient, statement: &str) -> Result<Vec<Row>, Failed> {
    let closed = |code: Option<String>| Failed {
        code: code.unwrap_or_else(|| CLOSED.to_owned()),
        is_closed: true,
    };
    client.set_timeout(PATIENCE);
    client.try_send(frontend::query(statement)).map_err(|_| closed(None))?;
    let (mut rows, mut code) = (Vec::new(), None);
    loop {
        let message = match client.try_read() {
            Ok(Some(message)) => message,
            Err(error) if is_late(&error) => panic!("no answer within {PATIENCE:?} to {statement}"),
            Ok(None) | Err(_) => return Err(closed(code)),
        };
        match message.tag {
            b'D' => rows.push(message.row()),
            b'E' => code = message.error().map(|error| error.code().to_owned()),
            b'Z' => {
                let failed = code.map(|code| Failed { code, is_closed: false });
                return failed.map_or(Ok(rows), Err);
            }
            _ => {}
        }
    }
}

fn is_late(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}
