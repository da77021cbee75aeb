//! Exhausted resources: descriptors, channels, CPU time for handshakes. Clients that are already
//! connected are served throughout.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Authority, Postgres, RawClient, Role, frontend, pooler_binary};

use crate::support;

#[test]
fn connected_clients_are_served_while_no_descriptor_is_left() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.open_files_max(50).start();
    let mut before = pooler.client(&database);
    assert_eq!(before.value("SELECT 1"), "1");
    let mut other = pooler.client(&database);
    let hello = frontend::startup(&[("user", Role::APP), ("database", &database)]);
    let connect = |_| {
        let mut client = RawClient::connect(pooler.port());
        let _ = client.try_send(&hello);
        client
    };
    let crowd: Vec<RawClient> = (0..100).map(connect).collect();
    pooler.log_contains("accept() failed: Too many open files");
    for turn in 0..20 {
        assert_eq!(before.value(&format!("SELECT {turn}")), turn.to_string());
    }
    before.rows("BEGIN");
    thread::scope(|scope| {
        let waits = scope.spawn(|| other.value("SELECT 5"));
        if support::only_weir() {
            pooler.log_contains("cannot open a socket for server 127.0.0.1:");
        }
        drop(crowd);
        assert_eq!(waits.join().expect("it is served at last"), "5");
    });
    assert_eq!(before.query("COMMIT").tags, ["COMMIT"]);
    assert!(!pooler.log().contains("is down"), "PostgreSQL runs: {}", pooler.log());
    let mut after = support::until_let_in(&pooler, &database);
    assert_eq!(after.value("SELECT 2"), "2");
    assert_eq!(before.value("SELECT 3"), "3");
}

#[test]
fn many_thousand_channels_cost_their_listener_only() {
    if !support::only_weir() {
        return;
    }
    // PostgreSQL searches all channels of a session at each LISTEN: 80,000 take half a minute.
    let is_full = std::env::var("WEIR_TESTS").is_ok_and(|which| which == "full");
    let channels = if is_full { 80_000 } else { 10_000 };
    let (setup, database) = support::setup("auto");
    let pooler = setup.set("default_pool_size", 3).start();
    let mut other = pooler.client(&database);
    assert_eq!(other.value("SELECT 1"), "1");
    let before = pooler.resident_kib();
    let mut listener = pooler.client(&database);
    let listens = thread::spawn(move || {
        for first in (0..channels).step_by(2_000) {
            let texts: Vec<u8> = (first..first + 2_000)
                .flat_map(|channel| frontend::query(&format!("LISTEN channel_{channel}")))
                .collect();
            let mut writer = listener.writer();
            let sends = thread::spawn(move || std::io::Write::write_all(&mut writer, &texts));
            (0..2_000).for_each(|_| drop(listener.read_to_ready()));
            sends.join().expect("no panic").expect("it is read");
        }
        listener
    });
    let mut longest = Duration::ZERO;
    while !listens.is_finished() {
        let began = Instant::now();
        assert_eq!(other.value("SELECT 2"), "2");
        longest = longest.max(began.elapsed());
    }
    let mut listener = listens.join().expect("no panic");
    assert!(longest < Duration::from_secs(2), "another client waited for {longest:?}");
    let more = pooler.resident_kib().saturating_sub(before);
    assert!(more < 16 * 1024, "{more} KiB more than before");
    assert_eq!(
        listener.value("SELECT count(*) FROM pg_listening_channels()"),
        channels.to_string()
    );
    other.rows("NOTIFY channel_9999, 'it hears'");
    let heard = listener.read_until(|message| message.tag == b'A');
    let heard = String::from_utf8_lossy(&heard[heard.len() - 1].body).into_owned();
    assert!(heard.ends_with("channel_9999\0it hears\0"), "{heard:?}");
}

#[test]
fn a_storm_of_handshakes_lets_all_in_and_those_at_work_go_on() {
    if !support::only_weir() {
        return;
    }
    let authority = Authority::new("weir test");
    let own = authority.server();
    let (setup, database) = support::setup("transaction");
    let pooler = setup
        .set("client_tls_sslmode", "allow")
        .set("client_tls_cert_file", own.certificate())
        .set("client_tls_key_file", own.key())
        .start();
    let mut at_work = pooler.client(&database);
    let script = testkit::open_folder("storm").join("one.sql");
    std::fs::write(&script, "SELECT 1;\n").expect("a scratch folder");
    let mut storm = Command::new(pooler_binary());
    let psql = Postgres::client_program("psql", pooler.port(), &database);
    storm.envs(psql.get_envs().filter_map(|(name, value)| Some((name, value?))));
    storm.env("PGSSLMODE", "require").args(["bench", "-n", "-C", "-c", "100", "-t", "5", "-f"]);
    storm.arg(script);
    let storm = thread::spawn(move || support::run(&mut storm));
    let mut longest = Duration::ZERO;
    while !storm.is_finished() {
        let began = Instant::now();
        assert_eq!(at_work.value("SELECT 2"), "2");
        longest = longest.max(began.elapsed());
    }
    let report = storm.join().expect("no panic");
    assert!(report.contains("processed: 500/500\n"), "{report}");
    assert!(longest < Duration::from_secs(2), "a client at work waited for {longest:?}");
}
