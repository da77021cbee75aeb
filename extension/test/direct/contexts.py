"""The parse context of statements: the settings and the time that gave a text its meaning."""

import time
from pathlib import Path

from direct.lobby import SYNC, Lobby, ask, execute, message, move, ok, parse

MONTH = "SELECT extract(month FROM '01/02/2024'::date)::int"

# How a client gets another context for its Parse, and how it loses it.
WAYS = (
    (["BEGIN; SET LOCAL datestyle = 'SQL, DMY'"], ["COMMIT"]),
    (["BEGIN; SET datestyle = 'SQL, DMY'"], ["ROLLBACK"]),
    (["BEGIN; SAVEPOINT a; SET datestyle = 'SQL, DMY'"], ["ROLLBACK TO a", "COMMIT"]),
    (["BEGIN; SELECT set_config('datestyle', 'SQL, DMY', true)"], ["COMMIT"]),
    (["BEGIN; DO $$BEGIN PERFORM set_config('datestyle', 'SQL, DMY', true); END$$"], ["COMMIT"]),
    (["BEGIN; UPDATE pg_settings SET setting = 'SQL, DMY' WHERE name = 'DateStyle'"], ["ROLLBACK"]),
    (["SET datestyle = 'SQL, DMY'"], ["RESET datestyle"]),
    (["SET datestyle = 'SQL, DMY'"], ["DISCARD TEMP; RESET ALL"]),
)

# A setting, a value, a text, and what it means with the default and with this value.
MEANINGS = (
    ("datestyle", "SQL, DMY", MONTH, "1", "2"),
    ("intervalstyle", "sql_standard", "SELECT extract(day FROM '1 -2:00'::interval)::int"
     " || ' ' || extract(hour FROM '-1 2:00'::interval)::int", "1 2", "1 -2"),
    ("timezone", "Asia/Tokyo", "SELECT extract(epoch FROM '2024-05-01 12:00'::timestamptz)::int",
     "1714564800", "1714532400"),
    ("timezone_abbreviations", "Australia",
     "SELECT extract(epoch FROM '2024-05-01 12:00 EST'::timestamptz)::int", "1714582800", "1714528800"),
    ("array_nulls", "off", "SELECT (('{NULL}'::text[])[1] IS NULL)::text", "true", "false"),
    ("standard_conforming_strings", "off", "SELECT length('a\\\\b')", "4", "3"),
    ("transform_null_equals", "on", "SELECT ((1 = NULL) IS NULL)::text", "true", "false"),
    ("search_path", "other", "SELECT 'told'::regclass::oid::regclass::text = 'other.told'", "f", "t"),
)


def rest(client):
    """The backend serves somebody else, and parks its statements."""
    ok(client.query("SELECT 1"))


def both_keep(clients, texts):
    """Whatever the backend has parked, each client finds its own meanings."""
    one, two, three = clients
    for client in (two, three, one, three, two, one, three):
        rest(three)
        if client is not three:
            for number, meanings in enumerate(texts):
                value = ok(ask(client, execute(f"s{number}") + SYNC)).value()
                assert value == meanings[client is two], (number, client is two, value)


def direct_a_statement_keeps_the_settings_of_its_parse(run):
    for begin, end in WAYS:
        with Lobby(run, backends=2, deaths=1) as pooler:
            one, two, three = clients = [pooler.client() for _ in range(3)]
            for text in begin:
                ok(one.query(text))
            ok(ask(one, parse("s0", MONTH) + SYNC))
            for text in end:
                ok(one.query(text))
            rest(three)
            ok(ask(two, parse("s0", MONTH) + SYNC))
            both_keep(clients, [("2", "1")])
            # Another backend has to prepare them.
            for client in (one, two):
                if pooler.alive() == 2:
                    move(run, pooler, client)
            both_keep(clients, [("2", "1")])


def direct_each_setting_that_gives_a_text_its_meaning_is_kept(run):
    admin = run.session()
    ok(admin.query("CREATE SCHEMA IF NOT EXISTS other; DROP TABLE IF EXISTS told, other.told;"
                   "CREATE TABLE told (); CREATE TABLE other.told ()"))
    with Lobby(run, backends=2, deaths=1) as pooler:
        one, two, three = clients = [pooler.client(timezone="UTC") for _ in range(3)]
        for client in (one, two):
            for number, (name, value, text, _, _) in enumerate(MEANINGS):
                ok(client.query("BEGIN"))
                if client is one:
                    ok(client.query(f"SET LOCAL {name} = {value}" if name == "search_path"
                                    else f"SET LOCAL {name} = '{value}'"))
                ok(ask(client, parse(f"s{number}", text) + SYNC))
                ok(client.query("COMMIT"))
        # PostgreSQL itself looks names up in the schemas of the moment.
        meanings = [(default if name == "search_path" else other, default)
                    for name, _, _, default, other in MEANINGS]
        both_keep(clients, meanings)
        move(run, pooler, one)
        both_keep(clients, meanings)
    ok(admin.query("DROP TABLE told; DROP SCHEMA other CASCADE"))


def direct_a_name_that_is_prepared_anew_has_its_new_meaning(run):
    """Within one transaction, where the server may give the new statement the place of the old one."""
    with Lobby(run) as pooler:
        one, two, three = pooler.client(), pooler.client(), pooler.client()
        ok(ask(one, parse("s", MONTH) + SYNC))
        ok(one.query("BEGIN; SET LOCAL datestyle = 'SQL, DMY'"))
        ok(ask(one, message(b"C", b"Ss\0") + parse("s", MONTH) + SYNC))
        ok(one.query("COMMIT"))
        rest(three)
        ok(ask(two, parse("s", MONTH) + SYNC))
        for client, value in ((two, "1"), (one, "2")) * 2:
            rest(three)
            assert ok(ask(client, execute("s") + SYNC)).value() == value


def direct_a_statement_that_is_analyzed_again_is_not_the_next_clients(run):
    """A table has changed, so the server analyzes the statement within a transaction of other
    settings."""
    text = MONTH + " FROM again"
    with Lobby(run) as pooler:
        one, two, three = pooler.client(), pooler.client(), pooler.client()
        ok(one.query("DROP TABLE IF EXISTS again; CREATE TABLE again (a int); INSERT INTO again VALUES (1)"))
        for client in (one, two):
            ok(ask(client, parse("s", text) + SYNC))
        for change in ("ADD b int", "DROP b", "ADD c int"):
            ok(three.query(f"ALTER TABLE again {change}"))
            ok(one.query("BEGIN; SET LOCAL datestyle = 'SQL, DMY'"))
            # As a session of its own would.
            assert ok(ask(one, execute("s") + SYNC)).value() == "2"
            ok(one.query("COMMIT"))
            rest(three)
            for client in (two, one, two):
                assert ok(ask(client, execute("s") + SYNC)).value() == "1", change
                rest(three)
        ok(one.query("DROP TABLE again"))


def direct_a_new_default_does_not_change_what_was_prepared(run):
    """Backends have other defaults after a reload, and clients no settings of their own."""
    admin = run.session()
    with Lobby(run) as pooler:
        one, two, three = clients = [pooler.client() for _ in range(3)]
        ok(ask(one, parse("s0", MONTH) + SYNC))
        rest(three)
        try:
            ok(admin.query("ALTER SYSTEM SET datestyle = 'SQL, DMY'"))
            ok(admin.query("SELECT pg_reload_conf()"))
            while ok(three.query("SHOW datestyle")).value() != "SQL, DMY":
                pass
            ok(ask(two, parse("s0", MONTH) + SYNC))
            both_keep(clients, [("1", "2")])
        finally:
            ok(admin.query("ALTER SYSTEM RESET datestyle"))
            ok(admin.query("SELECT pg_reload_conf()"))
            while ok(three.query("SHOW datestyle")).value() != "ISO, MDY":
                pass
        both_keep(clients, [("1", "2")])


def direct_a_statement_keeps_the_time_of_its_parse(run):
    text = "SELECT 'now'::timestamptz::text"
    with Lobby(run, backends=2, deaths=1) as pooler:
        one, two, three = clients = [pooler.client() for _ in range(3)]
        times = []
        for client in (one, two):
            ok(ask(client, parse("s0", text) + SYNC))
            times.append(ok(ask(client, execute("s0") + SYNC)).value())
            rest(three)
        assert times[0] != times[1]
        both_keep(clients, [tuple(times)])
        move(run, pooler, two)
        both_keep(clients, [tuple(times)])


def direct_a_role_of_a_transaction_gives_names_their_meaning(run):
    admin = run.session()
    ok(admin.query("DROP SCHEMA IF EXISTS other CASCADE; DROP ROLE IF EXISTS other; CREATE ROLE other;"
                   "CREATE SCHEMA other AUTHORIZATION other; CREATE TABLE other.own AS SELECT 'of other' AS a;"
                   "DROP TABLE IF EXISTS own; CREATE TABLE own AS SELECT 'of all' AS a;"
                   "GRANT SELECT ON own, other.own TO other"))
    with Lobby(run) as pooler:
        one, two, three = pooler.client(), pooler.client(), pooler.client()
        ok(one.query("BEGIN; SET LOCAL ROLE other"))
        ok(ask(one, parse("s", "SELECT a FROM own") + SYNC))
        assert ok(ask(one, execute("s") + SYNC)).value() == "of other"
        ok(one.query("COMMIT"))
        rest(three)
        ok(ask(two, parse("s", "SELECT a FROM own") + SYNC))
        for _ in range(3):
            for client in (two, one):
                rest(three)
                assert ok(ask(client, execute("s") + SYNC)).value() == "of all"
            ok(one.query("BEGIN; SET LOCAL ROLE other"))
            assert ok(ask(one, execute("s") + SYNC)).value() == "of other"
            ok(one.query("COMMIT"))
    ok(admin.query("DROP SCHEMA other CASCADE; DROP TABLE own; DROP ROLE other"))


def labels(pooler, place=0):
    """Of a client's statements, by name."""
    state, _ = pooler.left_state(place)
    items = [item.partition(b":") for item in state.split(b";")[1:]]
    known = [label for letter, _, label in items if letter == b"c"]
    pairs = [pair.split(b"=", 1) for letter, _, pair in items if letter == b"n"]
    return {name.decode(): known[int(rest.split(b",")[0])].decode() for name, rest in pairs}


def direct_texts_with_the_time_of_their_parse_are_told_apart(run):
    """By the rule of a proxied pool: the engine reads the same file."""
    lines = (Path(__file__).parent / "moments.txt").read_text().splitlines()
    with Lobby(run) as pooler:
        client, wrong = pooler.client(), []
        for number, line in enumerate(lines):
            verdict, text = line.replace("␤", "\n").split("\t")
            ok(ask(client, parse(f"s{number}", text) + SYNC))
            moment = int(labels(pooler)[f"s{number}"].split("=")[0])
            if (moment != 0) != (verdict == "yes"):
                wrong.append(text)
        assert number > 25 and not wrong, wrong


def direct_a_text_is_read_by_its_own_quotation(run):
    with Lobby(run) as pooler:
        client = pooler.client()
        for setting, moment in (("off", True), ("on", False)):
            ok(client.query(f"SET standard_conforming_strings = {setting}"))
            ok(ask(client, parse(setting, "SELECT '\\156ow'") + SYNC))
            assert labels(pooler)[setting].startswith("0=") != moment, setting


def direct_what_a_text_finds_among_temporary_objects_is_its_own(run):
    with Lobby(run) as pooler:
        client = pooler.client()
        ok(client.query("BEGIN; CREATE TEMP TABLE near (a int) ON COMMIT DROP"))
        ok(ask(client, parse("then", "SELECT 'near'::regtype::oid") + SYNC))
        ok(client.query("COMMIT"))
        ok(ask(client, parse("now", "SELECT 1") + SYNC))
        found = labels(pooler)
        assert not found["then"].startswith("0=") and found["now"].startswith("0="), found


# What literals mean, told by the constants of an analysis. One of them differs with each setting of
# context.h, or is of a type whose input a setting might affect.
READ = (
    "'01/02/2024'::date", "'-1 2:00'::interval", "'2024-05-01 12:00'::timestamptz",
    "'2024-05-01 12:00 EST'::timestamptz", "'1.50'::money", "'{NULL}'::text[]", "'a\\b'", "E'a\\'b'",
    "(1 = NULL) IS NULL", "'a<b/>'::xml", "'1e10'::float8", "'\\x41'::bytea", "'a b'::tsvector",
    "'a & b'::tsquery", "'{\"a\": 1}'::jsonb", "'(1,2)'::point", "'101'::bit(3)", "'10.0.0.1'::inet",
    "'[1,2)'::int4range", "'12:00'::timetz", "1 / 2.0", "'a' < 'B'", "interval '1' day",
)
OTHERS = {"DateStyle": "SQL, DMY", "TimeZone": "Asia/Tokyo", "timezone_abbreviations": "Australia"}
# What would end or stop the session, and what a library's own tests set.
LEFT_OUT = (
    "^(weir[.]|debug_discard|debug_print|log_|transaction_|default_transaction_|trace_|idle_)"
    "|^(role|session_authorization|client_encoding|exit_on_error|max_stack_depth|jit_provider|seed)$"
    "|preload_libraries|_timeout$|^ignore_system|^zero_damaged|^allow_system"
)


def direct_no_other_setting_changes_what_a_text_means(run):
    """The list of context.h is complete, as far as these texts show."""
    header = (Path(__file__).parents[2] / "context.h").read_text()
    listed = set(header.split("CONTEXT_SETTINGS")[1].split("\n\n")[0].split('"')[1::2])
    session = run.session()
    settings = ok(session.query(
        "SELECT name, vartype, setting, array_to_string(enumvals, ','), min_val, max_val FROM pg_settings "
        f"WHERE context IN ('user', 'superuser') AND name !~ '{LEFT_OUT}'"
    )).texts()
    # A server may have been built without XML.
    texts = [text for text in READ if not session.query(f"SELECT {text}").errors]
    assert len(texts) >= len(READ) - 1, texts
    default = meanings(session, texts, "SELECT 1")
    differ = {
        name for name, *about in settings for other in others(name, *about)
        if meanings(session, texts, f"SET {name} = '{other}'") not in (default, None)
    }
    assert len(settings) > 120 and differ <= listed, (len(settings), differ - listed)
    # A path is no matter of literals, and a locale may not be installed.
    missing = listed - differ - {"search_path", "lc_monetary", "xmloption"}
    assert not missing, missing


def others(name, kind, value, words, low, high):
    if kind == "bool":
        return ["off" if value == "on" else "on"]
    if kind == "enum":
        return [word for word in words.split(",") if word != value]
    if kind == "string":
        return [OTHERS[name]] if name in OTHERS else []
    return [one for one in (low, high) if one != value]


def meanings(session, texts, sets):
    """None: it cannot be set."""
    if session.query(sets).errors:
        return None
    all_texts = ", ".join(f"({text})::text" for text in texts)
    errors = session.query(f"PREPARE said AS SELECT ARRAY[{all_texts}]::text").errors
    ok(session.query("RESET ALL"))
    if errors:
        return errors
    value = ok(session.query("EXECUTE said")).value()
    ok(session.query("DEALLOCATE said"))
    return value
