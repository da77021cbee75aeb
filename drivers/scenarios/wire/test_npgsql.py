"""The messages of Npgsql: types loaded at login, resets that wait for the next use of a pooled connection,
statements prepared by use, batches, several commands of several users in one write."""

import struct

import pytest

from conftest import count, running, until
from wire import (bind, close, copy_data, copy_done, copy_fail, describe, execute, parse,
                  query, sync)

DISCARD = query("DISCARD ALL")
# Npgsql's reset of a connection that has prepared statements, which DISCARD ALL would drop.
RESET = query("SET SESSION AUTHORIZATION DEFAULT;RESET ALL;CLOSE ALL;UNLISTEN *;"
              "SELECT pg_advisory_unlock_all();DISCARD SEQUENCES;DISCARD TEMP")
RESET_DONE = "C:SET C:RESET C:CLOSE_CURSOR_ALL C:UNLISTEN T:pg_advisory_unlock_all D: C:SELECT_1" \
             " C:DISCARD_SEQUENCES C:DISCARD_TEMP Z:I"
BEGIN = query("BEGIN TRANSACTION ISOLATION LEVEL READ COMMITTED")
INT4, INT8, TEXT = 23, 20, 25
# Every result is asked for in binary.
BINARY = (1,)


@pytest.fixture
def npgsql(connect):
    """Opens connections as Npgsql does: it asks for TLS, then names an encoding."""
    def open_one(**parameters):
        return connect(True, client_encoding="UTF8", **parameters)
    return open_one


def number(value):
    return struct.pack("!i", value)


def command(sql, values=(), types=()):
    """A command without Prepare, less its Sync."""
    return parse(sql, types=types) + bind(values, results=BINARY) + describe("P") + execute()


def prepare(name, sql, types=()):
    return parse(sql, name, types) + describe("S", name) + sync()


def prepared(name, values=()):
    """A command after Prepare, less its Sync. Its columns are known."""
    return bind(values, name, results=BINARY) + execute()


def auto_prepare(name, sql, values=(), types=(), replaces=False):
    """The use of a command that makes it a prepared one, less its Sync."""
    old = close("S", name) if replaces else b""
    return old + parse(sql, name, types) + bind(values, name, results=BINARY) + describe("P") + execute()


def one_row(value):
    return f"1 2 T:n D:{number(value).hex()} C:SELECT_1"


def test_a_login_asks_for_tls_first(npgsql):
    one = npgsql(application_name="shop", TimeZone="Europe/Berlin")
    assert one.welcome == "Z:I"
    assert one.parameters["client_encoding"] == "UTF8"
    assert one.parameters["application_name"] == "shop"
    assert one.parameters["TimeZone"] == "Europe/Berlin"
    assert one.parameters["standard_conforming_strings"] == "on"


def test_types_are_loaded_by_one_query_of_four_statements(npgsql, name):
    one = npgsql()
    one.talk(query(f"CREATE TYPE {name} AS ENUM ('low', 'high');"
                   f"CREATE TYPE {name}_pair AS (a int, b text)"))
    answer = one.talk(query(f"""SELECT version();
SELECT ns.nspname, t.oid, t.typname, t.typtype, t.typelem
FROM pg_type AS t JOIN pg_namespace AS ns ON ns.oid = t.typnamespace
LEFT JOIN pg_class AS c ON c.oid = t.typrelid LEFT JOIN pg_proc AS p ON p.oid = t.typreceive
LEFT JOIN pg_range AS r ON r.rngtypid = t.oid
WHERE t.typtype IN ('b', 'r', 'm', 'e', 'd') OR t.typtype = 'c' AND c.relkind = 'c' ORDER BY t.oid;
-- Fields of composite types
SELECT t.typname, a.attname FROM pg_type AS t JOIN pg_attribute AS a ON a.attrelid = t.typrelid
WHERE t.typname = '{name}_pair' AND attnum > 0 AND NOT attisdropped ORDER BY t.oid, a.attnum;
-- Labels of enums
SELECT t.typname, enumlabel FROM pg_enum JOIN pg_type AS t ON t.oid = enumtypid
WHERE t.typname = '{name}' ORDER BY t.oid, enumsortorder;
"""))
    assert answer.startswith("T:version D:PostgreSQL")
    assert answer.endswith(
        f"T:typname,attname D:{name}_pair|a D:{name}_pair|b C:SELECT_2"
        f" T:typname,enumlabel D:{name}|low D:{name}|high C:SELECT_2 Z:I")
    one.talk(query(f"DROP TYPE {name}, {name}_pair"))


def test_commands_without_prepare(npgsql):
    one = npgsql()
    for value in range(20):
        answer = one.talk(command("SELECT $1 + 1 AS n", [number(value)], [INT4]), sync())
        assert answer == one_row(value + 1) + " Z:I"


def test_the_columns_alone(npgsql, table):
    one = npgsql()
    assert one.talk(parse(f"SELECT * FROM {table} WHERE id = $1"), describe("S"), sync()) \
        == "1 t:23 T:id,data Z:I"
    assert one.talk(parse(f"DELETE FROM {table}"), describe("S"), sync()) == "1 t: n Z:I"


def test_a_batch_is_one_transaction(npgsql, table):
    one = npgsql()
    insert = [command(f"INSERT INTO {table} VALUES ($1, 'x')", [number(value)], [INT4])
              for value in (1, 2, 2, 3)]
    assert one.talk(*insert[:3], sync()) == " ".join(
        ["1 2 n C:INSERT_0_1"] * 2 + ["1 2 n E:23505 Z:I"])
    assert count(one, table) == 0
    assert one.talk(insert[0], insert[1], insert[3], sync()) == " ".join(
        ["1 2 n C:INSERT_0_1"] * 3 + ["Z:I"])
    assert count(one, table) == 3


def test_a_batch_with_error_barriers(npgsql, table):
    one = npgsql()
    insert = [command(f"INSERT INTO {table} VALUES ($1, 'x')", [number(value)], [INT4]) + sync()
              for value in (1, 1, 2)]
    done = "1 2 n C:INSERT_0_1 Z:I"
    assert one.talk(*insert, times=3) == f"{done} 1 2 n E:23505 Z:I {done}"
    assert count(one, table) == 2


def test_begin_is_sent_with_the_first_command(npgsql, table):
    one = npgsql()
    assert one.talk(BEGIN, command(f"INSERT INTO {table} VALUES (1, 'x')"), sync(), times=2) \
        == "C:BEGIN Z:T 1 2 n C:INSERT_0_1 Z:T"
    assert one.talk(query("SAVEPOINT a"), command("SELECT nothing"), sync(), times=2) \
        == "C:SAVEPOINT Z:T E:42703 Z:E"
    assert one.talk(query("ROLLBACK TO SAVEPOINT a")) == "C:ROLLBACK Z:T"
    assert one.talk(query("COMMIT")) == "C:COMMIT Z:I"
    assert count(one, table) == 1


@pytest.mark.parametrize("level", ("REPEATABLE READ", "SERIALIZABLE", "READ UNCOMMITTED"))
def test_other_levels_last_for_their_transaction(npgsql, level):
    one = npgsql()
    show = command("SELECT current_setting('transaction_isolation') AS n"), sync()
    for _ in range(5):
        answer = one.talk(query(f"BEGIN TRANSACTION ISOLATION LEVEL {level}"), *show, times=2)
        assert f"D:{level.lower().replace(' ', '_')} " in answer
        one.talk(query("COMMIT"))
        assert "D:read_committed " in one.talk(*show)


def test_prepare_once_and_run_often(npgsql):
    """Clients that use the same names for other statements, one after another."""
    all_of_them = [npgsql() for _ in range(6)]
    for place, one in enumerate(all_of_them):
        assert one.talk(prepare("_p1", f"SELECT $1 * {place} AS n", [INT4])) == "1 t:23 T:n Z:I"
        assert one.talk(prepare("_p2", f"SELECT $1 + {place} AS n", [INT4])) == "1 t:23 T:n Z:I"
    for turn in range(10):
        for place, one in enumerate(all_of_them):
            answer = one.talk(prepared("_p1", [number(turn)]), prepared("_p2", [number(turn)]), sync())
            assert answer == f"2 D:{number(turn * place).hex()} C:SELECT_1" \
                             f" 2 D:{number(turn + place).hex()} C:SELECT_1 Z:I"


def test_a_statement_is_unprepared(npgsql):
    one = npgsql()
    one.talk(prepare("_p1", "SELECT 1 AS n"))
    assert one.talk(close("S", "_p1"), sync()) == "3 Z:I"
    assert one.talk(prepared("_p1"), sync()) == "E:26000 Z:I"
    assert one.talk(prepare("_p1", "SELECT 2 AS n")) == "1 t: T:n Z:I"


def test_all_statements_are_unprepared(npgsql):
    one = npgsql()
    for at in range(4):
        one.talk(prepare(f"_p{at}", f"SELECT {at} AS n"))
    assert one.talk(query("DEALLOCATE ALL")) == "C:DEALLOCATE_ALL Z:I"
    for at in range(4):
        assert one.talk(prepared(f"_p{at}"), sync()) == "E:26000 Z:I"
        assert one.talk(prepare(f"_p{at}", f"SELECT {at} AS n")) == "1 t: T:n Z:I"


def test_statements_prepared_by_use_replace_one_another(npgsql):
    """Max Auto Prepare=2: the third statement takes the name of the one used least recently."""
    one, other = npgsql(), npgsql()
    texts = [f"SELECT $1 + {at} AS n" for at in range(5)]
    for turn in range(20):
        for at, sql in enumerate(texts):
            slot = f"_auto{at % 2 + 1}"
            replaces = bool(turn or at > 1)
            use = auto_prepare(slot, sql, [number(turn)], [INT4], replaces)
            closed = "3 " if replaces else ""
            assert one.talk(use, sync()) == f"{closed}{one_row(turn + at)} Z:I"
            assert one.talk(prepared(slot, [number(turn)]), sync()) \
                == f"2 D:{number(turn + at).hex()} C:SELECT_1 Z:I"
            assert other.talk(query("SELECT 1")).endswith("Z:I")


def test_a_batch_that_prepares_and_fails(npgsql, table):
    """The statement after the failed one has not been parsed; the one before it has."""
    one = npgsql()
    one.talk(query(f"INSERT INTO {table} VALUES (1, 'x')"))
    answer = one.talk(
        auto_prepare("_auto1", "SELECT 1 AS n"),
        auto_prepare("_auto2", f"INSERT INTO {table} VALUES (1, 'x')"),
        auto_prepare("_auto3", "SELECT 3 AS n"), sync())
    assert answer == one_row(1) + " 1 2 n E:23505 Z:I"
    assert one.talk(prepared("_auto3"), sync()) == "E:26000 Z:I"
    assert one.talk(auto_prepare("_auto3", "SELECT 3 AS n"), sync()) == one_row(3) + " Z:I"
    assert one.talk(prepared("_auto1"), sync()) == f"2 D:{number(1).hex()} C:SELECT_1 Z:I"


def test_discard_all_is_sent_with_the_next_command(npgsql, name):
    """The pool gives a connection to the next user, whose first command follows DISCARD ALL."""
    one, other = npgsql(), npgsql()
    for turn in range(5):
        one.talk(query(f"SET work_mem = '{turn + 7}MB'"))
        one.talk(query(f"CREATE TEMP TABLE {name} (n int)"))
        one.talk(query(f"LISTEN {name}"))
        one.talk(query(f"SELECT pg_advisory_lock({turn + 1})"))
        answer = one.talk(DISCARD, command("SELECT current_setting('work_mem') AS n"), sync(), times=2)
        assert answer == "C:DISCARD_ALL Z:I 1 2 T:n D:4MB C:SELECT_1 Z:I"
        assert "D:f " in other.talk(query(f"SELECT to_regclass('{name}') IS NOT NULL"))
        assert "D:t " in other.talk(query(f"SELECT pg_try_advisory_lock({turn + 1})"))
        other.talk(query(f"SELECT pg_advisory_unlock({turn + 1}); NOTIFY {name}, 'anyone?'"))
        assert one.talk(sync()) == "Z:I"


def test_discard_all_is_sent_with_begin(npgsql, table):
    one = npgsql()
    for turn in range(10):
        answer = one.talk(DISCARD, BEGIN, command(f"INSERT INTO {table} VALUES ({turn}, 'x')"), sync(),
                          times=3)
        assert answer == "C:DISCARD_ALL Z:I C:BEGIN Z:T 1 2 n C:INSERT_0_1 Z:T"
        assert one.talk(query("COMMIT")) == "C:COMMIT Z:I"
    assert count(one, table) == 10


def test_a_reset_keeps_prepared_statements(npgsql, name):
    one, other = npgsql(), npgsql()
    one.talk(prepare("_p1", "SELECT current_setting('work_mem') AS n"))
    one.talk(auto_prepare("_auto1", "SELECT $1 + 5 AS n", [number(0)], [INT4]), sync())
    for turn in range(10):
        one.talk(query(f"SET work_mem = '{turn + 7}MB'; CREATE TEMP TABLE {name} (n int);"
                       f"LISTEN {name}; SELECT pg_advisory_lock({turn + 1})"))
        assert one.talk(prepared("_p1"), sync()) == f"2 D:{turn + 7}MB C:SELECT_1 Z:I"
        answer = one.talk(RESET, prepared("_p1"), prepared("_auto1", [number(turn)]), sync(), times=2)
        assert answer == f"{RESET_DONE} 2 D:4MB C:SELECT_1" \
                         f" 2 D:{number(turn + 5).hex()} C:SELECT_1 Z:I"
        assert "D:t " in other.talk(query(f"SELECT pg_try_advisory_lock({turn + 1})"))
        other.talk(query(f"SELECT pg_advisory_unlock({turn + 1}); NOTIFY {name}"))
        assert one.talk(sync()) == "Z:I"


def test_a_reset_ends_a_role(npgsql):
    one = npgsql()
    for _ in range(5):
        one.talk(query("SET ROLE pg_monitor"))
        answer = one.talk(DISCARD, command("SELECT current_user::text AS n"), sync(), times=2)
        assert "D:postgres " in answer
        one.talk(query("SET SESSION AUTHORIZATION pg_monitor"))
        answer = one.talk(RESET, command("SELECT current_user::text AS n"), sync(), times=2)
        assert "D:postgres " in answer


def test_a_reset_keeps_the_search_path_of_the_login(npgsql):
    """Search Path=… is a startup parameter, so RESET returns to it on a connection of one's own."""
    one = npgsql(search_path="pg_catalog")
    show = command("SELECT current_setting('search_path') AS n"), sync()
    assert "D:pg_catalog " in one.talk(*show)
    one.talk(query("SET search_path = public"))
    one.talk(DISCARD)
    assert "D:pg_catalog " in one.talk(*show)


def test_a_transaction_is_rolled_back_before_the_reset(npgsql, table):
    one = npgsql()
    one.talk(BEGIN, command(f"INSERT INTO {table} VALUES (1, 'x')"), sync(), times=2)
    assert one.talk(query("ROLLBACK")) == "C:ROLLBACK Z:I"
    assert one.talk(DISCARD, command("SELECT 1 AS n"), sync(), times=2) \
        == "C:DISCARD_ALL Z:I " + one_row(1) + " Z:I"
    assert count(one, table) == 0


def test_a_reset_within_a_transaction(npgsql, table):
    """A connection of an enlisted transaction goes back to the pool before the transaction ends."""
    one = npgsql()
    for turn in range(5):
        one.talk(BEGIN, command(f"INSERT INTO {table} VALUES ({turn}, 'x')"), sync(), times=2)
        answer = one.talk(RESET, command("SELECT 1 AS n"), sync(), times=2)
        assert answer == RESET_DONE.replace("Z:I", "Z:T") + f" {one_row(1)} Z:T"
        assert one.talk(query("COMMIT")) == "C:COMMIT Z:I"
    assert count(one, table) == 5


def test_commands_of_many_users_in_one_write(npgsql, table):
    """Multiplexing: each command has its own Sync, and fails alone."""
    one = npgsql()
    for turn in range(5):
        commands, wanted = [], []
        for at in range(40):
            if at % 8 == 3:
                commands.append(command("SELECT 1 / $1 AS n", [number(0)], [INT4]))
                wanted.append("1 E:22012 Z:I")
            elif at % 8 == 5:
                commands.append(command(f"INSERT INTO {table} VALUES ($1, 'x')",
                                        [number(turn * 40 + at)], [INT4]))
                wanted.append("1 2 n C:INSERT_0_1 Z:I")
            else:
                commands.append(command("SELECT $1 AS n", [number(at)], [INT4]))
                wanted.append(one_row(at) + " Z:I")
        answer = one.talk(*(each + sync() for each in commands), times=40)
        assert answer == " ".join(wanted)
    assert count(one, table) == 25


def test_many_users_prepare_in_one_write(npgsql):
    """Multiplexing with statements prepared by use."""
    one, other = npgsql(), npgsql()
    texts = [f"SELECT $1 + {at} AS n" for at in range(10)]
    parts = [auto_prepare(f"_auto{at}", sql, [number(1)], [INT4]) + sync()
             for at, sql in enumerate(texts)]
    assert one.talk(*parts, times=10) == " ".join(f"{one_row(at + 1)} Z:I" for at in range(10))
    for turn in range(20):
        other.talk(*(prepare(f"_auto{at}", f"SELECT {turn}") + close("S", f"_auto{at}") + sync()
                     for at in range(10)), times=20)
        answer = one.talk(*(prepared(f"_auto{at}", [number(turn)]) + sync() for at in range(10)), times=10)
        assert answer == " ".join(
            f"2 D:{number(turn + at).hex()} C:SELECT_1 Z:I" for at in range(10))


def test_a_keepalive_is_a_sync(npgsql, table):
    one = npgsql()
    for _ in range(10):
        assert one.talk(sync()) == "Z:I"
    one.talk(BEGIN, command(f"INSERT INTO {table} VALUES (1, 'x')"), sync(), times=2)
    assert one.talk(sync()) == "Z:T"
    one.talk(command("SELECT nothing"), sync())
    assert one.talk(sync()) == "Z:E"
    assert one.talk(query("ROLLBACK")) == "C:ROLLBACK Z:I"


def test_notifications_come_with_keepalives(npgsql, name):
    one, other = npgsql(), npgsql()
    one.talk(command(f"LISTEN {name}"), sync())
    for turn in range(5):
        other.talk(command(f"NOTIFY {name}, '{turn}'"), sync())
        assert until(lambda: [word for word in one.talk(sync()).split() if word != "Z:I"]) \
            == [f"A:{name}|{turn}"]
    assert one.talk(command(f"UNLISTEN {name}"), sync()) == "1 2 n C:UNLISTEN Z:I"


def test_a_binary_import(npgsql, table):
    one = npgsql()
    head = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
    for turn in range(3):
        assert one.talk(query(f"COPY {table} FROM STDIN (FORMAT BINARY)"), until="G") == "G"
        one.send(copy_data(head))
        for row in range(turn * 1000, turn * 1000 + 1000):
            one.send(copy_data(struct.pack("!hii", 2, 4, row) + struct.pack("!i", 5) + b"hello"))
        assert one.talk(copy_data(struct.pack("!h", -1)), copy_done()) == "C:COPY_1000 Z:I"
    assert count(one, table) == 3000


def test_an_import_that_is_given_up(npgsql, table):
    one = npgsql()
    one.talk(query(f"COPY {table} FROM STDIN"), until="G")
    assert one.talk(copy_data(b"1\tone\n"), copy_fail("Cancelled by user")) == "E:57014 Z:I"
    assert count(one, table) == 0


def test_an_import_that_is_refused(npgsql, table):
    """The rows go on for a while, and CopyDone comes after the error."""
    one = npgsql()
    one.talk(query(f"COPY {table} FROM STDIN"), until="G")
    one.send(copy_data(b"1\tone\n1\ttwo\n"))
    for row in range(2, 5000):
        one.send(copy_data(f"{row}\tword\n".encode()))
    assert one.talk(copy_done()) == "E:23505 Z:I"
    assert one.talk(command("SELECT 1 AS n"), sync()) == one_row(1) + " Z:I"


def test_an_export(npgsql):
    one = npgsql()
    head = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
    rows = b"".join(struct.pack("!hii", 1, 4, n) for n in (1, 2, 3))
    for _ in range(5):
        answer = one.talk(query("COPY (SELECT generate_series(1, 3)) TO STDOUT (FORMAT BINARY)"))
        assert answer.startswith("H d:") and answer.endswith(" c C:COPY_3 Z:I")
        data = "".join(word[2:] for word in answer.split(" ") if word.startswith("d:"))
        assert bytes.fromhex(data) == head + rows + struct.pack("!h", -1)


def test_an_export_that_is_cancelled(npgsql):
    one = npgsql()
    one.talk(query("COPY (SELECT generate_series(1, 1000000000)) TO STDOUT (FORMAT BINARY)"),
             until="d")
    one.cancel()
    assert one.answers().endswith("E:57014 Z:I")
    assert one.talk(command("SELECT 1 AS n"), sync()) == one_row(1) + " Z:I"


def test_a_command_that_takes_too_long_is_cancelled(npgsql, watcher, name):
    one = npgsql()
    for _ in range(3):
        one.send(command(f"SELECT pg_sleep(600) /* {name} */"), sync())
        until(lambda: running(watcher, name))
        one.cancel()
        assert one.answers() == "1 2 T:pg_sleep E:57014 Z:I"
        assert one.talk(command("SELECT 1 AS n"), sync()) == one_row(1) + " Z:I"


def test_a_cancel_request_after_the_answer_has_no_effect(npgsql):
    one = npgsql()
    for _ in range(5):
        one.talk(command("SELECT 1 AS n"), sync())
        one.cancel()
        assert one.talk(sync()) == "Z:I"
        # A late one may meet the next command; PostgreSQL's own answer is then 57014.
        assert one.talk(command("SELECT 2 AS n"), sync()) in (
            one_row(2) + " Z:I", "E:57014 Z:I", "1 E:57014 Z:I", "1 2 T:n E:57014 Z:I")


def test_a_statement_timeout_in_options(npgsql):
    """Options=-c statement_timeout=…"""
    one = npgsql(options="-c statement_timeout=200")
    assert one.talk(command("SELECT pg_sleep(600)"), sync()) == "1 2 T:pg_sleep E:57014 Z:I"


def test_a_big_parameter_in_several_writes(npgsql):
    one = npgsql()
    size = 5_000_000
    whole = command("SELECT length($1) AS n", [b"x" * size], [TEXT]) + sync()
    for at in range(0, len(whole), 8192):
        one.send(whole[at:at + 8192])
    assert one.answers() == one_row(size) + " Z:I"


def test_cursors_of_a_function_are_fetched(npgsql, name):
    one = npgsql()
    one.talk(query(f"CREATE FUNCTION {name}() RETURNS refcursor LANGUAGE plpgsql AS"
                   " $$ DECLARE c refcursor; BEGIN OPEN c FOR SELECT generate_series(1, 3);"
                   " RETURN c; END $$"))
    answer = one.talk(BEGIN, command(f"SELECT {name}() AS n"), sync(), times=2)
    cursor = answer.split("D:")[1].split(" ")[0].replace("_", " ")
    assert one.talk(command(f'FETCH ALL IN "{cursor}"'), sync()).endswith("C:FETCH_3 Z:T")
    one.talk(query("COMMIT"))
    one.talk(query(f"DROP FUNCTION {name}"))


def test_two_phase_commit(npgsql, table):
    one, other = npgsql(), npgsql()
    one.talk(BEGIN, command(f"INSERT INTO {table} VALUES (1, 'x')"), sync(), times=2)
    assert one.talk(query(f"PREPARE TRANSACTION '{table}'")) == "C:PREPARE_TRANSACTION Z:I"
    assert one.talk(DISCARD, command("SELECT 1 AS n"), sync(), times=2).endswith(one_row(1) + " Z:I")
    assert other.talk(query(f"COMMIT PREPARED '{table}'")) == "C:COMMIT_PREPARED Z:I"
    assert count(one, table) == 1


def test_a_table_that_changes_under_a_prepared_statement(npgsql, table):
    one, other = npgsql(), npgsql()
    sql = f"SELECT * FROM {table}"
    one.talk(prepare("_p1", sql))
    one.talk(prepared("_p1"), sync())
    other.talk(query(f"ALTER TABLE {table} ADD COLUMN more int"))
    assert one.talk(prepared("_p1"), sync()) == "E:0A000 Z:I"
    assert (one.error["V"], one.error["R"]) == ("ERROR", "RevalidateCachedQuery")
    assert one.talk(close("S", "_p1"), parse(sql, "_p2"), describe("S", "_p2"), sync()) \
        == "3 1 t: T:id,data,more Z:I"
    assert one.talk(prepared("_p2"), sync()) == "2 C:SELECT_0 Z:I"


def test_a_pool_of_ten(npgsql, table):
    """Ten connections with names of their own meaning, used in turn, reset between users."""
    pool = [npgsql() for _ in range(10)]
    for place, one in enumerate(pool):
        one.talk(prepare("_p1", f"SELECT {place} + $1 AS n", [INT4]))
    for turn in range(5):
        for place, one in enumerate(pool):
            one.talk(query(f"SET application_name = 'user {place} in turn {turn}'"))
        for place, one in enumerate(pool):
            assert f"D:user_{place}_in_turn_{turn} " in one.talk(query("SHOW application_name"))
        for place, one in enumerate(pool):
            answer = one.talk(RESET, prepared("_p1", [number(turn)]), sync(), times=2)
            assert answer == f"{RESET_DONE} 2 D:{number(turn + place).hex()} C:SELECT_1 Z:I"
