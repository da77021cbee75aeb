//! The server's default changes because its configuration was reloaded. PostgreSQL reports the new
//! value in the next transaction of any client.

use crate::carried::{auto, tells};
use crate::messages::*;
use crate::rig::{Client, Rig, Server, server_welcome_with};

const ZONE: (&str, &str) = ("TimeZone", "UTC");

/// Runs a client's statement. Its answer reports the new default.
#[track_caller]
fn runs_at_reload(client: &Client, server: &Server, sql: &str, now: char) {
    client.send([query(sql)]);
    server.expect([query(sql)]);
    server.send([complete("OK"), status("TimeZone", "Europe/Berlin"), ready(now)]);
}

/// The client's own value is set once, before its next statement.
#[track_caller]
fn is_given_its_own(client: &Client, server: &Server) {
    assert!(server.is_parked());
    client.send([query("SELECT 2")]);
    server.expect([query("SET TimeZone = 'UTC';")]);
    server.send([complete("SET"), status("TimeZone", "UTC"), ready('I')]);
    for _ in 0..2 {
        server.answers("SELECT 2");
        client.expect([done("OK")]);
        client.send([query("SELECT 2")]);
    }
}

fn stage(given: &[(&str, &str)]) -> (Rig, Client, Server) {
    let rig = auto(|_| {});
    let client = rig.client_with(0, given);
    let server = rig.server(0);
    (rig, client, server)
}

#[test]
fn a_client_with_its_own_value_keeps_it() {
    let (_rig, client, server) = stage(&[ZONE]);
    runs_at_reload(&client, &server, "SELECT 1", 'I');
    client.expect([done("OK")]);
    is_given_its_own(&client, &server);
}

#[test]
fn a_client_that_set_the_existing_value_keeps_it() {
    let (_rig, client, server) = stage(&[]);
    client.send([query("SET TimeZone = 'UTC'")]);
    server.answers("SET TimeZone = 'UTC'");
    client.expect([done("OK")]);
    tells(&server, &[ZONE]);
    runs_at_reload(&client, &server, "SELECT 1", 'I');
    client.expect([done("OK")]);
    is_given_its_own(&client, &server);
}

/// A text in between may set the value.
#[test]
fn two_reloads_change_no_value() {
    let (_rig, client, server) = stage(&[ZONE]);
    runs_at_reload(&client, &server, "BEGIN", 'T');
    client.send([query("SELECT mine()")]);
    server.expect([query("SELECT mine()")]);
    server.send([complete("SELECT 1"), ready('T')]);
    client.take();
    client.send([query("COMMIT")]);
    server.expect([query("COMMIT")]);
    server.send([complete("COMMIT"), status("TimeZone", "Europe/Paris"), ready('I')]);
    tells(&server, &[]);
    client.take();
    is_given_its_own(&client, &server);
}

#[test]
fn a_client_without_its_own_value_follows() {
    for given in [&[][..], &[("DateStyle", "ISO, MDY")]] {
        let (_rig, client, server) = stage(given);
        runs_at_reload(&client, &server, "SELECT 1", 'I');
        client.expect([complete("OK"), status("TimeZone", "Europe/Berlin"), ready('I')]);
        client.send([query("SELECT 2")]);
        server.answers("SELECT 2");
    }
}

/// RESET also goes back to the new default.
#[test]
fn for_a_client_without_its_own_value_the_new_default_counts_from_login() {
    let (_rig, client, server) = stage(&[]);
    client.send([query("SET work_mem = '5MB'")]);
    server.answers("SET work_mem = '5MB'");
    tells(&server, &[]);
    runs_at_reload(&client, &server, "SELECT 1", 'I');
    client.send([query("RESET TimeZone")]);
    server.expect([query("RESET TimeZone")]);
    server.send([done("RESET")]);
    tells(&server, &[]);
    client.send([query("SELECT 2")]);
    server.answers("SELECT 2");
}

/// PostgreSQL answers `SET … TO DEFAULT` like any other SET.
#[test]
fn a_reset_goes_back_to_the_startup_packet_in_either_spelling() {
    for reset in ["RESET TimeZone", "SET TimeZone TO DEFAULT"] {
        let (_rig, client, server) = stage(&[("TimeZone", "Mars")]);
        client.send([query("SET TimeZone = 'Venus'")]);
        server.expect([query("SET TimeZone = 'Mars';")]);
        server.send([complete("SET"), status("TimeZone", "Mars"), ready('I')]);
        server.expect([query("SET TimeZone = 'Venus'")]);
        server.send([complete("SET"), status("TimeZone", "Venus"), ready('I')]);
        tells(&server, &[("TimeZone", "Venus")]);
        client.expect([complete("SET"), status("TimeZone", "Venus"), ready('I')]);
        client.send([query(reset)]);
        server.expect([query(reset)]);
        server.send([complete(&reset[..reset.find(' ').unwrap_or(0)]), status("TimeZone", "UTC")]);
        server.send([ready('I')]);
        tells(&server, &[]);
        client.send([query("SELECT 1")]);
        server.expect([query("SET TimeZone = 'Mars';")]);
    }
}

#[test]
fn other_settings_of_a_transaction_make_no_difference() {
    for (text, asks) in [("SET LOCAL app.tenant = '7'", false), ("SELECT st_x(a) FROM t", true)] {
        let (_rig, client, server) = stage(&[ZONE]);
        runs_at_reload(&client, &server, "BEGIN", 'T');
        client.expect([complete("OK"), ready('T')]);
        client.send([query(text)]);
        server.expect([query(text)]);
        server.send([complete("OK"), ready('T')]);
        client.send([query("COMMIT")]);
        server.answers("COMMIT");
        if asks {
            tells(&server, &[]);
        }
        client.take();
        is_given_its_own(&client, &server);
    }
    let (_rig, client, server) = stage(&[ZONE]);
    client.send([query("BEGIN"), query("SET LOCAL app.tenant = '7'")]);
    server.take();
    let reload = status("TimeZone", "Europe/Berlin");
    server.send([complete("BEGIN"), ready('T'), complete("SET"), reload, ready('T')]);
    client.send([query("COMMIT")]);
    server.answers("COMMIT");
    client.take();
    is_given_its_own(&client, &server);
}

/// A text that changes another parameter for its transaction does not hide the reload.
#[test]
fn also_where_a_transaction_changes_another_parameter() {
    for text in [None, Some("DECLARE c CURSOR WITH HOLD FOR SELECT 1")] {
        let (_rig, client, server) = stage(&[ZONE]);
        for sql in ["BEGIN"].into_iter().chain(text) {
            client.send([query(sql)]);
            server.expect([query(sql)]);
            server.send([complete("OK"), ready('T')]);
        }
        client.send([query("SET LOCAL DateStyle = 'German'")]);
        server.expect([query("SET LOCAL DateStyle = 'German'")]);
        let local = status("DateStyle", "German, DMY");
        server.send([complete("SET"), local, status("TimeZone", "Europe/Berlin"), ready('T')]);
        client.send([query("COMMIT")]);
        server.expect([query("COMMIT")]);
        server.send([complete("COMMIT"), status("DateStyle", "ISO, MDY"), ready('I')]);
        tells(&server, &[]);
        client.take();
        is_given_its_own(&client, &server);
    }
}

/// The transaction goes on in another process.
#[test]
pub(crate) fn a_restart_meanwhile_hides_no_reload() {
    let (rig, client, server) = stage(&[ZONE]);
    client.send([query("BEGIN"), query("SET LOCAL DateStyle = 'German'")]);
    server.take();
    let local = status("DateStyle", "German, DMY");
    let reload = status("TimeZone", "Europe/Berlin");
    server.send([complete("BEGIN"), ready('T'), complete("SET"), local, reload, ready('T')]);
    rig.hand_over();
    client.send([query("COMMIT")]);
    server.expect([query("COMMIT")]);
    let again = status("TimeZone", "Europe/Paris");
    server.send([complete("COMMIT"), status("DateStyle", "ISO, MDY"), again, ready('I')]);
    tells(&server, &[]);
    client.take();
    is_given_its_own(&client, &server);
}

/// The transaction ends, and the client has the value of its startup packet.
#[track_caller]
fn returns_to_mars(client: &Client, server: &Server) {
    client.send([query("COMMIT")]);
    server.answers("COMMIT");
    tells(server, &[]);
    client.send([query("SELECT 1")]);
    server.expect([query("SET TimeZone = 'Mars';")]);
}

/// The server does not know the client's startup packet, and the other process has read the text.
#[test]
pub(crate) fn a_reset_before_a_restart_goes_back() {
    for changes in [true, false] {
        let (rig, client, server) = stage(&[("TimeZone", "Mars")]);
        client.send([query("SET TimeZone = 'UTC'")]);
        server.expect([query("SET TimeZone = 'Mars';")]);
        server.send([complete("SET"), status("TimeZone", "Mars"), ready('I')]);
        server.expect([query("SET TimeZone = 'UTC'")]);
        server.send([complete("SET"), status("TimeZone", "UTC"), ready('I')]);
        tells(&server, &[ZONE]);
        client.take();
        if changes {
            client.send([query("SET TimeZone = 'Venus'")]);
            server.expect([query("SET TimeZone = 'Venus'")]);
            server.send([complete("SET"), status("TimeZone", "Venus"), ready('I')]);
            tells(&server, &[("TimeZone", "Venus")]);
            client.take();
        }
        client.send([query("BEGIN"), query("RESET TimeZone")]);
        server.take();
        server.send([complete("BEGIN"), ready('T'), complete("RESET")]);
        if changes {
            server.send([status("TimeZone", "UTC")]);
        }
        server.send([ready('T')]);
        rig.hand_over();
        returns_to_mars(&client, &server);
    }
}

/// The other process has read nothing of it.
#[test]
pub(crate) fn a_reset_after_a_restart_goes_back() {
    let (rig, client, server) = stage(&[("TimeZone", "Mars")]);
    client.send([query("BEGIN")]);
    server.expect([query("SET TimeZone = 'Mars';")]);
    server.send([complete("SET"), status("TimeZone", "Mars"), ready('I')]);
    server.expect([query("BEGIN")]);
    server.send([complete("BEGIN"), ready('T')]);
    rig.hand_over();
    client.send([query("SELECT my_reset()")]);
    server.expect([query("SELECT my_reset()")]);
    server.send([complete("SELECT 1"), status("TimeZone", "UTC"), ready('T')]);
    returns_to_mars(&client, &server);
}

/// Weir does not know the statement, which might reset anything. PostgreSQL has not run it.
#[test]
fn a_batch_that_fails_resets_nothing() {
    let rig = auto(|config| config.global.default_pool_size = 2);
    let (client, other, first) = (rig.client(), rig.client(), rig.server(0));
    runs_at_reload(&client, &first, "SELECT 1", 'I');
    client.send([query("SET TimeZone = 'UTC'")]);
    first.expect([query("SET TimeZone = 'UTC'")]);
    first.send([complete("SET"), status("TimeZone", "UTC"), ready('I')]);
    tells(&first, &[ZONE]);
    other.send([query("BEGIN")]);
    first.expect([query("BEGIN")]);
    first.send([complete("BEGIN"), ready('T')]);
    client.send([bind("mine"), execute(), sync()]);
    // This server has not noticed the reload yet.
    let second = rig.server(1);
    second.expect([bind("mine"), execute(), sync()]);
    let unknown = error("26000", "prepared statement \"mine\" does not exist");
    second.send([unknown, status("TimeZone", "Europe/Berlin"), ready('I')]);
    tells(&second, &[]);
    client.take();
    is_given_its_own(&client, &second);
}

#[test]
fn also_where_it_is_noticed_while_settings_are_applied() {
    let (rig, other, server) = stage(&[]);
    let client = rig.client_with(0, &[ZONE, ("DateStyle", "German")]);
    client.send([query("SELECT 1")]);
    server.expect([query("SET DateStyle = 'German';")]);
    let reload = status("TimeZone", "Europe/Berlin");
    server.send([complete("SET"), status("DateStyle", "German, DMY"), reload, ready('I')]);
    server.expect([query("SET TimeZone = 'UTC';")]);
    server.send([complete("SET"), status("TimeZone", "UTC"), ready('I')]);
    server.answers("SELECT 1");
    drop((other, client));
}

#[test]
fn also_after_an_online_restart() {
    for given in [&[][..], &[ZONE]] {
        let (rig, client, server) = stage(given);
        rig.hand_over();
        runs_at_reload(&client, &server, "SELECT 1", 'I');
        if given.is_empty() {
            client.expect([complete("OK"), status("TimeZone", "Europe/Berlin"), ready('I')]);
            client.send([query("SELECT 2")]);
            server.answers("SELECT 2");
        } else {
            client.expect([done("OK")]);
            is_given_its_own(&client, &server);
        }
    }
}

#[test]
fn also_on_a_server_that_it_keeps() {
    let (_rig, client, server) = stage(&[ZONE]);
    client.send([query("CREATE TEMP TABLE mine (n int)")]);
    server.answers("CREATE TEMP TABLE mine (n int)");
    let has_table = || {
        assert!(String::from_utf8_lossy(&server.take()).contains("found (kind"));
        server.send([row("t"), done("SELECT")]);
    };
    has_table();
    runs_at_reload(&client, &server, "SELECT 1", 'I');
    has_table();
    server.expect([query("SET TimeZone = 'UTC';")]);
    server.send([complete("SET"), status("TimeZone", "UTC"), ready('I')]);
    client.send([query("SELECT 2")]);
    server.answers("SELECT 2");
    assert!(!server.is_parked());
}

/// Texts are not examined in this mode.
#[test]
fn in_transaction_mode_a_reported_value_is_the_clients_own() {
    let rig = Rig::of_size(1);
    let client = rig.client_with(0, &[ZONE]);
    let server = rig.server(0);
    client.send([query("SET TimeZone = 'Europe/Berlin'")]);
    server.take();
    server.send([complete("SET"), status("TimeZone", "Europe/Berlin"), ready('I')]);
    client.expect([complete("SET"), status("TimeZone", "Europe/Berlin"), ready('I')]);
    client.send([query("SELECT 1")]);
    server.answers("SELECT 1");
}

/// A client of a server that sends state reports.
fn reporting(given: &[(&str, &str)]) -> (Rig, Client, Server) {
    let rig = auto(|_| {}).manual();
    let client = rig.connect();
    client.say_hello(given);
    let server = rig.server(0);
    server.connect();
    server.take();
    server.send([server_welcome_with(0, &[("weir.state", "v1;w:1.0")])]);
    client.expect_welcome(&[]);
    (rig, client, server)
}

#[test]
fn a_server_that_reports_tells_a_changed_default_from_a_value_of_the_client() {
    for is_given in [false, true] {
        let (_rig, client, server) = reporting(if is_given { &[ZONE] } else { &[] });
        client.send([query("SELECT 1")]);
        server.expect([query("SELECT 1")]);
        // The configuration was reloaded, and the session has set nothing.
        server.send([complete("OK"), status("TimeZone", "Asia/Tokyo"), ready('I')]);
        client.take();
        assert!(server.is_parked());
        client.send([query("SELECT 2")]);
        if is_given {
            server.expect([query("SET TimeZone = 'UTC';")]);
            server.send([complete("SET"), status("TimeZone", "UTC"), ready('I')]);
        }
        server.answers("SELECT 2");
    }
}

/// The text of the statement is not known, so it may have set the parameter.
#[test]
pub(crate) fn a_new_default_is_not_the_clients_value() {
    let (_rig, client, server) = reporting(&[ZONE]);
    client.send([bind("missing"), execute(), sync()]);
    server.take();
    let changed = status("TimeZone", "Asia/Tokyo");
    server.send([error("26000", "does not exist"), changed, ready('I')]);
    let told = show(&client.take());
    assert!(told.last().is_some_and(|last| last.contains("UTC")), "{told:?}");
    assert!(server.is_parked());
    client.send([query("SELECT 2")]);
    server.expect([query("SET TimeZone = 'UTC';")]);
}

/// The client is told the first new default. The second one comes with the answer to a question of
/// Weir.
#[test]
pub(crate) fn a_question_hides_no_reload() {
    for second in ["Europe/Paris", "UTC"] {
        let (_rig, client, server) = reporting(&[ZONE]);
        client.send([parse("a", "SELECT 1"), sync()]);
        server.take();
        server.send([parsed(), ready('I')]);
        client.take();
        client.send([query("EXECUTE a")]);
        server.expect([parse("a", "SELECT 1"), sync(), query("EXECUTE a")]);
        server.send([parsed(), status("TimeZone", "Asia/Tokyo"), ready('I'), done("SELECT 1")]);
        client.expect([status("TimeZone", "Asia/Tokyo"), done("SELECT 1")]);
        server.take();
        server.send([complete("SELECT 0"), status("TimeZone", second), ready('I')]);
        server.send([closed(), ready('I')]);
        client.expect([status("TimeZone", "UTC")]);
        assert!(server.is_parked());
        client.send([query("SELECT 2")]);
        if second != "UTC" {
            server.expect([query("SET TimeZone = 'UTC';")]);
            server.send([complete("SET"), status("TimeZone", "UTC"), ready('I')]);
        }
        server.answers("SELECT 2");
    }
}

/// The server has the first new default, so that is no value of the client. Half a message follows the
/// answer, so the next request goes to the same server.
#[test]
fn what_the_server_has_is_not_the_clients_value() {
    let (_rig, client, server) = stage(&[ZONE]);
    let (half, rest) = (notice("half")[..3].to_vec(), notice("half")[3..].to_vec());
    client.send([query("SELECT 1")]);
    server.take();
    server.send([complete("OK"), status("TimeZone", "Asia/Tokyo"), ready('I'), half]);
    client.expect([done("OK")]);
    client.send([query("SELECT mine()")]);
    server.expect([query("SELECT mine()")]);
    server.send([rest, complete("OK"), status("TimeZone", "Europe/Paris"), ready('I')]);
    tells(&server, &[]);
    let told = show(&client.take());
    assert!(told.last().is_some_and(|last| last.contains("UTC")), "{told:?}");
    is_given_its_own(&client, &server);
}
