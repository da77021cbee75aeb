//! Each sign: texts that have it, and similar texts that do not.

use super::{check, signs};
use crate::{Signs, scan};

const NONE: Signs = Signs::NONE;
const SETTINGS: Signs = Signs::SETTINGS;
const TEMPORARY: Signs = Signs::TEMPORARY;
const LOCK: Signs = Signs::LOCK;
const CURSOR: Signs = Signs::CURSOR;
const LISTEN: Signs = Signs::LISTEN;
const PREPARED: Signs = Signs::PREPARED;
const SEQUENCE: Signs = Signs::SEQUENCE;
const LOAD: Signs = Signs::LOAD;
const DISCARD: Signs = Signs::DISCARD;
const RELEASE: Signs = Signs::RELEASE;
const OPAQUE: Signs = Signs::OPAQUE;
const SEED: Signs = Signs::SEED;
const DRAWS: Signs = Signs::DRAWS;
const LOCAL: Signs = Signs::LOCAL;

#[test]
fn settings() {
    check(&[
        ("SET x = 1", SETTINGS),
        ("set/**/x to 1", SETTINGS),
        (";;SET x = 1", SETTINGS),
        ("SELECT 1;SET x = 1", SETTINGS),
        ("SELECT 1; -- ;\n SET x = 1", SETTINGS),
        ("SET SESSION x = 1", SETTINGS),
        ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", SETTINGS),
        ("SET SESSION AUTHORIZATION bob", SETTINGS),
        ("SET ROLE bob", SETTINGS),
        ("SET TIME ZONE 'UTC'", SETTINGS),
        ("SET NAMES 'utf8'", SETTINGS),
        ("SET \"local\" = 1", SETTINGS),
        ("SET local.x = 1", SETTINGS),
        ("SET local = 1", SETTINGS),
        ("SET local TO 1", SETTINGS),
        ("SET transaction . x = 1", SETTINGS),
        ("SET constraints.x TO 1", SETTINGS),
        ("SET LOCAL x = 1", LOCAL),
        ("SET LOCAL x.y = 1", LOCAL),
        ("SET LOCAL ROLE bob", LOCAL),
        ("SET TRANSACTION READ ONLY", NONE),
        ("SET CONSTRAINTS ALL DEFERRED", NONE),
        ("SET CONSTRAINTS a.b DEFERRED", NONE),
        ("RESET x", SETTINGS),
        ("RESET ALL", SETTINGS),
        ("UPDATE t SET x = 1", NONE),
        ("ALTER TABLE t SET TABLESPACE x", RELEASE),
        ("SELECT 'SET x = 1'", NONE),
        ("SELECT 1 -- ; SET x = 1", NONE),
        ("SELECT 1 /* ; SET x = 1 */", NONE),
        ("SELECT 1 /* /* */ ; SET x = 1 */", NONE),
        ("SELECT 1 /* /* */ */; SET x = 1", SETTINGS),
        ("SELECT $$; SET x = 1$$", NONE),
        ("SELECT $a$; SET x = $$ 1$a$; SET x = 1", SETTINGS),
        ("SELECT \"; SET x = 1\"", NONE),
        ("UPDATE pg_settings SET setting = 'a' WHERE name = 'b'", SETTINGS),
        ("UPDATE \"pg_settings\" SET setting = 'a'", SETTINGS),
        ("WITH a AS (UPDATE pg_catalog.pg_settings SET setting = 'a') SELECT 1", SETTINGS),
        ("SELECT * FROM pg_settings", NONE),
    ]);
}

#[test]
fn signals() {
    check(&[
        ("SELECT pg_cancel_backend(1)", Signs::SIGNALS),
        ("SELECT pg_catalog.pg_terminate_backend($1, 1)", Signs::SIGNALS),
        ("SELECT pg_cancel_backend(pid) FROM pg_stat_activity", Signs::SIGNALS),
        ("SELECT mine.pg_cancel_backend(1)", Signs::SIGNALS | OPAQUE),
        ("SELECT 'pg_cancel_backend(1)'", NONE),
        ("SELECT pg_reload_conf()", NONE),
        ("SELECT Pg_Backend_Pid()", Signs::PROCESS_ID),
        ("SELECT 1 FROM pg_locks WHERE pid = pg_catalog.pg_backend_pid()", Signs::PROCESS_ID),
    ]);
}

#[test]
fn set_config() {
    check(&[
        ("SELECT set_config('a', 'b', false)", SETTINGS),
        ("SELECT set_config('a', 'b', $1)", SETTINGS),
        ("SELECT set_config('a', 'b', true)", LOCAL),
        ("SELECT Set_Config ('a', 'b', TRUE )", LOCAL),
        ("SELECT pg_catalog.set_config('a', 'b', true)", LOCAL),
        ("SELECT pg_catalog . /**/ \"set_config\" ('a', 'b', false)", SETTINGS),
        ("SELECT db.pg_catalog.set_config('a', 'b', false)", SETTINGS),
        ("SELECT mine.set_config('a', 'b', false)", SETTINGS | OPAQUE),
        ("SELECT set_config('a', 'b', not true)", SETTINGS),
        ("SELECT set_config('a', 'b', true and false)", SETTINGS),
        ("SELECT set_config('a', is_local => false, new_value => true)", SETTINGS),
        ("SELECT set_config('a', 'b', \"true\")", SETTINGS),
        ("SELECT set_config(set_config('a', 'b', false), 'b', true)", SETTINGS | LOCAL),
        ("SELECT set_config((SELECT coalesce('a', 'b')), lower('c'), true)", LOCAL),
        ("SELECT set_config('a', 'b', true), set_config('a', 'b', false)", SETTINGS | LOCAL),
        ("SELECT 1 FROM set_config('a', 'b', false)", SETTINGS),
        ("EXPLAIN ANALYZE SELECT set_config('a', 'b', false)", SETTINGS),
        ("VALUES (set_config('a', 'b', false))", SETTINGS),
        ("COPY (SELECT set_config('a', 'b', false)) TO STDOUT", SETTINGS),
        ("INSERT INTO t VALUES (1) RETURNING set_config('a', 'b', false)", SETTINGS),
        ("SELECT set_config('a', 'b', true", SETTINGS),
        ("SELECT set_config", NONE),
        ("SELECT 'set_config('", NONE),
    ]);
}

#[test]
fn temporary_objects() {
    check(&[
        ("CREATE TEMP TABLE t ()", TEMPORARY | OPAQUE),
        ("CREATE TEMPORARY TABLE t AS SELECT 1", TEMPORARY),
        ("CREATE TABLE t AS SELECT 1", TEMPORARY),
        ("CREATE OR REPLACE TEMP VIEW v AS SELECT 1", TEMPORARY),
        ("EXPLAIN ANALYZE CREATE TABLE t AS SELECT 1", TEMPORARY),
        ("SELECT 1 INTO TEMP t", TEMPORARY),
        ("SELECT 1 INTO t", TEMPORARY),
        ("(SELECT 1 INTO t)", TEMPORARY),
        ("WITH a AS (SELECT 1) SELECT * INTO TEMP t FROM a", TEMPORARY),
        ("SELECT 1INTO TEMP t", TEMPORARY),
        ("SELECT 1.INTO TEMP t", TEMPORARY),
        ("SELECT insert INTO t FROM x", TEMPORARY),
        ("SELECT (1) insert INTO t", TEMPORARY),
        ("(SELECT (1) insert INTO t)", TEMPORARY),
        ("SELECT 1 AS merge INTO t", TEMPORARY),
        ("IMPORT FOREIGN SCHEMA a FROM SERVER b INTO pg_temp", TEMPORARY),
        ("INSERT INTO t VALUES (1)", NONE),
        ("INSERT INTO temp SELECT temp FROM temporary", NONE),
        ("WITH a AS (INSERT INTO t SELECT 1 RETURNING x) SELECT * FROM a", NONE),
        ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", NONE),
        ("EXPLAIN (ANALYZE) INSERT INTO t VALUES (1)", NONE),
        ("MERGE INTO t USING s ON a = b WHEN NOT MATCHED THEN INSERT VALUES (1)", NONE),
        ("SELECT temp FROM t", NONE),
    ]);
}

#[test]
fn locks_and_cursors() {
    check(&[
        ("SELECT pg_advisory_lock(1)", LOCK),
        ("SELECT pg_try_advisory_lock_shared(1, 2)", LOCK),
        ("SELECT pg_advisory_unlock(1)", LOCK | RELEASE),
        ("SELECT PG_ADVISORY_UNLOCK_ALL()", LOCK | RELEASE),
        ("SELECT pg_advisory_xact_lock(1)", NONE),
        ("SELECT pg_try_advisory_xact_lock_shared(1)", NONE),
        ("LOCK TABLE t", NONE),
        ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", CURSOR),
        ("DECLARE c BINARY NO SCROLL CURSOR WITH /* */ HOLD FOR SELECT 1", CURSOR),
        ("DECLARE c CURSOR FOR SELECT 1", NONE),
        ("DECLARE c CURSOR WITHOUT HOLD FOR SELECT 1", NONE),
        ("WITH hold AS (SELECT 1) SELECT * FROM hold", NONE),
        ("FETCH ALL c", NONE),
        ("CLOSE c", RELEASE),
        ("CLOSE ALL", RELEASE),
    ]);
}

#[test]
fn names_of_the_session() {
    check(&[
        ("LISTEN a", LISTEN),
        ("UNLISTEN *", LISTEN),
        ("NOTIFY a, 'b'", NONE),
        ("SELECT listen FROM t", NONE),
        ("SELECT pg_listening_channels()", LISTEN),
        ("PREPARE a AS SELECT 1", PREPARED),
        ("PREPARE a (int) AS SELECT $1", PREPARED),
        ("PREPARE transaction AS SELECT 1", PREPARED),
        ("PREPARE TRANSACTION 'a'", NONE),
        ("PREPARE TRANSACTION $$a$$", NONE),
        ("COMMIT PREPARED 'a'", NONE),
        ("EXECUTE a", PREPARED | OPAQUE),
        ("EXECUTE a (1, 2)", PREPARED | OPAQUE),
        ("EXPLAIN ANALYZE EXECUTE a", PREPARED | OPAQUE),
        ("EXPLAIN (ANALYZE, TIMING off) EXECUTE a", PREPARED | OPAQUE),
        ("CREATE TEMP TABLE t AS EXECUTE a", PREPARED | OPAQUE | TEMPORARY),
        ("GRANT EXECUTE ON FUNCTION lower TO public", NONE),
        ("DEALLOCATE a", PREPARED | RELEASE),
        ("DEALLOCATE PREPARE ALL", PREPARED | RELEASE),
        ("TABLE pg_prepared_statements", PREPARED),
        ("SELECT * FROM pg_catalog.\"pg_prepared_statements\"", PREPARED),
        ("DISCARD ALL", DISCARD | RELEASE | SETTINGS),
        ("DISCARD PLANS", DISCARD | RELEASE),
        ("DISCARD TEMPORARY", DISCARD | RELEASE),
        ("DISCARD SEQUENCES", DISCARD | RELEASE),
    ]);
}

#[test]
fn other_state() {
    check(&[
        ("SELECT currval('s')", SEQUENCE),
        ("SELECT lastval()", SEQUENCE),
        ("SELECT nextval('s'), setval('s', 1)", DRAWS),
        ("LOAD 'auto_explain'", LOAD),
        ("SELECT pg_backup_start('a')", LOAD),
        ("SELECT dblink_connect('a', 'b')", LOAD),
        ("SELECT setseed(0.5)", SEED),
        ("SET seed = 0.5", SEED),
        ("SET SESSION seed TO 0.5", SETTINGS.with(SEED)),
        ("SET seedling.a = 1", SETTINGS),
        ("SELECT random()", NONE),
        ("SELECT set_limit(0.5)", SETTINGS),
        ("SELECT query_to_xml('SELECT 1', true, true, '')", OPAQUE),
    ]);
}

#[test]
fn calls_of_the_users_functions() {
    check(&[
        ("SELECT f(1)", OPAQUE),
        ("SELECT f ( )", OPAQUE),
        ("SELECT f/**/()", OPAQUE),
        ("SELECT \"F\"()", OPAQUE),
        ("SELECT \"LOWER\"('a')", OPAQUE),
        ("SELECT \"lower\"('a')", NONE),
        ("SELECT \"values\"('a')", OPAQUE),
        ("SELECT a.lower('a')", OPAQUE),
        ("SELECT pg_catalog.lower('a')", NONE),
        ("SELECT pg_catalog.f('a')", OPAQUE),
        ("SELECT pg_catalog.values('a')", OPAQUE),
        ("SELECT lower(f('a'))", OPAQUE),
        ("SELECT * FROM f(1)", OPAQUE),
        ("SELECT 1 OPERATOR(pg_catalog.+) f(2)", OPAQUE),
        ("SELECT DISTINCT ON (a) over(b) FROM t", OPAQUE),
        ("SELECT a[1:f(2)]", OPAQUE),
        ("SELECT DISTINCT ON (a) f(b) FROM t", OPAQUE),
        ("INSERT INTO t SELECT 1 FROM a JOIN b ON conflict(a) ON CONFLICT DO NOTHING", OPAQUE),
        ("DO $$ BEGIN END $$", OPAQUE),
        ("CALL p()", OPAQUE),
        ("CREATE EXTENSION x", OPAQUE | TEMPORARY),
        ("ALTER EXTENSION x UPDATE", OPAQUE | RELEASE),
        ("SELECT U&\"\\0066\"(1)", Signs::CALLABLE),
    ]);
}

#[test]
fn parentheses_that_are_no_calls() {
    for text in [
        "INSERT INTO t (a, b) VALUES (1, 2)",
        "INSERT INTO s.t (a) VALUES (1) ON CONFLICT (a) DO UPDATE SET a = excluded.a",
        "INSERT INTO t AS x (a) VALUES (1) ON CONFLICT ON CONSTRAINT c DO NOTHING",
        "WITH a (b) AS (SELECT 1) SELECT * FROM a",
        "WITH RECURSIVE a(b) AS (SELECT 1 UNION ALL SELECT b + 1 FROM a) SELECT * FROM a",
        "WITH a AS MATERIALIZED (SELECT 1) SELECT * FROM a",
        "WITH a AS NOT MATERIALIZED (SELECT 1) SELECT * FROM a",
        "SELECT * FROM a JOIN (SELECT 1) b USING (id) LEFT JOIN LATERAL (SELECT 2) c ON (true)",
        "SELECT * FROM json_to_record('{}') AS x(a int, b numeric(10, 2))",
        "SELECT sum(a) OVER (PARTITION BY b ORDER BY (c)), count(*) FILTER (WHERE (d)) FROM t",
        "SELECT row_number() OVER () FROM t WHERE a IN (1, 2) AND EXISTS (SELECT 1)",
        "SELECT a::numeric(10, 2), b::vector(3), CAST(c AS x.geometry(Point, 4326)) FROM t",
        "SELECT extract(year FROM a), substring(b FROM 1 FOR 2), trim(both ' ' FROM c) FROM t",
        "SELECT count(*) FROM t GROUP BY (a, b) ORDER BY (c) LIMIT (1)",
        "COPY t (a, b) FROM STDIN",
        "COPY s.t (a, b) FROM STDIN",
        "EXPLAIN (ANALYZE) SELECT 1",
        "VACUUM (VERBOSE) t",
        "SELECT now(), current_setting('a'), pg_is_in_recovery(), version()",
        "SELECT ARRAY(SELECT 1), CASE WHEN (a) THEN (b) ELSE (c) END, ROW(1), NULLIF(1, 2)",
        "SELECT 1 WHERE NOT (a OR (b)) AND x = ANY ($1) AND y LIKE ('a')",
        "DELETE FROM t USING (SELECT 1) s WHERE (a) IS NULL RETURNING (b)",
    ] {
        assert_eq!(signs(text), NONE, "{text}");
    }
}

#[test]
fn calls_by_name_have_a_digest() {
    let functions = |text: &str| scan(text.as_bytes(), true).functions;
    let same = [
        ("SELECT f(1), g(2)", "SELECT G(f(3)) FROM t"),
        ("SELECT s.f()", "SELECT x FROM S . \"f\" ()"),
    ];
    for (one, other) in same {
        assert_ne!(functions(one), 0);
        assert_eq!(functions(one), functions(other), "{one}");
    }
    let mut digests: Vec<_> = [
        "SELECT f()",
        "SELECT g()",
        "SELECT s.f()",
        "SELECT f.s()",
        "SELECT s.f.g()",
        "SELECT pg_catalog.f()",
        "SELECT f(), g()",
        "CALL f()",
    ]
    .map(functions)
    .into();
    assert_eq!(digests.pop(), Some(digests[0]), "a procedure is known by its name, too");
    digests.sort_unstable();
    assert!(digests.windows(2).all(|two| two[0] != two[1]));
    for nothing in [
        "SELECT 1",
        "SELECT lower('a')",
        "DO 'x'",
        "SELECT f(); DO 'x'",
        "EXECUTE a (f())",
        "SELECT f(), query_to_xml('a', true, true, '')",
        "SELECT f(), U&\"f\"()",
        "SELECT f() || 'a",
        "CREATE EXTENSION x WITH SCHEMA f()",
    ] {
        assert_eq!(functions(nothing), 0, "{nothing}");
    }
}

#[test]
fn the_kind_of_strings_decides_where_they_end() {
    let text = br"SELECT 'a\'; SET x = 1; --'";
    assert_eq!(scan(text, true).signs, SETTINGS);
    assert_eq!(scan(text, false).signs, NONE);
    let text = br"SELECT 'a\''; SET x = 1; --'";
    assert_eq!(scan(text, true).signs, NONE);
    assert_eq!(scan(text, false).signs, SETTINGS);
}

#[test]
fn doubtful_texts_are_opaque() {
    check(&[
        ("SELECT 'a", OPAQUE),
        ("SELECT \"a", OPAQUE),
        ("SELECT $a$ b $$", OPAQUE),
        ("SELECT /* /* */", OPAQUE),
        ("SELECT 1 --", NONE),
        ("SELECT 1 -", NONE),
        ("SELECT E'\u{e9}\\n'", OPAQUE),
        ("SELECT E'e\\n\u{e9}'", NONE),
        ("", NONE),
        (" ; ;", NONE),
    ]);
    for bytes in [
        &b"SELECT \x83\\(1)"[..],
        b"SELECT a\x83[(1)",
        b"SELECT $\x95\\$ ' $\x95\\$; SET x = 1; --'",
        b"SELECT E'\x95\\'; SET x = 1; --'",
    ] {
        let seen = scan(bytes, true);
        assert_eq!((seen.signs, seen.functions), (OPAQUE, 0), "{}", bytes.escape_ascii());
    }
    let long = format!("SELECT ${0}$ a ${0}$", "t".repeat(64));
    assert_eq!(signs(&long), OPAQUE);
}

#[test]
fn a_text_that_may_draw_a_number_shows_where() {
    let draws = |sql: &str| scan(sql.as_bytes(), true).draws;
    for sql in [
        "SELECT 1",
        "SELECT a INTO t FROM b",
        "UPDATE t SET a = 1",
        "DELETE FROM t",
        "SELECT insert, into FROM t",
        "SELECT lastval(), currval('s')",
    ] {
        assert_eq!(draws(sql), 0, "{sql}");
    }
    let alike = [
        &["INSERT INTO t VALUES (1)", "insert into T (a) values ('other') returning a"][..],
        &["INSERT INTO s.t VALUES (1)", "WITH a AS (SELECT 2) INSERT INTO s.t SELECT * FROM a"],
        &["INSERT INTO \"T\" DEFAULT VALUES"],
        &["MERGE INTO u USING s ON a = b WHEN NOT MATCHED THEN INSERT VALUES (1)"],
        &["SELECT nextval('s')", "SELECT pg_catalog.nextval('another')"],
        &["SELECT setval('s', 1)"],
        &["INSERT INTO t VALUES (nextval('s'))"],
    ];
    let mut seen = Vec::new();
    for texts in alike {
        let first = draws(texts[0]);
        assert_ne!(first, 0, "{}", texts[0]);
        texts.iter().for_each(|sql| assert_eq!(draws(sql), first, "{sql}"));
        assert!(!seen.contains(&first), "{}", texts[0]);
        seen.push(first);
    }
}
