"""COPY in both directions: text, binary, CSV, large, broken off, failing, cancelled."""

import itertools

import psycopg
import pytest
from conftest import is_running, until


class Enough(Exception):
    """Raised to leave a block half-way."""


def test_rows_in_and_out_as_text(auto, table):
    rows = [(1, "one"), (2, None), (3, "tab\tnewline\nbackslash\\"), (4, "")]
    with auto.cursor().copy(f"copy {table} from stdin") as copy:
        for row in rows:
            copy.write_row(row)
    with auto.cursor().copy(f"copy (select id::text, data from {table} order by id) to stdout") \
            as copy:
        assert list(copy.rows()) == [(str(number), word) for number, word in rows]


def test_rows_in_and_out_in_binary(auto, table):
    with auto.cursor().copy(f"copy {table} from stdin (format binary)") as copy:
        copy.set_types(["int4", "text"])
        for number in range(1000):
            copy.write_row((number, None if number % 7 == 0 else "v" * number))
    with auto.cursor().copy(f"copy (select * from {table} order by id) to stdout"
                            " (format binary)") as copy:
        copy.set_types(["int4", "text"])
        back = list(copy.rows())
    assert back[8] == (8, "v" * 8) and back[7] == (7, None) and len(back) == 1000


def test_csv_with_a_header(auto, table):
    with auto.cursor().copy(f"copy {table} from stdin (format csv, header)") as copy:
        copy.write("id,data\n1,\"a,b\"\n")
        copy.write("2,\n")
    assert auto.execute(f"select * from {table} order by id").fetchall() == [(1, "a,b"), (2, None)]


def test_pieces_cut_anywhere(auto, table):
    data = "".join(f"{number}\tword {number}\n" for number in range(300)).encode()
    with auto.cursor().copy(f"copy {table} from stdin") as copy:
        for at in range(0, len(data), 7):
            copy.write(data[at:at + 7])
    assert auto.execute(f"select count(*), sum(id) from {table}").fetchone() == (300, 44850)


def test_megabytes_in(auto, table):
    cursor = auto.cursor()
    with cursor.copy(f"copy {table} from stdin") as copy:
        for number in range(20):
            copy.write(f"{number}\t{'m' * 500_000}\n")
    assert cursor.rowcount == 20
    assert auto.execute(f"select sum(length(data)) from {table}").fetchone() == (10_000_000,)


def test_megabytes_out(auto):
    total = 0
    with auto.cursor().copy("copy (select repeat('o', 100) from generate_series(1, 100000))"
                            " to stdout") as copy:
        for piece in copy:
            total += len(piece)
    assert total == 101 * 100_000


def test_nothing_in_and_nothing_out(auto, table):
    cursor = auto.cursor()
    with cursor.copy(f"copy {table} from stdin"):
        pass
    assert cursor.rowcount == 0
    with auto.cursor().copy(f"copy {table} to stdout") as copy:
        assert copy.read() == b""


def test_a_bad_row_is_told_with_its_line(auto, table):
    with pytest.raises(psycopg.errors.InvalidTextRepresentation) as caught:
        with auto.cursor().copy(f"copy {table} from stdin") as copy:
            copy.write("1\tgood\nnot a number\tbad\n")
    assert "line 2" in caught.value.diag.context
    assert auto.execute(f"select count(*) from {table}").fetchone() == (0,)


def test_a_bad_row_early_in_megabytes(auto, table):
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        with auto.cursor().copy(f"copy {table} from stdin") as copy:
            copy.write("broken\n")
            for number in range(4000):
                copy.write(f"{number}\t{'x' * 1000}\n")
    assert auto.execute("select 'alive'").fetchone() == ("alive",)


def test_a_doubled_key_fails_at_the_end(auto, table):
    with pytest.raises(psycopg.errors.UniqueViolation) as caught:
        with auto.cursor().copy(f"copy {table} from stdin") as copy:
            copy.write("1\ta\n1\tb\n")
    assert caught.value.diag.constraint_name == f"{table}_pkey"


def test_the_client_gives_up_in_the_middle(auto, table):
    with pytest.raises(Enough):
        with auto.cursor().copy(f"copy {table} from stdin") as copy:
            copy.write("1\ta\n")
            raise Enough
    assert auto.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert auto.execute(f"select count(*) from {table}").fetchone() == (0,)


def test_copy_fail_has_the_client_s_words(auto, table):
    pgconn = auto.pgconn
    assert pgconn.exec_(f"copy {table} from stdin".encode()).status == psycopg.pq.ExecStatus.COPY_IN
    pgconn.put_copy_data(b"1\ta\n")
    pgconn.put_copy_end(b"changed my mind")
    result = pgconn.get_result()
    assert result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"57014"
    assert b"changed my mind" in result.error_message


def test_reading_is_given_up_in_the_middle(auto):
    with pytest.raises(Enough):
        with auto.cursor().copy("copy (select repeat('g', 1000) from generate_series(1, 100000))"
                                " to stdout") as copy:
            assert len(copy.read()) == 1001
            raise Enough
    assert auto.execute("select 'next'").fetchone() == ("next",)


def test_reading_fails_half_way(auto):
    seen = 0
    with pytest.raises(psycopg.errors.DivisionByZero):
        with auto.cursor().copy("copy (select 1 / (500 - n) from generate_series(1, 1000) n)"
                                " to stdout") as copy:
            for _ in copy:
                seen += 1
    assert seen <= 499
    assert auto.execute("select 'alive'").fetchone() == ("alive",)


def test_copy_out_is_cancelled(auto, connect, name):
    watcher = connect(autocommit=True)
    with pytest.raises(psycopg.errors.QueryCanceled):
        with auto.cursor().copy(f"copy (select pg_sleep(0.01), '{name}'"
                                " from generate_series(1, 6000)) to stdout") as copy:
            copy.read()
            until(lambda: is_running(watcher, name))
            auto.cancel()
            for _ in copy:
                pass
    assert auto.execute("select 1").fetchone() == (1,)


def test_copy_in_is_cancelled(auto, connect, table):
    watcher = connect(autocommit=True)
    with pytest.raises(psycopg.errors.QueryCanceled):
        with auto.cursor().copy(f"copy {table} from stdin") as copy:
            copy.write("1\ta\n")
            until(lambda: is_running(watcher, f"copy {table}"))
            auto.cancel()
            # PostgreSQL sees it when the next data come, and libpq keeps back what is short.
            keys = itertools.count(2)
            until(lambda: copy.write(f"{next(keys)}\t{'b' * 20_000}\n")
                  or not is_running(watcher, f"copy {table}"))
    assert auto.execute(f"select count(*) from {table}").fetchone() == (0,)


def test_copy_within_a_transaction_is_rolled_back(conn, table):
    with conn.cursor().copy(f"copy {table} from stdin") as copy:
        copy.write_row((1, "undone"))
    assert conn.execute(f"select count(*) from {table}").fetchone() == (1,)
    conn.rollback()
    assert conn.execute(f"select count(*) from {table}").fetchone() == (0,)


def test_copy_between_two_connections(connect, table, name):
    source, sink = connect(autocommit=True), connect(autocommit=True)
    source.execute(f"insert into {table} select n, md5(n::text) from generate_series(1, 5000) n")
    sink.execute(f"create table {name}_copy (like {table})")
    try:
        with source.cursor().copy(f"copy {table} to stdout (format binary)") as out, \
                sink.cursor().copy(f"copy {name}_copy from stdin (format binary)") as into:
            for piece in out:
                into.write(piece)
        assert sink.execute(f"select count(*) from {table} natural join {name}_copy").fetchone() \
            == (5000,)
    finally:
        sink.execute(f"drop table {name}_copy")


def test_copy_with_parameters_is_composed_by_the_driver(auto):
    with auto.cursor().copy("copy (select %s || n from generate_series(1, 3) n) to stdout",
                            ["it's "]) as copy:
        assert [row[0] for row in copy.rows()] == ["it's 1", "it's 2", "it's 3"]


def test_copy_of_a_table_that_is_not_there(auto):
    with pytest.raises(psycopg.errors.UndefinedTable):
        with auto.cursor().copy("copy no_such_table from stdin") as copy:
            copy.write("1\n")
    assert auto.execute("select 1").fetchone() == (1,)


def test_several_statements_around_a_copy(auto, table):
    pgconn = auto.pgconn
    pgconn.send_query(f"select 'before'; copy {table} from stdin; select count(*) from {table}"
                      .encode())
    assert pgconn.get_result().get_value(0, 0) == b"before"
    assert pgconn.get_result().status == psycopg.pq.ExecStatus.COPY_IN
    pgconn.put_copy_data(b"1\ta\n2\tb\n")
    pgconn.put_copy_end()
    assert pgconn.get_result().command_status == b"COPY 2"
    assert pgconn.get_result().get_value(0, 0) == b"2"
    assert pgconn.get_result() is None


def test_two_copies_in_one_query(auto):
    pgconn = auto.pgconn
    pgconn.send_query(b"copy (select 1) to stdout; copy (select 2) to stdout")
    seen = []
    while (result := pgconn.get_result()) is not None:
        if result.status == psycopg.pq.ExecStatus.COPY_OUT:
            while (piece := pgconn.get_copy_data(0))[0] > 0:
                seen.append(bytes(piece[1]))
    assert seen == [b"1\n", b"2\n"]


def test_a_client_that_vanishes_in_copy_leaves_nothing(connect, table):
    one = connect(autocommit=True)
    one.pgconn.exec_(f"copy {table} from stdin".encode())
    one.pgconn.put_copy_data(b"1\ta\n")
    one.pgconn.flush()
    one.pgconn.finish()
    watcher = connect(autocommit=True)
    until(lambda: not is_running(watcher, f"copy {table} from"))
    assert watcher.execute(f"select count(*) from {table}").fetchone() == (0,)
