//! Invalid input, sudden deaths, and unreachable servers. After each of them, the pooler must still
//! serve other clients, and no server may be left over or linked in a dirty state.

mod server;

use std::time::{Duration, Instant};

use crate::support;
use testkit::{Message, Pooler, RawClient, Role, eventually, frontend};

/// Checks that other clients are served and nothing is left over.
#[track_caller]
fn assert_unharmed(pooler: &Pooler, database: &str) {
    assert_eq!(pooler.client(database).value("SELECT 'unharmed'"), "unharmed");
    pooler.wait_until_quiet(database, 20);
}

/// Sends bytes on a new connection, and expects the pooler to close it, with or without an error.
#[track_caller]
fn assert_dropped(pooler: &Pooler, bytes: &[u8]) {
    let mut client = RawClient::connect(pooler.port());
    let _ = client.try_send(bytes);
    let messages = client.read_to_end();
    assert!(messages.iter().all(|m| m.tag == b'E'), "{messages:?}");
}

#[test]
fn garbage_at_startup_is_refused_core_strict() {
    let (pooler, database) = support::pooler("transaction");
    let garbage: [&[u8]; 8] = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        // The length of four bytes covers only itself.
        b"\x00\x00\x00\x04\x00\x03\x00\x00",
        // No terminator.
        b"\x00\x00\x00\x0d\x00\x03\x00\x00user\x01",
        // A key without its value.
        b"\x00\x00\x00\x0e\x00\x03\x00\x00user\x00\x00",
        // Protocol 9.9.
        b"\x00\x00\x00\x09\x00\x09\x00\x09\x00",
    ];
    for bytes in garbage {
        assert_dropped(&pooler, bytes);
    }
    assert_unharmed(&pooler, &database);
}

#[test]
fn a_startup_packet_of_two_gigabytes_is_refused_at_once() {
    let (pooler, database) = support::pooler("transaction");
    let before = pooler.resident_kib();
    for length in [0x7fff_ffffu32, 0x8000_0000, 0xffff_ffff, 100_000] {
        let begun = Instant::now();
        let head = [length.to_be_bytes(), 196_608u32.to_be_bytes()].concat();
        assert_dropped(&pooler, &head);
        assert!(begun.elapsed() < Duration::from_secs(5), "length {length}");
    }
    assert!(pooler.resident_kib() < before + 4096, "memory was taken for it");
    assert_unharmed(&pooler, &database);
}

#[test]
fn impossible_message_lengths_end_the_connection_strict() {
    let (pooler, database) = support::pooler("transaction");
    for length in [0u32, 3, 0x8000_0000, 0xffff_ffff] {
        let mut client = pooler.client(&database);
        let mut bytes = frontend::query("SELECT 1");
        bytes[1..5].copy_from_slice(&length.to_be_bytes());
        let _ = client.try_send(&bytes);
        let messages = client.read_to_end();
        assert!(messages.iter().all(|m| m.tag == b'E'), "length {length}: {messages:?}");
    }
    assert_unharmed(&pooler, &database);
}

#[test]
fn a_message_that_claims_two_gigabytes_takes_no_memory_core() {
    let (pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    let before = pooler.resident_kib();
    let mut bytes = frontend::query("SELECT 1");
    bytes[1..5].copy_from_slice(&0x7fff_ffffu32.to_be_bytes());
    let _ = client.try_send(&bytes);
    assert_eq!(pooler.client(&database).value("SELECT 'others'"), "others");
    assert!(pooler.resident_kib() < before + 4096, "memory was taken for it");
    drop(client);
    assert_unharmed(&pooler, &database);
}

#[test]
fn unknown_message_types_end_the_connection_strict() {
    let (pooler, database) = support::pooler("transaction");
    for tag in [b'Z', b'!', 0, 0xff] {
        let mut client = pooler.client(&database);
        let _ = client.try_send(frontend::message(tag, b"nonsense"));
        let messages = client.read_to_end();
        assert!(messages.iter().all(|m| m.tag == b'E'), "type {tag}: {messages:?}");
    }
    assert_unharmed(&pooler, &database);
}

#[test]
fn broken_messages_get_an_error_and_harm_nobody_core_strict() {
    let (pooler, database) = support::pooler("transaction");
    // Strings without a terminator, and counts beyond the end of the message.
    for (tag, payload) in [
        (b'P', &b"no end"[..]),
        (b'P', b"s\0SELECT 1"),
        (b'B', b"no end"),
        (b'B', b"\0\0\x7f\xff"),
        (b'D', b""),
        (b'D', b"Xname\0"),
        (b'D', b"Sno end"),
        (b'C', b"Sno end"),
        (b'C', b""),
        (b'E', b"no end"),
        (b'Q', b"no end"),
        (b'F', b"\0"),
    ] {
        let mut client = pooler.client(&database);
        client.set_timeout(Duration::from_secs(5));
        let sync = frontend::sync();
        let _ = client.try_send([frontend::message(tag, payload), sync].concat());
        // The pooler refuses some of these messages and the server the others. Both give an error.
        let mut seen = Vec::new();
        while let Ok(Some(message)) = client.try_read() {
            let last = message.tag == b'Z';
            seen.push(message);
            if last {
                break;
            }
        }
        assert!(seen.iter().any(|m| m.tag == b'E'), "{} {seen:?}", payload.escape_ascii());
    }
    assert_unharmed(&pooler, &database);
}

#[test]
fn clients_may_die_at_any_byte_of_their_login_strict() {
    let (pooler, database) = support::pooler("transaction");
    let startup = frontend::startup(&[("user", Role::APP), ("database", &database)]);
    for length in 0..=startup.len() {
        let mut client = RawClient::connect(pooler.port());
        client.send(&startup[..length]);
    }
    assert_unharmed(&pooler, &database);
}

#[test]
fn clients_may_die_at_any_byte_of_a_request_strict() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", 3).workers(2).start();
    support::direct(&database).rows("CREATE TABLE t (n int)");
    let request = [
        frontend::query("BEGIN"),
        frontend::parse("s", "INSERT INTO t VALUES ($1)"),
        frontend::bind("", "s", &[Some("1")]),
        frontend::execute("", 0),
        frontend::sync(),
        frontend::query("SELECT n, pg_backend_pid() FROM t"),
    ]
    .concat();
    // PgBouncer does not support named statements here and would close each connection itself.
    let request = if support::only_weir() { request } else { frontend::query("BEGIN") };
    for length in 1..=request.len() {
        pooler.client(&database).send(&request[..length]);
    }
    assert_eq!(pooler.client(&database).value("SELECT count(*) FROM t"), "0");
    pooler.wait_until_quiet(&database, 3);
}

#[test]
fn a_client_program_killed_in_the_middle_of_its_query_leaves_nothing() {
    let (pooler, database) = support::pooler("transaction");
    let sql = "SELECT pg_sleep(1.25)";
    let mut psql = pooler
        .client_program("psql", &database)
        .args(["-X", "-c", sql])
        .spawn()
        .expect("psql starts");
    support::until_running(&database, sql);
    psql.kill().and_then(|()| psql.wait()).expect("our own child");
    assert_unharmed(&pooler, &database);
}

#[test]
fn a_half_closed_connection_still_gets_its_answer_or_ends_strict() {
    let (pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    client.send(frontend::query("SELECT 'last words'"));
    client.shutdown_write();
    let messages = client.read_to_end();
    assert!(messages.iter().all(|m| m.tag != b'E'), "{messages:?}");
    assert_unharmed(&pooler, &database);
}

#[test]
fn idle_strangers_do_not_keep_others_out_core() {
    let (pooler, database) = support::pooler("transaction");
    let strangers: Vec<RawClient> = (0..200)
        .map(|number| {
            let mut stranger = RawClient::connect(pooler.port());
            let startup = frontend::startup(&[("user", Role::APP)]);
            stranger.send(&startup[..number % startup.len()]);
            stranger
        })
        .collect();
    assert_eq!(pooler.client(&database).value("SELECT 1"), "1");
    drop(strangers);
    assert_unharmed(&pooler, &database);
}

#[test]
fn a_killed_pooler_starts_again_on_the_same_port() {
    let (mut pooler, database) = support::pooler("transaction");
    let mut clients: Vec<RawClient> = (0..5).map(|_| pooler.client(&database)).collect();
    clients[0].rows("CREATE TABLE t (n int)");
    clients[0].rows("BEGIN; INSERT INTO t VALUES (1)");
    clients[1].send(frontend::query("SELECT pg_sleep(0.5)"));
    pooler.kill9();
    for client in &mut clients {
        assert!(client.read_to_end().iter().all(|m| m.tag != b'Z'));
    }
    pooler.restart();
    assert_eq!(pooler.client(&database).value("SELECT count(*) FROM t"), "0");
    assert_eq!(
        RawClient::connect_unix(pooler.socket_folder(), pooler.port())
            .map(|mut client| client
                .authenticate(&[("user", Role::APP), ("database", &database)], "")
                .is_ok())
            .ok(),
        Some(true),
        "the unix socket works again too"
    );
    let servers = || testkit::Postgres::shared().backends(&database).len();
    eventually("the servers of the killed one are gone", Duration::from_secs(10), || {
        (servers() <= 1).then_some(())
    });
}

/// Returns the error that ended a connection.
fn last_error(client: &mut RawClient) -> Option<testkit::ServerError> {
    client.read_to_end().iter().rev().find_map(Message::error)
}
