//! The clients: each appends to lists, writes registers and reads both, one request after the other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use testkit::{Pooler, RawClient, eventually, frontend};

use super::history::{Act, Outcome, Term, What};
use super::verdict::items;
use crate::cluster::hooks::connect_to;

/// The earlier writes that a read sees (`read_after_write`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Session,
    User,
    Strict,
}

/// The levels of the clients.
pub(super) const LEVELS: [Level; 8] = [
    Level::Session,
    Level::Session,
    Level::Session,
    Level::Session,
    Level::User,
    Level::User,
    Level::Strict,
    Level::Strict,
];
const REGISTERS: usize = 4;
/// Lists that are in use at a time, and the requests of a client after which others are used.
const LISTS: u64 = 4;
const WINDOW: u64 = 40;
/// Writes of each client between two faults.
const WRITES: u64 = 15;
/// An answer comes within this time: the primary is replaced within `failover_wait`.
const PATIENCE: Duration = Duration::from_secs(90);

const TERM: &str = "substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8), inet_server_addr() \
    || ':' || inet_server_port()";

impl Level {
    pub(super) fn database(self) -> &'static str {
        match self {
            Self::Session => "by_session",
            Self::User => "by_user",
            Self::Strict => "strict",
        }
    }

    pub(super) fn keys(self) -> &'static str {
        match self {
            Self::Session => "read_after_write=session",
            Self::User => "read_after_write=user",
            Self::Strict => "read_after_write=strict",
        }
    }
}

/// The clock of all clients, and the writes that each has been told.
pub(super) struct Clock {
    begin: Instant,
    written: [AtomicU64; LEVELS.len()],
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { begin: Instant::now(), written: Default::default() }
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Waits until each client has written some more.
    #[track_caller]
    pub(super) fn until_all_write(&self) {
        let counts = || self.written.iter().map(|count| count.load(Ordering::Relaxed));
        let before: Vec<_> = counts().collect();
        eventually("each client writes", PATIENCE, || {
            counts().zip(&before).all(|(now, before)| now >= before + WRITES).then_some(())
        });
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

/// Works until the time is over. Returns what was asked and told.
pub(super) fn work(
    pooler: &Pooler,
    number: usize,
    seed: u64,
    clock: &Clock,
    is_over: &AtomicBool,
) -> Vec<Act> {
    let level = LEVELS[number];
    let mut dice = Dice::new(seed, number + 1);
    let mut client = connect_to(pooler, level.database());
    let mut acts = Vec::new();
    for at in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return acts;
        }
        let list = at / WINDOW * LISTS + dice.below(LISTS as usize) as u64;
        let register = dice.below(REGISTERS) as u64;
        let value = format!("{number}-{at}");
        let begin = clock.now();
        let asked = match dice.below(5) {
            0 => append(&mut client, false, list, value),
            1 => append(&mut client, true, list, value),
            2 => write(&mut client, register, value),
            3 => read_list(&mut client, list),
            _ => read_register(&mut client, register),
        };
        let Asked { what, is_closed } = asked;
        if let Some(what) = what {
            if what.term().is_some() {
                clock.written[number].fetch_add(1, Ordering::Relaxed);
            }
            acts.push(Act { client: number, level, begin, end: clock.now(), what });
        }
        if is_closed {
            client = connect_to(pooler, level.database());
        }
    }
    acts
}

/// A request with its answer; `None` for a read that has failed.
struct Asked {
    what: Option<What>,
    is_closed: bool,
}

fn append(client: &mut RawClient, in_transaction: bool, list: u64, value: String) -> Asked {
    let insert = format!(
        "INSERT INTO lists VALUES ({list}, ARRAY['{value}']) ON CONFLICT (id) DO UPDATE SET items = \
         lists.items || excluded.items RETURNING {TERM}"
    );
    let (outcome, is_closed) = match in_transaction {
        false => told(run(client, &insert)),
        true => told_in_transaction(client, &insert),
    };
    let outcome = match outcome {
        Outcome::Acknowledged(rows, _) => Outcome::Acknowledged((), term(&rows[0])),
        Outcome::RolledBack => Outcome::RolledBack,
        Outcome::Unknown => Outcome::Unknown,
    };
    Asked { what: Some(What::Append { list, value, outcome }), is_closed }
}

fn write(client: &mut RawClient, register: u64, value: String) -> Asked {
    let insert = format!(
        "INSERT INTO registers VALUES ({register}, '{value}', 1) ON CONFLICT (id) DO UPDATE SET value \
         = excluded.value, version = registers.version + 1 RETURNING {TERM}, version"
    );
    let (outcome, is_closed) = told(run(client, &insert));
    let outcome = match outcome {
        Outcome::Acknowledged(rows, _) => {
            let version = rows[0][2].as_ref().and_then(|text| text.parse().ok());
            Outcome::Acknowledged(version.expect("a version"), term(&rows[0]))
        }
        Outcome::RolledBack => Outcome::RolledBack,
        Outcome::Unknown => Outcome::Unknown,
    };
    Asked { what: Some(What::Write { register, value, outcome }), is_closed }
}

fn read_list(client: &mut RawClient, list: u64) -> Asked {
    let text = format!("SELECT array_to_string(items, ' ') FROM lists WHERE id = {list}");
    read(client, &text, |row| {
        let seen = row.and_then(|row| row[0].as_deref()).map_or_else(Vec::new, items);
        What::ReadList { list, seen }
    })
}

fn read_register(client: &mut RawClient, register: u64) -> Asked {
    let text = format!("SELECT version, value FROM registers WHERE id = {register}");
    read(client, &text, |row| {
        let seen = row.and_then(|row| Some((row[0].as_ref()?.parse().ok()?, row[1].clone()?)));
        What::ReadRegister { register, seen }
    })
}

fn read(client: &mut RawClient, text: &str, what: impl FnOnce(Option<&Row>) -> What) -> Asked {
    match run(client, text) {
        Ok(rows) => Asked { what: Some(what(rows.first())), is_closed: false },
        Err(Failed { code, is_closed }) => {
            check_code(&code);
            Asked { what: None, is_closed }
        }
    }
}

type Row = Vec<Option<String>>;

/// Returns the outcome of a statement, and whether the connection has ended.
fn told(answer: Result<Vec<Row>, Failed>) -> (Outcome<Vec<Row>>, bool) {
    match answer {
        Ok(rows) => (Outcome::Acknowledged(rows, Term { timeline: 0, node: String::new() }), false),
        Err(Failed { code, is_closed }) => {
            check_code(&code);
            let is_undone = code == ROLLED_BACK && !is_closed;
            (if is_undone { Outcome::RolledBack } else { Outcome::Unknown }, is_closed)
        }
    }
}

fn told_in_transaction(client: &mut RawClient, insert: &str) -> (Outcome<Vec<Row>>, bool) {
    let rows = run(client, "BEGIN").and_then(|_| run(client, insert));
    let (outcome, is_closed) = match rows {
        Ok(rows) => match told(run(client, "COMMIT")) {
            (Outcome::Acknowledged(_, none), is_closed) => {
                (Outcome::Acknowledged(rows, none), is_closed)
            }
            other => other,
        },
        // Without its COMMIT, it cannot be there.
        Err(Failed { code, is_closed }) => {
            check_code(&code);
            (Outcome::RolledBack, is_closed)
        }
    };
    let is_done = matches!(outcome, Outcome::Acknowledged(..));
    let is_closed = is_closed || !is_done && run(client, "ROLLBACK").is_err();
    (outcome, is_closed)
}

const ROLLED_BACK: &str = "40001";

/// The codes that a client may get when a primary or a standby is lost. All else is a fault of Weir.
fn check_code(code: &str) {
    const ALLOWED: [&str; 6] = [ROLLED_BACK, "08007", "57P01", "57P02", "57P03", CLOSED];
    assert!(ALLOWED.contains(&code), "an error of another kind: {code}");
}

const CLOSED: &str = "closed";

fn term(row: &Row) -> Term {
    let [timeline, node] = [0, 1].map(|at| row[at].clone().expect("it is on a primary"));
    let timeline = u32::from_str_radix(&timeline, 16).expect("eight digits");
    Term { timeline, node }
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
