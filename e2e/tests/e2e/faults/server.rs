//! Servers that die, refuse connections, or do not exist.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{assert_unharmed, last_error};
use crate::support;
use testkit::{Pooler, Postgres, Role, eventually, frontend};

fn backend(client: &mut testkit::RawClient) -> u32 {
    client.value("SELECT pg_backend_pid()").parse().expect("a process id")
}

#[test]
fn an_idle_server_that_dies_is_replaced_without_notice_core() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", 1).start();
    let mut client = pooler.client(&database);
    let first = backend(&mut client);
    support::terminate_and_wait(first);
    pooler.wait_for_servers(&database, 0);
    assert_ne!(backend(&mut client), first);
    drop(client);
    assert_unharmed(&pooler, &database);
}

#[test]
fn a_client_whose_server_dies_in_a_transaction_is_told_why() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", 1).start();
    let mut client = pooler.client(&database);
    client.rows("BEGIN");
    support::terminate_and_wait(backend(&mut client));
    let error = last_error(&mut client).expect("an error");
    assert_eq!(error.severity(), "FATAL");
    // The error is the server's, or the pooler's own.
    assert!(["57P01", "08P01"].contains(&error.code()), "{error:?}");
    assert_unharmed(&pooler, &database);
}

#[test]
fn a_client_whose_server_dies_in_a_query_is_told_why() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", 2).workers(2).start();
    let mut other = pooler.client(&database);
    other.rows("BEGIN");
    let mut client = pooler.client(&database);
    let server = backend(&mut client);
    client.send(frontend::query("SELECT pg_sleep(60)"));
    support::until_running(&database, "SELECT pg_sleep(60)");
    support::terminate_and_wait(server);
    let error = last_error(&mut client).expect("an error");
    assert_eq!(error.severity(), "FATAL");
    assert_eq!(other.query("COMMIT").tags, ["COMMIT"], "another's transaction goes on");
    drop(other);
    assert_unharmed(&pooler, &database);
}

#[test]
fn waiting_clients_get_a_new_server_when_theirs_dies() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", 1).workers(2).start();
    let mut holder = pooler.client(&database);
    holder.rows("BEGIN");
    let server = backend(&mut holder);
    let mut waiting: Vec<_> = (0..5).map(|_| pooler.client(&database)).collect();
    for client in &mut waiting {
        client.send(frontend::query("SELECT 'served'"));
    }
    support::until_waiting(&pooler, &database, 5);
    support::terminate_and_wait(server);
    for client in &mut waiting {
        assert_eq!(client.read_to_ready()[1].row(), [Some("served".to_owned())]);
    }
    drop((holder, waiting));
    assert_unharmed(&pooler, &database);
}

#[test]
fn a_server_killed_in_the_middle_of_a_result_is_survived_core_strict() {
    let (pooler, database) = support::pooler("transaction");
    for round in 1..6 {
        let mut client = pooler.client(&database);
        let server = backend(&mut client);
        let sql = "SELECT repeat('x', 5000) FROM generate_series(1, 200000)";
        client.send(frontend::query(sql));
        let mut rows = 0;
        client.read_until(|message| {
            rows += usize::from(message.tag == b'D');
            rows == round * 10
        });
        // Not waited for, since the backend can end only after the client has read on.
        let terminate = format!("SELECT pg_terminate_backend({server})");
        Postgres::shared().sql("postgres", &terminate);
        // If the connection ends within a row, no error can follow. But the result must not look
        // complete.
        let messages = client.read_to_end();
        assert!(messages.iter().all(|m| !matches!(m.tag, b'C' | b'Z')));
    }
    assert_unharmed(&pooler, &database);
}

#[test]
fn a_backend_killed_with_9_takes_the_cluster_down_but_not_the_pooler() {
    let postgres = Postgres::start();
    let database = postgres.database();
    let pooler = quick_retry(Pooler::before(&postgres)).database(&database, "").workers(2).start();
    let mut clients: Vec<_> = (0..4).map(|_| pooler.client(&database)).collect();
    for client in &mut clients {
        client.rows("BEGIN");
    }
    support::kill9(backend(&mut clients[0]));
    for client in &mut clients {
        let error = last_error(client).expect("an error");
        assert_eq!(error.severity(), "FATAL");
    }
    eventually("PostgreSQL has recovered", Duration::from_secs(30), || postgres.is_ready());
    eventually("clients are served again", Duration::from_secs(20), || {
        let mut client = pooler.login(Role::APP, &database, Role::APP_PASSWORD).ok()?;
        client.try_send(frontend::query("SELECT 1")).ok()?;
        let first = client.try_read().ok()??;
        (first.tag == b'T').then_some(())
    });
    pooler.wait_until_quiet(&database, 20);
}

/// The backends without a postmaster live on as long as they get queries, and new ones cannot be
/// opened.
#[test]
fn the_postmaster_is_killed_under_load() {
    let postgres = Postgres::start();
    let database = postgres.database();
    let setup = quick_retry(Pooler::before(&postgres)).set("default_pool_size", 4);
    let pooler = setup.database(&database, "").workers(2).start();
    let (stop, served) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let work = || {
            while !stop.load(Ordering::Relaxed) {
                let Ok(mut client) = pooler.login(Role::APP, &database, Role::APP_PASSWORD) else {
                    continue;
                };
                // The client works until its server is lost, which shows as an error or as the end
                // of the connection.
                for n in 0.. {
                    if stop.load(Ordering::Relaxed)
                        || client.try_send(frontend::query(&format!("SELECT {n}"))).is_err()
                    {
                        break;
                    }
                    let Some(answer) = answer(&mut client) else { break };
                    assert_eq!(answer, n.to_string(), "another's answer");
                    served.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        let threads: Vec<_> = (0..20).map(|_| scope.spawn(work)).collect();
        let go_on = |what: &str| {
            let enough = served.load(Ordering::Relaxed) + 500;
            eventually(what, Duration::from_secs(60), || {
                let failed = threads.iter().any(std::thread::ScopedJoinHandle::is_finished);
                (failed || served.load(Ordering::Relaxed) >= enough).then_some(())
            });
        };
        go_on("clients are served");
        postgres.kill9();
        postgres.launch();
        go_on("clients are served again");
        stop.store(true, Ordering::Relaxed);
    });
    pooler.wait_until_quiet(&database, 4);
}

/// Returns the value of a query, or `None` if the connection or the server is lost.
fn answer(client: &mut testkit::RawClient) -> Option<String> {
    let mut value = None;
    loop {
        let message = client.try_read().ok()??;
        match message.tag {
            b'D' => value = message.row().pop().flatten(),
            b'E' => return None,
            b'Z' => return value,
            _ => {}
        }
    }
}

#[test]
fn a_server_that_comes_up_late_is_found() {
    let postgres = Postgres::start();
    let database = postgres.database();
    postgres.stop();
    let pooler = quick_retry(Pooler::before(&postgres)).database(&database, "").start();
    // A login that comes too early waits or fails. Both are acceptable.
    let early = std::thread::scope(|scope| {
        let early = scope.spawn(|| pooler.login(Role::APP, &database, ""));
        pooler.log_contains("login attempt: db=");
        postgres.launch();
        early.join().expect("no panic")
    });
    if let Err(error) = early {
        assert_eq!(error.summary().0, "FATAL", "{error:?}");
    }
    eventually("the pooler has found the server", Duration::from_secs(20), || {
        pooler.login(Role::APP, &database, "").ok()
    });
}

#[test]
fn a_server_that_restarts_under_its_clients_is_found_again_core() {
    let postgres = Postgres::start();
    let database = postgres.database();
    let pooler = quick_retry(Pooler::before(&postgres)).database(&database, "").start();
    let mut idle = pooler.client(&database);
    assert_eq!(idle.value("SELECT 1"), "1");
    let mut busy = pooler.client(&database);
    busy.rows("BEGIN");
    postgres.stop();
    assert_eq!(last_error(&mut busy).expect("an error").severity(), "FATAL");
    pooler.wait_for_servers(&database, 0);
    postgres.launch();
    assert_eq!(idle.value("SELECT 'same connection'"), "same connection");
}

/// PostgreSQL is down for three seconds, with the default retry of 15 s.
#[test]
fn after_a_short_outage_clients_are_served_soon() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::start();
    let database = postgres.database();
    let setup = Pooler::before(&postgres).set("pool_mode", "transaction");
    // The notice would look like an error.
    let setup = setup.set("query_wait_notify", 0);
    let pooler = setup.database(&database, "").start();
    let mut early = pooler.client(&database);
    assert_eq!(early.value("SELECT 1"), "1");
    postgres.stop();
    pooler.wait_for_servers(&database, 0);
    let outage = Instant::now();
    early.send(frontend::query("SELECT 'early'"));
    pooler.log_contains("connect failed");
    std::thread::sleep(Duration::from_secs(3).saturating_sub(outage.elapsed()));
    let outage = outage.elapsed();
    postgres.launch();
    let back = Instant::now();
    eventually("a new client is served", Duration::from_secs(20), || {
        let mut client = pooler.login(Role::APP, &database, Role::APP_PASSWORD).ok()?;
        client.try_send(frontend::query("SELECT 1")).ok()?;
        // The message is a row description or an error.
        client.try_read().ok()??.error().is_none().then_some(())
    });
    // The client that has waited since the outage never gets an error.
    assert!(early.read_to_ready().iter().all(|message| message.error().is_none()));
    // Half of the outage, and some seconds for a busy machine. A fixed pause would be 15 s.
    assert!(back.elapsed() < outage / 2 + Duration::from_secs(5), "{:?}", back.elapsed());
}

/// Retries to connect after one second instead of fifteen.
fn quick_retry(setup: testkit::Setup) -> testkit::Setup {
    setup.set("pool_mode", "transaction").set("server_login_retry", 1)
}
