"""Errors: their SQLSTATE and every field of theirs, in simple and extended queries, and notices."""

import select

import psycopg
import pytest
from conftest import listen, until

ERRORS = [
    ("selekt 1", "42601", 1),
    ("select 1 +", "42601", 11),
    ("select 1 where (1 = 1", "42601", 22),
    ("select nothing", "42703", 8),
    ("select 'Grüße', nothing", "42703", 17),
    ("select * from nowhere", "42P01", 15),
    ("select no_function(1)", "42883", 8),
    ("select 'x'::int", "22P02", 8),
    ("select $1", "42P02", 8),
    ("select 1 / 0", "22012", None),
    ("select 2147483647 + 1", "22003", None),
    ("select repeat('x', 2000000000)", "54000", None),
    ("select to_date('x', 'YYYY')", "22007", None),
    ("select sqrt(-1)", "2201F", None),
    ("create table pg_catalog.x (a int)", "42501", None),
    ("drop table nowhere", "42P01", None),
    ("copy nowhere to '/'", "42P01", None),
    ("set no_such_setting = 1", "42704", None),
    ("set work_mem = 'much'", "22023", None),
]


@pytest.mark.parametrize("text, state, position", ERRORS, ids=[text[:30] for text, *_ in ERRORS])
def test_state_and_position(auto, text, state, position):
    diagnostics = psycopg.pq.DiagnosticField
    results = [auto.pgconn.exec_(text.encode())]
    if "$1" not in text:
        results.append(auto.pgconn.exec_params(text.encode(), None))
    for result in results:
        assert result.status == psycopg.pq.ExecStatus.FATAL_ERROR
        assert result.error_field(diagnostics.SQLSTATE).decode() == state
        if position is not None:
            assert result.error_field(diagnostics.STATEMENT_POSITION) == b"%d" % position
    assert auto.execute("select 'alive'").fetchone() == ("alive",)


def test_a_violation_names_schema_table_column_and_constraint(auto, table):
    auto.execute(f"alter table {table} add constraint {table}_c check (id < 10),"
                 " alter data set not null")
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        auto.execute(f"insert into {table} values (11, 'x')")
    told = caught.value.diag
    assert (told.schema_name, told.table_name, told.constraint_name) == (
        "public", table, f"{table}_c")
    with pytest.raises(psycopg.errors.NotNullViolation) as caught:
        auto.execute(f"insert into {table} values (1, null)")
    assert caught.value.diag.column_name == "data"
    assert "null" in caught.value.diag.message_detail


def test_every_field_a_function_can_set(auto):
    with pytest.raises(psycopg.DatabaseError) as caught:
        auto.execute("do $$ begin raise exception using message = 'said', detail = 'more',"
                     " hint = 'try', errcode = 'XX999', column = 'c', constraint = 'k',"
                     " datatype = 'd', table = 't', schema = 's'; end $$")
    told = caught.value.diag
    assert (told.severity, told.severity_nonlocalized, told.sqlstate) == ("ERROR", "ERROR", "XX999")
    assert (told.message_primary, told.message_detail, told.message_hint) == ("said", "more", "try")
    assert (told.column_name, told.constraint_name, told.datatype_name) == ("c", "k", "d")
    assert (told.table_name, told.schema_name) == ("t", "s")
    assert "PL/pgSQL" in told.context and told.source_file == "pl_exec.c"


def test_an_error_within_a_function_has_inner_query_and_position(auto):
    with pytest.raises(psycopg.errors.UndefinedTable) as caught:
        auto.execute("do $$ begin perform * from missing_inside; end $$")
    assert "missing_inside" in caught.value.diag.internal_query
    assert int(caught.value.diag.internal_position) > 0


def test_a_hint_on_a_likely_name(auto, table):
    with pytest.raises(psycopg.errors.UndefinedColumn) as caught:
        auto.execute(f"select dat from {table}")
    assert "data" in caught.value.diag.message_hint


def test_privileges_are_those_of_the_user(connect, table):
    one = connect(user="alice", autocommit=True)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        one.execute(f"select * from {table}")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        one.execute("select pg_read_file('postgresql.conf')")
    assert one.execute("select current_user").fetchone() == ("alice",)


def test_a_hundred_errors_in_a_row(auto):
    for number in range(100):
        with pytest.raises(psycopg.errors.InvalidTextRepresentation, match=f"no {number} number"):
            auto.execute("select %s::text::int", [f"no {number} number"])
        assert auto.execute("select %s::int", [number]).fetchone() == (number,)


def test_a_null_byte_never_leaves_the_driver(auto):
    with pytest.raises(psycopg.DataError):
        auto.execute("select %s::text", ["a\0b"])
    assert auto.execute("select 1").fetchone() == (1,)


def test_an_error_after_rows(auto):
    result = auto.pgconn.exec_(b"select 1 / (3 - n) from generate_series(1, 5) n")
    assert result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"22012"
    assert auto.execute("select 1").fetchone() == (1,)


def test_a_backend_that_is_terminated_is_told_to_its_client(connect):
    one, other = connect(autocommit=True), connect(autocommit=True)
    with pytest.raises(psycopg.OperationalError):
        one.execute("select pg_terminate_backend(pg_backend_pid()), pg_sleep(10)")
    assert one.closed
    assert other.execute("select 'alive'").fetchone() == ("alive",)


def test_statement_timeout_within_a_transaction(conn):
    conn.execute("set local statement_timeout = 50")
    with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
        conn.execute("select pg_sleep(20)")
    conn.rollback()
    assert conn.execute("show statement_timeout").fetchone() == ("0",)


def test_lock_timeout_within_a_transaction(connect, table):
    one, two = connect(), connect()
    one.execute(f"lock {table}")
    two.execute("set local lock_timeout = 50")
    with pytest.raises(psycopg.errors.LockNotAvailable, match="lock timeout"):
        two.execute(f"select * from {table}")


def test_idle_in_transaction_timeout_ends_the_connection(conn):
    conn.execute("set local idle_in_transaction_session_timeout = 50")
    # Its end comes by itself; the driver notices it when it next asks.
    until(lambda: select.select([conn.fileno()], [], [], 0.1)[0])
    with pytest.raises(psycopg.Error):
        conn.execute("select 1")
    assert conn.closed


# Notices go to the client whose statement caused them.


@pytest.mark.parametrize("level", ["log", "info", "notice", "warning"])
def test_a_notice_of_this_level(conn, level):
    notices = listen(conn)
    conn.execute("set local client_min_messages = debug1")
    conn.execute(f"do $$ begin raise {level} 'hear %', 42; end $$")
    assert [notice[0] for notice in notices if notice[2] == "hear 42"] == [level.upper()]


def test_notices_with_detail_and_hint_in_order(auto):
    notices = listen(auto)
    auto.execute("do $$ begin for i in 1..50 loop raise notice 'n%', i using detail = 'd' || i,"
                 " hint = 'h' || i, errcode = '01ABC'; end loop; end $$")
    assert notices == [("NOTICE", "01ABC", f"n{i}", f"d{i}", f"h{i}") for i in range(1, 51)]


def test_notices_reach_only_their_asker(connect):
    many = [connect(autocommit=True) for _ in range(6)]
    heard = [listen(one) for one in many]
    for turn in range(5):
        for number, one in enumerate(many):
            one.execute(f"do $$ begin raise notice 'turn {turn} of {number}'; end $$")
    assert [[notice[2] for notice in mine] for mine in heard] == [
        [f"turn {turn} of {number}" for turn in range(5)] for number in range(len(many))]


def test_notices_between_rows(auto, name):
    notices = listen(auto)
    auto.execute(f"create function {name}(int) returns int language plpgsql as"
                 " $$ begin raise notice 'at %', $1; return $1 * 2; end $$")
    try:
        rows = auto.execute(f"select {name}(n) from generate_series(1, 20) n").fetchall()
    finally:
        auto.execute(f"drop function {name}(int)")
    assert rows == [(n * 2,) for n in range(1, 21)]
    assert [notice[2] for notice in notices] == [f"at {n}" for n in range(1, 21)]
