//! A server lacks a statement, and the client's text has another meaning by now: the client has
//! changed its time zone, or has a temporary table on this server. No other client may get that
//! meaning.

use config::PoolMode;

use crate::carried::{auto, tells};
use crate::messages::*;
use crate::rig::{Client, Rig, Server};

const TEXT: &str = "SELECT * FROM t WHERE at < '2024-05-01'";
const TOKYO: &str = "SET TimeZone = 'Asia/Tokyo'";

/// Two clients with one statement. Their server belongs to a third client now.
fn stage(mode: PoolMode) -> (Rig, [Client; 2]) {
    let rig = auto(|config| {
        config.global.pool_mode = mode;
        config.global.default_pool_size = 3;
    });
    let clients = [rig.client(), rig.client()];
    let first = rig.server(0);
    clients[0].send([parse("mine", TEXT), describe("mine"), sync()]);
    first.expect([parse("weir_1", TEXT), describe("weir_1"), sync()]);
    first.send([parsed(), parameters(), no_data(), ready('I')]);
    clients[1].send([parse("mine", TEXT), sync()]);
    first.expect([sync()]);
    first.send([ready('I')]);
    rig.client().send([query("BEGIN")]);
    first.send([complete("BEGIN"), ready('T')]);
    clients.iter().for_each(|client| drop(client.take()));
    (rig, clients)
}

fn zone(name: &str) -> Message {
    status("TimeZone", name)
}

fn use_it() -> [Message; 3] {
    [bind("mine"), execute(), sync()]
}

/// The server gets a Parse with that name.
#[track_caller]
fn prepares(server: &Server, name: &str, status: char) {
    server.expect([parse(name, TEXT), bind(name), execute(), sync()]);
    server.send([parsed(), bound(), complete("SELECT 0"), ready(status)]);
}

/// Auto mode: the client sets its time zone on this server.
#[track_caller]
fn goes_to_tokyo(rig: &Rig, client: &Client) -> Server {
    client.send([query(TOKYO)]);
    let server = rig.server(1);
    server.expect([query(TOKYO)]);
    server.send([zone("Asia/Tokyo"), done("SET")]);
    tells(&server, &[("TimeZone", "Asia/Tokyo")]);
    server
}

#[test]
fn after_a_change_in_a_transaction() {
    for (mode, change) in [
        (PoolMode::Auto, "SET LOCAL TimeZone = 'Asia/Tokyo'"),
        (PoolMode::Transaction, "SET LOCAL TimeZone = 'Asia/Tokyo'"),
        (PoolMode::Auto, "SET LOCAL search_path = a"),
    ] {
        let (rig, [client, other]) = stage(mode);
        client.send([query("BEGIN")]);
        let server = rig.server(1);
        server.expect([query("BEGIN")]);
        server.send([complete("BEGIN"), ready('T')]);
        client.send([query(change)]);
        server.expect([query(change)]);
        let reported = change.contains("Zone").then(|| zone("Asia/Tokyo"));
        server.send(reported.into_iter().chain([complete("SET"), ready('T')]));
        client.send(use_it());
        prepares(&server, "weir_2", 'T');
        // Weir asks only once.
        client.send(use_it());
        server.expect([bind("weir_2"), execute(), sync()]);
        server.send([bound(), complete("SELECT 0"), ready('T')]);
        client.send([query("COMMIT")]);
        server.expect([query("COMMIT")]);
        let reported = change.contains("Zone").then(|| zone("UTC"));
        server.send(reported.into_iter().chain([complete("COMMIT"), ready('I')]));
        assert!(server.is_parked());
        other.send(use_it());
        prepares(&server, "weir_1", 'I');
        // The meaning of the client's statement has not changed.
        client.send(use_it());
        server.expect([bind("weir_1"), execute(), sync()]);
    }
}

#[test]
fn after_a_change_that_lasts() {
    let (rig, [client, other]) = stage(PoolMode::Auto);
    let server = goes_to_tokyo(&rig, &client);
    client.send(use_it());
    prepares(&server, "weir_2", 'I');
    // A client with the same meaning shares the statement.
    client.send([parse("its", TEXT), bind("its"), sync()]);
    server.expect([bind("weir_2"), sync()]);
    server.send([bound(), ready('I')]);
    other.send(use_it());
    server.expect([query("RESET TimeZone;")]);
    server.send([zone("UTC"), done("SET")]);
    prepares(&server, "weir_1", 'I');
}

#[test]
fn a_name_that_is_taken() {
    let (rig, [client, other]) = stage(PoolMode::Auto);
    let server = goes_to_tokyo(&rig, &client);
    client.take();
    client.send([parse("mine", "other"), sync()]);
    server.expect([parse("weir_2", TEXT), parse("weir_2", "other"), sync()]);
    let taken =
        |name: &str| error("42P05", &format!("prepared statement \"{name}\" already exists"));
    server.send([parsed(), taken("weir_2"), ready('I')]);
    client.expect([taken("mine"), ready('I')]);
    other.send(use_it());
    server.expect([query("RESET TimeZone;")]);
    server.send([zone("UTC"), done("SET")]);
    prepares(&server, "weir_1", 'I');
}

/// A client in time zone Tokyo that knows the columns of its statement. It prepared it elsewhere.
fn moved(rig: &Rig) -> (Client, Server) {
    let (client, server) = (rig.client(), rig.server(0));
    client.send([parse("mine", TEXT), describe("mine"), sync()]);
    server.take();
    server.send([parsed(), parameters(), columns("a"), ready('I')]);
    client.send([query(TOKYO)]);
    server.expect([query(TOKYO)]);
    server.send([zone("Asia/Tokyo"), done("SET")]);
    tells(&server, &[("TimeZone", "Asia/Tokyo")]);
    client.take();
    (client, server)
}

fn confirms(server: &Server, name: &str) {
    server.expect([close(name), parse(name, TEXT), describe(name), sync()]);
    server.send([closed(), parsed(), parameters(), columns("a"), ready('I')]);
    server.expect([bind(name), execute(), sync()]);
    server.send([bound(), complete("SELECT 0"), ready('I')]);
}

#[test]
fn with_a_question_before_its_use() {
    let rig = auto(|config| config.global.default_pool_size = 2);
    let (client, first) = moved(&rig);
    rig.client_with(0, &[("TimeZone", "Asia/Tokyo")]).send([query("BEGIN")]);
    first.send([complete("BEGIN"), ready('T')]);
    client.send(use_it());
    let second = rig.server(1);
    second.expect([query("SET TimeZone = 'Asia/Tokyo';")]);
    second.send([zone("Asia/Tokyo"), done("SET")]);
    confirms(&second, "weir_2");
    assert!(second.is_parked());
}

#[test]
fn after_postgresqls_refusal() {
    let rig = auto(|_| {});
    let (client, server) = moved(&rig);
    client.send(use_it());
    server.expect([bind("weir_1"), execute(), sync()]);
    let text = "cached plan must not change result type";
    server.send([error_of("0A000", text, "RevalidateCachedQuery"), ready('I')]);
    confirms(&server, "weir_2");
    client.expect([bound(), complete("SELECT 0"), ready('I')]);
    // A client with that meaning gets the statement prepared again.
    let other = rig.client();
    other.send([parse("mine", TEXT), bind("mine"), sync()]);
    server.expect([query("RESET TimeZone;")]);
    server.send([zone("UTC"), done("SET")]);
    server.expect([close("weir_1"), parse("weir_1", TEXT), bind("weir_1"), sync()]);
}

/// The first server prepared the statement but never described it. The second server told the
/// client the columns. Then the client sets time zone Tokyo on the first server.
fn told_elsewhere() -> (Rig, Client, Server) {
    told_elsewhere_before(TOKYO, Some(zone("Asia/Tokyo")), ("TimeZone", "Asia/Tokyo"))
}

/// Runs [`told_elsewhere`] with another setting, the report of it, and the probe's answer.
fn told_elsewhere_before(
    sets: &str,
    reported: Option<Message>,
    left: (&str, &str),
) -> (Rig, Client, Server) {
    let rig = auto(|config| config.global.default_pool_size = 2);
    let (client, other, first) = (rig.client(), rig.client(), rig.server(0));
    client.send([parse("mine", TEXT), sync()]);
    first.expect([parse("weir_1", TEXT), sync()]);
    first.send([parsed(), ready('I')]);
    other.send([query("BEGIN")]);
    first.expect([query("BEGIN")]);
    first.send([complete("BEGIN"), ready('T')]);
    client.send([bind("mine"), describe_portal(), execute(), sync()]);
    let second = rig.server(1);
    second.expect([parse("weir_1", TEXT), bind("weir_1"), describe_portal(), execute(), sync()]);
    second.send([parsed(), bound(), columns("a"), complete("SELECT 0"), ready('I')]);
    other.send([query("ROLLBACK")]);
    first.answers("ROLLBACK");
    client.send([query(sets)]);
    first.expect([query(sets)]);
    first.send(reported.into_iter().chain([done("SET")]));
    tells(&first, &[left]);
    client.take();
    (rig, client, first)
}

/// The server's copy has the client's original meaning, so Weir only asks what it returns.
#[track_caller]
fn is_asked_about_once(client: &Client, server: &Server) {
    client.send(use_it());
    server.expect([describe("weir_1"), sync()]);
    server.send([parameters(), columns("a"), ready('I')]);
    for _ in 0..2 {
        server.expect([bind("weir_1"), execute(), sync()]);
        server.send([bound(), complete("SELECT 0"), ready('I')]);
        client.expect([bound(), complete("SELECT 0"), ready('I')]);
        assert!(server.is_parked());
        client.send(use_it());
    }
}

#[test]
fn the_servers_copy_is_asked_about_once() {
    let german = status("DateStyle", "German, DMY");
    for (sets, reported, left) in [
        (TOKYO, Some(zone("Asia/Tokyo")), ("TimeZone", "Asia/Tokyo")),
        ("SET DateStyle = 'German'", Some(german), ("DateStyle", "German, DMY")),
        ("SET search_path = own", None, ("search_path", "own")),
        ("SET ROLE bob", None, ("role", "bob")),
    ] {
        let (_rig, client, server) = told_elsewhere_before(sets, reported, left);
        is_asked_about_once(&client, &server);
    }
}

/// An online restart does not hand over what a server's copy returns.
#[test]
fn the_next_process_asks_once_about_an_unknown_shape() {
    let rig = auto(|_| {});
    let (client, server) = moved(&rig);
    rig.hand_over();
    is_asked_about_once(&client, &server);
}

/// If the copy is outdated, Weir prepares the client's current meaning.
#[test]
fn an_outdated_copy_is_replaced_by_the_clients_current_meaning() {
    let (_rig, client, server) = told_elsewhere();
    client.send(use_it());
    server.expect([describe("weir_1"), sync()]);
    let text = "cached plan must not change result type";
    server.send([parameters(), error_of("0A000", text, "RevalidateCachedQuery"), ready('I')]);
    confirms(&server, "weir_3");
    client.expect([bound(), complete("SELECT 0"), ready('I')]);
}

/// For this client, the temporary table hides a table of the same name.
const CREATE: &str = "CREATE TEMP TABLE t AS SELECT '' AS at";

#[test]
fn a_statement_that_uses_the_clients_temporary_table_is_its_own() {
    for drops in [false, true] {
        let (rig, [client, other]) = stage(PoolMode::Auto);
        client.send([query("BEGIN")]);
        let server = rig.server(1);
        server.expect([query("BEGIN")]);
        server.send([complete("BEGIN"), ready('T')]);
        client.send([query(CREATE)]);
        server.expect([query(CREATE)]);
        server.send([complete("CREATE TABLE"), ready('T')]);
        if drops {
            client.send([parse("its", TEXT), sync()]);
            server.expect([parse("weir_2", TEXT), sync()]);
            server.send([parsed(), ready('T')]);
            other.send([parse("its", TEXT), sync()]);
            rig.server(2).expect([parse("weir_3", TEXT), sync()]);
        }
        client.send([query("COMMIT")]);
        server.answers("COMMIT");
        server.take();
        if !drops {
            server.send([row("t"), done("SELECT")]);
            // This covers statements from before and from now.
            client.send(use_it());
            prepares(&server, "weir_2", 'I');
            client.send([parse("its", TEXT), sync()]);
            server.expect([parse("weir_3", TEXT), sync()]);
            server.send([parsed(), ready('I')]);
            client.send([query("DROP TABLE t")]);
            server.answers("DROP TABLE t");
            server.take();
        }
        server.send([done("SELECT")]);
        assert!(server.is_parked());
        if !drops {
            other.send(use_it());
            prepares(&server, "weir_1", 'I');
        }
    }
}

/// PostgreSQL reads such a literal as the time of the Parse.
#[test]
pub(crate) fn a_moment_is_each_clients_own() {
    for text in ["SELECT 'now'::timestamptz", "SELECT E'\\x6eow'::timestamptz"] {
        let rig = auto(|_| {});
        for name in ["weir_1", "weir_2"] {
            let client = rig.client();
            client.send([parse("mine", text), sync()]);
            rig.server(0).expect([parse(name, text), sync()]);
            rig.server(0).send([parsed(), ready('I')]);
            client.expect([parsed(), ready('I')]);
        }
    }
}
