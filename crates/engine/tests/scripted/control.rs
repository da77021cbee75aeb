//! Orders of the operator: PAUSE, RECONNECT, KILL and others.

use engine::pool::Gate;

use crate::messages::*;
use crate::rig::Rig;

fn pause(rig: &Rig) {
    rig.order(|pool| pool.set_gate(Gate::Paused));
}

fn resume(rig: &Rig) {
    rig.order(|pool| pool.set_gate(Gate::Open));
}

#[test]
fn a_pause_closes_what_is_idle_and_lets_transactions_end() {
    let rig = Rig::transaction();
    let (busy, idle) = (rig.client(), rig.client());
    busy.send([query("begin")]);
    let server = rig.server(0);
    server.expect([query("begin")]);
    server.send([complete("BEGIN"), ready('T')]);
    idle.send([query("other")]);
    rig.server(1).answers("other");
    pause(&rig);
    assert!(!rig.server(1).is_open(), "it was idle");
    assert!(rig.logged("pause mode"));
    busy.send([query("commit")]);
    server.expect([query("commit")]);
    server.send([done("COMMIT")]);
    assert!(!server.is_open());
    assert_eq!(rig.pool(|pool| pool.counts()), (0, 0));
    busy.expect([complete("BEGIN"), ready('T'), done("COMMIT")]);
}

#[test]
fn clients_wait_while_it_is_paused_and_are_served_when_it_goes_on() {
    let rig = Rig::transaction();
    let client = rig.client();
    pause(&rig);
    client.send([query("one")]);
    assert_eq!(rig.servers(), 1, "nothing is opened");
    assert_eq!(rig.pool(|pool| pool.waiting_total()), 1);
    let late = rig.client();
    resume(&rig);
    rig.server(1).answers("one");
    client.expect([done("OK")]);
    late.send([query("two")]);
    rig.server(1).answers("two");
    late.expect([done("OK")]);
}

#[test]
fn a_login_under_way_ends_when_it_is_paused() {
    let rig = Rig::transaction().manual();
    let client = rig.connect();
    client.say_hello(&[]);
    pause(&rig);
    assert!(!rig.server(0).is_open());
    assert_eq!(rig.pool(|pool| pool.counts()), (0, 0));
    rig.set_automatic(true);
    resume(&rig);
    client.expect_welcome(&[]);
}

#[test]
fn servers_are_replaced_as_soon_as_they_are_free() {
    let rig = Rig::transaction();
    let (busy, idle) = (rig.client(), rig.client());
    busy.send([query("begin")]);
    let server = rig.server(0);
    server.expect([query("begin")]);
    server.send([complete("BEGIN"), ready('T')]);
    idle.send([query("other")]);
    rig.server(1).answers("other");
    rig.order(engine::pool::Pool::replace_servers);
    assert!(!rig.server(1).is_open());
    assert_eq!(rig.pool(|pool| pool.obsolete()), 1);
    assert!(rig.report(0).servers[0].doomed, "it says so");
    idle.send([query("next")]);
    rig.server(2).answers("next");
    busy.send([query("commit")]);
    server.expect([query("commit")]);
    server.send([done("COMMIT")]);
    assert!(!server.is_open());
    assert!(rig.server(2).is_parked(), "the new one stays");
    assert_eq!(rig.pool(|pool| (pool.obsolete(), pool.counts())), (0, (1, 0)));
}

#[test]
fn a_login_begun_before_the_replacement_is_begun_anew() {
    let rig = Rig::transaction().manual();
    let client = rig.connect();
    client.say_hello(&[]);
    rig.order(engine::pool::Pool::replace_servers);
    assert!(!rig.server(0).is_open());
    assert!(rig.logged("connect string changed"));
    assert_eq!(rig.pool(|pool| pool.obsolete()), 0);
    assert_eq!(rig.servers(), 2, "the client still waits for one");
    rig.set_automatic(true);
    rig.order(|_| {});
    client.expect_welcome(&[]);
}

#[test]
fn a_kill_disconnects_all_clients() {
    let rig = Rig::with_workers(2, |_| {});
    let (busy, idle, waiting) = (rig.client_at(0), rig.client_at(1), rig.client_at(1));
    busy.send([query("slow")]);
    rig.server(0).expect([query("slow")]);
    pause(&rig);
    waiting.send([query("other")]);
    rig.kill("app");
    for client in [busy, idle, waiting] {
        client.expect_fatal("database removed");
        assert!(!client.is_open());
    }
    assert!(!rig.server(0).is_open());
    assert_eq!(rig.pool(|pool| (pool.counts(), pool.waiting_total())), ((0, 0), 0));
    rig.kill("other");
    resume(&rig);
    rig.client().send([query("again")]);
}

#[test]
fn a_disabled_pool_refuses_new_clients() {
    let rig = Rig::transaction();
    let client = rig.client();
    rig.pool(|pool| pool.disabled = true);
    let late = rig.connect();
    late.say_hello(&[]);
    late.expect_fatal("database \"app\" is disabled");
    client.send([query("one")]);
    rig.server(0).answers("one");
    client.expect([done("OK")]);
}
