//! Several workers with one pool. Servers and bad news travel between them by mail.

use crate::messages::*;
use crate::rig::{Client, Rig, Server, add_others};

/// Two workers and one server. A client of worker 0 uses it, and a client of worker 1 waits.
fn crossing() -> (Rig, Client, Client, Server) {
    let rig = Rig::with_workers(2, |config| config.global.default_pool_size = 1);
    let (here, server) = (rig.client_at(0), rig.server(0));
    let there = rig.client_at(1);
    here.send([query("here")]);
    server.expect([query("here")]);
    there.send([query("there")]);
    (rig, here, there, server)
}

#[test]
fn a_released_server_crosses_over_to_a_waiting_client() {
    let (_rig, here, there, server) = crossing();
    server.send([done("OK")]);
    here.expect([done("OK")]);
    assert_eq!(server.worker(), 1);
    server.answers("there");
    there.expect([done("OK")]);
}

#[test]
fn an_idle_server_is_stolen() {
    let rig = Rig::with_workers(2, |_| {});
    let (_, server) = (rig.client_at(0), rig.server(0));
    assert_eq!(server.worker(), 0);
    let there = rig.client_at(1);
    there.send([query("there")]);
    assert_eq!(server.worker(), 1);
    server.answers("there");
    assert_eq!(rig.servers(), 1);
}

#[test]
fn messages_of_an_idle_server_are_read_before_another_worker_uses_it() {
    // Its own worker has not read the event yet.
    for bad in [true, false] {
        let rig = Rig::with_workers(2, |_| {});
        let (_, server) = (rig.client_at(0), rig.server(0));
        let there = rig.client_at(1);
        rig.hold_servers(true);
        match bad {
            true => server.die(),
            false => server.send([status("application_name", "")]),
        }
        there.send([query("there")]);
        server.expect([]);
        rig.hold_servers(false);
        let serves = if bad { rig.server(1) } else { server };
        serves.answers("there");
        there.expect([done("OK")]);
    }
}

#[test]
fn a_message_of_an_idle_server_does_not_show_that_it_is_alive() {
    let rig = Rig::with_workers(2, |_| {});
    let (_, server) = (rig.client_at(0), rig.server(0));
    let there = rig.client_at(1);
    rig.later(31_000_000);
    rig.hold_servers(true);
    server.send([status("application_name", "")]);
    there.send([query("there")]);
    server.expect([]);
    rig.hold_servers(false);
    server.answers("");
    server.answers("there");
    there.expect([done("OK")]);
}

#[test]
fn within_the_patience_a_server_stays_with_its_worker() {
    let (rig, here, there, server) = crossing();
    rig.later(1_000);
    let neighbour = rig.client_at(0);
    neighbour.send([query("neighbour")]);
    server.send([done("OK")]);
    here.expect([done("OK")]);
    server.answers("neighbour");
    server.answers("there");
    there.expect([done("OK")]);
}

#[test]
fn beyond_the_patience_it_crosses() {
    let (rig, _here, _there, server) = crossing();
    rig.later(2_001);
    rig.client_at(0).send([query("neighbour")]);
    server.send([done("OK")]);
    server.answers("there");
    server.answers("neighbour");
}

#[test]
fn mail_for_a_client_that_has_left_goes_to_the_next_or_stays() {
    for somebody_waits in [true, false] {
        let (rig, here, there, server) = crossing();
        rig.hold_mail(true);
        server.send([done("OK")]);
        here.expect([done("OK")]);
        there.leave();
        let next = rig.client_at(0);
        if somebody_waits {
            next.send([query("next")]);
        }
        rig.hold_mail(false);
        assert_eq!(rig.servers(), 1);
        if !somebody_waits {
            assert!(server.is_parked());
            assert_eq!(server.worker(), 1);
            next.send([query("next")]);
        }
        server.answers("next");
        next.expect([done("OK")]);
        assert_eq!(server.worker(), 0);
    }
}

#[test]
fn mail_for_a_client_that_has_timed_out_and_asked_again() {
    let (rig, _here, there, server) = crossing();
    rig.hold_mail(true);
    server.send([done("OK")]);
    there.leave();
    // Another client has the slot now, and waits as well.
    let other = rig.connect_from(1, engine::auth::Peer::default());
    other.say_hello(&[]);
    other.expect_welcome(&[]);
    other.send([query("other")]);
    rig.hold_mail(false);
    server.answers("other");
    other.expect([done("OK")]);
    assert_eq!(rig.servers(), 1);
}

#[test]
fn a_server_that_dies_in_the_mail() {
    let (rig, _here, there, server) = crossing();
    rig.hold_mail(true);
    server.send([done("OK")]);
    server.die();
    rig.hold_mail(false);
    // The server has received none of the client's bytes, so the client gets another.
    rig.server(1).answers("there");
    there.expect([done("OK")]);
    assert_eq!(rig.pool(|pool| pool.counts()), (1, 0));
}

#[test]
fn bad_news_reach_the_waiting_clients_of_all_workers() {
    let rig = Rig::with_workers(2, |config| config.global.default_pool_size = 1).manual();
    let clients = [0, 1].map(|worker| rig.connect_from(worker, engine::auth::Peer::default()));
    for client in &clients {
        client.say_hello(&[]);
    }
    let server = rig.server(0);
    server.connect();
    let error = fatal("3D000", "database \"app\" does not exist");
    server.send([error.clone()]);
    for client in &clients {
        client.expect([error.clone()]);
        assert!(!client.is_open());
    }
}

#[test]
fn prepared_statements_go_along() {
    let (rig, here, there, server) = crossing();
    server.send([done("OK")]);
    server.answers("there");
    here.send([parse("a", "select 1"), sync()]);
    assert_eq!(server.worker(), 0);
    server.expect([parse("weir_1", "select 1"), sync()]);
    server.send([parsed(), ready('I')]);
    there.send([parse("mine", "select 1"), bind("mine"), sync()]);
    server.expect([bind("weir_1"), sync()]);
    server.send([bound(), ready('I')]);
    there.send([query("discard all")]);
    server.expect([query("discard all")]);
    server.send([done("DISCARD ALL")]);
    here.send([bind("a"), sync()]);
    server.expect([parse("weir_1", "select 1"), bind("weir_1"), sync()]);
    drop(rig);
}

#[test]
fn an_unnamed_statement_is_never_mistaken_for_another_workers() {
    let (_rig, here, there, server) = crossing();
    server.send([done("OK")]);
    server.answers("there");
    for (client, sql) in [(&here, "select 1"), (&there, "select 2")] {
        client.send([parse("", sql), sync()]);
        server.expect([parse("", sql), sync()]);
        server.send([parsed(), ready('I')]);
    }
    here.send([bind(""), sync()]);
    server.expect([parse("", "select 1"), bind(""), sync()]);
}

#[test]
fn fifty_clients_of_two_workers_share_one_server_in_order() {
    let rig = Rig::with_workers(2, |config| config.global.default_pool_size = 1);
    let clients: Vec<Client> = (0..50).map(|at| rig.client_at(at % 2)).collect();
    let server = rig.server(0);
    for (at, client) in clients.iter().enumerate() {
        client.send([query(&at.to_string())]);
        rig.later(5_000);
    }
    for (at, client) in clients.iter().enumerate() {
        server.answers(&at.to_string());
        client.expect([done("OK")]);
    }
    assert!(server.is_parked());
    assert_eq!(rig.servers(), 1);
}

/// The new client has the slot of the one that has left, and the same ticket in another queue.
#[test]
fn mail_for_a_client_that_has_left_is_not_for_a_client_of_another_pool() {
    let rig = Rig::with_workers(2, |config| {
        config.global.default_pool_size = 1;
        add_others(config);
    });
    let (here, server) = (rig.client_at(0), rig.server(0));
    let there = rig.client_at(1);
    let elsewhere = rig.client_of(0, "alice", "other");
    elsewhere.send([query("elsewhere")]);
    let other = rig.server(1);
    other.expect([query("elsewhere")]);
    here.send([query("here")]);
    server.expect([query("here")]);
    there.send([query("there")]);
    rig.hold_mail(true);
    server.send([done("OK")]);
    here.expect([done("OK")]);
    there.leave();
    let newcomer = rig.client_of(1, "alice", "other");
    newcomer.send([query("mine")]);
    rig.hold_mail(false);
    server.expect([]);
    assert!(server.is_parked());
    other.send([done("OK")]);
    elsewhere.expect([done("OK")]);
    other.answers("mine");
    newcomer.expect([done("OK")]);
}
