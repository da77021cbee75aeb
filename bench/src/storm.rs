//! A connection storm: some clients work at a steady rate while thousands connect at once. The
//! benchmark measures the time until all of them are logged in, and the effect on the clients at
//! work.
//!
//! The arriving clients have a thread of their own on the peers' core, with a lower priority than
//! the clients at work. So the effect on these is caused by the pooler, not by the generator.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use load::Histogram;
use net::sys::Address;
use serde_json::{Value, json};

use crate::load::{Load, Stop};
use crate::process::resident_bytes;
use crate::reactor::Reactor;
use crate::socket::Socket;
use crate::sys;
use crate::traffic::{Credentials, Protocol, Traffic, Work};

/// The maximum time until all clients are logged in. A client whose connection request the kernel
/// has dropped tries again after 1, 3, 7, 15, 31 and 63 seconds.
const STORM_MAX: Duration = Duration::from_secs(120);
/// The number of connections begun before the existing ones are served. A real client sends its
/// startup packet as soon as it is connected, and does not wait for thousands of others.
const BEGUN_MAX: usize = 32;
/// The maximum time in which the last queries of the clients at work must be answered.
const ANSWERS_MAX: Duration = Duration::from_secs(10);
const TURN_MAX: Duration = Duration::from_millis(20);

/// The parameters of a storm.
#[derive(Debug, Clone)]
pub(crate) struct Storm {
    pub(crate) pooler: Address,
    /// Clients that work all the time, and their transactions per second.
    pub(crate) at_work: usize,
    pub(crate) rate: f64,
    /// The time that they work before the storm begins.
    pub(crate) calm: Duration,
    /// Clients that connect at once.
    pub(crate) coming: usize,
    /// The pooler's process id.
    pub(crate) watch: u32,
}

/// The result of a storm.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StormOutcome {
    /// Seconds from the first connect to the last login.
    pub(crate) seconds: f64,
    /// The figures of the clients at work, before the storm and from the first connect on.
    pub(crate) before: Steady,
    pub(crate) during: Steady,
    /// The pooler's resident memory with all clients logged in.
    pub(crate) resident_bytes: u64,
}

/// The figures of the clients at work during an interval.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steady {
    transactions: u64,
    pub(crate) p99_us: u64,
}

impl StormOutcome {
    pub(crate) fn to_json(self) -> Value {
        json!({
            "seconds": self.seconds,
            "p99_before_us": self.before.p99_us,
            "p99_during_us": self.during.p99_us,
            "transactions_during": self.during.transactions,
            "resident_bytes": self.resident_bytes,
        })
    }
}

impl Storm {
    /// # Errors
    /// When a client is refused or dropped, or any answer is wrong.
    pub(crate) fn measure(&self, reactor: &mut Reactor) -> Result<StormOutcome> {
        let load = Load {
            pooler: self.pooler.clone(),
            clients: self.at_work,
            warm_up: Duration::ZERO,
            stop: Stop::After(self.calm),
            watch: None,
        };
        load.log_in(reactor, self.at_work)?;
        let warm = Instant::now() + self.calm / 4;
        self.work(reactor, || Instant::now() >= warm)?;
        let calm = Instant::now() + self.calm;
        let before = self.work(reactor, || Instant::now() >= calm)?;

        let (end, ended) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || self.come(&tell, &ended));
            let mut arrival = None;
            let during = self.work(reactor, || {
                arrival = match told.try_recv() {
                    Ok(arrival) => Some(arrival),
                    Err(mpsc::TryRecvError::Empty) => None,
                    Err(gone) => Some(Err(anyhow!(gone))),
                };
                arrival.is_some()
            })?;
            let seconds = arrival.context("the storm never passed")??.as_secs_f64();
            let resident_bytes = resident_bytes(self.watch)?;
            drop(end);
            Ok(StormOutcome { seconds, before, during, resident_bytes })
        })
    }

    /// Lets the clients at work send queries at their rate, until `done` returns true. Latencies
    /// count from the time when each query was due, since a query that cannot be sent in time is
    /// slow, too. For the same reason, waits for the answers to all queries that were due by the
    /// end.
    fn work(&self, reactor: &mut Reactor, mut done: impl FnMut() -> bool) -> Result<Steady> {
        let first = reactor.traffic.transactions;
        reactor.traffic.latency = Histogram::new();
        let gap = Duration::from_secs_f64(1.0 / self.rate);
        let (mut due, mut asked, mut end) = (Instant::now(), 0, None);
        while end.is_none_or(|end| due <= end) || reactor.traffic.transactions - first < asked {
            if end.is_none() && done() {
                end = Some(Instant::now());
            }
            while due <= end.unwrap_or_else(Instant::now) && reactor.ask_somebody(due)? {
                due += gap;
                asked += 1;
            }
            let late = end.map_or(Duration::ZERO, |end| end.elapsed());
            ensure!(late < ANSWERS_MAX, "{asked} were asked and not all answered after {late:?}");
            let rest = due.saturating_duration_since(Instant::now());
            reactor.turn(if end.is_some() { TURN_MAX } else { rest })?;
        }
        Ok(Steady { transactions: asked, p99_us: reactor.traffic.latency.percentile_us(0.99) })
    }

    /// Runs the thread of the arriving clients. They stay connected until the other end of `ended`
    /// is dropped.
    fn come(&self, tell: &mpsc::Sender<Result<Duration>>, ended: &mpsc::Receiver<()>) {
        let mut reactor = None;
        // An error means that the receiver has failed.
        let _ = tell.send(self.rush(&mut reactor));
        let _ = ended.recv();
    }

    fn rush(&self, kept: &mut Option<Reactor>) -> Result<Duration> {
        sys::give_way()?;
        let work = Work::Query(Protocol::Simple);
        let reactor = kept.insert(Reactor::new(Traffic::new(work, Credentials::usual()))?);
        let began = Instant::now();
        let mut begun = 0;
        while reactor.traffic.ready < self.coming {
            let next = (self.coming - begun).min(BEGUN_MAX);
            for _ in 0..next {
                reactor.open_client(Socket::begin(&self.pooler)?)?;
            }
            begun += next;
            reactor.turn(if begun < self.coming { Duration::ZERO } else { TURN_MAX })?;
            ensure!(
                began.elapsed() < STORM_MAX,
                "{} of {} clients are in after {STORM_MAX:?}",
                reactor.traffic.ready,
                self.coming
            );
        }
        Ok(began.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_queries_are_measured_from_their_due_time() {
        let work = Work::Query(Protocol::Simple);
        let mut reactor = Reactor::new(Traffic::new(work, Credentials::usual())).unwrap();
        let pooler = reactor.listen(&crate::socket::local(0)).unwrap();
        let (rate, calm) = (1_000.0, Duration::ZERO);
        let storm = Storm { pooler, at_work: 2, rate, calm, coming: 0, watch: 0 };
        for _ in 0..storm.at_work {
            reactor.open_client(Socket::begin(&storm.pooler).unwrap()).unwrap();
        }
        while reactor.traffic.ready < storm.at_work {
            reactor.turn(TURN_MAX).unwrap();
        }
        // Blocks everything for a while, then ends the work.
        let stall = Duration::from_millis(100);
        let began = Instant::now();
        let steady = storm.work(&mut reactor, || {
            while began.elapsed() < stall {}
            true
        });
        let steady = steady.unwrap();
        assert!(steady.transactions >= 100, "{steady:?}");
        assert!(steady.p99_us >= 90_000, "{steady:?}");
    }
}
