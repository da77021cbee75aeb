//! The load generator: lets many clients send queries through a pooler for a while, and measures
//! the pooler's cost.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use load::Histogram;
use net::sys::Address;
use serde_json::{Value, json};

use crate::process::{Threads, Usage, resident_bytes};
use crate::reactor::Reactor;
use crate::socket::Socket;
use crate::traffic::Work;

/// The maximum number of simultaneous logins. It is below the listen backlog of the poolers;
/// otherwise the kernel would drop connection requests and repeat them a second later.
const LOGINS_MAX: usize = 50;
/// If there is no progress for this long, the pooler has lost a query.
const STALLED: Duration = Duration::from_secs(10);
/// The time that the pooler gets to notice that thousands of clients have left, and to free their
/// memory.
const LEAVING: Duration = Duration::from_secs(4);
const TURN_MAX: Duration = Duration::from_millis(20);

/// The parameters of a load on one pooler.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    pub(crate) pooler: Address,
    pub(crate) clients: usize,
    pub(crate) warm_up: Duration,
    pub(crate) stop: Stop,
    /// The process id of the process whose CPU time and memory are read.
    pub(crate) watch: Option<u32>,
}

/// The end of the measured interval.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stop {
    After(Duration),
    /// The number of transactions, or of logins if those are measured.
    AtCount(u64),
}

/// The work between two moments, and its cost.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) seconds: f64,
    pub(crate) transactions: u64,
    pub(crate) logins: u64,
    /// Logins that resumed a TLS session.
    pub(crate) resumed: u64,
    pub(crate) bytes: u64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    /// Clients that got no answer at all.
    pub(crate) starved: usize,
    /// The CPU time and context switches of the watched process.
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

/// The resident memory of the watched process, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) clients: usize,
    /// With a single client that has sent one query.
    pub(crate) base: u64,
    /// With all clients logged in.
    pub(crate) idle: u64,
    /// After each client has sent one query.
    pub(crate) asked: u64,
    /// After the clients have left.
    pub(crate) left: u64,
}

impl Memory {
    /// Returns bytes per client: when logged in, after a query, and what remains after it has left.
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
    /// Logs all clients in, lets them work, and measures after the warm-up.
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

    /// Measures the memory that idle clients cost the process `pid`: with one client that has sent
    /// a query, with all logged in, after each has sent a query, and after all but the first have
    /// left.
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

    /// Opens clients until `clients` are ready.
    pub(crate) fn log_in(&self, reactor: &mut Reactor, clients: usize) -> Result<()> {
        self.drive(reactor, clients, |reactor| reactor.traffic.ready == clients)
    }

    fn ask_once(&self, reactor: &mut Reactor) -> Result<()> {
        let wanted = reactor.traffic.transactions + reactor.traffic.ready as u64;
        reactor.each_client(|client, traffic, out| client.ask(traffic, out))?;
        let clients = reactor.traffic.ready;
        self.drive(reactor, clients, |reactor| reactor.traffic.transactions == wanted)
    }

    /// Runs the event loop for `time`, without sending queries.
    fn rest(&self, reactor: &mut Reactor, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            reactor.turn(TURN_MAX)?;
        }
        Ok(())
    }

    /// Returns the resident memory of `pid` in bytes, once it no longer changes.
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

    /// Runs the event loop until `done` returns true. Opens connections as long as fewer than
    /// `clients` are logging in or logged in.
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
                let socket = Socket::connect(&self.pooler)
                    .with_context(|| format!("cannot connect to {}", self.pooler))?;
                reactor.open_client(socket)?;
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
