//! Several Weirs side by side, and how clients find one that serves (docs/high-availability.md).

mod hosts;

use std::time::{Duration, Instant};

use testkit::{Pooler, Postgres, RawClient, Role, Setup, eventually, free_port};

use crate::haproxy::Haproxy;
use crate::metrics::get;
use crate::support;

const PATIENCE: Duration = Duration::from_secs(20);

/// Returns two poolers with health checks before a new database, the database, and the ports of the
/// health checks.
fn two() -> ([Pooler; 2], String, [u16; 2]) {
    let (first, database) = support::setup("auto");
    let second =
        Pooler::before(Postgres::shared()).set("pool_mode", "auto").database(&database, "");
    let ports = [free_port(), free_port()];
    let start = |setup: Setup, port: u16| {
        let pooler = setup.set("health_port", port).set("health_addr", "127.0.0.1").start();
        eventually("health is served", PATIENCE, || get(port, "/health/ready"));
        pooler
    };
    ([start(first, ports[0]), start(second, ports[1])], database, ports)
}

/// HAProxy takes a paused Weir out of service. A client that reconnects after the loss of a Weir is
/// served by another one at once.
#[test]
fn haproxy_sends_clients_to_a_weir_that_is_ready() {
    if !support::only_weir() {
        return;
    }
    let ([first, mut second], database, [first_health, second_health]) = two();
    let server = |pooler: &Pooler, health: u16| {
        let port = pooler.port();
        format!(
            "server weir{port} 127.0.0.1:{port} check port {health} inter 200ms fall 2 rise 1 \
             on-marked-down shutdown-sessions"
        )
    };
    let servers = [server(&first, first_health), server(&second, second_health)];
    let lines = [
        "balance leastconn",
        "option redispatch 1",
        "option httpchk GET /health/ready",
        &servers[0],
        &servers[1],
    ];
    let haproxy = Haproxy::before(&lines);
    let log_in = || {
        RawClient::login(haproxy.port, Role::APP, &database, Role::APP_PASSWORD).expect("a login")
    };
    let clients =
        |pooler: &Pooler| pooler.admin("SHOW CLIENTS").with("database", &database).rows.len();

    // At first HAProxy may not have the answers of both.
    let mut at_both = eventually("each serves one of two clients", PATIENCE, || {
        let both = [log_in(), log_in()];
        ([clients(&first), clients(&second)] == [1, 1]).then_some(both)
    });

    // The first one is paused, so it is not ready: HAProxy closes its client.
    let mut console = first.console();
    console.query("PAUSE");
    eventually("the client of the first is closed", PATIENCE, || {
        (clients(&first) == 0).then_some(())
    });
    let mut moved = log_in();
    assert_eq!(moved.value("SELECT 1"), "1");
    assert_eq!([clients(&first), clients(&second)], [0, 2]);
    console.query("RESUME");
    eventually("the first one serves again", PATIENCE, || {
        let _next = log_in();
        (clients(&first) == 1).then_some(())
    });

    second.kill9();
    let killed = Instant::now();
    assert!(moved.read_to_end().is_empty(), "its session is lost");
    assert_eq!(log_in().value("SELECT 1"), "1");
    assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
    at_both.iter_mut().for_each(|client| drop(client.read_to_end()));
}

/// libpq tries the hosts of its connection string in turn.
#[test]
fn libpq_finds_the_weir_that_lives() {
    if !support::only_weir() {
        return;
    }
    let ([mut first, second], database, _) = two();
    let (one, two) = (first.port(), second.port());
    let hosts = format!(
        "host=127.0.0.1,127.0.0.1 port={one},{two} dbname={database} user={} password={} \
         connect_timeout=2 sslmode=disable",
        Role::APP,
        Role::APP_PASSWORD
    );
    let run = || {
        let mut psql = Postgres::client_program("psql", one, &database);
        let output = psql.args(["-XAtc", "SELECT 'served'", &hosts]).output().expect("psql");
        (String::from_utf8_lossy(&output.stdout).trim().to_owned(), output)
    };
    assert_eq!(run().0, "served");
    first.kill9();
    let began = Instant::now();
    let (said, output) = run();
    assert_eq!(said, "served", "{output:?}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}
