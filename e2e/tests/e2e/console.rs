//! The console: PgBouncer's commands with PgBouncer's columns, errors and rights.

mod columns;
mod drivers;
mod exporter;
mod memory;
mod monitors;

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::support;
use testkit::{Message, Outcome, Pooler, RawClient, Role, eventually, frontend};

const PATIENCE: Duration = Duration::from_secs(20);

#[track_caller]
fn refused(outcome: &Outcome) -> (&str, &str, &str) {
    outcome.error.as_ref().expect("an error").summary()
}

#[test]
fn the_version_begins_as_monitoring_expects() {
    let (pooler, _) = support::pooler("transaction");
    let version = pooler.console().value("SHOW VERSION");
    assert!(version.starts_with("PgBouncer 1."), "{version}");
    // Scripts compare the two texts.
    let printed = support::run(Command::new(testkit::pooler_binary()).arg("-V"));
    assert_eq!(printed.lines().next(), Some(&*version));
    if support::only_weir() {
        // pgbouncer_fdw takes what follows the second point for a number.
        assert_eq!(version, "PgBouncer 1.25.2");
        let extended = pooler.console().value("SHOW VERSION EXTENDED");
        assert!(extended.starts_with("PgBouncer 1.25.2 (Weir "), "{extended}");
        assert!(printed.contains("\nWeir "), "{printed}");
    }
}

#[test]
fn psql_can_be_used_as_the_console_core() {
    let (pooler, _) = support::pooler("transaction");
    let mut psql = pooler.client_program("psql", "pgbouncer");
    psql.env("PGUSER", "admin").args(["-X", "-A", "-t", "-c", "SHOW VERSION"]);
    assert!(support::run(&mut psql).starts_with("PgBouncer"));
}

#[test]
fn the_consoles_welcome_names_its_parameters() {
    let (pooler, _) = support::pooler("transaction");
    let console = pooler.console();
    let parameter = |name: &str| console.parameters.get(name).map_or("", String::as_str);
    assert!(parameter("server_version").ends_with("/bouncer"), "{:?}", console.parameters);
    assert_eq!(parameter("client_encoding"), "UTF8");
    assert_eq!(parameter("server_encoding"), "UTF8");
    assert_eq!(parameter("DateStyle"), "ISO");
    assert_eq!(parameter("TimeZone"), "GMT");
    assert_eq!(parameter("standard_conforming_strings"), "on");
    assert_eq!(parameter("is_superuser"), "on");
}

#[test]
fn commands_are_taken_in_any_case_and_with_a_semicolon() {
    let (pooler, _) = support::pooler("transaction");
    for command in ["show version", "SHOW VERSION;", "  Show  Version ; ", "SELECT version"] {
        assert_eq!(pooler.admin(command).columns, ["version"], "{command}");
    }
}

#[test]
fn pools_clients_and_servers_show_who_does_what_core() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", 1).start();
    let mut holder = RawClient::connect(pooler.port());
    let startup = [("user", Role::APP), ("database", &*database), ("application_name", "holder")];
    holder.authenticate(&startup, "").expect("a login");
    holder.rows("BEGIN");
    let backend = holder.value("SELECT pg_backend_pid()");
    let mut waiting = pooler.client(&database);
    waiting.send(frontend::query("SELECT 1"));
    support::until_waiting(&pooler, &database, 1);
    let _idle = pooler.client(&database);

    let pool = pooler.admin("SHOW POOLS").with("database", &database);
    assert_eq!(pool.only("user"), Role::APP);
    assert_eq!(pool.only("cl_active"), "2");
    assert_eq!(pool.only("cl_waiting"), "1");
    assert_eq!(pool.only("sv_active"), "1");
    assert_eq!(pool.only("sv_idle"), "0");
    assert_eq!(pool.only("pool_mode"), "transaction");

    let clients = pooler.admin("SHOW CLIENTS").with("database", &database);
    assert_eq!(clients.rows.len(), 3);
    let held = clients.with("application_name", "holder");
    assert_eq!((held.only("type"), held.only("state")), ("C", "active"));
    assert_eq!((held.only("addr"), held.only("local_addr")), ("127.0.0.1", "127.0.0.1"));
    assert_eq!(held.only("local_port"), pooler.port().to_string());
    assert_eq!(clients.with("state", "waiting").rows.len(), 1);

    let server = pooler.admin("SHOW SERVERS").with("database", &database);
    assert_eq!((server.only("type"), server.only("state")), ("S", "active"));
    assert_eq!(server.only("remote_pid"), backend);
    assert_eq!(server.only("link"), held.only("ptr"));
    assert_eq!(server.only("ptr"), held.only("link"));
}

#[test]
fn a_client_that_rests_in_its_transaction_waits_for_nothing() {
    let (pooler, database) = support::pooler("transaction");
    let client = |name| {
        let mut client = RawClient::connect(pooler.port());
        let startup = [("user", Role::APP), ("database", &*database), ("application_name", name)];
        client.authenticate(&startup, "").expect("a login");
        client.rows("BEGIN");
        client
    };
    let (mut resting, mut running) = (client("resting"), client("running"));
    resting.rows("SELECT pg_advisory_xact_lock(1)");
    running.send(frontend::query("SELECT pg_advisory_xact_lock(1)"));
    let wait = |command, name| {
        let shown = pooler.admin(command).with("application_name", name).with("type", "C");
        [shown.only("wait"), shown.only("wait_us")].map(|value| value.parse::<u32>().expect("one"))
    };
    for command in ["SHOW CLIENTS", "SHOW SOCKETS"] {
        eventually("it waits for the lock", PATIENCE, || {
            (wait(command, "running") > [0, 0]).then_some(())
        });
        assert_eq!(wait(command, "resting"), [0, 0], "{command}");
    }
    resting.rows("COMMIT");
    running.read_to_ready();
    assert_eq!(wait("SHOW CLIENTS", "running"), [0, 0]);
}

#[test]
fn databases_show_where_they_lead_and_how_full_they_are() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup
        .set("default_pool_size", 7)
        .database("alias", &format!("dbname={database} pool_size=3 pool_mode=session"))
        .start();
    let _client = pooler.client("alias");
    let databases = pooler.admin("SHOW DATABASES");
    let alias = databases.with("name", "alias");
    assert_eq!(alias.only("host"), "127.0.0.1");
    assert_eq!(alias.only("port"), testkit::Postgres::shared().port().to_string());
    assert_eq!(alias.only("database"), database);
    assert_eq!(alias.only("pool_size"), "3");
    assert_eq!(alias.only("pool_mode"), "session");
    assert_eq!(alias.only("current_connections"), "1");
    assert_eq!((alias.only("paused"), alias.only("disabled")), ("0", "0"));
    assert_eq!(databases.with("name", &database).only("pool_size"), "7");
    assert_eq!(databases.with("name", "pgbouncer").rows.len(), 1);
}

#[test]
fn stats_count_queries_transactions_and_bytes_core() {
    let (pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    for _ in 0..3 {
        client.rows("SELECT 1");
    }
    client.rows("BEGIN");
    client.rows("SELECT repeat('x', 10000)");
    client.rows("COMMIT");
    let stats = pooler.admin("SHOW STATS").with("database", &database);
    assert_eq!(stats.only("total_query_count"), "6");
    assert_eq!(stats.only("total_xact_count"), "4");
    assert!(stats.sum("total_sent") > 10_000, "{stats:?}");
    assert!(stats.sum("total_received") > 50, "{stats:?}");
}

/// PgBouncer counts these from a version after 1.25 on.
#[test]
fn stats_count_clients_that_were_let_in() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("auth_type", "md5").start();
    drop([pooler.client(&database), pooler.client(&database)]);
    RawClient::login(pooler.port(), Role::APP, &database, "wrong").expect_err("a wrong password");
    let logins = |database: &str| {
        pooler.admin("SHOW STATS").with("database", database).sum("total_client_login_count")
    };
    assert_eq!(logins(&database), 2);
    assert_eq!((logins("pgbouncer"), logins("pgbouncer")), (2, 3));
}

#[test]
fn the_configuration_shows_value_and_default() {
    let (setup, _) = support::setup("transaction");
    let pooler = setup.set("query_wait_timeout", 77).start();
    let config = pooler.admin("SHOW CONFIG");
    let changed = config.with("key", "query_wait_timeout");
    assert_eq!(changed.only("value"), "77");
    assert_eq!(changed.only("default"), "120");
    assert_eq!(changed.only("changeable"), "yes");
    assert_eq!(config.with("key", "listen_port").only("changeable"), "no");
    assert_eq!(config.with("key", "listen_port").only("value"), pooler.port().to_string());
}

#[test]
fn help_comes_as_a_notice() {
    let (pooler, _) = support::pooler("transaction");
    let mut console = pooler.console();
    console.send(frontend::query("SHOW HELP"));
    let messages = console.read_to_ready();
    let notice = messages.iter().find_map(Message::error).expect("a notice");
    assert_eq!(notice.message(), "Console usage");
    assert!(notice.field('D').contains("SHOW HELP"), "{:?}", notice.field('D'));
    assert!(messages.iter().any(|m| m.tag == b'C' && m.text() == "SHOW"), "{messages:?}");
}

#[test]
fn an_unknown_command_is_an_error_and_the_console_stays() {
    let (pooler, _) = support::pooler("transaction");
    let mut console = pooler.console();
    let text = "invalid command 'FROBNICATE', use SHOW HELP;";
    assert_eq!(refused(&console.query("FROBNICATE")), ("ERROR", "08P01", text));
    assert!(console.query("SHOW VERSION").error.is_none());
}

#[test]
fn a_user_in_neither_list_cannot_enter_the_console_core_strict() {
    let (pooler, _) = support::pooler("transaction");
    let error = pooler.login(Role::APP, "pgbouncer", "").expect_err("a refusal");
    assert_eq!(error.summary(), ("FATAL", "08P01", "not allowed"));
}

#[test]
fn a_stats_user_may_look_but_not_touch_core_strict() {
    let (pooler, _) = support::pooler("transaction");
    let mut console = pooler.login("stats", "pgbouncer", "stats-secret").expect("a login");
    assert!(console.query("SHOW POOLS").error.is_none());
    assert!(console.query("SHOW STATS").error.is_none());
    for command in ["RELOAD", "SHUTDOWN"] {
        assert_eq!(refused(&console.query(command)), ("ERROR", "08P01", "admin access needed"));
    }
}

#[test]
fn the_console_asks_for_a_password_as_any_database_does() {
    let (setup, _) = support::setup("transaction");
    let pooler = setup.set("auth_type", "md5").start();
    assert!(pooler.login("admin", "pgbouncer", "wrong").is_err());
    assert!(pooler.login("admin", "pgbouncer", "admin-secret").is_ok());
}

#[test]
fn the_poolers_own_user_is_administrator_over_the_unix_socket_core() {
    let (setup, _) = support::setup("transaction");
    let pooler = setup.set("auth_type", "md5").start();
    let mut psql = pooler.program_of_its_user("psql");
    psql.args(["-X", "-w", "-A", "-t", "-c", "RELOAD", "-c", "SHOW VERSION"]);
    assert!(support::run(&mut psql).contains("PgBouncer"));
    assert!(pooler.login("pgbouncer", "pgbouncer", "").is_err(), "not over TCP");
}

#[test]
fn reload_takes_new_databases_in_and_keeps_clients_core() {
    let (mut pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    client.rows("BEGIN");
    assert!(pooler.login(Role::APP, "added", "").is_err());
    let port = testkit::Postgres::shared().port();
    pooler.reconfigure(|ini| {
        ini.database("added", &format!("host=127.0.0.1 port={port} dbname={database}"));
    });
    pooler.reload();
    assert_eq!(pooler.client("added").value("SELECT current_database()"), database);
    assert_eq!(client.query("COMMIT").tags, ["COMMIT"]);
}

#[test]
fn a_mode_changed_by_reload_counts_without_a_restart() {
    let (setup, database) = support::setup("session");
    let mut pooler = setup.set("default_pool_size", 1).start();
    drop(pooler.client(&database));
    pooler.reconfigure(|ini| ini.set("pool_mode", "transaction"));
    pooler.reload();
    let mut clients = [pooler.client(&database), pooler.client(&database)];
    for client in &mut clients {
        assert_eq!(client.value("SELECT 1"), "1");
    }
    pooler.reconfigure(|ini| ini.set("pool_mode", "statement"));
    pooler.reload();
    let mut client = pooler.client(&database);
    client.send(frontend::query("BEGIN"));
    let last = client.read_to_end().pop().and_then(|m| m.error()).expect("an error");
    assert_eq!(last.message(), "transaction blocks not allowed in statement pooling mode");
}

#[test]
fn a_reload_with_a_mistake_in_the_file_fails_and_changes_nothing_core() {
    let (mut pooler, database) = support::pooler("transaction");
    pooler.reconfigure(|ini| ini.set("no_such_key", 1));
    let outcome = pooler.try_admin("RELOAD");
    if support::only_weir() {
        let text = "RELOAD failed, see logs for additional details";
        assert_eq!(refused(&outcome), ("ERROR", "F0000", text));
    }
    pooler.log_contains("no_such_key");
    assert_eq!(pooler.client(&database).value("SELECT 1"), "1");
}

/// A notice names each of the files. The users, the rules and the log stay as they were. The rest
/// of the configuration takes effect.
#[test]
fn a_reload_that_cannot_use_a_file_fails_and_keeps_what_there_was() {
    if !support::only_weir() {
        return;
    }
    let folder = testkit::open_folder("reload");
    let rules = folder.join("hba.conf");
    fs::write(&rules, "local all all trust\nhost all all 127.0.0.1/32 md5\n")
        .expect("our own folder");
    let (setup, database) = support::setup("transaction");
    let setup = setup.set("auth_type", "hba").set("auth_hba_file", rules.display());
    let mut pooler = setup.start();
    let nowhere = folder.join("nowhere/file").display().to_string();
    for (key, kept) in [
        ("auth_file", "auth_file could not be read, keeping its users"),
        ("auth_hba_file", "auth_hba_file or auth_ident_file could not be read, keeping the rules"),
        ("logfile", "logfile could not be opened, keeping the old log"),
    ] {
        let mut before = None;
        pooler.reconfigure(|ini| {
            before = Some(ini.clone());
            ini.set(key, &nowhere);
            ini.set("query_timeout", key.len());
        });
        let outcome = pooler.try_admin("RELOAD");
        let text = "RELOAD failed, see logs for additional details";
        assert_eq!(refused(&outcome), ("ERROR", "F0000", text), "{key}");
        assert!(outcome.notices.iter().any(|notice| notice.contains(kept)), "{outcome:?}");
        pooler.log_contains(&nowhere);
        pooler.login(Role::APP, &database, Role::APP_PASSWORD).expect("the user and the rule");
        pooler.login(Role::APP, &database, "wrong").expect_err("the password is asked for");
        let shown = pooler.admin("SHOW CONFIG").with("key", "query_timeout");
        assert_eq!(shown.only("value"), key.len().to_string(), "{key}");
        pooler.reconfigure(|ini| *ini = before.expect("it was kept"));
        pooler.reload();
    }
}

/// If `auth_file` does not exist any more, SIGHUP keeps the users as RELOAD does. PgBouncer keeps
/// them as well.
#[test]
fn a_reload_without_its_auth_file_keeps_the_users() {
    let (mut pooler, database) = support::pooler("transaction");
    pooler.reconfigure(|ini| ini.set("auth_file", "/nowhere/users"));
    let failed = pooler.try_admin("RELOAD").error.is_some();
    assert_eq!(failed, testkit::flavour() == testkit::Flavour::Weir);
    assert_eq!(pooler.client(&database).value("SELECT 1"), "1");
}

#[test]
fn shutdown_ends_the_process_at_once() {
    let (mut pooler, database): (Pooler, _) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    client.rows("BEGIN");
    let mut console = pooler.console();
    console.send(frontend::query("SHUTDOWN"));
    assert!(console.read_to_end().iter().all(|m| m.tag != b'E'));
    let status = pooler.wait_for_exit();
    if support::only_weir() {
        assert!(status.success(), "{status}");
    }
    client.read_to_end();
}
