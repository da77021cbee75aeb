//! The thesis' comparison with PHP, which it had to give up: direct connections, PHP's persistent
//! connections (`pg_pconnect`), and a pool.
//!
//! A persistent connection belongs to one process of PHP and one user, and outlives the requests of
//! that process. So each worker is `php -S`, a process that serves request after request, as those of
//! PHP-FPM and of Apache do. A script goes to another worker each time.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path as File, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use load::Summary;
use testkit::{eventually, folder, free_port, give_away, mortal_command};

use crate::requirement::Requirement;
use crate::results::{Table, Verdict};
use crate::run::{Over, Run};
use crate::site::{PATIENCE, Path, Site, Wish};
use crate::workloads;

pub(crate) const ALL: &[Requirement] =
    &[Requirement { name: "php without persistent connections", show: compare }];

const PAGE: &str = include_str!("php/session.php");
const DATABASE: &str = "bsu";
const USERS: [&str; 4] = ["dbuser1", "dbuser2", "dbuser3", "dbuser4"];
/// Each user runs the script so often at once.
const OF_USER: usize = 7;
const WORKERS: usize = USERS.len() * OF_USER;
/// The servers of each user's pool: as many as its scripts, so that all ways have the same number of
/// busy backends.
const POOL: usize = OF_USER;
/// A script runs its queries so often, as in the thesis.
const LOOPS: usize = 10;
/// Pooled scripts take at most this part of the time with persistent connections.
const PERSISTENT_MAX: f64 = 1.1;
const REQUEST_MAX: Duration = Duration::from_secs(60);

/// The ways to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arm {
    Direct,
    Persistent,
    Pooled,
}

impl Arm {
    const ALL: [Self; 3] = [Self::Direct, Self::Persistent, Self::Pooled];

    fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Persistent => "persistent",
            Self::Pooled => "pooled",
        }
    }

    fn port(self, site: &Site) -> u16 {
        match self {
            Self::Direct | Self::Persistent => site.port(),
            Self::Pooled => site.weir_port(),
        }
    }
}

/// A process of PHP that serves one request at a time.
#[derive(Debug)]
struct Worker {
    process: Child,
    port: u16,
}

impl Worker {
    fn start(page: &File) -> Self {
        let port = free_port();
        let mut command = mortal_command("php");
        command.arg("-S").arg(format!("127.0.0.1:{port}")).arg(page);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("setpriv runs");
        Self { process, port }
    }

    fn wait_until_ready(&self) {
        eventually("php -S listens", PATIENCE, || {
            TcpStream::connect(("127.0.0.1", self.port)).ok()
        });
    }

    /// Runs the script as this user, and returns what it has printed.
    fn run(&self, arm: Arm, port: u16, user: &str, loops: usize) -> Session {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("php -S runs");
        stream.set_read_timeout(Some(REQUEST_MAX)).expect("a time above zero");
        let arm = arm.name();
        let request =
            format!("GET /?arm={arm}&port={port}&user={user}&loops={loops} HTTP/1.0\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("php -S reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("php -S answers");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let words: Vec<_> = body.split(' ').collect();
        let [connected, total, answers] = words[..] else {
            panic!("{arm} as {user}: {head}: {body}");
        };
        let ms = |word: &str| word.parse::<f64>().expect("microseconds") / 1e3;
        Session { connected: ms(connected), total: ms(total), answers: answers.to_owned() }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The times of one script in milliseconds, and a digest of the answers.
#[derive(Clone, Debug)]
struct Session {
    connected: f64,
    total: f64,
    answers: String,
}

/// The results of one arm so far.
#[derive(Debug, Default)]
struct Seen {
    /// The seconds of each round.
    seconds: Vec<f64>,
    sessions: Vec<Session>,
    backends: usize,
}

/// Runs all arms by turns, several times.
fn compare(run: &Run, path: Path) -> Verdict {
    if let Err(why) = check_php() {
        return Verdict::Failed(why);
    }
    let wish = Wish::new(&[DATABASE], &USERS)
        .key("default_pool_size", POOL)
        .setting("max_connections = 200");
    let site = Site::start(path, &wish);
    workloads::fill(&site, DATABASE, 600);
    let page = page();
    let mut seen = Arm::ALL.map(|arm| (arm, Seen::default()));
    for _ in 0..run.count(3, 2) {
        for (arm, seen) in &mut seen {
            round(&site, *arm, &page, run.count(3, 1), seen);
        }
    }
    tell(run, path, &seen)
}

/// Starts new workers, since persistent connections end with these. Each of them has answered before
/// the time counts.
fn round(site: &Site, arm: Arm, page: &File, times: usize, seen: &mut Seen) {
    let workers: Vec<_> = (0..WORKERS).map(|_| Worker::start(page)).collect();
    workers.iter().for_each(Worker::wait_until_ready);
    let port = arm.port(site);
    // Persistent connections are there when the time begins, and so are a pool's servers.
    for first in 0..USERS.len() {
        scripts(&workers, arm, port, first, 1);
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let over = Over(&is_over);
        let watch = scope.spawn(|| most_backends(site, arm, &is_over));
        let began = Instant::now();
        for turn in 0..times {
            seen.sessions.extend(scripts(&workers, arm, port, turn, LOOPS));
        }
        seen.seconds.push(began.elapsed().as_secs_f64());
        drop(over);
        seen.backends = seen.backends.max(watch.join().expect("it has ended"));
    });
    drop(workers);
    eventually("the backends of the workers have ended", PATIENCE, || {
        (arm == Arm::Pooled || backends(site, arm) == 0).then_some(())
    });
}

/// Runs one script in each worker at once. `turn` chooses the user of each worker.
fn scripts(workers: &[Worker], arm: Arm, port: u16, turn: usize, loops: usize) -> Vec<Session> {
    thread::scope(|scope| {
        let start = |(at, worker): (usize, _)| {
            let worker: &Worker = worker;
            scope.spawn(move || worker.run(arm, port, USERS[(at + turn) % USERS.len()], loops))
        };
        let running: Vec<_> = workers.iter().enumerate().map(start).collect();
        running.into_iter().map(|one| one.join().expect("the script has run")).collect()
    })
}

/// Returns the number of backends of an arm.
fn backends(site: &Site, arm: Arm) -> usize {
    let of_arm = match arm {
        Arm::Direct | Arm::Persistent => format!("application_name = '{}'", arm.name()),
        // The backends of the other arms have ended.
        Arm::Pooled => "usename LIKE 'dbuser_'".to_owned(),
    };
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND {of_arm}"
    );
    let count = site.sql("postgres", &sql)[0][0].clone();
    count.and_then(|count| count.parse().ok()).expect("a number")
}

/// Returns the largest number of backends of an arm until it is over.
fn most_backends(site: &Site, arm: Arm, is_over: &AtomicBool) -> usize {
    let mut most = 0;
    while !is_over.load(Ordering::Relaxed) {
        most = most.max(backends(site, arm));
        thread::park_timeout(Duration::from_millis(50));
    }
    most
}

/// Writes the table and judges.
fn tell(run: &Run, path: Path, seen: &[(Arm, Seen)]) -> Verdict {
    let median = |times: Vec<f64>| Summary::of(times).expect("there are sessions").median;
    let mut table = Table::new([
        "arm",
        "wall, seconds",
        "connected, ms",
        "session, ms",
        "sessions",
        "backends",
    ]);
    let mut walls = Vec::new();
    for (arm, seen) in seen {
        // Other programs of the machine disturb some of the rounds.
        let wall = seen.seconds.iter().copied().fold(f64::INFINITY, f64::min);
        let connected = median(seen.sessions.iter().map(|one| one.connected).collect());
        let total = median(seen.sessions.iter().map(|one| one.total).collect());
        let [seconds, connected, total] = [wall, connected, total].map(|time| format!("{time:.3}"));
        let [count, backends] = [seen.sessions.len(), seen.backends].map(|n| n.to_string());
        table.row([arm.name().to_owned(), seconds, connected, total, count, backends]);
        walls.push(wall);
    }
    table.write(&format!("php-{}", path.file()), run);
    let mut answers = seen.iter().flat_map(|(_, seen)| &seen.sessions).map(|one| &one.answers);
    let first = answers.next().expect("there are sessions");
    if answers.any(|other| other != first) {
        return Verdict::Failed("the answers differ between arms".to_owned());
    }
    let [direct, persistent, pooled] = walls[..] else { unreachable!("three arms") };
    let [direct_n, persistent_n, pooled_n] = [0, 1, 2].map(|at| seen[at].1.backends);
    let pool = USERS.len() * POOL;
    let figure = format!(
        "{WORKERS} scripts at once, {} each way, best round: direct {direct:.2} s, persistent \
         {persistent:.2} s, pooled {pooled:.2} s: {:.2} of direct, {:.2} of persistent (at most \
         {PERSISTENT_MAX}); backends {direct_n}, {persistent_n}, {pooled_n} (pool size {pool})",
        seen[0].1.sessions.len(),
        pooled / direct,
        pooled / persistent,
    );
    let is_fast = pooled <= direct && pooled <= PERSISTENT_MAX * persistent;
    Verdict::of(is_fast && pooled_n <= pool, figure)
}

/// Writes the script where PHP may read it.
fn page() -> PathBuf {
    let folder = folder("php");
    give_away(&folder);
    let page = folder.join("session.php");
    fs::write(&page, PAGE).expect("our own folder");
    give_away(&page);
    page
}

/// Checks that PHP and its module for PostgreSQL are there.
fn check_php() -> Result<(), String> {
    let ask = "exit(extension_loaded('pgsql') ? 0 : 1);";
    match Command::new("php").args(["-r", ask]).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err("php lacks its module for PostgreSQL: install php-pgsql".to_owned()),
        Err(e) => Err(format!("php: {e}: install php-cli and php-pgsql")),
    }
}
