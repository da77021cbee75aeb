//! A cancel request cancels the query that it is meant for, and no other.

use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use std::{io, thread};

use crate::support;
use testkit::{RawClient, eventually, frontend};

const QUERY_CANCELED: &str = "57014";
/// Much longer than a test waits.
const LONG: &str = "SELECT pg_sleep(60)";

#[track_caller]
fn assert_canceled(client: &mut RawClient) {
    let messages = client.read_to_ready();
    let error = messages.iter().find_map(testkit::Message::error);
    assert_eq!(error.expect("an error").code(), QUERY_CANCELED);
    assert_eq!(client.value("SELECT 'usable'"), "usable");
}

#[test]
fn a_cancel_hits_its_own_query_among_twenty_others_core_strict() {
    for mode in ["session", "transaction"] {
        let (setup, database) = support::setup(mode);
        let pooler = setup.set("default_pool_size", 25).workers(2).start();
        let mut victim = pooler.client(&database);
        let mut others: Vec<RawClient> = (0..20).map(|_| pooler.client(&database)).collect();
        for other in &mut others {
            other.send(frontend::query("SELECT pg_sleep(1.5)"));
        }
        victim.send(frontend::query(LONG));
        support::until_running(&database, LONG);
        victim.cancel(pooler.port());
        assert_canceled(&mut victim);
        for other in &mut others {
            let messages = other.read_to_ready();
            assert!(messages.iter().any(|m| m.tag == b'C'), "{mode}: {messages:?}");
        }
    }
}

#[test]
fn each_of_many_cancels_hits_its_own_query_strict() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", 10).workers(2).start();
    let mut clients: Vec<RawClient> = (0..10).map(|_| pooler.client(&database)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(frontend::query(&format!("SELECT pg_sleep(60), {number}")));
        support::until_running(&database, &format!("SELECT pg_sleep(60), {number}"));
    }
    let begun = Instant::now();
    thread::scope(|scope| {
        for client in clients.iter_mut().step_by(2) {
            let port = pooler.port();
            scope.spawn(move || {
                client.cancel(port);
                assert_canceled(client);
            });
        }
    });
    for number in (1..10).step_by(2) {
        support::until_running(&database, &format!("SELECT pg_sleep(60), {number}"));
    }
    for client in clients.iter_mut().skip(1).step_by(2) {
        client.cancel(pooler.port());
        assert_canceled(client);
    }
    assert!(begun.elapsed() < Duration::from_secs(30));
    drop(clients);
    pooler.wait_until_quiet(&database, 10);
}

#[test]
fn a_cancel_counts_though_its_sender_hangs_up_at_once() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", 1).workers(2).start();
    let mut client = pooler.client(&database);
    for _ in 0..10 {
        client.send(frontend::query(LONG));
        support::until_running(&database, LONG);
        let mut hasty = RawClient::connect(pooler.port());
        hasty.send(frontend::cancel_request(client.pid, &client.secret));
        drop(hasty);
        assert_canceled(&mut client);
    }
}

#[test]
fn a_cancel_inside_a_transaction_aborts_that_transaction() {
    let (pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    client.rows("BEGIN");
    client.send(frontend::query(LONG));
    support::until_running(&database, LONG);
    client.cancel(pooler.port());
    assert_eq!(client.read_to_ready().last().expect("ReadyForQuery").body, b"E");
    assert_eq!(client.query("ROLLBACK").status, b'I');
}

#[test]
fn a_cancel_for_an_idle_client_does_nothing() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", 1).start();
    let mut idle = pooler.client(&database);
    let mut busy = pooler.client(&database);
    // The server that ran the idle client's last query now runs another client's query.
    assert_eq!(idle.value("SELECT pg_backend_pid()"), busy.value("SELECT pg_backend_pid()"));
    busy.send(frontend::query("SELECT pg_sleep(1)"));
    support::until_running(&database, "SELECT pg_sleep(1)");
    idle.cancel(pooler.port());
    let messages = busy.read_to_ready();
    assert!(messages.iter().any(|m| m.tag == b'C'), "{messages:?}");
    assert_eq!(idle.value("SELECT 'usable'"), "usable");
}

#[test]
fn a_late_cancel_does_not_hit_the_servers_next_client_core_strict() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", 1).workers(2).start();
    let mut cancelled = pooler.client(&database);
    let mut next = pooler.client(&database);
    for _ in 0..30 {
        // The cancel request races with the end of its query. It must never cancel the next
        // client's query.
        cancelled.send(frontend::query("SELECT pg_sleep(0.005)"));
        next.send(frontend::query("SELECT pg_sleep(0.01)"));
        cancelled.cancel(pooler.port());
        cancelled.read_to_ready();
        let messages = next.read_to_ready();
        let error = messages.iter().find_map(testkit::Message::error);
        assert!(error.is_none(), "{error:?}");
    }
}

#[test]
fn a_cancel_with_a_wrong_key_does_nothing_core_strict() {
    let (pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    client.send(frontend::query("SELECT pg_sleep(1)"));
    support::until_running(&database, "SELECT pg_sleep(1)");
    let mut other_secret = client.secret.clone();
    other_secret[3] ^= 1;
    let strangers = [(client.pid, other_secret), (client.pid ^ 1, client.secret.clone())];
    for (pid, secret) in strangers.into_iter().chain([(0, vec![0; 4])]) {
        let mut stranger = RawClient::connect(pooler.port());
        stranger.send(frontend::cancel_request(pid, &secret));
        stranger.read_to_end();
    }
    let messages = client.read_to_ready();
    assert!(messages.iter().any(|m| m.tag == b'C'), "{messages:?}");
}

#[test]
fn every_client_has_a_key_of_its_own_strict() {
    let (pooler, database) = support::pooler("transaction");
    let clients: Vec<RawClient> = (0..50).map(|_| pooler.client(&database)).collect();
    let mut keys: Vec<_> =
        clients.iter().map(|client| (client.pid, client.secret.clone())).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), clients.len());
}

/// Lets a single connection through to PostgreSQL. Returns the listener, in whose backlog the
/// others wait.
fn only_one_gets_through(listener: TcpListener) -> TcpListener {
    let server_port = testkit::Postgres::shared().port();
    let (pooler, _) = listener.accept().expect("a server is opened");
    let server = TcpStream::connect(("127.0.0.1", server_port)).expect("PostgreSQL listens");
    for (from, to) in [(&pooler, &server), (&server, &pooler)] {
        let [mut from, mut to] = [from, to].map(|one| one.try_clone().expect("a descriptor"));
        thread::spawn(move || io::copy(&mut from, &mut to));
    }
    listener
}

#[test]
fn a_request_under_way_is_shown_with_the_pool_of_its_server() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let (setup, database) = support::setup("transaction");
    let at = format!("host=127.0.0.1 port={port} dbname={database} pool_size=1");
    let pooler = setup.database_at("slow", &at).start();
    let relay = thread::spawn(move || only_one_gets_through(listener));
    let mut client = pooler.client("slow");
    client.send(frontend::query(LONG));
    support::until_running(&database, LONG);
    let listener = relay.join().expect("a server was opened");

    let mut requester = RawClient::connect(pooler.port());
    requester.send(frontend::cancel_request(client.pid, &client.secret));
    let counts = ["cl_active_cancel_req", "cl_waiting_cancel_req", "sv_active_cancel"];
    eventually("the request is under way", Duration::from_secs(10), || {
        (pooler.pool_sums("slow", counts) == [1, 0, 1]).then_some(())
    });
    let shown = pooler.admin("SHOW CLIENTS").with("state", "active_cancel_req");
    assert_eq!((shown.only("database"), shown.only("user")), ("slow", "(nouser)"));
    assert_eq!(pooler.admin("SHOW USERS").with("name", "(nouser)").rows.len(), 0);
    let database = pooler.admin("SHOW DATABASES").with("name", "slow");
    assert_eq!(database.only("current_client_connections"), "1");

    // Accepts the request and closes the connection.
    drop(listener.accept().expect("the request comes"));
    requester.read_to_end();
    assert_eq!(pooler.pool_sums("slow", counts), [0, 0, 0]);
}
