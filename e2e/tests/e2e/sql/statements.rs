//! Statements of each kind and each way to leave state, run by two versions of PostgreSQL.

use testkit::Postgres;

use super::session::Session;

/// Texts with the kinds of state that they change, or an empty string. The texts of a script run in
/// one session.
type Script = &'static [(&'static str, &'static str)];

const SCRIPTS: &[Script] = &[SETTINGS, NAMES, TEMPORARY, LOCKS, REST, FUNCTIONS, HARMLESS];

const SETTINGS: Script = &[
    ("SET work_mem = '5MB'", "setting"),
    ("RESET work_mem", "setting"),
    ("SET SESSION work_mem TO '6MB'", "setting"),
    ("SET TIME ZONE 'UTC'; SELECT 1", "setting"),
    ("SELECT 1; SET/**/search_path = a, b", "setting"),
    ("SET NAMES 'LATIN1'", "setting"),
    ("SET NAMES 'UTF8'", "setting"),
    ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "setting"),
    ("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE", "setting"),
    ("SET XML OPTION DOCUMENT", "setting"),
    ("SET SCHEMA 'public'", "setting"),
    ("SET local.thing = 'a'", "setting"),
    ("SET transaction.thing = 'a'", "setting"),
    ("SET constraints.thing TO 'a'", "setting"),
    ("SET ROLE app", "setting"),
    ("RESET ROLE", "setting"),
    ("SET SESSION AUTHORIZATION app", "setting"),
    ("RESET SESSION AUTHORIZATION", "setting"),
    ("SELECT set_config('work_mem', '7MB', false)", "setting"),
    ("SELECT set_config('work_mem', '8MB', 'off')", "setting"),
    ("SELECT \"pg_catalog\".\"set_config\"('work_mem', '10MB', false)", "setting"),
    ("SELECT U&\"\\0073et_config\"('work_mem', '11MB', false)", "setting"),
    ("SELECT U&\"!0073et_config\" UESCAPE '!' ('work_mem', '12MB', false)", "setting"),
    ("UPDATE pg_settings SET setting = '13MB' WHERE name = 'work_mem'", "setting"),
    ("VALUES (set_config('work_mem', '15MB', false))", "setting"),
    ("COPY (SELECT set_config('work_mem', '16MB', false)) TO STDOUT", "setting"),
    ("EXPLAIN ANALYZE SELECT set_config('work_mem', '17MB', false)", "setting"),
    ("CREATE TABLE by_default (a text DEFAULT set_config('work_mem', '18MB', false))", ""),
    ("SET standard_conforming_strings = off", "setting"),
    ("SELECT '\\'', set_config('work_mem', '20MB', false) --'", "setting"),
    ("SELECT '\\'; SET work_mem = 1'", ""),
    ("RESET ALL", "setting"),
    ("BEGIN; SET work_mem = '21MB'; COMMIT", "setting"),
    ("BEGIN; SET work_mem = '22MB'; ROLLBACK", ""),
    ("BEGIN", ""),
    ("SET work_mem = '23MB'", ""),
    ("COMMIT", "setting"),
    ("DISCARD ALL", "setting"),
];

const NAMES: Script = &[
    ("PREPARE a AS SELECT 1", "prepared"),
    ("PREPARE transaction (int) AS SELECT $1", "prepared"),
    ("EXECUTE a", ""),
    ("DEALLOCATE PREPARE a", "prepared"),
    ("DEALLOCATE ALL", "prepared"),
    ("PREPARE s AS SELECT set_config('work_mem', '5MB', false)", "prepared"),
    ("EXECUTE s", "setting"),
    ("RESET work_mem", "setting"),
    ("EXPLAIN (ANALYZE) EXECUTE s", "setting"),
    ("DISCARD ALL", "prepared setting"),
    ("PREPARE s AS SELECT set_config('work_mem', '5MB', false)", "prepared"),
    ("CREATE TABLE by_execute AS EXECUTE s", "setting"),
    ("LISTEN a", "channel"),
    ("LISTEN \"B c\"", "channel"),
    ("UNLISTEN a", "channel"),
    ("UNLISTEN *", "channel"),
    ("LISTEN a", "channel"),
    ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", "cursor"),
    ("FETCH c", ""),
    ("CLOSE c", "cursor"),
    ("BEGIN; DECLARE c INSENSITIVE SCROLL CURSOR WITH\nHOLD FOR SELECT 1; COMMIT", "cursor"),
    ("CLOSE ALL", "cursor"),
    ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", "cursor"),
    ("DISCARD ALL", "channel cursor prepared setting"),
];

const TEMPORARY: Script = &[
    ("CREATE TEMP TABLE a (x int)", "temporary"),
    ("CREATE TEMPORARY TABLE b AS SELECT 1", "temporary"),
    ("CREATE LOCAL TEMPORARY TABLE c (x int)", "temporary"),
    ("CREATE OR REPLACE TEMP VIEW d AS SELECT 1", "temporary"),
    ("CREATE TEMP SEQUENCE e", "temporary"),
    ("CREATE TEMP RECURSIVE VIEW f (n) AS SELECT 1", "temporary"),
    ("CREATE TABLE pg_temp.g ()", "temporary"),
    ("CREATE FUNCTION pg_temp.h() RETURNS int LANGUAGE sql RETURN 1", "temporary"),
    ("CREATE TYPE pg_temp.i AS ENUM ('a')", "temporary"),
    ("CREATE DOMAIN pg_temp.j AS int", "temporary"),
    ("CREATE VIEW over_temporary AS SELECT * FROM a", "temporary"),
    ("CREATE INDEX ON a (x)", "temporary"),
    ("SELECT 1 AS x INTO TEMP k", "temporary"),
    ("SELECT 1 AS x INTO TEMPORARY TABLE l", "temporary"),
    ("SELECT 1 AS x INTO pg_temp.m", "temporary"),
    ("SELECT (1) insert INTO TEMP n", "temporary"),
    ("SELECT 1 AS insert INTO TEMP n2", "temporary"),
    ("(SELECT 1 AS x INTO TEMP o)", "temporary"),
    ("WITH q AS (SELECT 1 AS x) SELECT * INTO TEMP p FROM q", "temporary"),
    ("EXPLAIN ANALYZE CREATE TEMP TABLE q AS SELECT 1", "temporary"),
    ("DROP TABLE q", "temporary"),
    ("ALTER TABLE a DROP COLUMN x CASCADE", "temporary"),
    ("DISCARD TEMP", "temporary"),
    ("SET search_path = pg_temp, public", "setting"),
    ("CREATE TABLE r (x int)", "temporary"),
    ("SELECT 1 AS x INTO s", "temporary"),
    ("CREATE TEMP TABLE t ON COMMIT DROP AS SELECT 1", ""),
    ("BEGIN; CREATE TEMP TABLE u (); ROLLBACK", ""),
    ("CREATE TEMP TABLE v (x serial PRIMARY KEY)", "temporary"),
    ("DROP TABLE r, s, v", "temporary"),
];

const LOCKS: Script = &[
    ("SELECT pg_advisory_lock(1)", "lock"),
    ("SELECT pg_advisory_lock_shared(2)", "lock"),
    ("SELECT pg_try_advisory_lock(3, 4)", "lock"),
    ("SELECT pg_try_advisory_lock_shared(5)", "lock"),
    ("SELECT count(*) FROM (VALUES (6), (7)) v (n) WHERE PG_Try_Advisory_Lock(n)", "lock"),
    ("SELECT pg_advisory_unlock(1)", "lock"),
    ("SELECT pg_advisory_unlock_shared(2)", "lock"),
    ("SELECT pg_advisory_unlock_all()", "lock"),
    ("BEGIN; SELECT pg_advisory_xact_lock(1); COMMIT", ""),
    ("BEGIN; SELECT pg_advisory_lock(1); ROLLBACK", "lock"),
    ("DISCARD ALL", "lock"),
];

const REST: Script = &[
    ("SELECT pg_create_physical_replication_slot(slot_name(), true, true)", "slot"),
    ("SELECT pg_drop_replication_slot(slot_name())", "slot"),
    ("SELECT pg_replication_origin_create(slot_name())", ""),
    ("SELECT pg_replication_origin_session_setup(slot_name())", "origin"),
    ("SELECT pg_replication_origin_session_reset()", "origin"),
    ("SELECT pg_replication_origin_drop(slot_name())", ""),
];

const FUNCTIONS: Script = &[
    (
        "CREATE FUNCTION sets() RETURNS text LANGUAGE sql AS \
         $$ SELECT set_config('work_mem', \
         (pg_size_bytes(current_setting('work_mem')) / 1024 + 1)::text, false) $$; \
         CREATE PROCEDURE sets_as_well() LANGUAGE sql AS $$ SELECT sets() $$",
        "",
    ),
    ("SELECT sets()", "setting"),
    ("SELECT public.\"sets\" ( )", "setting"),
    ("SELECT * FROM (SELECT 1) a JOIN sets() ON true", "setting"),
    ("SELECT DISTINCT ON (a) sets() FROM (VALUES (1)) v (a)", "setting"),
    ("SELECT 'a' OPERATOR(pg_catalog.||) sets()", "setting"),
    ("CALL sets_as_well()", "setting"),
    ("DO $$ BEGIN SET work_mem = '5MB'; END $$", "setting"),
    ("CREATE TABLE filled (a text)", ""),
    ("INSERT INTO filled (a) SELECT sets()", "setting"),
    ("INSERT INTO filled (a) VALUES (sets()) ON CONFLICT DO NOTHING", "setting"),
    ("UPDATE filled SET (a) = ROW (sets())", "setting"),
    ("DELETE FROM filled WHERE a <> sets() || 'x'", "setting"),
    ("CREATE FUNCTION conflict(int) RETURNS bool LANGUAGE sql AS $$ SELECT sets() <> '' $$", ""),
    (
        "INSERT INTO filled SELECT 1 FROM (SELECT 1) a JOIN (SELECT 2) b ON conflict(3) \
         ON CONFLICT DO NOTHING",
        "setting",
    ),
    ("CREATE FUNCTION over(int) RETURNS bool LANGUAGE sql AS $$ SELECT sets() <> '' $$", ""),
    ("SELECT DISTINCT ON (a) over(a) FROM (VALUES (1)) v (a)", "setting"),
    ("SELECT true OPERATOR(pg_catalog.=) over(1)", "setting"),
    ("CREATE FUNCTION \"values\"(int) RETURNS bool LANGUAGE sql AS $$ SELECT sets() <> '' $$", ""),
    ("SELECT \"values\"(1)", "setting"),
    ("SELECT public.values(1)", "setting"),
    ("MERGE INTO filled USING (SELECT 1) s ON sets() = a WHEN NOT MATCHED THEN DO NOTHING", {
        "setting"
    }),
    ("DECLARE c CURSOR WITH HOLD FOR SELECT sets()", "cursor setting"),
    ("DO $$ BEGIN EXECUTE 'CLOSE c'; END $$", "cursor"),
    ("DO $$ BEGIN CREATE TEMP TABLE made (); PERFORM pg_advisory_lock(1); END $$", {
        "lock temporary"
    }),
    ("DISCARD ALL", "lock setting temporary"),
];

const HARMLESS: Script = &[
    ("SELECT count(*), sum(n) OVER (ORDER BY n) FROM generate_series(1, 3) n GROUP BY (n)", ""),
    ("SET LOCAL work_mem = '5MB'", ""),
    ("BEGIN; SET LOCAL work_mem = '5MB'; SET TRANSACTION READ ONLY; COMMIT", ""),
    ("BEGIN; SELECT set_config('work_mem', '5MB', true); COMMIT", ""),
    ("BEGIN; DECLARE c CURSOR FOR SELECT 1; FETCH c; COMMIT", ""),
    ("NOTIFY a, 'b'; SELECT pg_notify('a', 'c')", ""),
    ("EXPLAIN SELECT 1; SHOW work_mem; VALUES (1); TABLE pg_class", ""),
];

/// Needs XML, which the other PostgreSQL is built without.
const XML: Script = &[(
    "SELECT query_to_xml('SELECT set_config(''work_mem'', ''19MB'', false)', true, true, '')",
    "setting",
)];

#[test]
fn texts_that_leave_state_have_a_sign() {
    check(Postgres::shared(), SCRIPTS);
    check(Postgres::shared(), &[XML]);
}

#[test]
fn texts_that_leave_state_have_a_sign_in_postgresql_18() {
    check(Postgres::shared_v18(), SCRIPTS);
}

fn check(postgres: &Postgres, scripts: &[Script]) {
    let mut wrong = String::new();
    for script in scripts {
        let database = postgres.database();
        // Slots and origins belong to the cluster, not to the database.
        let name = "CREATE FUNCTION slot_name() RETURNS name LANGUAGE sql AS \
                    $$ SELECT 'of_' || current_database() $$";
        postgres.sql(&database, name);
        let mut session = Session::new(postgres, &database);
        for (text, expected) in *script {
            let (error, change) = session.run(text);
            let mut note = |what: String| wrong.extend([text, ": ", &what, "\n"]);
            if let Some(error) = error {
                note(format!("{error:?}"));
            }
            let Some(change) = change else { continue };
            if !change.missed.is_empty() {
                note(format!("no sign of {:?}", change.missed));
            }
            let kinds = Vec::from_iter(change.kinds).join(" ");
            if kinds != *expected {
                note(format!("changes \"{kinds}\""));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
