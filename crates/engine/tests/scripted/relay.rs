//! The two byte streams: split messages, pipelines, flushes, and the order of made-up replies.

use crate::messages::*;
use crate::rig::{Client, Rig, Server};

fn pair() -> (Rig, Client, Server) {
    let rig = Rig::of_size(1);
    let (client, server) = (rig.client(), rig.server(0));
    (rig, client, server)
}

/// The client has prepared `a`, which the server has as weir_1.
fn prepared() -> (Rig, Client, Server) {
    let (rig, client, server) = pair();
    client.send([parse("a", "select 1"), sync()]);
    server.take();
    server.send([parsed(), ready('I')]);
    client.take();
    (rig, client, server)
}

#[test]
fn a_long_query_is_passed_on_as_it_comes() {
    let (_rig, client, server) = pair();
    let long = query(&"x".repeat(1_000_000));
    let mut at = 0;
    for piece in long.chunks(65_536) {
        client.send([piece.to_vec()]);
        let got = server.take();
        assert_eq!(got, &long[at..at + piece.len()], "nothing is held back");
        at += piece.len();
    }
    server.send([done("OK")]);
    client.expect([done("OK")]);
}

#[test]
fn a_parse_without_a_body_is_an_error_and_not_the_beginning_of_one() {
    let (_rig, client, server) = pair();
    client.send([b"P\0\0\0\x04".to_vec()]);
    client.expect_fatal("broken Parse packet");
    assert!(server.is_parked());
}

#[test]
fn a_long_bind_is_passed_on_as_it_comes() {
    let (_rig, client, server) = prepared();
    let rest = vec![b'v'; 300_000];
    let mut asked = Vec::new();
    wire::frontend::bind(&mut asked, b"", b"a", &rest);
    let mut expected = Vec::new();
    wire::frontend::bind(&mut expected, b"", b"weir_1", &rest);
    let mut got = Vec::new();
    for piece in asked.chunks(10_000) {
        client.send([piece.to_vec()]);
        got.extend(server.take());
        assert!(got.len() + 100 > piece.len(), "nothing is held back");
    }
    client.send([sync()]);
    got.extend(server.take());
    assert!(got == [expected, sync()].concat());
}

#[test]
fn a_long_row_is_passed_on_as_it_comes() {
    let (_rig, client, server) = pair();
    client.send([query("q")]);
    let long = row(&"x".repeat(500_000));
    let mut seen = Vec::new();
    for piece in long.chunks(65_536) {
        server.send([piece.to_vec()]);
        let got = client.take();
        assert_eq!(got.len(), piece.len(), "nothing is held back");
        seen.extend(got);
    }
    assert!(seen == long);
    server.send([done("SELECT 1")]);
    client.expect([done("SELECT 1")]);
}

/// The client's messages, the server's part of them, the server's answer, the client's part of
/// that.
type Talk = [Vec<Message>; 4];

/// A conversation with every kind of message of both sides.
fn everything() -> [Talk; 3] {
    [
        [
            vec![parse("b", "select 2"), bind("b"), describe("b"), execute(), close("b"), sync()],
            vec![
                parse("weir_2", "select 2"),
                bind("weir_2"),
                describe("weir_2"),
                execute(),
                sync(),
            ],
            vec![
                parsed(),
                bound(),
                columns("x"),
                notice("hear"),
                row("1"),
                complete("SELECT 1"),
                ready('T'),
            ],
            vec![
                parsed(),
                bound(),
                columns("x"),
                notice("hear"),
                row("1"),
                complete("SELECT 1"),
                closed(),
                ready('T'),
            ],
        ],
        [
            vec![parse("c", "select 1"), bind("c"), query("two"), sync()],
            vec![bind("weir_1"), query("two"), sync()],
            vec![error("42601", "syntax error"), ready('E')],
            vec![parsed(), error("42601", "syntax error"), ready('E')],
        ],
        [
            vec![query("rollback"), query("copy"), copy_data("1\n"), copy_done()],
            vec![query("rollback"), query("copy"), copy_data("1\n"), copy_done()],
            vec![done("ROLLBACK"), copy_in(), status("TimeZone", "UTC"), done("COPY 1")],
            vec![done("ROLLBACK"), copy_in(), status("TimeZone", "UTC"), done("COPY 1")],
        ],
    ]
}

#[test]
fn pieces_of_any_size_make_no_difference() {
    for chunk in [1, 2, 3, 5, 7, 11, 64, usize::MAX] {
        let (rig, client, server) = prepared();
        rig.set_chunk(chunk);
        for [asked, forwarded, answered, returned] in everything() {
            client.send(asked);
            server.expect(forwarded);
            server.send(answered);
            client.expect(returned);
        }
        assert!(server.is_parked(), "pieces of {chunk}");
    }
}

#[test]
fn a_parse_cut_in_two_at_every_byte() {
    let asked = [parse("b", "select 2"), bind("b"), execute(), sync()].concat();
    for at in 1..asked.len() {
        let (_rig, client, server) = prepared();
        client.send([asked[..at].to_vec()]);
        client.send([asked[at..].to_vec()]);
        server.expect([parse("weir_2", "select 2"), bind("weir_2"), execute(), sync()]);
        server.send([parsed(), bound(), complete("SELECT 1"), ready('I')]);
        client.expect([parsed(), bound(), complete("SELECT 1"), ready('I')]);
        assert!(server.is_parked());
    }
}

#[test]
fn an_answer_cut_in_two_at_every_byte() {
    // A made-up reply is due after the columns.
    let answer = [bound(), columns("a name"), row("1"), complete("SELECT 1"), ready('I')].concat();
    for at in 1..answer.len() {
        let (_rig, client, server) = prepared();
        client.send([
            bind("a"),
            describe("a"),
            close("a"),
            parse("a", "select 1"),
            execute(),
            sync(),
        ]);
        server.take();
        server.send([answer[..at].to_vec()]);
        server.send([answer[at..].to_vec()]);
        client.expect([
            bound(),
            columns("a name"),
            closed(),
            parsed(),
            row("1"),
            complete("SELECT 1"),
            ready('I'),
        ]);
    }
}

#[test]
fn a_flush_in_the_middle_of_an_answer_waits_for_its_end() {
    let (_rig, client, server) = prepared();
    client.send([describe("a"), flush()]);
    server.expect([describe("weir_1"), flush()]);
    let answer = columns("a long name");
    server.send([answer[..10].to_vec()]);
    client.send([close("x"), flush()]);
    server.send([answer[10..].to_vec()]);
    client.expect([answer, closed()]);
}

#[test]
fn a_flush_of_made_up_replies_needs_no_server() {
    let (_rig, client, server) = prepared();
    client.send([close("x"), parse("b", "select 1"), flush()]);
    server.expect([]);
    client.expect([closed(), parsed()]);
    client.send([bind("b"), flush()]);
    server.expect([bind("weir_1"), flush()]);
    server.send([bound()]);
    client.expect([bound()]);
    client.send([sync()]);
    server.expect([sync()]);
    server.send([ready('I')]);
    client.expect([ready('I')]);
    assert!(server.is_parked());
}

#[test]
fn made_up_replies_wait_for_their_turn() {
    let (_rig, client, server) = prepared();
    client.send([bind("a"), close("x"), execute(), flush()]);
    server.expect([bind("weir_1"), execute(), flush()]);
    client.expect([]);
    server.send([bound()]);
    client.expect([bound(), closed()]);
    server.send([complete("SELECT 1")]);
    client.expect([complete("SELECT 1")]);
}

#[test]
fn after_an_error_everything_is_dropped_up_to_the_sync() {
    let (_rig, client, server) = prepared();
    client.send([bind("x"), flush()]);
    server.expect([bind("x"), flush()]);
    server.send([error("26000", "no")]);
    client.expect([error("26000", "no")]);
    client.send([parse("b", "select 2"), bind("b"), query("q"), close("a"), flush(), copy_done()]);
    server.expect([]);
    client.send([sync()]);
    server.expect([sync()]);
    server.send([ready('I')]);
    client.expect([ready('I')]);
    client.send([bind("a"), bind("b"), sync()]);
    server.expect([bind("weir_1"), bind("b"), sync()]);
}

#[test]
fn a_long_message_is_dropped_as_it_comes() {
    let (_rig, client, server) = prepared();
    client.send([bind("x"), flush()]);
    server.send([error("26000", "no")]);
    server.take();
    let long = query(&"x".repeat(10_000));
    for piece in long.chunks(999) {
        client.send([piece.to_vec()]);
    }
    client.send([sync()]);
    server.expect([sync()]);
}

#[test]
fn several_executes_and_syncs_in_one_write() {
    let (_rig, client, server) = prepared();
    let asked =
        || [bind("weir_1"), execute(), bind("weir_1"), execute(), sync(), execute(), sync()];
    client.send([bind("a"), execute(), bind("a"), execute(), sync(), execute(), sync()]);
    server.expect(asked());
    let answer = [
        bound(),
        complete("A"),
        bound(),
        complete("B"),
        ready('I'),
        error("34000", "portal does not exist"),
        ready('I'),
    ];
    server.send(answer.clone());
    client.expect(answer);
    assert!(server.is_parked());
}

#[test]
fn copy_in_by_an_extended_query_with_an_early_sync() {
    let (_rig, client, server) = prepared();
    client.send([bind("a"), execute(), sync()]);
    server.take();
    server.send([bound(), copy_in()]);
    client.send([copy_data("1\n"), copy_done(), sync()]);
    server.expect([copy_data("1\n"), copy_done(), flush()]);
    server.send([complete("COPY 1")]);
    server.expect([sync()]);
    server.send([ready('I')]);
    client.expect([bound(), copy_in(), complete("COPY 1"), ready('I')]);
    assert!(server.is_parked());
}

#[test]
fn copy_in_that_the_client_gives_up() {
    let (_rig, client, server) = pair();
    client.send([query("copy")]);
    server.take();
    server.send([copy_in()]);
    client.send([copy_data("1\n"), copy_fail("no more")]);
    server.expect([copy_data("1\n"), copy_fail("no more")]);
    server.send([error("57014", "COPY from stdin failed: no more"), ready('I')]);
    assert!(server.is_parked());
}

#[test]
fn late_copy_messages_need_no_server() {
    let (_rig, client, server) = pair();
    client.send([query("copy")]);
    server.take();
    server.send([copy_in()]);
    client.send([copy_data("x\n")]);
    server.send([error("22P02", "invalid input"), ready('I')]);
    client.take();
    server.take();
    client.send([copy_data("y\n"), copy_data("z\n"), copy_done()]);
    server.expect([]);
    assert!(client.is_open() && server.is_parked());
    client.send([query("one")]);
    server.answers("one");
    client.expect([done("OK")]);
}

#[test]
fn a_client_that_has_had_its_answers_hears_no_farewell() {
    let (_rig, client, server) = pair();
    client.send([query("q")]);
    server.take();
    server.send([complete("OK"), ready('I'), fatal("57P01", "terminating connection")]);
    client.expect([done("OK")]);
    assert!(client.is_open() && !server.is_open());
}

#[test]
fn an_error_too_long_to_look_at_goes_through() {
    let (_rig, client, server) = pair();
    client.send([query("q")]);
    let long = error("42601", &"x".repeat(2_000_000));
    for piece in long.chunks(100_000) {
        server.send([piece.to_vec()]);
    }
    server.send([ready('I')]);
    assert!(client.take() == [long, ready('I')].concat());
    assert!(server.is_parked());
}

/// A Flush is not answered, so the next client of the server would get the error.
#[test]
fn a_flush_that_would_fail_late_does_not_reach_the_server() {
    let long = [&b"f\0\0\x27\x11"[..], &[b'x'; 10_000 - 4], b"y\0"].concat();
    for (bad, why) in [
        (b"H\0\0\0\x05x".to_vec(), "broken Flush packet"),
        (long, "broken CopyDone or CopyFail packet"),
    ] {
        for ahead in [vec![], vec![query("SELECT 1")]] {
            let (rig, client, server) = pair();
            client.send(ahead.iter().cloned().chain([bad.clone()]));
            if !ahead.is_empty() {
                server.expect(ahead);
                server.send([done("OK")]);
            }
            client.take();
            server.expect([]);
            assert!(!client.is_open() && rig.logged(why), "{why}");
        }
    }
}
