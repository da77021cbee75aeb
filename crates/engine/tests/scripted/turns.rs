//! A client that always has another request under way takes turns with the others of its pool.

use config::{Config, PoolMode};

use crate::messages::*;
use crate::rig::{Client, Rig, Server};

fn pool_of_one(set: impl FnOnce(&mut Config)) -> (Rig, Client, Server) {
    let rig = Rig::new(|config| {
        config.global.default_pool_size = 1;
        set(config);
    });
    let (client, server) = (rig.client(), rig.server(0));
    (rig, client, server)
}

/// The client sends another query before each answer. Returns the number of the client's queries
/// that the server has answered when it gets another client's, at most `limit`.
fn answers_until(
    other: &Message,
    limit: usize,
    rig: &Rig,
    client: &Client,
    server: &Server,
) -> usize {
    for count in 1..=limit {
        rig.wait_ms(1);
        client.send([query("one")]);
        server.send([done("OK")]);
        if server.take().windows(other.len()).any(|part| part == *other) {
            return count;
        }
    }
    limit
}

#[test]
pub(crate) fn the_next_in_the_queue_gets_the_server() {
    for mode in [PoolMode::Transaction, PoolMode::Auto] {
        let (rig, client, server) = pool_of_one(|config| config.global.pool_mode = mode);
        client.send([query("one"), query("one")]);
        let other = rig.client();
        other.send([query("other")]);
        let count = answers_until(&query("other"), 100, &rig, &client, &server);
        assert!((20..=30).contains(&count), "{mode:?}: {count}");
        client.take();
        server.send([done("OTHER")]);
        other.expect([done("OTHER")]);
        // The first client goes on.
        server.expect([query("one"), query("one")]);
        server.send([done("OK"), done("OK")]);
        client.expect([done("OK"), done("OK")]);
        assert!(server.is_parked());
    }
}

/// The client has two requests under way, not a long pipeline. Its next request arrives while another
/// one runs.
#[test]
fn a_short_pipeline_does_not_miss_the_end_of_a_transaction() {
    const LEN: usize = 37;
    let (rig, client, server) = pool_of_one(|_| {});
    let text = |at: usize| match at % LEN {
        0 => query("begin"),
        at if at == LEN - 1 => query("commit"),
        _ => query("one"),
    };
    client.send([text(0), text(1)]);
    let other = rig.client();
    other.send([query("other")]);
    for at in 0..10 * LEN {
        rig.wait_ms(1);
        let status = if at % LEN == LEN - 1 { 'I' } else { 'T' };
        server.send([complete("OK"), ready(status)]);
        if server.take().ends_with(&query("other")) {
            assert!(at < 2 * LEN, "{at} requests came first");
            return;
        }
        client.send([text(at + 2)]);
    }
    panic!("the other client waits for ever");
}

/// The client sends the data of each copy together with the query.
#[test]
fn copies_without_a_pause_take_turns() {
    let (rig, client, server) = pool_of_one(|_| {});
    let copy = [query("copy"), copy_data("1\n"), copy_done()];
    client.send([copy.clone(), copy.clone()].into_iter().flatten());
    let other = rig.client();
    other.send([query("other")]);
    for _ in 0..100 {
        rig.wait_ms(1);
        client.send(copy.clone());
        server.send([copy_in(), complete("COPY 1"), ready('I')]);
        if server.take().ends_with(&query("other")) {
            return;
        }
    }
    panic!("the other client waits for ever");
}

#[test]
fn without_a_queue_the_client_goes_on() {
    let (rig, client, server) = pool_of_one(|_| {});
    client.send([query("one"), query("one")]);
    for _ in 0..100 {
        rig.wait_ms(1);
        server.take();
        client.send([query("one")]);
        server.expect([query("one")]);
        server.send([done("OK")]);
    }
}

#[test]
fn a_transaction_is_not_interrupted() {
    let (rig, client, server) = pool_of_one(|_| {});
    client.send([query("begin"), query("one")]);
    let other = rig.client();
    other.send([query("other")]);
    server.send([complete("BEGIN"), ready('T')]);
    for _ in 0..100 {
        rig.wait_ms(1);
        client.send([query("one")]);
        server.send([complete("OK"), ready('T')]);
        assert!(!server.take().windows(5).any(|part| part == b"other"));
    }
    client.send([query("commit")]);
    server.send([complete("OK"), ready('T')]);
    server.send([done("COMMIT")]);
    server.expect([query("commit"), query("other")]);
}

#[test]
fn the_end_of_a_transaction_is_not_missed() {
    let (rig, client, server) = pool_of_one(|_| {});
    let transaction = || [query("begin"), query("one"), query("commit")];
    client.send((0..200).flat_map(|_| transaction()));
    let other = rig.client();
    other.send([query("other")]);
    server.take();
    for count in 0..100 {
        for answer in [vec![complete("BEGIN"), ready('T')], vec![complete("OK"), ready('T')]] {
            rig.wait_ms(4);
            server.send(answer);
        }
        rig.wait_ms(4);
        server.send([done("COMMIT")]);
        if server.take().windows(5).any(|part| part == b"other") {
            assert!(count < 20, "{count} transactions");
            return;
        }
    }
    panic!("the other client got no server");
}

#[test]
fn a_session_keeps_its_server() {
    let (rig, client, server) = pool_of_one(|config| config.global.pool_mode = PoolMode::Session);
    client.send([query("one"), query("one")]);
    let other = rig.connect();
    other.say_hello(&[]);
    assert_eq!(answers_until(&query("other"), 100, &rig, &client, &server), 100);
}

#[test]
pub(crate) fn few_requests_are_under_way_if_the_server_is_slow() {
    let (rig, client, server) = pool_of_one(|_| {});
    client.send((0..200).map(|_| query("one")));
    let mut most = 0;
    for _ in 0..40 {
        rig.wait_ms(50);
        server.send([done("OK")]);
    }
    server.take();
    for _ in 0..40 {
        rig.wait_ms(50);
        server.send([done("OK")]);
        most = most.max(server.take().len() / query("one").len());
    }
    assert!(most <= 2, "{most} at a time");
}

/// The number of queries among these messages.
fn queries(bytes: &[u8]) -> usize {
    bytes.len() / query("one").len()
}

/// Returns for how many milliseconds the other client waits for the server, which now needs 20 ms
/// for each of the first client's queries. `under_way`: those that the server has.
fn wait_of_other(mut under_way: usize, rig: &Rig, server: &Server) -> usize {
    let other = rig.client();
    other.send([query("other")]);
    for answered in 0.. {
        let got = server.take();
        if got.ends_with(&query("other")) {
            return answered * 20;
        }
        under_way += queries(&got);
        assert!(under_way > answered, "the other client waits for ever");
        rig.wait_ms(20);
        server.send([done("OK")]);
    }
    unreachable!()
}

/// It is not known how long the first queries of a client take.
#[test]
pub(crate) fn the_first_slow_requests_are_few() {
    let (rig, client, server) = pool_of_one(|_| {});
    client.send((0..200).map(|_| query("one")));
    let waited = wait_of_other(0, &rig, &server);
    assert!(waited <= 200, "{waited} ms");
}

/// A server that is always busy with a few requests answers no faster with more of them.
#[test]
pub(crate) fn slow_requests_after_fast_ones_are_few() {
    for pauses in [false, true] {
        let (rig, client, server) = pool_of_one(|_| {});
        let mut under_way = 0;
        let ahead = || client.send((0..5_000).map(|_| query("one")));
        ahead();
        if !pauses {
            ahead();
        }
        for _ in 0..5_000 {
            under_way += queries(&server.take());
            rig.later(20);
            server.send([done("OK")]);
            under_way -= 1;
        }
        if pauses {
            assert_eq!(under_way, 0);
            ahead();
        }
        let waited = wait_of_other(under_way, &rig, &server);
        assert!(waited <= 200, "{waited} ms");
    }
}

/// Its answers take 20 ms, however many they are.
#[test]
pub(crate) fn a_server_far_away_gets_many_requests() {
    let (rig, client, server) = pool_of_one(|_| {});
    client.send((0..2_000).map(|_| query("one")));
    let (mut answered, mut trips) = (0, 0);
    while answered < 2_000 {
        rig.wait_ms(20);
        let got = queries(&server.take());
        server.send((0..got).map(|_| done("OK")));
        (answered, trips) = (answered + got, trips + 1);
        assert!(trips < 12, "only {answered} in {trips} trips");
    }
}

/// Answers all that the server has got as PostgreSQL would. Returns whether it has got a query of
/// another client.
fn answer_all(server: &Server) -> bool {
    let mut status = 'T';
    loop {
        let got = server.take();
        let mut rest = &got[..];
        while let Some(header) = wire::Header::parse(rest).expect("a message") {
            let (message, behind) = rest.split_at(header.total);
            rest = behind;
            let has = |text: &[u8]| message.windows(text.len()).any(|part| part == text);
            status = match header.code {
                b'Q' | b'P' if has(b"commit") => 'I',
                b'Q' | b'P' if has(b"other") => return true,
                b'Q' | b'P' => 'T',
                _ => status,
            };
            server.send(match header.code {
                b'Q' => vec![complete("OK"), ready(status)],
                b'P' => vec![parsed()],
                b'B' => vec![bound()],
                b'E' => vec![complete("OK")],
                _ => vec![ready(status)],
            });
        }
        if got.is_empty() {
            return false;
        }
    }
}

/// The client waits for all answers, but ends each transaction together with the beginning of the
/// next one.
#[test]
pub(crate) fn a_commit_with_the_next_begin_ends_the_turn() {
    let simple = query as fn(&str) -> Message;
    let extended = |text: &str| [parse("", text), bind(""), execute(), sync()].concat();
    for (is_extended, text) in [(false, simple), (true, extended)] {
        for first in [vec![], vec![sync()]] {
            let (rig, client, server) = pool_of_one(|_| {});
            client.send([text("begin")]);
            answer_all(&server);
            let other = rig.client();
            other.send([query("other")]);
            let mut waited = 0;
            while !answer_all(&server) {
                waited += 1;
                assert!(waited < 50, "{is_extended}, {first:?}: it waits for ever");
                rig.wait_ms(1);
                client.send(first.iter().cloned().chain([text("commit"), text("begin")]));
            }
            assert!(waited >= 15, "{is_extended}, {first:?}: only {waited} ms");
        }
    }
}
