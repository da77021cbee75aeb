//! A flood: one client sends many more messages than usual. The benchmark measures the pooler's CPU
//! time for a message in short floods and in a long one, and the time that another client waits for
//! its answers meanwhile.
//!
//! The other client runs in a thread of its own on the peers' core.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use net::sys::Address;
use serde_json::{Value, json};

use crate::load::{Load, Stop};
use crate::pattern::Pattern;
use crate::process::Threads;
use crate::reactor::Reactor;
use crate::traffic::{Credentials, Protocol, Traffic, Work};

/// Messages in a short flood and in a long one.
pub(crate) const SHORT: u64 = 1_000;
pub(crate) const LONG: u64 = 1_000_000;
/// Short floods that are measured together, and short floods before them.
const SHORT_FLOODS: u64 = 100;
const WARM_UP_FLOODS: u64 = 20;
/// If a flood makes no progress for this long, the pooler has lost a message.
const STALLED: Duration = Duration::from_secs(60);
const TURN_MAX: Duration = Duration::from_millis(20);

/// The parameters of a flood measurement.
#[derive(Debug, Clone)]
pub(crate) struct Flood {
    pub(crate) pooler: Address,
    pub(crate) pattern: Pattern,
    /// Minimum time during which the other client sends queries.
    pub(crate) interval: Duration,
    /// The pooler's process id.
    pub(crate) watch: u32,
}

/// The result of a flood measurement. A cost is NaN if the pooler ended the client's connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FloodOutcome {
    /// The pooler's CPU time for a message of a short flood, in microseconds.
    pub(crate) short_us: f64,
    pub(crate) long_us: f64,
    /// The longest time that the other client waited for an answer.
    pub(crate) wait: Duration,
    /// Answers that the other client got.
    answers: u64,
}

impl FloodOutcome {
    /// Returns the cost of a message in a long flood, divided by that in a short one.
    pub(crate) fn growth(self) -> f64 {
        self.long_us / self.short_us
    }

    pub(crate) fn to_json(self) -> Value {
        json!({
            "short_us": self.short_us,
            "long_us": self.long_us,
            "wait_us": self.wait.as_micros() as u64,
            "answers_of_the_other": self.answers,
        })
    }
}

impl Flood {
    /// # Errors
    /// When the other client is refused or dropped, or gets a wrong answer.
    pub(crate) fn measure(&self, reactor: &mut Reactor) -> Result<FloodOutcome> {
        self.floods(reactor, SHORT, WARM_UP_FLOODS)?;
        let short_us = self.cost(reactor, SHORT, SHORT_FLOODS)?;
        let long_us = self.cost(reactor, LONG, 1)?;
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let other = scope.spawn(|| self.ask(&is_over));
            let flooded = self.flood_for(reactor);
            is_over.store(true, Ordering::Relaxed);
            // The answers to the other client come from the canned server, which this thread runs.
            while !other.is_finished() {
                reactor.turn(TURN_MAX)?;
            }
            let (wait, answers) = other.join().expect("the other client does not panic")?;
            flooded?;
            Ok(FloodOutcome { short_us, long_us, wait, answers })
        })
    }

    fn cost(&self, reactor: &mut Reactor, messages: u64, count: u64) -> Result<f64> {
        self.log_in(reactor)?;
        let before = Threads::of(self.watch)?;
        let is_whole = self.floods(reactor, messages, count)?;
        let used = Threads::of(self.watch)?.since(&before).cpu.run_ns as f64 / 1e3;
        Ok(if is_whole { used / (messages * count) as f64 } else { f64::NAN })
    }

    fn flood_for(&self, reactor: &mut Reactor) -> Result<()> {
        let began = Instant::now();
        while began.elapsed() < self.interval {
            self.floods(reactor, LONG, 1)?;
        }
        Ok(())
    }

    fn log_in(&self, reactor: &mut Reactor) -> Result<()> {
        let load = Load {
            pooler: self.pooler.clone(),
            clients: 1,
            warm_up: Duration::ZERO,
            stop: Stop::AtCount(0),
            watch: None,
        };
        load.log_in(reactor, 1)
    }

    /// Runs `count` floods, one after another. Returns false if the pooler ended the connection.
    fn floods(&self, reactor: &mut Reactor, messages: u64, count: u64) -> Result<bool> {
        self.log_in(reactor)?;
        reactor.traffic.work = Work::Flood { pattern: self.pattern, messages };
        for _ in 0..count {
            let until = reactor.traffic.transactions + messages;
            reactor.each_client(|client, traffic, out| client.ask(traffic, out))?;
            let (mut progress, mut moved) = (0, Instant::now());
            while reactor.traffic.transactions < until {
                reactor.turn(TURN_MAX)?;
                if reactor.traffic.ready == 0 {
                    return Ok(false);
                }
                let now = reactor.traffic.progress();
                if now != progress {
                    (progress, moved) = (now, Instant::now());
                }
                ensure!(moved.elapsed() < STALLED, "no answers to a flood for {STALLED:?}");
            }
        }
        Ok(true)
    }

    /// Runs the other client, which sends one query after another. Returns its longest wait and the
    /// number of its answers.
    fn ask(&self, is_over: &AtomicBool) -> Result<(Duration, u64)> {
        let work = Work::Query(Protocol::Simple);
        let mut reactor = Reactor::new(Traffic::new(work, Credentials::usual()))?;
        self.log_in(&mut reactor)?;
        reactor.begin()?;
        while !is_over.load(Ordering::Relaxed) {
            reactor.turn(TURN_MAX)?;
        }
        // Wait for the answer that is still to come, since it counts as well.
        let answers = reactor.traffic.transactions;
        reactor.traffic.running = false;
        while reactor.traffic.transactions == answers {
            reactor.turn(TURN_MAX)?;
        }
        Ok((Duration::from_micros(reactor.traffic.latency.max_us()), answers))
    }
}
