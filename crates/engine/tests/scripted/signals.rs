//! `pg_cancel_backend` and `pg_terminate_backend` with a process id that Weir gave a client at
//! login (`pool_mode = auto`).

use std::sync::Arc;

use config::{Config, PoolMode};
use engine::auth::Peer;
use engine::cancel::CancelEnd;
use wire::frontend;

use crate::messages::*;
use crate::rig::{Client, Rig, Server, add_others};

mod permission;

fn auto(workers: usize, change: impl FnOnce(&mut Config)) -> Rig {
    Rig::with_workers(workers, |config| {
        config.global.pool_mode = PoolMode::Auto;
        change(config);
    })
}

/// A client of that worker, and the process id that it was given.
fn told(rig: &Rig, worker: usize, user: &str) -> (Client, u32) {
    let client = rig.connect_from(worker, Peer::default());
    client.say_hello_as(user, "app");
    let (pid, _) = client.expect_welcome(&[]);
    (client, pid)
}

/// A client of that worker, its process id, and the server that runs its query.
fn busy(rig: &Rig, worker: usize) -> (Client, u32, Server) {
    let (client, pid) = told(rig, worker, "alice");
    client.send([query("slow")]);
    let server = rig.server(rig.servers() - 1);
    server.expect([query("slow")]);
    (client, pid, server)
}

fn cancel(pid: u32) -> Message {
    query(&format!("SELECT pg_cancel_backend({pid})"))
}

fn terminate_it(pid: u32) -> Message {
    query(&format!("SELECT pg_terminate_backend({pid})"))
}

const CANCELED: &str = "SELECT true AS \"pg_cancel_backend\"";
const TERMINATED: &str = "SELECT true AS \"pg_terminate_backend\"";
const PARAMETER: &str = "SELECT pg_cancel_backend($1)";

/// A Bind with this one value.
fn bind_value(statement: &str, value: Option<&[u8]>) -> Message {
    let mut out = Vec::new();
    frontend::bind_text(&mut out, statement.as_bytes(), &[value]);
    out
}

fn bind_id(statement: &str, pid: u32) -> Message {
    bind_value(statement, Some(pid.to_string().as_bytes()))
}

/// The Parse of the text that replaces `SELECT pg_cancel_backend($1)`.
fn parse_answer(name: &str, text: &str) -> Message {
    let mut out = Vec::new();
    frontend::parse(&mut out, name.as_bytes(), text.as_bytes(), &[0, 1, 0, 0, 0, 23]);
    out
}

/// Weir asks the server whether its client may signal sessions of `user`, within a batch or not.
#[track_caller]
fn is_asked(server: &Server, user: &str, in_batch: bool) {
    let question = String::from_utf8_lossy(&server.take()).into_owned();
    assert!(question.contains("pg_has_role") && question.contains(user), "{question}");
    assert_eq!(question.ends_with("H\0\0\0\u{4}"), in_batch, "{question}");
}

/// The server's answer to that.
fn allows(what: &str) -> Message {
    let described = wire_columns();
    let row = row_of(&[Some("role"), Some(what)]);
    [parsed(), bound(), described, row, complete("SELECT 1"), closed(), closed()].concat()
}

/// A RowDescription of two columns.
fn wire_columns() -> Message {
    let column = &columns("a")[7..];
    let body = [&[0, 2][..], column, column].concat();
    let len = (body.len() as u32 + 4).to_be_bytes();
    [&b"T"[..], &len, &body].concat()
}

#[test]
fn another_clients_query_is_cancelled_and_the_call_says_true() {
    for workers in [1, 2] {
        let rig = auto(workers, |_| {});
        let (target, pid, server) = busy(&rig, 0);
        let requester = rig.client_at(workers - 1);
        requester.send([cancel(pid)]);
        let cancels = rig.cancels();
        assert_eq!(cancels, [(0, cancel_request(server.pid(), &server.pid().to_be_bytes()))]);
        // PostgreSQL answers after the request was delivered.
        rig.server(1).expect([]);
        server.send([error("57014", "canceling statement"), ready('I')]);
        target.expect([error("57014", "canceling statement"), ready('I')]);
        // No other client gets the server before that.
        assert!(!server.is_parked());
        rig.finish_cancel();
        rig.server(1).answers(CANCELED);
        requester.expect([done("OK")]);
        assert!(server.is_parked());
    }
}

#[test]
fn a_client_without_a_query_is_not_cancelled() {
    let rig = auto(1, |config| config.global.default_pool_size = 1);
    let ((target, pid), requester) = (told(&rig, 0, "alice"), rig.client());
    requester.send([cancel(pid)]);
    let server = rig.server(0);
    server.answers(CANCELED);
    requester.expect([done("OK")]);
    assert!(server.is_parked() && rig.cancels().is_empty());
    target.send([query("BEGIN")]);
    server.expect([query("BEGIN")]);
    server.send([complete("BEGIN"), ready('T')]);
    target.expect([complete("BEGIN"), ready('T')]);
    // The requester waits for the only server.
    requester.send([cancel(pid)]);
    target.send([query("COMMIT")]);
    server.answers("COMMIT");
    server.answers(CANCELED);
    assert!(target.is_open() && rig.cancels().is_empty());
}

#[test]
fn a_client_is_terminated_and_its_query_ended() {
    for workers in [1, 2] {
        // This does not depend on the setting for lost clients.
        let rig = auto(workers, |config| config.global.cancel_lost_queries = false);
        let (target, pid, server) = busy(&rig, 0);
        let requester = rig.client_at(workers - 1);
        requester.send([terminate_it(pid)]);
        target.expect([fatal("57P01", "terminating connection due to administrator command")]);
        assert!(!target.is_open());
        assert_eq!(rig.cancels().len(), 1);
        rig.server(1).answers(TERMINATED);
        requester.expect([done("OK")]);
        rig.finish_cancel();
        server.send([error("57014", "canceling statement"), ready('I')]);
        assert!(server.is_parked());
        // The target is gone.
        requester.send([terminate_it(pid)]);
        let again = format!("SELECT pg_terminate_backend({pid})");
        [rig.server(0), rig.server(1)].iter().for_each(|server| {
            if let got @ [_, ..] = &server.take()[..] {
                assert_eq!(show(got), show(&query(&again)));
            }
        });
    }
}

#[test]
fn clients_without_a_server_and_those_that_wait_are_terminated() {
    let rig = auto(1, |config| config.global.default_pool_size = 2);
    let (_holder, _, _) = busy(&rig, 0);
    let (idle, idle_pid) = told(&rig, 0, "alice");
    let requester = rig.client();
    requester.send([query("BEGIN")]);
    let server = rig.server(1);
    server.expect([query("BEGIN")]);
    server.send([complete("BEGIN"), ready('T')]);
    requester.take();
    let (waiting, waiting_pid) = told(&rig, 0, "alice");
    waiting.send([query("later")]);
    for (target, pid) in [(idle, idle_pid), (waiting, waiting_pid)] {
        requester.send([terminate_it(pid)]);
        target.expect([fatal("57P01", "terminating connection due to administrator command")]);
        server.expect([query(TERMINATED)]);
        server.send([complete("SELECT 1"), ready('T')]);
        requester.expect([complete("SELECT 1"), ready('T')]);
    }
    assert_eq!(rig.pool(|pool| pool.clients), 2);
}

#[test]
fn a_parameter_names_it_in_either_format() {
    let binary = |pid: u32| {
        let mut out = Vec::new();
        let rest = [&[0, 1, 0, 1, 0, 1, 0, 0, 0, 4][..], &pid.to_be_bytes(), &[0, 0]].concat();
        frontend::bind(&mut out, b"", b"", &rest);
        out
    };
    let bind_answer = |bind: Message| {
        let mut out = Vec::new();
        frontend::bind(&mut out, b"", b"weir_1", &bind[7..]);
        out
    };
    for is_binary in [true, false] {
        let rig = auto(1, |_| {});
        let (_target, pid, _) = busy(&rig, 0);
        let requester = rig.client();
        let bind = if is_binary { binary(pid) } else { bind_id("", pid) };
        let batch = [parse("", PARAMETER), bind.clone(), describe_portal(), execute(), sync()];
        requester.send(batch);
        assert_eq!(rig.cancels().len(), 1);
        let server = rig.server(1);
        server.expect([]);
        rig.finish_cancel();
        server.expect([
            parse("", PARAMETER),
            parse_answer("weir_1", CANCELED),
            bind_answer(bind),
            describe_portal(),
            execute(),
            sync(),
        ]);
        let answers =
            [parsed(), parsed(), bound(), columns("pg_cancel_backend"), row("t"), done("SELECT 1")];
        server.send(answers.clone());
        requester.expect(answers.into_iter().skip(1));
    }
}

#[test]
fn a_named_statement_is_bound_once_for_each_use() {
    let rig = auto(1, |_| {});
    let ((_, first), (_, second)) = (told(&rig, 0, "alice"), told(&rig, 0, "alice"));
    let requester = rig.client();
    requester.send([parse("a", PARAMETER), describe("a"), sync()]);
    let server = rig.server(0);
    server.take();
    server.send([parsed(), parameters(), columns("pg_cancel_backend"), ready('I')]);
    requester.take();
    requester.send([bind_id("a", first), execute(), sync()]);
    server.expect([parse_answer("weir_2", CANCELED), bind_id("weir_2", first), execute(), sync()]);
    server.send([parsed(), bound(), row("t"), done("SELECT 1")]);
    requester.expect([bound(), row("t"), done("SELECT 1")]);
    requester.send([bind_id("a", second), execute(), sync()]);
    server.expect([bind_id("weir_2", second), execute(), sync()]);
    server.send([bound(), row("t"), done("SELECT 1")]);
    // A process id that no client has, and values that are none.
    for value in [Some(&b"4194305"[..]), Some(b"1"), Some(b"x"), None] {
        requester.send([bind_value("a", value), execute(), sync()]);
        server.expect([bind_value("weir_1", value), execute(), sync()]);
        server.send([bound(), row("f"), done("SELECT 1")]);
    }
}

#[test]
fn a_call_after_a_flush_in_the_middle_of_its_batch_is_carried_out() {
    // postgres.js describes its statement before it binds it.
    let rig = auto(2, |_| {});
    let (_target, pid, _) = busy(&rig, 0);
    let requester = rig.client_at(1);
    requester.send([parse("", PARAMETER), describe(""), flush()]);
    let server = rig.server(1);
    server.take();
    server.send([parsed(), parameters(), columns("pg_cancel_backend")]);
    requester.expect([parsed(), parameters(), columns("pg_cancel_backend")]);
    requester.send([bind_id("", pid), execute(), sync()]);
    assert_eq!(rig.cancels().len(), 1);
    rig.finish_cancel();
    server.expect([parse_answer("weir_1", CANCELED), bind_id("weir_1", pid), execute(), sync()]);
    server.send([parsed(), bound(), row("t"), done("SELECT 1")]);
    requester.expect([bound(), row("t"), done("SELECT 1")]);
}

#[test]
fn messages_before_the_call_are_answered_first() {
    let rig = auto(1, |_| {});
    let (_target, pid, _) = busy(&rig, 0);
    let requester = rig.client();
    requester.send([query("BEGIN"), cancel(pid), cancel(pid), query("COMMIT")]);
    let server = rig.server(1);
    // Nothing was sent before the first call, so everything waits.
    server.expect([]);
    rig.finish_cancel();
    server.expect([query("BEGIN"), query(CANCELED)]);
    server.send([complete("BEGIN"), ready('T')]);
    assert_eq!(rig.cancels(), []);
    server.send([complete("SELECT 1"), ready('T')]);
    requester.take();
    assert_eq!(rig.cancels().len(), 1);
    rig.finish_cancel();
    server.expect([query(CANCELED), query("COMMIT")]);
}

#[test]
fn each_of_two_calls_in_a_row_is_carried_out_once() {
    let rig = auto(1, |_| {});
    let (_target, pid, _) = busy(&rig, 0);
    let requester = rig.client();
    // The second call finds no client.
    requester.send([terminate_it(pid), terminate_it(pid)]);
    let server = rig.server(1);
    server.expect([query(TERMINATED)]);
    server.send([complete("SELECT 1"), ready('I')]);
    server.expect([terminate_it(pid)]);
    server.send([complete("SELECT 1"), ready('I')]);
    requester.expect([complete("SELECT 1"), ready('I'), complete("SELECT 1"), ready('I')]);
}

#[test]
fn a_call_that_is_decided_right_after_an_answer_is_carried_out_once() {
    let rig = auto(1, |_| {});
    let (_target, pid, _) = busy(&rig, 0);
    let requester = rig.client();
    requester.send([query("BEGIN")]);
    let server = rig.server(1);
    server.take();
    requester.send([terminate_it(pid)]);
    server.expect([]);
    server.send([complete("BEGIN"), ready('T')]);
    server.expect([query(TERMINATED)]);
}

#[test]
fn a_call_after_an_error_is_not_carried_out() {
    let rig = auto(1, |_| {});
    let (_target, pid, _) = busy(&rig, 0);
    let requester = rig.client();
    requester.send([query("BEGIN")]);
    let server = rig.server(1);
    server.take();
    server.send([complete("BEGIN"), ready('T')]);
    requester.take();
    requester.send([query("wrong")]);
    requester.send([cancel(pid)]);
    // Weir does not know yet whether to carry it out.
    assert_eq!(rig.cancels(), []);
    server.send([error("22012", "division by zero"), ready('E')]);
    server.expect([query("wrong"), cancel(pid)]);
    assert_eq!(rig.cancels(), []);
    // Does the same within a failed batch.
    server.send([error("25P02", "aborted"), ready('E')]);
    requester.send([query("ROLLBACK")]);
    server.answers("ROLLBACK");
    requester.take();
    requester.send([parse("", "wrong"), bind(""), execute()]);
    server.take();
    requester.send([parse("", PARAMETER), bind_id("", pid), execute(), sync()]);
    server.take();
    server.send([error("42601", "syntax error")]);
    server.expect([sync()]);
    server.send([ready('I')]);
    requester.expect([error("42601", "syntax error"), ready('I')]);
    assert_eq!(rig.cancels(), []);
}

#[test]
fn a_client_that_means_itself_has_postgresql_do_it() {
    let rig = auto(1, |_| {});
    let (client, pid) = told(&rig, 0, "alice");
    client.send([cancel(pid)]);
    let server = rig.server(0);
    let own = "SELECT pg_catalog.pg_cancel_backend(pg_catalog.pg_backend_pid()) AS \
               \"pg_cancel_backend\"";
    server.expect([query(own)]);
    server.send([error("57014", "canceling statement due to user request"), ready('I')]);
    client.expect([error("57014", "canceling statement due to user request"), ready('I')]);
    assert_eq!(rig.cancels(), []);
}

#[test]
fn a_client_of_another_postgresql_server_is_not_signaled() {
    let rig = auto(1, |config| {
        add_others(config);
        let other = config.databases.get_mut("other").expect("it was added");
        Arc::make_mut(other).port = 5433.into();
    });
    let (_target, pid, _) = busy(&rig, 0);
    let requester = rig.client_of(0, "alice", "other");
    requester.send([cancel(pid)]);
    rig.server(1).expect([cancel(pid)]);
    assert_eq!(rig.cancels(), []);
}

#[test]
pub(crate) fn a_later_client_in_its_place_is_not_hit() {
    let rig = auto(2, |_| {});
    let (target, pid, server) = busy(&rig, 0);
    let requester = rig.client_at(1);
    requester.send([query("BEGIN")]);
    rig.server(1).take();
    rig.server(1).send([complete("BEGIN"), ready('T')]);
    requester.take();
    rig.hold_mail(true);
    requester.send([cancel(pid)]);
    // The target is found, and leaves before the order arrives.
    rig.deliver_letters(2);
    server.send([done("OK")]);
    target.say_goodbye();
    let later = rig.client();
    later.send([query("slow")]);
    server.expect([query("slow")]);
    rig.hold_mail(false);
    assert_eq!(rig.cancels(), []);
    rig.server(1).expect([cancel(pid)]);
    assert!(later.is_open());
}

#[test]
fn a_client_that_leaves_meanwhile_ends_the_procedure() {
    // The caller leaves.
    let rig = auto(2, |_| {});
    let (_target, pid, _) = busy(&rig, 0);
    let requester = rig.client_at(1);
    requester.send([cancel(pid)]);
    requester.leave();
    assert!(rig.server(1).is_parked());
    rig.finish_cancel();
    // The target leaves.
    let (target, pid, server) = busy(&rig, 0);
    let requester = rig.client_at(1);
    requester.send([cancel(pid)]);
    target.leave();
    rig.end_cancel(CancelEnd::Taken);
    let other = if rig.servers() > 2 { rig.server(2) } else { rig.server(1) };
    let got = [other.take(), rig.server(1).take()].concat();
    assert_eq!(show(&got), show(&query(CANCELED)));
    server.take();
}

#[test]
fn a_call_returns_false_if_its_cancel_request_is_not_delivered() {
    let rig = auto(1, |_| {});
    let (_target, pid, _) = busy(&rig, 0);
    let requester = rig.client();
    requester.send([cancel(pid)]);
    rig.end_cancel(CancelEnd::Unsent);
    rig.server(1).expect([cancel(pid)]);
}

/// Otherwise the query that has the only server would never end.
#[test]
fn a_queued_client_can_cancel_the_query_on_the_only_server() {
    for workers in [1, 2] {
        for way in 0..3 {
            let rig = auto(workers, |config| config.global.default_pool_size = 1);
            let requester = rig.client_at(workers - 1);
            if way == 2 {
                requester.send([parse("a", PARAMETER), sync()]);
                rig.server(0).take();
                rig.server(0).send([parsed(), ready('I')]);
                requester.take();
            }
            let (target, pid, server) = busy(&rig, 0);
            requester.send(match way {
                0 => vec![cancel(pid)],
                1 => vec![parse("", PARAMETER), bind_id("", pid), execute(), sync()],
                _ => vec![bind_id("a", pid), execute(), sync()],
            });
            assert_eq!(rig.cancels(), []);
            rig.wait(1);
            assert_eq!(rig.cancels().len(), 1, "{workers} {way}");
            rig.wait(1);
            assert_eq!(rig.cancels().len(), 1);
            server.send([error("57014", "canceling statement"), ready('I')]);
            target.expect([error("57014", "canceling statement"), ready('I')]);
            rig.finish_cancel();
            let sent = String::from_utf8_lossy(&server.take()).into_owned();
            assert!(sent.contains(CANCELED) || sent.contains("weir_2"), "{sent}");
            assert_eq!(rig.cancels(), []);
            // The next call is carried out again.
            if way == 0 {
                server.send([done("OK")]);
                requester.expect([done("OK")]);
                target.send([query("slow")]);
                server.take();
                requester.send([cancel(pid)]);
                rig.wait(1);
                assert_eq!(rig.cancels().len(), 1);
            }
        }
    }
}

#[test]
fn a_target_that_gets_a_server_during_the_call_is_held_back() {
    let rig = auto(2, |config| config.global.default_pool_size = 1);
    let requester = rig.client_at(1);
    let (target, pid, server) = busy(&rig, 0);
    requester.send([query("other")]);
    requester.send([cancel(pid)]);
    rig.wait(1);
    // Weir does not ask this client first.
    assert_eq!(rig.cancels(), []);
    server.send([done("OK")]);
    target.take();
    server.expect([query("other"), query(CANCELED)]);
    server.send([done("OK"), done("OK")]);
    requester.take();
    target.send([query("slow")]);
    server.expect([query("slow")]);
    requester.send([terminate_it(pid)]);
    rig.hold_mail(true);
    rig.wait(1);
    rig.deliver_letters(1);
    server.send([done("OK")]);
    server.expect([]);
    rig.hold_mail(false);
    server.expect([query(TERMINATED)]);
    assert!(!target.is_open());
}

#[test]
fn other_modes_leave_it_to_postgresql() {
    let rig = Rig::transaction();
    let (_target, pid, _) = busy(&rig, 0);
    let requester = rig.client();
    requester.send([cancel(pid)]);
    rig.server(1).expect([cancel(pid)]);
    assert_eq!(rig.cancels(), []);
}

#[test]
fn a_waiting_client_that_another_waiting_one_terminates_is_not_looked_at_any_more() {
    let rig = auto(1, |config| config.global.default_pool_size = 1);
    let (_holder, _, _) = busy(&rig, 0);
    let (requester, _) = told(&rig, 0, "alice");
    let (target, pid) = told(&rig, 0, "alice");
    target.send([query("SELECT 1")]);
    requester.send([terminate_it(pid)]);
    rig.wait(1);
    assert!(!target.is_open() && requester.is_open());
}
