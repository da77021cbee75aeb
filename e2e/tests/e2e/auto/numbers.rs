//! Numbers of sequences: `currval` and `lastval` tell what their client has drawn, or nothing.

use testkit::{RawClient, frontend};

use super::{backend, pooler, settle, switch};
use crate::support;

/// Why tests are left out in direct pools.
const NO_NUMBER: &str = "a client that is slow to ask for its number gets an error";

#[test]
fn nobody_is_told_a_strangers_number_core_strict() {
    if !support::only_proxied(NO_NUMBER) {
        return;
    }
    let (setup, database) = support::setup("auto");
    let setup = setup.workers(1).set("default_pool_size", 1);
    let pooler = setup.set("auto_unsupported", "warn").start();
    let (mut one, mut other) = (pooler.client(&database), pooler.client(&database));
    one.rows("CREATE SEQUENCE numbers");
    assert_eq!(one.value("SELECT nextval('numbers')"), "1");
    let told = one.query("SELECT lastval()");
    assert_eq!(told.rows, [[Some("1".to_owned())]]);
    assert!(told.notices[0].contains("auto_unsupported"), "{:?}", told.notices);
    let undefined = |client: &mut RawClient, sql: &str| {
        let error = client.query(sql).error.expect("there is no number");
        assert_eq!(error.code(), "55000", "{sql}");
    };
    undefined(&mut other, "SELECT lastval()");
    undefined(&mut other, "BEGIN; SELECT currval('numbers')");
    other.rows("ROLLBACK");
    assert_eq!(other.value("SELECT nextval('numbers')"), "2");
    assert_eq!(other.value("SELECT currval('numbers')"), "2");
    // Its own was overwritten, and is forgotten rather than taken for the other's.
    undefined(&mut one, "SELECT lastval()");
    assert_eq!(one.value("SELECT nextval('numbers')"), "3");
    // The other way to ask.
    for client in [&mut other, &mut one] {
        client.send(frontend::parse("", "SELECT lastval()"));
        client.send([frontend::bind("", "", &[]), frontend::execute("", 0)].concat());
        client.send(frontend::sync());
        let messages = client.read_to_ready();
        let error = messages.iter().filter(|one| one.tag == b'E').find_map(testkit::Message::error);
        assert_eq!(error.expect("there is no number").code(), "55000");
    }
}

#[test]
fn the_first_to_ask_is_told_no_strangers_number_either_strict() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(1);
    let (mut one, mut other) = (pooler.client(&database), pooler.client(&database));
    one.rows("CREATE SEQUENCE numbers; CREATE TABLE plain (a int)");
    assert_eq!(one.value("SELECT nextval('numbers')"), "1");
    other.rows("BEGIN; INSERT INTO plain VALUES (1)");
    let error = other.query("SELECT lastval()").error.expect("it has drawn none");
    assert_eq!(error.code(), "55000");
    other.query("ROLLBACK");
    assert_eq!(other.value("SELECT nextval('numbers')"), "2");
    assert_eq!(other.value("SELECT lastval()"), "2");
}

#[test]
fn a_client_that_asks_for_numbers_keeps_its_server() {
    if !support::only_proxied(NO_NUMBER) {
        return;
    }
    let (pooler, database) = pooler(8);
    let mut client = pooler.client(&database);
    client.rows("CREATE SEQUENCE numbers");
    client.rows("SELECT nextval('numbers')");
    assert_eq!(client.value("SELECT lastval()"), "1");
    let own = backend(&mut client);
    let _held = switch(&pooler, &database);
    assert_eq!(client.value("SELECT lastval()"), "1");
    assert_eq!(backend(&mut client), own);
    let pins = pooler.admin("SHOW PINS");
    assert_eq!((pins.only("reason"), pins.only("database")), ("sequence", &*database));
    // What it has kept the server for is gone.
    for end in ["DISCARD SEQUENCES", "DISCARD ALL"] {
        client.query("SELECT lastval()");
        settle(&pooler);
        assert_eq!(pooler.admin("SHOW PINS").column("reason"), ["sequence"]);
        client.rows(end);
        settle(&pooler);
        assert_eq!(pooler.admin("SHOW PINS").rows.len(), 0, "{end}");
    }
}

/// So many clients in each of the ways; the long suites have ten thousand.
fn crowd() -> usize {
    if std::env::var("WEIR_TESTS").is_ok_and(|which| which == "full") { 10_000 } else { 1_000 }
}

/// How a client inserts its row.
enum Insert {
    Plain,
    /// BEGIN before it, and COMMIT when the number is known.
    InTransaction,
    /// As PHP's PDO does: by a named statement, which SQL's DEALLOCATE removes.
    Prepared,
}

impl Insert {
    fn run(&self, client: &mut RawClient, who: usize) {
        let text = format!("INSERT INTO crowd (who) VALUES ({who})");
        match self {
            Self::Plain => drop(client.rows(&text)),
            Self::InTransaction => {
                client.rows("BEGIN");
                client.rows(&text);
            }
            Self::Prepared => {
                let name = "pdo_stmt_00000001";
                client.send([frontend::parse(name, &text), frontend::sync()].concat());
                client.read_to_ready();
                let run = [frontend::bind("", name, &[]), frontend::execute("", 0)].concat();
                client.send([run, frontend::sync()].concat());
                client.read_to_ready();
                client.rows(&format!("DEALLOCATE {name}"));
            }
        }
    }
}

/// New clients, fifty at a time, in a fresh pool of eight: each inserts a row with its own number and
/// name, asks for that number, and leaves. The table has to say the same.
fn everybody_is_told_its_own(insert: &Insert, round_robin: u8) {
    if !support::only_proxied(NO_NUMBER) {
        return;
    }
    let (setup, database) = support::setup("auto");
    let setup = setup.workers(2).set("default_pool_size", 8).set("max_client_conn", 200);
    let pooler = setup.set("server_round_robin", round_robin).start();
    let mut direct = support::direct(&database);
    direct.rows("CREATE TABLE crowd (id serial, who int); GRANT ALL ON crowd TO PUBLIC");
    direct.rows("GRANT ALL ON SEQUENCE crowd_id_seq TO PUBLIC");
    let next = std::sync::atomic::AtomicUsize::new(0);
    let told = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| {
                loop {
                    let who = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if who >= crowd() {
                        return;
                    }
                    let mut client = pooler.client(&database);
                    insert.run(&mut client, who);
                    let answer = client.query("SELECT lastval()");
                    let number = match answer.error {
                        Some(error) => format!("refused: {}", error.code()),
                        None => answer.rows[0][0].clone().expect("a number"),
                    };
                    if matches!(insert, Insert::InTransaction) {
                        client.query("COMMIT");
                    }
                    told.lock().expect("no thread has failed").push((who, number));
                }
            });
        }
    });
    let rows = direct.rows("SELECT who, id FROM crowd");
    let field = |field: &Option<String>| field.clone().expect("a value");
    let own: std::collections::HashMap<_, _> =
        rows.iter().map(|row| (field(&row[0]), field(&row[1]))).collect();
    let told = told.into_inner().expect("no thread has failed");
    assert_eq!(told.len(), crowd());
    let wrong = told.iter().filter(|(who, number)| own.get(&who.to_string()) != Some(number));
    let wrong: Vec<_> = wrong.collect();
    assert!(
        wrong.is_empty(),
        "{} of {}: {:?}",
        wrong.len(),
        told.len(),
        &wrong[..wrong.len().min(9)]
    );
}

#[test]
fn every_new_client_is_told_its_own_number_within_a_transaction_strict() {
    everybody_is_told_its_own(&Insert::InTransaction, 0);
}

#[test]
fn every_new_client_is_told_its_own_number_in_autocommit_strict() {
    everybody_is_told_its_own(&Insert::Plain, 0);
}

#[test]
fn every_new_client_is_told_its_own_number_where_servers_are_given_out_in_turn_strict() {
    everybody_is_told_its_own(&Insert::Plain, 1);
}

#[test]
fn every_new_client_of_pdo_is_told_its_own_number_where_servers_are_given_out_in_turn_strict() {
    everybody_is_told_its_own(&Insert::Prepared, 1);
}
