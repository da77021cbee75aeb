//! Backends that serve session after session. Those of the thesis lost memory at each reuse, until
//! none of 4 GB was left and an iteration took an hour.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use admin::{Axis, Panel, chart};
use load::Summary;
use testkit::{Pooler, RawClient};

use crate::process::{cpu_seconds, page_tables_mb, private_mb};
use crate::requirement::Requirement;
use crate::results::{Table, Verdict};
use crate::run::Run;
use crate::site::{Path, Site, Wish, pid, quit};

pub(crate) const ALL: &[Requirement] = &[
    Requirement { name: "memory of reused backends", show: reused },
    Requirement { name: "few backends have small page tables", show: page_tables },
];

const DATABASE: &str = "bsu";
const USER: &str = "dbuser1";
/// The servers of the thesis' pool.
const SERVERS: usize = 32;
const ROUNDS: usize = 12;
/// The most that backends may grow in the second half, when their caches are full, and that rounds may
/// become slower.
const GROWTH_MAX: f64 = 1.05;

const SCHEMA: &str = "
    CREATE TABLE address (a_key text PRIMARY KEY, street text);
    CREATE TABLE customer (c_key text PRIMARY KEY, a_key text REFERENCES address, name text);
    GRANT ALL ON ALL TABLES IN SCHEMA public TO PUBLIC;
    GRANT auth_trust TO dbuser1";

/// One session: a setting, a transaction of two inserts, and a join. Its logins need no password, since
/// the client would compute for longer than the server works.
fn session(port: u16, number: usize) {
    let mut client = RawClient::login(port, USER, DATABASE, USER)
        .unwrap_or_else(|error| panic!("the login of session {number} fails: {error:?}"));
    client.rows("SET work_mem = '5MB'");
    client.rows(&format!(
        "BEGIN; INSERT INTO address VALUES ('a{number}', 'Main Street'); \
         INSERT INTO customer VALUES ('c{number}', 'a{number}', 'Ann'); COMMIT"
    ));
    let name = client.value(&format!(
        "SELECT name FROM customer JOIN address USING (a_key) WHERE c_key = 'c{number}'"
    ));
    assert_eq!(name, "Ann", "session {number} reads its own row");
    quit(client);
}

/// Runs sessions, so many at a time. Returns the seconds.
fn sessions(port: u16, count: usize, at_a_time: usize) -> f64 {
    let began = Instant::now();
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let run = || {
            let number = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < count);
            while let Some(number) = number() {
                session(port, number);
            }
        };
        (0..at_a_time).for_each(|_| drop(scope.spawn(run)));
    });
    began.elapsed().as_secs_f64()
}

/// 300,000 sessions on 32 servers. After each round, new backends serve sessions directly: they tell how
/// much slower the machine itself has become.
fn reused(run: &Run, path: Path) -> Verdict {
    let of_round = run.count(300_000, 24_000) / ROUNDS;
    let wish = Wish::new(&[DATABASE], &[USER])
        .key("default_pool_size", SERVERS)
        // Each server gets its share.
        .key("server_round_robin", 1);
    let wish = if path == Path::Builtin { wish } else { wish.key("auth_type", "trust") };
    let site = Site::start(path, &wish);
    site.sql(DATABASE, SCHEMA);
    let clear = || drop(site.sql(DATABASE, "TRUNCATE address, customer"));
    let direct = || {
        clear();
        sessions(site.port(), of_round / 20, SERVERS)
    };
    // All servers are open, and the first round does not begin with an empty cache.
    hold_all(&site);
    sessions(site.weir_port(), of_round / 5, SERVERS);
    let servers = site.backends_of(USER, DATABASE);
    let start_mb = private_mb(&servers);
    // The pooler in the server is one of PostgreSQL's processes, which are not asked.
    let working: Vec<_> =
        servers.iter().copied().chain(site.pooler.as_ref().map(Pooler::pid)).collect();
    let mut line = vec![(0.0, start_mb)];
    let mut seconds = Vec::new();
    let (mut control, mut cpu) = (Vec::new(), Vec::new());
    let mut table = Table::new([
        "sessions",
        "seconds",
        "processor seconds of the servers and Weir",
        "MB of all servers",
        "direct, seconds",
    ]);
    for round in 1..=ROUNDS {
        clear();
        let before = cpu_seconds(&working);
        seconds.push(sessions(site.weir_port(), of_round, SERVERS));
        cpu.push(cpu_seconds(&working) - before);
        control.push(direct());
        let (done, mb) = (round * of_round, private_mb(&servers));
        line.push((done as f64, mb));
        let at = round - 1;
        let [own, cpu, beside] =
            [seconds[at], cpu[at], control[at]].map(|seconds| format!("{seconds:.3}"));
        table.row([done.to_string(), own, cpu, format!("{mb:.2}"), beside]);
    }
    table.write(&format!("memory-{}", path.file()), run);
    let [half_mb, end_mb] = [ROUNDS / 2, ROUNDS].map(|round| line[round].1);
    let grown = end_mb / half_mb;
    let panel = Panel {
        title: format!("Private memory of {SERVERS} reused backends, {}", path.name()),
        across: Axis::Numbers("sessions"),
        up: Axis::Numbers("MB"),
        lines: vec![line],
    };
    run.write(&format!("memory-{}.svg", path.file()), &chart(&[path.name()], &[panel]));
    let kept = site.backends_of(USER, DATABASE).iter().filter(|pid| servers.contains(pid)).count();
    let [slower, control, cpu] = [&seconds, &control, &cpu].map(|rounds| last_by_first(rounds));
    let figure = format!(
        "{} sessions on {kept} servers: {:.2} MB each at the start, {:.2} half way, {:.2} at the end: \
         {grown:.3}; the last quarter's rounds took {slower:.3} of the first's ({:.2} s; direct beside \
         them {control:.3}; processor time of the servers and Weir {cpu:.3}); at most {GROWTH_MAX}",
        ROUNDS * of_round,
        start_mb / SERVERS as f64,
        half_mb / SERVERS as f64,
        end_mb / SERVERS as f64,
        seconds[0],
    );
    // Other programs of the machine make a round longer, but cost the servers and Weir no processor time.
    let is_as_fast = slower <= GROWTH_MAX * control.max(1.0) || cpu <= GROWTH_MAX;
    Verdict::of(kept == SERVERS && grown <= GROWTH_MAX && is_as_fast, figure)
}

/// So many clients at a time that the pool opens all its servers.
fn hold_all(site: &Site) {
    let mut clients: Vec<_> = (0..SERVERS).map(|_| site.client(USER, DATABASE)).collect();
    clients.iter_mut().for_each(|client| drop(client.rows("BEGIN")));
    for mut client in clients {
        client.rows("COMMIT");
        quit(client);
    }
}

/// Compares the rounds of the last quarter with those of the first, by their medians.
fn last_by_first(rounds: &[f64]) -> f64 {
    let median = |rounds: &[f64]| Summary::of(rounds.to_vec()).expect("there are rounds").median;
    let quarter = rounds.len() / 4;
    median(&rounds[rounds.len() - quarter..]) / median(&rounds[..quarter])
}

/// Each client reads a large table, so its backend maps all of it.
fn page_tables(run: &Run, path: Path) -> Verdict {
    const POOL: usize = 20;
    const TABLE_MB: usize = 256;
    let count = run.count(200, 60);
    let mode = if path == Path::Direct { "auto" } else { "transaction" };
    let wish = Wish::new(&[DATABASE], &[USER])
        .key("default_pool_size", POOL)
        .key("pool_mode", mode)
        // A table of less than a quarter of the buffers is read through all of them.
        .setting("shared_buffers = 1100MB\nhuge_pages = off\nmax_parallel_workers_per_gather = 0");
    let site = Site::start(path, &wish);
    site.sql(
        DATABASE,
        &format!(
            "CREATE TABLE large (n int, filler text); ALTER TABLE large ALTER filler SET STORAGE PLAIN;
             INSERT INTO large SELECT n, repeat('x', 8000) FROM generate_series(1, {}) n;
             GRANT ALL ON large TO PUBLIC; GRANT auth_trust TO {USER}",
            TABLE_MB * 128
        ),
    );
    // Hint bits are set once.
    site.sql(DATABASE, "VACUUM large");
    let mut rows = Vec::new();
    let mut sums = Vec::new();
    for (name, port) in [("direct", site.port()), ("pooled", site.weir_port())] {
        let mut clients = Vec::new();
        for _ in 0..count {
            let mut client = RawClient::login(port, USER, DATABASE, USER)
                .unwrap_or_else(|error| panic!("{name}: the login fails: {error:?}"));
            assert_eq!(client.value("SELECT count(n) FROM large"), (TABLE_MB * 128).to_string());
            clients.push(client);
        }
        // All at once, so that a pool opens what it may.
        for client in &mut clients {
            client.send(testkit::frontend::query("SELECT count(n) FROM large"));
        }
        clients.iter_mut().for_each(|client| drop(client.read_to_ready()));
        let pids: Vec<_> = match port == site.port() {
            true => clients.iter_mut().map(pid).collect(),
            false => site.backends_of(USER, DATABASE),
        };
        let sum = page_tables_mb(&pids);
        rows.push([
            name.to_owned(),
            count.to_string(),
            pids.len().to_string(),
            format!("{sum:.1}"),
        ]);
        sums.push((pids.len(), sum));
        clients.into_iter().for_each(quit);
    }
    let mut table = Table::new(["arm", "clients", "backends", "page tables, MB"]);
    rows.into_iter().for_each(|row| table.row(row));
    table.write(&format!("page-tables-{}", path.file()), run);
    let [(_, direct), (backends, pooled)] = sums[..] else { unreachable!("two arms") };
    let each = direct / count as f64;
    let most = POOL as f64 * each * GROWTH_MAX;
    // A backend that has read the table has mapped most of it.
    let least = backends as f64 * each / 2.0;
    let figure = format!(
        "{count} clients that read {TABLE_MB} MB: direct {direct:.0} MB of page tables ({each:.2} MB \
         each), pooled {pooled:.1} MB in {backends} backends; at most {most:.1} MB"
    );
    Verdict::of(backends <= POOL && pooled <= most && pooled >= least, figure)
}
