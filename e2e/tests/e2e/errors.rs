//! Errors of the pooler itself: their SQLSTATEs, and their details about the clients that hold the
//! servers.

use std::net::TcpListener;
use std::time::Duration;

use crate::support;
use testkit::{Pooler, RawClient, Role, ServerError, eventually, frontend};

/// The error that ends a client's connection.
#[track_caller]
fn last_error(client: &mut RawClient) -> ServerError {
    let said = client.read_to_end();
    said.iter().rev().find_map(testkit::Message::error).expect("an error")
}

/// Returns a pooler with one server, which clients of a second user share.
fn shared_server(codes: &str) -> (Pooler, String) {
    let (setup, database) = support::setup("transaction");
    let login = format!("user={} password={}", Role::APP, Role::APP_PASSWORD);
    let setup = setup.set("error_codes", codes).set("default_pool_size", 1);
    let setup = setup.set("query_wait_timeout", 1).database(&database, &login);
    (setup.secret("alice", "wonder").workers(1).start(), database)
}

#[test]
fn sqlstates_tell_drivers_the_cause_of_an_error_core() {
    if !support::only_weir() {
        return;
    }
    let gone = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.local_addr().expect("a bound socket").port()
    };
    for (codes, expected) in [
        ("weir", ["28P01", "3D000", "53300", "08006", "57P01"]),
        ("pgbouncer", ["08P01", "08P01", "08P01", "08P01", "08P01"]),
    ] {
        let (setup, database) = support::setup("transaction");
        let setup = setup.set("error_codes", codes).set("default_pool_size", 1);
        let setup = setup.set("auth_type", "scram-sha-256");
        let setup = setup.database_at("gone", &format!("host=127.0.0.1 port={gone}"));
        let mut pooler = setup.set("query_wait_timeout", 1).start();
        let refused = |database: &str, password: &str| {
            let Err(error) = pooler.login(Role::APP, database, password) else {
                panic!("{database} lets it in");
            };
            error
        };
        let wrong = refused(&database, "wrong");
        let unknown = refused("no_such_database", Role::APP_PASSWORD);
        let unreachable = refused("gone", Role::APP_PASSWORD);

        let mut holder = pooler.client(&database);
        holder.rows("BEGIN");
        let mut waiting = pooler.client(&database);
        waiting.send(frontend::query("SELECT 1"));
        let timeout = last_error(&mut waiting);

        let mut late = pooler.client(&database);
        pooler.signal("INT");
        pooler.log_contains("got SIGINT, shutting down");
        late.send(frontend::query("SELECT 1"));
        let shutdown = last_error(&mut late);
        holder.rows("COMMIT");
        assert_eq!(pooler.wait_for_exit().code(), Some(0));

        let errors = [wrong, unknown, timeout, unreachable, shutdown];
        assert_eq!(errors.each_ref().map(|error| error.code().to_owned()), expected);
        let texts = errors.each_ref().map(|error| error.message().to_owned());
        assert_eq!(texts[1], "no such database: no_such_database");
        assert_eq!(texts[2], "query_wait_timeout");
        assert_eq!(texts[3], "query_wait_timeout");
        assert_eq!(texts[4], "server shutting down");
        let detail = errors[3].field('D');
        assert!(detail.contains("is open; ") && detail.contains("connect failed"), "{detail}");
        assert!(errors[1].field('H').contains("SHOW DATABASES"), "{:?}", errors[1]);
    }
}

#[test]
fn a_client_without_a_server_is_told_who_has_it_core() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = shared_server("weir");
    let mut holder = pooler.client(&database);
    holder.rows("SET application_name = 'web-0'");
    holder.rows("BEGIN");
    let mut waiting = pooler.client(&database);
    waiting.send(frontend::query("SELECT 1"));
    let error = last_error(&mut waiting);
    let detail = error.field('D').to_owned();
    let begins = format!(
        "1 of 1 server of {database}/{} busy: web-0 (127.0.0.1) idle in transaction ",
        Role::APP
    );
    assert!(detail.starts_with(&begins), "{detail}");
    assert!(error.field('H').contains("SHOW WAITS"), "{error:?}");
    pooler.log_contains(&format!("query_wait_timeout: {begins}"));

    // A client of another user gets neither the name nor the address.
    let mut alice = pooler.login("alice", &database, "wonder").expect("her password");
    alice.send(frontend::query("SELECT 1"));
    let detail = last_error(&mut alice).field('D').to_owned();
    let whole = format!("1 of 1 server of {database}/{} busy: 1 held by other users", Role::APP);
    assert_eq!(detail, whole);
}

#[test]
fn show_waits_names_the_client_that_holds_the_server() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = {
        let (setup, database) = support::setup("auto");
        (setup.set("default_pool_size", 2).workers(2).start(), database)
    };
    let mut failed = pooler.client(&database);
    failed.rows("SET application_name = 'web-0'");
    failed.rows("BEGIN");
    assert!(failed.query("SELECT 1/0").error.is_some());
    let mut pinned = pooler.client(&database);
    pinned.rows("SET application_name = 'web-1'");
    pinned.rows("SELECT pg_advisory_lock(1)");
    // Weir may still probe this server. Until that has ended, the server is active.
    eventually("the pinned client is idle", Duration::from_secs(10), || {
        let clients = pooler.admin("SHOW CLIENTS").with("application_name", "web-1");
        (clients.only("activity") == "idle").then_some(())
    });
    assert!(pooler.admin("SHOW WAITS").rows.is_empty(), "nobody waits");
    let mut waiting = pooler.client(&database);
    waiting.send(frontend::query("SELECT 'at last'"));
    support::until_waiting(&pooler, &database, 1);

    let waits = pooler.admin("SHOW WAITS");
    assert_eq!(waits.rows.len(), 2, "{waits:?}");
    let of = |name: &str| waits.with("application_name", name);
    assert_eq!(of("web-0").only("activity"), "idle in transaction (aborted)");
    assert_eq!(of("web-0").only("addr"), "127.0.0.1");
    assert_eq!(of("web-1").only("activity"), "idle");
    assert_eq!(of("web-1").only("pin_reason"), "advisory lock");
    assert_eq!(of("web-1").only("waiting"), "1");
    let clients = pooler.admin("SHOW CLIENTS");
    let shown = clients.with("application_name", "web-0");
    assert_eq!(shown.only("activity"), "idle in transaction (aborted)");
    assert_eq!(shown.only("ptr"), of("web-0").only("client"));
    let servers = pooler.admin("SHOW SERVERS").with("ptr", of("web-0").only("server"));
    assert_eq!(servers.only("activity"), "idle in transaction (aborted)");

    failed.rows("ROLLBACK");
    let said = waiting.read_to_ready();
    assert!(said.iter().any(|message| message.row() == [Some("at last".to_owned())]));
}

#[test]
fn console_errors_name_the_cause_and_a_similar_command() {
    if !support::only_weir() {
        return;
    }
    let (setup, _) = support::setup("transaction");
    let mut pooler = setup.set("error_codes", "weir").start();
    let refused = |pooler: &Pooler, command: &str| {
        pooler.try_admin(command).error.unwrap_or_else(|| panic!("{command} is carried out"))
    };
    let error = refused(&pooler, "SHOW POLS");
    assert_eq!(error.field('H'), "Perhaps you mean SHOW POOLS.");
    let error = refused(&pooler, "SET pool_mode = sesion");
    assert_eq!(error.message(), "SET failed");
    assert!(error.field('D').contains("pool_mode"), "{}", error.field('D'));
    let help = pooler.try_admin("HELP");
    assert_eq!(help.notices, ["Console usage"]);

    pooler.reconfigure(|ini| ini.set("default_pool_size", 7));
    let reloaded = pooler.try_admin("RELOAD");
    assert_eq!((reloaded.notices.len(), reloaded.tags), (1, vec!["RELOAD".to_owned()]));
    pooler.reconfigure(|ini| ini.set("default_pool_sise", 7));
    let error = refused(&pooler, "RELOAD");
    assert_eq!(error.code(), "F0000");
    assert!(error.field('D').contains("default_pool_sise"), "{}", error.field('D'));
}

/// SHOW SUMMARY must fit into a terminal with 80 columns.
#[test]
fn the_summary_fits_a_terminal() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    client.rows("BEGIN");
    let pool = format!("{database}/{}", Role::APP);
    let summary = pooler.admin("SHOW SUMMARY");
    let begins: String = pool.chars().take(21).collect();
    let rows: Vec<_> = summary.rows.iter().filter(|row| row[0].starts_with(&begins)).collect();
    assert_eq!(rows.len(), 1, "{summary:?}");
    assert_eq!(rows[0][1..], ["1", "0", "0", "1", "0", "0"], "{summary:?}");
    assert!(rows[0][0].len() <= 22, "{summary:?}");
}
