//! The live table: a line for each node, one for the clients, and keys.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal as _, Read as _},
    process::{Command, ExitCode, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use super::super::{child::TICK, names::DEMO, terminal::say};
use super::{Trio, nodes::NAMES};
use crate::sys;

const PERIOD: Duration = Duration::from_secs(1);

/// Single keys are read while it lives.
struct Keys {
    pressed: Receiver<u8>,
    is_terminal: bool,
}

impl Keys {
    fn start() -> Self {
        let is_terminal = io::stdin().is_terminal();
        if is_terminal {
            set_terminal(&["-icanon", "-echo"]);
        }
        let (sender, pressed) = mpsc::channel();
        // It ends with the process.
        thread::spawn(move || {
            let mut keys = io::stdin().lock().bytes();
            while let Some(Ok(key)) = keys.next() {
                if sender.send(key).is_err() {
                    return;
                }
            }
        });
        Self { pressed, is_terminal }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if self.is_terminal {
            set_terminal(&["icanon", "echo"]);
        }
    }
}

/// Without `stty`, each key needs Enter.
fn set_terminal(arguments: &[&str]) {
    let _ = Command::new("stty").args(arguments).stdin(Stdio::inherit()).status();
}

/// Shows the cluster at work until the user interrupts it.
pub(super) fn run(trio: &mut Trio) -> anyhow::Result<ExitCode> {
    let password = trio.nodes.password();
    let port = trio.running.port;
    say("\nWeir runs, and eight clients write through it. The database and the console:\n");
    say(&format!("    psql \"postgresql://{DEMO}:{password}@127.0.0.1:{port}/{DEMO}\""));
    say(&format!("    psql \"postgresql://{DEMO}:{password}@127.0.0.1:{port}/pgbouncer\"\n"));
    say("k = kill the primary, s = switch over, p = pause or resume a standby, q = end\n");
    let keys = Keys::start();
    let mut paused: Option<usize> = None;
    let (mut then, mut before) = (Instant::now(), trio.writers.told().acknowledged);
    while !sys::terminated() {
        trio.serve()?;
        match keys.pressed.try_recv() {
            Ok(b'k') => kill(trio)?,
            Ok(b's') => switch(trio, paused)?,
            Ok(b'p') => paused = pause(trio, paused)?,
            Ok(b'q') => break,
            Ok(_) | Err(_) => {}
        }
        thread::sleep(TICK);
        if then.elapsed() >= PERIOD {
            let written = trio.writers.told().acknowledged;
            let rate = (written - before) as f64 / then.elapsed().as_secs_f64();
            say(&table(trio, rate));
            trio.writers.begin();
            (then, before) = (Instant::now(), written);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn kill(trio: &mut Trio) -> anyhow::Result<()> {
    let Some(primary) = trio.primary() else { return Ok(()) };
    say(&format!("killing node {}", NAMES[primary]));
    trio.nodes.kill(primary)
}

/// Switches over to the first standby that replays.
fn switch(trio: &mut Trio, paused: Option<usize>) -> anyhow::Result<()> {
    let states = trio.states().into_iter().enumerate();
    let mut fit = states.filter(|(at, state)| *state == "readable" && Some(*at) != paused);
    let Some((to, _)) = fit.next() else {
        say("no standby can become the primary now");
        return Ok(());
    };
    say(&format!("switching over to node {}", NAMES[to]));
    if let Err(why) = trio.switch_over(to)? {
        say(why.trim_end());
    }
    Ok(())
}

fn pause(trio: &Trio, paused: Option<usize>) -> anyhow::Result<Option<usize>> {
    let readable = || trio.states().iter().position(|state| *state == "readable");
    let (at, order) = match paused {
        Some(at) => (Some(at), "resume"),
        None => (readable(), "pause"),
    };
    let Some(at) = at else { return Ok(None) };
    say(&format!("{order} of the replay on node {}", NAMES[at]));
    // A node that was promoted meanwhile replays nothing.
    if let Err(error) = trio.nodes.sql(at, DEMO, &format!("SELECT pg_wal_replay_{order}();\n")) {
        say(&format!("{error:#}"));
    }
    Ok(if paused.is_some() { None } else { Some(at) })
}

fn table(trio: &Trio, rate: f64) -> String {
    let mut text = String::new();
    let clusters = trio.pooler().controller().clusters();
    for node in clusters.into_iter().flat_map(|cluster| cluster.nodes) {
        let lag = node.lag_bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
        let _ = writeln!(
            text,
            "node {}  {:<8}  {:<13}  timeline {:>2}  lag {lag:>9}  {}",
            node.name, node.role, node.verdict, node.timeline, node.reason
        );
    }
    let told = trio.writers.told();
    let errors: u32 = told.errors.iter().sum();
    let figures = trio.pooler().totals();
    let _ = write!(
        text,
        "clients  {rate:>6.0} tx/s  longest {:>6.0} ms  errors {errors}  waiting {}  servers {}\n{}",
        told.longest.as_secs_f64() * 1_000.0,
        figures.clients.waiting,
        figures.servers.all(),
        told.last_error
    );
    text
}
