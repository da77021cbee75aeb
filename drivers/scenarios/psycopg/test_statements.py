"""Statements and their results: several in one, none at all, many in a row, batches of them."""

import psycopg
import pytest


def test_several_statements_are_several_results(auto):
    cursor = auto.execute("select 1; select 'two', 2; select 3 where false")
    assert cursor.fetchall() == [(1,)]
    assert cursor.nextset() and cursor.fetchall() == [("two", 2)]
    assert cursor.nextset() and cursor.fetchall() == []
    assert cursor.nextset() is None


def test_several_statements_are_one_transaction(auto, table):
    with pytest.raises(psycopg.errors.DivisionByZero):
        auto.execute(f"insert into {table} values (1, 'x'); select 1 / 0")
    assert auto.execute(f"select count(*) from {table}").fetchone() == (0,)


def test_begin_and_commit_within_one_query(auto, table):
    auto.execute(f"begin; insert into {table} values (1, 'x'); commit; select 1")
    assert auto.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert auto.execute(f"select count(*) from {table}").fetchone() == (1,)


def test_a_query_that_leaves_a_transaction_open(auto, table):
    auto.execute(f"select 1; begin; insert into {table} values (1, 'x')")
    assert auto.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
    assert auto.execute(f"select count(*) from {table}").fetchone() == (1,)
    auto.execute("rollback")
    assert auto.execute(f"select count(*) from {table}").fetchone() == (0,)


def test_several_statements_with_parameters_are_refused(auto):
    with pytest.raises(psycopg.errors.SyntaxError, match="multiple commands"):
        auto.execute("select %s; select 2", [1])


@pytest.mark.parametrize("text", ["", "   ", ";", ";;;", "-- nothing", "/* nothing */"])
def test_nothing_to_do(auto, text):
    empty = psycopg.pq.ExecStatus.EMPTY_QUERY
    assert auto.pgconn.exec_(text.encode()).status == empty
    if text not in (";;;",):
        assert auto.pgconn.exec_params(text.encode(), None).status == empty
    assert auto.execute("select 1").fetchone() == (1,)


@pytest.mark.parametrize("text, tag", [
    ("select 1", "SELECT 1"), ("select 1 where false", "SELECT 0"), ("values (1), (2)", "SELECT 2"),
    ("show timezone", "SHOW"), ("set timezone = 'UTC'", "SET"), ("begin", "BEGIN"),
    ("explain select 1", "EXPLAIN"), ("do $$ begin end $$", "DO"), ("checkpoint", "CHECKPOINT"),
    ("create temp table tags as select 1", "SELECT 1"), ("discard plans", "DISCARD PLANS"),
    ("listen no_one", "LISTEN"), ("unlisten *", "UNLISTEN"), ("notify no_one", "NOTIFY"),
    ("lock pg_class in access share mode", None),
])
def test_tags(auto, text, tag):
    if tag is None:
        with pytest.raises(psycopg.errors.NoActiveSqlTransaction):
            auto.execute(text)
    else:
        assert auto.execute(text).statusmessage == tag


def test_counts_of_rows(auto, table):
    insert = auto.execute(f"insert into {table} select n, '' from generate_series(1, 10) n")
    assert (insert.rowcount, insert.statusmessage) == (10, "INSERT 0 10")
    assert auto.execute(f"update {table} set data = 'x' where id > 4").rowcount == 6
    assert auto.execute(f"delete from {table} where id > 8").rowcount == 2
    assert auto.execute(f"select * from {table}").rowcount == 8


def test_returning(auto, table):
    rows = auto.execute(f"insert into {table} values (1, 'a'), (2, 'b') returning id, upper(data)")
    assert rows.fetchall() == [(1, "A"), (2, "B")]


def test_merge_and_upsert(auto, table):
    for data in ("first", "second"):
        auto.execute(f"insert into {table} values (1, %s) on conflict (id)"
                     " do update set data = excluded.data", [data])
    auto.execute(f"merge into {table} t using (values (1), (2)) as s(id) on s.id = t.id"
                 " when matched then update set data = 'merged'"
                 " when not matched then insert values (s.id, 'new')")
    assert auto.execute(f"select * from {table} order by id").fetchall() == [
        (1, "merged"), (2, "new")]


def test_a_thousand_small_queries(auto):
    for number in range(1000):
        assert auto.execute("select %s::int", [number]).fetchone() == (number,)


def test_a_query_of_many_results(auto):
    cursor = auto.execute("; ".join(f"select {number}" for number in range(500)))
    found = [cursor.fetchone()[0]]
    while cursor.nextset():
        found.append(cursor.fetchone()[0])
    assert found == list(range(500))


def test_every_statement_s_own_columns(auto):
    cursor = auto.execute("select 1 as a; select 2 as b, 3 as c; set timezone = 'UTC'; select")
    widths = [[column.name for column in cursor.description]]
    while cursor.nextset():
        widths.append(cursor.description and [column.name for column in cursor.description])
    assert widths[:2] == [["a"], ["b", "c"]] and len(widths) == 4


def test_executemany_without_results(conn, table):
    cursor = conn.cursor()
    cursor.executemany(f"insert into {table} values (%s, %s)",
                       [(number, f"row {number}") for number in range(500)])
    assert cursor.rowcount == 500
    conn.commit()
    assert conn.execute(f"select count(*), sum(id) from {table}").fetchone() == (500, 124750)


def test_executemany_fails_in_its_middle(conn, table):
    with pytest.raises(psycopg.errors.UniqueViolation):
        conn.cursor().executemany(f"insert into {table} values (%s, '')", [(1,), (2,), (1,), (3,)])
    conn.rollback()
    assert conn.execute(f"select count(*) from {table}").fetchone() == (0,)


def test_executemany_with_nothing(conn, table):
    conn.cursor().executemany(f"insert into {table} values (%s, %s)", [])
    assert conn.execute(f"select count(*) from {table}").fetchone() == (0,)


def test_executemany_with_changing_types(conn):
    cursor = conn.cursor()
    cursor.executemany("select pg_typeof(%s)::text", [(1,), (100_000,), (1.5,), (1,)],
                       returning=True)
    kinds = [cursor.fetchone()[0]]
    while cursor.nextset():
        kinds.append(cursor.fetchone()[0])
    assert kinds == ["smallint", "integer", "double precision", "smallint"]


def test_single_rows_from_libpq(auto):
    pgconn = auto.pgconn
    pgconn.send_query(b"select generate_series(1, 5); select 'end'")
    pgconn.set_single_row_mode()
    rows = []
    while (result := pgconn.get_result()) is not None:
        if result.status == psycopg.pq.ExecStatus.SINGLE_TUPLE:
            rows.append(result.get_value(0, 0))
    assert rows == [b"1", b"2", b"3", b"4", b"5", b"end"]


def test_composed_identifiers(auto, table):
    from psycopg import sql
    text = sql.SQL("select {} from {} where {} = {}").format(
        sql.Identifier("data"), sql.Identifier(table), sql.Identifier("id"), sql.Literal(1))
    auto.execute(f"insert into {table} values (1, 'found')")
    assert auto.execute(text).fetchone() == ("found",)


def test_the_fast_path_reads_a_large_object(conn):
    oid = conn.execute("select lo_from_bytea(0, 'abc')").fetchone()[0]
    assert conn.execute("select loread(lo_open(%s, 262144), 10)", [oid]).fetchone() == (b"abc",)
    conn.execute("select lo_unlink(%s)", [oid])
