//! Servers that are closed before they become too large. A backend keeps what it has read about each
//! table, so with many tables it grows without any fault.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use admin::{Axis, Panel, Points, chart};
use testkit::{Dice, RawClient};

use crate::process::private_mb;
use crate::requirement::Requirement;
use crate::results::{Table, Verdict};
use crate::run::{Over, Run};
use crate::site::{Path, Site, Wish, pid, quit};
use crate::tables;

pub(crate) const ALL: &[Requirement] =
    &[Requirement { name: "recycling by age, uses and memory", show: recycling }];

const DATABASE: &str = "bsu";
const USER: &str = "dbuser1";
/// The servers of the pool, and the clients.
const SERVERS: usize = 2;
const TABLES: usize = 300;
/// The tables that a session reads.
const READS: usize = 10;
/// Weir looks at the memory every two seconds. A server must not become full between two looks.
const BETWEEN_SESSIONS: Duration = Duration::from_millis(60);
const USES_MAX: usize = 20;
const LIMIT_MB: usize = 8;
const BETWEEN_SAMPLES: Duration = Duration::from_millis(100);

/// Each way to recycle: its name, and its key with a value.
const ARMS: [(&str, Option<(&str, usize)>); 4] = [
    ("no recycling", None),
    ("server_lifetime = 3 s", Some(("server_lifetime", 3))),
    ("server_max_uses = 20", Some(("server_max_uses", USES_MAX))),
    ("server_max_memory = 8 MB", Some(("server_max_memory", LIMIT_MB << 20))),
];

/// The observations of one arm.
#[derive(Clone, Debug)]
struct Seen {
    /// The private memory of all servers in MB, by the number of sessions so far.
    memory: Points,
    /// That of the largest server.
    largest: Vec<f64>,
    /// The sessions that began on each server.
    sessions: HashMap<u32, usize>,
    /// Why the pool is not direct, if a direct one was asked for.
    why: String,
}

impl Seen {
    /// Returns the memory of the largest server in the second half of the run, in MB: the mean of all
    /// samples.
    fn late_mb(&self) -> f64 {
        let late = &self.largest[self.largest.len() / 2..];
        late.iter().sum::<f64>() / late.len() as f64
    }

    fn most_sessions(&self) -> usize {
        self.sessions.values().copied().max().unwrap_or(0)
    }

    fn all_sessions(&self) -> usize {
        self.sessions.values().sum()
    }
}

/// Runs the same load without recycling and with each way of it.
fn recycling(run: &Run, path: Path) -> Verdict {
    let length = Duration::from_secs(run.count(14, 6) as u64);
    // Each arm is at rest for most of the time, so they run at once.
    let seen = thread::scope(|scope| {
        let arms = ARMS.map(|(_, key)| scope.spawn(move || observe(path, key, length)));
        arms.map(|arm| arm.join().expect("the arm has run"))
    });
    let names = ARMS.map(|(name, _)| name);
    let mut table =
        Table::new(["arm", "sessions", "servers", "sessions of a server", "MB of the largest"]);
    for (name, seen) in names.iter().zip(&seen) {
        let counts = [seen.all_sessions(), seen.sessions.len(), seen.most_sessions()];
        let [all, servers, most] = counts.map(|count| count.to_string());
        table.row([(*name).to_owned(), all, servers, most, format!("{:.2}", seen.late_mb())]);
    }
    table.write(&format!("recycling-{}", path.file()), run);
    let panel = Panel {
        title: format!("Private memory of {SERVERS} servers, {}", path.name()),
        across: Axis::Numbers("sessions"),
        up: Axis::Numbers("MB"),
        lines: seen.each_ref().map(|seen| seen.memory.clone()).to_vec(),
    };
    run.write(&format!("recycling-{}.svg", path.file()), &chart(&names, &[panel]));
    let [none, age, uses, memory] = &seen;
    let by_uses = match path {
        // A session is one use.
        Path::Proxied | Path::Builtin => uses.most_sessions() <= USES_MAX,
        Path::Direct => uses.why == "server_max_uses",
    };
    let proxied = match path {
        Path::Proxied | Path::Builtin => "",
        Path::Direct => {
            ", in a proxied pool: Weir does not see how often a lobby's backends are used"
        }
    };
    let figure = format!(
        "the largest server has {:.1} MB without recycling, {:.1} MB with an age of 3 s ({} servers), \
         {:.1} MB with {USES_MAX} uses ({} servers{proxied}), {:.1} MB with a limit of {LIMIT_MB} MB \
         ({} servers)",
        none.late_mb(),
        age.late_mb(),
        age.sessions.len(),
        uses.late_mb(),
        uses.sessions.len(),
        memory.late_mb(),
        memory.sessions.len(),
    );
    let is_smaller = [age, uses, memory].iter().all(|arm| arm.late_mb() < none.late_mb());
    let are_new = [age, uses, memory].iter().all(|arm| arm.sessions.len() > none.sessions.len());
    let is_kept = none.sessions.len() <= SERVERS;
    Verdict::of(is_kept && is_smaller && are_new && by_uses, figure)
}

/// Runs one arm: clients connect, read some tables and leave, until the time is over.
fn observe(path: Path, key: Option<(&str, usize)>, length: Duration) -> Seen {
    let mut wish = Wish::new(&[DATABASE], &[USER])
        .key("default_pool_size", SERVERS)
        .key("server_round_robin", 1);
    if let Some((key, value)) = key {
        wish = wish.key(key, value);
    }
    let site = Site::start(path, &wish);
    tables::make(&site, DATABASE, TABLES);
    let done = AtomicUsize::new(0);
    let is_over = AtomicBool::new(false);
    let sessions = Mutex::new(HashMap::new());
    let (mut memory, mut largest) = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        for seed in 0..SERVERS {
            let (site, done, is_over, sessions) = (&site, &done, &is_over, &sessions);
            scope.spawn(move || {
                let mut dice = Dice::new(seed as u64);
                while !is_over.load(Ordering::Relaxed) {
                    let server = session(site, &mut dice);
                    done.fetch_add(1, Ordering::Relaxed);
                    *sessions.lock().expect("no panic").entry(server).or_insert(0) += 1;
                    thread::park_timeout(BETWEEN_SESSIONS);
                }
            });
        }
        let _over = Over(&is_over);
        let mut superuser = site.superuser("postgres");
        let began = Instant::now();
        while began.elapsed() < length {
            let servers = servers(&mut superuser);
            memory.push((done.load(Ordering::Relaxed) as f64, private_mb(&servers)));
            largest.push(servers.iter().map(|server| private_mb(&[*server])).fold(0.0, f64::max));
            thread::park_timeout(BETWEEN_SAMPLES);
        }
    });
    let (_, why) = site.data_path(USER, DATABASE);
    Seen { memory, largest, sessions: sessions.into_inner().expect("no panic"), why }
}

/// One session. Returns the server on which it began.
fn session(site: &Site, dice: &mut Dice) -> u32 {
    let mut client = site.client(USER, DATABASE);
    let server = pid(&mut client);
    tables::read(&mut client, tables::drawn(dice, READS, TABLES));
    quit(client);
    server
}

/// Returns the servers of the pool.
fn servers(superuser: &mut RawClient) -> Vec<u32> {
    let sql = format!(
        "SELECT pid FROM pg_stat_activity WHERE usename = '{USER}' AND datname = '{DATABASE}'"
    );
    let rows = superuser.rows(&sql);
    rows.iter().filter_map(|row| row[0].as_ref()?.parse().ok()).collect()
}
