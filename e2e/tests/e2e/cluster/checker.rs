//! A checker: eight clients append to lists and write registers, while nodes and the network between
//! them fail at random. Afterwards the histories of the clients are compared with the last primary
//! (`verdict.rs`).
//!
//! `make verify` plays three faults of a random seed that is printed, and `make nightly` many. `SEED=N` plays
//! a seed again, and `FAULTS=N` so many of its faults.

mod clients;
mod faults;
mod history;
mod links;
mod verdict;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use testkit::{Pooler, Postgres};

use self::clients::{Clock, LEVELS, Level};
use self::faults::Stage;
use self::links::Links;
use self::verdict::Final;
use super::PATIENCE;
use super::hooks::Hooks;
use crate::support;

const KEYS: &str = "failover=own sample_interval=0.2 health_timeout=0.5 failover_wait=60";
/// The faults of one seed, and of `make nightly`.
const FAULTS: usize = 3;
const FAULTS_FULL: usize = 60;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn no_acknowledged_write_is_lost_whatever_fails_strict() {
    if !support::only_weir() {
        return;
    }
    let is_full = std::env::var("WEIR_TESTS").is_ok_and(|which| which == "full");
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let seed = number("SEED").unwrap_or_else(now);
    let faults =
        number("FAULTS").map_or(if is_full { FAULTS_FULL } else { FAULTS }, |n| n as usize);
    println!("SEED={seed} FAULTS={faults}");
    run(seed, faults);
}

fn run(seed: u64, faults: usize) {
    let (links, nodes) = Links::start(3);
    furnish(&nodes);
    let hooks = Hooks::new();
    let pooler = start(&nodes, &links, &hooks);
    let mut stage = Stage::new(&nodes, &links, &pooler, seed);
    stage.until_well();
    let (clock, is_over) = (Clock::start(), AtomicBool::new(false));
    let (state, operator_over) = (stage.state(), AtomicBool::new(false));
    let histories = thread::scope(|scope| {
        let clients: Vec<_> = (0..LEVELS.len())
            .map(|number| {
                let (pooler, clock, is_over) = (&pooler, &clock, &is_over);
                scope.spawn(move || clients::work(pooler, number, seed, clock, is_over))
            })
            .collect();
        let operator = scope.spawn(|| faults::operate(&hooks, &nodes, &state, &operator_over));
        // Also if a check fails: the scope waits for its threads.
        let ends = [End(&is_over), End(&operator_over)];
        for _ in 0..faults {
            clock.until_all_work();
            stage.fail();
        }
        clock.until_all_work();
        is_over.store(true, Ordering::Relaxed);
        let histories: Vec<_> =
            clients.into_iter().map(|one| one.join().expect("no panic")).collect();
        drop(ends);
        operator.join().expect("no panic");
        histories
    });
    let acts: Vec<_> = histories.into_iter().flatten().collect();
    let last = Final::read(&nodes[stage.primary()]);
    let faults = verdict::faults(&acts, &last);
    println!("{}", verdict::counts(&acts));
    assert!(
        faults.is_empty(),
        "SEED={seed}: {} faults: {:#?}",
        faults.len(),
        &faults[..faults.len().min(20)]
    );
}

/// Ends the threads that look at it.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A view that tells the node and its timeline, and that no judge suspects. A standby has no timeline.
const PLACE: &str = "\
CREATE FUNCTION own_address() RETURNS inet LANGUAGE internal STABLE AS 'inet_server_addr';
CREATE FUNCTION own_port() RETURNS int LANGUAGE internal STABLE AS 'inet_server_port';
CREATE FUNCTION follows() RETURNS bool LANGUAGE internal STABLE AS 'pg_is_in_recovery';
CREATE FUNCTION own_end() RETURNS pg_lsn LANGUAGE internal STABLE AS 'pg_current_wal_insert_lsn';
CREATE FUNCTION file_of(pg_lsn) RETURNS text LANGUAGE internal STABLE STRICT AS 'pg_walfile_name';
CREATE VIEW place AS SELECT CASE WHEN NOT follows() THEN substr(file_of(own_end()), 1, 8) END AS timeline,
    host(own_address()) || ':' || own_port() AS node;
GRANT SELECT ON place TO app";

fn furnish(nodes: &[Postgres]) {
    nodes[0].sql(
        "postgres",
        "CREATE TABLE lists (id bigint PRIMARY KEY, items text[] NOT NULL);
         CREATE TABLE registers (id int PRIMARY KEY, value text, number bigint);
         CREATE TABLE versions (register int, number bigint, value text);
         GRANT ALL ON lists, registers, versions TO app",
    );
    nodes[0].sql("postgres", PLACE);
    for node in nodes {
        for setting in ["synchronous_commit = on", "synchronous_standby_names = 'ANY 1 (a, b, c)'"]
        {
            node.sql("postgres", &format!("ALTER SYSTEM SET {setting}"));
        }
        // Otherwise a standby tries only every five seconds to stream again.
        node.sql("postgres", "ALTER SYSTEM SET wal_retrieve_retry_interval = '100ms'");
        node.sql("postgres", "SELECT pg_reload_conf()");
    }
}

/// Starts a pooler with a database for each level of consistency.
fn start(nodes: &[Postgres], links: &Links, hooks: &Hooks) -> Pooler {
    let names = ["a", "b", "c"].into_iter().zip(links.addresses(nodes));
    let list: Vec<_> = names.map(|(name, address)| format!("{name}={address}")).collect();
    let commands = hooks.keys(&["stop", "start", "rejoin", "fence"]);
    let list = list.join(", ");
    let mut setup = Pooler::before(&nodes[0])
        .set("pool_mode", "auto")
        .workers(2)
        .cluster("main", &format!("nodes='{list}' password=weir-secret {KEYS} {commands}"));
    for level in Level::ALL {
        let keys = format!("cluster=main dbname=postgres reads=standby {}", level.keys());
        setup = setup.database_at(level.database(), &keys);
    }
    let pooler = setup.start();
    testkit::eventually("the catalogs are read", PATIENCE, || {
        pooler.login("app", Level::Session.database(), "app-secret").ok()
    });
    pooler
}
