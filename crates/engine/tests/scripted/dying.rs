//! A server is lost, in each phase of its life.

use std::time::Duration;

use crate::messages::*;
use crate::rig::{Client, Rig, Server};

fn pair(rig: &Rig) -> (Client, Server) {
    (rig.client(), rig.server(0))
}

#[test]
fn parked() {
    let rig = Rig::of_size(1);
    let (client, server) = pair(&rig);
    server.die();
    assert_eq!(rig.pool(|pool| pool.counts()), (0, 0));
    client.send([query("one")]);
    rig.server(1).answers("one");
    client.expect([done("OK")]);
}

#[test]
fn parked_with_a_last_word() {
    let rig = Rig::of_size(1);
    let (client, server) = pair(&rig);
    server.send([fatal("57P01", "terminating connection due to administrator command")]);
    assert!(!server.is_open());
    client.expect([]);
    assert!(client.is_open());
}

#[test]
fn a_false_alarm_does_no_harm() {
    let rig = Rig::of_size(1);
    let (client, server) = pair(&rig);
    server.poke();
    assert!(server.is_parked());
    client.send([query("one")]);
    server.poke();
    server.answers("one");
    client.expect([done("OK")]);
}

#[test]
fn ready_before_it_has_let_us_in() {
    let rig = Rig::of_size(1).manual();
    let client = rig.connect();
    client.say_hello(&[]);
    let server = rig.server(0);
    server.connect();
    server.send([ready('I')]);
    assert!(!server.is_open());
    assert!(rig.logged("unknown message 'Z' during login"));
}

#[test]
fn linked_and_waiting_for_its_client() {
    let rig = Rig::session();
    let (client, server) = pair(&rig);
    server.die();
    client.expect_lost();
}

#[test]
fn linked_and_working() {
    let rig = Rig::of_size(1);
    let (client, server) = pair(&rig);
    let other = rig.client();
    client.send([query("one")]);
    other.send([query("other")]);
    server.die();
    client.expect_lost();
    rig.server(1).answers("other");
    other.expect([done("OK")]);
}

#[test]
fn in_the_middle_of_a_row_nothing_can_be_said() {
    let rig = Rig::transaction();
    let (client, server) = pair(&rig);
    client.send([query("one")]);
    server.send([columns("x"), row("halved")[..8].to_vec()]);
    server.die();
    client.expect([columns("x"), row("halved")[..8].to_vec()]);
    assert!(!client.is_open());
}

#[test]
fn with_a_last_word_to_its_client() {
    let rig = Rig::transaction();
    let (client, server) = pair(&rig);
    client.send([query("one")]);
    let last = fatal("57P01", "terminating connection due to administrator command");
    server.send([last.clone()]);
    client.expect([last]);
    assert!(!client.is_open());
}

#[test]
fn while_connecting() {
    let rig = Rig::of_size(1).manual();
    let client = rig.connect();
    client.say_hello(&[]);
    rig.server(0).refuse();
    assert!(client.is_open(), "it waits for the next attempt");
    let newcomer = rig.connect();
    newcomer.say_hello(&[]);
    newcomer.expect_fatal(
        "server login has been failing, cached error: connect failed (server_login_retry)",
    );
    assert_eq!(rig.servers(), 1);
    rig.set_automatic(true);
    rig.wait(1);
    assert_eq!(rig.servers(), 2);
    client.expect_welcome(&[]);
}

/// PostgreSQL is down for three seconds, then starts up, then accepts connections.
#[test]
fn connecting_is_tried_again_soon_and_then_less_often() {
    let rig = Rig::of_size(1).manual();
    let client = rig.connect();
    client.say_hello(&[]);
    rig.server(0).refuse();
    let mut tried = 1;
    for _ in 0..14 {
        rig.wait_ms(200);
        if rig.servers() > tried {
            rig.server(tried).refuse();
            tried += 1;
        }
    }
    assert_eq!(tried, 7);
    rig.wait_ms(1_400);
    let server = rig.server(tried);
    server.connect();
    server.send([fatal("57P03", "the database system is starting up")]);
    assert!(client.is_open());
    rig.set_automatic(true);
    rig.wait(2);
    client.expect_welcome(&[]);
}

#[test]
fn refusing_the_login() {
    let rig = Rig::of_size(1).manual();
    let clients = [rig.connect(), rig.connect()];
    for client in &clients {
        client.say_hello(&[]);
    }
    let server = rig.server(0);
    server.connect();
    let error = fatal("3D000", "database \"app\" does not exist");
    server.send([error.clone()]);
    for client in &clients {
        client.expect([error.clone()]);
        assert!(!client.is_open());
    }
    rig.wait(14);
    let newcomer = rig.connect();
    newcomer.say_hello(&[]);
    newcomer.expect_fatal(
        "server login has been failing, cached error: database \"app\" does not exist \
         (server_login_retry)",
    );
    assert!(rig.logged("database \\\"app\\\" does not exist"));
}

#[test]
fn starting_up_is_no_refusal() {
    let rig = Rig::of_size(1).manual();
    let client = rig.connect();
    client.say_hello(&[]);
    let server = rig.server(0);
    server.connect();
    server.send([fatal("57P03", "the database system is starting up")]);
    client.expect([]);
    assert!(client.is_open());
    rig.set_automatic(true);
    rig.wait(15);
    client.expect_welcome(&[]);
}

/// A start of PostgreSQL takes many attempts. The log has a line for the first refusal of a kind, and
/// one with the count when a login succeeds.
#[test]
fn equal_refusals_are_told_once_and_counted() {
    let rig = Rig::of_size(1).manual();
    let client = rig.connect();
    client.say_hello(&[]);
    let said = ["starting up", "starting up", "starting up", "in recovery", "in recovery"];
    for (attempt, text) in said.iter().enumerate() {
        while rig.servers() == attempt {
            rig.wait_ms(200);
        }
        let server = rig.server(attempt);
        server.connect();
        server.send([fatal("57P03", text)]);
    }
    rig.set_automatic(true);
    rig.wait(15);
    client.expect_welcome(&[]);
    let told = |repeats: bool, text: &str| {
        rig.times_logged(&format!("message: \"FATAL {text}\", repeats: {repeats}"))
    };
    assert_eq!([told(false, "starting up"), told(true, "starting up")], [1, 2]);
    assert_eq!([told(false, "in recovery"), told(true, "in recovery")], [1, 1]);
    // The lines about the closed connections say which ones repeat it.
    assert_eq!(rig.times_logged("failed: true, repeats: true"), 3);
    assert!(rig.logged("refused: 5, after:"));
}

#[test]
fn talking_nonsense_during_login() {
    let nonsense: [Message; 4] = [
        b"Z\0\0\0\0".to_vec(),
        b"!\0\0\0\x04".to_vec(),
        b"R\0\0\0\x08\0\0\0\x07".to_vec(),
        b"R\x7f\xff\xff\xff\0\0\0\x07".to_vec(),
    ];
    for bytes in nonsense {
        let rig = Rig::of_size(1).manual();
        let client = rig.connect();
        client.say_hello(&[]);
        let server = rig.server(0);
        server.connect();
        server.send([bytes.clone()]);
        assert!(!server.is_open(), "{}", bytes.escape_ascii());
        match bytes.ends_with(&[7]) && bytes[1] == 0 {
            // The reason is known: no client could log in that way.
            true => client.expect_fatal("server login failed: unknown/unsupported auth method: 7"),
            false => assert!(client.is_open()),
        }
    }
}

#[test]
fn a_server_that_breaks_the_protocol_is_dropped() {
    let table: [(Message, &str); 4] = [
        (parsed(), "server sent message '1' instead of Some(Query)"),
        (b"Z\0\0\0\x05X".to_vec(), "malformed ReadyForQuery"),
        (b"D\0\0\0\x03".to_vec(), "message type 0x44 declares an impossible length of 3"),
        (b"S\0\0\0\x04".to_vec(), "malformed ParameterStatus: expected a name and a value"),
    ];
    for (bytes, text) in table {
        let rig = Rig::of_size(1);
        let (client, server) = pair(&rig);
        client.send([query("one")]);
        server.send([bytes]);
        let told = String::from_utf8_lossy(&client.take()).into_owned();
        let start = text.split(':').next().unwrap();
        assert!(told.contains(start), "{told} instead of {text}");
        assert!(!client.is_open() && !server.is_open());
    }
}

#[test]
fn an_unrequested_answer_closes_an_idle_server() {
    let rig = Rig::of_size(1);
    let (client, server) = pair(&rig);
    server.send([done("SELECT 1")]);
    assert!(!server.is_open() && client.is_open());
    client.expect([]);
}

#[test]
fn while_resetting() {
    let rig = Rig::session();
    let (client, server) = pair(&rig);
    client.leave();
    server.expect([query("DISCARD ALL")]);
    server.die();
    assert_eq!(rig.pool(|pool| pool.counts()), (0, 0));
}

/// Two clients are queued after `first`. The server dies while it is prepared for the older one.
#[test]
fn while_preparing_the_client_keeps_its_place_in_the_queue() {
    let rig = Rig::of_size(1);
    let (first, server) = pair(&rig);
    let second = rig.client_with(0, &[("TimeZone", "Asia/Tokyo")]);
    let third = rig.client();
    first.send([query("one")]);
    second.send([query("two")]);
    third.send([query("three")]);
    server.answers("one");
    server.expect([query("SET TimeZone = 'Asia/Tokyo';")]);
    server.die();
    let next = rig.server(1);
    next.answers("SET TimeZone = 'Asia/Tokyo';");
    next.answers("two");
    second.expect([done("OK")]);
    next.take();
}

#[test]
fn while_preparing_with_another_server_idle() {
    let rig = Rig::of_size(2);
    let (first, server) = pair(&rig);
    let second = rig.client();
    let third = rig.client_with(0, &[("TimeZone", "Asia/Tokyo")]);
    for client in [&first, &second] {
        client.send([query("begin")]);
    }
    let other = rig.server(1);
    for busy in [&server, &other] {
        busy.expect([query("begin")]);
        busy.send([complete("BEGIN"), ready('T')]);
    }
    third.send([query("three")]);
    first.send([query("commit")]);
    server.answers("commit");
    server.expect([query("SET TimeZone = 'Asia/Tokyo';")]);
    second.send([query("commit")]);
    other.answers("commit");
    assert!(other.is_parked());
    server.die();
    other.answers("SET TimeZone = 'Asia/Tokyo';");
    other.answers("three");
    third.expect([done("OK")]);
}

#[test]
fn thousands_may_wait_for_nothing_but_their_welcome() {
    let rig = Rig::new(|config| config.global.max_client_conn = 10_000).manual();
    let clients: Vec<Client> = (0..3_000).map(|_| rig.connect()).collect();
    for client in &clients {
        client.say_hello(&[]);
    }
    rig.set_automatic(true);
    clients[0].send([]);
    for client in &clients {
        client.expect_welcome(&[]);
    }
}

/// The error tells a network that does not answer from a server that does not.
#[test]
fn connecting_takes_too_long() {
    for (connected, why) in [(false, "connect failed"), (true, "connect timeout")] {
        let rig = Rig::new(|config| config.global.server_connect_timeout = Duration::from_secs(5));
        let rig = rig.manual();
        let client = rig.connect();
        client.say_hello(&[]);
        if connected {
            rig.server(0).connect();
        }
        rig.wait(4);
        assert!(rig.server(0).is_open());
        rig.wait(1);
        assert!(!rig.server(0).is_open() && client.is_open());
        let newcomer = rig.connect();
        newcomer.say_hello(&[]);
        newcomer.expect_fatal(&format!(
            "server login has been failing, cached error: {why} (server_login_retry)"
        ));
    }
}
