//! Floods: one client sends many more messages than usual while another one works. The other
//! client's waiting time and the pooler's memory must not depend on the number of messages.
//!
//! Each kind of message and each pair of kinds is sent in each state, by a client that reads its
//! answers and by clients that do not. By default a sample is tried. `WEIR_TESTS=full` tries all,
//! 100,000 messages each, and `FLOOD_SHARE=3/16` one sixteenth of the pairs. `FLOOD_TABLE=1` prints
//! the figures, also those of the PgBouncer of `WEIR_BIN`.

mod kinds;
mod statements;

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use testkit::frontend::{copy_done, query, sync};
use testkit::{Flavour, Pooler, Setup, eventually, flavour, poll_until};

use crate::support::{self, only_weir};
use kinds::{
    DIFFERENT_QUERY, Flooder, KINDS, Kind, NAMED_PARSE, PARSE, PATTERNS, STATES, SYNC, State,
};

/// The maximum wait of the other client during the flood of a sample, even if other tests run.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// The maximum wait during 100,000 messages or more, however loaded the machine is.
const WAIT_MAX_OF_MANY: Duration = Duration::from_secs(3);
/// The maximum wait during ten floods at once, each of which keeps a backend busy.
const WAIT_MAX_OF_TEN: Duration = Duration::from_secs(5);
/// If a flood makes no progress for this long, an answer is lost.
const PATIENCE: Duration = Duration::from_secs(60);
/// The maximum growth of the pooler's memory by the flood of a client that reads, in KiB.
const GROWTH_MAX_KIB: u64 = 6 * 1024;
/// The maximum growth for each named statement, in bytes. PostgreSQL keeps these statements as
/// well.
const NAME_MAX_BYTES: u64 = 128;
/// The maximum growth for each named statement if equal texts may have different meanings, and so
/// are separate statements.
const PINNED_NAME_MAX_BYTES: u64 = 384;
/// The maximum growth by ten clients that do not read, in KiB.
const UNREAD_MAX_KIB: u64 = 8 * 1024;
/// The maximum growth that remains after they have left, in KiB.
const LEFT_MAX_KIB: u64 = 6 * 1024;
/// The maximum that remains if they had named statements. The pooler frees memory if more than 12
/// MiB are unused.
const NAMES_LEFT_MAX_KIB: u64 = 13 * 1024;
/// A client that does not read has stalled if nothing was accepted for this long.
const STALLED: Duration = Duration::from_millis(400);
const CHUNK: usize = 64 * 1024;

fn is_full() -> bool {
    std::env::var("WEIR_TESTS").is_ok_and(|which| which == "full")
}

/// Returns a pooler with one worker, which both clients share.
fn pooler(mode: &str) -> (Pooler, String) {
    pooler_of(support::setup(mode))
}

fn pooler_of((setup, database): (Setup, String)) -> (Pooler, String) {
    let narrow = kinds::narrow(&database);
    let setup = setup.workers(1).database(&narrow, &format!("dbname={database} pool_size=1"));
    let pooler = setup.start();
    let mut client = pooler.client(&database);
    client.rows("SELECT repeat('x', 1000) FROM generate_series(1, 5000)");
    (pooler, database)
}

/// The other client, which sends queries all the time and notes its longest wait.
struct Other {
    ends: Arc<AtomicBool>,
    thread: thread::JoinHandle<Duration>,
}

impl Other {
    fn begin(pooler: &Pooler, database: &str) -> Self {
        let mut client = pooler.client(database);
        client.set_timeout(Duration::from_secs(120));
        client.value("select 1");
        let ends = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ends);
        let thread = thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                let asked = Instant::now();
                client.value("select 1");
                longest = longest.max(asked.elapsed());
            }
            longest
        });
        Self { ends, thread }
    }

    fn end(self) -> Duration {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().expect("the other client is served")
    }
}

fn bytes_of(kinds: &[Kind], count: usize) -> Vec<u8> {
    (0..count).map(|n| (kinds[n % kinds.len()].make)(n)).fold(Vec::new(), |mut all, mut one| {
        all.append(&mut one);
        all
    })
}

/// The number of answers of each type.
type Answers = HashMap<u8, usize>;

/// Runs the flood of a client that reads its answers. Returns these.
fn read(pooler: &Pooler, database: &str, state: &State, kinds: &[Kind], count: usize) -> Answers {
    let names = if keeps_names(kinds) { count } else { 0 };
    let may_end = kinds.iter().any(|kind| state.may_end(kind));
    let flood = (&*name(kinds), bytes_of(kinds, count), may_end);
    read_bytes(pooler, database, state, flood, count, names)
}

/// `may_end`: the server may end the connection because of these messages.
fn read_bytes(
    pooler: &Pooler,
    database: &str,
    state: &State,
    (name, bytes, may_end): (&str, Vec<u8>, bool),
    count: usize,
    names: usize,
) -> Answers {
    let before = pooler.resident_kib();
    let other = Other::begin(pooler, database);
    let Flooder { mut client, first, .. } = state.begin(pooler, database);
    // The first query only ends the COPY, if there is one.
    let rest =
        [copy_done(), sync(), query("rollback"), query("rollback"), query("select 'the end'")];
    let flood = [first, bytes, rest.concat()].concat();
    let began = Instant::now();
    let mut writer = client.writer();
    // The server may have closed the connection meanwhile; then an answer is missing.
    let sender = thread::spawn(move || drop(writer.write_all(&flood)));
    let mut grown = 0;
    let mut seen = 0_u64;
    let mut answers = Answers::new();
    loop {
        let message = match client.try_read() {
            Ok(Some(message)) => message,
            Ok(None) if may_end || flavour() == Flavour::PgBouncer => break,
            Ok(None) => panic!("{name}, {}: closed after {seen} answers", state.name),
            Err(error) => panic!("{name}, {}: no more than {seen} answers: {error}", state.name),
        };
        seen += 1;
        *answers.entry(message.tag).or_default() += 1;
        if seen.is_multiple_of(20_000) {
            grown = grown.max(pooler.resident_kib().saturating_sub(before));
        }
        if message.tag == b'D' && message.body.ends_with(b"the end") {
            break;
        }
    }
    let took = began.elapsed();
    drop(client);
    sender.join().expect("no panic");
    let waited = other.end();
    report(name, count, "read", took, waited, grown);
    if flavour() == Flavour::Weir {
        let limit = GROWTH_MAX_KIB + names as u64 * name_max_bytes(state) / 1024;
        assert!(grown < limit, "{name}: grown by {grown} of {limit} KiB");
        let wait_max = if is_full() { WAIT_MAX_OF_MANY } else { WAIT_MAX };
        assert!(waited < wait_max, "{name}, {}: another client waited {waited:?}", state.name);
    }
    answers
}

/// Runs the flood of ten clients that do not read.
fn unread(pooler: &Pooler, database: &str, state: &State, kinds: &[Kind], count: usize) {
    let name = name(kinds);
    let before = pooler.resident_kib();
    let other = Other::begin(pooler, database);
    let began = Instant::now();
    let flood = bytes_of(kinds, count);
    let flooders: Vec<_> = (0..10).map(|_| state.begin(pooler, database)).collect();
    let flood = Arc::new([flooders[0].first.clone(), flood].concat());
    let taken = Arc::new(AtomicU64::new(0));
    let senders = flooders.iter().map(|Flooder { client, .. }| {
        let (mut writer, flood, taken) = (client.writer(), Arc::clone(&flood), Arc::clone(&taken));
        thread::spawn(move || {
            for chunk in flood.chunks(CHUNK) {
                if writer.write_all(chunk).is_err() {
                    break;
                }
                taken.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    let senders: Vec<_> = senders.collect();
    let (mut last, mut since) = (0, Instant::now());
    let mut grown = 0;
    eventually("nothing more is taken", Duration::from_secs(120), || {
        let now = taken.load(Ordering::Relaxed);
        if now != last {
            (last, since) = (now, Instant::now());
        }
        grown = grown.max(pooler.resident_kib().saturating_sub(before));
        (since.elapsed() > STALLED).then_some(())
    });
    let chunks = taken.load(Ordering::Relaxed);
    flooders.iter().for_each(|flooder| flooder.client.stop_writing());
    drop(flooders);
    senders.into_iter().for_each(|sender| sender.join().expect("no panic"));
    let waited = other.end();
    report(&name, count, "unread", began.elapsed(), waited, grown);
    if flavour() == Flavour::Weir {
        // Weir keeps a client's prepared statements, as PostgreSQL would.
        let share = chunks as f64 * CHUNK as f64 / flood.len() as f64;
        let names = if keeps_names(kinds) { (share * count as f64) as u64 } else { 0 };
        let limit = UNREAD_MAX_KIB + names * name_max_bytes(state) / 1024;
        assert!(grown < limit, "{name}: grown by {grown} of {limit} KiB");
        let left_max = if names == 0 { LEFT_MAX_KIB } else { NAMES_LEFT_MAX_KIB };
        let mut left = 0;
        let is_back = poll_until(Duration::from_secs(120), || {
            left = pooler.resident_kib().saturating_sub(before);
            (left < left_max).then_some(())
        });
        assert!(is_back.is_some(), "{name}: {left} of {grown} KiB are not given back");
        assert!(waited < WAIT_MAX_OF_TEN, "{name}: another client waited {waited:?}");
    }
}

fn name_max_bytes(state: &State) -> u64 {
    if state.name == "pinned" { PINNED_NAME_MAX_BYTES } else { NAME_MAX_BYTES }
}

fn keeps_names(kinds: &[Kind]) -> bool {
    kinds.iter().any(|kind| kind.name.starts_with("Parse (named)"))
}

fn name(kinds: &[Kind]) -> String {
    kinds.iter().map(|kind| kind.name).collect::<Vec<_>>().join(" + ")
}

fn report(name: &str, count: usize, how: &str, took: Duration, waited: Duration, grown: u64) {
    if std::env::var_os("FLOOD_TABLE").is_some() {
        let (took, waited) = (took.as_secs_f64(), waited.as_secs_f64() * 1000.0);
        eprintln!("| {name} × {count}, {how} | {took:.2} s | {waited:.0} ms | {grown} KiB |");
    }
}

fn modes() -> &'static [&'static str] {
    match flavour() {
        Flavour::Weir => &["auto", "transaction", "session"],
        Flavour::PgBouncer => &["transaction", "session"],
    }
}

const IDLE: &State = &STATES[0];

#[test]
fn floods_that_were_slow_delay_nobody() {
    for mode in modes() {
        let (pooler, database) = pooler(mode);
        for kind in PATTERNS.iter().chain(&KINDS) {
            let count = if is_full() { kind.sample.max(100_000) } else { kind.sample };
            read(&pooler, &database, IDLE, &[*kind], count);
        }
        let count = if is_full() { 200_000 } else { 20_000 };
        let flood = ("Parse (named), then Close", kinds::parse_then_close(count), false);
        let answers = read_bytes(&pooler, &database, IDLE, flood, count, count / 2);
        let [parsed, closed] = [b'1', b'3'].map(|tag| answers.get(&tag).copied());
        assert_eq!((parsed, closed), (Some(count / 2), Some(count / 2)));
        let count = 2 * count;
        let flood = ("EXECUTE of each name", kinds::execute_each(count), false);
        // In auto mode the server has each statement under the client's name as well, until the
        // transaction ends.
        let answers = read_bytes(&pooler, &database, IDLE, flood, count, count);
        // In transaction mode, SQL does not find the protocol's statements, and the first EXECUTE
        // fails the transaction.
        let parsed = if *mode == "transaction" { 1 } else { count / 2 };
        assert_eq!(answers.get(&b'1').copied(), Some(parsed), "{mode}");
    }
}

/// Returns whether a mode and state are to be tried: all, or the one of `FLOOD="auto, in a
/// transaction"`.
fn is_wanted(mode: &str, state: &State) -> bool {
    let is_named = |wanted: String| wanted == format!("{mode}, {}", state.name);
    state.is_of(mode) && std::env::var("FLOOD").map_or(true, is_named)
}

/// Returns the part of the pairs to be tried and the number of parts: those of `FLOOD_SHARE=3/16`,
/// all, or a sample.
fn share() -> (usize, usize) {
    let Ok(share) = std::env::var("FLOOD_SHARE") else {
        return (1, if is_full() { 1 } else { 197 });
    };
    let numbers = share.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
    numbers.unwrap_or_else(|| panic!("FLOOD_SHARE={share} is not k/n"))
}

#[test]
fn no_pair_of_messages_delays_anybody() {
    let count = if is_full() { 100_000 } else { 2_000 };
    let (part, parts) = share();
    for mode in modes() {
        let (pooler, database) = pooler(mode);
        for (at, state) in STATES.iter().enumerate().filter(|(_, state)| is_wanted(mode, state)) {
            let pairs = KINDS.iter().flat_map(|a| KINDS.iter().map(move |b| [*a, *b]));
            // Each state begins with a different pair.
            let tried = pairs.skip((part - 1 + at * 23) % parts).step_by(parts);
            for (n, pair) in tried.enumerate() {
                read(&pooler, &database, state, &pair, count);
                if is_full() || n == 0 {
                    unread(&pooler, &database, state, &pair, count);
                }
            }
        }
    }
}

#[test]
fn no_message_in_any_state_delays_anybody() {
    let count = if is_full() { 100_000 } else { 500 };
    for mode in modes() {
        let (pooler, database) = pooler(mode);
        for state in STATES[1..].iter().filter(|state| is_wanted(mode, state)) {
            // A sample combines several kinds.
            for kinds in KINDS.chunks(if is_full() { 1 } else { 7 }) {
                read(&pooler, &database, state, kinds, count);
            }
        }
    }
}

#[test]
fn clients_that_do_not_read_cost_little_memory_core() {
    for mode in modes() {
        let (pooler, database) = pooler(mode);
        for (kind, count) in [(PARSE, 200_000), (SYNC, 200_000), (NAMED_PARSE, 20_000)] {
            let count = if is_full() { 5 * count } else { count };
            unread(&pooler, &database, IDLE, &[kind], count);
        }
    }
}

/// None of them is known, and each takes the place of another one in the table of fingerprints.
#[test]
fn texts_that_are_watched_and_all_different_delay_nobody() {
    if !only_weir() {
        return;
    }
    let count = if is_full() { 1_000_000 } else { DIFFERENT_QUERY.sample };
    for mode in modes() {
        let (setup, database) = support::setup(mode);
        let setup = setup.set("fingerprints", 1).set("advise", 1);
        let (pooler, database) = pooler_of((setup, database));
        read(&pooler, &database, IDLE, &[DIFFERENT_QUERY], count);
        let shown = pooler.admin("SHOW FINGERPRINTS").with("database", &database);
        let other = shown.with("text", "select ?");
        let asked: u64 = other.only("count").parse().expect("a number");
        assert!(asked > 0 && shown.rows.len() <= 500, "{asked}, {} rows", shown.rows.len());
    }
}

#[test]
fn a_million_messages_before_one_sync_are_answered() {
    let count = if is_full() { 1_000_000 } else { 50_000 };
    for mode in modes() {
        let (pooler, database) = pooler(mode);
        let answers = read(&pooler, &database, IDLE, &[PARSE], count);
        assert_eq!(answers.get(&b'1').copied(), Some(count));
    }
}
