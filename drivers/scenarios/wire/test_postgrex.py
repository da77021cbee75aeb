"""The messages of Postgrex for Ecto: answers asked for by Flush before the Sync, statements that are
closed before they are parsed, simple queries for savepoints between the messages of one statement, COPY."""

import struct
import uuid

import pytest

from conftest import count, running, until
from wire import (bind, close, copy_data, copy_done, describe, execute, flush, parse, query, sync)

SAVE = query("SAVEPOINT postgrex_query")
RELEASE = query("RELEASE SAVEPOINT postgrex_query")
UNDO = query("ROLLBACK TO SAVEPOINT postgrex_query;RELEASE SAVEPOINT postgrex_query")
SAVED, RELEASED = "C:SAVEPOINT Z:T", "C:RELEASE Z:T"
UNDONE = "C:ROLLBACK C:RELEASE Z:T"
BINARY = (1,)


@pytest.fixture
def postgrex(connect):
    """Opens connections as Postgrex does: the types of the database are asked for at once."""
    def open_one(**parameters):
        one = connect(**parameters)
        answer = one.talk(query(
            "SELECT t.oid, t.typname, t.typsend, t.typreceive, t.typoutput, t.typinput,\n"
            "       t.typelem, coalesce(r.rngsubtype, 0), ARRAY (\n"
            "  SELECT a.atttypid FROM pg_attribute AS a\n"
            "  WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped\n"
            "  ORDER BY a.attnum)\n"
            "FROM pg_type AS t LEFT JOIN pg_range AS r ON r.rngtypid = t.oid\n"
            "WHERE (t.typrelid = 0) AND (t.typelem = 0 OR NOT EXISTS (SELECT 1 FROM pg_catalog.pg_type s"
            " WHERE s.typrelid != 0 AND s.oid = t.typelem))"))
        assert answer.startswith("T:oid,typname,") and answer.endswith("Z:I")
        return one
    return open_one


@pytest.fixture
def sandbox(postgrex):
    """A connection within the transaction that Ecto's sandbox keeps open around a test."""
    one = postgrex()
    assert one.talk(query("BEGIN")) == "C:BEGIN Z:T"
    return one


def number(value):
    return struct.pack("!i", value)


def prepare(name, sql):
    return close("S", name) + parse(sql, name) + describe("S", name)


def run(name, values=(), portal=""):
    return bind(values, name, portal, results=BINARY) + execute(portal)


def row(value):
    return f"D:{number(value).hex()}"


def test_a_login_names_its_application(postgrex):
    one = postgrex(application_name="ecto", search_path="public, pg_catalog")
    assert one.parameters["application_name"] == "ecto"
    assert "D:public,_pg_catalog " in one.talk(query("SHOW search_path"))


def test_prepare_and_execute(postgrex):
    one = postgrex()
    for at in range(5):
        assert one.talk(prepare(f"ecto_{at}", f"SELECT $1::int + {at} AS n"), sync()) \
            == "3 1 t:23 T:n Z:I"
        for turn in range(5):
            assert one.talk(run(f"ecto_{at}", [number(turn)]), sync()) \
                == f"2 {row(turn + at)} C:SELECT_1 Z:I"


def test_the_description_is_waited_for_before_the_sync(postgrex):
    one, other = postgrex(), postgrex()
    for at in range(20):
        name = f"ecto_{at}"
        assert one.talk(prepare(name, f"SELECT $1::int + {at} AS n"), flush(), until="T") \
            == "3 1 t:23 T:n"
        other.talk(prepare(name, "SELECT 'another'"), sync())
        assert one.talk(run(name, [number(at)]), sync()) == f"2 {row(2 * at)} C:SELECT_1 Z:I"
    for at in range(20):
        assert one.talk(run(f"ecto_{at}", [number(7)]), sync()) == f"2 {row(7 + at)} C:SELECT_1 Z:I"


def test_unnamed_statements_are_closed_after_use(postgrex):
    one = postgrex()
    for at in range(20):
        assert one.talk(parse("SELECT $1::int AS n"), describe("S"), flush(), until="T") \
            == "1 t:23 T:n"
        assert one.talk(run("", [number(at)]), close("S"), sync()) \
            == f"2 {row(at)} C:SELECT_1 3 Z:I"
    assert one.talk(bind(), execute(), sync()) == "E:26000 Z:I"


def test_statements_without_rows(postgrex, table):
    one = postgrex()
    for at in range(5):
        assert one.talk(prepare("ecto_1", f"INSERT INTO {table} VALUES ($1, 'x')"), flush(), until="n") \
            == "3 1 t:23 n"
        assert one.talk(run("ecto_1", [number(at)]), sync()) == "2 C:INSERT_0_1 Z:I"
    assert count(one, table) == 5


def test_an_error_before_the_sync(postgrex):
    one = postgrex()
    for _ in range(5):
        assert one.talk(prepare("ecto_1", "SELECT nothing"), flush(), until="E") == "3 E:42703"
        assert one.talk(sync()) == "Z:I"
        assert one.talk(parse("SELECT nothing"), describe("S"), flush(), until="E") == "E:42703"
        assert one.talk(sync()) == "Z:I"
        assert one.talk(prepare("ecto_1", "SELECT 1 / $1::int AS n"), flush(), until="T") \
            == "3 1 t:23 T:n"
        assert one.talk(run("ecto_1", [number(0)]), sync()) == "E:22012 Z:I"
        assert one.talk(run("ecto_1", [number(1)]), sync()) == f"2 {row(1)} C:SELECT_1 Z:I"


def test_values_in_binary(postgrex):
    one = postgrex()
    key = uuid.UUID(int=7)
    numbers = struct.pack("!iiiiiiiii", 1, 0, 20, 2, 1, 8, 0, 5, 8) + struct.pack("!q", 6)
    values = [struct.pack("!q", 1 << 40), key.bytes, b"\1{\"a\": 1}", struct.pack("!q", 1_000_000),
              struct.pack("!hhhh", 1, 0, 0, 0) + struct.pack("!h", 7), numbers, b"\1", None]
    sql = "SELECT $1::bigint AS a, $2::uuid AS b, $3::jsonb AS c, $4::timestamp AS d, $5::numeric AS e," \
          " $6::bigint[] AS f, $7::bool AS g, $8::text AS h"
    wanted = "|".join("~" if value is None else value.hex() for value in values)
    one.talk(prepare("ecto_1", sql), sync())
    for _ in range(5):
        assert one.talk(run("ecto_1", values), sync()) == f"2 D:{wanted} C:SELECT_1 Z:I"


def test_a_transaction(postgrex, table):
    one = postgrex()
    one.talk(prepare("ecto_1", f"INSERT INTO {table} VALUES ($1, 'x')"), sync())
    for turn, end in enumerate(("COMMIT", "ROLLBACK")):
        assert one.talk(query("BEGIN")) == "C:BEGIN Z:T"
        assert one.talk(run("ecto_1", [number(turn)]), sync()) == "2 C:INSERT_0_1 Z:T"
        assert one.talk(query(end)) == f"C:{end} Z:I"
    one.talk(query("BEGIN"))
    assert one.talk(run("ecto_1", [number(0)]), sync()) == "2 E:23505 Z:E"
    assert one.talk(run("ecto_1", [number(1)]), sync()) == "E:25P02 Z:E"
    assert one.talk(query("ROLLBACK")) == "C:ROLLBACK Z:I"
    assert count(one, table) == 1


def test_nested_transactions(postgrex, table):
    one = postgrex()
    one.talk(prepare("ecto_1", f"INSERT INTO {table} VALUES ($1, 'x')"), sync())
    one.talk(query("BEGIN"))
    assert one.talk(query("SAVEPOINT postgrex_savepoint")) == SAVED
    one.talk(run("ecto_1", [number(1)]), sync())
    assert one.talk(query("RELEASE SAVEPOINT postgrex_savepoint")) == RELEASED
    one.talk(query("SAVEPOINT postgrex_savepoint"))
    one.talk(run("ecto_1", [number(2)]), sync())
    assert one.talk(run("ecto_1", [number(2)]), sync()) == "2 E:23505 Z:E"
    assert one.talk(query("ROLLBACK TO SAVEPOINT postgrex_savepoint;"
                          "RELEASE SAVEPOINT postgrex_savepoint")) == UNDONE
    assert one.talk(query("COMMIT")) == "C:COMMIT Z:I"
    assert count(one, table) == 1


def test_a_savepoint_around_prepare(sandbox):
    """mode: :savepoint. A simple query begins and ends the savepoint; there is no Sync."""
    for at in range(10):
        answer = sandbox.talk(SAVE, prepare(f"ecto_{at}", f"SELECT $1::int + {at} AS n"), RELEASE, times=2)
        assert answer == f"{SAVED} 3 1 t:23 T:n {RELEASED}"
        answer = sandbox.talk(SAVE, run(f"ecto_{at}", [number(at)]), RELEASE, times=2)
        assert answer == f"{SAVED} 2 {row(2 * at)} C:SELECT_1 {RELEASED}"


def test_a_savepoint_around_prepare_and_execute(sandbox):
    for at in range(10):
        answer = sandbox.talk(SAVE, parse("SELECT $1::int AS n"), describe("S"), flush(), until="T:")
        assert answer == f"{SAVED} 1 t:23 T:n"
        assert sandbox.talk(run("", [number(at)]), RELEASE) == f"2 {row(at)} C:SELECT_1 {RELEASED}"


def test_an_error_within_a_savepoint(sandbox, table):
    """What follows the error is ignored up to the Sync, a simple query as well."""
    for at in range(5):
        assert sandbox.talk(SAVE, prepare("ecto_1", "SELECT nothing"), RELEASE, until="E") \
            == f"{SAVED} 3 E:42703"
        assert sandbox.talk(sync(), UNDO, times=2) == f"Z:E {UNDONE}"
        assert sandbox.talk(SAVE, prepare("ecto_1", f"INSERT INTO {table} VALUES ($1, 'x')"), RELEASE,
                            times=2) == f"{SAVED} 3 1 t:23 n {RELEASED}"
        answer = sandbox.talk(SAVE, run("ecto_1", [number(at)]), RELEASE, times=2)
        assert answer == f"{SAVED} 2 C:INSERT_0_1 {RELEASED}"
        assert sandbox.talk(SAVE, run("ecto_1", [number(at)]), RELEASE, until="E") \
            == f"{SAVED} 2 E:23505"
        assert sandbox.talk(sync(), UNDO, times=2) == f"Z:E {UNDONE}"
    assert count(sandbox, table) == 5
    assert sandbox.talk(query("ROLLBACK")) == "C:ROLLBACK Z:I"
    assert count(sandbox, table) == 0


def test_an_error_within_a_savepoint_before_the_flush(sandbox):
    for _ in range(5):
        answer = sandbox.talk(SAVE, parse("SELECT nothing"), describe("S"), flush(), until="E")
        assert answer == f"{SAVED} E:42703"
        assert sandbox.talk(sync(), UNDO, times=2) == f"Z:E {UNDONE}"
        answer = sandbox.talk(SAVE, parse("SELECT 1 / $1::int AS n"), describe("S"), flush(), until="T:")
        assert answer == f"{SAVED} 1 t:23 T:n"
        assert sandbox.talk(run("", [number(0)]), RELEASE, until="E") == "E:22012"
        assert sandbox.talk(sync(), UNDO, times=2) == f"Z:E {UNDONE}"


def test_a_statement_that_is_flushed_and_given_up(sandbox):
    """It was described within a savepoint, and is closed before its use."""
    for _ in range(5):
        sandbox.talk(SAVE, prepare("ecto_1", "SELECT 1 AS n"), flush(), until="T:")
        assert sandbox.talk(close("S", "ecto_1"), UNDO) == f"3 {UNDONE}"


@pytest.mark.parametrize("rows", (1, 2, 100))
def test_a_cursor(postgrex, rows):
    one = postgrex()
    one.talk(query("BEGIN"))
    one.talk(prepare("ecto_1", "SELECT generate_series(1, 7) AS n"), flush(), until="T")
    assert one.talk(bind((), "ecto_1", "1F", results=BINARY), sync()) == "2 Z:T"
    seen = []
    while True:
        answer = one.talk(execute("1F", rows), sync()).split(" ")
        seen += [word for word in answer if word.startswith("D:")]
        assert answer[-1] == "Z:T"
        if answer[-2] != "s":
            break
    assert seen == [row(at) for at in range(1, 8)]
    assert one.talk(close("P", "1F"), sync()) == "3 Z:T"
    assert one.talk(query("COMMIT")) == "C:COMMIT Z:I"


def test_a_cursor_within_savepoints(sandbox):
    sandbox.talk(SAVE, prepare("ecto_1", "SELECT generate_series(1, 4) AS n"), RELEASE, times=2)
    answer = sandbox.talk(SAVE, bind((), "ecto_1", "1F", results=BINARY), RELEASE, times=2)
    assert answer == f"{SAVED} 2 {RELEASED}"
    for at in (1, 3):
        answer = sandbox.talk(SAVE, execute("1F", 2), RELEASE, times=2)
        assert answer == f"{SAVED} {row(at)} {row(at + 1)} s {RELEASED}"
    assert sandbox.talk(SAVE, execute("1F", 2), RELEASE, times=2) == f"{SAVED} C:SELECT_0 {RELEASED}"
    assert sandbox.talk(close("P", "1F"), sync()) == "3 Z:T"


def copy_in(one, table, portal):
    """Prepares a COPY and binds it to a portal; a transaction is open."""
    assert one.talk(prepare("copy", f"COPY {table} FROM STDIN"), flush(), until="n") == "3 1 t: n"
    assert one.talk(bind((), "copy", portal), sync()) == "2 Z:T"
    return portal


def rows_of(begin, end):
    return [copy_data(f"{at}\tword {at}\n".encode()) for at in range(begin, end)]


def test_copy_in(postgrex, table):
    """The data follows the Execute without a wait for CopyInResponse."""
    one = postgrex()
    for turn in range(3):
        one.talk(query("BEGIN"))
        portal = copy_in(one, table, "2A")
        one.send(execute(portal), *rows_of(turn * 1000, turn * 1000 + 500))
        for data in rows_of(turn * 1000 + 500, turn * 1000 + 1000):
            one.send(data)
        assert one.talk(copy_done(), sync()) == "G C:COPY_1000 Z:T"
        assert one.talk(query("COMMIT")) == "C:COMMIT Z:I"
    assert count(one, table) == 3000


def test_copy_in_that_is_refused(postgrex, table):
    one = postgrex()
    for _ in range(3):
        one.talk(query("BEGIN"))
        portal = copy_in(one, table, "2A")
        one.send(execute(portal), copy_data(b"1\tone\n1\ttwo\n"))
        for data in rows_of(2, 3000):
            one.send(data)
        assert one.talk(copy_done(), sync()) == "G E:23505 Z:E"
        assert one.talk(query("ROLLBACK")) == "C:ROLLBACK Z:I"
        assert one.talk(prepare("ecto_1", "SELECT 1 AS n"), sync()) == "3 1 t: T:n Z:I"
    assert count(one, table) == 0


def test_copy_in_within_a_savepoint(sandbox, table):
    for turn in range(3):
        portal = copy_in(sandbox, table, f"2{turn}")
        assert sandbox.talk(SAVE, execute(portal), *rows_of(turn * 100, turn * 100 + 50)) == SAVED
        for data in rows_of(turn * 100 + 50, turn * 100 + 100):
            sandbox.send(data)
        assert sandbox.talk(copy_done(), RELEASE) == f"G C:COPY_100 {RELEASED}"
    assert count(sandbox, table) == 300


def test_copy_in_that_is_refused_within_a_savepoint(sandbox, table):
    """After the error all is ignored up to the Sync: the rows, CopyDone and the simple query."""
    for turn in range(3):
        portal = copy_in(sandbox, table, f"2{turn}")
        answer = sandbox.talk(SAVE, execute(portal), copy_data(b"1\tone\n1\ttwo\n"))
        assert answer == SAVED
        for data in rows_of(2, 3000):
            sandbox.send(data)
        assert sandbox.talk(copy_done(), RELEASE, until="E") == "G E:23505"
        assert sandbox.talk(sync(), UNDO, times=2) == f"Z:E {UNDONE}"
        assert count(sandbox, table) == 0


def test_copy_out(postgrex, table):
    one = postgrex()
    one.talk(query(f"INSERT INTO {table} SELECT n, 'x' FROM generate_series(1, 3) n"))
    one.talk(prepare("copy", f"COPY {table} TO STDOUT"), flush(), until="n")
    lines = " ".join("d:" + f"{at}\tx\n".encode().hex() for at in (1, 2, 3))
    wanted = f"2 H {lines} c C:COPY_3"
    for _ in range(5):
        assert one.talk(run("copy"), sync()) == f"{wanted} Z:I"
    one.talk(query("BEGIN"))
    assert one.talk(SAVE, run("copy"), RELEASE, times=2) == f"{SAVED} {wanted} {RELEASED}"
    one.talk(query("ROLLBACK"))


def test_a_listener(postgrex, name):
    one, other = postgrex(), postgrex()
    for turn in range(3):
        assert one.talk(parse(f'LISTEN "{name}"'), bind(), execute(), close("S"), sync()) \
            == "1 2 C:LISTEN 3 Z:I"
        other.talk(query(f"NOTIFY {name}, '{turn}'"))
        assert one.answers(until="A") == f"A:{name}|{turn}"
        assert one.talk(parse(f'UNLISTEN "{name}"'), bind(), execute(), close("S"), sync()) \
            == "1 2 C:UNLISTEN 3 Z:I"


def test_a_ping_is_a_sync(postgrex):
    one = postgrex()
    for _ in range(20):
        assert one.talk(sync()) == "Z:I"


def test_a_query_whose_process_has_died(postgrex, watcher, table, name):
    """Postgrex closes the socket first. Its cancel request follows."""
    one, locker = postgrex(), postgrex()
    locker.talk(query("BEGIN"))
    locker.talk(query(f"LOCK TABLE {table}"))
    one.send(prepare("ecto_1", f"SELECT count(*) FROM {table} /* {name} */"), run("ecto_1"), sync())
    until(lambda: running(watcher, name))
    one.drop()
    one.cancel()
    until(lambda: not running(watcher, name))
    locker.talk(query("ROLLBACK"))


def test_a_table_that_changes_under_a_cached_query(postgrex, table):
    one, other = postgrex(), postgrex()
    sql = f"SELECT * FROM {table}"
    one.talk(prepare("ecto_1", sql), sync())
    assert one.talk(run("ecto_1"), sync()) == "2 C:SELECT_0 Z:I"
    other.talk(query(f"ALTER TABLE {table} ADD COLUMN more int"))
    assert one.talk(run("ecto_1"), sync()) == "E:0A000 Z:I"
    assert (one.error["V"], one.error["R"]) == ("ERROR", "RevalidateCachedQuery")
    assert one.talk(prepare("ecto_1", sql), flush(), until="T") == "3 1 t: T:id,data,more"
    assert one.talk(run("ecto_1"), sync()) == "2 C:SELECT_0 Z:I"


def test_a_type_that_is_made_later(postgrex, name):
    """A type that is unknown to the driver: it closes the statement, loads types, and begins anew."""
    one = postgrex()
    one.talk(query(f"CREATE TYPE {name} AS ENUM ('low', 'high')"))
    sql = f"SELECT $1::{name} AS n"
    assert one.talk(prepare("ecto_1", sql), flush(), until="T").endswith("T:n")
    assert one.talk(close("S", "ecto_1"), sync()) == "3 Z:I"
    assert one.talk(query(f"SELECT typname FROM pg_type WHERE typname = '{name}'")) \
        == f"T:typname D:{name} C:SELECT_1 Z:I"
    assert one.talk(prepare("ecto_1", sql), flush(), until="T").endswith("T:n")
    assert one.talk(run("ecto_1", [b"high"]), sync()) == "2 D:high C:SELECT_1 Z:I"
    one.talk(query(f"DROP TYPE {name}"))


@pytest.mark.parametrize("lock", ("LOCK TABLE {0} IN SHARE UPDATE EXCLUSIVE MODE",
                                  "SELECT pg_advisory_xact_lock(4711)"))
def test_migrations_wait_for_one_another(postgrex, watcher, table, lock):
    lock = lock.format(table)
    one, other = postgrex(), postgrex()
    for each in (one, other):
        each.talk(query("BEGIN"))
    one.talk(prepare("ecto_1", lock), run("ecto_1"), sync())
    other.send(prepare("ecto_1", lock), run("ecto_1"), sync())
    until(lambda: count(watcher, "pg_locks WHERE NOT granted"))
    assert one.talk(query("COMMIT")) == "C:COMMIT Z:I"
    assert other.answers().endswith("Z:T")
    assert other.talk(query("COMMIT")) == "C:COMMIT Z:I"


def test_a_lock_of_the_migrator_s_session(postgrex):
    """migration_lock: :pg_advisory_lock"""
    one, other = postgrex(), postgrex()
    for turn in range(5):
        one.talk(prepare("ecto_1", f"SELECT pg_try_advisory_lock({turn})::int AS n"), flush(), until="T")
        assert one.talk(run("ecto_1"), sync()) == f"2 {row(1)} C:SELECT_1 Z:I"
        one.talk(query("BEGIN"))
        one.talk(query("COMMIT"))
        assert "D:f " in other.talk(query(f"SELECT pg_try_advisory_lock({turn})"))
        assert "D:t " in one.talk(query(f"SELECT pg_advisory_unlock({turn})"))


def test_many_connections_with_the_same_names(postgrex):
    pool = [postgrex() for _ in range(8)]
    for place, one in enumerate(pool):
        one.talk(prepare("ecto_1", f"SELECT $1::int + {place} AS n"), flush(), until="T")
        one.talk(run("ecto_1", [number(0)]), sync())
    for turn in range(10):
        for one in pool:
            one.send(run("ecto_1", [number(turn)]), sync())
        for place, one in enumerate(pool):
            assert one.answers() == f"2 {row(turn + place)} C:SELECT_1 Z:I"
