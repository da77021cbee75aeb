//! Weir and its peers in one thread, in turn, so that every run is the same. `guard.rs` counts the
//! instructions of this load.

use std::fs;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use config::Config;
use net::sys::Address;
use proxy::Stepped;

use crate::flood::SHORT;
use crate::pattern::{PATTERNS, Pattern};
use crate::reactor::Reactor;
use crate::socket::Socket;
use crate::traffic::{Credentials, Protocol, Traffic, Work};

/// A load of the guard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steps {
    pub(crate) name: &'static str,
    pool_mode: &'static str,
    /// A further line of the configuration.
    line: &'static str,
    clients: usize,
    work: Work,
    /// Counted units of work: transactions, logins or results.
    pub(crate) count: u64,
}

/// The size of one large result of the guard, in bytes.
const RESULT_BYTES: u64 = 1_000_000;
/// If there is no progress for this many turns, a message has been lost.
const TURNS_MAX: u32 = 1_000;
/// Messages before the counted ones of a flood.
const WARM_UP: u64 = 2_000;
/// The ports in the names of the unix sockets.
const PORT: u16 = 6_432;
const SERVER_PORT: u16 = 5_432;

const fn query(name: &'static str, clients: usize, protocol: Protocol) -> Steps {
    let pool_mode = "transaction";
    Steps { name, pool_mode, line: "", clients, work: Work::Query(protocol), count: 2_000 }
}

/// A load in auto mode, with no state in any session.
const fn auto(name: &'static str, protocol: Protocol) -> Steps {
    Steps { pool_mode: "auto", ..query(name, 10, protocol) }
}

/// Clients that log in and leave, with this line of the configuration.
const fn login(name: &'static str, line: &'static str) -> Steps {
    Steps { name, pool_mode: "transaction", line, clients: 1, work: Work::Login, count: 500 }
}

/// Ten clients that query while something is watched, by this line of the configuration.
const fn watched(name: &'static str, line: &'static str, protocol: Protocol) -> Steps {
    Steps { line, ..query(name, 10, protocol) }
}

pub(crate) static ALL: [Steps; 16] = [
    query("simple-1", 1, Protocol::Simple),
    query("simple-10", 10, Protocol::Simple),
    query("simple-200", 200, Protocol::Simple),
    query("extended-10", 10, Protocol::Extended),
    query("prepared-10", 10, Protocol::Prepared),
    auto("auto-simple-10", Protocol::Simple),
    auto("auto-extended-10", Protocol::Extended),
    auto("auto-prepared-10", Protocol::Prepared),
    watched("fingerprints-simple-10", "fingerprints = 1", Protocol::Simple),
    watched("fingerprints-prepared-10", "fingerprints = 1", Protocol::Prepared),
    watched("advise-simple-10", "advise = 1", Protocol::Simple),
    watched("advise-prepared-10", "advise = 1", Protocol::Prepared),
    watched("timings-simple-10", "connection_timings = 1000", Protocol::Simple),
    login("login-trust", ""),
    login("timings-login", "connection_timings = 1000"),
    Steps {
        name: "bulk-100",
        pool_mode: "transaction",
        line: "",
        clients: 1,
        work: Work::Bulk { row_bytes: 100, total_bytes: RESULT_BYTES },
        count: 20,
    },
];

/// Returns a load of floods of `messages` each, `count` messages in total.
pub(crate) fn floods(pattern: Pattern, messages: u64, count: u64) -> Steps {
    let work = Work::Flood { pattern, messages };
    Steps { name: pattern.name(), pool_mode: "transaction", line: "", clients: 1, work, count }
}

/// Returns the load with this name. The name of a flood is followed by the length of each flood and
/// the total number of messages.
pub(crate) fn named(name: &str) -> Result<Steps> {
    if let Some((name, numbers)) = name.split_once('/')
        && let Some((messages, count)) = numbers.split_once('/')
        && let Some(pattern) = PATTERNS.iter().find(|pattern| pattern.name() == name)
    {
        return Ok(floods(*pattern, messages.parse()?, count.parse()?));
    }
    let found = ALL.iter().find(|steps| steps.name == name);
    found.copied().with_context(|| {
        let names: Vec<_> = ALL.iter().map(|steps| steps.name).collect();
        format!("no row is named {name}; there are {}", names.join(", "))
    })
}

/// A folder for the sockets and the configuration. It is removed when dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // Files that cannot be removed stay in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Rig {
    reactor: Reactor,
    weir: Stepped,
    address: Address,
    clients: usize,
}

impl Steps {
    /// Does part of the work to warm up, and then all of it in [`counted_turn`]s.
    pub(crate) fn run(&self) -> Result<()> {
        let thread = std::thread::current().name().map(|name| name.replace(':', "-"));
        let name = format!("weir-steps-{}-{}", std::process::id(), thread.unwrap_or_default());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        let folder = Folder(folder);
        let credentials = Credentials::new("bench", "bench", "");
        let mut reactor = Reactor::new(Traffic::new(self.work, credentials))?;
        reactor.listen(&Address::Unix(folder.0.join(format!(".s.PGSQL.{SERVER_PORT}"))))?;
        let weir = Stepped::start(self.configuration(&folder)?)?;
        let address = Address::Unix(folder.0.join(format!(".s.PGSQL.{PORT}")));
        let mut rig = Rig { reactor, weir, address, clients: self.clients };
        if self.work != Work::Login {
            rig.go_on(false, |traffic| traffic.ready == self.clients)?;
        }
        if let Work::Flood { pattern, .. } = self.work {
            rig.reactor.traffic.work = Work::Flood { pattern, messages: SHORT };
            rig.floods(WARM_UP, false)?;
            rig.reactor.traffic.work = self.work;
            return rig.floods(self.count, true);
        }
        rig.reactor.traffic.running = true;
        rig.reactor.each_client(|client, traffic, out| client.ask(traffic, out))?;
        // The pool opens one server after another; that must not be counted.
        rig.work(self.count / 2, false)?;
        rig.work(self.count, true)
    }

    fn configuration(&self, folder: &Folder) -> Result<Config> {
        let dir = folder.0.display();
        let text = format!(
            "[databases]\n\
             bench = host={dir} port={SERVER_PORT} user=bench\n\
             [pgbouncer]\n\
             listen_addr =\n\
             listen_port = {PORT}\n\
             unix_socket_dir = {dir}\n\
             auth_type = any\n\
             pool_mode = {}\n\
             max_client_conn = 1000\n\
             default_pool_size = 20\n\
             max_prepared_statements = 200\n\
             log_connections = 0\n\
             log_disconnections = 0\n\
             log_stats = 0\n\
             {}\n",
            self.pool_mode, self.line,
        );
        let path = folder.0.join("pgbouncer.ini");
        fs::write(&path, text)?;
        Ok(Config::load(&path)?)
    }
}

impl Rig {
    fn work(&mut self, count: u64, counted: bool) -> Result<()> {
        let done = |traffic: &Traffic| traffic.transactions + traffic.logins;
        let until = done(&self.reactor.traffic) + count;
        self.go_on(counted, |traffic| done(traffic) >= until)
    }

    /// Sends one flood after another, until `messages` have been sent.
    fn floods(&mut self, messages: u64, counted: bool) -> Result<()> {
        let end = self.reactor.traffic.transactions + messages;
        while self.reactor.traffic.transactions < end {
            let before = self.reactor.traffic.transactions;
            self.reactor.each_client(|client, traffic, out| client.ask(traffic, out))?;
            self.go_on(counted, |traffic| traffic.transactions > before)?;
        }
        Ok(())
    }

    /// Runs the peers and Weir in turn, until `done` returns true.
    fn go_on(&mut self, counted: bool, done: impl Fn(&Traffic) -> bool) -> Result<()> {
        let (mut progress, mut idle) = (0, 0);
        while !done(&self.reactor.traffic) {
            let traffic = &self.reactor.traffic;
            if traffic.logging_in + traffic.ready < self.clients {
                self.reactor.open_client(Socket::connect(&self.address)?)?;
            }
            self.reactor.turn(Duration::ZERO)?;
            if counted {
                #[cfg(test)]
                let before = crate::sys::thread_time()?;
                counted_turn(&mut self.weir)?;
                #[cfg(test)]
                tests::add_time(crate::sys::thread_time()? - before);
            } else {
                self.weir.turn()?;
            }
            let now = self.reactor.traffic.progress();
            idle = if now == progress { idle + 1 } else { 0 };
            progress = now;
            ensure!(idle < TURNS_MAX, "nothing got done in {TURNS_MAX} turns");
        }
        Ok(())
    }
}

/// The function's name as a pattern for callgrind.
pub(crate) const COUNTED: &str = "*steps*counted_turn*";

/// Runs one turn of Weir. Callgrind counts the instructions of this function and its callees only.
#[inline(never)]
fn counted_turn(weir: &mut Stepped) -> std::io::Result<()> {
    black_box(weir).turn()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Messages of a long flood.
    const LONG: u64 = 50_000;

    thread_local! {
        /// CPU time of the counted turns.
        static TIME: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    pub(super) fn add_time(more: Duration) {
        TIME.set(TIME.get() + more);
    }

    /// Returns the cost of a message in floods of `messages` each, in nanoseconds.
    fn cost(pattern: Pattern, messages: u64, count: u64) -> f64 {
        TIME.set(Duration::ZERO);
        let steps = floods(pattern, messages, count);
        steps.run().unwrap_or_else(|error| panic!("{pattern:?}: {error:#}"));
        TIME.get().as_nanos() as f64 / count as f64
    }

    /// Measures time. `make count` compares instructions, which is more exact.
    #[test]
    fn a_message_of_a_long_flood_costs_no_more() {
        for pattern in PATTERNS {
            let (short, long) = (cost(pattern, SHORT, 10 * SHORT), cost(pattern, LONG, LONG));
            println!("{pattern:?}: {short:.0} ns, {long:.0} ns");
            assert!(
                long < 2.0 * short,
                "{pattern:?}: {short} ns in a short one, {long} in a long one"
            );
        }
    }

    #[test]
    fn every_load_of_the_guard_finishes() {
        for steps in &ALL {
            steps.run().unwrap_or_else(|error| panic!("{}: {error:#}", steps.name));
        }
    }
}
