//! Pipelines of every shape, with the same messages as from PostgreSQL itself.
//!
//! Each script is sent to PostgreSQL and to the pooler, and the answers are compared. Meanwhile
//! another client uses the same server in turn, so that a reply that is left over or lost would
//! show.

mod copy;

use crate::support;
use testkit::{Flavour, Message, Pooler, Postgres, RawClient, flavour, frontend};

/// A step of a script.
enum Step {
    /// Bytes sent in one write.
    Send(Vec<u8>),
    /// Reads messages until this many of this type have come.
    Read(u8, usize),
}

use Step::{Read, Send};

/// Reads until ReadyForQuery has come `count` times.
const fn ready(count: usize) -> Step {
    Read(b'Z', count)
}

fn send(messages: &[Vec<u8>]) -> Step {
    Send(messages.concat())
}

/// Plays `script` and returns all answers.
fn play(client: &mut RawClient, script: &[Step]) -> Vec<Message> {
    let mut messages = Vec::new();
    for step in script {
        match step {
            Send(bytes) => client.send(bytes),
            Read(tag, count) => {
                let mut left = *count;
                messages.extend(client.read_until(|message| {
                    left -= usize::from(message.tag == *tag);
                    left == 0
                }));
            }
        }
    }
    messages
}

/// Plays `script` directly, then pooled in each mode that supports it, and compares the answers.
#[track_caller]
fn assert_same(script: &[Step]) {
    assert_same_in(&["session", "transaction"], script);
}

#[track_caller]
fn assert_same_in(modes: &[&str], script: &[Step]) {
    let postgres = Postgres::shared();
    let database = postgres.database();
    support::direct(&database).rows("CREATE TABLE t (n int PRIMARY KEY, word text)");
    let play_afresh = |client: &mut RawClient| {
        support::direct(&database).rows(CONTENT);
        play(client, script)
    };
    let expected = play_afresh(&mut support::direct(&database));
    for mode in modes {
        // Before 1.21 PgBouncer did not count pending replies, and released servers too early.
        if flavour() == Flavour::PgBouncer && *mode != "session" {
            continue;
        }
        // In session mode each of the three clients keeps its server.
        let servers = if *mode == "session" { 3 } else { 1 };
        let pooler = Pooler::before(postgres)
            .set("pool_mode", mode)
            .set("default_pool_size", servers)
            .database(&database, "")
            .start();
        let mut client = pooler.client(&database);
        let mut other = pooler.client(&database);
        assert_eq!(play_afresh(&mut client), expected, "{mode}");
        assert_eq!(other.value("SELECT 'other'"), "other", "{mode}");
        assert_eq!(client.value("SELECT 'same'"), "same", "{mode}");
        assert_eq!(pooler.client(&database).value("SELECT 'next'"), "next", "{mode}");
    }
}

const CONTENT: &str = "TRUNCATE t; INSERT INTO t VALUES (1, 'one'), (2, 'two')";

/// Returns Parse, Bind, Describe and Execute of the unnamed statement.
fn extended(sql: &str, parameters: &[Option<&str>]) -> Vec<u8> {
    [
        frontend::parse("", sql),
        frontend::bind("", "", parameters),
        frontend::describe_portal(""),
        frontend::execute("", 0),
    ]
    .concat()
}

#[test]
fn several_executes_before_one_sync() {
    assert_same(&[
        send(&[
            extended("SELECT $1::int", &[Some("1")]),
            extended("INSERT INTO t VALUES ($1, $2)", &[Some("3"), None]),
            extended("SELECT * FROM t ORDER BY n", &[]),
            frontend::sync(),
        ]),
        ready(1),
    ]);
}

#[test]
fn several_syncs_in_one_write() {
    assert_same(&[
        send(&[
            extended("SELECT 1", &[]),
            frontend::sync(),
            extended("SELECT 2", &[]),
            frontend::sync(),
            frontend::sync(),
            extended("SELECT 3", &[]),
            frontend::sync(),
        ]),
        ready(4),
    ]);
}

#[test]
fn flush_brings_replies_before_the_sync() {
    assert_same(&[
        send(&[extended("SELECT 'early'", &[]), frontend::flush()]),
        Read(b'C', 1),
        send(&[extended("SELECT 'late'", &[]), frontend::sync()]),
        ready(1),
    ]);
}

#[test]
fn an_error_skips_to_the_sync_and_no_further() {
    assert_same(&[
        send(&[
            extended("SELECT 'before'", &[]),
            extended("SELECT 1/0", &[]),
            extended("SELECT 'skipped'", &[]),
            frontend::sync(),
            extended("SELECT 'after'", &[]),
            frontend::sync(),
        ]),
        ready(2),
    ]);
}

#[test]
fn an_error_after_a_flush_skips_what_comes_in_a_later_write() {
    assert_same(&[
        send(&[extended("SELECT 1/0", &[]), frontend::flush()]),
        Read(b'E', 1),
        send(&[extended("SELECT 'skipped'", &[]), frontend::flush()]),
        send(&[extended("SELECT 'skipped too'", &[]), frontend::sync()]),
        ready(1),
        send(&[extended("SELECT 'after'", &[]), frontend::sync()]),
        ready(1),
    ]);
}

#[test]
fn an_error_in_each_of_several_pipelines_core() {
    assert_same(&[
        send(&[
            extended("SELECT 1/0", &[]),
            frontend::sync(),
            extended("SELECT nothing", &[]),
            frontend::sync(),
            extended("SELECT 'fine'", &[]),
            frontend::sync(),
            extended("SELEC", &[]),
            frontend::sync(),
        ]),
        ready(4),
    ]);
}

#[test]
fn a_transaction_over_several_syncs_core() {
    assert_same(&[
        send(&[extended("BEGIN", &[]), frontend::sync()]),
        ready(1),
        send(&[extended("INSERT INTO t VALUES (7, 'seven')", &[]), frontend::sync()]),
        ready(1),
        send(&[extended("INSERT INTO t VALUES (1, 'again')", &[]), frontend::sync()]),
        ready(1),
        send(&[extended("SELECT 1", &[]), frontend::sync(), frontend::query("ROLLBACK")]),
        ready(2),
        send(&[frontend::query("SELECT count(*) FROM t")]),
        ready(1),
    ]);
}

#[test]
fn a_simple_query_in_the_middle_of_a_pipeline() {
    assert_same(&[
        send(&[
            extended("SELECT 'extended'", &[]),
            frontend::query("SELECT 'simple'"),
            extended("SELECT 'extended again'", &[]),
            frontend::sync(),
        ]),
        ready(2),
    ]);
}

#[test]
fn a_simple_query_after_an_error_is_skipped_like_the_rest() {
    // PgBouncer waits forever for the answer to the skipped query.
    let modes: &[&str] = if support::only_weir() { &["session", "transaction"] } else { &[] };
    assert_same_in(
        modes,
        &[
            send(&[
                extended("SELECT 1/0", &[]),
                frontend::query("SELECT 'simple'"),
                extended("SELECT 'skipped'", &[]),
                frontend::sync(),
            ]),
            ready(1),
            send(&[frontend::query("SELECT 'after'")]),
            ready(1),
        ],
    );
}

#[test]
fn several_simple_queries_in_one_write() {
    assert_same_in(
        &["session", "transaction", "statement"],
        &[
            send(&[
                frontend::query("SELECT 1"),
                frontend::query("SELECT 1/0"),
                frontend::query("SELECT 2; SELECT 3"),
                frontend::query(""),
            ]),
            ready(4),
        ],
    );
}

#[test]
fn a_portal_read_in_portions_core() {
    assert_same(&[
        send(&[
            frontend::parse("", "SELECT * FROM generate_series(1, 5)"),
            frontend::bind("cursor", "", &[]),
            frontend::execute("cursor", 2),
            frontend::execute("cursor", 2),
            frontend::describe_portal("cursor"),
            frontend::execute("cursor", 2),
            frontend::close_portal("cursor"),
            frontend::sync(),
        ]),
        ready(1),
    ]);
}

#[test]
fn statements_named_described_closed_and_parsed_again() {
    assert_same_in(
        prepared_modes(),
        &[
            send(&[
                frontend::parse("s", "SELECT $1::int AS n"),
                frontend::describe_statement("s"),
                frontend::bind("", "s", &[Some("5")]),
                frontend::execute("", 0),
                frontend::close_statement("s"),
                frontend::parse("s", "SELECT 'new'"),
                frontend::bind("", "s", &[]),
                frontend::execute("", 0),
                frontend::sync(),
            ]),
            ready(1),
            send(&[
                frontend::parse("s", "SELECT 'duplicate'"),
                frontend::sync(),
                frontend::bind("", "unknown", &[]),
                frontend::execute("", 0),
                frontend::sync(),
                frontend::bind("", "s", &[]),
                frontend::execute("", 0),
                frontend::sync(),
            ]),
            ready(3),
        ],
    );
}

/// Returns the modes with named statements. Debian's PgBouncer supports them in session mode only.
fn prepared_modes() -> &'static [&'static str] {
    if support::only_weir() { &["session", "transaction"] } else { &["session"] }
}

#[test]
fn a_pipeline_of_a_thousand_statements() {
    let mut messages = Vec::new();
    for number in 0..1000 {
        messages.push(extended("SELECT $1::int * 2", &[Some(&number.to_string())]));
        if number % 7 == 0 {
            messages.push(frontend::sync());
        }
    }
    messages.push(frontend::sync());
    assert_same(&[send(&messages), ready(144)]);
}

#[test]
fn a_pipeline_written_in_small_pieces() {
    let whole = [
        extended("SELECT $1::text", &[Some("split anywhere")]),
        frontend::sync(),
        frontend::query("SELECT 1"),
        extended("SELECT 1/0", &[]),
        frontend::sync(),
    ]
    .concat();
    for size in [1, 2, 3, 5, 7, 11] {
        let mut script: Vec<Step> = whole.chunks(size).map(|piece| Send(piece.to_vec())).collect();
        script.push(ready(3));
        assert_same_in(&["transaction"], &script);
    }
}

#[test]
fn function_calls_core() {
    const INT4_PLUS: u32 = 177;
    const INT4_DIV: u32 = 154;
    assert_same(&[
        send(&[
            frontend::function_call(INT4_PLUS, &["40", "2"]),
            frontend::function_call(INT4_DIV, &["1", "0"]),
            frontend::query("SELECT 'after'"),
        ]),
        ready(3),
    ]);
}

#[test]
fn notices_and_changed_parameters_arrive_in_their_place() {
    assert_same(&[
        send(&[
            extended("SET client_min_messages = 'notice'", &[]),
            extended("DO $$ BEGIN RAISE NOTICE 'in between'; END $$", &[]),
            extended("SET datestyle = 'German'", &[]),
            frontend::sync(),
            frontend::query("SELECT '2024-02-01'::date"),
        ]),
        ready(2),
    ]);
}
