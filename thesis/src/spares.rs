//! A load that rises tenfold and falls again: spare servers are ready ahead of it, and are fewer than
//! a pool of the largest size would have.
//!
//! The wait for a server is Weir's own figure: from a request until its client has a server. It does not
//! depend on how soon the threads of the clients run. Its histogram has bounds at powers of two, and
//! the bound above each wait counts. The times that the clients measure are in the table as well.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use admin::{Axis, Panel, chart};
use load::{Histogram, Summary};
use testkit::{RawClient, eventually, free_port};

use crate::requirement::Requirement;
use crate::results::{Table, Verdict};
use crate::run::Run;
use crate::site::{PATIENCE, Path, Site, Wish};

pub(crate) const ALL: &[Requirement] =
    &[Requirement { name: "spare servers follow the load", show: spares }];

const DATABASE: &str = "bsu";
const USER: &str = "dbuser1";
/// The load, in transactions at a time.
const LOW: f64 = 4.0;
const HIGH: f64 = 40.0;
/// The shares of the run after which the load begins to rise, is high, begins to fall, and is low.
const RISES: [f64; 4] = [0.3, 0.5, 0.58, 0.7];
/// The time for which a transaction keeps its server.
const HOLD: Duration = Duration::from_millis(400);
/// Enough clients that one is free for each transaction.
const CLIENTS: usize = 64;
/// The time between two counts of the servers.
const SAMPLE: Duration = Duration::from_millis(100);
const MIN_SPARES: usize = 4;
const MAX_SPARES: usize = 6;
/// The goals, compared with a pool that always has the largest size.
const WAIT_MAX: f64 = 1.2;
const SERVERS_MAX: f64 = 0.6;

/// A way to have servers ready.
#[derive(Clone, Copy, Debug)]
struct Arm {
    name: &'static str,
    least: usize,
    spares: (usize, usize),
}

const ARMS: [Arm; 3] = [
    Arm { name: "none", least: 0, spares: (0, 0) },
    Arm { name: "all", least: HIGH as usize, spares: (0, 0) },
    Arm { name: "spares", least: 0, spares: (MIN_SPARES, MAX_SPARES) },
];

impl Arm {
    fn keys(self) -> String {
        match self.spares {
            (0, _) => format!("min_pool_size = {}", self.least),
            (min, max) => format!("min_spare_servers = {min}, max_spare_servers = {max}"),
        }
    }

    fn start(self, path: Path, metrics: u16) -> Site {
        let wish = Wish::new(&[DATABASE], &[USER])
            .key("pool_mode", "transaction")
            .key("min_pool_size", self.least)
            .key("min_spare_servers", self.spares.0)
            .key("max_spare_servers", self.spares.1)
            .key("metrics_port", metrics)
            .setting("max_connections = 120");
        Site::start(path, &wish)
    }
}

/// One run of one arm.
#[derive(Debug, Default)]
struct Measured {
    /// When each transaction began, and how long its first answer took, in seconds and milliseconds.
    answers: Vec<(f64, f64)>,
    /// The numbers of clients that have waited for a server, by the upper bounds in milliseconds.
    waits: Vec<(f64, u64)>,
    /// The servers at each sample, with its time in seconds.
    servers: Vec<(f64, f64)>,
}

impl Measured {
    /// Returns a percentile of the waits for a server.
    fn wait(&self, share: f64) -> f64 {
        let all: u64 = self.waits.iter().map(|(_, count)| count).sum();
        let mut left = (all as f64 * share).ceil() as u64;
        let reached = self.waits.iter().find(|(_, count)| {
            left = left.saturating_sub(*count);
            left == 0
        });
        reached.map_or(0.0, |(bound, _)| *bound)
    }

    /// Returns a percentile of the times until the first answer.
    fn answer(&self, share: f64) -> f64 {
        let mut times = Histogram::new();
        self.answers.iter().for_each(|(_, took)| times.record(Duration::from_secs_f64(took / 1e3)));
        times.percentile_us(share) as f64 / 1e3
    }

    fn server_seconds(&self) -> f64 {
        self.servers.windows(2).map(|pair| (pair[1].0 - pair[0].0) * pair[0].1).sum()
    }

    /// The longest time until a first answer, in each second.
    fn longest(&self) -> Vec<(f64, f64)> {
        let end = self.answers.iter().map(|(at, _)| *at as usize).max().unwrap_or(0);
        let of = |second: usize| {
            let own = self.answers.iter().filter(|(at, _)| *at as usize == second);
            (second as f64 + 0.5, own.map(|(_, took)| *took).fold(0.0, f64::max))
        };
        (0..=end).map(of).collect()
    }
}

/// Returns the wanted number of transactions at a time.
fn demand(at: f64, length: f64) -> f64 {
    let [rises, high, falls, low] = RISES.map(|share| share * length);
    let between = |from: f64, to: f64| ((at - from) / (to - from)).clamp(0.0, 1.0);
    LOW + (HIGH - LOW) * (between(rises, high) - between(falls, low))
}

/// Returns when the transactions of a run begin.
fn arrivals(length: Duration) -> Vec<Duration> {
    const STEP: Duration = Duration::from_millis(1);
    let (mut due, mut all) = (0.0, Vec::new());
    for step in 0..length.as_millis() as u32 {
        let at = STEP * step;
        due += demand(at.as_secs_f64(), length.as_secs_f64()) / HOLD.as_secs_f64() * 1e-3;
        if due >= 1.0 {
            due -= 1.0;
            all.push(at);
        }
    }
    all
}

/// Returns the counts of Weir's histogram of waits, by the upper bounds in milliseconds, on its page of
/// metrics.
fn histogram(port: u16) -> Option<Vec<(f64, u64)>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").ok()?;
    let mut page = String::new();
    stream.read_to_string(&mut page).ok()?;
    let of_pool = format!("database=\"{DATABASE}\"");
    let (mut below, mut counts) = (0, Vec::new());
    for line in page.lines().filter(|line| line.contains(&of_pool)) {
        let Some(rest) = line.strip_prefix("weir_pool_wait_seconds_bucket{") else { continue };
        let bound = rest.split("le=\"").nth(1)?.split('"').next()?.parse::<f64>().ok()?;
        let count = rest.rsplit(' ').next()?.parse::<f64>().ok()? as u64;
        counts.push((bound * 1e3, count - below));
        below = count;
    }
    (!counts.is_empty()).then_some(counts)
}

/// Waits until the histogram has so many more waits than before. Returns these.
fn waits_since(before: &[(f64, u64)], more: usize, port: u16) -> Vec<(f64, u64)> {
    eventually("all waits are on the page of metrics", PATIENCE, || {
        let now = histogram(port)?;
        let of = |(now, then): (&(f64, u64), &(f64, u64))| (now.0, now.1 - then.1);
        let since: Vec<_> = now.iter().zip(before).map(of).collect();
        (since.iter().map(|(_, count)| count).sum::<u64>() >= more as u64).then_some(since)
    })
}

/// Each client runs every so many transactions, at their times. Returns when they began, and the times
/// until their first answers.
fn transactions(
    client: &mut RawClient,
    times: impl Iterator<Item = Duration>,
    began: Instant,
) -> Vec<(f64, f64)> {
    let mut answers = Vec::new();
    for at in times {
        thread::sleep(at.saturating_sub(began.elapsed()));
        let asked = Instant::now();
        client.rows("BEGIN");
        answers.push((at.as_secs_f64(), asked.elapsed().as_secs_f64() * 1e3));
        thread::sleep(HOLD);
        client.rows("COMMIT");
    }
    answers
}

fn measure(arm: Arm, path: Path, length: Duration) -> Measured {
    let metrics = free_port();
    let site = arm.start(path, metrics);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| site.client(USER, DATABASE)).collect();
    let mut watch = site.superuser("postgres");
    let mut count = move || -> f64 {
        let of_pool = format!("datname = '{DATABASE}' AND usename = '{USER}'");
        let count = watch.value(&format!("SELECT count(*) FROM pg_stat_activity WHERE {of_pool}"));
        count.parse().expect("a number")
    };
    let least = arm.least.max(arm.spares.0) as f64;
    eventually("the servers that are kept ready", PATIENCE, || (count() >= least).then_some(()));
    let before = eventually("a page of metrics", PATIENCE, || histogram(metrics));
    let times = arrivals(length);
    let began = Instant::now();
    let mut measured = thread::scope(|scope| {
        let each = clients.iter_mut().enumerate();
        let running: Vec<_> = each
            .map(|(at, client)| {
                let own = times.iter().copied().skip(at).step_by(CLIENTS);
                scope.spawn(move || transactions(client, own, began))
            })
            .collect();
        let mut measured = Measured::default();
        while began.elapsed() < length {
            measured.servers.push((began.elapsed().as_secs_f64(), count()));
            thread::sleep(SAMPLE);
        }
        measured.servers.push((began.elapsed().as_secs_f64(), count()));
        for client in running {
            measured.answers.extend(client.join().expect("it has ended"));
        }
        measured
    });
    measured.waits = waits_since(&before, times.len(), metrics);
    measured
}

/// Runs the load by turns with no server kept ready, with all of them, and with spare ones.
fn spares(run: &Run, path: Path) -> Verdict {
    if path == Path::Direct {
        return Verdict::NotHere("a lobby keeps its idle backends until server_idle_timeout");
    }
    let length = Duration::from_secs(run.count(24, 15) as u64);
    let rounds = run.count(2, 1);
    let mut all: [Vec<Measured>; 3] = Default::default();
    for _ in 0..rounds {
        for (arm, measured) in ARMS.into_iter().zip(&mut all) {
            measured.push(measure(arm, path, length));
        }
    }
    write(run, path, &all, length.as_secs_f64());
    let median = |of: &dyn Fn(&Measured) -> f64| {
        let median = |runs: &Vec<Measured>| Summary::of(runs.iter().map(of).collect());
        all.each_ref().map(|runs| median(runs).expect("there are runs").median)
    };
    let [none, peak, spares] = median(&|one| one.wait(0.99));
    let [_, first_peak, first_spares] = median(&|one| one.answer(0.99));
    let seconds = median(&Measured::server_seconds);
    let (waits, servers) = (spares / peak, seconds[2] / seconds[1]);
    let figure = format!(
        "p99 of the wait, rounded up to a power of two: {spares:.2} ms with spare servers, {peak:.2} \
         with {HIGH} servers, {none:.2} with none ready: {waits:.2}, at most {WAIT_MAX} (until the \
         first answer {first_spares:.2} and {first_peak:.2} ms); server seconds {:.0} and {:.0}: \
         {servers:.2}, at most {SERVERS_MAX}",
        seconds[2], seconds[1]
    );
    if none <= peak {
        return Verdict::Failed(format!("the load needs no servers ahead of it: {figure}"));
    }
    Verdict::of(waits <= WAIT_MAX && servers <= SERVERS_MAX, figure)
}

/// Writes the table of all runs, and the plot of the first one of each arm.
fn write(run: &Run, path: Path, all: &[Vec<Measured>; 3], length: f64) {
    let mut table = Table::new([
        "arm",
        "keys",
        "transactions",
        "p99 of the wait (ms, below)",
        "longest wait",
        "p50 until the first answer (ms)",
        "p99",
        "server seconds",
        "most servers",
    ]);
    for (arm, runs) in ARMS.into_iter().zip(all) {
        for one in runs {
            let most = one.servers.iter().map(|(_, count)| *count).fold(0.0, f64::max);
            let waits = [0.99, 1.0].map(|share| format!("{:.3}", one.wait(share)));
            let answers = [0.5, 0.99].map(|share| format!("{:.3}", one.answer(share)));
            let ([wait, longest], [half, answer]) = (waits, answers);
            table.row([
                arm.name.to_owned(),
                arm.keys(),
                one.answers.len().to_string(),
                wait,
                longest,
                half,
                answer,
                format!("{:.0}", one.server_seconds()),
                format!("{most}"),
            ]);
        }
    }
    let name = format!("spares-{}", path.name().replace(' ', "-"));
    table.write(&name, run);
    let wanted = (0..=length as u32 * 4).map(|at| f64::from(at) / 4.0);
    let wanted: Vec<_> = wanted.map(|at| (at, demand(at, length))).collect();
    let mut names = ARMS.map(Arm::keys).to_vec();
    names.push("the load: transactions at a time".to_owned());
    let firsts = || all.iter().filter_map(|runs| runs.first());
    let servers = firsts().map(|one| one.servers.clone()).chain([wanted]).collect();
    let waits = firsts().map(Measured::longest).collect();
    let panel = |title: &str, unit, lines| Panel {
        title: title.to_owned(),
        across: Axis::Numbers("s"),
        up: Axis::Numbers(unit),
        lines,
    };
    let panels = [
        panel("Servers", "servers", servers),
        panel("Longest time until the first answer in each second", "ms", waits),
    ];
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    run.write(&format!("{name}.svg"), &chart(&names, &panels));
}
