"""Pipelines: many statements under way at once, errors in their midst, Sync and Flush."""

import psycopg
import pytest
from psycopg import pq

OK, TUPLES, ABORTED = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK,
                       pq.ExecStatus.PIPELINE_ABORTED)
SYNC = pq.ExecStatus.PIPELINE_SYNC


def results(pgconn, count):
    """The next `count` results, without the ends between them."""
    found = []
    while len(found) < count:
        pgconn.flush()
        while pgconn.is_busy():
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is not None:
            found.append(result)
    return found


@pytest.fixture
def raw(auto):
    auto.pgconn.enter_pipeline_mode()
    yield auto.pgconn


def test_a_hundred_selects_answered_in_order(auto):
    with auto.pipeline():
        cursors = [auto.execute("select %s::int", [number]) for number in range(100)]
    assert [cursor.fetchone()[0] for cursor in cursors] == list(range(100))


def test_inserts_and_a_count_in_one_pipeline(auto, table):
    with auto.pipeline():
        for number in range(50):
            auto.execute(f"insert into {table} values (%s, %s)", [number, str(number)])
        cursor = auto.execute(f"select count(*) from {table}")
    assert cursor.fetchone() == (50,)


def test_a_result_fetched_before_the_pipeline_ends(auto):
    with auto.pipeline():
        first = auto.execute("select 'early'")
        assert first.fetchone() == ("early",)
        second = auto.execute("select 'late'")
    assert second.fetchone() == ("late",)


def test_a_sync_in_the_middle_commits_what_is_before_it(auto, table):
    with pytest.raises(psycopg.errors.DivisionByZero):
        with auto.pipeline() as pipeline:
            auto.execute(f"insert into {table} values (1, 'kept')")
            pipeline.sync()
            auto.execute(f"insert into {table} values (2, 'undone')")
            auto.execute("select 1 / 0")
    assert auto.execute(f"select id from {table}").fetchall() == [(1,)]


def test_an_error_voids_the_rest_up_to_the_sync(auto, table):
    with pytest.raises(psycopg.errors.UndefinedTable):
        with auto.pipeline():
            good = auto.execute("select 'good'")
            auto.execute("select * from no_such_table_at_all")
            auto.execute(f"insert into {table} values (1, 'never')")
    assert good.fetchone() == ("good",)
    assert auto.execute(f"select count(*) from {table}").fetchone() == (0,)


def test_a_transaction_inside_a_pipeline(conn, table):
    with conn.pipeline():
        with conn.transaction():
            conn.execute(f"insert into {table} values (1, 'a')")
            conn.execute(f"insert into {table} values (2, 'b')")
    conn.rollback()
    assert conn.execute(f"select count(*) from {table}").fetchone() == (2,)


def test_nested_pipelines(auto):
    with auto.pipeline():
        outer = auto.execute("select 'outer'")
        with auto.pipeline():
            inner = auto.execute("select 'inner'")
        last = auto.execute("select 'last'")
    assert [one.fetchone()[0] for one in (outer, inner, last)] == ["outer", "inner", "last"]


def test_prepared_statements_in_a_pipeline(auto):
    with auto.pipeline():
        cursors = [auto.execute("select %s::int + 7", [number], prepare=True)
                   for number in range(40)]
    assert [cursor.fetchone()[0] for cursor in cursors] == [n + 7 for n in range(40)]


def test_executemany_in_a_pipeline_returns_each_result(auto, table):
    cursor = auto.cursor()
    cursor.executemany(f"insert into {table} values (%s, %s) returning id",
                       [(n, str(n)) for n in range(30)], returning=True)
    returned = [cursor.fetchone()[0]]
    while cursor.nextset():
        returned.append(cursor.fetchone()[0])
    assert returned == list(range(30))


def test_rows_of_a_megabyte_in_a_pipeline(auto):
    with auto.pipeline():
        cursors = [auto.execute("select repeat(%s, 1000000)", [letter]) for letter in "abcdef"]
    assert [cursor.fetchone()[0] for cursor in cursors] == [
        letter * 1_000_000 for letter in "abcdef"]


def test_parse_and_use_in_the_same_batch(raw):
    raw.send_prepare(b"p1", b"select $1::int * 10")
    raw.send_query_prepared(b"p1", [b"4"])
    raw.send_query_prepared(b"p1", [b"5"])
    raw.pipeline_sync()
    prepared, four, five, sync = results(raw, 4)
    assert [one.status for one in (prepared, four, five, sync)] == [OK, TUPLES, TUPLES, SYNC]
    assert (four.get_value(0, 0), five.get_value(0, 0)) == (b"40", b"50")


def test_one_name_with_two_texts_in_one_batch(raw):
    raw.send_prepare(b"re", b"select 'old'")
    raw.send_query_prepared(b"re", [])
    raw.send_close_prepared(b"re")
    raw.send_prepare(b"re", b"select 'new'")
    raw.send_query_prepared(b"re", [])
    raw.pipeline_sync()
    _, old, _, _, new, sync = results(raw, 6)
    assert (old.get_value(0, 0), new.get_value(0, 0)) == (b"old", b"new")
    assert sync.status == SYNC


def test_a_failed_parse_in_a_batch_leaves_no_name(raw):
    raw.send_prepare(b"bad", b"selekt")
    raw.send_prepare(b"unseen", b"select 1")
    raw.pipeline_sync()
    bad, unseen, _ = results(raw, 3)
    assert bad.error_field(pq.DiagnosticField.SQLSTATE) == b"42601"
    assert unseen.status == ABORTED
    for name in (b"bad", b"unseen"):
        raw.send_query_prepared(name, [])
        raw.pipeline_sync()
        missing, _ = results(raw, 2)
        assert missing.error_field(pq.DiagnosticField.SQLSTATE) == b"26000"


def test_an_error_at_bind_undoes_nothing_prepared_before(raw):
    raw.send_prepare(b"num", b"select $1::int")
    raw.send_query_prepared(b"num", [b"no number"])
    raw.pipeline_sync()
    raw.send_query_prepared(b"num", [b"6"])
    raw.pipeline_sync()
    prepared, bad, _, six, _ = results(raw, 5)
    assert prepared.status == OK
    assert bad.error_field(pq.DiagnosticField.SQLSTATE) == b"22P02"
    assert six.get_value(0, 0) == b"6"


def test_flush_brings_answers_before_the_sync(raw):
    raw.send_query_params(b"select $1::int", [b"1"])
    raw.send_flush_request()
    first, = results(raw, 1)
    assert first.get_value(0, 0) == b"1"
    raw.send_query_params(b"select $1::int", [b"2"])
    raw.pipeline_sync()
    second, sync = results(raw, 2)
    assert (second.get_value(0, 0), sync.status) == (b"2", SYNC)


def test_syncs_without_anything_between(raw):
    for _ in range(5):
        raw.pipeline_sync()
    assert [one.status for one in results(raw, 5)] == [SYNC] * 5


def test_describe_and_close_in_a_batch(raw):
    raw.send_prepare(b"d", b"select 1::int8 as eight, 'x'::text as word")
    raw.send_describe_prepared(b"d")
    raw.send_close_prepared(b"d")
    raw.send_describe_prepared(b"d")
    raw.pipeline_sync()
    _, told, closed, missing, _ = results(raw, 5)
    assert [told.ftype(at) for at in range(told.nfields)] == [20, 25]
    assert closed.status == OK
    assert missing.error_field(pq.DiagnosticField.SQLSTATE) == b"26000"


def test_a_batch_without_a_transaction_is_one(raw, table, connect):
    raw.send_query_params(f"insert into {table} values (1, 'x')".encode(), None)
    raw.send_query_params(f"insert into {table} values (1, 'twice')".encode(), None)
    raw.pipeline_sync()
    good, bad, _ = results(raw, 3)
    assert good.status == OK
    assert bad.error_field(pq.DiagnosticField.SQLSTATE) == b"23505"
    assert connect().execute(f"select count(*) from {table}").fetchone() == (0,)


def test_begin_and_commit_over_several_syncs(raw, table):
    for text in ("begin", f"insert into {table} values (1, 'x')", "commit",
                 f"select count(*) from {table}"):
        raw.send_query_params(text.encode(), None)
        raw.pipeline_sync()
    found = results(raw, 8)
    assert [one.status for one in found] == [OK, SYNC, OK, SYNC, OK, SYNC, TUPLES, SYNC]
    assert found[6].get_value(0, 0) == b"1"


def test_many_batches_sent_ahead(raw):
    for number in range(200):
        raw.send_query_params(b"select $1::int", [b"%d" % number])
        if number % 3 == 0:
            raw.pipeline_sync()
    raw.pipeline_sync()
    found = results(raw, 200 + 67 + 1)
    values = [one.get_value(0, 0) for one in found if one.status == TUPLES]
    assert values == [b"%d" % number for number in range(200)]


def test_large_parameters_and_results_cross_in_a_pipeline(auto):
    # More than both sockets hold: whoever does not read while it writes stands still.
    big = "z" * 400_000
    with auto.pipeline():
        cursors = [auto.execute("select %s::text || %s::text", [big, str(n)]) for n in range(25)]
    assert [cursor.fetchone()[0][-2:] for cursor in cursors][-1] == "24"
    assert all(len(cursor.pgresult.get_value(0, 0)) >= 400_001 for cursor in cursors)
