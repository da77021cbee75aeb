//! LISTEN without a server of one's own: what is told, when, to whom, and that nothing is told
//! twice or not at all. What else a session has is `auto.rs`'s topic.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use testkit::{Message, Pooler, RawClient, Table, eventually};

use crate::support;

mod drivers;
mod lost;

pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// A pooler with so many workers and servers.
fn pooler(workers: u32, size: u32) -> (Pooler, String) {
    let (setup, database) = support::setup("auto");
    let setup = setup.set("server_login_retry", 1);
    (setup.workers(workers).set("default_pool_size", size).start(), database)
}

/// Waits until nobody has a server, be it for a question of the pooler's own.
pub(crate) fn until_free(pooler: &Pooler) {
    eventually("nobody has a server", PATIENCE, || {
        let servers = pooler.admin("SHOW SERVERS");
        let is_free = |state: &&&str| ["idle", "used", "listening"].contains(state);
        let states = servers.column("state");
        states.iter().all(|state| is_free(&state)).then_some(())
    });
}

fn listeners(servers: &Table) -> usize {
    servers.column("state").iter().filter(|state| **state == "listening").count()
}

/// Who, where, what.
pub(crate) fn said(message: &Message) -> Option<(u32, String, String)> {
    let (pid, rest) = message.body.split_first_chunk().filter(|_| message.tag == b'A')?;
    let mut texts = rest.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into());
    Some((u32::from_be_bytes(*pid), texts.next()?, texts.next()?))
}

/// The payloads of what was told in these messages.
fn told(messages: &[Message]) -> Vec<String> {
    messages.iter().filter_map(said).map(|(_, _, payload)| payload).collect()
}

/// The payloads of the next notifications, when there are so many.
pub(crate) fn hear(client: &mut RawClient, count: usize) -> Vec<String> {
    let mut left = count;
    let messages = client.read_until(|message| {
        left -= usize::from(message.tag == b'A');
        left == 0
    });
    told(&messages)
}

/// What a query's answer tells by the way.
pub(crate) fn told_by(client: &mut RawClient, sql: &str) -> Vec<String> {
    client.send(testkit::frontend::query(sql));
    told(&client.read_to_ready())
}

#[test]
fn many_listen_and_one_server_serves_them_all_core() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(3, 1);
    let mut clients: Vec<_> = (0..20).map(|_| pooler.client(&database)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.rows(&format!("LISTEN everybody; LISTEN \"Number {number}\""));
    }
    until_free(&pooler);
    let servers = pooler.admin("SHOW SERVERS");
    assert_eq!((listeners(&servers), servers.rows.len()), (1, 2), "{servers:?}");
    support::direct(&database).rows("NOTIFY everybody, 'from outside'");
    let mut other = pooler.client(&database);
    for number in 0..clients.len() {
        other.rows(&format!("NOTIFY \"Number {number}\", 'for {number}'"));
        other.rows("NOTIFY nobody, 'x'");
    }
    other.rows("BEGIN; NOTIFY everybody, '1'; NOTIFY everybody, '2'; COMMIT");
    other.rows("BEGIN; NOTIFY everybody, 'never'; ROLLBACK");
    other.rows("NOTIFY everybody, '3'");
    for (number, client) in clients.iter_mut().enumerate() {
        let expected = ["from outside", &format!("for {number}"), "1", "2", "3"];
        assert_eq!(hear(client, expected.len()), expected);
    }
}

#[test]
fn a_client_with_an_encoding_of_its_own_hears_on_a_server_that_it_keeps() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(1, 3);
    let mut client = pooler.client(&database);
    client.rows("SET client_encoding = 'LATIN1'");
    client.rows("LISTEN letters");
    super::assert_pinned(&pooler, &["listen"]);
    assert_eq!(listeners(&pooler.admin("SHOW SERVERS")), 0);
    let mut stranger = pooler.client(&database);
    assert_eq!(told_by(&mut stranger, "SELECT pg_notify('letters', U&'\\00e4')"), [""; 0]);
    // The letter in its own encoding, which is no text of ours.
    assert_eq!(hear(&mut client, 1), ["\u{fffd}"]);
    assert_eq!(told_by(&mut stranger, "SELECT 1"), [""; 0]);
    client.rows("UNLISTEN letters");
    until_free(&pooler);
    super::assert_pinned(&pooler, &[]);
}

#[test]
fn ones_own_comes_first_and_once_and_from_oneself() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(2, 2);
    let mut client = pooler.client(&database);
    let own = client.pid.cast_unsigned();
    let from_itself = |client: &mut RawClient, sql: &str| {
        client.send(testkit::frontend::query(sql));
        let messages = client.read_to_ready();
        let heard: Vec<_> = messages.iter().filter_map(said).collect();
        assert!(heard.iter().all(|(pid, ..)| *pid == own), "{sql}: {heard:?}, not {own}");
        heard.into_iter().map(|(_, _, payload)| payload).collect::<Vec<_>>()
    };
    // Of what it has listened to in the same transaction, of what its server tells, and of what
    // the listener does.
    assert_eq!(from_itself(&mut client, "BEGIN; LISTEN mine; NOTIFY mine, '1'; COMMIT"), ["1"]);
    assert_eq!(from_itself(&mut client, "NOTIFY mine, '2'"), ["2"]);
    until_free(&pooler);
    for turn in 3..20 {
        let expected = turn.to_string();
        let sql = format!("SELECT pg_notify('mine', '{turn}')");
        assert_eq!(from_itself(&mut client, &sql), [expected]);
    }
    assert_eq!(from_itself(&mut client, "BEGIN"), [""; 0]);
    assert_eq!(from_itself(&mut client, "NOTIFY mine, '20'"), [""; 0]);
    assert_eq!(from_itself(&mut client, "COMMIT"), ["20"]);
    // Nothing of it comes a second time.
    let mut other = pooler.client(&database);
    other.rows("NOTIFY mine, 'last'");
    let last = client.read_until(|message| message.tag == b'A');
    assert_eq!(told(&last), ["last"]);
    assert_ne!(said(&last[last.len() - 1]).expect("it is one").0, own);
}

#[test]
fn listening_is_as_transactional_as_postgresql_has_it() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(1, 2);
    let mut client = pooler.client(&database);
    let mut other = support::direct(&database);
    let channels = "SELECT coalesce(string_agg(c, ','), '') \
                    FROM (SELECT c FROM pg_listening_channels() c ORDER BY 1) c";
    for (sql, left) in [
        ("BEGIN; LISTEN never; ROLLBACK", ""),
        ("LISTEN a", "a"),
        ("BEGIN; LISTEN b; SAVEPOINT s; LISTEN never; ROLLBACK TO s; COMMIT", "a,b"),
        ("BEGIN; UNLISTEN a; ROLLBACK", "a,b"),
        ("BEGIN; UNLISTEN a; LISTEN c; COMMIT", "b,c"),
        ("BEGIN; SAVEPOINT s; UNLISTEN *; ROLLBACK TO s; UNLISTEN b; COMMIT", "c"),
        ("DO $$ BEGIN EXECUTE 'LISTEN b'; END $$", "b,c"),
        ("LISTEN c; SELECT 1/0", "b,c"),
        ("UNLISTEN *; SELECT 1/0", "b,c"),
        ("UNLISTEN *", ""),
        ("LISTEN a; LISTEN b", "a,b"),
        ("DISCARD ALL", ""),
        ("LISTEN a", "a"),
    ] {
        client.query(sql);
        until_free(&pooler);
        assert_eq!(client.value(channels), left, "{sql}");
        for channel in ["never", "a", "b", "c"] {
            other.rows(&format!("NOTIFY {channel}, '{channel}'"));
        }
        let expected: Vec<_> = left.split(',').filter(|name| !name.is_empty()).collect();
        if !expected.is_empty() {
            assert_eq!(hear(&mut client, expected.len()), expected, "{sql}");
        }
    }
}

#[test]
fn nothing_is_told_within_a_transaction() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(1, 3);
    let mut client = pooler.client(&database);
    client.rows("LISTEN news");
    until_free(&pooler);
    let mut other = pooler.client(&database);
    let mut witness = pooler.client(&database);
    witness.rows("LISTEN news");
    assert_eq!(told_by(&mut client, "BEGIN"), [""; 0]);
    other.rows("NOTIFY news, '1'; NOTIFY news, '2'");
    // It has come as far as here.
    assert_eq!(hear(&mut witness, 2), ["1", "2"]);
    assert_eq!(told_by(&mut client, "SELECT 1"), [""; 0]);
    assert_eq!(told_by(&mut client, "SELECT 1/0"), [""; 0]);
    client.send(testkit::frontend::query("ROLLBACK"));
    assert_eq!(hear(&mut client, 2), ["1", "2"]);
}

/// A client begins to listen while somebody counts aloud: from the first number it hears none is
/// missing and none comes twice, whichever connection has told of it.
#[test]
fn nothing_is_lost_or_doubled_on_the_way_to_the_listener_core_strict() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(2, 3);
    let stop = Stop::default();
    std::thread::scope(|scope| {
        // Also when something is wrong.
        let _stopping = Stopping(&stop);
        scope.spawn(|| {
            let mut counter = support::direct(&database);
            let mut number = 0;
            while !stop.0.load(Ordering::Relaxed) {
                number += 1;
                counter.rows(&format!("NOTIFY numbers, '{number}'"));
            }
        });
        for turn in 0..30 {
            let mut client = pooler.client(&database);
            client.rows("LISTEN numbers");
            if turn % 3 == 1 {
                client.rows("SELECT 1");
            }
            if turn % 3 == 2 {
                client.send(testkit::frontend::query("LISTEN more"));
            }
            let heard = hear(&mut client, 200);
            let heard: Vec<u64> =
                heard.iter().map(|text| text.parse().expect("it counts")).collect();
            let first = heard[0];
            assert_eq!(heard, (first..first + 200).collect::<Vec<_>>(), "turn {turn}");
        }
    });
}

#[derive(Default)]
struct Stop(AtomicBool);

struct Stopping<'a>(&'a Stop);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_listening_client_at_work_misses_nothing() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(2, 2);
    let mut client = pooler.client(&database);
    client.rows("LISTEN numbers");
    until_free(&pooler);
    let count = 2_000;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut counter = pooler.client(&database);
            for number in 1..=count {
                counter.rows(&format!("NOTIFY numbers, '{number}'"));
            }
        });
        let mut heard: Vec<String> = Vec::new();
        let mut turn = 0;
        let begun = Instant::now();
        while heard.len() < count {
            assert!(begun.elapsed() < Duration::from_secs(120), "{} of {count}", heard.len());
            turn += 1;
            let sql = match turn % 5 {
                0 => "NOTIFY numbers, 'own'",
                1 => "BEGIN; SELECT 1; COMMIT",
                2 => "LISTEN numbers",
                3 => "SET work_mem = '5MB'",
                _ => "SELECT 1",
            };
            let (own, others): (Vec<_>, _) =
                told_by(&mut client, sql).into_iter().partition(|text| text == "own");
            assert_eq!(own.len(), usize::from(turn % 5 == 0), "turn {turn}");
            heard.extend(others);
        }
        let expected: Vec<_> = (1..=count).map(|number| number.to_string()).collect();
        assert_eq!(heard, expected);
    });
}

#[test]
fn the_last_to_leave_ends_the_listening() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("auto");
    let setup = setup.workers(2).set("default_pool_size", 1).set("server_idle_timeout", 2);
    let pooler = setup.start();
    let mut clients: Vec<_> = (0..4).map(|_| pooler.client(&database)).collect();
    clients.iter_mut().for_each(|client| drop(client.rows("LISTEN news")));
    until_free(&pooler);
    let listens = "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%UNLISTEN \"news\"%' \
                   AND pid <> pg_backend_pid() AND datname = current_database()";
    let mut witness = testkit::Postgres::shared().superuser(&database);
    clients.truncate(1);
    assert_eq!(listeners(&pooler.admin("SHOW SERVERS")), 1);
    assert_eq!(witness.rows(listens), [[]; 0]);
    clients[0].rows("UNLISTEN news");
    eventually("the listener listens no more", PATIENCE, || witness.rows(listens).pop());
    eventually("the listener is gone", PATIENCE, || {
        (listeners(&pooler.admin("SHOW SERVERS")) == 0).then_some(())
    });
    clients[0].rows("LISTEN news");
    until_free(&pooler);
    witness.rows("NOTIFY news, 'again'");
    assert_eq!(hear(&mut clients[0], 1), ["again"]);
}

#[test]
fn a_client_that_never_reads_is_closed_in_the_end() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(1, 2);
    let mut deaf = pooler.client(&database);
    let mut client = pooler.client(&database);
    deaf.rows("LISTEN news");
    client.rows("LISTEN news");
    until_free(&pooler);
    let mut other = support::direct(&database);
    let payload = "x".repeat(7_900);
    eventually("it is closed", PATIENCE, || {
        for number in 0..100 {
            other.rows(&format!("NOTIFY news, '{number} {payload}'"));
        }
        hear(&mut client, 100);
        pooler.log().contains("too many unread notifications").then_some(())
    });
    assert_eq!(client.value("SELECT 1"), "1");
}
