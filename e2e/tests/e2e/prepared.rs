//! Named prepared statements while the servers behind a client change.
//!
//! A client must see the same as with PostgreSQL itself. Debian's PgBouncer does not support names
//! in transaction mode. With it, the tests run in session mode, in which PostgreSQL answers.

mod errors;
mod renewed;
mod schema;

use crate::support;
use testkit::{Flavour, Message, Pooler, Postgres, RawClient, flavour, frontend};

/// Returns a pooler in transaction mode with `servers` servers.
fn pooler(servers: u32) -> (Pooler, String) {
    let ours = flavour() == Flavour::Weir;
    let (mode, servers) = if ours { ("transaction", servers) } else { ("session", 20) };
    let (setup, database) = support::setup(mode);
    (setup.set("default_pool_size", servers).workers(2).start(), database)
}

/// Parses a named statement and checks the answers.
#[track_caller]
fn prepare(client: &mut RawClient, name: &str, sql: &str) {
    client.send([frontend::parse(name, sql), frontend::sync()].concat());
    assert_eq!(tags(&client.read_to_ready()), "1Z");
}

/// Runs a named statement and returns its only value.
#[track_caller]
fn run(client: &mut RawClient, name: &str, parameters: &[Option<&str>]) -> String {
    let messages = try_run(client, name, parameters);
    let row = messages.iter().find(|m| m.tag == b'D').unwrap_or_else(|| panic!("{messages:?}"));
    row.row().pop().flatten().expect("a value")
}

#[track_caller]
fn try_run(client: &mut RawClient, name: &str, parameters: &[Option<&str>]) -> Vec<Message> {
    let bind = frontend::bind("", name, parameters);
    client.send([bind, frontend::execute("", 0), frontend::sync()].concat());
    client.read_to_ready()
}

fn tags(messages: &[Message]) -> String {
    messages.iter().map(|m| char::from(m.tag)).collect()
}

/// Returns the SQLSTATE of the error in `messages`.
#[track_caller]
fn code(messages: &[Message]) -> String {
    let error = messages.iter().find_map(Message::error).unwrap_or_else(|| panic!("{messages:?}"));
    assert_eq!(error.severity(), "ERROR");
    error.code().to_owned()
}

/// If statements are not tracked, they are not counted either, as in PgBouncer.
#[test]
fn statements_are_counted_where_they_are_tracked() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("max_prepared_statements", 0).start();
    let counted = || {
        let row = pooler.admin("SHOW STATS").with("database", &database);
        ["client_parse_count", "server_parse_count", "bind_count"]
            .map(|column| row.only(&format!("total_{column}")).to_owned())
    };
    let mut client = pooler.client(&database);
    for name in ["", "mine"] {
        client.rows("BEGIN");
        prepare(&mut client, name, "SELECT $1::int + 1");
        assert_eq!(run(&mut client, name, &[Some("41")]), "42");
        client.rows("COMMIT");
    }
    assert_eq!(counted(), ["0", "0", "0"]);
    pooler.admin("SET max_prepared_statements = 10");
    let mut client = pooler.client(&database);
    prepare(&mut client, "tracked", "SELECT $1::int + 2");
    assert_eq!(run(&mut client, "tracked", &[Some("40")]), "42");
    assert_eq!(counted(), ["1", "1", "1"]);
}

#[test]
fn in_session_mode_names_are_the_servers_own() {
    let (pooler, database) = support::pooler("session");
    let mut client = pooler.client(&database);
    prepare(&mut client, "mine", "SELECT $1::int + 1");
    assert_eq!(run(&mut client, "mine", &[Some("41")]), "42");
    assert_eq!(client.value("SELECT name FROM pg_prepared_statements"), "mine");
}

#[test]
fn clients_may_use_the_same_name_for_different_statements_core_strict() {
    let (pooler, database) = pooler(2);
    let mut clients: Vec<RawClient> = (0..12).map(|_| pooler.client(&database)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        prepare(client, "s", &format!("SELECT $1::int * 100 + {number}"));
    }
    for round in 0..10 {
        for (number, client) in clients.iter_mut().enumerate() {
            let expected = (round * 100 + number).to_string();
            assert_eq!(run(client, "s", &[Some(&round.to_string())]), expected);
        }
    }
}

#[test]
fn clients_in_parallel_get_their_own_statements_answers_core_strict() {
    let (pooler, database) = pooler(3);
    std::thread::scope(|scope| {
        for number in 0..16 {
            let (pooler, database) = (&pooler, &database);
            scope.spawn(move || {
                let mut client = pooler.client(database);
                for name in ["a", "b", "c"] {
                    prepare(&mut client, name, &format!("SELECT '{number} {name} ' || $1"));
                }
                for round in 0..60 {
                    let name = ["a", "b", "c"][round % 3];
                    let argument = round.to_string();
                    let answer = run(&mut client, name, &[Some(&argument)]);
                    assert_eq!(answer, format!("{number} {name} {round}"));
                }
            });
        }
    });
    pooler.wait_until_quiet(&database, 20);
}

#[test]
fn the_same_text_is_prepared_once_on_a_server_core() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(1);
    for _ in 0..5 {
        let mut client = pooler.client(&database);
        prepare(&mut client, "of_this_client", "SELECT 'shared'");
        assert_eq!(run(&mut client, "of_this_client", &[]), "shared");
    }
    let count = "SELECT count(*) FROM pg_prepared_statements WHERE statement = 'SELECT ''shared'''";
    assert_eq!(pooler.client(&database).value(count), "1");
}

#[test]
fn equal_texts_with_different_types_are_different_statements_strict() {
    let (pooler, database) = pooler(1);
    const INT4: u32 = 23;
    const TEXT: u32 = 25;
    let mut clients = [INT4, TEXT].map(|oid| {
        let mut client = pooler.client(&database);
        let parse = frontend::parse_typed("s", "SELECT pg_typeof($1)::text", &[oid]);
        client.send([parse, frontend::sync()].concat());
        assert_eq!(tags(&client.read_to_ready()), "1Z");
        client
    });
    assert_eq!(run(&mut clients[0], "s", &[Some("1")]), "integer");
    assert_eq!(run(&mut clients[1], "s", &[Some("1")]), "text");
}

#[test]
fn describe_tells_parameters_and_columns_on_any_server() {
    let (pooler, database) = pooler(2);
    let mut client = pooler.client(&database);
    prepare(&mut client, "s", "SELECT $1::int AS number, $2::text AS word");
    let mut holder = pooler.client(&database);
    for _ in 0..2 {
        client.send([frontend::describe_statement("s"), frontend::sync()].concat());
        let messages = client.read_to_ready();
        assert_eq!(tags(&messages), "tTZ");
        assert_eq!(messages[0].body, [0, 2, 0, 0, 0, 23, 0, 0, 0, 25]);
        assert_eq!(messages[1].columns(), ["number", "word"]);
        // Takes one server away, so that the next round may have to use the other.
        holder.rows("BEGIN");
    }
}

#[test]
fn a_closed_name_can_be_parsed_anew() {
    let (pooler, database) = pooler(1);
    let mut client = pooler.client(&database);
    prepare(&mut client, "s", "SELECT 'old'");
    client.send([frontend::close_statement("s"), frontend::sync()].concat());
    assert_eq!(tags(&client.read_to_ready()), "3Z");
    prepare(&mut client, "s", "SELECT 'new'");
    assert_eq!(run(&mut client, "s", &[]), "new");
}

#[test]
fn closing_a_name_does_not_take_it_from_another_client() {
    let (pooler, database) = pooler(1);
    let mut keeping = pooler.client(&database);
    let mut closing = pooler.client(&database);
    for client in [&mut keeping, &mut closing] {
        prepare(client, "s", "SELECT 'same text'");
    }
    closing.send([frontend::close_statement("s"), frontend::sync()].concat());
    assert_eq!(tags(&closing.read_to_ready()), "3Z");
    assert_eq!(run(&mut keeping, "s", &[]), "same text");
    assert_eq!(code(&try_run(&mut closing, "s", &[])), "26000");
}

#[test]
fn closing_an_unknown_name_is_no_error() {
    let (pooler, database) = pooler(1);
    let mut client = pooler.client(&database);
    client.send([frontend::close_statement("never"), frontend::sync()].concat());
    assert_eq!(tags(&client.read_to_ready()), "3Z");
}

#[test]
fn statements_survive_the_loss_of_their_server_core() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(1);
    let mut client = pooler.client(&database);
    prepare(&mut client, "s", "SELECT 'still ' || $1");
    for word in ["here", "there", "everywhere"] {
        assert_eq!(run(&mut client, "s", &[Some(word)]), format!("still {word}"));
        for pid in Postgres::shared().backends(&database) {
            support::terminate_and_wait(pid);
        }
        pooler.wait_for_servers(&database, 0);
    }
    assert_eq!(run(&mut client, "s", &[Some("alive")]), "still alive");
}

#[test]
fn the_unnamed_statement_belongs_to_one_request_only() {
    let (pooler, database) = pooler(1);
    let mut clients = [pooler.client(&database), pooler.client(&database)];
    for round in 0..10 {
        for (number, client) in clients.iter_mut().enumerate() {
            let sql = format!("SELECT '{number}-{round}'");
            client.send(
                [
                    frontend::parse("", &sql),
                    frontend::bind("", "", &[]),
                    frontend::execute("", 0),
                    frontend::sync(),
                ]
                .concat(),
            );
            let messages = client.read_to_ready();
            assert_eq!(tags(&messages), "12DCZ");
            assert_eq!(messages[2].row(), [Some(format!("{number}-{round}"))]);
        }
    }
}

#[test]
fn many_statements_on_one_server_all_stay_usable() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", 1).set("max_prepared_statements", 10).start();
    let mut client = pooler.client(&database);
    for number in 0..40 {
        prepare(&mut client, &format!("s{number}"), &format!("SELECT 'number {number}'"));
    }
    for _ in 0..2 {
        for number in 0..40 {
            assert_eq!(run(&mut client, &format!("s{number}"), &[]), format!("number {number}"));
        }
    }
    let count = client.value("SELECT count(*) FROM pg_prepared_statements");
    assert!(count.parse::<u32>().expect("a number") <= 10, "{count} on the server");
}
