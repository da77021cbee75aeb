//! Numbers of sequences: `currval` and `lastval` tell what their client has drawn, or nothing.

use testkit::{RawClient, frontend};

use super::{backend, pooler, settle, switch};
use crate::support;

#[test]
fn nobody_is_told_a_strangers_number() {
    if !support::only_weir() {
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
fn the_first_to_ask_is_told_no_strangers_number_either() {
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
fn who_asks_for_numbers_keeps_its_server() {
    if !support::only_weir() {
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
