//! Servers with version 1.1 of the library `weir`: settings and request go out in one write.

use config::Config;
use wire::frontend;

use crate::carried::auto;
use crate::messages::*;
use crate::rig::{Client, Rig, Server, server_welcome_with};

const WORK_MEM: &str = "SELECT pg_catalog.set_config('work_mem','5MB',false) IS NULL;";
const RESETS: &str = "RESET \"work_mem\";";
const SHOWS: &str = "SELECT pg_catalog.set_config('weir.client',$1,false)";

/// An answer, followed by a state report.
fn done_with(state: &str) -> Message {
    [complete("OK"), status("weir.state", state), ready('I')].concat()
}

/// A server with the library, and the key that it was sent.
struct Loaded {
    server: Server,
    key: String,
}

impl std::ops::Deref for Loaded {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

fn log_in(rig: &Rig, at: usize, version: &str) -> Loaded {
    let server = rig.server(at);
    server.connect();
    let startup = String::from_utf8_lossy(&server.take()).into_owned();
    let key = startup.split_once("weir.key\0").expect("it is sent a key").1[..32].to_owned();
    server.send([server_welcome_with(at, &[("weir.state", &format!("v1;w:{version}"))])]);
    Loaded { server, key }
}

/// A text that restores settings on this server.
fn marked(server: &Loaded, sql: &str) -> Message {
    query(&format!("/*weir {}*/{sql}", &server.key[..16]))
}

/// A client that has set `work_mem`, and a server that another client has used since.
fn with_setting(change: impl FnOnce(&mut Config), version: &str) -> (Rig, Client, Loaded) {
    let rig = auto(change).manual();
    let client = rig.connect();
    client.say_hello(&[]);
    let server = log_in(&rig, 0, version);
    client.expect_welcome(&[]);
    rig.set_automatic(true);
    client.send([query("SET work_mem = '5MB'")]);
    server.take();
    server.send([done_with("v1;s:work_mem=5MB")]);
    client.expect([done("OK")]);
    (rig, client, server)
}

/// Another client's transaction: its settings, then its request.
#[track_caller]
fn another_uses(rig: &Rig, server: &Loaded) {
    let other = rig.client();
    other.send([query("SELECT 2")]);
    server.expect([marked(server, RESETS), query("SELECT 2")]);
    server.send([done_with("v1"), done("OK")]);
    other.expect([done("OK")]);
}

#[test]
fn settings_and_request_are_sent_at_once() {
    let (rig, client, server) = with_setting(|_| {}, "1.1");
    another_uses(&rig, &server);
    let batch = || [parse("", "SELECT 3"), bind(""), execute(), sync()];
    client.send(batch());
    server.expect(std::iter::once(marked(&server, WORK_MEM)).chain(batch()));
    // The replies may come in pieces.
    server.send([done_with("v1;s:work_mem=5MB"), parsed()]);
    client.expect([parsed()]);
    server.send([bound(), complete("OK"), ready('I')]);
    client.expect([bound(), complete("OK"), ready('I')]);
    assert!(server.is_parked());
    client.send([query("SELECT 4")]);
    server.answers("SELECT 4");
    client.expect([done("OK")]);
}

/// RESET brings the default, which is no longer that of the login. PostgreSQL does not report a value
/// that stays as it was.
#[test]
pub(crate) fn a_reset_brings_the_default_of_now() {
    let rig = auto(|_| {}).manual();
    let [first, second, third] = [&[][..], &[], &[("TimeZone", "UTC")]].map(|given| {
        let client = rig.connect();
        client.say_hello(given);
        client
    });
    let server = log_in(&rig, 0, "1.1");
    for client in [&first, &second, &third] {
        client.expect_welcome(&[]);
    }
    rig.set_automatic(true);
    first.send([query("SELECT 1")]);
    server.expect([query("SELECT 1")]);
    server.send([complete("OK"), status("TimeZone", "Asia/Tokyo"), ready('I')]);
    first.take();
    second.send([query("SELECT 2")]);
    server.expect([marked(&server, "RESET TimeZone;"), query("SELECT 2")]);
    server.send([done("RESET"), done("OK")]);
    second.expect([status("TimeZone", "Asia/Tokyo"), done("OK")]);
    third.send([query("SELECT 3")]);
    server.expect([marked(&server, "SET TimeZone = 'UTC';"), query("SELECT 3")]);
}

#[test]
fn an_older_library_gets_the_settings_first() {
    let (rig, client, server) = with_setting(|_| {}, "1.0");
    let other = rig.client();
    other.send([query("SELECT 2")]);
    server.expect([query(RESETS)]);
    server.send([done_with("v1")]);
    server.answers("SELECT 2");
    client.send([query("SELECT 3")]);
    server.answers(WORK_MEM);
    server.answers("SELECT 3");
}

#[test]
fn so_does_a_request_that_is_not_whole() {
    let (rig, client, server) = with_setting(|_| {}, "1.1");
    another_uses(&rig, &server);
    let [first, second] = [query("SELECT 3"), query("SELECT 4")];
    client.send([first.clone(), second.clone()]);
    server.expect([query(WORK_MEM)]);
    server.send([done_with("v1;s:work_mem=5MB")]);
    server.expect([first, second]);
    server.send([done("OK"), done("OK")]);
    client.expect([done("OK"), done("OK")]);
}

#[test]
fn a_refused_request_goes_to_another_server_behind_its_settings() {
    let (rig, client, server) = with_setting(|_| {}, "1.1");
    another_uses(&rig, &server);
    rig.set_automatic(false);
    client.send([query("UPDATE t SET a = 1")]);
    server.expect([marked(&server, WORK_MEM), query("UPDATE t SET a = 1")]);
    let refusal = || [error("55000", "the client's settings were not restored"), ready('I')];
    server.send([error("42501", "permission denied"), ready('I')].into_iter().chain(refusal()));
    client.expect([]);
    assert!(!server.is_open());
    let next = log_in(&rig, 1, "1.1");
    next.answers(WORK_MEM);
    next.answers("UPDATE t SET a = 1");
    client.expect([done("OK")]);
}

/// The server has the statement already, so Weir itself answers the Parse.
#[test]
fn a_refused_batch_prepares_its_statement_once() {
    let (rig, client, server) = with_setting(|_| {}, "1.1");
    let other = rig.client();
    other.send([parse("b", "SELECT 3"), sync()]);
    server.take();
    server.send([done_with("v1"), parsed(), ready('I')]);
    other.expect([parsed(), ready('I')]);
    rig.set_automatic(false);
    client.send([parse("a", "SELECT 3"), bind("a"), execute(), sync()]);
    server.expect([marked(&server, WORK_MEM), bind("weir_1"), execute(), sync()]);
    server.send([error("42501", "permission denied"), ready('I')]);
    client.expect([parsed()]);
    let next = log_in(&rig, 1, "1.1");
    next.answers(WORK_MEM);
    next.expect([parse("weir_1", "SELECT 3"), bind("weir_1"), execute(), sync()]);
    next.send([parsed(), bound(), complete("OK"), ready('I')]);
    client.expect([bound(), complete("OK"), ready('I')]);
}

/// PostgreSQL reads a text that is invalid in the client's encoding before the library sees it.
#[test]
fn settings_with_other_letters_go_first() {
    let (rig, client, server) = with_setting(|_| {}, "1.1");
    another_uses(&rig, &server);
    let other = rig.connect();
    other.say_hello(&[("application_name", "Bücher")]);
    other.take();
    other.send([query("SELECT 3")]);
    server.expect([query("SET application_name = 'Bücher';")]);
    server.send([done("SET")]);
    server.answers("SELECT 3");
    drop(client);
}

#[test]
fn a_server_that_ends_during_the_settings_has_not_run_the_request() {
    let (rig, client, server) = with_setting(|_| {}, "1.1");
    another_uses(&rig, &server);
    rig.set_automatic(false);
    client.send([query("INSERT INTO t VALUES (1)")]);
    server.take();
    server.send([fatal("57P01", "terminating connection due to administrator command")]);
    server.die();
    client.expect([]);
    let next = log_in(&rig, 1, "1.1");
    next.answers(WORK_MEM);
    next.answers("INSERT INTO t VALUES (1)");
    client.expect([done("OK")]);
}

/// PostgreSQL answers the Close of a name that does not exist. Weir answers it without the server.
#[test]
pub(crate) fn what_needs_no_server_is_answered_once() {
    for is_lost in [true, false] {
        let (rig, client, server) = with_setting(|_| {}, "1.1");
        another_uses(&rig, &server);
        rig.set_automatic(false);
        let rest = || [parse("b", "SELECT 3"), sync()];
        client.send([close("a")].into_iter().chain(rest()));
        let sent = [parse("weir_1", "SELECT 3"), sync()];
        server.expect(std::iter::once(marked(&server, WORK_MEM)).chain(sent));
        if is_lost {
            server.send([fatal("57P01", "terminating connection")]);
            server.die();
        } else {
            server.send([error("55000", "not any more"), ready('I')]);
        }
        client.expect([closed()]);
        let other = log_in(&rig, 1, "1.1");
        other.answers(WORK_MEM);
        other.expect([parse("weir_2", "SELECT 3"), sync()]);
        other.send([parsed(), ready('I')]);
        client.expect([parsed(), ready('I')]);
    }
}

#[test]
fn if_the_server_is_lost_the_request_may_have_run() {
    let (rig, client, server) = with_setting(|_| {}, "1.1");
    another_uses(&rig, &server);
    client.send([query("INSERT INTO t VALUES (1)")]);
    server.take();
    server.die();
    client.expect_lost();
}

/// The cancel request may hit the settings. Then the library refuses everything, so the server
/// cannot be used again.
#[test]
fn the_request_of_a_client_that_is_lost_meanwhile_is_cancelled() {
    for answered in [false, true] {
        let (rig, client, server) = with_setting(|_| {}, "1.1");
        another_uses(&rig, &server);
        client.send([query("SELECT 3")]);
        server.take();
        client.leave();
        assert_eq!(rig.cancels(), [(0, cancel_packet(&server))]);
        if answered {
            let refusal = [error("55000", "the client's settings were not restored"), ready('I')];
            let cancelled = [error("57014", "canceling statement"), ready('I')];
            server.send(cancelled.into_iter().chain(refusal));
        }
        rig.finish_cancel();
        assert!(!server.is_open(), "answered: {answered}");
    }
}

#[test]
fn a_request_behind_its_clients_address_is_cancelled_as_well() {
    let (rig, client, server) = with_address();
    client.send([query("SELECT 3")]);
    assert!(!server.take().is_empty());
    client.leave();
    assert_eq!(rig.cancels(), [(0, cancel_packet(&server))]);
    rig.finish_cancel();
    assert!(!server.is_open());
}

#[test]
fn without_cancel_lost_queries_the_server_is_closed() {
    let (rig, client, server) =
        with_setting(|config| config.global.cancel_lost_queries = false, "1.1");
    another_uses(&rig, &server);
    client.send([query("SELECT 3")]);
    server.take();
    client.leave();
    assert_eq!((rig.cancels(), server.is_open()), (vec![], false));
}

fn cancel_packet(server: &Loaded) -> Message {
    cancel_request(server.pid(), &server.pid().to_be_bytes())
}

/// A client has waited for its server. Its request has arrived and is not read yet.
#[test]
pub(crate) fn waiting_settings_are_not_handed_over() {
    let (rig, client, server) = with_setting(|_| {}, "1.1");
    let other = rig.client();
    other.send([query("SELECT 2")]);
    client.send([query("SELECT 3")]);
    server.expect([marked(&server, RESETS), query("SELECT 2")]);
    rig.hold_clients(true);
    server.send([done_with("v1"), done("OK")]);
    other.expect([done("OK")]);
    assert_eq!((other.can_move(), client.can_move()), ((true, true), (false, false)));
    let exported = rig.export();
    assert_eq!((exported[0].clients.len(), exported[0].parked.len()), (1, 0));
    rig.hold_clients(false);
    server.expect([marked(&server, WORK_MEM), query("SELECT 3")]);
    server.send([done_with("v1;s:work_mem=5MB"), done("OK")]);
    client.expect([done("OK")]);
    assert_eq!(client.can_move(), (true, true));
    rig.hand_over();
    other.send([query("SELECT 4")]);
    server.expect([marked(&server, RESETS), query("SELECT 4")]);
    server.send([done_with("v1"), done("OK")]);
    other.expect([done("OK")]);
    client.send([query("SELECT 5")]);
    server.expect([marked(&server, WORK_MEM), query("SELECT 5")]);
}

/// With `server_client_address`: a client, and a server that has not been used yet.
fn with_address() -> (Rig, Client, Loaded) {
    let rig = auto(|config| config.global.server_client_address = true).manual();
    let client = rig.connect();
    client.say_hello(&[]);
    let server = log_in(&rig, 0, "1.1");
    client.expect_welcome(&[]);
    rig.set_automatic(true);
    (rig, client, server)
}

/// The messages by which the server is told a client's address.
fn introduces(server: &Loaded) -> [Message; 4] {
    let mut value = Vec::new();
    let address = format!("{} 10.0.0.7 5000", server.key);
    frontend::bind_text(&mut value, b"", &[Some(address.as_bytes())]);
    [parse("", SHOWS), value, execute(), sync()]
}

fn introduced() -> [Message; 5] {
    [parsed(), bound(), row("10.0.0.7 5000"), complete("SELECT 1"), ready('I')]
}

#[test]
fn the_server_is_told_the_clients_address_once() {
    let (rig, client, server) = with_address();
    let introduces = || introduces(&server);
    client.send([query("SET work_mem = '5MB'")]);
    server.expect(introduces().into_iter().chain([query("SET work_mem = '5MB'")]));
    server.send(introduced().into_iter().chain([done_with("v1;s:work_mem=5MB")]));
    client.expect([done("OK")]);
    client.send([query("SELECT 3")]);
    server.answers("SELECT 3");
    client.expect([done("OK")]);
    let other = rig.client();
    other.send([query("SELECT 2")]);
    let first = std::iter::once(marked(&server, RESETS)).chain(introduces());
    server.expect(first.chain([query("SELECT 2")]));
    server.send([done_with("v1")].into_iter().chain(introduced()).chain([done("OK")]));
    other.expect([done("OK")]);
    other.send([query("SELECT 4")]);
    server.answers("SELECT 4");
    other.expect([done("OK")]);
}

#[test]
fn the_next_process_tells_the_address_again_if_the_server_was_idle() {
    let (rig, client, server) = with_address();
    for text in ["SELECT 2", "SELECT 3"] {
        client.send([query(text)]);
        server.expect(introduces(&server).into_iter().chain([query(text)]));
        server.send(introduced().into_iter().chain([done("OK")]));
        client.expect([done("OK")]);
        rig.hand_over();
    }
}

#[test]
fn the_next_process_does_not_if_the_client_is_pinned() {
    let (rig, client, server) = with_address();
    client.send([query("SELECT pg_advisory_lock(1)")]);
    server.take();
    server.send(introduced().into_iter().chain([done_with("v1;k")]));
    client.expect([done("OK")]);
    rig.hand_over();
    client.send([query("SELECT 3")]);
    server.answers("SELECT 3");
    client.expect([done("OK")]);
}
