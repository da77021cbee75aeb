//! The log: its JSON format, and the lines about unreachable servers.

use std::time::Duration;

use serde_json::Value;
use testkit::{Pooler, Postgres, RawClient, Role, eventually, frontend};

use crate::support;

const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the complete lines of the log.
fn log(pooler: &Pooler) -> String {
    let text = pooler.log();
    text[..text.rfind('\n').map_or(0, |end| end + 1)].to_owned()
}

#[test]
fn every_line_is_json_whatever_a_client_is_called_core() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let mut pooler = setup.set("log_format", "json").set("verbose", 2).start();
    assert_eq!(pooler.client(&database).value("SELECT 'served'"), "served");
    let hostile = ["a\"}\n{\"level\":\"FATAL", "back\\slash\\", "\u{1b}[2J\u{7f}\u{85}é", "\t\r"];
    for name in hostile {
        let mut client = RawClient::connect(pooler.port());
        client.send(frontend::startup(&[("user", name), ("database", name)]));
        client.read_to_end();
    }
    let objects = || -> Vec<Value> {
        let read = |line: &str| match serde_json::from_str(line) {
            Ok(Value::Object(object)) => Value::Object(object),
            other => panic!("{other:?}: {line}"),
        };
        log(&pooler).lines().map(read).collect()
    };
    for name in hostile {
        eventually("the client is in the log", PATIENCE, || {
            let is_it = |line: &Value| {
                let is_about = line["database"] == name && line["user"] == name;
                is_about && line["level"] == "WARNING" && line["connection"].is_string()
            };
            objects().iter().any(is_it).then_some(())
        });
    }
    let objects = objects();
    for line in &objects {
        for field in ["time", "level", "message"] {
            assert!(line[field].is_string(), "{field}: {line}");
        }
        assert!(line["pid"].is_u64(), "{line}");
    }
    let server = objects.iter().find(|line| {
        line["message"].as_str().is_some_and(|text| text.starts_with("new connection to server"))
    });
    let server = server.expect("a line about the server");
    assert_eq!(
        (&server["database"], &server["user"]),
        (&database.as_str().into(), &Role::APP.into())
    );

    pooler.reconfigure(|ini| ini.set("log_format", "pgbouncer"));
    pooler.signal("HUP");
    eventually("lines have PgBouncer's form", PATIENCE, || {
        drop(pooler.client(&database));
        log(&pooler)
            .lines()
            .last()
            .is_some_and(|line| line.contains("] ") && !line.starts_with('{'))
            .then_some(())
    });
}

#[test]
fn an_outage_has_one_line_when_it_begins_and_one_when_it_ends() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::start();
    let database = postgres.database();
    let setup = Pooler::before(&postgres).set("pool_mode", "transaction");
    let pooler = setup.set("server_login_retry", 1).database(&database, "").start();
    let mut client = pooler.client(&database);
    assert_eq!(client.value("SELECT 'before'"), "before");
    postgres.stop();
    pooler.wait_for_servers(&database, 0);
    client.send(frontend::query("SELECT 'after'"));
    let count = |text: &str| pooler.log().matches(text).count();
    eventually("three attempts have failed", PATIENCE, || {
        (count("closing because: connect failed") >= 3).then_some(())
    });
    assert_eq!((count(" is down: "), count(" is up again ")), (1, 0));
    postgres.launch();
    assert!(client.read_to_ready().iter().all(|message| message.error().is_none()));
    pooler.log_contains(" is up again after ");
    assert_eq!((count(" is down: "), count(" is up again ")), (1, 1));
    let log = pooler.log();
    let down = log.lines().find(|line| line.contains(" is down: ")).expect("a line");
    assert!(down.contains("(errno ") && down.contains("WARNING server "), "{down}");
}
