"""psqlodbc, driven by pyodbc: statements prepared on the server or not, SQLDescribeParam, savepoints
around each statement, cursors that fetch in parts. Where to connect to is in libpq's variables."""

import datetime as dt
import decimal
import itertools
import os
import threading
import time
import traceback
import uuid

import pyodbc

NUMBERS = itertools.count()
COUNT = itertools.count(1)
pyodbc.pooling = False


def name():
    return f"odbc{os.getpid()}_{next(NUMBERS)}"


def connect(more="", **options):
    at = os.environ
    return pyodbc.connect(
        f"DRIVER={{PostgreSQL Unicode}};SERVER={at['PGHOST']};PORT={at['PGPORT']};UID={at['PGUSER']};"
        f"DATABASE={at['PGDATABASE']};{more}", **options)


def scenario(title, more=""):
    """Plays a scenario at once, with a connection of its own. It passes if it does not raise."""
    def play(scene):
        conn = None
        number = next(COUNT)
        try:
            conn = connect(more, autocommit=True)
            scene(conn)
            print(f"ok {number} - {title}", flush=True)
        except Exception:
            print(f"not ok {number} - {title}", flush=True)
            print("# " + traceback.format_exc().replace("\n", "\n# "), flush=True)
        finally:
            if conn:
                conn.close()
    return play


def table(conn):
    made = name()
    conn.execute(f"create table {made} (id serial primary key, word text)")
    return made


def value(conn, sql, *values):
    return conn.execute(sql, *values).fetchval()


def state_of(work):
    try:
        work()
    except pyodbc.Error as error:
        return error.args[0]
    return "none"


KINDS = {"prepared on the server": "UseServerSidePrepare=1;", "prepared by the driver": "UseServerSidePrepare=0;",
         "in parts": "UseDeclareFetch=1;Fetch=50;"}

for kind, keys in KINDS.items():
    @scenario(f"{kind}: values there and back", keys)
    def _(conn):
        for type_, wanted in [
            ("int8", -(2**63)), ("int4", 7), ("float8", 0.5), ("text", "Grüße, 世界 '\\\""),
            ("text", ""), ("bool", True), ("date", dt.date(1999, 12, 31)),
            ("timestamp", dt.datetime(2024, 2, 29, 1, 2, 3, 4)), ("text", None),
            ("numeric(20,5)", decimal.Decimal("1234567890.12345")),
            ("bytea", bytes(range(256))),
        ]:
            for _ in range(3):
                got = value(conn, f"select cast(? as {type_})", wanted)
                assert got == wanted or got == str(int(wanted or 0)), (type_, got, wanted)
        mine = uuid.uuid4()
        assert str(value(conn, "select cast(cast(? as uuid) as text)", str(mine))) == str(mine)

    @scenario(f"{kind}: a statement many times", keys)
    def _(conn):
        made = table(conn)
        cursor = conn.cursor()
        for number in range(50):
            cursor.execute(f"insert into {made} (word) values (?)", f"word {number}")
        for number in range(50):
            assert value(conn, f"select word from {made} where id = ?", number + 1) == f"word {number}"
        cursor.executemany(f"insert into {made} (word) values (?)", [(f"x{n}",) for n in range(50)])
        assert value(conn, f"select count(*) from {made}") == 100
        conn.execute(f"drop table {made}")

    @scenario(f"{kind}: a big result", keys)
    def _(conn):
        rows = total = 0
        for number, text in conn.execute(
                "select n, repeat(md5(cast(n as text)), 5) from generate_series(1, 20000) n"):
            rows += 1
            total += number
            assert len(text) == 160
        assert (rows, total) == (20000, 200010000)

    @scenario(f"{kind}: errors", keys)
    def _(conn):
        made = table(conn)
        conn.execute(f"insert into {made} values (1, 'a')")
        assert state_of(lambda: conn.execute(f"insert into {made} values (1, 'b')")) == "23505"
        assert state_of(lambda: conn.execute("select nothing")) in ("42703", "42S22")
        assert state_of(lambda: conn.execute("select * from nowhere")) in ("42P01", "42S02")
        assert state_of(lambda: value(conn, "select cast(cast(? as text) as int)", "x")) == "22P02"
        assert state_of(lambda: conn.execute("select 1 / 0")) in ("22012",)
        assert value(conn, "select 1") == 1
        conn.execute(f"drop table {made}")

    @scenario(f"{kind}: several connections at once", keys)
    def _(_conn):
        wrong = []

        def work(factor):
            own = connect(keys, autocommit=True)
            for number in range(30):
                got = value(own, "select cast(? as int) * cast(? as int)", factor, number)
                if got != factor * number:
                    wrong.append((factor, number, got))
            own.close()

        threads = [threading.Thread(target=work, args=[factor]) for factor in range(6)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert not wrong, wrong


for protocol, name_of in ((0, "transaction"), (1, "whole transaction"), (2, "statement")):
    @scenario(f"an error rolls back: {name_of}", f"Protocol=7.4-{protocol};")
    def _(conn, protocol=protocol):
        made = table(conn)
        conn.autocommit = False
        conn.execute(f"insert into {made} (word) values ('one')")
        assert state_of(lambda: conn.execute("select 1 / 0")) == "22012"
        if protocol == 2:
            conn.execute(f"insert into {made} (word) values ('two')")
        else:
            conn.rollback()
            conn.execute(f"insert into {made} (word) values ('two')")
        conn.commit()
        conn.autocommit = True
        words = value(conn, f"select string_agg(word, ',' order by id) from {made}")
        assert words == ("one,two" if protocol == 2 else "two"), words
        conn.execute(f"drop table {made}")


@scenario("commit and rollback")
def _(conn):
    made = table(conn)
    conn.autocommit = False
    conn.execute(f"insert into {made} (word) values ('kept')")
    conn.commit()
    conn.execute(f"insert into {made} (word) values ('lost')")
    conn.rollback()
    conn.autocommit = True
    assert value(conn, f"select string_agg(word, ',') from {made}") == "kept"
    conn.execute(f"drop table {made}")


@scenario("savepoints")
def _(conn):
    made = table(conn)
    conn.autocommit = False
    conn.execute(f"insert into {made} (word) values ('one')")
    conn.execute("savepoint here")
    conn.execute(f"insert into {made} (word) values ('two')")
    conn.execute("rollback to savepoint here")
    conn.execute(f"insert into {made} (word) values ('three')")
    conn.commit()
    conn.autocommit = True
    assert value(conn, f"select string_agg(word, ',' order by id) from {made}") == "one,three"
    conn.execute(f"drop table {made}")


@scenario("isolation levels")
def _(conn):
    for level, told in ((pyodbc.SQL_TXN_SERIALIZABLE, "serializable"),
                        (pyodbc.SQL_TXN_READ_COMMITTED, "read committed")):
        conn.set_attr(pyodbc.SQL_ATTR_TXN_ISOLATION, level)
        for _ in range(3):
            assert value(conn, "show transaction_isolation") == told


@scenario("the number of a row")
def _(conn):
    made = table(conn)
    for number in range(1, 11):
        conn.execute(f"insert into {made} (word) values (?)", "w")
        assert value(conn, "select lastval()") == number
        assert value(conn, f"insert into {made} (word) values (?) returning id", "w") is not None
        conn.execute(f"delete from {made} where id > ?", number)
        conn.execute(f"select setval('{made}_id_seq', ?)", number)
    conn.execute(f"drop table {made}")


@scenario("several results of one statement")
def _(conn):
    cursor = conn.execute("select 1; select 2, 'two'")
    assert [tuple(row) for row in cursor.fetchall()] == [(1,)]
    assert cursor.nextset()
    assert [tuple(row) for row in cursor.fetchall()] == [(2, "two")]


@scenario("the catalogue")
def _(conn):
    made = table(conn)
    cursor = conn.cursor()
    assert [row.table_name for row in cursor.tables(table=made)] == [made]
    assert [row.column_name for row in cursor.columns(table=made)] == ["id", "word"]
    assert [row.column_name for row in cursor.primaryKeys(table=made)] == ["id"]
    assert conn.getinfo(pyodbc.SQL_DBMS_NAME) == "PostgreSQL"
    conn.execute(f"drop table {made}")


@scenario("settings and temporary tables stay")
def _(conn):
    conn.execute("set work_mem = '5MB'")
    conn.execute("create temp table own (n int)")
    others = [connect(autocommit=True) for _ in range(4)]
    for number in range(10):
        for other in others:
            other.execute("set work_mem = '7MB'")
        conn.execute("insert into own values (?)", number)
        assert value(conn, "show work_mem") == "5MB"
    assert value(conn, "select count(*) from own") == 10
    for other in others:
        other.close()


@scenario("a query is cancelled")
def _(conn):
    cursor = conn.cursor()
    canceller = threading.Timer(0.5, cursor.cancel)
    canceller.start()
    begin = time.monotonic()
    state = state_of(lambda: cursor.execute("select pg_sleep(60)"))
    # unixODBC crashes if the statement is freed while SQLCancel still uses it.
    canceller.join()
    assert state in ("57014", "HY008"), state
    assert time.monotonic() - begin < 30
    assert value(conn, "select 1") == 1


@scenario("a query takes too long")
def _(conn):
    conn.execute("set statement_timeout = 300")
    assert state_of(lambda: conn.execute("select pg_sleep(60)")) in ("57014", "HYT00", "HY008")
    assert value(conn, "select 1") == 1


@scenario("functions are called")
def _(conn):
    made = name()
    conn.execute(f"create function {made}(a int, b int) returns int language sql as 'select a + b'")
    assert value(conn, f"{{call {made}(?, ?)}}", 2, 3) == 5
    conn.execute(f"drop function {made}(int, int)")


@scenario("what is set at login")
def _(_conn):
    own = connect("ConnSettings=set work_mem to '6MB';", autocommit=True)
    assert value(own, "show work_mem") == "6MB"
    own.close()


@scenario("a login that is refused")
def _(_conn):
    at = os.environ
    try:
        pyodbc.connect(f"DRIVER={{PostgreSQL Unicode}};SERVER={at['PGHOST']};PORT={at['PGPORT']};"
                       f"UID={at['PGUSER']};DATABASE=no_such_database").close()
    except pyodbc.Error as error:
        assert "no_such_database" in str(error), error
    else:
        raise AssertionError("it is let in")


print(f"1..{next(COUNT) - 1}")
