//! The live demo: how to connect, and a line a second on what the pooler does.

use std::{
    io::{self, IsTerminal as _, Write as _},
    pin::pin,
    process::ExitCode,
    task::{Context, Waker},
    thread,
    time::{Duration, Instant},
};

use anyhow::bail;
use proxy::Totals;

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

/// Shows the pooler at work until it is interrupted, which is how this is meant to end, or shut
/// down from the console.
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

/// The change between two looks at the counters.
fn line(before: &Totals, now: &Totals, elapsed: Duration) -> String {
    let xacts = now.xacts.saturating_sub(before.xacts);
    let wait_us = now.wait_us.saturating_sub(before.wait_us);
    format!(
        "clients {:>5}   waiting {:>5}   servers {:>3}   {:>8.0} tx/s   average wait {:.3} ms",
        now.clients,
        now.waiting,
        now.servers,
        xacts as f64 / elapsed.as_secs_f64(),
        wait_us as f64 / xacts.max(1) as f64 / 1000.0,
    )
}

/// On a terminal each line takes the place of the one before.
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
        let before = Totals { xacts: 1000, wait_us: 5_000_000, ..Totals::default() };
        let now = Totals {
            clients: 20,
            servers: 3,
            waiting: 17,
            xacts: 1500,
            wait_us: 6_000_000,
            ..before
        };
        assert_eq!(
            line(&before, &now, Duration::from_millis(500)),
            "clients    20   waiting    17   servers   3       1000 tx/s   average wait 2.000 ms"
        );
        assert!(line(&now, &now, PERIOD).ends_with("0 tx/s   average wait 0.000 ms"));
    }
}
