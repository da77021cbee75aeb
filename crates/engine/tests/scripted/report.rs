//! A worker's report for the console.

use engine::report::{ClientState, Report, ServerState};
use engine::stats::Stats;

use crate::messages::*;
use crate::rig::{Client, Rig, Server};

fn stats(rig: &Rig) -> Stats {
    rig.report(0).stats[0].1
}

#[test]
fn states_follow_the_conversation() {
    let rig = Rig::of_size(1);
    let states = |rig: &Rig| {
        let Report { clients, servers, .. } = rig.report(0);
        let clients: Vec<ClientState> = clients.iter().map(|row| row.state).collect();
        let servers: Vec<ServerState> = servers.iter().map(|row| row.state).collect();
        (clients, servers)
    };
    let _silent = rig.connect();
    let first = rig.client();
    let second = rig.client_with(0, &[("application_name", "second")]);
    use ClientState::{Active, Idle, Login, Waiting};
    assert_eq!(states(&rig), (vec![Login, Idle, Idle], vec![]));
    first.send([query("slow")]);
    second.send([query("other")]);
    assert_eq!(states(&rig), (vec![Login, Active, Waiting], vec![ServerState::Active]));
    let server = rig.server(0);
    server.send([done("OK")]);
    assert_eq!(states(&rig), (vec![Login, Idle, Active], vec![ServerState::Tested]));
    server.send([status("application_name", "second"), done("SET")]);
    assert_eq!(states(&rig), (vec![Login, Idle, Active], vec![ServerState::Active]));
    let report = rig.report(0);
    assert_eq!(report.clients[2].server, report.servers[0].serial);
    assert_eq!(report.servers[0].client, report.clients[2].serial);
    assert_eq!(report.clients[2].application_name, b"second");
    assert_eq!(report.servers[0].application_name, b"second");
    assert_eq!(report.servers[0].process_id, server.pid());
}

#[test]
fn a_burst_is_one_query_and_each_commit_a_transaction() {
    let rig = Rig::transaction();
    let (client, server) = (rig.client(), rig.server(0));
    let before = stats(&rig);
    client.send([query("begin"), query("select 1")]);
    server.send([complete("BEGIN"), ready('T'), complete("SELECT 1"), ready('T')]);
    rig.later(1_000);
    client.send([query("commit")]);
    rig.later(500);
    server.send([done("COMMIT")]);
    client.send([query("select 2")]);
    server.send([done("SELECT 1")]);
    let after = stats(&rig);
    assert_eq!(after.queries - before.queries, 3);
    assert_eq!(after.transactions - before.transactions, 2);
    assert_eq!(after.assignments - before.assignments, 2);
    assert_eq!(after.transaction_time - before.transaction_time, 1_500);
    assert_eq!(after.query_time - before.query_time, 500);
    let sent = [query("begin"), query("select 1"), query("commit"), query("select 2")].concat();
    assert_eq!(after.received - before.received, sent.len() as u64);
}

#[test]
fn a_notice_that_answers_nothing_is_no_query() {
    let (session, transaction) = (Rig::session(), Rig::transaction());
    let in_transaction = |rig: &Rig, client: &Client, server: &Server| {
        client.send([query("begin")]);
        server.send([complete("BEGIN"), ready('T')]);
        rig.later(1_000);
    };
    for (rig, begins) in [(session, false), (transaction, true)] {
        let (client, server) = (rig.client(), rig.server(0));
        if begins {
            in_transaction(&rig, &client, &server);
        } else {
            client.send([query("select 1")]);
            server.send([done("SELECT 1")]);
        }
        let before = stats(&rig);
        rig.later(1_000_000);
        server.send([notice("hear")]);
        rig.later(1_000_000);
        server.send([notice("again")]);
        let after = stats(&rig);
        assert_eq!((after.queries, after.query_time), (before.queries, before.query_time));
        client.send([query("rollback")]);
        rig.later(700);
        server.send([done("ROLLBACK")]);
        assert_eq!(stats(&rig).query_time - before.query_time, 700);
    }
}

#[test]
fn waiting_time_is_counted_when_it_ends() {
    let rig = Rig::of_size(1);
    let (first, server) = (rig.client(), rig.server(0));
    let second = rig.client();
    first.send([query("one")]);
    second.send([query("two")]);
    rig.later(700);
    let before = stats(&rig);
    server.send([done("OK")]);
    assert_eq!(stats(&rig).wait_time - before.wait_time, 700);
}

#[test]
fn parses_asked_for_and_parses_sent() {
    let rig = Rig::of_size(1);
    let (first, server) = (rig.client(), rig.server(0));
    let second = rig.client();
    for client in [&first, &second] {
        client.send([parse("a", "select 1"), bind("a"), sync()]);
        let taught = if server.take().starts_with(b"P") { parsed() } else { vec![] };
        server.send([taught, bound(), ready('I')]);
    }
    let stats = stats(&rig);
    assert_eq!((stats.client_parses, stats.server_parses, stats.binds), (2, 1, 2));
}

#[test]
fn a_parse_that_comes_in_pieces_is_counted_once() {
    let rig = Rig::of_size(1);
    let (client, server) = (rig.client(), rig.server(0));
    for name in ["a", ""] {
        let before = stats(&rig);
        for byte in parse(name, "select 1").into_iter().chain(sync()) {
            client.send([vec![byte]]);
        }
        server.send([parsed(), ready('I')]);
        let after = stats(&rig);
        assert_eq!(after.client_parses - before.client_parses, 1, "{name:?}");
        assert_eq!(after.server_parses - before.server_parses, 1, "{name:?}");
    }
}
