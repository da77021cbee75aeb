//! The scripts, as bytes. Every script leaves its connection and the tables as it found them,
//! except for rows in `sink`. Those that do not close the connection end with the same query.

use testkit::frontend::{
    bind, close_portal, close_statement, copy_data, copy_done, copy_fail, describe_portal,
    describe_statement, execute, flush, function_call, message, parse, query, sync, terminate,
};

/// The value that the last query of a script returns.
pub(super) const END: &str = "end of script";

/// `int4abs(int4)` and `int4div(int4, int4)`.
const ABS: u32 = 1397;
const DIV: u32 = 154;
const LONG: usize = 100_000;

#[derive(Debug)]
pub(super) struct Script {
    pub(super) name: &'static str,
    needs: Needs,
    pub(super) bytes: Vec<u8>,
    /// True if the script ends with the end of the connection.
    pub(super) closes: bool,
}

/// The scope in which a script needs one server, so that its replies are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Needs {
    Statement,
    Transaction,
    Session,
}
use Needs::{Session, Statement, Transaction};

/// Returns the scripts whose replies must be the same in this mode.
pub(super) fn for_mode(mode: &str) -> Vec<Script> {
    let kept = match mode {
        "statement" => Statement,
        "transaction" => Transaction,
        _ => Session,
    };
    let groups = [queries(), extended(), statements(), names(), copies(), calls(), transactions()];
    let all = groups.into_iter().chain([session(), settings(), malformed(), closing()]);
    all.flatten().filter(|script| script.needs <= kept).collect()
}

fn script(name: &'static str, needs: Needs, messages: &[Vec<u8>]) -> Script {
    let end = query(&format!("SELECT '{END}'"));
    Script { name, needs, bytes: [&messages.concat()[..], &end].concat(), closes: false }
}

fn queries() -> Vec<Script> {
    let long = format!("SELECT length('{}')", "x".repeat(LONG));
    vec![
        script("a simple query", Statement, &[query("SELECT n, s FROM t ORDER BY n")]),
        script("two queries in a row", Statement, &[query("SELECT 1"), query("SELECT NULL")]),
        script(
            "several statements",
            Statement,
            &[query("SELECT 1; SELECT 2 WHERE false; SHOW port")],
        ),
        script("nothing", Statement, &[query(""), query(" ; ;")]),
        script(
            "errors",
            Statement,
            &[query("SELECT 1/0"), query("SELEKT"), query("SELECT 1; SELECT 1/0; SELECT 3")],
        ),
        script(
            "notices",
            Statement,
            &[query("DO $$ BEGIN RAISE NOTICE 'heed'; RAISE WARNING 'hear'; END $$")],
        ),
        script("a long query", Statement, &[query(&long)]),
        script("a long row", Statement, &[query(&format!("SELECT repeat('x', {LONG})"))]),
        script("rows that look like messages", Statement, &[query("SELECT repeat('ZEDC', 50)")]),
    ]
}

fn extended() -> Vec<Script> {
    let row = |text| [parse("", "SELECT $1::text"), bind("", "", &[text]), execute("", 0)].concat();
    let all = [
        parse("", "SELECT n FROM t WHERE n > $1::int ORDER BY n"),
        bind("", "", &[Some("1")]),
        describe_portal(""),
    ];
    vec![
        script("one of the extended protocol", Statement, &[row(Some("x")), sync()]),
        script(
            "many before one Sync",
            Statement,
            &[row(Some("a")), row(None), row(Some("")), sync()],
        ),
        script("many Syncs", Statement, &[row(Some("a")), sync(), sync(), row(Some("b")), sync()]),
        script(
            "Describe",
            Statement,
            &[
                parse("", "SELECT $1::int, s FROM t"),
                describe_statement(""),
                parse("", "CREATE TEMP TABLE never ()"),
                describe_statement(""),
                sync(),
            ],
        ),
        script(
            "Flush",
            Statement,
            &[flush(), all[0].clone(), flush(), all[1..].concat(), flush(), execute("", 0), sync()],
        ),
        script(
            "rows in portions",
            Statement,
            &[all.concat(), execute("", 2), execute("", 1), execute("", 9), sync()],
        ),
        script(
            "an error within a pipeline",
            Statement,
            &[
                row(Some("before")),
                parse("", "SELECT 1/$1::int"),
                bind("", "", &[Some("0")]),
                execute("", 0),
                row(Some("skipped")),
                flush(),
                sync(),
                row(Some("behind")),
                sync(),
            ],
        ),
        script("no such portal", Statement, &[execute("none", 0), describe_portal("x"), sync()]),
        script(
            "an empty one",
            Statement,
            &[parse("", ""), bind("", "", &[]), execute("", 0), sync()],
        ),
    ]
}

fn statements() -> Vec<Script> {
    let use_it = [bind("", "named", &[Some("7")]), execute("", 0)].concat();
    vec![
        script(
            "a named statement",
            Statement,
            &[
                parse("named", "SELECT $1::int + 1"),
                sync(),
                describe_statement("named"),
                use_it.clone(),
                sync(),
                use_it.clone(),
                use_it.clone(),
                sync(),
                close_statement("named"),
                sync(),
                use_it.clone(),
                sync(),
            ],
        ),
        script(
            "a name twice",
            Statement,
            &[
                parse("named", "SELECT $1::int + 1"),
                sync(),
                parse("named", "SELECT $1::int + 2"),
                sync(),
                use_it.clone(),
                sync(),
                close_statement("named"),
                parse("named", "SELECT $1::int + 3"),
                use_it.clone(),
                close_statement("named"),
                sync(),
            ],
        ),
        script(
            "a known text behind what is not answered yet",
            Statement,
            &[
                parse("named", "SELECT $1::int + 1"),
                sync(),
                parse("", "SELECT 1"),
                bind("", "", &[]),
                execute("", 0),
                parse("another", "SELECT $1::int + 1"),
                close_statement("named"),
                close_statement("another"),
                sync(),
            ],
        ),
        script(
            "a Parse that fails",
            Statement,
            &[parse("named", "SELECT $1::none"), use_it, sync()],
        ),
        script(
            "no such statement",
            Statement,
            &[
                describe_statement("none"),
                sync(),
                bind("", "none", &[]),
                sync(),
                close_statement("none"),
                close_portal("none"),
                sync(),
            ],
        ),
    ]
}

/// Scripts that use one text under two names.
fn names() -> Vec<Script> {
    let used = |name| [bind("", name, &[]), execute("", 0)].concat();
    let failing = [parse("", "SELECT 1 / 0"), used("")].concat();
    // A batch fails before it changes a name; then the name is used.
    let after_a_failure = |name, skipped: &[Vec<u8>]| {
        let prepared = [parse("a", "SELECT 'first'"), sync()].concat();
        let batches = [failing.clone(), skipped.concat(), sync(), used("a"), sync()].concat();
        script(name, Statement, &[prepared, batches, close_statement("a"), sync()])
    };
    let insert = parse("b", "INSERT INTO sink VALUES (7, 'skipped')");
    vec![
        script(
            "a failing use of one name of two",
            Statement,
            &[
                parse("named", "SELECT $1::int + 1"),
                parse("another", "SELECT $1::int + 1"),
                sync(),
                bind("", "another", &[]),
                sync(),
                bind("", "named", &[]),
                sync(),
                close_statement("named"),
                sync(),
                close_statement("another"),
                sync(),
            ],
        ),
        after_a_failure(
            "a name of which a failed batch skipped the Close",
            &[close_statement("a")],
        ),
        after_a_failure(
            "a name that a failed batch did not give to another text",
            &[close_statement("a"), parse("a", "SELECT 'second'")],
        ),
        script(
            "a name that a failed batch did not prepare",
            Statement,
            &[[failing, insert, sync(), used("b"), sync()].concat()],
        ),
        script(
            "a name closed behind a text that cannot be parsed",
            Statement,
            &[
                [parse("a", "SELECT 'first'"), sync()].concat(),
                [query("SELECT nosuch"), parse("", "SELECT nosuch"), close_statement("a")].concat(),
                [sync(), used("a"), sync(), close_statement("a"), sync()].concat(),
            ],
        ),
    ]
}

fn copies() -> Vec<Script> {
    let copy_in = query("COPY sink FROM STDIN");
    let by_extended = [parse("", "COPY sink FROM STDIN"), bind("", "", &[]), execute("", 0)];
    vec![
        script("COPY out", Statement, &[query("COPY (SELECT n, s FROM t ORDER BY n) TO STDOUT")]),
        script(
            "COPY in",
            Statement,
            &[copy_in.clone(), copy_data(b"1\to"), copy_data(b"ne\n2\ttwo\n"), copy_done()],
        ),
        script(
            "COPY in and a query",
            Statement,
            &[query("COPY sink FROM STDIN; SELECT 1"), copy_data(b"1\tx\n"), copy_done()],
        ),
        script(
            "COPY in that is given up",
            Statement,
            &[copy_in.clone(), copy_data(b"1\tone\n"), copy_fail("no more")],
        ),
        script(
            "COPY in of nonsense",
            Statement,
            &[copy_in, copy_data(b"not a number\n"), copy_data(b"1\tlate\n"), copy_done()],
        ),
        script(
            "COPY in by the extended protocol",
            Statement,
            &[by_extended.concat(), copy_data(b"1\tone\n"), copy_done(), sync()],
        ),
        script(
            "COPY in by the extended protocol that is given up",
            Statement,
            &[by_extended.concat(), copy_data(b"1\tone\n"), copy_fail("no more"), sync()],
        ),
        script("COPY data out of place", Statement, &[copy_data(b"1\n"), copy_done()]),
    ]
}

fn calls() -> Vec<Script> {
    vec![
        script("a function call", Statement, &[function_call(ABS, &["-5"])]),
        script("a function call that fails", Statement, &[function_call(DIV, &["1", "0"])]),
        script("no such function", Statement, &[function_call(1, &[])]),
    ]
}

fn transactions() -> Vec<Script> {
    let portal = [
        query("BEGIN"),
        parse("", "SELECT n FROM t ORDER BY n"),
        bind("open", "", &[]),
        execute("open", 2),
        sync(),
        execute("open", 2),
        sync(),
        close_portal("open"),
        execute("open", 1),
        sync(),
        query("ROLLBACK"),
    ];
    vec![
        script("a transaction", Transaction, &[query("BEGIN"), query("SELECT 1"), query("COMMIT")]),
        script(
            "a failed transaction",
            Transaction,
            &[
                query("BEGIN"),
                query("SELECT 1/0"),
                query("SELECT 1"),
                parse("", "SELECT 1"),
                sync(),
                query("COMMIT"),
                query("COMMIT"),
            ],
        ),
        script(
            "savepoints",
            Transaction,
            &[
                query("BEGIN; SAVEPOINT one"),
                query("SELECT 1/0"),
                query("ROLLBACK TO one"),
                query("DELETE FROM t"),
                query("SELECT count(*) FROM t"),
                query("ROLLBACK"),
            ],
        ),
        script("a portal through many Syncs", Transaction, &portal),
        script(
            "a cursor",
            Transaction,
            &[
                query("BEGIN; DECLARE c CURSOR FOR SELECT n FROM t ORDER BY n"),
                query("FETCH 2 FROM c"),
                query("FETCH 2 FROM c"),
                query("COMMIT"),
            ],
        ),
    ]
}

fn session() -> Vec<Script> {
    vec![
        script(
            "LISTEN and NOTIFY",
            Session,
            &[query("LISTEN here"), query("NOTIFY here, 'news'"), query("UNLISTEN here")],
        ),
        script(
            "temporary tables",
            Session,
            &[
                query("CREATE TEMP TABLE mine AS SELECT 1 AS n"),
                query("SELECT n + 1 FROM mine"),
                query("DROP TABLE mine"),
            ],
        ),
        script(
            "statements of SQL",
            Session,
            &[
                query("PREPARE mine AS SELECT $1::int"),
                query("EXECUTE mine(1)"),
                bind("", "mine", &[Some("2")]),
                execute("", 0),
                sync(),
                query("DEALLOCATE mine"),
                query("EXECUTE mine(3)"),
            ],
        ),
        script(
            "other settings",
            Session,
            &[query("SET work_mem = '1MB'"), query("SHOW work_mem"), query("RESET work_mem")],
        ),
    ]
}

/// Scripts about settings that PostgreSQL reports, which follow a client from server to server.
fn settings() -> Vec<Script> {
    vec![
        script(
            "settings",
            Transaction,
            &[
                query("SET application_name = 'one'"),
                query("SHOW application_name"),
                query("SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'German'"),
                query("SELECT '2001-02-03'::date"),
                query("RESET TimeZone; RESET DateStyle; RESET application_name"),
            ],
        ),
        script(
            "settings taken back",
            Transaction,
            &[
                query("BEGIN; SET LOCAL DateStyle = 'SQL'"),
                query("SHOW DateStyle"),
                query("ROLLBACK"),
                query("SHOW DateStyle"),
            ],
        ),
        script(
            "an encoding",
            Transaction,
            &[
                query("SET client_encoding = 'LATIN1'"),
                query("SELECT chr(228)"),
                query("SET client_encoding = 'UTF8'"),
                query("SELECT chr(228)"),
            ],
        ),
    ]
}

/// Scripts of whole messages with invalid contents.
fn malformed() -> Vec<Script> {
    vec![
        script("a query without its end", Statement, &[message(b'Q', b"SELECT 1")]),
        script("a query and more", Statement, &[message(b'Q', b"SELECT 1\0SELECT 2\0")]),
        script(
            "a Bind that is cut short",
            Statement,
            &[
                parse("", "SELECT $1::text"),
                message(b'B', b"\0\0\0\0\0\x01\0\0\0\x09x"),
                execute("", 0),
                sync(),
            ],
        ),
        script("an Execute that is cut short", Statement, &[message(b'E', b"\0\0"), sync()]),
        script("a Sync and more", Statement, &[message(b'S', b"x"), sync()]),
    ]
}

/// Scripts after which PostgreSQL closes the connection.
fn closing() -> Vec<Script> {
    let closing = |name, messages: &[Vec<u8>]| Script {
        name,
        needs: Statement,
        bytes: messages.concat(),
        closes: true,
    };
    vec![
        closing("goodbye", &[terminate()]),
        closing("no such message", &[message(b'y', b"whatever")]),
        closing("a length of three", &[b"Q\0\0\0\x03".to_vec()]),
        closing("a length below nothing", &[b"Q\xff\xff\xff\xf0".to_vec()]),
    ]
}
