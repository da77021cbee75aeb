//! Protocols 3.0, 3.2 and a future one, with the installed PostgreSQL and PostgreSQL 18.

use std::process::Stdio;

use crate::relay::{Cut, Relay};
use crate::support;
use testkit::{Pooler, Postgres, RawClient, Role, Version, frontend};

/// Much longer than a test waits.
const LONG: &str = "SELECT pg_sleep(60)";
/// Length of the keys of protocol 3.2, in bytes, in PostgreSQL 18 and in Weir.
const LONG_KEY: usize = 32;

fn servers() -> [&'static Postgres; 2] {
    [Postgres::shared(), Postgres::shared_v18()]
}

fn pooler_before(postgres: &Postgres, mode: &str) -> (Pooler, String) {
    let database = postgres.database();
    let setup = Pooler::before(postgres).set("pool_mode", mode).database(&database, "");
    (setup.start(), database)
}

#[test]
fn every_minor_version_logs_in_queries_and_cancels_core() {
    if !support::only_weir() {
        return;
    }
    for (postgres, mode) in servers().into_iter().zip(["transaction", "session"]) {
        let (pooler, database) = pooler_before(postgres, mode);
        for (minor, key_length, negotiated) in
            [(0, 4, false), (2, LONG_KEY, false), (9999, LONG_KEY, true)]
        {
            let mut client = RawClient::connect(pooler.port());
            client.minor = minor;
            let startup = [("user", Role::APP), ("database", &*database)];
            let welcome = client.authenticate(&startup, "").expect("a login");
            let answers: Vec<_> = welcome.iter().filter(|m| m.tag == b'v').collect();
            assert_eq!(answers.len(), usize::from(negotiated), "3.{minor}: {welcome:?}");
            assert!(answers.iter().all(|m| m.body == [0, 3, 0, 2, 0, 0, 0, 0]), "{answers:?}");
            assert_eq!(client.secret.len(), key_length, "3.{minor}");
            assert_eq!(client.value("SELECT 'in'"), "in");

            client.send(frontend::query(LONG));
            support::until_running_at(postgres, &database, LONG);
            // A key that differs in a single bit must not cancel the query.
            let mut guess = client.secret.clone();
            *guess.last_mut().expect("a key") ^= 1;
            let mut stranger = RawClient::connect(pooler.port());
            stranger.send(frontend::cancel_request(client.pid, &guess));
            assert!(stranger.read_to_end().is_empty());
            support::until_running_at(postgres, &database, LONG);
            client.cancel(pooler.port());
            let replies = client.read_to_ready();
            let error = replies.iter().find_map(testkit::Message::error).expect("an error");
            assert_eq!(error.code(), "57014", "3.{minor}");
            assert_eq!(client.value("SELECT 'usable'"), "usable");
        }
    }
}

#[test]
fn servers_are_asked_for_3_2_and_their_keys_are_used() {
    if !support::only_weir() {
        return;
    }
    for (postgres, key_length) in servers().into_iter().zip([4, LONG_KEY]) {
        let relay = Relay::before(postgres.port());
        let database = postgres.database();
        let pooler = Pooler::before(postgres).database_at(&database, &relay.connection()).start();
        // The relay passes the negotiation on byte by byte, and the answer to the query in two
        // parts.
        relay.cut(Cut::Pieces(1));
        let mut client = pooler.client(&database);
        let [asked, answered] = relay.passed();
        assert_eq!(asked[4..8], [0, 3, 0, 2]);
        let negotiated = answered[0] == b'v';
        assert_eq!(negotiated, key_length == 4, "{}", answered.escape_ascii());

        relay.cut(Cut::Behind(3));
        client.send(frontend::query(LONG));
        support::until_running_at(postgres, &database, LONG);
        client.cancel(pooler.port());
        let replies = client.read_to_ready();
        assert!(replies.iter().any(|m| m.error().is_some_and(|e| e.code() == "57014")));
        let [sent, _] = relay.passed();
        let request = &sent[frontend::query(LONG).len()..];
        assert_eq!(request.len(), 12 + key_length, "{}", request.escape_ascii());
    }
}

#[test]
fn psql_18_uses_the_protocol_version_it_is_given() {
    if !support::only_weir() {
        return;
    }
    for postgres in servers() {
        let (pooler, database) = pooler_before(postgres, "transaction");
        for version in ["3.0", "3.2"] {
            let psql = || {
                let name = Version::Eighteen;
                let mut psql = Postgres::client_program_of(name, "psql", pooler.port(), &database);
                psql.env_remove("PGDATABASE").args(["-X", "-A", "-t", "-d"]).arg(format!(
                    "dbname={database} min_protocol_version={version} \
                     max_protocol_version={version}"
                ));
                psql
            };
            let shown = support::run(psql().args(["-c", "\\conninfo", "-c", "SELECT 'in'"]));
            assert!(shown.contains(&format!("Protocol Version|{version}")), "{shown}");
            assert!(shown.ends_with("in\n"), "{shown}");

            let waiting = psql()
                .args(["-c", LONG])
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .expect("psql starts");
            support::until_running_at(postgres, &database, LONG);
            support::interrupt(waiting.id());
            let ended = waiting.wait_with_output().expect("our own child");
            let words = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert!(words.contains("canceling statement due to user request"), "{words}");
        }
    }
}
