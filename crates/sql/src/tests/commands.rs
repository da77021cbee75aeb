//! Every command of the manual's part "SQL Commands", of PostgreSQL 15 to 18, with its signs. The
//! end-to-end tests ask PostgreSQL what state the statements leave.

use super::check;
use crate::Signs;

const NONE: Signs = Signs::NONE;
const RELEASE: Signs = Signs::RELEASE;
const TEMPORARY: Signs = Signs::TEMPORARY;
const OPAQUE: Signs = Signs::OPAQUE;
const SETTINGS: Signs = Signs::SETTINGS;

#[test]
fn transactions() {
    check(&[
        ("ABORT AND CHAIN", NONE),
        ("BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY", NONE),
        ("COMMIT", NONE),
        ("COMMIT PREPARED 'a'", NONE),
        ("END", NONE),
        ("LOCK TABLE ONLY t IN SHARE MODE NOWAIT", NONE),
        ("PREPARE TRANSACTION 'a'", NONE),
        ("RELEASE SAVEPOINT a", NONE),
        ("ROLLBACK", NONE),
        ("ROLLBACK PREPARED 'a'", NONE),
        ("ROLLBACK TO SAVEPOINT a", NONE),
        ("SAVEPOINT a", NONE),
        ("SET CONSTRAINTS ALL IMMEDIATE", NONE),
        ("SET TRANSACTION SNAPSHOT 'a'", NONE),
        ("START TRANSACTION READ WRITE", NONE),
    ]);
}

#[test]
fn queries_and_changes() {
    check(&[
        ("SELECT a, b FROM t WHERE c = 1 FOR UPDATE", NONE),
        ("TABLE t", NONE),
        ("VALUES (1, 2), (3, 4)", NONE),
        ("WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a", NONE),
        ("INSERT INTO t DEFAULT VALUES RETURNING *", NONE),
        ("INSERT INTO t (a) OVERRIDING SYSTEM VALUE VALUES (1)", NONE),
        ("UPDATE ONLY t SET a = 1, b = DEFAULT FROM s WHERE t.a = s.a RETURNING t.*", NONE),
        ("DELETE FROM t WHERE CURRENT OF c", NONE),
        ("MERGE INTO t USING s ON a = b WHEN MATCHED THEN UPDATE SET a = 1", NONE),
        ("TRUNCATE t RESTART IDENTITY CASCADE", NONE),
        ("COPY t FROM STDIN WITH (FORMAT csv)", NONE),
        ("COPY t FROM STDIN", NONE),
        ("COPY (SELECT a FROM t) TO STDOUT", NONE),
        ("EXPLAIN ANALYZE UPDATE t SET a = 1", NONE),
        ("DECLARE c CURSOR FOR SELECT 1", NONE),
        ("FETCH FORWARD 5 FROM c", NONE),
        ("MOVE ALL IN c", NONE),
        ("CLOSE c", RELEASE),
        ("NOTIFY a, 'b'", NONE),
        ("SHOW ALL", NONE),
        ("DO LANGUAGE plpgsql 'BEGIN END'", OPAQUE),
        ("CALL a.p(1)", OPAQUE),
        ("LISTEN a", Signs::LISTEN),
        ("UNLISTEN a", Signs::LISTEN),
        ("LOAD 'a'", Signs::LOAD),
        ("SET a = 1", SETTINGS),
        ("SET ROLE NONE", SETTINGS),
        ("SET SESSION AUTHORIZATION DEFAULT", SETTINGS),
        ("RESET a", SETTINGS),
        ("RESET SESSION AUTHORIZATION", SETTINGS),
    ]);
}

#[test]
fn maintenance() {
    check(&[
        ("ANALYZE VERBOSE t", NONE),
        ("CHECKPOINT", NONE),
        ("CLUSTER t USING i", NONE),
        ("COMMENT ON TABLE t IS 'CREATE TEMP TABLE x'", NONE),
        ("GRANT SELECT ON t TO bob WITH GRANT OPTION", NONE),
        ("GRANT SET ON PARAMETER a TO bob", NONE),
        ("REVOKE ALL ON t FROM bob", NONE),
        ("REASSIGN OWNED BY a TO b", NONE),
        ("REFRESH MATERIALIZED VIEW CONCURRENTLY v", NONE),
        ("REINDEX (CONCURRENTLY) TABLE t", NONE),
        ("SECURITY LABEL ON TABLE t IS 'a'", NONE),
        ("VACUUM (FULL, ANALYZE) t", NONE),
        ("IMPORT FOREIGN SCHEMA a FROM SERVER b INTO c", TEMPORARY),
    ]);
}

#[test]
fn every_alter_and_drop_may_release() {
    for object in OBJECTS {
        check(&[
            (&format!("ALTER {object} x OWNER TO bob"), signs_of(object, RELEASE)),
            (&format!("DROP {object} IF EXISTS x CASCADE"), RELEASE),
        ]);
    }
    check(&[
        ("DROP OWNED BY bob", RELEASE),
        ("ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO bob", RELEASE),
        ("ALTER SYSTEM SET a = 1", RELEASE),
        ("ALTER ROLE bob IN DATABASE d SET a = 1", RELEASE),
        ("ALTER DATABASE d RESET ALL", RELEASE),
        ("ALTER LARGE OBJECT 1 OWNER TO bob", RELEASE),
    ]);
}

#[test]
fn every_create_may_make_a_temporary_object() {
    for object in OBJECTS {
        let (text, expected) = (format!("CREATE {object} x"), signs_of(object, TEMPORARY));
        check(&[(&text, expected)]);
    }
    check(&[
        ("CREATE OR REPLACE RULE r AS ON INSERT TO t DO ALSO NOTIFY a", TEMPORARY),
        ("CREATE TRIGGER t AFTER INSERT ON x EXECUTE FUNCTION lower()", {
            TEMPORARY | OPAQUE | Signs::PREPARED
        }),
        ("CREATE UNLOGGED TABLE t AS TABLE s WITH NO DATA", TEMPORARY),
        ("CREATE RECURSIVE VIEW v (n) AS VALUES (1)", TEMPORARY | OPAQUE),
        ("CREATE UNIQUE INDEX CONCURRENTLY ON t USING btree (lower(a))", TEMPORARY | OPAQUE),
    ]);
}

fn signs_of(object: &str, signs: Signs) -> Signs {
    if object == "EXTENSION" { signs | OPAQUE } else { signs }
}

const OBJECTS: [&str; 39] = [
    "ACCESS METHOD",
    "AGGREGATE",
    "CAST",
    "COLLATION",
    "CONVERSION",
    "DATABASE",
    "DOMAIN",
    "EVENT TRIGGER",
    "EXTENSION",
    "FOREIGN DATA WRAPPER",
    "FOREIGN TABLE",
    "FUNCTION",
    "GROUP",
    "INDEX",
    "LANGUAGE",
    "MATERIALIZED VIEW",
    "OPERATOR",
    "OPERATOR CLASS",
    "OPERATOR FAMILY",
    "POLICY",
    "PROCEDURE",
    "PUBLICATION",
    "ROLE",
    "ROUTINE",
    "RULE",
    "SCHEMA",
    "SEQUENCE",
    "SERVER",
    "STATISTICS",
    "SUBSCRIPTION",
    "TABLE",
    "TABLESPACE",
    "TEXT SEARCH CONFIGURATION",
    "TEXT SEARCH DICTIONARY",
    "TRIGGER",
    "TYPE",
    "USER",
    "USER MAPPING",
    "VIEW",
];
