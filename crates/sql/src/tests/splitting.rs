//! Texts, their statements, and the names in them.

use crate::{Discarded, Verb, statements};

/// Each statement as (verb, its text, the name in it).
fn split(text: &str) -> Vec<(Verb, &str, &str)> {
    let parts = statements(text.as_bytes(), true);
    parts
        .map(|part| {
            let name = part.name.map_or("", |range| &text[range]);
            (part.verb, &text[part.range], name)
        })
        .collect()
}

#[test]
fn verbs_and_names() {
    use Verb::*;
    for (text, verb, name) in [
        ("BEGIN", Begin, ""),
        ("begin isolation level serializable", Begin, ""),
        ("START TRANSACTION", Begin, ""),
        ("COMMIT AND CHAIN", Commit, ""),
        ("END", Commit, ""),
        ("COMMIT PREPARED 'a'", CommitPrepared, ""),
        ("ROLLBACK", Rollback, ""),
        ("ABORT WORK", Rollback, ""),
        ("ROLLBACK PREPARED 'a'", RollbackPrepared, ""),
        ("ROLLBACK TO a", RollbackTo, "a"),
        ("ROLLBACK WORK TO SAVEPOINT \"A b\"", RollbackTo, "\"A b\""),
        ("ROLLBACK TO savepoint", RollbackTo, "savepoint"),
        ("SAVEPOINT a", Savepoint, "a"),
        ("RELEASE a", Release, "a"),
        ("RELEASE SAVEPOINT a", Release, "a"),
        ("RELEASE savepoint", Release, "savepoint"),
        ("PREPARE TRANSACTION 'a'", PrepareTransaction, ""),
        ("PREPARE a AS SELECT 1", Prepare, "a"),
        ("PREPARE transaction (int) AS SELECT 1", Prepare, "transaction"),
        ("PREPARE U&\"a\" AS SELECT 1", Prepare, ""),
        ("EXECUTE \"a\"\"b\"(1)", Execute, "\"a\"\"b\""),
        ("EXPLAIN EXECUTE a", Execute, "a"),
        ("EXPLAIN ANALYSE VERBOSE EXECUTE a", Execute, "a"),
        ("EXPLAIN (ANALYZE, COSTS (off)) EXECUTE a", Execute, "a"),
        ("EXPLAIN SELECT execute a", Other, ""),
        ("EXPLAIN (SELECT 1)", Other, ""),
        ("EXPLAIN DECLARE c CURSOR FOR SELECT 1", Other, ""),
        ("CREATE TEMP TABLE IF NOT EXISTS t (x) WITH (a) AS EXECUTE a(1)", Execute, "a"),
        ("EXPLAIN ANALYZE CREATE TABLE t AS EXECUTE a", Execute, "a"),
        ("CREATE TABLE t AS SELECT 1 AS execute FROM x", Other, ""),
        ("CREATE TRIGGER t AFTER INSERT ON x EXECUTE FUNCTION f()", Other, ""),
        ("DEALLOCATE a", Deallocate, "a"),
        ("DEALLOCATE PREPARE a", Deallocate, "a"),
        ("DEALLOCATE prepare", Deallocate, "prepare"),
        ("DEALLOCATE \"all\"", Deallocate, "\"all\""),
        ("DEALLOCATE ALL", DeallocateAll, ""),
        ("DEALLOCATE PREPARE ALL", DeallocateAll, ""),
        ("LISTEN Chan", Listen, "Chan"),
        ("UNLISTEN a", Unlisten, "a"),
        ("UNLISTEN *", UnlistenAll, ""),
        ("DISCARD ALL", Discard(Discarded::All), ""),
        ("DISCARD TEMPORARY", Discard(Discarded::Temp), ""),
        ("DISCARD PLANS", Discard(Discarded::Plans), ""),
        ("DISCARD SEQUENCES", Discard(Discarded::Sequences), ""),
        ("RESET ALL", ResetAll, ""),
        ("RESET a", Reset, ""),
        ("SET x = 1", Set { local: false }, ""),
        ("SET SESSION x = 1", Set { local: false }, ""),
        ("SET LOCAL x = 1", Set { local: true }, ""),
        ("SET TRANSACTION READ ONLY", Set { local: true }, ""),
        ("SET local.x = 1", Set { local: false }, ""),
        ("SELECT 1", Other, ""),
        ("(SELECT 1)", Other, ""),
        ("\"begin\"", Other, ""),
        ("", Empty, ""),
        (" -- a\n ;;", Empty, ""),
    ] {
        let [(found, _, of)] = split(text)[..] else { panic!("{text}: {:?}", split(text)) };
        assert_eq!((found, of), (verb, name), "{text}");
    }
}

#[test]
fn semicolons_split_where_postgresql_splits() {
    for (text, parts) in [
        ("a;b", &["a", "b"][..]),
        (" ; a ; ; b /* ; */ ; -- c", &["a", "b"]),
        ("SELECT ';'; b", &["SELECT ';'", "b"]),
        ("SELECT $x$;$x$;b", &["SELECT $x$;$x$", "b"]),
        (
            "CREATE RULE r AS ON INSERT TO t DO ALSO (SELECT 1; SELECT 2); b",
            &["CREATE RULE r AS ON INSERT TO t DO ALSO (SELECT 1; SELECT 2)", "b"],
        ),
        (
            "CREATE OR REPLACE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN a THEN 1 END; \
             SELECT x.end AS case; END; b",
            &[
                "CREATE OR REPLACE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN a THEN 1 \
                 END; SELECT x.end AS case; END",
                "b",
            ],
        ),
        (
            "CREATE FUNCTION f(begin atomic) LANGUAGE sql; b",
            &["CREATE FUNCTION f(begin atomic) LANGUAGE sql", "b"],
        ),
        ("BEGIN; SELECT 1; END", &["BEGIN", "SELECT 1", "END"]),
        ("SELECT 1; SELECT 'a ; b", &["SELECT 1", "SELECT 'a ; b"]),
    ] {
        let found: Vec<_> = split(text).into_iter().map(|(_, part, _)| part).collect();
        assert_eq!(found, parts, "{text}");
    }
}
