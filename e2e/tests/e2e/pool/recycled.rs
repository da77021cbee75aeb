//! Servers that are closed after a number of uses (`server_max_uses`), or because their processes have
//! become large (`server_max_memory`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::pid;
use crate::metrics::page;
use crate::support;
use testkit::{Pooler, Postgres, RawClient, Relay, Setup, eventually, free_port};

const PATIENCE: Duration = Duration::from_secs(60);
/// A new backend has 2 to 5 MB, and one that has used all tables more than 20 MB.
pub(crate) const LIMIT: u64 = 12 << 20;
const TABLES: u32 = 2_000;

/// Returns how often each backend has answered, in the order of their first answers.
fn counts(pids: &[String]) -> Vec<usize> {
    let mut first = BTreeMap::new();
    let mut counts = Vec::new();
    for pid in pids {
        let at = *first.entry(pid).or_insert_with(|| {
            counts.push(0);
            counts.len() - 1
        });
        counts[at] += 1;
    }
    counts
}

#[test]
fn a_server_is_closed_after_server_max_uses_core() {
    if !support::only_weir() {
        return;
    }
    for mode in ["transaction", "statement", "auto"] {
        let (setup, database) = support::setup(mode);
        let setup = setup.set("default_pool_size", 1).set("server_max_uses", 5);
        let pooler = setup.workers(2).start();
        let mut clients: Vec<_> = (0..3).map(|_| pooler.client(&database)).collect();
        let pids: Vec<_> = (0..24).map(|at| pid(&mut clients[at % 3])).collect();
        // The first login needs a server for its welcome, which is a use.
        assert_eq!(counts(&pids), [4, 5, 5, 5, 5], "{mode}");
        pooler.log_contains("closing because: server_max_uses reached");
    }
}

#[test]
fn a_session_is_one_use_of_a_server() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("session");
    let setup = setup.set("default_pool_size", 1).database(&database, "server_max_uses=3");
    let pooler = setup.start();
    let mut pids = Vec::new();
    for _ in 0..9 {
        let mut client = pooler.client(&database);
        pids.push(pid(&mut client));
        assert_eq!(pid(&mut client), *pids.last().expect("one"));
        client.rows("BEGIN");
        client.rows("COMMIT");
    }
    assert_eq!(counts(&pids), [3, 3, 3]);
}

#[test]
fn uses_are_counted_exactly_under_load_and_across_an_online_restart() {
    if !support::only_weir() {
        return;
    }
    const USES: usize = 50;
    let (setup, database) = support::setup("transaction");
    let setup = setup.set("default_pool_size", 3).set("server_max_uses", USES);
    let mut pooler = setup.workers(2).start();
    let clients: Vec<_> = (0..12).map(|_| pooler.client(&database)).collect();
    let stop = AtomicBool::new(false);
    let pids = std::thread::scope(|scope| {
        let threads: Vec<_> = clients
            .into_iter()
            .map(|mut client| {
                scope.spawn({
                    let stop = &stop;
                    move || {
                        let mut pids = Vec::new();
                        while !stop.load(Ordering::Relaxed) || pids.len() < 300 {
                            pids.push(pid(&mut client));
                        }
                        pids
                    }
                })
            })
            .collect();
        assert!(pooler.take_over().success());
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
    });
    let mut counts = counts(&pids);
    counts.sort_unstable();
    assert_eq!(counts.last(), Some(&USES), "{counts:?}");
    // A server less used is the first, which has told the welcome, or one of the last.
    let fewer = counts.iter().filter(|count| **count < USES).count();
    assert!(fewer <= 4, "{counts:?}");
}

#[test]
fn limits_of_servers_must_be_numbers_and_change_by_reload() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let mut pooler = setup.set("default_pool_size", 1).start();
    for (key, bad, expected) in [
        ("server_max_uses", "-1", "whole number from 0 to 4294967295"),
        ("server_max_uses", "many", "whole number from 0 to 4294967295"),
        ("server_max_memory", "64MB", "whole number from 0 to 9223372036854775807"),
        ("server_max_memory", "-5", "whole number from 0 to 9223372036854775807"),
    ] {
        assert!(pooler.try_admin(&format!("SET {key} = '{bad}'")).error.is_some(), "{key} {bad}");
        let why = format!("invalid value \"{bad}\" for parameter {key}: expected {expected}");
        pooler.log_contains(&why);
    }
    let mut client = pooler.client(&database);
    let first = pid(&mut client);
    (0..20).for_each(|_| assert_eq!(pid(&mut client), first));
    pooler.reconfigure(|ini| ini.set("server_max_uses", 1));
    pooler.reload();
    pid(&mut client);
    let pids: Vec<_> = (0..3).map(|_| pid(&mut client)).collect();
    assert_eq!(counts(&pids), [1, 1, 1]);
    assert!(!pids.contains(&first));
    pooler.reconfigure(|ini| ini.set("server_max_uses", 0));
    pooler.reload();
    let pids: Vec<_> = (0..20).map(|_| pid(&mut client)).collect();
    assert_eq!(counts(&pids), [20]);
}

/// Makes tables whose descriptions are a large cache. Each of a few transactions makes some: a lock is
/// held on each table until the end.
pub(crate) fn make_tables(client: &mut RawClient) {
    for part in 0..TABLES / 250 {
        let (from, to) = (part * 250 + 1, (part + 1) * 250);
        client.rows(&format!(
            "DO $$ BEGIN FOR i IN {from}..{to} LOOP EXECUTE format(\
             'CREATE TABLE t%s (a int PRIMARY KEY, b int, c int)', i); END LOOP; END $$"
        ));
    }
}

/// Has this client's server use all tables, in one transaction.
pub(crate) fn touch_tables(client: &mut RawClient) {
    client.rows(&format!(
        "DO $$ DECLARE n int; BEGIN FOR i IN 1..{TABLES} LOOP EXECUTE format(\
         'SELECT count(*) FROM t%s WHERE a = 1', i) INTO n; END LOOP; END $$"
    ));
}

fn is_alive(database: &str, pid: &str) -> bool {
    let pid: u32 = pid.parse().expect("a number");
    Postgres::shared().backends(database).contains(&pid)
}

#[track_caller]
fn until_gone(pooler: &Pooler, database: &str, pid: &str) {
    eventually(&format!("{pid} is closed: {}", pooler.log()), PATIENCE, || {
        (!is_alive(database, pid)).then_some(())
    });
}

#[track_caller]
fn closes_the_large_one(change: impl FnOnce(Setup, &str) -> Setup) {
    let (setup, database) = support::setup("transaction");
    make_tables(&mut support::direct(&database));
    let setup = setup.set("default_pool_size", 3).set("server_max_memory", LIMIT);
    let metrics = free_port();
    let setup = setup.set("metrics_port", metrics);
    let pooler = change(setup, &database).workers(2).start();
    let mut clients: Vec<_> = (0..3).map(|_| pooler.client(&database)).collect();
    clients.iter_mut().for_each(|client| drop(client.rows("BEGIN")));
    let pids: Vec<_> = clients.iter_mut().map(pid).collect();
    let [busy, idle, small] = &mut clients[..] else { unreachable!("three") };
    touch_tables(busy);
    touch_tables(idle);
    idle.rows("COMMIT");
    small.rows("COMMIT");
    until_gone(&pooler, &database, &pids[1]);
    assert!(is_alive(&database, &pids[0]) && is_alive(&database, &pids[2]));
    pooler.log_contains("closing because: server_max_memory exceeded");
    // The busy server is closed only when it is free.
    assert_eq!(pid(busy), pids[0]);
    busy.rows("COMMIT");
    until_gone(&pooler, &database, &pids[0]);
    assert!(is_alive(&database, &pids[2]));
    // A new server takes its place.
    clients.iter_mut().for_each(|client| drop(client.rows("BEGIN")));
    let later: Vec<_> = clients.iter_mut().map(pid).collect();
    assert!(later.contains(&pids[2]) && !later.contains(&pids[0]), "{later:?}");
    let page = page(metrics);
    assert!(page.contains("weir_server_closes_total{reason=\"memory\"} 2\n"), "{page}");
}

#[test]
fn an_idle_server_with_much_memory_is_closed_core() {
    if support::only_weir() {
        closes_the_large_one(|setup, _| setup);
    }
}

#[test]
fn so_is_one_on_a_unix_socket_with_a_limit_of_its_database() {
    if !support::only_weir() {
        return;
    }
    closes_the_large_one(|setup, database| {
        let (folder, port) = (Postgres::shared().socket_folder(), Postgres::shared().port());
        // The only role that may log in there.
        let own = format!("user=postgres server_max_memory={LIMIT}");
        let connection = format!("host={} port={port} {own}", folder.display());
        setup.set("server_max_memory", 0).database_at(database, &connection)
    });
}

#[test]
fn a_large_server_that_is_never_idle_is_closed_between_two_uses() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    make_tables(&mut support::direct(&database));
    let setup = setup.set("default_pool_size", 1).set("server_max_memory", LIMIT);
    let pooler = setup.start();
    let mut client = pooler.client(&database);
    touch_tables(&mut client);
    let large = pid(&mut client);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = pooler.client(&database);
                while !stop.load(Ordering::Relaxed) {
                    client.rows("SELECT pg_sleep(0.002)");
                }
            });
        }
        until_gone(&pooler, &database, &large);
        stop.store(true, Ordering::Relaxed);
    });
    assert_ne!(pid(&mut client), large);
}

/// The process with the number that a server tells may be another one, so such a server stays.
#[test]
fn a_server_whose_process_is_not_surely_known_stays_and_the_log_says_so() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let relay = Relay::before(Postgres::shared().port());
    let connection = format!("host=127.0.0.1 port={}", relay.port());
    let setup = setup.database_at(&database, &connection).set("server_max_memory", 1);
    let pooler = setup.start();
    let mut client = pooler.client(&database);
    let first = pid(&mut client);
    eventually("the log names the pool", PATIENCE, || {
        let text = format!("server_max_memory has no effect on pool {database}/app");
        pooler.log().contains(&text).then_some(())
    });
    assert_eq!(pid(&mut client), first);
}
