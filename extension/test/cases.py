"""Cases that the table cannot express: several sessions, several servers, the protocol."""

import os
import shutil
import subprocess
import time

from servers import PATIENCE_S, as_guest
from session import Session
from table import OBJECTS, TABLE

STEPS_MIN = 65


def prepare(run):
    session = Session(run.cluster.port)
    for text in (OBJECTS, "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0"):
        answer = session.query(text)
        assert not answer.errors, answer.errors
    session.close()


def ok(answer):
    assert not answer.errors, answer.errors
    return answer


def case_the_table_has_enough_steps(run):
    assert sum(len(group.steps) for group in TABLE) >= STEPS_MIN


def case_the_first_report_names_the_version(run):
    session = run.session()
    assert session.greeting.reports == ["v1;w:1.1"], session.greeting.reports
    assert session.greeting.is_last


def case_a_pooler_that_reads_newer_forms_gets_this_one(run):
    assert run.session(weir__report=7).greeting.reports == ["v1;w:1.1"]


def case_a_session_that_does_not_ask_gets_nothing(run):
    for asks in ({}, {"weir__report": 0}):
        session = Session(run.cluster.port, **asks)
        assert not session.greeting.reports
        for text in ("SET work_mem = '2MB'", "SELECT setseed(0.1)", "CREATE TEMP TABLE m (a int)"):
            assert not ok(session.query(text)).reports


def case_a_report_that_cannot_be_read_is_refused_at_login(run):
    session = Session(run.cluster.port, weir__report="yes")
    assert not session.greeting.reports
    assert [code for code, _ in session.greeting.notices] == ["22023"], session.greeting.notices


def case_only_the_startup_packet_can_ask(run):
    superuser = Session(run.cluster.port)
    ok(superuser.query("CREATE ROLE wants LOGIN"))
    for text in (
        "ALTER ROLE wants SET weir.report = 1", "ALTER ROLE wants SET weir.unsupported = 'error'",
        "ALTER ROLE wants SET weir.key = 'k'", "ALTER SYSTEM SET weir.report = 1",
        "SET weir.report = 1", "SET LOCAL weir.report = 1", "SELECT set_config('weir.report', '1', false)",
        "UPDATE pg_settings SET setting = '1' WHERE name = 'weir.report'",
    ):
        assert superuser.query(text).errors, text
    session = Session(run.cluster.port, user="wants")
    assert not ok(session.query("SET work_mem = '2MB'")).reports


def case_a_role_that_was_given_the_setting_without_the_library_gets_no_report(run):
    other = Session(run.cluster.port, options="-c session_preload_libraries=")
    ok(other.query("CREATE ROLE before LOGIN"))
    ok(other.query("ALTER ROLE before SET weir.report = 1"))
    ok(other.query("ALTER ROLE before SET weir.client = '10.0.0.1 1'"))
    session = Session(run.cluster.port, user="before")
    assert not session.greeting.reports
    assert session.greeting.notices, "a warning says that it has no effect"
    ok(other.query("DROP ROLE before"))


def case_options_of_the_startup_packet_ask_as_well(run):
    session = Session(run.cluster.port, options="-c weir.report=1 -c work_mem=2MB")
    assert session.greeting.reports == ["v1;w:1.1"]


def case_without_the_library_the_settings_are_placeholders(run):
    session = run.session(options="-c session_preload_libraries=", weir__unsupported="error")
    assert not session.greeting.reports and not session.greeting.notices
    ok(session.query("SELECT setseed(0.1)"))


def case_forged_startup_parameters_are_removed(run):
    session = run.session(weir__state="v1;k", weir__nothing="1")
    assert session.greeting.reports == ["v1;w:1.1"]
    assert len(session.greeting.notices) == 2, session.greeting.notices
    assert session.query("SHOW weir.state").errors


def case_a_library_that_is_loaded_late_reports_from_then_on(run):
    session = run.session(options="-c session_preload_libraries=")
    answer = ok(session.query("LOAD 'weir'"))
    assert answer.reports == ["v1;w:1.1"], answer.reports
    set_late = Session(run.cluster.port, options="-c session_preload_libraries=")
    ok(set_late.query("SET weir.report = 1"))
    answer = ok(set_late.query("LOAD 'weir'"))
    assert not answer.reports and answer.notices, answer


def case_each_of_several_pipelined_queries_has_its_own_report(run):
    session = run.session()
    answers = session.pipeline([
        "SET work_mem = '2MB'", "SELECT currval('numbers') IS NULL", "SELECT 1",
        "SELECT setseed(0.1)", "SELECT setseed(0.1)", "BEGIN", "SET work_mem = '3MB'", "COMMIT",
        "SELECT pg_advisory_lock(1)",
    ])
    reports = [answer.reports for answer in answers]
    s2, s3 = "v1;s:work_mem=2MB", "v1;s:work_mem=3MB"
    expected = [
        [s2], [s2 + ";e:1:currval"], [], [s2 + ";e:2:setseed"], [s2 + ";e:3:setseed"], [], [],
        [s3], [s3 + ";k"],
    ]
    assert reports == expected, reports


def case_a_statement_of_the_protocol_is_no_statement_of_sql(run):
    session = run.session()
    ok(session.prepare("a", "SELECT 1"))
    assert session.state == []
    ok(session.query("PREPARE b AS SELECT 2"))
    assert session.state == ["p:b=PREPARE b AS SELECT 2"]
    ok(session.query("BEGIN"))
    ok(session.query("DEALLOCATE b; PREPARE c AS SELECT 3; DEALLOCATE c"))
    ok(session.prepare("b", "SELECT 4"))
    ok(session.prepare("c", "SELECT 5"))
    ok(session.query("COMMIT"))
    assert session.state == []


def case_a_report_of_a_cursor_causes_no_warning(run):
    session = run.session()
    ok(session.query("BEGIN; DECLARE held CURSOR WITH HOLD FOR SELECT 1; COMMIT"))
    assert session.state == ["c"]
    for text in ("BEGIN; COMMIT", "SELECT 1", "FETCH 1 FROM held"):
        answer = ok(session.query(text))
        assert not answer.notices, f"{text}: {answer.notices}"


def case_a_report_of_more_than_60_kib_is_not_told(run):
    session = run.session()
    ok(session.query("SELECT set_config('app.long', repeat('x', 60000), false)"))
    assert len(session.state[0]) == 60000 + len("s:app.long=")
    ok(session.query("SELECT set_config('app.long', repeat('x', 70000), false)"))
    assert session.state == ["u"]
    assert not ok(session.query("SELECT 1")).reports
    answer = ok(session.query("SELECT setseed(0.5)"))
    assert answer.reports == ["v1;u;e:1:setseed"], answer.reports
    ok(session.query("SELECT set_config('app.long', repeat(';', 16000), false)"))
    assert session.state == ["u"]
    ok(session.query("RESET app.long"))
    assert session.state == []


def case_the_longest_report_has_60_kib(run):
    session = run.session()
    room = 60 * 1024 - len(";s:app.a=")
    ok(session.query(f"SELECT set_config('app.a', repeat('x', {room}), false), setseed(0)"))
    assert len(session.state[0]) == 60 * 1024 - 1
    ok(session.query(f"SELECT set_config('app.a', repeat('x', {room} + 1), false)"))
    assert session.state == ["u"]


def case_a_thousand_settings(run):
    session = run.session()
    ok(session.query("SELECT set_config('app.s' || i, i::text, false) FROM generate_series(1, 1000) i"))
    assert sorted(session.state) == sorted(f"s:app.s{i}={i}" for i in range(1, 1001))
    assert not ok(session.query("SELECT 1")).reports
    ok(session.query("RESET app.s500"))
    assert len(session.state) == 999
    ok(session.query("RESET ALL"))
    assert session.state == []


def case_settings_defined_after_the_first_report_are_seen(run):
    session = run.session(user="app")
    ok(session.query("SET later.one = 'a'"))
    ok(session.query("DO $$ BEGIN NULL; END $$"))
    ok(session.query("SET plpgsql.check_asserts = off"))
    assert session.state == ["s:later.one=a", "s:plpgsql.check_asserts=off"]
    ok(session.query("RESET later.one"))
    assert session.state == ["s:plpgsql.check_asserts=off"]


def case_other_encodings(run):
    umlaut = "\u00fc"
    session = run.session(client_encoding="LATIN1")
    ok(session.query(f"SELECT set_config('app.a', '{umlaut}', false)", "latin-1"))
    assert session.state == [r"s:app.a=\303\274"], "of a UTF8 database"
    ok(session.query(f'LISTEN "{umlaut}"', "latin-1"))
    assert session.state == [r"l:\303\274", r"s:app.a=\303\274"]
    session = run.session(database="latin", client_encoding="UTF8")
    ok(session.query(f"SELECT set_config('app.a', '{umlaut}', false)"))
    assert session.state == [r"s:app.a=\374"], "of a LATIN1 database"


def case_encodings_that_only_clients_have(run):
    """A second byte of GBK and of SJIS may be a backslash in ASCII."""
    for encoding, codec, letter in (("GBK", "gbk", "\u8aa0"), ("SJIS", "shift_jis", "\u8868")):
        session = run.session(client_encoding=encoding)
        raw = letter.encode(codec)
        assert b"\\" in raw, (encoding, raw)
        ok(session.query(f"SELECT set_config('app.a', '{letter}', false)", codec))
        told = "s:app.a=" + "".join(f"\\{byte:03o}" for byte in letter.encode())
        assert session.state == [told], (encoding, session.state)
        ok(session.query(f"PREPARE \"{letter}\" AS SELECT 1", codec))
        assert len(session.state) == 2 and session.state[0].startswith("p:" + told[8:])


def case_a_report_is_ascii_whatever_it_holds(run):
    session = run.session()
    every = "".join(chr(code) for code in range(1, 256)).replace("'", "''")
    ok(session.query(f"SELECT set_config('app.a', '{every}', false)"))
    plain = [c for c in map(chr, range(32, 127)) if c not in "\\;="]
    item = session.state[0].removeprefix("s:app.a=")
    assert item.isascii() and item.isprintable()
    assert len(item) == len(plain) + 4 * (len(every.replace("''", "'").encode()) - len(plain))


def case_forged_names_cannot_be_set_later(run):
    """What a client of Weir's sends reaches the server as SQL only."""
    session = run.session(weir__key="0" * 32)
    for text in (
        "SET weir.state = 'v1;k'", "SELECT set_config('weir.state', 'v1;k', false)",
        "SET weir.other = '1'", "SELECT set_config('weir.unsupported', 'error', true)",
        "UPDATE pg_settings SET setting = 'x' WHERE name = 'weir.key'",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql SET weir.report = 0 AS 'SELECT 1'",
        "ALTER DATABASE postgres SET weir.report = 0", "ALTER ROLE postgres SET weir.state = 'a'",
    ):
        answer = session.query(text)
        assert answer.errors or not answer.rows and "UPDATE" in text, text
        assert "weir.state" not in answer.parameters and session.state == [], text
    assert ok(session.query("SELECT current_setting('weir.key')")).value() == ""
    rows = ok(session.query("SELECT name, setting FROM pg_settings WHERE name ~ '^weir.'")).texts()
    assert not any("0" * 32 in row for row in rows), rows


def case_serializable_deferrable_by_default_does_not_wait(run):
    writer = Session(run.cluster.port)
    ok(writer.query("BEGIN ISOLATION LEVEL SERIALIZABLE; INSERT INTO asked (a, b) VALUES (1, 2)"))
    options = "-c default_transaction_isolation=serializable -c default_transaction_deferrable=on"
    session = run.session(options=options + " -c default_transaction_read_only=on")
    # The statement itself takes no snapshot that waits; nor may the look for temporary objects.
    ok(session.query("BEGIN READ WRITE; CREATE TEMP TABLE mine (a int); COMMIT"))
    assert session.state == ["t"]
    ok(session.query("SET work_mem = '2MB'"))
    assert session.state == ["s:work_mem=2MB", "t"]
    ok(writer.query("ROLLBACK"))


def case_a_locked_catalog_is_not_waited_for(run):
    session, holder = run.session(), Session(run.cluster.port)
    ok(session.query("CREATE TEMP TABLE mine (a int)"))
    ok(session.query("SELECT * FROM mine"))
    ok(holder.query("BEGIN; LOCK TABLE pg_catalog.pg_depend IN ACCESS EXCLUSIVE MODE"))
    ok(session.query("SELECT * FROM mine"))
    assert session.state == ["u"], session.state
    ok(holder.query("COMMIT"))
    ok(session.query("SELECT 1"))
    assert session.state == ["t"], session.state


def case_parallel_workers_do_not_report(run):
    session = run.session()
    ok(session.query("CREATE TABLE parallel AS SELECT i FROM generate_series(1, 20000) i"))
    ok(session.query("ALTER TABLE parallel SET (parallel_workers = 2)"))
    for text in (
        "SET parallel_setup_cost = 0", "SET parallel_tuple_cost = 0",
        "SET min_parallel_table_scan_size = 0", "SET app.tenant = 'seven'", "SET weir.route = 'a'",
    ):
        ok(session.query(text))
    before = list(session.state)
    plan = ok(session.query("EXPLAIN (ANALYZE, COSTS OFF) SELECT count(*) FROM parallel")).texts()
    assert any("Workers Launched: 2" in row[0] for row in plan), plan
    answer = ok(session.query("SELECT count(*), current_setting('app.tenant') FROM parallel GROUP BY 2"))
    assert answer.texts() == [["20000", "seven"]] and not answer.reports
    assert session.state == before
    ok(session.query("DROP TABLE parallel"))


def case_functions_that_change_the_session_run_in_the_leader_only(run):
    """set_config and locks are not parallel safe; a session whose plan is parallel still reports them."""
    session = run.session()
    ok(session.query("CREATE TABLE led AS SELECT i FROM generate_series(1, 20000) i; "
                     "GRANT SELECT ON led TO app"))
    for text in (
        "SET parallel_setup_cost = 0", "SET parallel_tuple_cost = 0",
        "SET min_parallel_table_scan_size = 0",
    ):
        ok(session.query(text))
    before = list(session.state)
    answer = ok(session.query("SELECT count(*), pg_advisory_lock(9) IS NULL FROM led"))
    assert sorted(session.state) == sorted([*before, "k"]), answer
    ok(session.query("SELECT pg_advisory_unlock_all()"))
    ok(session.query("SET ROLE app; SET app.tenant = 'a'; SET max_parallel_workers_per_gather = 2"))
    told = list(session.state)
    for _ in range(5):
        ok(session.query("SELECT count(*) FROM led"))
    assert session.state == told
    ok(session.query("RESET ROLE; DROP TABLE led"))


def case_a_login_trigger_is_in_the_first_report(run):
    if run.major < 17:
        return
    admin = Session(run.cluster.port)
    ok(admin.query(
        "CREATE FUNCTION on_login() RETURNS event_trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM set_config('app.login', 'yes', false), setseed(0.5); END $$; "
        "CREATE EVENT TRIGGER login ON login EXECUTE FUNCTION on_login()"
    ))
    try:
        session = run.session()
        assert session.greeting.reports == ["v1;s:app.login=yes;w:1.1;e:1:setseed"], session.greeting
    finally:
        ok(admin.query("DROP EVENT TRIGGER login; DROP FUNCTION on_login()"))


def case_more_statements_than_are_kept_cannot_be_told(run):
    session = run.session()
    ok(session.query(";".join(f"PREPARE s{i} AS SELECT {i}" for i in range(8))))
    assert len(session.state) == 8
    for i in range(8, 260):
        ok(session.query(f"PREPARE s{i} AS SELECT {i}"))
    assert session.state == ["u"]
    ok(session.query("DEALLOCATE s3"))
    assert session.state == ["u"]
    ok(session.query("DEALLOCATE ALL"))
    assert session.state == []
    ok(session.query("DO $$ BEGIN FOR i IN 1..600 LOOP EXECUTE 'PREPARE again AS SELECT 1'; "
                     "EXECUTE 'DEALLOCATE again'; END LOOP; END $$"))
    assert session.state == []


def case_the_clients_address_is_shown_if_the_key_is_right(run):
    watcher, session = Session(run.cluster.port), run.session(weir__key="s3cret")
    pid = ok(session.query("SELECT pg_backend_pid()")).value()

    def seen():
        return tuple(ok(watcher.query(
            "SELECT host(client_addr), client_port, client_hostname FROM pg_stat_activity "
            f"WHERE pid = {pid}")).texts()[0])

    own = seen()
    assert own[0] == "127.0.0.1"
    shown = [
        ("s3cret 10.1.2.3 4567", ("10.1.2.3", "4567", None), "10.1.2.3 4567"),
        ("s3cret fe80::1 65535", ("fe80::1", "65535", None), "fe80::1 65535"),
        ("s3cret unix", (None, "-1", None), "unix"),
    ]
    refused = [
        "", "s3cret", "s3cret ", "10.1.2.3 4567", "secret 10.1.2.3 4567", "s3cret 10.1.2.3",
        "s3cret 10.1.2.3 ", "s3cret 10.1.2.3 65536", "s3cret 10.1.2.3 -1", "s3cret 10.1.2 1",
        "s3cret fe80::1%lo 1", "s3cret host 1", "s3cret " + "1" * 200 + " 1", "s3cret  1",
        "s3cret10.1.2.3 4567", "s3cret 10.1.2.3 0000001",
    ]
    for value, there, kept in shown:
        answer = ok(session.query(f"SET weir.client = '{value}'"))
        assert seen() == there and not answer.reports, (value, seen())
        assert ok(session.query("SHOW weir.client")).value() == kept
        ok(session.query("RESET ALL"))
        assert seen() == there, "RESET ALL is the client's and leaves it"
        own_address = ok(session.query("SELECT host(inet_client_addr())")).value()
        assert own_address == "127.0.0.1", "what a policy may rely on stays"
    for value in refused:
        ok(session.query("SET weir.client = 's3cret 10.9.9.9 9'"))
        ok(session.query(f"SET weir.client = '{value}'"))
        assert seen() == own, (value, seen())
        assert ok(session.query("SHOW weir.client")).value() == ""
    ok(session.query("BEGIN; SET weir.client = 's3cret 10.1.2.3 4567'"))
    assert seen()[0] == "10.1.2.3"
    ok(session.query("ROLLBACK"))
    assert seen() == own
    assert ok(session.query("SHOW weir.key")).value() == ""
    ok(session.query("SET weir.client = 's3cret 10.1.2.3 4567'"))
    ok(session.query("DISCARD ALL"))
    ok(session.query("RESET weir.client"))
    assert seen() == own


def case_without_a_key_or_without_reports_the_address_is_the_connections(run):
    watcher = Session(run.cluster.port)
    for asks in ({"weir__report": 1}, {"weir__key": "k", "weir__report": 0}):
        session = Session(run.cluster.port, **asks, weir__client="k 10.0.0.1 1")
        pid = ok(session.query("SELECT pg_backend_pid()")).value()
        for value in ("k 10.1.2.3 4567", " 10.1.2.3 4567", "10.1.2.3 4567"):
            ok(session.query(f"SET weir.client = '{value}'"))
            query = f"SELECT host(client_addr) FROM pg_stat_activity WHERE pid = {pid}"
            assert ok(watcher.query(query)).value() == "127.0.0.1"


KEY = "0123456789abcdef" + "f" * 16
MARK = "/*weir 0123456789abcdef*/"
NOT_RESTORED = ("55000", "the client's settings were not restored, so nothing runs here")


def case_after_a_failed_restoration_nothing_runs(run):
    """The text that restores settings and the request are sent at once, as Weir does."""
    watcher = Session(run.cluster.port)
    ok(watcher.query("CREATE TABLE effects (a int)"))
    ok(watcher.query("CREATE FUNCTION effect() RETURNS int LANGUAGE sql AS "
                     "'INSERT INTO effects VALUES (1) RETURNING a'"))
    fails = MARK + "SELECT set_config('work_mem', 'much', false) IS NULL;"
    requests = [
        "INSERT INTO effects VALUES (1)", "BEGIN; INSERT INTO effects VALUES (1); COMMIT",
        "ROLLBACK; INSERT INTO effects VALUES (1)", "COMMIT", "ROLLBACK", "VACUUM effects",
        "COPY effects FROM STDIN", "COPY effects TO STDOUT", "SELECT effect()", "DISCARD ALL",
        "DO $$ BEGIN INSERT INTO effects VALUES (1); COMMIT; END $$", "SET work_mem = '3MB'",
        "EXECUTE old", "PREPARE new AS SELECT 1", "LISTEN a", "EXPLAIN ANALYZE SELECT effect()",
        "CREATE DATABASE effect", "SHOW work_mem", "SELECT pg_advisory_lock(1)",
    ]
    for pipelined in (False, True):
        session = run.session(weir__key=KEY)
        ok(session.query("PREPARE old AS INSERT INTO effects VALUES (1)"))
        ok(session.prepare("named", "SELECT effect()"))
        ok(session.prepare("utility", "SET work_mem = '4MB'"))
        before = list(session.state)
        for text in requests:
            session.send(b"Q", fails.encode() + b"\0")
            if pipelined:
                answers = session.pipeline([text if "$$" in text else text.split(";")[0], "INSERT INTO effects VALUES (2)"], 1)
            else:
                session.send(b"Q", text.encode() + b"\0")
                session.send(b"Q", b"INSERT INTO effects VALUES (2)\0")
                answers = [session.take(session.until_ready()) for _ in range(3)]
            assert answers[0].errors[0][0] == "22023", answers[0]
            for answer in answers[1:]:
                assert answer.errors == [NOT_RESTORED] and answer.status == "I", (text, answer)
        for name in ("named", "utility"):
            session.send(b"Q", fails.encode() + b"\0")
            session.send(b"B", b"\0" + name.encode() + b"\0\0\0\0\0\0\0")
            session.send(b"E", b"\0\0\0\0\0")
            session.send(b"S", b"")
            answers = [session.take(session.until_ready()) for _ in range(2)]
            assert answers[1].errors == [NOT_RESTORED], (name, answers)
        oid = ok(watcher.query("SELECT 'effect'::regproc::oid")).value()
        session.send(b"F", int(oid).to_bytes(4, "big") + b"\0\0\0\0\0\0")
        assert session.take(session.until_ready()).errors == [NOT_RESTORED]
        assert ok(watcher.query("SELECT count(*) FROM effects")).value() == "0"
        assert session.state == before
        answer = ok(session.query(MARK + "SELECT set_config('work_mem', '2MB', false) IS NULL;"))
        assert "s:work_mem=2MB" in session.state, answer
        assert ok(session.query("SHOW work_mem")).value() == "2MB"
    ok(watcher.query("DROP FUNCTION effect; DROP TABLE effects"))


def case_a_restoration_is_marked_by_the_key(run):
    wrong = ["", "/*weir 0123456789abcdee*/", "/*weir */", "/*weir 0123456789abcdef", " " + MARK]
    for mark in wrong:
        session = run.session(weir__key=KEY)
        assert session.query(mark + "SELECT 1/0").errors
        assert mark.endswith("def") or ok(session.query("SELECT 1"))
    short = run.session(weir__key=KEY[:31])
    assert short.query(MARK + "SELECT 1/0").errors
    ok(short.query("SELECT 1"))
    session = run.session(weir__key=KEY)
    assert session.query(MARK + "not SQL at all").errors[0][0] == "42601"
    assert session.query("SELECT 1").errors == [NOT_RESTORED], "the parser's errors count as well"
    assert session.query("not SQL at all").errors[0][0] == "42601"
    assert session.query(MARK + "SELECT 1/0").errors[0][0] == "22012"
    assert session.query("SELECT 1").errors == [NOT_RESTORED]
    ok(session.query(MARK + "RESET work_mem"))
    assert session.query("SELECT 1/0").errors[0][0] == "22012"
    ok(session.query("SELECT 1"))


def case_a_restoration_that_times_out_has_failed(run):
    session = run.session(weir__key=KEY)
    ok(session.query("SET statement_timeout = '100ms'"))
    assert session.query(MARK + "SELECT pg_sleep(30)").errors[0][0] == "57014"
    assert session.query("SELECT 1").errors == [NOT_RESTORED]


def case_dblink_is_an_event(run):
    session = run.session()
    if session.query("CREATE EXTENSION dblink").errors:
        return
    answer = session.query("SELECT dblink_connect('a', 'port=1')")
    assert answer.reports == ["v1;e:1:dblink"], answer
    ok(session.query("DROP EXTENSION dblink"))


def case_a_cancelled_or_failed_statement_is_followed_by_a_report(run):
    session = run.session()
    ok(session.query("SET statement_timeout = '700ms'"))
    answer = session.query("SELECT set_config('work_mem', '3MB', false), pg_sleep(30)")
    assert answer.errors[0][0] == "57014" and session.state == ["s:statement_timeout=700ms"]
    answer = session.query("DO $$ BEGIN PERFORM pg_advisory_lock(1); PERFORM pg_sleep(30); END $$")
    assert answer.errors[0][0] == "57014" and session.state == ["k", "s:statement_timeout=700ms"]


def case_a_replication_connection_gets_nothing(run):
    session = run.session(replication="database")
    assert not session.greeting.reports
    ok(session.query("IDENTIFY_SYSTEM"))


def case_logical_replication_is_unharmed(run):
    """A subscription to another database of the same server, whose workers have no client."""
    admin = Session(run.cluster.port)
    ok(admin.query("CREATE DATABASE copy"))
    ok(admin.query("CREATE TABLE copied (a int)"))
    ok(admin.query("CREATE PUBLICATION all_of_it FOR TABLE copied"))
    ok(admin.query("SELECT pg_create_logical_replication_slot('copying', 'pgoutput')"))
    other = run.session(database="copy")
    ok(other.query("CREATE TABLE copied (a int)"))
    ok(other.query(
        f"CREATE SUBSCRIPTION copying CONNECTION 'host=127.0.0.1 port={run.cluster.port} "
        "user=postgres dbname=postgres' PUBLICATION all_of_it WITH (create_slot = false)"))
    ok(admin.query("INSERT INTO copied SELECT generate_series(1, 100)"))
    deadline = time.monotonic() + PATIENCE_S
    while ok(other.query("SELECT count(*) FROM copied")).value() != "100":
        assert time.monotonic() < deadline, "nothing was replicated"
        time.sleep(0.05)
    ok(other.query("DROP SUBSCRIPTION copying"))
    other.close()
    ok(admin.query("DROP PUBLICATION all_of_it; DROP TABLE copied"))


def case_the_library_can_be_replaced_while_it_runs(run):
    old = run.session()
    new = run.library / "weir.so.new"
    shutil.copy(run.library / "weir.so", new)
    os.replace(new, run.library / "weir.so")
    ok(old.query("SET work_mem = '2MB'"))
    assert old.state == ["s:work_mem=2MB"]
    assert run.session().greeting.reports == ["v1;w:1.1"]
    ok(old.query("SELECT setseed(0.5)"))


def case_a_replaced_library_serves_all_that_comes(run):
    """Sessions of both files side by side, with everything that the library keeps for them."""
    old = run.session(weir__key=KEY)
    ok(old.query("PREPARE a AS SELECT 1; LISTEN b; CREATE TEMP TABLE c (d int)"))
    ok(old.query(f"SET weir.client = '{KEY} 10.1.2.3 4567'"))
    told = list(old.state)
    for _ in range(3):
        copy = run.library / "weir.so.new"
        shutil.copy(run.library / "weir.so", copy)
        os.replace(copy, run.library / "weir.so")
        new = run.session(weir__key=KEY)
        ok(new.query("SET work_mem = '2MB'"))
        assert new.query(MARK + "SELECT 1/0").errors and new.query("SELECT 1").errors == [NOT_RESTORED]
        assert not ok(old.query("SELECT 1")).reports and old.state == told
    assert ok(old.query("SHOW weir.client")).value() == "10.1.2.3 4567"
    assert old.query(MARK + "SELECT 1/0").errors and old.query("SELECT 1").errors == [NOT_RESTORED]
    ok(old.query(MARK + "SELECT 1"))
    ok(old.query("DEALLOCATE a; UNLISTEN b; DROP TABLE c"))
    assert old.state == []


def case_installcheck(run):
    pg_regress = run.installation.pg_regress()
    if pg_regress is None:
        return
    sources = run.library.parent / f"build-{run.major}" / "test" / "installcheck"
    output = run.cluster.folder / "installcheck"
    output.mkdir(exist_ok=True)
    shutil.chown(output, "postgres", "postgres") if os.geteuid() == 0 else None
    bindir = run.installation.ask("bindir")
    done = subprocess.run(as_guest([
        pg_regress, f"--inputdir={sources}", f"--outputdir={output}", f"--bindir={bindir}",
        "--dbname=contrib_regression", "--host=127.0.0.1", f"--port={run.cluster.port}",
        "--user=postgres", "weir",
    ]), capture_output=True, text=True, check=False, cwd=output)
    differences = output / "regression.diffs"
    detail = differences.read_text() if differences.exists() else done.stdout + done.stderr
    assert done.returncode == 0, detail


def case_the_server_has_not_crashed(run):
    """Runs late by its name's place in the alphabet; every session above would have shown a crash."""
    log = run.cluster.log.read_text(errors="replace")
    assert "terminated by signal" not in log and "PANIC" not in log, log[-2000:]
    assert "weir: the session's state cannot be reported" not in log
