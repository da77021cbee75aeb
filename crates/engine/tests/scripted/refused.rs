//! Auto mode: servers that refuse a client's settings.

use crate::carried::{WORK_MEM, auto, sets};
use crate::clusters::{clustered, tell};
use crate::messages::*;
use crate::rig::{Client, Rig, Server, server_welcome};

/// A client with a setting, and so many idle servers without it. Other clients have used all of them.
/// Further servers are opened by the script.
fn with_used(count: usize) -> (Rig, Client, Vec<Server>) {
    let rig = auto(|config| config.global.default_pool_size = count as u32);
    let client = rig.client();
    sets(&client, &rig.server(0), "work_mem", "5MB");
    let others: Vec<_> = (0..count).map(|_| rig.client()).collect();
    let begin = |(at, other): (usize, &Client)| {
        other.send([query("BEGIN")]);
        let server = rig.server(at);
        if at == 0 {
            server.answers("RESET \"work_mem\";");
        }
        server.expect([query("BEGIN")]);
        server.send([complete("BEGIN"), ready('T')]);
        server
    };
    let servers: Vec<_> = others.iter().enumerate().map(begin).collect();
    for (other, server) in others.iter().zip(&servers) {
        other.send([query("COMMIT")]);
        server.answers("COMMIT");
        assert!(server.is_parked());
    }
    (rig.manual(), client, servers)
}

#[track_caller]
fn refuses(server: &Server) {
    server.expect([query(WORK_MEM)]);
    server.send([error("55000", "not any more"), ready('I')]);
    assert!(!server.is_open());
}

/// Logs in the server that was opened last. More bytes follow at once.
fn logs_in(rig: &Rig, more: &[u8]) -> Server {
    let at = rig.servers() - 1;
    let server = rig.server(at);
    server.connect();
    server.take();
    server.send([server_welcome(at), more.to_vec()]);
    server
}

/// The server that is opened for the client ends before it has answered.
fn is_lost(rig: &Rig) {
    let server = logs_in(rig, &[]);
    server.expect([query(WORK_MEM)]);
    server.die();
}

/// It has sent half a message behind its login, which Weir reads first. The client gets another one
/// meanwhile.
fn is_busy(rig: &Rig) {
    logs_in(rig, &notice("half")[..7]).expect([]);
}

#[test]
pub(crate) fn used_servers_are_replaced() {
    for misses_new in [is_lost, is_busy] {
        let (rig, client, used) = with_used(2);
        client.send([query("SELECT 2")]);
        refuses(&used[0]);
        misses_new(&rig);
        refuses(&used[1]);
        assert!(client.is_open());
        let new = logs_in(&rig, &[]);
        new.answers(WORK_MEM);
        new.answers("SELECT 2");
        client.expect([done("OK")]);
    }
}

#[test]
pub(crate) fn a_new_server_decides() {
    let (rig, client, used) = with_used(2);
    client.send([query("SELECT 2")]);
    refuses(&used[0]);
    refuses(&logs_in(&rig, &[]));
    client.expect_fatal("server refused session settings: not any more");
    assert!(used[1].is_parked());
}

#[test]
pub(crate) fn at_most_three_are_closed() {
    let (rig, client, used) = with_used(4);
    client.send([query("SELECT 2")]);
    for server in &used[..2] {
        refuses(server);
        is_lost(&rig);
    }
    refuses(&used[2]);
    client.expect_fatal("server refused session settings: not any more");
    assert!(used[3].is_parked());
}

/// The new server cannot be opened: the primary has just gone.
#[test]
fn a_client_that_needs_a_new_server_waits_for_the_next_primary() {
    let rig = auto(clustered);
    rig.client().leave();
    tell(&rig, Some("10.0.0.1"), None);
    let [client, other] = [rig.client(), rig.client()];
    let server = rig.server(0);
    sets(&client, &server, "work_mem", "5MB");
    other.send([query("SELECT 1")]);
    server.answers("RESET \"work_mem\";");
    server.answers("SELECT 1");
    rig.set_automatic(false);
    client.send([query("SELECT 2")]);
    refuses(&server);
    rig.server(1).refuse();
    assert!(client.is_open());
    rig.set_automatic(true);
    tell(&rig, Some("10.0.0.2"), None);
    rig.wait(1);
    let next = rig.server(rig.servers() - 1);
    next.answers(WORK_MEM);
    next.answers("SELECT 2");
    client.expect([done("OK")]);
}
