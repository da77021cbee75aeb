//! Floods: one client sends far more messages than anybody should, and another one goes on working. How
//! long the other one waits, and what the pooler keeps, must not depend on how many there are.
//!
//! Each kind of message and each pair of kinds is sent in each state, by a client that reads its answers
//! and by clients that do not. A sample is tried; `WEIR_TESTS=full` tries all, 100,000 messages each.
//! `FLOOD_TABLE=1` prints what was measured, also of the PgBouncer of `WEIR_BIN`.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use testkit::frontend::{
    bind, close_portal, close_statement, copy_data, copy_done, copy_fail, describe_portal,
    describe_statement, execute, flush, function_call, parse, query, sync,
};
use testkit::{Flavour, Pooler, RawClient, eventually, flavour};

use crate::support;

/// Another client waits no longer, however loaded the machine that runs the tests is.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// What the flood of a client that reads may add to the pooler's memory.
const GROWTH_MAX_KIB: u64 = 6 * 1024;
/// And for each statement that it keeps by a name: PostgreSQL keeps them as well.
const NAME_MAX_BYTES: u64 = 128;
/// What ten clients that do not read may add.
const UNREAD_MAX_KIB: u64 = 16 * 1024;
/// A client that does not read has stalled if nothing more was taken for so long.
const STALLED: Duration = Duration::from_millis(400);
const CHUNK: usize = 64 * 1024;

/// One kind of message; `n` is how many came before it.
type Kind = (&'static str, fn(n: usize) -> Vec<u8>);

const KINDS: [Kind; 17] = [
    ("Query (empty)", |_| query("")),
    ("Query (fails)", |_| query("x")),
    ("Parse", |_| parse("", "select 1")),
    ("Parse (named)", |n| parse(&format!("s{n}"), "select 1")),
    ("Parse (fails)", |_| parse("", "x")),
    ("Bind", |_| bind("", "", &[])),
    ("Bind (missing)", |_| bind("", "nothing", &[])),
    ("Describe (missing)", |_| describe_statement("nothing")),
    ("Describe portal", |_| describe_portal("")),
    ("Execute", |_| execute("", 0)),
    ("Close (named)", |n| close_statement(&format!("s{}", n.saturating_sub(1)))),
    ("Close portal", |_| close_portal("")),
    ("Sync", |_| sync()),
    ("Flush", |_| flush()),
    ("FunctionCall", |_| function_call(0, &[])),
    ("CopyData", |_| copy_data(b"x\n")),
    ("CopyFail", |_| [copy_fail("no"), copy_done()].concat()),
];

/// Patterns that were slow once.
const PATTERNS: [Kind; 6] = [
    ("Parse (named), Close", |n| {
        [parse(&format!("s{n}"), "select 1"), close_statement(&format!("s{n}"))].concat()
    }),
    ("Parse (named), Sync", |n| [parse(&format!("s{n}"), "select 1"), sync()].concat()),
    ("COPY, CopyFail", |_| [query("copy nowhere from stdin"), copy_fail("no")].concat()),
    ("EXECUTE a", |_| [parse("", "execute a"), bind("", "", &[]), execute("", 0), sync()].concat()),
    ("Bind (missing), Sync", |_| [bind("", "nothing", &[]), sync()].concat()),
    ("Parse (fails), Sync", |_| [parse("", "x"), sync()].concat()),
];

/// What the client has begun before its flood.
const STATES: [(&str, &[&str]); 3] =
    [("idle", &[]), ("in a transaction", &["begin"]), ("in a failed one", &["begin", "x"])];

fn is_full() -> bool {
    std::env::var("WEIR_TESTS").is_ok_and(|which| which == "full")
}

/// One worker, which both clients share.
fn pooler(mode: &str) -> (Pooler, String) {
    let (setup, database) = support::setup(mode);
    let setup = if flavour() == Flavour::Weir { setup.workers(1) } else { setup };
    let pooler = setup.start();
    let mut client = pooler.client(&database);
    client.rows("SELECT repeat('x', 1000) FROM generate_series(1, 5000)");
    (pooler, database)
}

/// Another client, which asks all the time and notes its longest wait.
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
    (0..count).map(|n| kinds[n % kinds.len()].1(n)).fold(Vec::new(), |mut all, mut one| {
        all.append(&mut one);
        all
    })
}

fn begin(pooler: &Pooler, database: &str, state: &[&str]) -> RawClient {
    let mut client = pooler.client(database);
    client.set_timeout(Duration::from_secs(120));
    for sql in state {
        client.send(query(sql));
        client.read_to_ready();
    }
    client
}

/// The flood of a client that reads its answers. Returns how long the other one has waited.
fn read(pooler: &Pooler, database: &str, state: &[&str], kinds: &[Kind], count: usize) -> Duration {
    let before = pooler.resident_kib();
    let mut client = begin(pooler, database, state);
    let other = Other::begin(pooler, database);
    let mut flood = bytes_of(kinds, count);
    flood.extend([sync(), query("rollback"), query("select 'the end'")].concat());
    let began = Instant::now();
    let mut writer = client.writer();
    // The server may have ended the connection meanwhile.
    let sender = thread::spawn(move || drop(writer.write_all(&flood)));
    let mut grown = 0;
    let mut seen = 0_u64;
    while let Ok(Some(message)) = client.try_read() {
        seen += 1;
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
    report(kinds, count, "read", took, waited, grown);
    if flavour() == Flavour::Weir {
        let names = if keeps_names(kinds) { count as u64 } else { 0 };
        let limit = GROWTH_MAX_KIB + names * NAME_MAX_BYTES / 1024;
        assert!(grown < limit, "{}: grown by {grown} of {limit} KiB", name(kinds));
    }
    waited
}

/// The flood of ten clients that do not read. Returns how long another one has waited.
fn unread(
    pooler: &Pooler,
    database: &str,
    state: &[&str],
    kinds: &[Kind],
    count: usize,
) -> Duration {
    let before = pooler.resident_kib();
    let other = Other::begin(pooler, database);
    let began = Instant::now();
    let flood = Arc::new(bytes_of(kinds, count));
    let taken = Arc::new(AtomicU64::new(0));
    let clients: Vec<RawClient> = (0..10).map(|_| begin(pooler, database, state)).collect();
    let senders = clients.iter().map(|client| {
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
    eventually("nothing more is taken", Duration::from_secs(60), || {
        let now = taken.load(Ordering::Relaxed);
        if now != last {
            (last, since) = (now, Instant::now());
        }
        (since.elapsed() > STALLED).then_some(())
    });
    let grown = pooler.resident_kib().saturating_sub(before);
    clients.iter().for_each(RawClient::shutdown_write);
    drop(clients);
    senders.into_iter().for_each(|sender| sender.join().expect("no panic"));
    let waited = other.end();
    report(kinds, count, "unread", began.elapsed(), waited, grown);
    if flavour() == Flavour::Weir {
        assert!(grown < UNREAD_MAX_KIB, "{}: grown by {grown} KiB", name(kinds));
        eventually("the memory is given back", Duration::from_secs(120), || {
            (pooler.resident_kib() < before + UNREAD_MAX_KIB).then_some(())
        });
    }
    waited
}

fn keeps_names(kinds: &[Kind]) -> bool {
    kinds.iter().any(|(name, _)| name.starts_with("Parse (named)"))
}

fn name(kinds: &[Kind]) -> String {
    kinds.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" + ")
}

fn report(kinds: &[Kind], count: usize, how: &str, took: Duration, waited: Duration, grown: u64) {
    if std::env::var_os("FLOOD_TABLE").is_some() {
        let (took, waited) = (took.as_secs_f64(), waited.as_secs_f64() * 1000.0);
        let name = name(kinds);
        eprintln!("| {name} × {count}, {how} | {took:.2} s | {waited:.0} ms | {grown} KiB |");
    }
}

#[track_caller]
fn assert_short(kinds: &[Kind], waited: Duration) {
    if flavour() == Flavour::Weir {
        assert!(waited < WAIT_MAX, "{}: another client waited {waited:?}", name(kinds));
    }
}

fn modes() -> &'static [&'static str] {
    match flavour() {
        Flavour::Weir => &["auto", "transaction", "session"],
        Flavour::PgBouncer => &["transaction", "session"],
    }
}

#[test]
fn what_was_slow_once_delays_nobody() {
    let count = if is_full() { 100_000 } else { 5_000 };
    for mode in modes() {
        let (pooler, database) = pooler(mode);
        let slow = PATTERNS.iter().map(|one| (one, count / 4));
        for (kind, count) in slow.chain(KINDS.iter().map(|one| (one, count))) {
            let waited = read(&pooler, &database, &[], &[*kind], count);
            assert_short(&[*kind], waited);
        }
    }
}

/// `FLOOD="auto, in a transaction"` names one mode and state.
fn is_wanted(mode: &str, state: &str) -> bool {
    std::env::var("FLOOD").map_or(true, |wanted| wanted == format!("{mode}, {state}"))
}

#[test]
fn no_pair_of_messages_delays_anybody() {
    let (count, step) = if is_full() { (100_000, 1) } else { (4_000, 97) };
    for mode in modes() {
        let (pooler, database) = pooler(mode);
        for (at, (name, state)) in STATES.iter().enumerate() {
            let pairs = KINDS.iter().flat_map(|a| KINDS.iter().map(move |b| [*a, *b]));
            for pair in pairs
                .skip(if is_full() { 0 } else { at * 7 })
                .step_by(step)
                .filter(|_| is_wanted(mode, name))
            {
                assert_short(&pair, read(&pooler, &database, state, &pair, count));
                if is_full() && !keeps_names(&pair) {
                    assert_short(&pair, unread(&pooler, &database, state, &pair, count));
                }
            }
        }
    }
}

#[test]
fn clients_that_do_not_read_cost_little_memory() {
    let count = if is_full() { 1_000_000 } else { 200_000 };
    for mode in modes() {
        let (pooler, database) = pooler(mode);
        // Names that a client has prepared are kept for it, as long as it stays: they are no answers owed.
        for at in [2, 12] {
            let kind = [KINDS[at]];
            assert_short(&kind, unread(&pooler, &database, &[], &kind, count));
        }
    }
}

#[test]
fn a_million_messages_before_one_sync_are_answered() {
    let count = if is_full() { 1_000_000 } else { 50_000 };
    for mode in modes() {
        let (pooler, database) = pooler(mode);
        let kind = [KINDS[2]];
        assert_short(&kind, read(&pooler, &database, &[], &kind, count));
    }
}
