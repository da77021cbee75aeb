"""Sizes: values of megabytes, long results, long statements, slow readers."""

import hashlib
import random
import time

import psycopg
import pytest

MEGABYTE = 1 << 20


@pytest.mark.parametrize("size", [8191, 8192, 8193, 16384, 65535, 65536, 65537, MEGABYTE + 1,
                                  12 * MEGABYTE])
def test_bytes_of_this_size_there_and_back(auto, size):
    value = random.Random(size).randbytes(size)
    back, digest = auto.execute("select %b::bytea, md5(%b::bytea)", [value, value],
                                binary=True).fetchone()
    assert bytes(back) == value
    assert digest == hashlib.md5(value).hexdigest()


def test_a_large_text_in_the_statement_itself(auto):
    text = "".join(random.Random(7).choices("abcdefghij'", k=3 * MEGABYTE))
    length, digest = auto.execute(
        "select length(%(v)s), md5(%(v)s)", {"v": text}).fetchone()
    assert (length, digest) == (len(text), hashlib.md5(text.encode()).hexdigest())


def test_a_large_simple_query(auto):
    text = "x" * (2 * MEGABYTE)
    result = auto.pgconn.exec_(f"select length('{text}'), '{text}'".encode())
    assert result.get_value(0, 0) == str(len(text)).encode()
    assert result.get_value(0, 1) == text.encode()


def test_many_rows_in_order(auto):
    rows = auto.execute("select n, md5(n::text) from generate_series(1, 200000) n").fetchall()
    assert [row[0] for row in rows] == list(range(1, 200001))
    assert rows[123455][1] == hashlib.md5(b"123456").hexdigest()


def test_rows_of_wildly_different_sizes(auto):
    sizes = [0, 1, 100_000, 3, 65536, 5, 2 * MEGABYTE, 0]
    rows = auto.execute("select repeat(chr(97 + o::int), n) from unnest(%s::int[])"
                        " with ordinality as u(n, o)", [sizes]).fetchall()
    assert [row[0] for row in rows] == [chr(98 + at) * size for at, size in enumerate(sizes)]


def test_a_row_at_a_time_by_stream(auto):
    cursor = auto.cursor()
    total = 0
    for number, pad in cursor.stream("select n, repeat('p', 500) from generate_series(1, 20000) n"):
        total += number
        assert len(pad) == 500
    assert total == 20000 * 20001 // 2
    assert auto.execute("select 1").fetchone() == (1,)


def test_rows_in_chunks_by_stream(auto):
    cursor = auto.cursor()
    rows = [row[0] for row in cursor.stream("select generate_series(1, 1001)", size=100)]
    assert rows == list(range(1, 1002))


def test_a_stream_that_is_given_up_half_way(auto):
    cursor = auto.cursor()
    for number, _ in cursor.stream(
            "select n, repeat('q', 1000) from generate_series(1, 50000) n"):
        if number == 10:
            break
    cursor.close()
    assert auto.execute("select 'next'").fetchone() == ("next",)


def test_a_reader_that_lags_behind_gets_everything(auto):
    cursor = auto.cursor()
    seen = 0
    for number, _ in cursor.stream("select n, repeat('r', 10000) from generate_series(1, 2000) n"):
        seen += 1
        assert number == seen
        if number % 500 == 0:
            time.sleep(0.1)  # a slow reader is the case, not a wait for something
    assert seen == 2000


def test_large_parameters_in_a_row(auto):
    cursor = auto.cursor()
    for number in range(12):
        value = bytes([number]) * (300_000 + number)
        cursor.execute("select length(%b::bytea), get_byte(%b::bytea, 299999)", [value, value])
        assert cursor.fetchone() == (300_000 + number, number)


def test_a_large_error_message_is_whole(auto):
    text = "m" * 200_000
    with pytest.raises(psycopg.errors.RaiseException) as caught:
        auto.execute(f"do $$ begin raise exception '%', repeat('m', {len(text)}); end $$")
    assert caught.value.diag.message_primary == text


def test_large_objects_by_sql(conn):
    value = random.Random(1).randbytes(MEGABYTE)
    oid = conn.execute("select lo_from_bytea(0, %b)", [value]).fetchone()[0]
    assert bytes(conn.execute("select lo_get(%s)", [oid], binary=True).fetchone()[0]) == value
    assert conn.execute("select lo_unlink(%s)", [oid]).fetchone() == (1,)
