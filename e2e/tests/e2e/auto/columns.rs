//! A table changes outside of Weir's sight. A client that was told of the old columns meets a server
//! that has not got its statement, or has it for the new columns: it must not be given rows that it
//! would take for others, but the error that a connection of its own gives it.

use testkit::{Message, Pooler, Postgres, RawClient, Role, frontend};

use super::{pooler, switch};
use crate::support;

const TEXT: &str = "SELECT * FROM t";

/// What it is answered: tags, and an error with its SQLSTATE and words.
fn answer(client: &mut RawClient, messages: &[Vec<u8>]) -> String {
    client.send([messages.concat(), frontend::sync()].concat());
    let shown = |message: &Message| match message.error() {
        Some(error) => format!("E({} {})", error.code(), error.message()),
        None => char::from(message.tag).to_string(),
    };
    client.read_to_ready().iter().map(shown).collect()
}

fn prepare(client: &mut RawClient, name: &str) {
    let asked = [frontend::parse(name, TEXT), frontend::describe_statement(name)];
    assert_eq!(answer(client, &asked), "1tTZ");
}

fn run(client: &mut RawClient, name: &str) -> String {
    answer(client, &[frontend::bind("", name, &[]), frontend::execute("", 0)])
}

const REFUSED: &str = "E(0A000 cached plan must not change result type)Z";

/// A table, and a client that knows the columns of its statement.
fn told(size: u32) -> (Pooler, String, RawClient) {
    let (pooler, database) = pooler(size);
    Postgres::shared().sql(&database, "CREATE TABLE t (a int); INSERT INTO t VALUES (1)");
    Postgres::shared().sql(&database, "GRANT ALL ON t TO public");
    let mut client = pooler.client(&database);
    prepare(&mut client, "mine");
    assert_eq!(run(&mut client, "mine"), "2DCZ");
    (pooler, database, client)
}

fn change(database: &str) {
    Postgres::shared().sql(database, "ALTER TABLE t ALTER a TYPE bigint");
}

fn refused_and_mended(client: &mut RawClient) {
    assert_eq!(run(client, "mine"), REFUSED);
    assert_eq!(answer(client, &[frontend::close_statement("mine")]), "3Z");
    prepare(client, "mine");
    assert_eq!(run(client, "mine"), "2DCZ");
}

#[test]
fn a_server_that_has_not_got_the_statement() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database, mut client) = told(4);
    change(&database);
    let _strangers = switch(&pooler, &database);
    refused_and_mended(&mut client);

    // As with a connection of one's own.
    let (_pooler, database, _client) = told(1);
    let mut direct = Postgres::shared().superuser(&database);
    prepare(&mut direct, "mine");
    change(&database);
    refused_and_mended(&mut direct);
}

#[test]
fn a_server_that_has_it_for_the_new_columns() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database, mut client) = told(4);
    change(&database);
    let strangers = switch(&pooler, &database);
    let mut other = pooler.client(&database);
    prepare(&mut other, "theirs");
    assert_eq!(run(&mut other, "theirs"), "2DCZ");
    refused_and_mended(&mut client);
    assert_eq!(run(&mut other, "theirs"), "2DCZ");
    drop(strangers);
}

#[test]
fn in_a_transaction() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database, mut client) = told(4);
    change(&database);
    let _strangers = switch(&pooler, &database);
    client.rows("BEGIN");
    assert_eq!(run(&mut client, "mine"), REFUSED);
    let aborted =
        "E(25P02 current transaction is aborted, commands ignored until end of transaction block)";
    assert_eq!(run(&mut client, "mine"), format!("{aborted}Z"));
    client.rows("ROLLBACK");
    refused_and_mended(&mut client);
}

#[test]
fn in_the_request_that_begins_a_transaction() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database, mut client) = told(4);
    let begin = || {
        [frontend::parse("", "BEGIN"), frontend::bind("", "", &[]), frontend::execute("", 0)]
            .concat()
    };
    let uses = || [frontend::bind("", "mine", &[]), frontend::execute("", 0)].concat();
    let _strangers = switch(&pooler, &database);
    assert_eq!(answer(&mut client, &[begin(), uses()]), "12C2DCZ");
    client.rows("COMMIT");
    change(&database);
    let _more = switch(&pooler, &database);
    assert_eq!(answer(&mut client, &[begin(), uses()]), format!("12C{REFUSED}"));
    client.rows("ROLLBACK");
    refused_and_mended(&mut client);
}

#[test]
fn an_unchanged_table_is_read_on_every_server() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database, mut client) = told(8);
    let mut strangers = Vec::new();
    for _ in 0..3 {
        strangers.push(switch(&pooler, &database));
        assert_eq!(run(&mut client, "mine"), "2DCZ");
        client.rows("BEGIN");
        assert_eq!(run(&mut client, "mine"), "2DCZ");
        client.rows("COMMIT");
    }
}

/// The client was told the columns by one server, and meets another that has the statement, of which
/// nobody has asked what it returns; and by then the text would mean something else to the client.
#[test]
fn a_server_on_which_nobody_has_described_it() {
    if !support::only_weir() {
        return;
    }
    let role = format!("ROLE = {}", Role::APP);
    for setting in
        ["timezone = 'Asia/Tokyo'", "search_path = pg_catalog", "datestyle = german", &role]
    {
        for (mode, set) in [
            ("auto", "SET"),
            ("auto", "BEGIN; SET"),
            ("auto", "BEGIN; SET LOCAL"),
            ("transaction", "BEGIN; SET LOCAL"),
        ] {
            let (setup, database) = support::setup(mode);
            let pooler = setup.workers(1).set("default_pool_size", 2).start();
            let [mut client, mut other] = [(); 2].map(|()| pooler.client(&database));
            let parse = frontend::parse("s1", "select 1 where 1=$1");
            assert_eq!(answer(&mut client, &[parse]), "1Z");
            other.rows("BEGIN");
            let run = run_described("s1");
            assert_eq!(answer(&mut client, &run), "2TDCZ", "{setting}");
            other.rows("ROLLBACK");
            client.rows(&format!("{set} {setting}"));
            for _ in 0..2 {
                assert_eq!(answer(&mut client, &run), "2TDCZ", "{mode}: {set} {setting}");
            }
        }
    }
}

/// The servers are replaced, another client prepares the text on the new one, and then the name of
/// a temporary table can change the meaning of any text.
#[test]
fn a_new_server_on_which_another_client_has_prepared_it() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(1);
    let [mut client, mut other] = [(); 2].map(|()| pooler.client(&database));
    let parse = frontend::parse("s1", "select 1 where 1=$1");
    let run = run_described("s1");
    assert_eq!(answer(&mut client, std::slice::from_ref(&parse)), "1Z");
    assert_eq!(answer(&mut client, &run), "2TDCZ");
    pooler.admin("RECONNECT");
    assert_eq!(answer(&mut other, &[parse]), "1Z");
    client.rows("CREATE TEMP TABLE mine (a int)");
    for _ in 0..2 {
        assert_eq!(answer(&mut client, &run), "2TDCZ");
    }
}

fn run_described(name: &str) -> [Vec<u8>; 3] {
    let bind = frontend::bind("", name, &[Some("1")]);
    [bind, frontend::describe_portal(""), frontend::execute("", 0)]
}
