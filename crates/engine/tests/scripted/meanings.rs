//! A statement has to be prepared on a server that has not got it, and by then its text means
//! something else to its client: a literal is read by another time zone, or the client has a temporary
//! table there. Nobody else may find that.

use config::PoolMode;

use crate::carried::{auto, tells};
use crate::messages::*;
use crate::rig::{Client, Rig, Server};

const TEXT: &str = "SELECT * FROM t WHERE at < '2024-05-01'";
const TOKYO: &str = "SET TimeZone = 'Asia/Tokyo'";

/// Two clients with one statement, on a server that a stranger has now.
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

/// The server has to prepare it, under that name.
#[track_caller]
fn prepares(server: &Server, name: &str, status: char) {
    server.expect([parse(name, TEXT), bind(name), execute(), sync()]);
    server.send([parsed(), bound(), complete("SELECT 0"), ready(status)]);
}

/// The client sets its time zone for good, on this server, in auto mode.
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
fn behind_a_change_in_a_transaction() {
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
        // Once is enough.
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
        // What the client means by it is what it always was.
        client.send(use_it());
        server.expect([bind("weir_1"), execute(), sync()]);
    }
}

#[test]
fn behind_a_change_that_lasts() {
    let (rig, [client, other]) = stage(PoolMode::Auto);
    let server = goes_to_tokyo(&rig, &client);
    client.send(use_it());
    prepares(&server, "weir_2", 'I');
    // Whoever means the same shares it.
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

/// A client in Tokyo that knows the columns of its statement, which it has prepared elsewhere.
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
fn what_is_asked_about_first() {
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
fn what_postgresql_has_refused() {
    let rig = auto(|_| {});
    let (client, server) = moved(&rig);
    client.send(use_it());
    server.expect([bind("weir_1"), execute(), sync()]);
    let text = "cached plan must not change result type";
    server.send([error_of("0A000", text, "RevalidateCachedQuery"), ready('I')]);
    confirms(&server, "weir_2");
    client.expect([bound(), complete("SELECT 0"), ready('I')]);
    // Its own is prepared anew by who means that.
    let other = rig.client();
    other.send([parse("mine", TEXT), bind("mine"), sync()]);
    server.expect([query("RESET TimeZone;")]);
    server.send([zone("UTC"), done("SET")]);
    server.expect([close("weir_1"), parse("weir_1", TEXT), bind("weir_1"), sync()]);
}

/// The client was told the columns by the second server, and has prepared the statement on the first,
/// where nobody has described it. Then it goes to Tokyo, on the first.
fn told_elsewhere() -> (Rig, Client, Server) {
    told_elsewhere_before(TOKYO, Some(zone("Asia/Tokyo")), ("TimeZone", "Asia/Tokyo"))
}

/// The same with another setting, what is reported of it, and what is left.
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

/// What the server has means what the client meant by it: it only has to tell what it returns.
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
fn what_the_server_has_of_it_is_asked_about_once() {
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

/// What a server's copy returns is not handed over.
#[test]
fn what_the_next_process_does_not_know_of_it_is_asked_about_once() {
    let rig = auto(|_| {});
    let (client, server) = moved(&rig);
    rig.hand_over();
    is_asked_about_once(&client, &server);
}

/// Where that is out of date, what the client means now is prepared.
#[test]
fn what_is_out_of_date_there_is_replaced_by_what_the_client_means_now() {
    let (_rig, client, server) = told_elsewhere();
    client.send(use_it());
    server.expect([describe("weir_1"), sync()]);
    let text = "cached plan must not change result type";
    server.send([parameters(), error_of("0A000", text, "RevalidateCachedQuery"), ready('I')]);
    confirms(&server, "weir_3");
    client.expect([bound(), complete("SELECT 0"), ready('I')]);
}

/// A temporary table hides another one of its name from the client that has it.
const CREATE: &str = "CREATE TEMP TABLE t AS SELECT '' AS at";

#[test]
fn what_finds_a_temporary_table_of_the_clients() {
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
            server.send([row_of(&[Some("t"), None, None]), done("SELECT")]);
            // Both what it has prepared before and what it prepares now.
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
