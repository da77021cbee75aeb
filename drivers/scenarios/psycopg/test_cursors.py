"""Cursors on the server: by the driver's names, in SQL, scrollable, held, and their ends."""

import psycopg
import pytest


def test_rows_come_in_portions(conn):
    with conn.cursor("portions") as cursor:
        cursor.itersize = 7
        cursor.execute("select generate_series(1, 100)")
        assert [row[0] for row in cursor] == list(range(1, 101))


def test_fetchmany_and_fetchall(conn):
    with conn.cursor("c") as cursor:
        cursor.execute("select generate_series(1, 10)")
        assert [row[0] for row in cursor.fetchmany(4)] == [1, 2, 3, 4]
        assert cursor.fetchone() == (5,)
        assert [row[0] for row in cursor.fetchall()] == [6, 7, 8, 9, 10]
        assert cursor.fetchone() is None


def test_scrolling_both_ways(conn):
    with conn.cursor("s", scrollable=True) as cursor:
        cursor.execute("select generate_series(1, 10)")
        cursor.scroll(5)
        assert cursor.fetchone() == (6,)
        cursor.scroll(-3)
        assert cursor.fetchone() == (4,)
        cursor.scroll(9, mode="absolute")
        assert cursor.fetchone() == (10,)


def test_scrolling_back_is_refused_without_scroll(conn):
    with conn.cursor("n", scrollable=False) as cursor:
        cursor.execute("select generate_series(1, 10)")
        cursor.fetchmany(5)
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            cursor.scroll(-2)
        conn.rollback()


def test_a_cursor_in_binary_with_parameters(conn):
    with conn.cursor("b", binary=True) as cursor:
        cursor.execute("select n, n * %s from generate_series(1, 3) n", [2.5])
        assert cursor.fetchall() == [(1, 2.5), (2, 5.0), (3, 7.5)]


def test_two_cursors_side_by_side(conn):
    one, two = conn.cursor("one"), conn.cursor("two")
    one.execute("select generate_series(1, 5)")
    two.execute("select chr(96 + generate_series(1, 5))")
    assert [(one.fetchone()[0], two.fetchone()[0]) for _ in range(5)] == list(
        zip(range(1, 6), "abcde"))


def test_a_held_cursor_outlives_its_transaction(conn):
    cursor = conn.cursor("held", withhold=True)
    cursor.execute("select generate_series(1, 10)")
    assert cursor.fetchmany(3) == [(1,), (2,), (3,)]
    conn.commit()
    assert cursor.fetchmany(3) == [(4,), (5,), (6,)]
    cursor.close()
    conn.commit()


def test_a_held_cursor_in_sql(auto):
    auto.execute("declare keep cursor with hold for select generate_series(1, 4)")
    for number in range(1, 5):
        assert auto.execute("fetch keep").fetchone() == (number,)
    auto.execute("close keep")


def test_a_plain_cursor_ends_with_its_transaction(conn):
    conn.execute("declare brief cursor for select 1")
    conn.commit()
    with pytest.raises(psycopg.errors.InvalidCursorName):
        conn.execute("fetch brief")


def test_a_plain_cursor_needs_a_transaction(auto):
    with pytest.raises(psycopg.errors.NoActiveSqlTransaction):
        auto.execute("declare none cursor for select 1")


def test_update_where_current_of(conn, table):
    conn.execute(f"insert into {table} values (1, 'a'), (2, 'b'), (3, 'c')")
    conn.execute(f"declare walk cursor for select * from {table} order by id for update")
    conn.execute("fetch 2 from walk")
    conn.execute(f"update {table} set data = 'changed' where current of walk")
    conn.commit()
    assert conn.execute(f"select data from {table} order by id").fetchall() == [
        ("a",), ("changed",), ("c",)]


def test_a_cursor_returned_by_a_function(conn, name):
    conn.execute(f"create function {name}(refcursor) returns refcursor language plpgsql as"
                 " $$ begin open $1 for select generate_series(1, 3); return $1; end $$")
    assert conn.execute(f"select {name}('refc')").fetchone() == ("refc",)
    assert conn.execute("fetch all from refc").fetchall() == [(1,), (2,), (3,)]
    conn.rollback()


def test_closing_twice_and_what_is_not_there(conn):
    conn.execute("declare once cursor for select 1")
    conn.execute("close once")
    with pytest.raises(psycopg.errors.InvalidCursorName):
        conn.execute("close once")
    conn.rollback()


def test_an_error_within_a_cursor_s_rows(conn):
    cursor = conn.cursor("fails")
    cursor.execute("select 1 / (3 - n) from generate_series(1, 5) n")
    assert cursor.fetchone() == (0,)
    with pytest.raises(psycopg.errors.DivisionByZero):
        cursor.fetchmany(5)
    conn.rollback()
    assert conn.execute("select 1").fetchone() == (1,)


def test_a_portal_is_described_while_its_transaction_lasts(conn):
    conn.execute("declare shown cursor for select 1::int8 as eight, 'x' as word")
    told = conn.pgconn.describe_portal(b"shown")
    assert [(told.fname(at), told.ftype(at)) for at in range(told.nfields)] == [
        (b"eight", 20), (b"word", 25)]
    assert conn.pgconn.close_portal(b"shown").status == psycopg.pq.ExecStatus.COMMAND_OK
    assert conn.pgconn.describe_portal(b"shown").error_field(
        psycopg.pq.DiagnosticField.SQLSTATE) == b"34000"
    conn.rollback()


def test_row_factories(conn):
    from psycopg.rows import class_row, dict_row, namedtuple_row, scalar_row, tuple_row
    text = "select 1 as number, 'w' as word"
    made = [conn.cursor(row_factory=factory).execute(text).fetchone()
            for factory in (tuple_row, dict_row, namedtuple_row, scalar_row, class_row(dict))]
    assert made[:2] == [(1, "w"), {"number": 1, "word": "w"}]
    assert (made[2].word, made[3], made[4]) == ("w", 1, {"number": 1, "word": "w"})


def test_client_and_raw_cursors(conn):
    row = psycopg.ClientCursor(conn).execute("select %s, %s::text", ["it's", None]).fetchone()
    assert row == ("it's", None)
    assert psycopg.RawCursor(conn).execute("select $2::int - $1::int", [1, 10]).fetchone() == (9,)
