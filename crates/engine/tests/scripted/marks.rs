//! The mark of idle servers (`mark_pooled_servers`).

use std::time::Duration;

use crate::messages::*;
use crate::rig::{Rig, Server};

const MARK: &str = "SET application_name = 'pooled';";

fn marking(change: impl FnOnce(&mut config::Config)) -> Rig {
    Rig::with_workers(1, |config| {
        config.global.mark_pooled_servers = true;
        change(config);
    })
}

#[track_caller]
fn is_marked(server: &Server) {
    server.expect([query(MARK)]);
    server.send([complete("SET"), status("application_name", "pooled"), ready('I')]);
    assert!(server.is_parked());
}

#[track_caller]
fn names_client(server: &Server) {
    server.expect([query("SET application_name = 'web';")]);
    server.send([complete("SET"), status("application_name", "web"), ready('I')]);
}

#[test]
pub(crate) fn the_next_client_of_a_marked_server_has_its_own_name() {
    let rig = marking(|_| {});
    let named = [("user", "alice"), ("database", "app"), ("application_name", "web")];
    let (client, other) = (rig.client_with(0, &named), rig.client());
    let server = rig.server(0);
    client.send([query("SELECT 1")]);
    names_client(&server);
    server.answers("SELECT 1");
    rig.wait_ms(900);
    server.expect([]);
    rig.wait_ms(400);
    is_marked(&server);
    rig.wait(5);
    server.expect([]);
    client.send([query("SELECT 2")]);
    names_client(&server);
    server.answers("SELECT 2");
    rig.wait_ms(1_300);
    is_marked(&server);
    // This one has given no name.
    other.send([query("SELECT 3")]);
    server.expect([query("RESET application_name;")]);
    server.send([complete("RESET"), status("application_name", ""), ready('I')]);
    server.answers("SELECT 3");
}

#[test]
fn a_new_client_is_not_told_the_mark() {
    let rig = marking(|_| {});
    drop(rig.client());
    rig.wait_ms(1_300);
    is_marked(&rig.server(0));
    // The welcome is compared.
    let late = rig.client();
    late.leave();
}

#[test]
fn a_client_that_comes_meanwhile_waits_for_the_mark() {
    let rig = marking(|config| config.global.default_pool_size = 1);
    let client = rig.client();
    let server = rig.server(0);
    rig.wait_ms(1_300);
    server.expect([query(MARK)]);
    client.send([query("SELECT 1")]);
    server.expect([]);
    server.send([complete("SET"), status("application_name", "pooled"), ready('I')]);
    server.take();
    server.send([complete("RESET"), status("application_name", ""), ready('I')]);
    server.answers("SELECT 1");
    client.expect([done("OK")]);
    assert_eq!(rig.servers(), 1);
}

#[test]
pub(crate) fn a_marked_server_keeps_its_place_and_its_age() {
    let rig = marking(|config| config.global.server_idle_timeout = Duration::from_secs(5));
    let (first, second) = (rig.client(), rig.client());
    for client in [&first, &second] {
        client.send([query("BEGIN")]);
    }
    let (old, young) = (rig.server(0), rig.server(1));
    for (client, server) in [(&first, &old), (&second, &young)] {
        server.expect([query("BEGIN")]);
        server.send([complete("BEGIN"), ready('T')]);
        client.send([query("COMMIT")]);
        server.expect([query("COMMIT")]);
        server.send([complete("COMMIT"), ready('I')]);
        rig.wait_ms(600);
    }
    // The younger one is not marked yet. It is the one that was used last.
    is_marked(&old);
    let order: Vec<u32> = rig.pool(|pool| pool.parked().map(|one| one.server.key.pid).collect());
    assert_eq!(order, [old.pid(), young.pid()]);
    first.send([query("SELECT 1")]);
    young.answers("SELECT 1");
    rig.wait_ms(1_300);
    is_marked(&young);
    rig.wait_ms(3_000);
    assert!(!old.is_open(), "its mark is no use");
    assert!(young.is_open());
}

#[test]
fn a_server_that_refuses_the_mark_is_closed() {
    let rig = marking(|_| {});
    drop(rig.client());
    let server = rig.server(0);
    rig.wait_ms(1_300);
    server.expect([query(MARK)]);
    server.send([error("42501", "no"), ready('I')]);
    assert!(!server.is_open());
}

#[test]
fn a_held_pool_marks_nothing_and_a_mark_under_way_survives_a_takeover() {
    let rig = marking(|_| {});
    let client = rig.client();
    let server = rig.server(0);
    rig.order(|pool| pool.set_gate(engine::pool::Gate::Held));
    rig.wait_ms(1_500);
    server.expect([]);
    rig.order(|pool| pool.set_gate(engine::pool::Gate::Open));
    rig.wait_ms(300);
    is_marked(&server);
    rig.hand_over();
    rig.wait_ms(3_000);
    server.expect([]);
    client.send([query("SELECT 1")]);
    // The new process knows the mark.
    server.expect([query("RESET application_name;")]);
}
