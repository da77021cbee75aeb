//! Both kinds of shutdown.

use config::AuthType;
use engine::Drain;

use crate::messages::*;
use crate::rig::Rig;

#[test]
fn waiting_for_servers() {
    let rig = Rig::of_size(1);
    let (client, server) = (rig.client(), rig.server(0));
    let (waiting, idle) = (rig.client(), rig.client());
    client.send([query("slow")]);
    server.expect([query("slow")]);
    waiting.send([query("other")]);
    rig.begin_drain(Drain::WaitForServers);
    waiting.expect_fatal("server shutting down");
    server.send([done("OK")]);
    client.expect([done("OK")]);
    assert!(!server.is_open());
    server.expect([terminate()]);
    idle.send([query("other")]);
    idle.expect_fatal("server shutting down");
    let late = rig.connect();
    late.say_hello(&[]);
    late.expect_fatal("pooler is shutting down");
    assert_eq!(rig.pool(|pool| pool.counts()), (0, 0));
}

#[test]
fn waiting_for_servers_ends_idle_ones() {
    let rig = Rig::transaction();
    rig.client();
    assert!(rig.server(0).is_parked());
    rig.begin_drain(Drain::WaitForServers);
    assert!(!rig.server(0).is_open());
    assert_eq!(rig.servers(), 1, "no new ones");
}

#[test]
fn waiting_for_servers_in_session_mode_waits_for_the_sessions() {
    let rig = Rig::session();
    let (client, server) = (rig.client(), rig.server(0));
    rig.begin_drain(Drain::WaitForServers);
    client.send([query("one")]);
    server.answers("one");
    client.expect([done("OK")]);
    client.leave();
    server.answers("DISCARD ALL");
    assert!(!server.is_open());
}

#[test]
fn waiting_for_servers_gives_none_to_a_client_that_was_logging_in() {
    let rig = Rig::new(|config| config.global.auth_type = AuthType::Plain);
    let late = rig.connect();
    late.say_hello(&[]);
    late.take();
    rig.begin_drain(Drain::WaitForServers);
    late.send([password("secret")]);
    late.expect_fatal("server shutting down");
    assert_eq!(rig.servers(), 0);
}

#[test]
fn waiting_for_clients() {
    let rig = Rig::of_size(1);
    let (client, server) = (rig.client(), rig.server(0));
    let other = rig.client();
    client.send([query("one")]);
    other.send([query("two")]);
    rig.begin_drain(Drain::WaitForClients);
    let late = rig.connect();
    late.say_hello(&[]);
    late.expect_fatal("pooler is shutting down");
    server.answers("one");
    server.answers("two");
    client.send([query("three")]);
    server.answers("three");
    client.leave();
    other.send([terminate()]);
    assert_eq!(rig.clients_in_tables(), 0);
}

#[test]
fn cancel_requests_are_served_to_the_end() {
    let rig = Rig::transaction();
    let client = rig.connect();
    client.say_hello(&[]);
    let (pid, secret) = client.expect_welcome(&[]);
    client.send([query("slow")]);
    rig.begin_drain(Drain::WaitForClients);
    rig.connect().send([cancel_request(pid, &secret)]);
    assert_eq!(rig.cancels().len(), 1);
}
