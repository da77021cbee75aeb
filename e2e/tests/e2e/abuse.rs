//! Hostile clients, and the service that other clients get meanwhile. They stall in the login,
//! guess passwords, send oversized data, or cancel queries of others.

mod guessing;
mod secrets;
mod telling;

use std::time::{Duration, Instant};

use crate::support;
use testkit::{
    Authority, Pooler, Postgres, RawClient, Role, ServerAuth, Setup, eventually, frontend,
};

/// Seconds. It is longer than any test waits, so an event within a test has another cause.
const FAR_AWAY: u32 = 600;

/// Returns a pooler that accepts connections before they have sent anything, and does not time out.
fn patient(logins_max: u32) -> (Setup, String) {
    let (setup, database) = support::setup("transaction");
    let setup = setup
        .set("tcp_defer_accept", 0)
        .set("client_login_timeout", FAR_AWAY)
        .set("max_client_logins", logins_max);
    (setup, database)
}

fn connections(pooler: &Pooler, count: usize, first_words: &[u8]) -> Vec<RawClient> {
    let connect = |_| {
        let mut client = RawClient::connect(pooler.port());
        // The pooler may have closed the connection already.
        let _ = client.try_send(first_words);
        client
    };
    (0..count).map(connect).collect()
}

/// Returns the beginning of a startup packet.
fn half_a_packet() -> Vec<u8> {
    frontend::startup(&[("user", "app"), ("database", "app")])[..12].to_vec()
}

#[test]
fn stalled_logins_make_room_for_other_logins_core() {
    if !support::only_weir() {
        return;
    }
    let words = [Vec::new(), half_a_packet(), frontend::startup(&[("user", Role::APP)])];
    support::at_once(words, |first_words| {
        let (setup, database) = patient(20);
        let pooler = setup.set("auth_type", "md5").start();
        let mut before = pooler.client(&database);
        let mut attackers = connections(&pooler, 100, &first_words);
        // The limit of logins is reached. If no stalled login were ended, this client would wait
        // for ten minutes.
        let mut client = pooler.client(&database);
        assert_eq!(client.value("SELECT 1"), "1");
        assert_eq!(before.value("SELECT 2"), "2");
        let told = attackers[0].read_to_end();
        let error = told.iter().find_map(testkit::Message::error).expect("it is told why");
        assert_eq!(error.message(), "too many clients are logging in (max_client_logins)");
    });
}

#[test]
fn stalled_logins_do_not_count_as_clients() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = patient(1000);
    let pooler = setup.set("auth_type", "md5").set("max_client_conn", 20).start();
    let mut before = pooler.client(&database);
    let hello = frontend::startup(&[("user", Role::APP), ("database", &database)]);
    let _attackers = connections(&pooler, 19, &hello);
    // If stalled logins counted as clients, this client would wait for ten minutes.
    support::until_let_in(&pooler, &database);
    assert_eq!(before.value("SELECT 2"), "2");
}

#[test]
fn the_unix_socket_accepts_the_operator_at_the_limit_of_logins() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = patient(1);
    let pooler = setup.start();
    let _attackers = connections(&pooler, 50, b"");
    assert_eq!(pooler.unix_client(&database).value("SELECT 1"), "1");
}

#[test]
fn half_open_tls_makes_room_for_whole_handshakes_core() {
    if !support::only_weir() {
        return;
    }
    let authority = Authority::new("weir test");
    let own = authority.server();
    let (setup, database) = patient(20);
    let pooler = setup
        .set("client_tls_sslmode", "require")
        .set("client_tls_cert_file", own.certificate())
        .set("client_tls_key_file", own.key())
        .start();
    // One group sends an SSLRequest and no more, one half a TLS record, one the beginning of direct
    // TLS.
    let record = [0x16, 3, 1, 2, 0, 1, 0];
    let _asked = connections(&pooler, 40, &frontend::ssl_request());
    let _halfway = connections(&pooler, 40, &record);
    let mut psql = pooler.client_program("psql", &database);
    psql.env("PGHOST", "localhost").env("PGSSLMODE", "require").args(["-XAtc", "SELECT 7"]);
    assert_eq!(support::run(&mut psql).trim(), "7");
    pooler.log_contains("too many clients are logging in");
}

#[test]
fn the_login_timeout_covers_the_whole_login_core() {
    if !support::only_weir() {
        return;
    }
    let authority = Authority::new("weir test");
    let own = authority.server();
    let (setup, database) = support::setup("transaction");
    let pooler = setup
        .set("client_login_timeout", 2)
        .set("client_tls_sslmode", "allow")
        .set("client_tls_cert_file", own.certificate())
        .set("client_tls_key_file", own.key())
        .start();
    let packet = frontend::startup(&[("user", Role::APP), ("database", &database)]);
    let began = Instant::now();
    let mut client = RawClient::connect(pooler.port());
    // Sends a byte at a time, never pauses for long, and never completes the login.
    let mut bytes = packet[..packet.len() - 1].iter().cycle();
    client.set_timeout(Duration::from_millis(100));
    eventually("the drip is cut off", Duration::from_secs(30), || {
        let sent = client.try_send([*bytes.next().expect("endless")]);
        match client.try_read() {
            Ok(None) => Some(()),
            Ok(Some(message)) => {
                assert_eq!(message.tag, b'E', "{message:?}");
                None
            }
            Err(_) => sent.is_err().then_some(()),
        }
    });
    assert!(began.elapsed() >= Duration::from_millis(1500), "it was cut off for another reason");
    assert_eq!(pooler.client(&database).value("SELECT 1"), "1");
}

#[test]
fn a_too_long_login_packet_is_refused_before_it_arrives_core() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("auth_type", "md5").start();
    let before = pooler.resident_kib();
    // Sends lengths that no packet may have, without a body: the pooler must not wait for the body.
    for length in [0u32, 7, 65_537, 0x7fff_ffff, u32::MAX] {
        let mut client = RawClient::connect(pooler.port());
        client.send([length.to_be_bytes(), 196_608u32.to_be_bytes()].concat());
        let told = client.read_to_end();
        assert!(told.iter().all(|message| message.tag == b'E'), "{length}: {told:?}");
    }
    let startup = frontend::startup(&[("user", Role::APP), ("database", &database)]);
    for length in [100_000u32, 0x7fff_ffff] {
        let mut client = RawClient::connect(pooler.port());
        client.send(&startup);
        assert_eq!(client.read().tag, b'R');
        client.send([&b"p"[..], &length.to_be_bytes()].concat());
        let told = client.read_to_end();
        assert!(told.iter().all(|message| message.tag == b'E'), "{length}: {told:?}");
    }
    assert!(pooler.login(Role::APP, &database, Role::APP_PASSWORD).is_ok());
    let grown = pooler.resident_kib().saturating_sub(before);
    assert!(grown < 8_192, "{grown} KiB for packets that never came");
}

#[test]
fn cancel_requests_with_wrong_keys_cancel_nothing_and_delay_nobody_core() {
    let (pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    client.send(frontend::query("SELECT pg_sleep(2), 1805"));
    support::until_running(&database, "SELECT pg_sleep(2), 1805");
    let (pid, secret) = (client.pid, client.secret.clone());
    let mut flood = Vec::new();
    for n in 0..400u32 {
        let mut canceller = RawClient::connect(pooler.port());
        // Each request has the right process id or the right secret, but not both.
        let (pid, secret) =
            if n % 2 == 0 { (pid, n.to_be_bytes().to_vec()) } else { (pid ^ 1, secret.clone()) };
        canceller.send(frontend::cancel_request(pid, &secret));
        flood.push(canceller);
    }
    assert_eq!(pooler.client(&database).value("SELECT 1"), "1");
    for mut canceller in flood {
        assert!(canceller.read_to_end().is_empty(), "a cancel request got an answer");
    }
    let rows = client.read_to_ready();
    assert_eq!(rows[1].row()[1].as_deref(), Some("1805"));
}

#[test]
fn many_cancel_requests_for_one_query_are_one() {
    let (pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    let backends = || Postgres::shared().backends(&database).len();
    client.send(frontend::query("SELECT pg_sleep(100)"));
    support::until_running(&database, "SELECT pg_sleep(100)");
    let request = frontend::cancel_request(client.pid, &client.secret);
    let mut flood: Vec<_> = (0..200).map(|_| RawClient::connect(pooler.port())).collect();
    flood.iter_mut().for_each(|canceller| canceller.send(&request));
    let error = client.read_to_ready().iter().find_map(testkit::Message::error);
    assert_eq!(error.expect("it was cancelled").code(), "57014");
    flood.iter_mut().for_each(|canceller| assert!(canceller.read_to_end().is_empty()));
    // Cancel requests that arrive late must not cancel a later query.
    for _ in 0..20 {
        assert_eq!(client.value("SELECT 'fine'"), "fine");
    }
    assert_eq!(backends(), 1);
}

/// Adds a role of the test's own, whose password the pooler knows.
fn known_role(setup: Setup) -> (Setup, Role) {
    let role = Postgres::shared().role(ServerAuth::Scram);
    (setup.secret(&role.name, &role.password), role)
}
