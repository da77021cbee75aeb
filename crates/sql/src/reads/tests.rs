//! Texts and where they may run, by the text alone.

use super::*;
use crate::scanner::scan_either;

fn reading(text: &str) -> Reading {
    read_verdict(text.as_bytes(), scan_either(text.as_bytes()), None)
}

#[track_caller]
fn all_are(verdict: Verdict, texts: &[&str]) {
    for text in texts {
        assert_eq!(reading(text).verdict, verdict, "{text}");
    }
}

#[track_caller]
fn all_refused(refusal: Refusal, texts: &[&str]) {
    all_are(Verdict::Refused(refusal), texts);
}

#[test]
fn reads() {
    all_are(
        Verdict::Read,
        &[
            "SELECT 1",
            "select * from t where a = $1;",
            ";; SELECT 1 ;; -- end",
            "/* a */ SELECT 1",
            "(SELECT 1)",
            "((SELECT 1) UNION (TABLE t)) ORDER BY 1",
            "VALUES (1), (2)",
            "TABLE t",
            "WITH a AS (SELECT 1), b AS (VALUES (2)) SELECT * FROM a, b",
            "WITH RECURSIVE a(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM a) SELECT n FROM a",
            "SELECT \"update\", \"into\", \"for\" FROM \"delete\"",
            "SELECT 'INSERT INTO t', $$ DELETE $$ -- UPDATE",
            "SELECT substring(a FROM 1 FOR 2) FROM t",
            "SELECT now(), random(), clock_timestamp(), gen_random_uuid(), current_user",
            "SELECT count(*), sum(x) OVER (PARTITION BY y ORDER BY z) FROM t GROUP BY y",
            "SELECT current_setting('app.tenant'), current_setting ( 'app.x', true )",
            "SELECT current_setting('app.tenant'::text, true) || current_setting('app.x' :: TEXT)",
            "SELECT a::regclass, pg_typeof(a), pg_catalog.abs(1) FROM t",
            "SELECT c.relname FROM pg_catalog.pg_class c WHERE pg_catalog.pg_table_is_visible(c.oid)",
            "SELECT my_function(a), s.other(b) FROM t",
            "SELECT 'a\\b'",
            "SELECT * FROM t TABLESAMPLE system (10)",
            "SELECT * FROM a, LATERAL (SELECT * FROM b WHERE b.x = a.x LIMIT 1) c",
            "SELECT updated, inserts, deleted, shared, lock FROM t",
        ],
    );
}

#[test]
fn explain_without_analyze_reads() {
    all_are(
        Verdict::Read,
        &[
            "EXPLAIN SELECT 1",
            "EXPLAIN VERBOSE SELECT 1",
            "EXPLAIN (SELECT 1)",
            "EXPLAIN ((SELECT 1) UNION SELECT 2)",
            "EXPLAIN (VERBOSE, COSTS off) SELECT 1",
            "EXPLAIN (FORMAT JSON, SETTINGS (on)) (SELECT 1)",
            "EXPLAIN (VERBOSE) WITH a AS (TABLE t) TABLE a",
            "EXPLAIN SELECT analyze FROM t",
        ],
    );
    all_refused(
        Refusal::Analyze,
        &[
            "EXPLAIN ANALYZE SELECT 1",
            "EXPLAIN ANALYSE VERBOSE SELECT 1",
            "EXPLAIN (ANALYZE) SELECT 1",
            "EXPLAIN (COSTS off, ANALYZE on) SELECT 1",
            "EXPLAIN VERBOSE ANALYZE SELECT 1",
        ],
    );
    all_refused(
        Refusal::Command,
        &[
            "EXPLAIN",
            "EXPLAIN VERBOSE",
            "EXPLAIN (VERBOSE)",
            "EXPLAIN REFRESH MATERIALIZED VIEW v",
            "EXPLAIN (COSTS) DECLARE c CURSOR FOR SELECT 1",
            "EXPLAIN EXPLAIN SELECT 1",
            "EXPLAIN 1",
            "EXPLAIN (COSTS off, \"analyze\") SELECT 1",
            "EXPLAIN EXECUTE a",
            "EXPLAIN CREATE TABLE t AS EXECUTE a",
        ],
    );
    all_refused(Refusal::Writes, &["EXPLAIN WITH a AS (DELETE FROM t RETURNING *) TABLE a"]);
}

#[test]
fn writes() {
    all_refused(
        Refusal::Writes,
        &[
            "INSERT INTO t VALUES (1)",
            "update t set a = 1",
            "DELETE FROM t",
            "MERGE INTO t USING s ON true WHEN MATCHED THEN DO NOTHING",
            "TRUNCATE t",
            "CREATE TABLE t (a int)",
            "DROP TABLE t",
            "ALTER TABLE t ADD a int",
            "WITH a AS (INSERT INTO t VALUES (1) RETURNING *) SELECT * FROM a",
            "WITH a AS (UPDATE t SET a = 1 RETURNING *) SELECT * FROM a",
            "WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a",
            "WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a",
            "SELECT * INTO t FROM s",
            "SELECT 1 INTO TEMP t",
            "SELECT x.update FROM x",
        ],
    );
}

#[test]
fn other_commands() {
    all_refused(
        Refusal::Command,
        &[
            "VACUUM",
            "ANALYZE t",
            "CHECKPOINT",
            "NOTIFY a",
            "GRANT SELECT ON t TO a",
            "REINDEX TABLE t",
            "REFRESH MATERIALIZED VIEW v",
            "COMMENT ON TABLE t IS 'a'",
            "\"select\" 1",
            "(EXPLAIN SELECT 1)",
            "1",
            "nonsense",
            "\0",
        ],
    );
    all_refused(Refusal::Empty, &["", " ", ";", ";;", "-- a", "/* SELECT 1 */", "(("]);
    all_refused(Refusal::Several, &["SELECT 1; SELECT 2", "SELECT 1;;TABLE t", "TABLE t;("]);
    all_refused(Refusal::Several, &["BEGIN READ ONLY; SELECT 1"]);
    all_refused(
        Refusal::Session,
        &[
            "SET a = 1",
            "SET LOCAL a = 1",
            "RESET a",
            "DISCARD ALL",
            "PREPARE a AS SELECT 1",
            "DEALLOCATE a",
            "DECLARE c CURSOR FOR SELECT 1",
            "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
            "FETCH c",
            "MOVE c",
            "CLOSE c",
            "LISTEN a",
            "UNLISTEN *",
            "LOAD 'a'",
            "EXECUTE a",
            "SELECT set_config('a.b', 'c', false)",
            "SELECT set_config('a.b', 'c', true)",
            "SELECT setseed(0.5)",
        ],
    );
    all_refused(
        Refusal::Opaque,
        &["DO 'BEGIN END'", "CALL p()", "SELECT query_to_xml('SELECT 1', a, b, '')"],
    );
}

#[test]
fn locks() {
    all_refused(
        Refusal::Locks,
        &[
            "SELECT * FROM t FOR UPDATE",
            "SELECT * FROM t FOR NO KEY UPDATE",
            "SELECT * FROM t FOR SHARE",
            "SELECT * FROM t FOR/**/KEY SHARE SKIP LOCKED",
            "SELECT * FROM (SELECT * FROM t FOR UPDATE OF t) s",
            "(TABLE t) FOR SHARE",
            "LOCK TABLE t",
            "SELECT pg_advisory_lock(1)",
            "SELECT pg_try_advisory_lock_shared(1)",
            "SELECT pg_advisory_xact_lock(1)",
            "SELECT \"pg_try_advisory_xact_lock\"(1)",
            "SELECT pg_advisory_unlock_all()",
        ],
    );
}

#[test]
fn copy() {
    all_are(
        Verdict::Read,
        &[
            "COPY t TO STDOUT",
            "COPY s.t (a, \"to\") TO STDOUT WITH (FORMAT csv)",
            "COPY (SELECT a FROM t) TO STDOUT",
            "COPY (SELECT a FROM t) TO stdout (FORMAT binary)",
        ],
    );
    all_refused(
        Refusal::Copy,
        &[
            "COPY t FROM STDIN",
            "COPY t FROM '/a'",
            "COPY t TO '/a'",
            "COPY t TO PROGRAM 'a'",
            "COPY t TO STDIN",
            "COPY (SELECT a FROM t) TO '/stdout'",
            "COPY t",
            "COPY t TO",
        ],
    );
    all_refused(Refusal::Writes, &["COPY (DELETE FROM t RETURNING *) TO STDOUT"]);
}

#[test]
fn transactions() {
    all_are(
        Verdict::ReadOnlyTransaction,
        &[
            "BEGIN READ ONLY",
            "begin transaction read only;",
            "BEGIN WORK READ ONLY",
            "START TRANSACTION READ ONLY",
            "START TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
            "BEGIN READ ONLY ISOLATION LEVEL READ COMMITTED NOT DEFERRABLE",
            "BEGIN ISOLATION LEVEL READ UNCOMMITTED READ ONLY",
        ],
    );
    all_refused(
        Refusal::Serializable,
        &[
            "BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY",
            "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE",
            "START TRANSACTION READ ONLY, DEFERRABLE",
        ],
    );
    all_refused(
        Refusal::Transaction,
        &[
            "BEGIN",
            "START TRANSACTION",
            "BEGIN ISOLATION LEVEL REPEATABLE READ",
            "BEGIN READ WRITE",
            "BEGIN READ ONLY, READ WRITE",
            "BEGIN ISOLATION LEVEL READ COMMITTED",
            "BEGIN ONLY",
            "BEGIN \"read\" only",
            "BEGIN READ ONLY x",
            "BEGIN READ ONLY 'x'",
            "COMMIT",
            "END",
            "ROLLBACK",
            "SAVEPOINT a",
            "RELEASE a",
        ],
    );
}

#[test]
fn names_that_tell_of_the_node() {
    all_refused(
        Refusal::Node,
        &[
            "SHOW work_mem",
            "SHOW ALL",
            "SELECT pg_is_in_recovery()",
            "SELECT pg_catalog.pg_backend_pid()",
            "SELECT * FROM pg_stat_activity",
            "SELECT * FROM pg_catalog.pg_locks",
            "SELECT * FROM \"pg_settings\"",
            "SELECT pg_current_wal_lsn()",
            "SELECT pg_export_snapshot()",
            "SELECT pg_sleep(1)",
            "SELECT version()",
            "SELECT inet_server_addr()",
            "SELECT txid_current()",
            "SELECT * FROM information_schema.tables",
            "SELECT current_setting('work_mem')",
            "SELECT current_setting('pg_stat_statements.max')",
            "SELECT current_setting('Auto_Explain.x')",
            "SELECT current_setting(a) FROM t",
            "SELECT current_setting($1)",
            "SELECT current_setting",
            "SELECT current_setting('a' || '.b')",
            "SELECT current_setting('a.b' || c) FROM t",
            "SELECT current_setting('a.b'::text || c) FROM t",
            "SELECT current_setting('a.b'::name)",
            "SELECT current_setting('a.b' c)",
            "SELECT current_setting('a.b'",
            "SELECT s.current_setting FROM s",
            "COPY pg_stat_activity TO STDOUT",
        ],
    );
    all_refused(Refusal::Opaque, &["SELECT table_to_xml('t', a, b, '')", "SELECT ts_stat('a')"]);
}

#[test]
fn sequences() {
    all_refused(
        Refusal::Sequence,
        &[
            "SELECT nextval('s')",
            "SELECT setval('s', 1)",
            "SELECT currval('s')",
            "SELECT lastval()",
        ],
    );
}

#[test]
fn texts_that_cannot_be_read() {
    let long = format!("SELECT {} FROM t", "a".repeat(64));
    all_refused(
        Refusal::Unclear,
        &[
            "SELECT U&\"a\" FROM t",
            "SELECT u&b FROM t",
            "SELECT a FROM t WHERE $$ = a",
            "SELECT '",
            "SELECT 1 /*",
            "SELECT \"a",
            &long,
        ],
    );
    // A backslash hides the quote, or does not.
    all_refused(Refusal::Locks, &["SELECT '\\' FOR UPDATE --'", "SELECT '\\' ' FOR UPDATE --'"]);
}

#[test]
fn the_cause_is_the_token_that_decided() {
    for (text, cause) in [
        ("SELECT * FROM t FOR UPDATE", "UPDATE"),
        ("SELECT \"pg_is_in_recovery\"()", "\"pg_is_in_recovery\""),
        ("SELECT 1; TABLE t", "TABLE"),
        ("VACUUM", "VACUUM"),
        ("SELECT 1", ""),
        ("SELECT setseed(0.5)", ""),
    ] {
        let reading = reading(text);
        assert_eq!(&text[reading.cause], cause, "{text}");
    }
}

#[test]
fn every_reason_has_a_name_and_a_sentence_of_its_own() {
    for (at, one) in Refusal::ALL.iter().enumerate() {
        assert!(one.description().ends_with('.'));
        for other in &Refusal::ALL[at + 1..] {
            assert_ne!(one.name(), other.name());
            assert_ne!(one.description(), other.description());
        }
    }
}
