//! What a name of a prepared statement stands for behind DEALLOCATE and Close, and in a failed
//! transaction: as on a connection of one's own.

use testkit::{RawClient, frontend};

use super::{pooler, switch};
use crate::support;

/// What is sent at once.
type Request = Vec<u8>;

fn parse(name: &str, sql: &str) -> Request {
    [frontend::parse(name, sql), frontend::sync()].concat()
}

fn run(name: &str) -> Request {
    [frontend::bind("", name, &[]), frontend::execute("", 0), frontend::sync()].concat()
}

fn run_text(sql: &str) -> Request {
    [frontend::parse("", sql), run("")].concat()
}

fn describe(name: &str) -> Request {
    [frontend::describe_statement(name), frontend::sync()].concat()
}

fn close(name: &str) -> Request {
    [frontend::close_statement(name), frontend::sync()].concat()
}

fn query(sql: &str) -> Request {
    frontend::query(sql)
}

/// The answers, and of errors code and text.
fn answers(client: &mut RawClient, request: &Request) -> Vec<String> {
    client.send(request.clone());
    // One for each Sync and Query; none of these letters stands in the bodies of what is sent.
    let mut rest = &request[..];
    let mut ends = 0;
    while let [tag, a, b, c, d, ..] = *rest {
        ends += usize::from(matches!(tag, b'S' | b'Q'));
        rest = &rest[1 + u32::from_be_bytes([a, b, c, d]) as usize..];
    }
    let messages: Vec<_> = (0..ends).flat_map(|_| client.read_to_ready()).collect();
    let told = messages.iter().map(|message| match message.error() {
        Some(error) => format!("{} {}", error.code(), error.message()),
        None if message.tag == b'D' => format!("D {:?}", message.row()),
        None => char::from(message.tag).to_string(),
    });
    told.collect()
}

/// Both answer alike, whatever server the client is given in between.
#[track_caller]
fn compare(scripts: &[Vec<Request>]) {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(4);
    for script in scripts {
        let mut direct = support::direct(&database);
        let mut client = pooler.client(&database);
        // In a direct pool it is told its parameters again in its first transaction.
        client.rows("SELECT 1");
        let mut in_transaction = false;
        for (step, request) in script.iter().enumerate() {
            let _held = if in_transaction { Vec::new() } else { switch(&pooler, &database) };
            let expected = answers(&mut direct, request);
            assert_eq!(answers(&mut client, request), expected, "step {step}");
            let text = String::from_utf8_lossy(request);
            in_transaction |= text.contains("BEGIN");
            in_transaction &= !text.contains("COMMIT") && !text.contains("ROLLBACK");
        }
    }
}

#[test]
fn a_name_that_was_deallocated_can_be_given_again() {
    let ways: [fn(&str) -> Request; 2] = [query, run_text];
    for deallocate in ways {
        compare(&[
            vec![
                query("BEGIN"),
                parse("a", "SELECT 1"),
                deallocate("DEALLOCATE a"),
                parse("a", "SELECT 2"),
                run("a"),
                deallocate("DEALLOCATE PREPARE \"a\""),
                run("a"),
                query("ROLLBACK"),
                parse("a", "SELECT 3"),
                run("a"),
            ],
            vec![
                parse("a", "SELECT 1"),
                parse("b", "SELECT 2"),
                [query("BEGIN"), deallocate("DEALLOCATE a"), parse("a", "SELECT 3"), run("a")]
                    .concat(),
                query("COMMIT"),
                run("a"),
                run("b"),
                query("BEGIN"),
                run("b"),
                deallocate("DEALLOCATE b"),
                query("EXECUTE a"),
                query("EXECUTE b"),
                query("ROLLBACK"),
                run("a"),
                run("b"),
            ],
        ]);
    }
    compare(&[
        vec![
            parse("a", "SELECT 1"),
            parse("b", "SELECT 2"),
            parse("c", "SELECT 3"),
            query("PREPARE d AS SELECT 4"),
            query(
                "BEGIN; DEALLOCATE d; DEALLOCATE a; SELECT 1; DEALLOCATE b; DEALLOCATE none; DEALLOCATE c",
            ),
            query("ROLLBACK"),
            parse("a", "SELECT 5"),
            parse("b", "SELECT 6"),
            run("c"),
            run("d"),
        ],
        vec![
            parse("a", "SELECT 1"),
            query("BEGIN"),
            query("DEALLOCATE a; PREPARE a AS SELECT 2"),
            query("EXECUTE a"),
            close("a"),
            parse("a", "SELECT 3"),
            run("a"),
            query("COMMIT"),
            run("a"),
        ],
    ]);
}

#[test]
fn close_closes_what_sql_has_prepared() {
    compare(&[
        vec![
            query("PREPARE a AS SELECT 1"),
            close("a"),
            query("PREPARE a AS SELECT 2"),
            query("EXECUTE a"),
            query("BEGIN"),
            close("a"),
            query("PREPARE a AS SELECT 3"),
            query("EXECUTE a"),
            query("ROLLBACK"),
            query("EXECUTE a"),
            close("a"),
            query("EXECUTE a"),
            parse("a", "SELECT 4"),
            run("a"),
        ],
        vec![
            query("BEGIN"),
            query("PREPARE a AS SELECT 1"),
            close("a"),
            parse("a", "SELECT 2"),
            run("a"),
            query("COMMIT"),
            run("a"),
        ],
    ]);
}

#[test]
fn close_closes_what_sql_has_used() {
    let used = |name: &str| [query("BEGIN"), parse(name, "SELECT 1"), query("EXECUTE a")];
    let behind = [
        vec![close("a"), query("PREPARE a AS SELECT 2"), query("EXECUTE a"), query("COMMIT")],
        vec![close("a"), parse("a", "SELECT 3"), query("EXECUTE a"), query("COMMIT")],
        vec![close("a"), query("EXECUTE a"), query("ROLLBACK")],
        // The Close is discarded.
        vec![
            [frontend::bind("", "none", &[]), close("a")].concat(),
            query("ROLLBACK"),
            query("EXECUTE a"),
            run("a"),
        ],
    ];
    let scripts = behind.map(|behind| {
        let end = [query("EXECUTE a"), close("a"), parse("a", "SELECT 4"), run("a")];
        [&used("a")[..], &behind, &end].concat()
    });
    compare(&scripts);
}

#[test]
fn in_a_failed_transaction_a_statement_answers_as_postgresql_does() {
    let all = [
        ("select", "SELECT 1"),
        ("insert", "DELETE FROM pg_class WHERE false"),
        ("set", "SET work_mem = '5MB'"),
        ("commit", "COMMIT"),
    ];
    for (name, sql) in all {
        compare(&[vec![
            parse(name, sql),
            query("BEGIN"),
            query("SELECT 1/0"),
            run(name),
            query("ROLLBACK"),
        ]]);
    }
    compare(&[vec![
        parse("a", "SELECT 1"),
        query("BEGIN"),
        query("SELECT 1/0"),
        describe("a"),
        query("ROLLBACK"),
    ]]);
    compare(&[vec![
        query("BEGIN"),
        query("SELECT 1/0"),
        describe("none"),
        run("none"),
        query("ROLLBACK"),
    ]]);
}
