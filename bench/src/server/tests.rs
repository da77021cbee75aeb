use wire::frontend;

use super::*;
use crate::frame::Frame;

/// Returns a session that has logged in.
fn logged_in() -> Session {
    let mut session = session(7);
    let mut bytes = Vec::new();
    frontend::startup(&mut bytes, 0, &[("user", "bench"), ("application_name", "me")]);
    let mut out = Vec::new();
    session.feed(&bytes, &mut out);
    assert!(!session.is_closed());
    assert_eq!(tags(&out), "RSSSSSSSSSSSSSKZ");
    session
}

fn tags(mut out: &[u8]) -> String {
    let mut tags = String::new();
    while let Some((frame, length)) = Frame::split(out).unwrap() {
        tags.push(frame.tag as char);
        out = &out[length..];
    }
    assert!(out.is_empty());
    tags
}

/// Returns the answers to `bytes`, which the session gets in two pieces.
fn answer(session: &mut Session, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let half = bytes.len() / 2;
    session.feed(&bytes[..half], &mut out);
    session.feed(&bytes[half..], &mut out);
    out
}

fn query(session: &mut Session, text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    put(&mut bytes, b'Q', &[text.as_bytes(), b"\0"]);
    answer(session, &bytes)
}

fn contains(out: &[u8], wanted: &[u8]) -> bool {
    out.windows(wanted.len()).any(|window| window == wanted)
}

#[test]
fn encryption_is_declined_and_a_cancel_request_ends_the_connection() {
    let mut session = session(1);
    let mut out = Vec::new();
    session.feed(&[0, 0, 0, 8, 4, 210, 22, 47], &mut out);
    assert_eq!(out, b"N");
    let cancel = [0, 0, 0, 16, 4, 210, 22, 46, 0, 0, 0, 1, 0, 0, 0, 1];
    session.feed(&cancel, &mut out);
    assert!(session.is_closed());
}

#[test]
fn a_select_answers_with_the_last_number_of_its_text() {
    let mut session = logged_in();
    let out = query(&mut session, "SELECT abalance FROM t WHERE aid = 4711;");
    assert_eq!(tags(&out), "TDCZ");
    assert!(contains(&out, b"\0\0\0\x044711"));
}

#[test]
fn a_query_may_hold_several_statements_or_none() {
    let mut session = logged_in();
    let out = query(&mut session, "SET application_name='a;b';SET DateStyle = 'ISO';");
    assert_eq!(tags(&out), "CSCSZ");
    assert!(contains(&out, b"application_name\0a;b\0"));
    assert_eq!(tags(&query(&mut session, " ")), "IZ");
    assert_eq!(tags(&query(&mut session, "SET lock_timeout TO 1")), "CZ");
}

#[test]
fn the_transaction_status_follows_begin_and_commit() {
    let mut session = logged_in();
    assert!(query(&mut session, "BEGIN").ends_with(b"Z\0\0\0\x05T"));
    assert!(query(&mut session, "SELECT 1").ends_with(b"Z\0\0\0\x05T"));
    assert!(query(&mut session, "commit").ends_with(b"Z\0\0\0\x05I"));
}

#[test]
fn a_prepared_statement_answers_with_its_argument() {
    let mut session = logged_in();
    let mut bytes = Vec::new();
    put(&mut bytes, b'P', &[b"p\0SELECT abalance WHERE aid = $1\0\0\0"]);
    put(&mut bytes, b'D', &[b"Sp\0"]);
    put(&mut bytes, b'B', &[b"\0p\0", b"\0\0", b"\0\x01", b"\0\0\0\x02", b"42", b"\0\0"]);
    put(&mut bytes, b'D', &[b"P\0"]);
    put(&mut bytes, b'E', &[b"\0\0\0\0\0"]);
    put(&mut bytes, b'S', &[]);
    let out = answer(&mut session, &bytes);
    assert_eq!(tags(&out), "1tT2TDCZ");
    assert!(contains(&out, b"\0\0\0\x0242"));
}

#[test]
fn after_an_error_everything_up_to_sync_is_passed_over() {
    let mut session = logged_in();
    let mut bytes = Vec::new();
    put(&mut bytes, b'B', &[b"\0nobody\0", b"\0\0", b"\0\0", b"\0\0"]);
    put(&mut bytes, b'E', &[b"\0\0\0\0\0"]);
    put(&mut bytes, b'S', &[]);
    put(&mut bytes, b'P', &[b"p\0SELECT 1\0\0\0"]);
    put(&mut bytes, b'P', &[b"p\0SELECT 1\0\0\0"]);
    put(&mut bytes, b'S', &[]);
    let out = answer(&mut session, &bytes);
    assert_eq!(tags(&out), "EZ1EZ");
    assert!(contains(&out, b"C26000\0") && contains(&out, b"C42P05\0"));
}

#[test]
fn a_large_result_comes_in_pieces_and_holds_up_what_follows() {
    let mut session = logged_in();
    let mut bytes = Vec::new();
    put(&mut bytes, b'Q', &[b"SELECT bulk 100 200000\0"]);
    put(&mut bytes, b'Q', &[b"SELECT 5\0"]);
    let mut out = Vec::new();
    session.feed(&bytes, &mut out);
    assert!(!contains(&out, b"Z"));
    let mut refills = 0;
    loop {
        out.clear();
        session.refill(&mut out);
        if out.is_empty() {
            break;
        }
        refills += 1;
        let is_last = contains(&out, b"SELECT 2000\0Z");
        assert_eq!(
            is_last,
            contains(&out, b"\0\0\0\x015"),
            "the next answer follows the last piece"
        );
    }
    assert!(refills > 1);
}

#[test]
fn wrong_requests_of_floods_fail_and_the_session_continues() {
    let mut session = logged_in();
    for text in ["x", "COPY nowhere FROM STDIN"] {
        assert_eq!(tags(&query(&mut session, text)), "EZ");
    }
    let mut bytes = Vec::new();
    put(&mut bytes, b'f', &[b"no\0"]);
    assert_eq!(tags(&answer(&mut session, &bytes)), "", "there is no copy to end");
    put(&mut bytes, b'F', &[&[0; 10]]);
    assert_eq!(tags(&answer(&mut session, &bytes)), "EZ");
    assert_eq!(tags(&query(&mut session, "SELECT 1")), "TDCZ");
}

#[test]
fn an_unknown_request_to_the_canned_server_ends_the_connection() {
    let mut session = logged_in();
    let mut bytes = Vec::new();
    put(&mut bytes, b'p', &[b"\0\0\0\0"]);
    assert_eq!(tags(&answer(&mut session, &bytes)), "E");
    assert!(session.is_closed());
}

#[test]
fn settings_are_in_each_answer_and_in_the_probes_answer() {
    let mut session = logged_in();
    let texts = "SET work_mem = '4097';SET search_path = 'a b';";
    assert_eq!(tags(&query(&mut session, texts)), "CCZ");
    assert!(contains(&query(&mut session, "SELECT 7"), b"\0\0\0\x0a7 a b 4097"));
    let told = query(&mut session, "SELECT pg_catalog.concat(kind, name) FROM (SELECT 's')");
    assert_eq!(tags(&told), "TDDCZ");
    assert!(contains(&told, b"\0\x01\0\0\0\x11s:search_path=a b"));

    let applied = "RESET \"search_path\";SELECT pg_catalog.set_config('work_mem','1',false) IS NULL,\
        pg_catalog.set_config('z','2',false) IS NULL;";
    assert_eq!(tags(&query(&mut session, applied)), "CTDCZ");
    assert!(contains(&query(&mut session, "SELECT 7"), b"\0\0\0\x057 1 2"));
    query(&mut session, "DISCARD ALL");
    assert!(contains(&query(&mut session, "SELECT 7"), b"\0\0\0\x017"));
}

#[test]
fn a_session_that_is_asked_for_reports_tells_each_change_once() {
    let mut session = session(7);
    let mut bytes = Vec::new();
    frontend::startup(
        &mut bytes,
        0,
        &[("user", "bench"), ("database", "reporting"), ("weir.report", "1")],
    );
    let mut out = Vec::new();
    session.feed(&bytes, &mut out);
    assert!(contains(&out, b"weir.state\0v1;w:1.1\0Z"));
    let applied = "/*weir 0123*/SELECT pg_catalog.set_config('work_mem','1',false) IS NULL;";
    assert!(contains(&query(&mut session, applied), b"weir.state\0v1;s:work_mem=1\0Z"));
    assert_eq!(tags(&query(&mut session, "SELECT 7")), "TDCZ");
}
