"""What a session's statements leave behind, step by step, and what the library has to report.

A step is the statement, the items of the state behind it (as in the report, in any order; SAME if
they are as before) and the events. With ERROR as the fourth, the statement must fail.
"""

from dataclasses import dataclass, field

SAME = None
ERROR = "error"

OBJECTS = r"""
CREATE ROLE app LOGIN;
CREATE ROLE bob;
GRANT bob TO app;
GRANT CREATE ON SCHEMA public TO app, bob;
CREATE SEQUENCE numbers;
SELECT nextval('numbers');
GRANT ALL ON SEQUENCE numbers TO PUBLIC;

CREATE FUNCTION sets(name text, value text, boolean DEFAULT false) RETURNS text LANGUAGE plpgsql AS
    $$ BEGIN RETURN set_config(name, value, $3); END $$;
CREATE FUNCTION sets_sql(name text, value text) RETURNS text LANGUAGE sql AS
    $$ SELECT set_config(name, value, false) $$;
CREATE FUNCTION sets_within(value text) RETURNS text LANGUAGE plpgsql SET work_mem = '1MB' AS
    $$ BEGIN RETURN current_setting('work_mem') || value; END $$;
CREATE VIEW setting AS SELECT set_config('work_mem', '7MB', false) AS value;

CREATE TABLE triggered (a int);
CREATE FUNCTION on_insert() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM set_config('work_mem', '8MB', false); RETURN NEW; END $$;
CREATE TRIGGER setting BEFORE INSERT ON triggered FOR EACH ROW EXECUTE FUNCTION on_insert();

CREATE DOMAIN checked AS int CHECK (set_config('work_mem', (VALUE + 8) || 'MB', false) IS NOT NULL);
CREATE TYPE pair AS (a int, b int);
CREATE FUNCTION pair_as_int(pair) RETURNS int LANGUAGE sql AS
    $$ SELECT length(set_config('work_mem', '10MB', false)) $$;
CREATE CAST (pair AS int) WITH FUNCTION pair_as_int(pair);
CREATE FUNCTION pair_plus(pair, pair) RETURNS int LANGUAGE sql AS
    $$ SELECT length(set_config('work_mem', '11MB', false)) $$;
CREATE OPERATOR + (LEFTARG = pair, RIGHTARG = pair, FUNCTION = pair_plus);
CREATE TABLE defaulted (a text DEFAULT set_config('work_mem', '12MB', false), b int);

CREATE TABLE locking (a int);
CREATE FUNCTION on_lock() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_advisory_lock(NEW.a); RETURN NEW; END $$;
CREATE TRIGGER lock BEFORE INSERT ON locking FOR EACH ROW EXECUTE FUNCTION on_lock();

CREATE FUNCTION asks() RETURNS bigint LANGUAGE plpgsql AS
    $$ BEGIN RETURN currval('numbers'); END $$;
CREATE FUNCTION asks_sql() RETURNS bigint LANGUAGE sql AS $$ SELECT lastval() $$;
CREATE VIEW asking AS SELECT currval('numbers') AS value;
CREATE VIEW seeding AS SELECT setseed(0.1) IS NULL AS value;
CREATE TABLE asked (a int, b bigint DEFAULT currval('numbers'));
CREATE TABLE asked_by_trigger (a bigint);
CREATE FUNCTION on_ask() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN NEW.a := lastval(); RETURN NEW; END $$;
CREATE TRIGGER ask BEFORE INSERT ON asked_by_trigger FOR EACH ROW EXECUTE FUNCTION on_ask();
CREATE FUNCTION seeds() RETURNS void LANGUAGE plpgsql AS
    $$ BEGIN PERFORM setseed(0.5); END $$;
CREATE FUNCTION loads() RETURNS void LANGUAGE plpgsql AS
    $$ BEGIN LOAD 'plpgsql'; END $$;
CREATE TABLE deferred (a int UNIQUE DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE lobs (a oid);
CREATE PROCEDURE commits() LANGUAGE plpgsql AS
    $$ BEGIN PERFORM set_config('work_mem', '13MB', false); COMMIT;
             PERFORM currval('numbers'); COMMIT; END $$;
GRANT ALL ON ALL TABLES IN SCHEMA public TO PUBLIC;
"""


@dataclass(frozen=True)
class Group:
    """Steps of one session."""

    name: str
    steps: list
    user: str = "postgres"
    asks: dict = field(default_factory=dict)


W = "s:work_mem="

TABLE = [
    Group("settings", [
        ("SET work_mem = '64MB'", W + "64MB", ""),
        ("SELECT 1", SAME, ""),
        ("SET work_mem = 65536", SAME, ""),
        ("SET work_mem = '1000kB'", W + "1000kB", ""),
        ("RESET work_mem", "", ""),
        ("SET application_name = 'a;b=c\\d'",
         r"s:application_name=a\073b\075c\134d", ""),
        ("SET statement_timeout = '90s'",
         r"s:application_name=a\073b\075c\134d;s:statement_timeout=90s", ""),
        ("RESET ALL", "", ""),
        ("SET enable_seqscan = off", "s:enable_seqscan=off", ""),
        ("SET bytea_output = escape", "s:enable_seqscan=off;s:bytea_output=escape", ""),
        ("SET random_page_cost = 1.23456789",
         "s:enable_seqscan=off;s:bytea_output=escape;s:random_page_cost=1.23456789", ""),
        ("DISCARD ALL", "", "discard"),
        ("SET vacuum_cost_delay = 2", "s:vacuum_cost_delay=2ms", ""),
        ("SET vacuum_cost_delay = TO DEFAULT", SAME, "", ERROR),
        ("SET vacuum_cost_delay TO DEFAULT", "", ""),
        ("SET search_path = \"a b\", public", 's:search_path="a b", public', ""),
        ("SET TIME ZONE 'europe/berlin'",
         's:search_path="a b", public;s:TimeZone=Europe/Berlin', ""),
        ("SET TIME ZONE -3",
         's:search_path="a b", public;s:TimeZone=<-03>+03', ""),
        ("RESET ALL", "", ""),
        ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
         "s:default_transaction_read_only=on", ""),
        ("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
         "s:default_transaction_read_only=off", ""),
        ("SET transaction_isolation = 'serializable'", SAME, ""),
        ("UPDATE pg_settings SET setting = 'off' WHERE name = 'enable_hashjoin'",
         "s:default_transaction_read_only=off;s:enable_hashjoin=off", ""),
        ("SELECT set_config('enable_hashjoin', NULL, false)",
         "s:default_transaction_read_only=off", ""),
        ("RESET ALL", "", ""),
        ("SET NAMES 'LATIN1'", "s:client_encoding=LATIN1", ""),
        ("RESET ALL", "", ""),
    ]),
    Group("transactions", [
        ("BEGIN", SAME, ""),
        ("SET work_mem = '1MB'", SAME, ""),
        ("COMMIT", W + "1MB", ""),
        ("BEGIN; SET work_mem = '2MB'; ROLLBACK", SAME, ""),
        ("BEGIN; SET LOCAL work_mem = '2MB'; COMMIT", SAME, ""),
        ("BEGIN; SAVEPOINT a; SET work_mem = '3MB'; ROLLBACK TO a; COMMIT", SAME, ""),
        ("BEGIN; SAVEPOINT a; SET work_mem = '4MB'; RELEASE a; COMMIT", W + "4MB", ""),
        ("BEGIN; SET work_mem = '5MB'; SET LOCAL work_mem = '6MB'; COMMIT", W + "5MB", ""),
        ("BEGIN; RESET work_mem; SELECT 1/0", SAME, "", ERROR),
        ("ROLLBACK", SAME, ""),
        ("SET work_mem = '6MB'; SELECT 1/0", SAME, "", ERROR),
        ("BEGIN; RESET work_mem; COMMIT", "", ""),
        ("SET LOCAL work_mem = '6MB'", SAME, ""),
        ("BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY; SELECT 1; COMMIT", SAME, ""),
        ("BEGIN; SET work_mem = '7MB'; PREPARE TRANSACTION 'two'", W + "7MB", ""),
        ("ROLLBACK PREPARED 'two'", SAME, ""),
        ("CALL commits()", W + "13MB", "currval", ERROR),
    ]),
    Group("ends of transactions", [
        ("BEGIN; SET work_mem = '1MB'; COMMIT AND CHAIN", SAME, ""),
        ("ROLLBACK", W + "1MB", ""),
        ("BEGIN; SAVEPOINT a; SET work_mem = '2MB'; SAVEPOINT b; SET work_mem = '3MB'; "
         "ROLLBACK TO b; RELEASE a; COMMIT", W + "2MB", ""),
        ("BEGIN; SET work_mem = '4MB'; INSERT INTO deferred VALUES (1), (1); COMMIT", SAME, "", ERROR),
        ("SET work_mem = '4MB'; COMMIT", W + "4MB", ""),
        ("SET work_mem = '5MB'; ROLLBACK", SAME, ""),
        ("DO $$ BEGIN SET work_mem = '6MB'; COMMIT; SET work_mem = '7MB'; ROLLBACK; END $$",
         W + "6MB", ""),
        ("BEGIN; SET work_mem = '7MB'; SET work_mem = 'much'", SAME, "", ERROR),
        ("COMMIT", SAME, ""),
        ("BEGIN READ ONLY; SET work_mem = '8MB'; COMMIT", W + "8MB", ""),
        ("COPY deferred TO STDOUT", SAME, ""),
        ("INSERT INTO lobs SELECT lo_create(0)", SAME, ""),
        ("BEGIN; SELECT lo_open(a, 131072) FROM lobs; COMMIT", SAME, ""),
        ("BEGIN; SELECT pg_export_snapshot() IS NULL; COMMIT", SAME, ""),
        ("VACUUM deferred", SAME, ""),
        ("", SAME, ""),
        ("RESET ALL; BEGIN", SAME, ""),
        ("COMMIT", "", ""),
    ]),
    Group("settings that functions make", [
        ("SELECT sets('work_mem', '2MB')", W + "2MB", ""),
        ("SELECT sets('work_mem', '3MB', true)", SAME, ""),
        ("SELECT sets_sql('work_mem', '4MB')", W + "4MB", ""),
        ("SELECT sets_within('')", SAME, ""),
        ("SELECT * FROM setting", W + "7MB", ""),
        ("INSERT INTO triggered VALUES (1)", W + "8MB", ""),
        ("SELECT 1::checked", W + "9MB", ""),
        ("SELECT ROW(1, 2)::pair::int", W + "10MB", ""),
        ("SELECT ROW(1, 2)::pair + ROW(1, 2)::pair", W + "11MB", ""),
        ("INSERT INTO defaulted (b) VALUES (1)", W + "12MB", ""),
        ("DO $$ BEGIN SET work_mem = '14MB'; END $$", W + "14MB", ""),
        ("DO $$ BEGIN PERFORM sets('work_mem', '15MB'); RAISE 'no'; END $$", SAME, "", ERROR),
        ("DO $$ BEGIN BEGIN SET work_mem = '16MB'; RAISE 'no'; EXCEPTION WHEN others THEN END; END $$",
         SAME, ""),
        ("SELECT sets('made.' || 'up', '1')", W + "14MB;s:made.up=1", ""),
        ("DO $$ BEGIN RESET ALL; END $$", "", ""),
    ]),
    Group("an application's own settings", [
        ("SET app.tenant = 'seven'", "s:app.tenant=seven", ""),
        ("SET app.tenant = ''", "s:app.tenant=", ""),
        ("RESET app.tenant", "", ""),
        ("SELECT current_setting('app.tenant', true)", SAME, ""),
        ("BEGIN; SET LOCAL app.tenant = 'x'; COMMIT", SAME, ""),
        ("SELECT set_config('app.text', E'a\\nb', false)", r"s:app.text=a\012b", ""),
        ("SET plpgsql.variable_conflict = 'use_column'",
         r"s:app.text=a\012b;s:plpgsql.variable_conflict=use_column", ""),
        ("DISCARD ALL", "", "discard"),
    ]),
    Group("roles", [
        ("SET ROLE bob", "s:role=bob", ""),
        ("SET work_mem = '2MB'", "s:role=bob;" + W + "2MB", ""),
        ("SET ROLE NONE", "s:role=none;" + W + "2MB", ""),
        ("RESET ROLE", W + "2MB", ""),
        ("RESET ALL", "", ""),
        ("BEGIN; SET LOCAL ROLE bob; COMMIT", SAME, ""),
        ("DO $$ BEGIN SET ROLE bob; END $$", "s:role=bob", ""),
        ("DISCARD ALL", "", "discard"),
    ], user="app"),
    # PostgreSQL itself sets the role to none with the session authorization.
    Group("session authorization", [
        ("SET SESSION AUTHORIZATION app", "s:session_authorization=app;s:role=none", ""),
        ("SET ROLE bob", "s:session_authorization=app;s:role=bob", ""),
        ("RESET ROLE", "s:session_authorization=app", ""),
        ("RESET SESSION AUTHORIZATION", "", ""),
        ("SET SESSION AUTHORIZATION app", "s:session_authorization=app;s:role=none", ""),
        ("SET SESSION AUTHORIZATION DEFAULT", "", ""),
        ("BEGIN; SET LOCAL SESSION AUTHORIZATION app; COMMIT", SAME, ""),
        ("DISCARD ALL", "", "discard"),
    ]),
    Group("settings that few may see", [
        ("SET dynamic_library_path = '$libdir:/a'", "s:dynamic_library_path=$libdir:/a", ""),
        ("SET SESSION AUTHORIZATION app",
         "s:dynamic_library_path=$libdir:/a;s:session_authorization=app;s:role=none", ""),
        ("SHOW dynamic_library_path", SAME, "", ERROR),
        ("DISCARD ALL", "", "discard"),
    ]),
    Group("the library's own settings", [
        ("SET weir.route = 'primary'", "s:weir.route=primary", ""),
        ("SET weir.token = '0/1'", "s:weir.route=primary;s:weir.token=0/1", ""),
        ("SET weir.client = 'key 10.0.0.1 5'", SAME, ""),
        ("SET weir.state = 'v1'", SAME, "", ERROR),
        ("SET weir.report = 0", SAME, "", ERROR),
        ("SELECT set_config('weir.report', '0', false)", SAME, "", ERROR),
        ("SET weir.key = 'key'", SAME, "", ERROR),
        ("SET weir.unsupported = 'pin'", SAME, "", ERROR),
        ("RESET ALL", "", ""),
    ]),
    Group("temporary objects", [
        ("CREATE TEMP TABLE mine (a int)", "t", ""),
        ("INSERT INTO mine VALUES (1)", SAME, ""),
        ("DROP TABLE mine", "", ""),
        ("CREATE TEMP TABLE mine (a int) ON COMMIT DROP", SAME, ""),
        ("BEGIN; CREATE TEMP TABLE mine (a int); ROLLBACK", SAME, ""),
        ("BEGIN; CREATE TEMP TABLE mine (a int); COMMIT; SELECT 1", "t", ""),
        ("BEGIN; DROP TABLE mine; ROLLBACK", SAME, ""),
        ("DISCARD TEMP", "", ""),
        ("CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "t", ""),
        ("DISCARD TEMP", "", ""),
        ("CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "t", ""),
        ("DROP FUNCTION pg_temp.f()", "", ""),
        ("CREATE TYPE public.kind AS (a int)", SAME, ""),
        ("CREATE FUNCTION pg_temp.g(public.kind) RETURNS int LANGUAGE sql AS 'SELECT 1'", "t", ""),
        ("DROP TYPE public.kind CASCADE", "", ""),
        ("CREATE TEMP VIEW w AS SELECT 1", "t", ""),
        ("DROP VIEW w", "", ""),
        ("CREATE TEMP SEQUENCE q", "t", ""),
        ("DISCARD ALL", "", "discard"),
        ("DO $$ BEGIN CREATE TEMP TABLE mine (a int); END $$", "t", ""),
        ("DO $$ BEGIN DROP TABLE mine; END $$", "", ""),
        ("SELECT * INTO TEMP other FROM generate_series(1, 3)", "t", ""),
        ("BEGIN; TRUNCATE other; DROP TABLE other; COMMIT", "", ""),
        ("BEGIN; SAVEPOINT a; CREATE TEMP TABLE x (a int); ROLLBACK TO a; COMMIT", SAME, ""),
        ("BEGIN; CREATE TEMP TABLE x (a int); SAVEPOINT a; DROP TABLE x; ROLLBACK TO a; COMMIT", "t", ""),
        ("ALTER TABLE x ADD b int", SAME, ""),
        ("ALTER TABLE x SET SCHEMA public", SAME, "", ERROR),
        ("CREATE TEMP TABLE y (a int) ON COMMIT DELETE ROWS; DROP TABLE x", SAME, ""),
        ("DROP TABLE y", "", ""),
        ("CREATE TYPE pg_temp.e AS ENUM ('a')", "t", ""),
        ("DROP TYPE pg_temp.e", "", ""),
        ("CREATE COLLATION pg_temp.c FROM \"C\"", "t", ""),
        ("DROP COLLATION pg_temp.c", "", ""),
        ("CREATE TEMP TABLE m (a int) PARTITION BY RANGE (a)", "t", ""),
        ("CREATE TEMP TABLE p PARTITION OF m DEFAULT", SAME, ""),
        ("DROP TABLE m", "", ""),
        ("CREATE TABLE public.plain (a int); CREATE TEMP VIEW v AS TABLE public.plain", "t", ""),
        ("DROP TABLE public.plain CASCADE", "", ""),
    ]),
    Group("locks", [
        ("SELECT pg_advisory_lock(1)", "k", ""),
        ("SELECT pg_advisory_lock_shared(2)", SAME, ""),
        ("SELECT pg_advisory_unlock(1)", SAME, ""),
        ("SELECT pg_advisory_unlock_shared(2)", "", ""),
        ("SELECT pg_advisory_xact_lock(1)", SAME, ""),
        ("INSERT INTO locking VALUES (3)", "k", ""),
        ("SELECT pg_advisory_unlock_all()", "", ""),
        ("BEGIN; SELECT pg_advisory_lock(4); ROLLBACK", "k", ""),
        ("DISCARD ALL", "", "discard"),
        ("BEGIN; LOCK TABLE triggered; COMMIT", SAME, ""),
        ("DO $$ BEGIN PERFORM pg_try_advisory_lock(5); END $$", "k", ""),
        ("SELECT pg_advisory_unlock(5)", "", ""),
        ("SELECT pg_advisory_lock(6), 1 / (SELECT 0)", "k", "", ERROR),
        ("SELECT pg_advisory_unlock(6)", "", ""),
        ("BEGIN; SAVEPOINT a; SELECT pg_advisory_lock(7); ROLLBACK TO a; COMMIT", "k", ""),
        ("SELECT pg_advisory_lock(7)", SAME, ""),
        ("SELECT pg_advisory_unlock(7)", SAME, ""),
        ("SELECT pg_advisory_unlock(7)", "", ""),
    ]),
    Group("cursors", [
        ("BEGIN; DECLARE a CURSOR FOR SELECT 1; COMMIT", SAME, ""),
        ("DECLARE a CURSOR WITH HOLD FOR SELECT 1", "c", ""),
        ("FETCH a", SAME, ""),
        ("FETCH a", SAME, ""),
        ("CLOSE a", "", ""),
        ("BEGIN; DECLARE a CURSOR WITH HOLD FOR SELECT 1; ROLLBACK", SAME, ""),
        ("DO $$ BEGIN EXECUTE 'DECLARE b CURSOR WITH HOLD FOR SELECT 2'; END $$", "c", ""),
        ("CLOSE ALL", "", ""),
        ("DECLARE a NO SCROLL CURSOR WITH HOLD FOR SELECT 1", "c", ""),
        ("FETCH BACKWARD FROM a", SAME, "", ERROR),
        ("CLOSE a", "", ""),
        ("BEGIN; DECLARE a CURSOR WITH HOLD FOR SELECT 1 / (i - 2) FROM generate_series(1, 2) i; COMMIT",
         SAME, "", ERROR),
        ("DECLARE a CURSOR WITH HOLD FOR SELECT 1", "c", ""),
        ("BEGIN; CLOSE a; ROLLBACK", "", ""),
        ("DECLARE a CURSOR WITH HOLD FOR SELECT 1", "c", ""),
        ("DISCARD ALL", "", "discard"),
    ]),
    Group("channels", [
        ("LISTEN a", "l:a", ""),
        ("LISTEN \"B;c\"", r"l:a;l:B\073c", ""),
        ("UNLISTEN a", r"l:B\073c", ""),
        ("BEGIN; LISTEN d; ROLLBACK", SAME, ""),
        ("BEGIN; LISTEN d", SAME, ""),
        ("COMMIT", r"l:B\073c;l:d", ""),
        ("UNLISTEN *", "", ""),
        ("DO $$ BEGIN EXECUTE 'LISTEN e'; END $$", "l:e", ""),
        ("NOTIFY e", SAME, ""),
        ("BEGIN; LISTEN f; UNLISTEN *; LISTEN g; COMMIT", "l:g", ""),
        ("LISTEN g; NOTIFY g", SAME, ""),
        ("BEGIN; UNLISTEN *; SAVEPOINT a; LISTEN h; ROLLBACK TO a; COMMIT", "", ""),
        ("LISTEN g", "l:g", ""),
        ("DISCARD ALL", "", "discard"),
    ]),
    Group("prepared statements", [
        ("PREPARE a AS SELECT 1", r"p:a=PREPARE a AS SELECT 1", ""),
        ("EXECUTE a", SAME, ""),
        ("BEGIN; DEALLOCATE a; ROLLBACK", "", ""),
        ("BEGIN; PREPARE \"B\" (int) AS SELECT $1; SELECT 1/0", SAME, "", ERROR),
        ("ROLLBACK", r'p:B=BEGIN\073 PREPARE "B" (int) AS SELECT $1\073 SELECT 1/0', ""),
        ("DEALLOCATE ALL", "", ""),
        ("DO $$ BEGIN EXECUTE 'PREPARE c AS SELECT 3'; END $$", "p:c=PREPARE c AS SELECT 3", ""),
        ("PREPARE nothing AS SELECT FROM missing", SAME, "", ERROR),
        ("DEALLOCATE c; PREPARE c AS SELECT 4",
         r"p:c=DEALLOCATE c\073 PREPARE c AS SELECT 4", ""),
        ("DISCARD ALL", "", "discard"),
    ]),
    Group("numbers of sequences", [
        ("SELECT nextval('numbers')", SAME, ""),
        ("SELECT currval('numbers')", SAME, "currval"),
        ("SELECT lastval()", SAME, "lastval"),
        ("SELECT asks()", SAME, "currval"),
        ("SELECT asks()", SAME, "currval"),
        ("SELECT asks_sql()", SAME, "lastval"),
        ("SELECT * FROM asking", SAME, "currval"),
        ("INSERT INTO asked (a) VALUES (1)", SAME, "currval"),
        ("INSERT INTO asked_by_trigger VALUES (1)", SAME, "lastval"),
        ("DO $$ BEGIN PERFORM currval('numbers'), lastval(); END $$", SAME, "currval,lastval"),
        ("PREPARE ask AS SELECT currval('numbers')", "p:ask=PREPARE ask AS SELECT currval('numbers')",
         ""),
        ("EXECUTE ask", SAME, "currval"),
        ("EXECUTE ask", SAME, "currval"),
        ("BEGIN; SELECT currval('numbers'); ROLLBACK", SAME, "currval"),
        ("BEGIN; SELECT currval('numbers'); DISCARD SEQUENCES; COMMIT", SAME, "discard"),
        ("DISCARD SEQUENCES; SELECT nextval('numbers'), currval('numbers')", SAME,
         "discard,currval"),
        ("SELECT 1", SAME, ""),
    ]),
    Group("random numbers and libraries", [
        ("SELECT setseed(0.5)", SAME, "setseed"),
        ("SET seed = 0.5", SAME, "setseed"),
        ("SET seed = 0.5", SAME, "setseed"),
        ("SELECT set_config('seed', '0.1', false)", SAME, "setseed"),
        ("SELECT * FROM seeding", SAME, "setseed"),
        ("SELECT seeds()", SAME, "setseed"),
        ("SELECT random()", SAME, ""),
        ("LOAD 'plpgsql'", SAME, "load"),
        ("DO $$ BEGIN LOAD 'plpgsql'; END $$", SAME, "load"),
        ("SELECT loads()", SAME, "load"),
        ("LOAD 'weir'", SAME, "load"),
        ("SELECT pg_create_physical_replication_slot('kept')", SAME, ""),
        ("SELECT pg_drop_replication_slot('kept')", SAME, ""),
        ("SELECT pg_create_physical_replication_slot('mine', false, true)", SAME, "slot"),
        ("SELECT pg_replication_origin_create('o')", SAME, ""),
        ("SELECT pg_replication_origin_session_setup('o')", SAME, "origin"),
        ("SELECT pg_replication_origin_session_reset()", SAME, ""),
        ("SELECT pg_backup_start('label', true)", SAME, "backup"),
    ]),
    Group("refused", [
        ("SELECT nextval('numbers')", SAME, ""),
        ("SELECT currval('numbers')", SAME, "", "0A000"),
        ("SELECT asks()", SAME, "", "0A000"),
        ("SELECT asks_sql()", SAME, "", "0A000"),
        ("SELECT * FROM asking", SAME, "", "0A000"),
        ("INSERT INTO asked (a) VALUES (1)", SAME, "", "0A000"),
        ("INSERT INTO asked_by_trigger VALUES (1)", SAME, "", "0A000"),
        ("DO $$ BEGIN PERFORM lastval(); END $$", SAME, "", "0A000"),
        ("SELECT setseed(0.5)", SAME, "", "0A000"),
        ("SELECT seeds()", SAME, "", "0A000"),
        ("SET seed = 0.5", SAME, "", "0A000"),
        ("SELECT set_config('seed', '0.5', false)", SAME, "", "0A000"),
        ("LOAD 'plpgsql'", SAME, "", "0A000"),
        ("SELECT loads()", SAME, "", "0A000"),
        ("DO $$ BEGIN LOAD 'plpgsql'; END $$", SAME, "", "0A000"),
        ("SELECT pg_backup_start('label', true)", SAME, "", "0A000"),
        ("DISCARD SEQUENCES", SAME, "discard"),
        ("SET work_mem = '2MB'", W + "2MB", ""),
    ], asks={"weir__unsupported": "error"}),
]

REFUSAL = "this statement needs a session of its own (auto_unsupported = error)"
# Not in pg_settings, or not of a session.
NOT_ASKED = (
    "transaction_isolation", "transaction_read_only", "transaction_deferrable", "weir.client",
)
ORACLE = (
    "SELECT name, current_setting(name) FROM pg_settings WHERE source = 'session' "
    f"AND name <> ALL ('{{{','.join(NOT_ASKED)}}}')"
)
UNLISTED = ("s:role=", "s:session_authorization=")
