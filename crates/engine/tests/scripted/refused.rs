//! Auto mode: servers that refuse a client's settings.

use config::PoolMode;

use crate::carried::{WORK_MEM, auto, sets, tells};
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
        assert!(client.is_open() && used.iter().all(|server| !server.is_open()));
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
    let new = logs_in(&rig, &[]);
    refuses(&new);
    client.expect_fatal("server refused session settings: not any more");
    // A refused query leaves nothing on a server.
    assert!(!used[0].is_open() && used[1].is_parked() && new.is_parked());
}

#[test]
pub(crate) fn at_most_three_are_closed() {
    let (rig, client, used) = with_used(4);
    client.send([query("SELECT 2")]);
    for server in &used[..2] {
        refuses(server);
        assert!(!server.is_open());
        is_lost(&rig);
    }
    refuses(&used[2]);
    client.expect_fatal("server refused session settings: not any more");
    assert!(!used[2].is_open() && used[3].is_parked());
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

/// As at a login to PostgreSQL itself. Other modes use PgBouncer's words.
#[test]
fn a_refused_startup_parameter_is_told_in_postgresqls_words() {
    let refusal = ("22023", "invalid value for parameter \"TimeZone\": \"Nowhere\"");
    let rig = auto(|_| {});
    let client = rig.client_with(0, &[("TimeZone", "Nowhere")]);
    let server = rig.server(0);
    client.send([query("SELECT 1")]);
    server.expect([query("SET TimeZone = 'Nowhere';")]);
    server.send([error(refusal.0, refusal.1), ready('I')]);
    client.expect([fatal(refusal.0, refusal.1)]);
    assert!(!client.is_open() && rig.logged("varcache_apply failed: ERROR: invalid value"));
}

/// No other server would accept the value, so none is closed: a client that tries again and again costs
/// no logins.
#[test]
pub(crate) fn an_invalid_value_costs_no_server() {
    for mode in [PoolMode::Session, PoolMode::Transaction, PoolMode::Statement, PoolMode::Auto] {
        let rig = auto(|config| config.global.pool_mode = mode);
        let other = rig.client();
        let server = rig.server(0);
        other.leave();
        if mode == PoolMode::Session {
            server.answers("DISCARD ALL");
        }
        for _ in 0..3 {
            let client = rig.connect();
            client.say_hello(&[("TimeZone", "Nowhere")]);
            if mode != PoolMode::Session {
                client.take();
                client.send([query("SELECT 1")]);
            }
            let asked = String::from_utf8_lossy(&server.take()).into_owned();
            assert!(asked.contains("SET TimeZone = 'Nowhere';"), "{mode}: {asked}");
            let why = "invalid value for parameter \"TimeZone\": \"Nowhere\"";
            server.send([error("22023", why), ready('I')]);
            assert!(!client.is_open(), "{mode}");
            if mode == PoolMode::Session {
                server.answers("DISCARD ALL");
            }
            assert!(server.is_parked(), "{mode}");
        }
        assert_eq!(rig.servers(), 1);
        let next = rig.connect();
        next.say_hello(&[]);
        if mode != PoolMode::Session {
            next.send([query("SELECT 2")]);
            server.answers("SELECT 2");
        }
        assert!(next.is_open());
    }
}

#[test]
fn a_server_that_has_refused_a_value_serves_the_next_in_the_queue() {
    let rig = auto(|_| {});
    let other = rig.client();
    let server = rig.server(0);
    let client = rig.client_with(0, &[("TimeZone", "Nowhere")]);
    client.send([query("SELECT 1")]);
    server.expect([query("SET TimeZone = 'Nowhere';")]);
    other.send([query("SELECT 2")]);
    server.send([error("22023", "invalid value for parameter"), ready('I')]);
    assert!(!client.is_open());
    server.answers("SELECT 2");
    other.expect([done("OK")]);
    assert!(server.is_parked() && rig.servers() == 1);
}

const LIMIT: &str = "SELECT pg_catalog.set_config('plpgsql.limit','5',false) IS NULL;";

/// Otherwise each of its transactions would close a server and open another one.
#[test]
pub(crate) fn a_setting_whose_prefix_is_reserved_is_lost_once() {
    let rig = auto(|_| {});
    let [client, other] = [rig.client(), rig.client()];
    let server = rig.server(0);
    client.send([query("SET plpgsql.limit = 5; SET app.tenant = 7")]);
    server.answers("SET plpgsql.limit = 5; SET app.tenant = 7");
    client.take();
    tells(&server, &[("plpgsql.limit", "5"), ("app.tenant", "7")]);
    other.send([query("SELECT 1")]);
    server.answers("RESET \"app\".\"tenant\";RESET \"plpgsql\".\"limit\";");
    server.answers("SELECT 1");
    client.send([query("SELECT 2")]);
    let tenant = "pg_catalog.set_config('app.tenant','7',false) IS NULL";
    let limit = "pg_catalog.set_config('plpgsql.limit','5',false) IS NULL";
    server.expect([query(&format!("SELECT {tenant},{limit};"))]);
    let refusal = "ungültiger Konfigurationsparametername »plpgsql.limit«";
    server.send([error("42602", refusal), ready('I')]);
    server.answers(&format!("SELECT {tenant};"));
    server.answers("SELECT 2");
    let told = client.take();
    let says = |text: &str| told.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(says("invalid configuration parameter name \"plpgsql.limit\", removing it"));
    assert!(says("\"plpgsql\" is now a reserved prefix.") && server.is_parked());
    other.send([query("SELECT 3")]);
    server.answers("RESET \"app\".\"tenant\";");
    server.answers("SELECT 3");
    client.send([query("SELECT 4")]);
    server.answers(&format!("SELECT {tenant};"));
    server.answers("SELECT 4");
    client.expect([done("OK")]);
    assert_eq!(rig.servers(), 1);
}

/// A function of which Weir knows that it sets nothing has loaded the library. The setting's name
/// contains that of the other client's setting.
#[test]
pub(crate) fn a_setting_that_the_server_has_lost_is_not_reset_again() {
    let rig = auto(|_| {});
    let [client, other] = [rig.client(), rig.client()];
    let server = rig.server(0);
    sets(&client, &server, "myapp.tenant", "5");
    other.send([query("SET app.tenant = 7")]);
    server.answers("RESET \"myapp\".\"tenant\";");
    server.answers("SET app.tenant = 7");
    tells(&server, &[("app.tenant", "7")]);
    other.take();
    let its_own = "SELECT pg_catalog.set_config('myapp.tenant','5',false) IS NULL;";
    let tenant = "SELECT pg_catalog.set_config('app.tenant','7',false) IS NULL;";
    client.send([query("SELECT 1")]);
    server.answers(&format!("RESET \"app\".\"tenant\";{its_own}"));
    server.answers("SELECT 1");
    other.send([query("SELECT 2")]);
    server.expect([query(&format!("RESET \"myapp\".\"tenant\";{tenant}"))]);
    let refusal = "invalid configuration parameter name \"myapp.tenant\"";
    server.send([error("42602", refusal), ready('I')]);
    server.answers(tenant);
    server.answers("SELECT 2");
    other.expect([done("OK")]);
    assert_eq!(rig.servers(), 1);
}

/// PostgreSQL keeps the name of a setting that was reset.
#[test]
pub(crate) fn a_removal_is_told_to_the_client_that_has_the_setting() {
    let rig = auto(|_| {});
    let [client, other] = [rig.client(), rig.client()];
    let server = rig.server(0);
    sets(&client, &server, "plpgsql.limit", "5");
    let block = "DO $$BEGIN END$$";
    other.send([query(block)]);
    server.answers("RESET \"plpgsql\".\"limit\";");
    server.expect([query(block)]);
    let cut = removal("plpgsql.limit");
    let (start, rest) = cut.split_at(20);
    server.send([start.to_vec()]);
    server.send([rest.to_vec(), notice("heard"), complete("DO"), ready('I')]);
    other.expect([notice("heard"), complete("DO"), ready('I')]);
    tells(&server, &[]);
    let own = "SET plpgsql.other = 1; DO $$BEGIN END$$";
    for (who, name, text) in [(&client, "plpgsql.limit", block), (&other, "plpgsql.other", own)] {
        who.send([query(text)]);
        if name == "plpgsql.limit" {
            server.answers(LIMIT);
        }
        server.expect([query(text)]);
        server.send([removal(name), complete("DO"), ready('I')]);
        who.expect([removal(name), complete("DO"), ready('I')]);
        tells(&server, &[]);
    }
}

/// As on a direct connection: PostgreSQL sets the user of the login behind it.
#[test]
fn a_session_authorization_in_the_startup_packet_has_no_effect() {
    let options = "-c session_authorization=boss -c role=r";
    for packet in
        [[("options", options), ("a.b", "")], [("Session_Authorization", "boss"), ("role", "r")]]
    {
        let rig = auto(|_| {});
        let client = rig.client_with(0, &packet);
        client.send([query("SELECT 1")]);
        let asked = String::from_utf8_lossy(&rig.server(0).take()).into_owned();
        assert!(asked.contains("set_config('role','r',false)"), "{asked}");
        assert!(!asked.contains("boss"), "{asked}");
    }
}
