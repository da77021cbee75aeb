//! The live demo: how to connect, and one line per second about the pooler.

use std::{
    io::{self, IsTerminal as _, Write as _},
    pin::pin,
    process::ExitCode,
    task::{Context, Waker},
    thread,
    time::{Duration, Instant},
};

use anyhow::bail;
use engine::{figures::PoolFigures, histogram::Histogram};

use super::{
    child::TICK,
    cluster::Cluster,
    library,
    names::{DEMO, LOOPBACK, MODES},
    pooler::Running,
    terminal::say,
};
use crate::sys;

const PERIOD: Duration = Duration::from_secs(1);

/// Shows the pooler at work until the user interrupts it, as intended, or the console shuts it
/// down.
///
/// # Errors
/// When PostgreSQL ends before, or the library does not report.
pub(super) fn run(
    cluster: &mut Cluster,
    running: &Running,
    loads_library: bool,
) -> anyhow::Result<ExitCode> {
    introduce(cluster, running);
    let _holder = loads_library.then(|| library::show(cluster, running.port)).transpose()?;
    let terminal = io::stdout().is_terminal();
    let mut before = running.pooler.totals();
    let mut then = Instant::now();
    let controller = running.pooler.controller();
    let mut ended = pin!(controller.ended());
    let mut context = Context::from_waker(Waker::noop());
    while !sys::terminated() {
        if ended.as_mut().poll(&mut context).is_ready() {
            say("\nWeir was shut down from its console");
            return Ok(ExitCode::SUCCESS);
        }
        if !cluster.is_running() {
            bail!("PostgreSQL has ended by itself");
        }
        thread::sleep(TICK);
        if then.elapsed() < PERIOD {
            continue;
        }
        let (now, totals) = (Instant::now(), running.pooler.totals());
        show(&line(&before, &totals, now - then), terminal);
        (then, before) = (now, totals);
    }
    if terminal {
        say("");
    }
    Ok(ExitCode::SUCCESS)
}

fn introduce(cluster: &Cluster, running: &Running) {
    let (port, password) = (running.port, &cluster.password);
    let url =
        |database: &str| format!("postgresql://{DEMO}:{password}@{LOOPBACK}:{port}/{database}");
    say("\nWeir is up. Connect to it as to PostgreSQL:\n");
    say(&format!("    psql \"{}\"\n", url(DEMO)));
    say("The same database in another pool mode, and the console (try SHOW POOLS):\n");
    for (database, mode) in MODES.iter().filter(|(database, _)| *database != DEMO) {
        say(&format!("    psql \"{}\"   # {mode}", url(database)));
    }
    say(&format!("    psql \"{}\"", url("pgbouncer")));
    say("\nCtrl-C stops and removes everything.\n");
}

/// Returns the line about the change between two readings of the counters.
fn line(before: &PoolFigures, now: &PoolFigures, elapsed: Duration) -> String {
    let counted = now.stats - before.stats;
    let p99 =
        |now: &Histogram, before: &Histogram| now.since(before).per_mille(990) as f64 / 1_000.0;
    let (durations, earlier) = (&now.durations, &before.durations);
    format!(
        "clients {:>5}  waiting {:>5}  servers {:>3}, pinned {:>3}  {:>7.0} tx/s  p99 {:.2} ms  \
         wait p99 {:.2} ms",
        now.clients.logged_in(),
        now.clients.waiting,
        now.servers.all(),
        now.servers.pinned,
        counted.transactions as f64 / elapsed.as_secs_f64(),
        p99(&durations.transaction, &earlier.transaction),
        p99(&durations.wait, &earlier.wait),
    )
}

/// Shows a line. On a terminal it replaces the previous one.
fn show(line: &str, terminal: bool) {
    if !terminal {
        return say(line);
    }
    let mut out = io::stdout().lock();
    let _ = write!(out, "\r{line}\x1b[K");
    let _ = out.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_about_the_last_period_only() {
        let mut before = PoolFigures::default();
        before.stats.transactions = 1_000;
        before.durations.transaction.record(10_000_000);
        let mut now = before.clone();
        (now.clients.active, now.clients.waiting) = (3, 17);
        (now.servers.active, now.servers.idle, now.servers.pinned) = (3, 1, 2);
        now.stats.transactions = 1_500;
        now.durations.transaction.record_all(1_500, 500);
        now.durations.wait.record_all(500, 500);
        assert_eq!(
            line(&before, &now, Duration::from_millis(500)),
            "clients    20  waiting    17  servers   4, pinned   2     1000 tx/s  p99 1.94 ms  \
             wait p99 0.97 ms"
        );
        assert!(line(&now, &now, PERIOD).ends_with("0 tx/s  p99 0.00 ms  wait p99 0.00 ms"));
    }
}
