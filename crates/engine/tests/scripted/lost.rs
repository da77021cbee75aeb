//! A client keeps its connection when its server is lost, in pools of a cluster.

use config::{Config, PoolMode};
use engine::ids::NodeId;
use engine::routing::Place;

use crate::clusters::{clustered, tell};
use crate::listen::{DEAF, GAP, begin, begins, listen, listening, locks, of_another_encoding};
use crate::messages::*;
use crate::rig::{Client, Rig, Server};

const FAIL: &str = "BEGIN; ROLLBACK TO SAVEPOINT \"the transaction was lost with its server\"";
const ABORTED: &str = "current transaction is aborted";

pub(crate) fn rig(change: impl FnOnce(&mut Config)) -> Rig {
    let rig = Rig::new(|config| {
        clustered(config);
        change(config);
    });
    rig.client().leave();
    tell(&rig, Some("10.0.0.1"), None);
    rig
}

/// A client, and its server in a transaction.
pub(crate) fn begun(rig: &Rig) -> (Client, Server) {
    let client = rig.client();
    client.send([query("BEGIN")]);
    let server = rig.server(rig.servers() - 1);
    server.expect([query("BEGIN")]);
    server.send([complete("BEGIN"), ready('T')]);
    client.expect([complete("BEGIN"), ready('T')]);
    (client, server)
}

/// The client got an error of Weir's with this code, and then these messages.
#[track_caller]
pub(crate) fn is_told(client: &Client, code: &str, rest: impl IntoIterator<Item = Message>) {
    let got = client.take();
    let header = wire::Header::parse(&got).expect("a message").expect("a whole one");
    let (error, behind) = got.split_at(header.total);
    let shown = show(error).concat();
    assert!(error[0] == b'E' && shown.contains(code), "{code}: {:?}", show(&got));
    assert!(shown.contains("ERROR") && shown.contains("Reason: server conn crashed?."), "{shown}");
    assert_eq!(show(behind), show(&rest.into_iter().flatten().collect::<Vec<_>>()));
    assert!(client.is_open());
}

/// The next server plays the failed transaction until its end.
#[track_caller]
fn is_in_a_failed_transaction(rig: &Rig, client: &Client) {
    client.send([query("SELECT 2")]);
    let next = rig.server(rig.servers() - 1);
    next.expect([query(FAIL)]);
    next.send([complete("BEGIN"), error("3B001", "no such savepoint"), ready('E')]);
    next.expect([query("SELECT 2")]);
    next.send([error("25P02", ABORTED), ready('E')]);
    client.expect([error("25P02", ABORTED), ready('E')]);
    client.send([query("ROLLBACK")]);
    next.answers("ROLLBACK");
    client.expect([done("OK")]);
    assert!(next.is_parked());
}

#[test]
fn a_transaction_between_two_requests_is_told_with_the_next_one() {
    let rig = rig(|_| {});
    let (client, server) = begun(&rig);
    server.die();
    client.expect([]);
    client.send([query("SELECT 1")]);
    is_told(&client, "40001", [ready('E')]);
    is_in_a_failed_transaction(&rig, &client);
}

/// The client sets its time zone in the transaction.
fn sets_time_zone(client: &Client, server: &Server) {
    let replies = [complete("SET"), status("TimeZone", "Asia/Tokyo"), ready('T')];
    client.send([query("SET timezone = 'Asia/Tokyo'")]);
    server.expect([query("SET timezone = 'Asia/Tokyo'")]);
    server.send(replies.clone());
    client.expect(replies);
}

#[test]
pub(crate) fn a_lost_parameter_returns() {
    for mode in [PoolMode::Transaction, PoolMode::Auto] {
        let rig = rig(|config| config.global.pool_mode = mode);
        let (client, server) = begun(&rig);
        sets_time_zone(&client, &server);
        server.die();
        client.expect([status("TimeZone", "UTC")]);
        client.send([query("SELECT 1")]);
        is_told(&client, "40001", [ready('E')]);
        is_in_a_failed_transaction(&rig, &client);
    }
}

#[test]
fn a_lost_parameter_returns_after_an_online_restart() {
    let rig = rig(|_| {});
    let (client, server) = begun(&rig);
    sets_time_zone(&client, &server);
    rig.hand_over();
    server.die();
    client.expect([status("TimeZone", "UTC")]);
}

/// The commit and the lost request are in one pipeline.
#[test]
pub(crate) fn a_committed_parameter_stays() {
    for mode in [PoolMode::Transaction, PoolMode::Auto] {
        let rig = rig(|config| config.global.pool_mode = mode);
        let (client, server) = begun(&rig);
        sets_time_zone(&client, &server);
        client.send([query("COMMIT"), query("INSERT")]);
        server.expect([query("COMMIT"), query("INSERT")]);
        server.send([complete("COMMIT"), ready('I')]);
        client.expect([complete("COMMIT"), ready('I')]);
        server.die();
        is_told(&client, "08007", [ready('I')]);
        client.send([query("SELECT 1")]);
        let next = rig.server(rig.servers() - 1);
        next.expect([query("SET TimeZone = 'Asia/Tokyo';")]);
    }
}

/// Weir asks what a pipeline has left when all of it is answered.
#[test]
pub(crate) fn a_pipeline_may_lose_settings() {
    let begun = vec![complete("BEGIN"), ready('T')];
    for (begun, code, status) in [(begun, "08006", 'E'), (vec![], "08007", 'I')] {
        let rig = rig(|config| config.global.pool_mode = PoolMode::Auto);
        let client = rig.client();
        let server = rig.server(0);
        let pipeline = [query("SET work_mem = '5MB'"), query("BEGIN"), query("INSERT")];
        client.send(pipeline.clone());
        server.expect(pipeline);
        let answered = [vec![complete("SET"), ready('I')], begun].concat();
        server.send(answered.clone());
        client.expect(answered);
        server.die();
        is_unverified(&client, code, status);
    }
}

/// The client is told that Weir had not found out what its session was.
#[track_caller]
fn is_unverified(client: &Client, code: &str, status: char) {
    let told = client.take();
    let text = show(&told).concat();
    assert!(text.contains(code) && text.contains("Lost with the session: unverified."), "{text}");
    assert!(told.ends_with(&ready(status)) && client.is_open());
}

/// Nor does Weir ask while a message is incomplete, of the server or of the client.
#[test]
fn settings_from_before_a_partial_message_may_be_lost() {
    let notice = notice("to all").split_at(3).0.to_vec();
    // Weir sends the beginning of a long text before it has all of it.
    let long = query(&format!("RESET ROLE /* {} */", "x".repeat(200_000)));
    let (head, rest) = long.split_at(100_000);
    let halves = (head.to_vec(), rest.to_vec());
    for (sent, partial, (head, rest)) in [
        ("of the server", notice, (Vec::new(), query("RESET ROLE"))),
        ("of the client", Vec::new(), halves),
    ] {
        let rig = rig(|config| config.global.pool_mode = PoolMode::Auto);
        let client = rig.client();
        let server = rig.server(0);
        client.send([query("SET ROLE weak"), head]);
        server.take();
        server.send([complete("SET"), ready('I'), partial]);
        client.expect([complete("SET"), ready('I')]);
        client.send([rest.clone()]);
        assert!(server.take().ends_with(&rest), "{sent}");
        server.die();
        is_unverified(&client, "08007", 'I');
    }
}

#[test]
fn a_commit_after_the_loss_is_refused_and_ends_the_transaction() {
    for commit in [vec![query("COMMIT")], vec![parse("", "COMMIT"), bind(""), execute(), sync()]] {
        let rig = rig(|_| {});
        let (client, server) = begun(&rig);
        server.die();
        client.send(commit);
        is_told(&client, "40001", [ready('I')]);
        client.send([query("SELECT 1")]);
        rig.server(rig.servers() - 1).answers("SELECT 1");
        client.expect([done("OK")]);
    }
}

#[test]
fn a_rollback_after_the_loss_succeeds() {
    let rig = rig(|_| {});
    let (client, server) = begun(&rig);
    server.die();
    client.send([query("ROLLBACK")]);
    let next = rig.server(rig.servers() - 1);
    next.answers_with_failure(FAIL);
    next.answers("ROLLBACK");
    client.expect([done("OK")]);
}

#[test]
pub(crate) fn a_request_in_a_transaction_is_told_at_once() {
    let rig = rig(|_| {});
    let (client, server) = begun(&rig);
    client.send([query("INSERT")]);
    server.send([columns("x"), row("1")]);
    server.die();
    client.expect_part([columns("x"), row("1")]);
    is_told(&client, "40001", [ready('E')]);
    is_in_a_failed_transaction(&rig, &client);
}

#[test]
pub(crate) fn a_commit_without_an_answer_is_unknown() {
    for request in ["COMMIT", "INSERT; COMMIT", "ROLLBACK; INSERT"] {
        let rig = rig(|_| {});
        let (client, server) = begun(&rig);
        client.send([query(request)]);
        server.die();
        is_told(&client, "08007", [ready('I')]);
        client.send([query("SELECT 1")]);
        rig.server(rig.servers() - 1).answers("SELECT 1");
    }
    let rig = rig(|_| {});
    let client = rig.client();
    client.send([query("INSERT")]);
    rig.server(0).die();
    is_told(&client, "08007", [ready('I')]);
}

#[test]
fn each_request_of_a_pipeline_is_answered() {
    let rig = rig(|_| {});
    let (client, server) = begun(&rig);
    client.send([query("INSERT"), query("COMMIT")]);
    server.die();
    let got = client.take();
    let said: Vec<_> = show(&got);
    assert_eq!(said.iter().filter(|one| one.contains("08007")).count(), 2, "{said:?}");
    assert!(got.ends_with(&ready('I')) && client.is_open());
}

#[test]
fn the_rest_of_a_batch_is_dropped_up_to_its_sync() {
    let rig = rig(|_| {});
    let (client, server) = begun(&rig);
    client.send([parse("", "SELECT 1"), bind(""), execute(), flush()]);
    server.die();
    is_told(&client, "40001", []);
    client.send([bind(""), execute()]);
    client.expect([]);
    client.send([sync()]);
    client.expect([ready('E')]);
    is_in_a_failed_transaction(&rig, &client);
}

#[test]
fn a_batch_that_has_failed_before_is_not_told_again() {
    let rig = rig(|_| {});
    let (client, server) = begun(&rig);
    client.send([parse("", "NONSENSE"), flush()]);
    server.send([error("42601", "syntax error")]);
    client.expect([error("42601", "syntax error")]);
    server.die();
    client.send([execute(), sync()]);
    client.expect([ready('E')]);
    is_in_a_failed_transaction(&rig, &client);
}

#[test]
fn statements_of_the_client_stay() {
    let rig = rig(|_| {});
    let client = rig.client();
    client.send([parse("a", "select 1"), sync()]);
    rig.server(0).expect([parse("weir_1", "select 1"), sync()]);
    rig.server(0).send([parsed(), ready('I')]);
    client.expect([parsed(), ready('I')]);
    client.send([bind("a"), execute(), sync()]);
    rig.server(0).die();
    is_told(&client, "08007", [ready('I')]);
    client.send([bind("a"), execute(), sync()]);
    rig.server(1).expect([parse("weir_1", "select 1"), bind("weir_1"), execute(), sync()]);
}

#[test]
fn in_the_middle_of_a_message_the_connection_is_closed() {
    let rig = rig(|_| {});
    let (client, server) = begun(&rig);
    client.send([query("SELECT 1")]);
    server.send([row("halved")[..8].to_vec()]);
    server.die();
    client.expect([row("halved")[..8].to_vec()]);
    assert!(!client.is_open());
    // Nobody knows whether a server would have read this Sync within the copy or behind it.
    let (client, server) = begun(&rig);
    client.send([query("COPY t FROM STDIN")]);
    server.send([copy_in()]);
    client.expect([copy_in()]);
    client.send([copy_data("1"), sync()]);
    server.die();
    client.expect_lost();
}

#[test]
pub(crate) fn the_rest_of_a_lost_copy_is_dropped() {
    let copy = "COPY t FROM STDIN";
    let copying = |client: &Client, server: &Server| {
        client.send([query(copy)]);
        server.send([copy_in()]);
        client.expect([copy_in()]);
        client.send([copy_data("1")]);
    };
    let rig = rig(|_| {});
    let (client, server) = begun(&rig);
    copying(&client, &server);
    // Half of the data has arrived.
    let data = copy_data("2");
    client.send([data[..6].to_vec()]);
    server.die();
    is_told(&client, "40001", [ready('E')]);
    client.send([data[6..].to_vec(), copy_data("3"), copy_done()]);
    client.expect([]);
    is_in_a_failed_transaction(&rig, &client);

    let client = rig.client();
    client.send([query(copy)]);
    let server = rig.server(rig.servers() - 1);
    server.expect([query(copy)]);
    server.send([copy_in()]);
    client.expect([copy_in()]);
    server.die();
    is_told(&client, "08007", [ready('I')]);
    let opened = rig.servers();
    client.send([copy_data("3"), copy_fail("the server says so")]);
    client.expect([]);
    assert_eq!(rig.servers(), opened, "it needs no server");
    client.send([query("SELECT 1")]);
    rig.server(rig.servers() - 1).answers("SELECT 1");
    client.expect([done("OK")]);
}

#[test]
fn the_rows_of_a_lost_copy_end_with_an_error() {
    let rig = rig(|_| {});
    let client = rig.client();
    client.send([query("COPY t TO STDOUT")]);
    let server = rig.server(rig.servers() - 1);
    server.expect([query("COPY t TO STDOUT")]);
    server.send([copy_out(), copy_data("1")]);
    server.die();
    client.expect_part([copy_out(), copy_data("1")]);
    is_told(&client, "08007", [ready('I')]);
}

#[test]
fn a_copy_in_a_batch_fails_up_to_its_sync() {
    let rig = rig(|_| {});
    let (client, server) = begun(&rig);
    client.send([parse("", "COPY t FROM STDIN"), bind(""), execute(), flush()]);
    server.send([parsed(), bound(), copy_in()]);
    client.expect([parsed(), bound(), copy_in()]);
    client.send([copy_data("1")]);
    server.die();
    is_told(&client, "40001", []);
    client.send([copy_data("2"), copy_done(), sync()]);
    client.expect([ready('E')]);
    is_in_a_failed_transaction(&rig, &client);
}

#[test]
fn half_a_request_is_dropped() {
    let rig = rig(|_| {});
    let (client, server) = begun(&rig);
    let request = query("INSERT INTO t");
    client.send([request[..9].to_vec()]);
    server.die();
    is_told(&client, "08007", [ready('I')]);
    client.send([request[9..].to_vec(), query("SELECT 1")]);
    rig.server(rig.servers() - 1).answers("SELECT 1");
    client.expect([done("OK")]);
}

#[test]
fn session_mode_and_pools_without_a_cluster_close_the_connection() {
    let rig = rig(|config| config.global.pool_mode = PoolMode::Session);
    let (client, server) = begun(&rig);
    server.die();
    client.expect_lost();
    let rig = Rig::transaction();
    let (client, server) = begun(&rig);
    server.die();
    client.expect_lost();
}

#[test]
fn the_next_server_may_be_lost_as_well() {
    let rig = rig(|_| {});
    let (client, server) = begun(&rig);
    client.send([query("INSERT")]);
    server.die();
    is_told(&client, "40001", [ready('E')]);
    client.send([query("ROLLBACK")]);
    let next = rig.server(rig.servers() - 1);
    next.expect([query(FAIL)]);
    next.die();
    client.expect([]);
    let next = rig.server(rig.servers() - 1);
    next.answers_with_failure(FAIL);
    next.answers("ROLLBACK");
    client.expect([done("OK")]);
}

/// Weir may not know yet that the standby was promoted, and that it has committed.
#[test]
pub(crate) fn a_commit_on_a_lost_standby_is_unknown() {
    let rig = Rig::new(clustered).routed(|_| Place::Reader(NodeId(0)));
    let client = rig.client();
    client.send([query("/* weir: standby */ BEGIN")]);
    let standby = rig.server(rig.servers() - 1);
    standby.expect([query("/* weir: standby */ BEGIN")]);
    standby.send([complete("BEGIN"), ready('T')]);
    client.expect([complete("BEGIN"), ready('T')]);
    client.send([query("COMMIT")]);
    standby.expect([query("COMMIT")]);
    standby.die();
    is_told(&client, "08007", [ready('I')]);
    client.send([query("SELECT 1")]);
    let standby = rig.server(rig.servers() - 1);
    standby.expect([query("SELECT 1")]);
    standby.send([columns("x"), row("1")]);
    client.expect([columns("x"), row("1")]);
    standby.die();
    is_told(&client, "08007", [ready('I')]);
}

/// A portal stays until the transaction ends.
#[test]
pub(crate) fn a_bound_commit_counts() {
    let rig = rig(|_| {});
    let (client, server) = begun(&rig);
    client.send([parse("", "COMMIT"), bind(""), sync()]);
    server.expect([parse("", "COMMIT"), bind(""), sync()]);
    server.send([parsed(), bound(), ready('T')]);
    client.expect([parsed(), bound(), ready('T')]);
    client.send([execute(), sync()]);
    server.expect([execute(), sync()]);
    server.die();
    is_told(&client, "08007", [ready('I')]);
}

#[test]
fn a_client_that_listened_on_the_lost_server_is_warned() {
    let rig = rig(|config| config.global.pool_mode = PoolMode::Auto);
    let client = rig.client();
    let server = rig.server(0);
    listen(&client, &server);
    let listener = rig.server(1);
    server.die();
    client.expect([]);
    begin(&listener, "LISTEN \"news\";");
    client.expect([warning("01000", GAP)]);
    listener.send([told(5, "news", "1")]);
    client.expect([told(5, "news", "1")]);
}

/// It may send nothing more, and no notification would reach it.
#[test]
pub(crate) fn a_client_of_another_encoding_is_not_left_deaf() {
    let rig = rig(|config| config.global.pool_mode = PoolMode::Auto);
    let (client, server) = of_another_encoding(&rig);
    server.die();
    assert!(!client.is_open());
}

/// The last seat of a limit is not for a listener.
#[test]
fn a_client_without_a_listener_is_warned_and_listens_on_its_next_server() {
    let rig = rig(|config| {
        config.global.pool_mode = PoolMode::Auto;
        config.global.max_db_connections = 1;
    });
    let client = rig.client();
    let server = rig.server(0);
    listen(&client, &server);
    server.die();
    client.expect([warning("01000", DEAF)]);
    client.send([query("SELECT 1")]);
    let next = rig.server(rig.servers() - 1);
    next.answers("LISTEN \"news\";");
    next.expect([query("SELECT 1")]);
    next.send([told(5, "news", "1"), done("SELECT")]);
    client.expect([told(5, "news", "1"), done("SELECT")]);
}

/// A client whose channel is the listener's, with its server.
fn hearing() -> (Rig, Client, Server, Server) {
    let rig = rig(|config| {
        config.global.pool_mode = PoolMode::Auto;
        config.global.default_pool_size = 1;
    });
    let (client, server, listener, _) = listening(&rig, 0);
    (rig, client, server, listener)
}

#[test]
pub(crate) fn a_listening_client_still_hears() {
    let (_rig, client, server, listener) = hearing();
    locks(&client, &server);
    server.die();
    listener.send([told(5, "news", "1")]);
    client.expect([told(5, "news", "1")]);
    client.send([query("SELECT 1")]);
    is_told(&client, "08006", [ready('I')]);
}

#[test]
pub(crate) fn a_lost_transaction_hears_nothing() {
    let (rig, client, server, listener) = hearing();
    begins(&client, &server);
    client.send([query("SELECT 1")]);
    server.die();
    is_told(&client, "40001", [ready('E')]);
    rig.set_automatic(false);
    client.send([query("ROLLBACK")]);
    listener.send([told(5, "news", "1")]);
    client.expect([]);
}

/// The next server is lost, too, and gets nothing of the request. The incomplete message at its end
/// is not lost.
#[test]
pub(crate) fn part_of_a_message_is_kept_when_two_servers_are_lost() {
    let rig = rig(|_| {});
    let clients = [rig.client(), rig.client()];
    clients.iter().for_each(|client| client.send([query("SELECT 1")]));
    let servers = [rig.server(0), rig.server(1)];
    for (client, server) in clients.iter().zip(&servers) {
        server.answers("SELECT 1");
        client.expect([done("OK")]);
        server.break_silently();
    }
    let last = sync();
    let (head, rest) = last.split_at(3);
    clients[0].send([[parse("", "INSERT"), bind(""), execute(), head.to_vec()].concat()]);
    servers.iter().filter(|server| server.is_open()).for_each(Server::die);
    is_told(&clients[0], "40001", []);
    clients[0].send([rest.to_vec()]);
    clients[0].expect([ready('I')]);
}

/// The first statement was prepared again before its server was lost. That counts for this request
/// alone.
#[test]
pub(crate) fn the_next_statement_is_asked_about() {
    let rig = rig(|config| config.global.pool_mode = PoolMode::Auto);
    let (client, server) = (rig.client(), rig.server(0));
    client.send([parse("mine", "select"), describe("mine"), sync()]);
    server.take();
    server.send([parsed(), parameters(), columns("a"), ready('I')]);
    client.take();
    let use_it = || [bind("mine"), execute(), sync()];
    client.send(use_it());
    server.take();
    let text = "cached plan must not change result type";
    server.send([error_of("0A000", text, "RevalidateCachedQuery"), ready('I')]);
    server.take();
    server.send([closed(), parsed(), parameters(), columns("a"), ready('I')]);
    server.expect([bind("weir_1"), execute(), sync()]);
    server.die();
    is_told(&client, "08007", [ready('I')]);
    client.send(use_it());
    let next = rig.server(rig.servers() - 1);
    next.expect([close("weir_1"), parse("weir_1", "select"), describe("weir_1"), sync()]);
}
