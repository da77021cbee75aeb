//! Scripts that are no product of scene, way and ending. A line is a step: a simple query, or
//!
//! * `x: sql`: the unnamed statement; `x: sql | sql`: several in one batch
//! * `parse name: sql`, `use name`, `describe name`, `close name`: each with its Sync
//! * `bind unnamed`: what the last Parse of the unnamed statement has left is executed again
//! * `startup: name=value`: in the startup packet
//!
//! `$V` is the victim's own number, `$N` another one each time.

use testkit::frontend;

use super::play::Script;
use super::scenes::Keeps;
use super::stage::VICTIMS;
use super::ways::Step;

pub(super) const ALL: &[(&str, Keeps, &str)] = &[
    (
        "the last of several settings in one transaction",
        Keeps::Never,
        "BEGIN; SET work_mem = '5$VMB'; SAVEPOINT a; SET work_mem = '66MB'; SET lock_timeout = 7
        ROLLBACK TO a
        SET IntervalStyle = 'iso_8601'
        COMMIT
        SHOW work_mem
        SHOW lock_timeout
        SHOW IntervalStyle",
    ),
    (
        "statements of the protocol follow",
        Keeps::Never,
        "parse mine: SELECT $V AS a, current_setting('work_mem')
        SET work_mem = '5$VMB'
        describe mine
        use mine
        parse thine: SET work_mem = '6$VMB'
        use mine
        use thine
        use mine
        close mine
        use mine
        use thine",
    ),
    (
        "DISCARD ALL takes the statements of the protocol",
        Keeps::Never,
        "parse mine: SELECT $V AS a
        use mine
        DISCARD ALL
        use mine
        parse mine: SELECT -$V AS a
        use mine
        DEALLOCATE ALL
        use mine",
    ),
    (
        "statements of the protocol in SQL",
        Keeps::Never,
        "parse mine: SELECT $V AS a, current_setting('work_mem')
        EXECUTE mine
        SET work_mem = '5$VMB'
        x: EXECUTE mine | SELECT 1
        BEGIN; EXECUTE mine; PREPARE mine AS SELECT 1
        EXECUTE mine
        ROLLBACK
        use mine
        parse thine: EXECUTE mine
        describe thine
        use thine
        DEALLOCATE mine
        use mine
        parse mine: SELECT -$V AS a
        EXECUTE mine; SELECT 1/0
        EXPLAIN (COSTS OFF) EXECUTE mine
        EXECUTE mine",
    ),
    (
        "back to the startup packet",
        Keeps::Never,
        "startup: application_name=of $V
        startup: options=-c work_mem=5$VMB -c search_path=s1
        SHOW work_mem
        SHOW search_path
        SELECT name FROM place
        SET work_mem = '77MB'; SET search_path = s2; SET application_name = 'other'
        SHOW application_name
        SELECT name FROM place
        RESET work_mem
        SHOW work_mem
        RESET ALL
        SHOW search_path
        SHOW application_name
        SELECT name FROM place",
    ),
    (
        "numbers of one's own",
        Keeps::ForGood,
        "CREATE SEQUENCE public.numbers_$N START $V00
        BEGIN; SELECT nextval('public.numbers_$N'); SELECT lastval(); COMMIT
        SELECT lastval()
        SELECT nextval('public.numbers_$N')
        SELECT currval('public.numbers_$N'), lastval()
        DISCARD SEQUENCES
        SELECT lastval()",
    ),
    (
        "a setting in a function's own clause stays there",
        Keeps::Never,
        "CREATE FUNCTION public.quiet_$N() RETURNS text LANGUAGE sql SET work_mem = '66MB' AS $$ SELECT current_setting('work_mem') $$
        SELECT public.quiet_$N()
        SHOW work_mem
        x: SELECT public.quiet_$N()
        SHOW work_mem",
    ),
    (
        "a procedure that commits",
        Keeps::Never,
        "CREATE PROCEDURE public.steps_$N() LANGUAGE plpgsql AS $$BEGIN SET work_mem = '5$VMB'; COMMIT; SET lock_timeout = '5$Vs'; ROLLBACK; END$$
        CALL public.steps_$N()
        SHOW work_mem
        SHOW lock_timeout",
    ),
    (
        "all kinds of statements in one string",
        Keeps::Meanwhile,
        "SET work_mem = '5$VMB'; CREATE TEMP TABLE mine AS SELECT $V AS a; PREPARE mine AS SELECT a FROM mine; COMMIT; BEGIN; SET lock_timeout = 5; ROLLBACK; EXECUTE mine
        SHOW work_mem
        SHOW lock_timeout
        EXECUTE mine
        DROP TABLE mine; DEALLOCATE mine; SET ROLE torture_a
        SELECT current_user
        SHOW work_mem
        RESET ROLE",
    ),
    (
        "a failed SET in a pipeline",
        Keeps::Never,
        "SET work_mem = '5$VMB'
        x: SET work_mem = '66MB' | SET work_mem = 'much' | SELECT 1
        SHOW work_mem
        x: SET work_mem = '6$VMB' | SELECT 1
        SHOW work_mem",
    ),
    (
        "transactions of their own kind",
        Keeps::Never,
        "SET lock_timeout = '5$Vs'
        BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE
        SHOW transaction_isolation
        COMMIT
        BEGIN
        SET TRANSACTION ISOLATION LEVEL REPEATABLE READ
        SHOW transaction_isolation
        SET LOCAL lock_timeout = 9
        COMMIT
        SHOW transaction_isolation
        SHOW lock_timeout",
    ),
    (
        "privileges of the role",
        Keeps::Never,
        "CREATE TABLE public.own_$N (a int)
        SET ROLE torture_a
        SELECT * FROM public.own_$N
        CREATE TABLE public.of_a_$N (a int)
        RESET ROLE
        SELECT tableowner FROM pg_tables WHERE tablename = 'of_a_$N'
        SELECT * FROM public.own_$N",
    ),
    (
        "row security by a setting of the application's",
        Keeps::Never,
        "CREATE TABLE public.rows_$N AS SELECT generate_series(1, 3) AS tenant
        ALTER TABLE public.rows_$N ENABLE ROW LEVEL SECURITY; ALTER TABLE public.rows_$N FORCE ROW LEVEL SECURITY
        CREATE POLICY own ON public.rows_$N USING (tenant::text = nullif(current_setting('app.tenant', true), ''))
        SELECT * FROM public.rows_$N
        SET app.tenant = '$V'
        SELECT * FROM public.rows_$N
        BEGIN; SET LOCAL app.tenant = '3'; SELECT * FROM public.rows_$N; COMMIT
        SELECT * FROM public.rows_$N
        RESET app.tenant
        SELECT * FROM public.rows_$N",
    ),
    (
        "a schema of one's own first",
        Keeps::Never,
        "SET search_path = s$V
        parse mine: SELECT name FROM place
        use mine
        x: SELECT name FROM place
        SET search_path = \"s 3\"
        use mine
        x: SELECT name FROM place
        SET search_path = s1, s2
        use mine",
    ),
    (
        "letters in another encoding",
        Keeps::Meanwhile,
        "SET app.letters = 'ä'
        SET client_encoding = 'LATIN1'
        SELECT nullif(current_setting('app.letters', true), '')
        SELECT set_config('app.letters', U&'\\00f6', false)
        SELECT length(current_setting('app.letters', true))
        SHOW client_encoding
        RESET client_encoding
        SELECT nullif(current_setting('app.letters', true), '')
        PREPARE mine AS SELECT 'ä'
        EXECUTE mine
        DEALLOCATE mine",
    ),
    (
        "an exception that takes a setting back",
        Keeps::Never,
        "SET work_mem = '5$VMB'
        DO $$BEGIN BEGIN SET work_mem = '66MB'; RAISE 'no'; EXCEPTION WHEN OTHERS THEN SET lock_timeout = 7; END; END$$
        SHOW work_mem
        SHOW lock_timeout",
    ),
    (
        "the unnamed statement",
        Keeps::Never,
        "x: SELECT $V AS a
        bind unnamed
        SET work_mem = '5$VMB'
        bind unnamed",
    ),
];

/// The script of this name as a victim plays it.
pub(super) fn read(name: &str, victim: usize, number: usize) -> Script {
    let text = ALL.iter().find(|(known, ..)| *known == name).expect("it is in the table").2;
    let number = (number * VICTIMS + victim).to_string();
    let text = text.replace("$V", &(victim + 1).to_string()).replace("$N", &number);
    let mut script = Script::default();
    for line in text.lines().map(str::trim) {
        match line.strip_prefix("startup: ").and_then(|pair| pair.split_once('=')) {
            Some((name, value)) => script.startup.push((name.to_owned(), value.to_owned())),
            None => script.steps.push(step(line)),
        }
    }
    script
}

fn step(line: &str) -> Step {
    if let Some(all) = line.strip_prefix("x: ") {
        return Step::unnamed(&all.split(" | ").collect::<Vec<_>>());
    }
    if let Some((name, sql)) = line.strip_prefix("parse ").and_then(|rest| rest.split_once(": ")) {
        return Step::batch(line, &[frontend::parse(name, sql)]);
    }
    let execute = |name| vec![frontend::bind("", name, &[]), frontend::execute("", 0)];
    if line == "bind unnamed" {
        return Step::batch(line, &execute(""));
    }
    match line.split_once(' ') {
        Some(("use", name)) => Step::batch(line, &execute(name)),
        Some(("describe", name)) => Step::batch(line, &[frontend::describe_statement(name)]),
        Some(("close", name)) if !name.contains(' ') => {
            Step::batch(line, &[frontend::close_statement(name)])
        }
        _ => Step::query(line),
    }
}
