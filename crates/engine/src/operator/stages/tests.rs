use crate::client::Extended;
use crate::ids::Identity;
use crate::login::auth::{Login, Peer};
use crate::relay::unnamed::ClientUnnamed;

use super::*;

fn fingerprint(text: &[u8]) -> u64 {
    if text.is_empty() { 0 } else { with_normal_form(text, true, |_, fingerprint| fingerprint) }
}

fn client() -> Client {
    let identity = Identity { database: "app".into(), user: "alice".into() };
    Client::new(7, Login::new(Peer::default(), identity.into()), 0)
}

fn query(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frontend::query(&mut out, text);
    out
}

/// The fingerprint of a transaction that has sent these bytes and taken long.
fn fingerprint_of(client: &mut Client, sent: &[u8]) -> u64 {
    let mut stages = Stages::default();
    stages.send(sent, client, 1_000);
    client.times.transaction_begins(1_000);
    let done = stages.finish(client, PoolId(0), true, 900_000).expect("a slow one");
    client.times.transaction_ends();
    done.fingerprint
}

#[test]
fn stages_are_told_from_the_request_for_a_server() {
    let (mut stages, mut client) = (Stages::default(), client());
    stages.link(1_000, 2_000);
    // A reply to Weir's own query.
    stages.reply(2_500);
    stages.apply(3_000);
    stages.send(&query(b"SELECT 1"), &client, 4_000);
    client.times.transaction_begins(4_000);
    stages.reply(6_000);
    stages.reply(7_000);
    assert_eq!(stages.answer(7_000), Some(3_000));
    // A notice.
    assert_eq!(stages.answer(8_000), None);
    let done = stages.finish(&client, PoolId(3), true, 9_000).expect("a slow one");
    let expected = Transaction {
        client: 7,
        queued_at: 1_000,
        linked: 1_000,
        applied: 2_000,
        sent: 3_000,
        first_byte: 5_000,
        done: 8_000,
        busy: 3_000,
        pool: PoolId(3),
        is_complete: true,
        fingerprint: fingerprint(b"SELECT 1"),
        name: Name::default(),
    };
    assert_eq!(done, expected);
    // The next one on this server waits for nothing.
    stages.send(&query(b"SELECT 2"), &client, 20_000);
    client.times.transaction_begins(20_000);
    let done = stages.finish(&client, PoolId(3), true, 21_000).expect("a slow one");
    assert_eq!((done.queued_at, done.linked, done.sent, done.done), (20_000, 0, 0, 1_000));
    stages.send(&query(b"SELECT 3"), &client, 30_000);
    client.times.transaction_begins(30_000);
    assert_eq!(stages.finish(&client, PoolId(3), true, 30_999), None, "it was fast");
}

#[test]
fn the_fingerprint_is_of_the_query_with_the_longest_time_until_the_next() {
    let (mut stages, mut client) = (Stages::default(), client());
    for (at, text) in [(1_000, "BEGIN"), (2_000, "UPDATE t"), (500_000, "COMMIT")] {
        stages.send(&query(text.as_bytes()), &client, at);
        client.times.transaction_begins(1_000);
    }
    let done = stages.finish(&client, PoolId(0), true, 501_000).expect("a slow one");
    assert_eq!(done.fingerprint, fingerprint(b"UPDATE t"));
}

#[test]
fn the_text_is_found_in_every_kind_of_message() {
    let mut client = client();
    let mut extended = Extended::default();
    let mut parse = Vec::new();
    frontend::parse(&mut parse, b"", b"SELECT 'unnamed'", &[0, 0]);
    extended.unnamed = ClientUnnamed::imported(1, parse);
    client.extended = Some(Box::new(extended));
    let mut parse = Vec::new();
    frontend::parse(&mut parse, b"name", b"SELECT 'named'", &[]);
    let bind = |name: &[u8]| {
        let mut bind = vec![frontend::BIND, 0, 0, 0, 0];
        bind.extend_from_slice(b"portal\0");
        bind.extend_from_slice(name);
        bind.extend_from_slice(b"\0\0\0\0\0\0\0");
        bind
    };
    for (sent, text) in [
        (query(b"SELECT 1"), &b"SELECT 1"[..]),
        (parse, b"SELECT 'named'"),
        (bind(b""), b"SELECT 'unnamed'"),
        (bind(b"unknown"), b""),
        (vec![frontend::SYNC, 0, 0, 0, 4], b""),
        (vec![frontend::QUERY], b""),
    ] {
        assert_eq!(fingerprint_of(&mut client, &sent), fingerprint(text), "{sent:?}");
    }
}

#[test]
fn literals_make_no_difference() {
    let sent = query(b"SELECT 'a' FROM t -- a comment");
    assert_eq!(fingerprint_of(&mut client(), &sent), fingerprint(b"select 'other' from t"));
    let other = query(b"SELECT 'a' FROM u");
    assert_ne!(fingerprint_of(&mut client(), &other), fingerprint(b"select 'a' from t"));
}

#[test]
fn a_long_message_is_cut() {
    let text = [&b"SELECT "[..], &[b'x'; 1 << 20]].concat();
    let mut stages = Stages::default();
    stages.send(&query(&text), &client(), 1);
    assert_eq!(stages.message.bytes().len(), KEPT_LEN_MAX);
    assert_ne!(fingerprint_of(&mut client(), &query(&text)), 0);
}

#[test]
fn a_kept_message_takes_no_more_than_the_limit() {
    let mut message = Message::default();
    let bytes = vec![b'x'; KEPT_LEN_MAX + 1];
    for len in [200, KEPT_LEN_MAX / 2 + 1, KEPT_LEN_MAX - 1, bytes.len()] {
        message.keep(&bytes[..len]);
        let taken = message.long.capacity();
        assert!(taken <= KEPT_LEN_MAX, "{len}: {taken}");
    }
}

#[test]
fn a_message_of_any_length_is_kept() {
    let mut message = Message::default();
    let bytes: Vec<u8> = (0..=255).cycle().take(300).collect();
    for len in (1..bytes.len()).chain([200, 50, 100, 10, 128, 64, 1]) {
        message.keep(&bytes[..len]);
        assert_eq!(message.bytes(), &bytes[..len]);
    }
}

#[test]
fn the_query_of_a_client_that_has_left_is_not_the_next_clients() {
    let (mut stages, client) = (Stages::default(), client());
    stages.send(&query(b"SELECT 1"), &client, 4_000);
    stages.link(9_000, 9_000);
    assert_eq!(stages.answer(10_000), None);
}
