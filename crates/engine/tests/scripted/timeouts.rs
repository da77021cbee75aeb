//! Timeouts. Each is exceeded by a little; half of it has no effect.

use std::time::Duration;

use config::{AuthType, Config};

use crate::messages::*;
use crate::rig::{Client, Rig, Server};

const LIMIT: Duration = Duration::from_secs(10);

/// A rig with one server and this limit.
fn limited(set: impl FnOnce(&mut Config)) -> (Rig, Client, Server) {
    let rig = Rig::new(|config| {
        config.global.default_pool_size = 1;
        set(config);
    });
    let (client, server) = (rig.client(), rig.server(0));
    (rig, client, server)
}

/// After half the limit the client is connected, after the whole limit it is not.
fn ends(rig: &Rig, client: &Client, text: &str) {
    rig.wait(5);
    client.expect([]);
    assert!(client.is_open());
    rig.wait(5);
    client.expect_fatal(text);
}

fn ends_after(rig: &Rig, client: &Client, seconds: u64) {
    assert!(client.is_open());
    rig.wait(seconds);
    client.expect_fatal("query timeout");
}

/// Keeps a query running for more than twice the limit. The next query is sent before each answer.
fn asks_ahead(rig: &Rig, client: &Client, server: &Server) {
    client.send([query("one")]);
    for _ in 0..5 {
        rig.wait(5);
        client.send([query("one")]);
        server.send([done("OK")]);
    }
    client.take();
}

#[test]
fn login() {
    let rig = Rig::new(|config| {
        config.global.auth_type = AuthType::Md5;
        config.global.client_login_timeout = LIMIT;
    });
    let silent = rig.connect();
    ends(&rig, &silent, "client_login_timeout");
    let asked = rig.connect();
    asked.say_hello(&[]);
    asked.take();
    ends(&rig, &asked, "client_login_timeout");
}

#[test]
fn login_without_a_server() {
    let rig = Rig::new(|config| config.global.client_login_timeout = LIMIT).manual();
    let client = rig.connect();
    client.say_hello(&[]);
    ends(&rig, &client, "client_login_timeout (server down)");
}

#[test]
fn a_query_is_not_late_while_its_client_goes_on() {
    let (rig, client, server) = limited(|config| config.global.query_timeout = LIMIT);
    client.send([query("copy t from stdin")]);
    server.send([copy_in()]);
    for _ in 0..5 {
        rig.wait(5);
        client.send([copy_data("a row\n")]);
    }
    client.send([copy_done()]);
    server.send([done("COPY 5")]);
    asks_ahead(&rig, &client, &server);
    ends(&rig, &client, "query timeout");
}

#[test]
pub(crate) fn each_query_of_a_pipeline_has_its_own_time() {
    let (rig, client, server) = limited(|config| config.global.query_timeout = LIMIT);
    client.send((0..5).map(|_| query("one")));
    for _ in 0..5 {
        rig.wait(5);
        server.send([done("OK")]);
    }
    client.expect((0..5).map(|_| done("OK")));
    client.send([query("begin"), query("one")]);
    rig.wait(5);
    server.send([complete("BEGIN"), ready('T')]);
    client.take();
    ends(&rig, &client, "query timeout");
}

#[test]
pub(crate) fn messages_behind_a_query_give_it_no_more_time() {
    for behind in [vec![query("one")], vec![parse("", "one"), flush()], vec![sync()]] {
        let (rig, client, server) = limited(|config| config.global.query_timeout = LIMIT);
        client.send([query("slow")]);
        server.take();
        rig.wait(5);
        client.send(behind.clone());
        rig.wait(5);
        client.expect_fatal("query timeout");
    }
}

#[test]
fn a_batch_is_one_query() {
    let (rig, client, server) = limited(|config| config.global.query_timeout = LIMIT);
    client.send([parse("", "one"), bind(""), execute(), flush()]);
    server.take();
    rig.wait(5);
    server.send([parsed(), bound()]);
    client.take();
    client.send([execute(), flush()]);
    ends_after(&rig, &client, 5);
}

#[test]
fn a_batch_at_rest_between_its_messages_is_no_query() {
    let (rig, client, server) = limited(|config| config.global.query_timeout = LIMIT);
    client.send([parse("", "one"), flush()]);
    server.send([parsed()]);
    client.take();
    rig.wait(50);
    client.send([bind(""), execute(), sync()]);
    ends(&rig, &client, "query timeout");
}

#[test]
fn a_transaction_is_over_though_the_next_is_under_way() {
    let (rig, client, server) = limited(|config| config.global.transaction_timeout = LIMIT);
    asks_ahead(&rig, &client, &server);
    ends(&rig, &client, "transaction timeout");
}

#[test]
fn waiting_for_a_server() {
    let (rig, client, _) = limited(|config| config.global.query_wait_timeout = LIMIT);
    client.send([query("slow")]);
    let other = rig.client();
    other.send([query("other")]);
    ends(&rig, &other, "query_wait_timeout");
    assert!(client.is_open());
    assert_eq!(rig.pool(|pool| pool.waiting_total()), 0);
}

#[test]
fn waiting_longer_than_a_query_may_take() {
    let (rig, client, _) = limited(|config| config.global.query_timeout = LIMIT);
    client.send([query("begin")]);
    rig.server(0).send([complete("BEGIN"), ready('T')]);
    let other = rig.client();
    other.send([query("other")]);
    ends(&rig, &other, "query_timeout");
}

#[test]
fn a_client_that_says_nothing() {
    let (rig, client, server) = limited(|config| config.global.client_idle_timeout = LIMIT);
    rig.wait(9);
    client.send([query("one")]);
    server.answers("one");
    client.expect([done("OK")]);
    ends(&rig, &client, "client_idle_timeout");
    assert!(server.is_open());
}

#[test]
fn a_client_is_not_idle_while_it_has_a_server() {
    let (rig, client, server) = limited(|config| config.global.client_idle_timeout = LIMIT);
    client.send([query("begin")]);
    server.send([complete("BEGIN"), ready('T')]);
    rig.wait(100);
    assert!(client.is_open());
}

#[test]
fn a_query() {
    let (rig, client, server) = limited(|config| config.global.query_timeout = LIMIT);
    client.send([query("one")]);
    server.take();
    server.send([columns("x")]);
    client.take();
    ends(&rig, &client, "query timeout");
    assert!(!server.is_open());
}

#[test]
fn a_query_that_another_server_could_be_asked() {
    let (rig, client, server) = limited(|config| config.global.query_timeout = LIMIT);
    client.send([parse("", "select 1"), describe(""), sync()]);
    server.take();
    ends(&rig, &client, "query timeout");
    assert_eq!((server.is_open(), rig.servers()), (false, 1));
}

#[test]
fn a_transaction_at_rest() {
    let (rig, client, server) = limited(|config| config.global.idle_transaction_timeout = LIMIT);
    client.send([query("begin")]);
    server.send([complete("BEGIN"), ready('T')]);
    client.take();
    rig.wait(5);
    client.send([query("one")]);
    rig.wait(20);
    assert!(client.is_open(), "a query under way is not idle");
    server.send([complete("SELECT 1"), ready('T')]);
    client.take();
    ends(&rig, &client, "idle transaction timeout");
    assert!(!server.is_open());
}

#[test]
fn a_transaction_from_its_first_query_on() {
    let (rig, client, server) = limited(|config| config.global.transaction_timeout = LIMIT);
    client.send([query("begin")]);
    server.send([complete("BEGIN"), ready('T')]);
    client.take();
    rig.wait(5);
    client.send([query("one")]);
    server.send([complete("SELECT 1"), ready('T')]);
    client.take();
    rig.wait(5);
    client.expect_fatal("transaction timeout");
    assert!(!server.is_open());
}

#[test]
fn each_transaction_has_its_own_time() {
    let (rig, client, server) = limited(|config| config.global.transaction_timeout = LIMIT);
    for _ in 0..3 {
        client.send([query("one")]);
        server.answers("one");
        rig.wait(8);
    }
    assert!(client.is_open());
}

#[test]
fn limits_of_a_users_own() {
    let (rig, client, server) = limited(|config| {
        config.global.query_timeout = Duration::from_secs(1000);
        config.users.entry("alice".into()).or_default().query_timeout = Some(LIMIT);
    });
    client.send([query("one")]);
    server.take();
    ends(&rig, &client, "query timeout");
}

#[test]
fn a_cancel_request_that_hangs() {
    let rig = Rig::new(|config| config.global.cancel_wait_timeout = LIMIT);
    let client = rig.connect();
    client.say_hello(&[]);
    let (pid, secret) = client.expect_welcome(&[]);
    client.send([query("slow")]);
    let requester = rig.connect();
    requester.send([cancel_request(pid, &secret)]);
    ends(&rig, &requester, "cancel_wait_timeout");
    rig.finish_cancel();
}

#[test]
fn a_server_unused_for_long() {
    let (rig, client, server) = limited(|config| config.global.server_idle_timeout = LIMIT);
    rig.wait(9);
    client.send([query("one")]);
    server.answers("one");
    rig.wait(9);
    assert!(server.is_open());
    rig.wait(1);
    assert!(!server.is_open() && client.is_open());
    server.expect([terminate()]);
}

#[test]
fn a_server_of_a_certain_age() {
    let (rig, client, server) = limited(|config| config.global.server_lifetime = LIMIT);
    client.send([query("begin")]);
    server.send([complete("BEGIN"), ready('T')]);
    rig.wait(20);
    assert!(server.is_open(), "it is in use");
    client.send([query("commit")]);
    server.send([done("COMMIT")]);
    assert!(!server.is_open());
    assert!(rig.logged("server lifetime over"));
}

#[test]
fn a_reset_without_an_answer() {
    let rig = Rig::session();
    let (client, server) = (rig.client(), rig.server(0));
    rig.wait(100);
    client.leave();
    rig.wait(14);
    assert!(server.is_open());
    rig.wait(1);
    assert!(!server.is_open());
}
