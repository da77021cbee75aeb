//! A scripted incident: idle transactions block both servers of a pool, then PostgreSQL is
//! restarted. Every view for operators must name the client that caused it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output};
use std::time::Duration;

use testkit::{Pooler, Postgres, RawClient, Role, eventually, free_port, frontend, pooler_binary};

use crate::support;

const PATIENCE: Duration = Duration::from_secs(30);
/// The application name of the client. A client may choose any name.
const CULPRIT: &str = "<script>alert('web-0')</script>";
const ESCAPED: &str = "&lt;script&gt;alert(&#39;web-0&#39;)&lt;/script&gt;";

fn report(pooler: &Pooler, arguments: &[&str]) -> Output {
    let mut command = Command::new(pooler_binary());
    command.arg("report").arg("-c").arg(pooler.configuration()).args(arguments);
    for variable in ["PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGPASSFILE", "PGSSLMODE"] {
        command.env_remove(variable);
    }
    support::run_any(command.env("HOME", "/nonexistent"))
}

fn page(pooler: &Pooler) -> String {
    let out = report(pooler, &[]);
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout).expect("UTF-8")
}

/// Returns the part of a page that begins with the heading of a SHOW command.
fn part<'a>(page: &'a str, show: &str) -> &'a str {
    let begin = page.find(&format!(">SHOW {show}<")).expect("the heading");
    let rest = &page[begin..];
    &rest[..rest.find("<h2").unwrap_or(rest.len())]
}

fn metrics(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a listener");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}

/// Returns a client with this name that is idle in a transaction.
fn idle_in_transaction(pooler: &Pooler, database: &str, name: &str) -> RawClient {
    let mut client = pooler.client(database);
    client.rows(&format!("SET application_name = $n${name}$n$"));
    client.rows("BEGIN");
    client.rows("SELECT 'the last query of the culprit'");
    client
}

#[test]
fn every_view_names_the_client_that_blocks_a_pool_core() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::start();
    let (database, port) = (postgres.database(), free_port());
    let setup = Pooler::before(&postgres).set("pool_mode", "transaction").workers(1);
    let setup = setup.set("default_pool_size", 2).set("query_wait_timeout", 2);
    let setup = setup.set("error_codes", "weir").set("server_login_retry", 1);
    let setup = setup.set("metrics_port", port);
    let pooler = setup.database(&database, "").start();
    let mut culprits = [CULPRIT, "web-1"].map(|name| idle_in_transaction(&pooler, &database, name));
    let mut waiting = pooler.client(&database);
    waiting.send(frontend::query("SELECT 1"));
    support::until_waiting(&pooler, &database, 1);

    let waits = pooler.admin("SHOW WAITS").with("application_name", CULPRIT);
    assert_eq!(waits.only("activity"), "idle in transaction");
    let pool = format!("database=\"{database}\",user=\"{}\"", Role::APP);
    eventually("the metrics show who waits", PATIENCE, || {
        metrics(port).contains(&format!("weir_pool_waiting_clients{{{pool}}} 1\n")).then_some(())
    });
    let during = page(&pooler);
    assert!(part(&during, "WAITS").contains(ESCAPED), "{during}");

    let said = waiting.read_to_end();
    let error = said.iter().rev().find_map(testkit::Message::error).expect("an error");
    assert!(error.field('D').contains(CULPRIT), "{error:?}");
    eventually("the flight recorder has a second with a wait and an error", PATIENCE, || {
        let recorder = pooler.admin("SHOW RECORDER").with("database", &database);
        let waited = recorder.with("waiting", "1").with("in_transaction", "2");
        let failed = recorder.with("errors", "1");
        (!waited.rows.is_empty() && !failed.rows.is_empty()).then_some(())
    });

    culprits[0].rows("COMMIT");
    // The slowest transaction comes first. The one with the SET may have been slow as well.
    let slow = pooler.admin("SHOW SLOW").with("application_name", &CULPRIT[..24]);
    let first = |column: &str| slow.column(column)[0];
    let micros = |column: &str| first(column).parse::<u64>().expect("a number");
    assert!(micros("duration_us") > 2_000_000 && micros("busy_us") < micros("duration_us"));
    assert_eq!((first("end"), first("database")), ("complete", database.as_str()));
    assert_eq!(first("fingerprint").len(), 16);

    let mut late = pooler.client(&database);
    postgres.stop();
    pooler.wait_for_servers(&database, 0);
    late.send(frontend::query("SELECT 'after'"));
    pooler.log_contains(" is down: ");
    postgres.launch();
    assert!(late.read_to_ready().iter().all(|message| message.error().is_none()));
    pooler.signal("HUP");
    eventually("the events are there", PATIENCE, || {
        let events = pooler.admin("SHOW EVENTS");
        let kinds =
            ["start", "client error", "server failed", "server down", "server up", "reload"];
        kinds.iter().all(|kind| !events.with("event", kind).rows.is_empty()).then_some(())
    });
    let cut = pooler.admin("SHOW SLOW").with("end", "cut");
    assert_eq!(cut.only("application_name"), "web-1", "its server was lost");
    assert!(cut.only("busy_us").parse::<u64>().expect("a number") < 2_000_000, "{cut:?}");

    let file = pooler.configuration().with_file_name("incident.html");
    let out = report(&pooler, &["-o", &file.to_string_lossy()]);
    assert!(out.status.success() && out.stdout.is_empty(), "{out:?}");
    let after = std::fs::read_to_string(&file).expect("the page");
    assert!(part(&after, "SLOW").contains(&ESCAPED[..40]), "{after}");
    let events = part(&after, "EVENTS");
    for event in ["query_wait_timeout", "server down", "server up", "reload"] {
        assert!(events.contains(event), "{event}: {events}");
    }
    assert!(after.contains(&format!("<h3>{database}/{}</h3>", Role::APP)), "a plot of the pool");
    well_formed(&after);
}

/// Checks that all elements are properly nested and none comes from a client.
fn well_formed(page: &str) {
    assert!(page.starts_with("<!DOCTYPE html>\n"), "{page}");
    let mut open: Vec<&str> = Vec::new();
    for tag in page.split('<').skip(2) {
        let (tag, _) = tag.split_once('>').expect("the end of a tag");
        let name = tag.split([' ', '>']).next().unwrap_or_default();
        match name.strip_prefix('/') {
            Some(closed) => assert_eq!(open.pop(), Some(closed), "in {tag}"),
            None if name != "meta" => open.push(name),
            None => {}
        }
    }
    assert!(open.is_empty(), "{open:?}");
    assert!(!page.contains("<script"));
}
