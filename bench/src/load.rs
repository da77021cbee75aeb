//! The load generator: has many clients work through a pooler for a while and measures what that
//! cost the pooler.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use load::Histogram;
use serde_json::{Value, json};

use crate::process::{Threads, Usage, resident_bytes};
use crate::reactor::Reactor;
use crate::socket::{Address, Stream};
use crate::traffic::Work;

/// Logins under way at once: fewer than any pooler's listen backlog, so that none is dropped by
/// the kernel and repeated a second later.
const LOGINS_MAX: usize = 50;
/// Nothing at all got done for so long: the pooler has lost a query.
const STALLED: Duration = Duration::from_secs(10);
/// The pooler has so long to notice that thousands have left, and to give back what they have used.
const LEAVING: Duration = Duration::from_secs(4);
const TURN_MAX: Duration = Duration::from_millis(20);

/// One load on one pooler.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    pub(crate) pooler: Address,
    pub(crate) clients: usize,
    pub(crate) warm_up: Duration,
    pub(crate) stop: Stop,
    /// The process whose CPU time and memory are read.
    pub(crate) watch: Option<u32>,
}

/// When the measured interval ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stop {
    After(Duration),
    /// So many transactions, or logins where those are measured.
    AtCount(u64),
}

/// What was done between two moments, and what it cost.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) seconds: f64,
    pub(crate) transactions: u64,
    pub(crate) logins: u64,
    /// Logins by a TLS session taken up again.
    pub(crate) resumed: u64,
    pub(crate) bytes: u64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    /// Clients that got not one answer.
    pub(crate) starved: usize,
    /// The watched process's.
    pub(crate) used: Usage,
}

impl Outcome {
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "seconds": self.seconds,
            "transactions": self.transactions,
            "tps": self.transactions as f64 / self.seconds,
            "logins": self.logins,
            "resumed": self.resumed,
            "bytes": self.bytes,
            "p50_us": self.p50_us,
            "p99_us": self.p99_us,
            "starved_clients": self.starved,
            "pooler_cpu_ns": self.used.cpu.run_ns,
            "pooler_wait_ns": self.used.cpu.wait_ns,
            "pooler_busiest_thread_ns": self.used.busiest_ns,
            "pooler_sleeps": self.used.sleeps,
        })
    }
}

/// Resident memory of the watched process in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) clients: usize,
    /// With a single client that has asked once.
    pub(crate) base: u64,
    /// With all clients logged in.
    pub(crate) idle: u64,
    /// After each of them has asked once.
    pub(crate) asked: u64,
    /// After they have left.
    pub(crate) left: u64,
}

impl Memory {
    /// For each client: logged in, after a query, and what is kept of that once it has left.
    pub(crate) fn per_client(self) -> [f64; 3] {
        [self.idle, self.asked, self.left]
            .map(|bytes| bytes.saturating_sub(self.base) as f64 / self.clients as f64)
    }

    pub(crate) fn to_json(self) -> Value {
        json!({
            "clients": self.clients,
            "base_bytes": self.base,
            "idle_bytes": self.idle,
            "asked_bytes": self.asked,
            "left_bytes": self.left,
            "bytes_per_client": self.per_client(),
        })
    }
}

impl Load {
    /// Logs everyone in, lets them work, and measures after the warm-up.
    pub(crate) fn measure(&self, reactor: &mut Reactor) -> Result<Outcome> {
        if reactor.traffic.work != Work::Login {
            self.log_in(reactor, self.clients)?;
        }
        reactor.begin()?;
        let warm = Instant::now() + self.warm_up;
        self.drive(reactor, self.clients, |_| Instant::now() >= warm)?;

        reactor.traffic.latency = Histogram::new();
        reactor.each_client(|client, _, _| client.transactions = 0)?;
        let (transactions, logins, bytes) = counts(reactor);
        let resumed = reactor.traffic.resumed;
        let before = self.threads()?;
        let started = Instant::now();
        self.drive(reactor, self.clients, |reactor| match self.stop {
            Stop::After(duration) => started.elapsed() >= duration,
            Stop::AtCount(count) => {
                let (now, logged_in, _) = counts(reactor);
                now + logged_in >= transactions + logins + count
            }
        })?;
        let seconds = started.elapsed().as_secs_f64();
        let used = self.threads()?.since(&before);
        let mut starved = 0;
        reactor.each_client(|client, _, _| starved += usize::from(client.transactions == 0))?;
        (reactor.traffic.running, reactor.traffic.turns) = (false, 0);
        let traffic = &reactor.traffic;
        Ok(Outcome {
            seconds,
            transactions: traffic.transactions - transactions,
            logins: traffic.logins - logins,
            resumed: traffic.resumed - resumed,
            bytes: traffic.bytes - bytes,
            p50_us: traffic.latency.percentile_us(0.50),
            p99_us: traffic.latency.percentile_us(0.99),
            starved: if traffic.work == Work::Login { 0 } else { starved },
            used,
        })
    }

    /// Measures what idle clients cost `pid` in memory: with one that has asked once, with all of
    /// them logged in, after each of them has asked once, and after all but the first have left.
    pub(crate) fn measure_memory(&self, reactor: &mut Reactor, pid: u32) -> Result<Memory> {
        self.log_in(reactor, 1)?;
        self.ask_once(reactor)?;
        let base = self.settled(reactor, pid)?;
        self.log_in(reactor, self.clients + 1)?;
        let idle = self.settled(reactor, pid)?;
        self.ask_once(reactor)?;
        let asked = self.settled(reactor, pid)?;
        reactor.leave(1)?;
        self.rest(reactor, LEAVING)?;
        let left = self.settled(reactor, pid)?;
        Ok(Memory { clients: self.clients, base, idle, asked, left })
    }

    /// Opens clients until so many are ready.
    pub(crate) fn log_in(&self, reactor: &mut Reactor, clients: usize) -> Result<()> {
        self.drive(reactor, clients, |reactor| reactor.traffic.ready == clients)
    }

    fn ask_once(&self, reactor: &mut Reactor) -> Result<()> {
        let wanted = reactor.traffic.transactions + reactor.traffic.ready as u64;
        reactor.each_client(|client, traffic, out| client.ask(traffic, out))?;
        let clients = reactor.traffic.ready;
        self.drive(reactor, clients, |reactor| reactor.traffic.transactions == wanted)
    }

    /// Nothing is asked for so long.
    fn rest(&self, reactor: &mut Reactor, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            reactor.turn(TURN_MAX)?;
        }
        Ok(())
    }

    /// The resident memory of `pid` once it no longer changes.
    fn settled(&self, reactor: &mut Reactor, pid: u32) -> Result<u64> {
        let mut last = resident_bytes(pid)?;
        for _ in 0..100 {
            reactor.turn(TURN_MAX)?;
            let now = resident_bytes(pid)?;
            if now == last {
                return Ok(now);
            }
            last = now;
        }
        bail!("the pooler's memory does not come to rest")
    }

    /// Runs the loop until `done`, with `clients` logging in or logged in.
    fn drive(
        &self,
        reactor: &mut Reactor,
        clients: usize,
        mut done: impl FnMut(&Reactor) -> bool,
    ) -> Result<()> {
        let mut progress = reactor.traffic.progress();
        let mut moved = Instant::now();
        while !done(reactor) {
            while reactor.traffic.logging_in + reactor.traffic.ready < clients
                && reactor.traffic.logging_in < LOGINS_MAX
            {
                let stream = Stream::connect(&self.pooler)
                    .with_context(|| format!("cannot connect to {}", self.pooler))?;
                reactor.open_client(stream)?;
            }
            reactor.turn(TURN_MAX)?;
            let now = reactor.traffic.progress();
            if now != progress {
                (progress, moved) = (now, Instant::now());
            } else if moved.elapsed() > STALLED {
                bail!(
                    "nothing got done for {} s, with {} clients logging in and {} logged in",
                    STALLED.as_secs(),
                    reactor.traffic.logging_in,
                    reactor.traffic.ready
                );
            }
        }
        Ok(())
    }

    fn threads(&self) -> Result<Threads> {
        self.watch.map_or(Ok(Threads::default()), Threads::of)
    }
}

fn counts(reactor: &Reactor) -> (u64, u64, u64) {
    let traffic = &reactor.traffic;
    (traffic.transactions, traffic.logins, traffic.bytes)
}
