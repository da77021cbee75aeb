//! Effects of signals, with PgBouncer's texts in the log.

use crate::support;
use testkit::{RawClient, Role, frontend};

#[test]
fn sighup_reads_the_configuration_again_core() {
    let (mut pooler, database) = support::pooler("transaction");
    let port = testkit::Postgres::shared().port();
    pooler.reconfigure(|ini| {
        ini.database("added", &format!("host=127.0.0.1 port={port} dbname={database}"));
    });
    pooler.signal("HUP");
    pooler.log_contains("got SIGHUP, re-reading config");
    testkit::eventually("the new database is known", std::time::Duration::from_secs(5), || {
        pooler.login(Role::APP, "added", "").ok()
    });
}

#[test]
fn two_hundred_sighups_in_a_row_harm_nobody() {
    const SIGNALS: u32 = 200;
    let (setup, database) = support::setup("transaction");
    let mut pooler = setup.workers(2).start();
    pooler.reconfigure(|ini| ini.set("default_pool_size", 7));
    let mut clients: Vec<_> = (0..4).map(|_| pooler.client(&database)).collect();
    for n in 0..SIGNALS {
        pooler.signal("HUP");
        for client in &mut clients {
            assert_eq!(client.value(&format!("SELECT {n}")), n.to_string());
        }
        if n % 10 == 0 {
            assert_eq!(pooler.client(&database).value("SELECT 'new'"), "new");
        }
    }
    testkit::eventually("the file is in use", std::time::Duration::from_secs(20), || {
        let shown = pooler.admin("SHOW CONFIG").with("key", "default_pool_size");
        (shown.column("value") == ["7"]).then_some(())
    });
    assert!(pooler.is_running());
    drop(clients);
    pooler.wait_until_quiet(&database, 7);
}

#[test]
fn sigint_waits_until_the_servers_are_released_core() {
    let (setup, database) = support::setup("transaction");
    let mut pooler = setup.workers(2).start();
    let mut busy = pooler.client(&database);
    busy.rows("BEGIN");
    let mut idle = pooler.client(&database);
    pooler.signal("INT");
    pooler.log_contains("got SIGINT, shutting down");
    assert!(pooler.is_running());
    assert_eq!(busy.value("SELECT 'still here'"), "still here");
    if support::only_weir() {
        // A query that would need a server gets an error.
        idle.send(frontend::query("SELECT 1"));
        let error = idle.read_to_end().iter().find_map(testkit::Message::error);
        assert_eq!(error.expect("an error").message(), "server shutting down");
    }
    assert_eq!(busy.query("COMMIT").tags, ["COMMIT"]);
    assert_eq!(pooler.wait_for_exit().code(), Some(0));
}

#[test]
fn a_shutdown_says_for_which_clients_it_waits_and_what_ends_it_core() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("auto");
    let mut pooler = setup.workers(2).start();
    let mut pinned = pooler.client(&database);
    pinned.rows("CREATE TEMPORARY TABLE mine (number int)");
    // More than a line names. They begin later, so that the first stays the oldest.
    let mut open: Vec<_> = (0..6).map(|_| pooler.client(&database)).collect();
    for client in &mut open {
        client.rows("BEGIN");
    }
    let idle = pooler.client(&database);
    pooler.signal("INT");
    let waits = |what: &str| {
        let begin = format!("s, waiting for {what}: ");
        pooler.log_contains(&begin);
        let log = pooler.log();
        log.lines().find(|line| line.contains(&begin)).expect("the line").to_owned()
    };
    let line = waits("7 servers");
    let client = |client: &RawClient| {
        format!("{database}/app@{}", client.local_address().expect("a TCP connection"))
    };
    for expected in [
        format!("{} idle ", client(&pinned)),
        " s, pinned by temporary object".to_owned(),
        format!("{} idle in transaction ", client(&open[0])),
        "; 2 more; a second SIGINT or SIGTERM, or SHUTDOWN on the console, ends Weir at once"
            .to_owned(),
    ] {
        assert!(line.contains(&expected), "no {expected:?} in {line}");
    }
    assert!(!line.contains(&client(&idle)), "it has no server: {line}");
    pooler.signal("INT");
    assert_eq!(pooler.wait_for_exit().code(), Some(0));
    pooler.log_contains("got SIGINT while shutting down, fast exit");
}

#[test]
fn a_shutdown_that_waits_for_clients_names_them() {
    if !support::only_weir() {
        return;
    }
    let (mut pooler, database) = support::pooler("transaction");
    let client = pooler.client(&database);
    let address = client.local_address().expect("a TCP connection");
    pooler.signal("TERM");
    pooler.log_contains(&format!("s, waiting for 1 client: {database}/app@{address} idle "));
    drop(client);
    assert_eq!(pooler.wait_for_exit().code(), Some(0));
}

#[test]
fn sigterm_waits_until_the_clients_have_gone_core() {
    if !support::only_weir() {
        return;
    }
    let (mut pooler, database) = support::pooler("transaction");
    let mut first = pooler.client(&database);
    let mut second = pooler.client(&database);
    pooler.signal("TERM");
    pooler.log_contains("got SIGTERM, shutting down, waiting for all clients disconnect");
    testkit::eventually("the port is closed", std::time::Duration::from_secs(5), || {
        RawClient::try_connect(pooler.port()).err()
    });
    assert_eq!(first.value("SELECT 'served'"), "served");
    assert_eq!(second.value("SELECT 'served'"), "served");
    drop(first);
    assert_eq!(second.value("SELECT 'still'"), "still");
    drop(second);
    assert_eq!(pooler.wait_for_exit().code(), Some(0));
}

#[test]
fn a_pause_can_be_resumed_during_a_shutdown() {
    if !support::only_weir() {
        return;
    }
    let (mut pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    let mut console = pooler.console();
    assert_eq!(console.query("PAUSE").tags, ["PAUSE"]);
    pooler.signal("TERM");
    pooler.log_contains("got SIGTERM, shutting down, waiting for all clients disconnect");
    assert_eq!(console.query("RESUME").tags, ["RESUME"]);
    assert_eq!(client.value("SELECT 'served'"), "served");
    let error = console.query("RESUME").error.expect("nothing is halted");
    assert_eq!(error.message(), "pooler is shutting down");
    // No operator could end this suspension any more.
    assert_eq!(console.query("SUSPEND").tags, ["SUSPEND"]);
    drop(console);
    pooler.log_contains("admin disappeared when suspended, doing RESUME");
    assert_eq!(client.value("SELECT 'still'"), "still");
    drop(client);
    assert_eq!(pooler.wait_for_exit().code(), Some(0));
}

#[test]
fn a_shutdown_ends_a_suspension() {
    if !support::only_weir() {
        return;
    }
    let (mut pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    let mut console = pooler.console();
    assert_eq!(console.query("SUSPEND").tags, ["SUSPEND"]);
    pooler.signal("TERM");
    assert_eq!(client.value("SELECT 'served'"), "served");
    let state = console.query("SHOW STATE");
    assert!(state.rows.contains(&vec![Some("suspended".into()), Some("no".into())]));
    drop(client);
    drop(console);
    assert_eq!(pooler.wait_for_exit().code(), Some(0));
}

#[test]
fn a_second_sigterm_ends_it_at_once() {
    if !support::only_weir() {
        return;
    }
    let (mut pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    client.rows("BEGIN");
    pooler.signal("TERM");
    pooler.log_contains("got SIGTERM, shutting down, waiting for all clients disconnect");
    pooler.signal("TERM");
    assert_eq!(pooler.wait_for_exit().code(), Some(0));
    pooler.log_contains("got SIGTERM while shutting down, fast exit");
    client.read_to_end();
}

#[test]
fn sigquit_ends_it_at_once() {
    if !support::only_weir() {
        return;
    }
    let (mut pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    client.rows("BEGIN");
    pooler.signal("QUIT");
    assert_eq!(pooler.wait_for_exit().code(), Some(0));
    pooler.log_contains("got SIGQUIT, fast exit");
    client.read_to_end();
}

#[test]
fn its_unix_socket_is_gone_after_an_orderly_end() {
    let (mut pooler, database) = support::pooler("transaction");
    let socket = pooler.socket_folder().join(format!(".s.PGSQL.{}", pooler.port()));
    assert!(socket.exists());
    drop(pooler.client(&database));
    pooler.wait_until_quiet(&database, 1);
    pooler.signal("INT");
    assert_eq!(pooler.wait_for_exit().code(), Some(0));
    assert!(!socket.exists());
}

#[test]
fn the_log_has_pgbouncers_shape() {
    let (pooler, database) = support::pooler("transaction");
    drop(pooler.client(&database));
    pooler.log_contains("closing because: client");
    let log = pooler.log();
    for text in [
        format!("login attempt: db={database} user=app tls=no"),
        format!("{database}/app@127.0.0.1:"),
        format!("listening on 127.0.0.1:{}", pooler.port()),
        "process up: ".to_owned(),
        "new connection to server (from 127.0.0.1:".to_owned(),
        "kernel file descriptor limit: ".to_owned(),
    ] {
        assert!(log.contains(&text), "no {text:?} in\n{log}");
    }
    let line = log.lines().find(|line| line.contains("login attempt")).expect("the line");
    let words: Vec<&str> = line.split_whitespace().collect();
    // 2026-01-31 23:59:59.000 UTC [123] LOG C-0x…: db/user@host:port login attempt: …
    assert_eq!(words[0].len(), "2026-01-31".len(), "{line}");
    assert_eq!(words[1].len(), "23:59:59.000".len(), "{line}");
    assert_eq!(words[3], format!("[{}]", pooler.pid()), "{line}");
    assert_eq!(words[4], "LOG", "{line}");
    assert!(words[5].starts_with("C-0x") && words[5].ends_with(':'), "{line}");
}
