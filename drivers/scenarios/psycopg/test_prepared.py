"""Statements prepared by the driver after a few uses, by name, without a name, and in SQL."""

import psycopg
import pytest


def names(one):
    """Returns the named statements that the driver has prepared, by its own records."""
    return one._prepared._names


def test_a_statement_is_prepared_at_its_sixth_use(auto):
    for number in range(5):
        auto.execute("select %s::int + 100", [number])
    assert not names(auto)
    assert auto.execute("select %s::int + 100", [5]).fetchone() == (105,)
    assert len(names(auto)) == 1
    assert auto.execute("select %s::int + 100", [6]).fetchone() == (106,)


def test_prepare_at_once_when_asked(auto):
    for number in range(10):
        row = auto.execute("select %s::int * 2", [number], prepare=True).fetchone()
        assert row == (number * 2,)
    assert len(names(auto)) == 1


def test_never_when_forbidden(auto):
    for number in range(20):
        assert auto.execute("select %s::int", [number], prepare=False).fetchone() == (number,)
    assert not names(auto)


def test_a_threshold_of_none_switches_it_off(connect):
    one = connect(autocommit=True, prepare_threshold=None)
    for number in range(20):
        assert one.execute("select %s::int", [number]).fetchone() == (number,)
    assert not names(one)


def test_a_threshold_of_zero_prepares_everything(connect):
    one = connect(autocommit=True, prepare_threshold=0)
    for number in range(30):
        assert one.execute(f"select {number}").fetchone() == (number,)
    assert len(names(one)) == 30


def test_more_statements_than_the_driver_keeps(connect):
    one = connect(autocommit=True, prepare_threshold=0)
    one.prepared_max = 3
    for turn in range(3):
        for number in range(8):
            row = one.execute(f"select {number}, %s::int", [turn]).fetchone()
            assert row == (number, turn)
    assert len(names(one)) == 3


def test_parameter_types_make_another_statement(connect):
    one = connect(autocommit=True, prepare_threshold=0)
    for value, kind in ((1, "smallint"), (100_000, "integer"), (1 << 40, "bigint"),
                        (1, "smallint"), (1.5, "double precision"), (100_000, "integer")):
        row = one.execute("select pg_typeof(%s)::text, %s::text", [value, value]).fetchone()
        assert row == (kind, str(value))


def test_the_same_statement_in_text_and_binary(connect):
    one = connect(autocommit=True, prepare_threshold=0)
    for turn in range(6):
        row = one.execute("select %s::int8, now() > '2000-01-01'", [turn],
                          binary=turn % 2 == 0).fetchone()
        assert row == (turn, True)


def test_prepared_survives_a_rolled_back_transaction(conn):
    conn.execute("select %s::int", [1], prepare=True)
    conn.rollback()
    assert conn.execute("select %s::int", [2], prepare=True).fetchone() == (2,)
    with pytest.raises(psycopg.errors.DivisionByZero):
        conn.execute("select 1 / %s::int", [0], prepare=True)
    conn.rollback()
    assert conn.execute("select 1 / %s::int", [1], prepare=True).fetchone() == (1,)
    assert conn.execute("select %s::int", [3], prepare=True).fetchone() == (3,)


def test_many_transactions_use_one_statement(conn, table):
    for number in range(50):
        conn.execute(f"insert into {table} values (%s, %s)", [number, f"n{number}"], prepare=True)
        conn.commit()
    assert conn.execute(f"select count(*), max(data) from {table}").fetchone() == (50, "n9")


def test_two_connections_give_one_name_to_different_texts(connect):
    one, other = (connect(autocommit=True, prepare_threshold=0) for _ in range(2))
    for number in range(20):
        assert one.execute("select %s::int + 1", [number]).fetchone() == (number + 1,)
        assert other.execute("select %s::text || '!'", [str(number)]).fetchone() == (f"{number}!",)
    # The driver counts its names, so both texts have the same one.
    assert set(names(one).values()) & set(names(other).values())


def test_a_name_of_our_own_over_several_connections(connect):
    many = [connect(autocommit=True).pgconn for _ in range(8)]
    for number, pgconn in enumerate(many):
        assert pgconn.prepare(b"mine", b"select %d + $1::int" % (number * 1000)).status == (
            psycopg.pq.ExecStatus.COMMAND_OK)
    for turn in range(10):
        for number, pgconn in enumerate(many):
            result = pgconn.exec_prepared(b"mine", [b"%d" % turn])
            assert result.get_value(0, 0) == b"%d" % (number * 1000 + turn)


def test_a_name_is_taken(auto):
    pgconn = auto.pgconn
    assert pgconn.prepare(b"twice", b"select 1").status == psycopg.pq.ExecStatus.COMMAND_OK
    result = pgconn.prepare(b"twice", b"select 2")
    assert result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"42P05"
    assert pgconn.exec_prepared(b"twice", []).get_value(0, 0) == b"1"


def test_a_name_nobody_gave(auto):
    result = auto.pgconn.exec_prepared(b"never", [])
    assert result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"26000"
    result = auto.pgconn.describe_prepared(b"never")
    assert result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"26000"


def test_close_frees_the_name(auto):
    pgconn = auto.pgconn
    for text, answer in ((b"select 'first'", b"first"), (b"select 'second'", b"second")):
        assert pgconn.prepare(b"reused", text).status == psycopg.pq.ExecStatus.COMMAND_OK
        assert pgconn.exec_prepared(b"reused", []).get_value(0, 0) == answer
        assert pgconn.close_prepared(b"reused").status == psycopg.pq.ExecStatus.COMMAND_OK
    assert pgconn.exec_prepared(b"reused", []).status == psycopg.pq.ExecStatus.FATAL_ERROR


def test_closing_what_is_not_there_is_no_error(auto):
    assert auto.pgconn.close_prepared(b"absent").status == psycopg.pq.ExecStatus.COMMAND_OK


def test_describe_tells_parameters_and_columns(auto):
    auto.pgconn.prepare(b"told", b"select $1::int as a, $2::text as b, $3::float8[] as c")
    for _ in range(3):
        told = auto.pgconn.describe_prepared(b"told")
        assert [told.param_type(at) for at in range(told.nparams)] == [23, 25, 1022]
        assert [told.fname(at) for at in range(told.nfields)] == [b"a", b"b", b"c"]


def test_describe_of_a_statement_without_rows(auto, table):
    auto.pgconn.prepare(b"ins", f"insert into {table} values ($1, $2)".encode())
    told = auto.pgconn.describe_prepared(b"ins")
    assert (told.nparams, told.nfields) == (2, 0)


def test_the_unnamed_statement_is_replaced_each_time(auto):
    pgconn = auto.pgconn
    for number in range(5):
        pgconn.prepare(b"", b"select %d" % number)
        assert pgconn.exec_prepared(b"", []).get_value(0, 0) == b"%d" % number
        assert pgconn.exec_prepared(b"", []).get_value(0, 0) == b"%d" % number


def test_the_unnamed_statement_lives_beside_named_ones(auto):
    pgconn = auto.pgconn
    pgconn.prepare(b"named", b"select 'named'")
    pgconn.prepare(b"", b"select 'unnamed'")
    assert pgconn.exec_prepared(b"named", []).get_value(0, 0) == b"named"
    assert pgconn.exec_prepared(b"", []).get_value(0, 0) == b"unnamed"


def test_a_simple_query_ends_the_unnamed_statement(auto):
    auto.pgconn.prepare(b"", b"select 1")
    auto.pgconn.exec_(b"select 2")
    result = auto.pgconn.exec_prepared(b"", [])
    assert result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"26000"


def test_a_parse_that_fails_leaves_the_name_free(auto):
    result = auto.pgconn.prepare(b"later", b"select from where")
    assert result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"42601"
    assert auto.pgconn.prepare(b"later", b"select 'good'").status == (
        psycopg.pq.ExecStatus.COMMAND_OK)
    assert auto.pgconn.exec_prepared(b"later", []).get_value(0, 0) == b"good"


def test_a_name_of_63_bytes_and_a_strange_one(auto):
    for name in (b"n" * 63, 'Grün "weir_1" \';'.encode(), b"weir_1", b"a b"):
        assert auto.pgconn.prepare(name, b"select '" + name.replace(b"'", b"''") + b"'").status == (
            psycopg.pq.ExecStatus.COMMAND_OK)
        assert auto.pgconn.exec_prepared(name, []).get_value(0, 0) == name


def test_the_number_of_parameters_must_fit(auto):
    auto.pgconn.prepare(b"two", b"select $1::int + $2::int")
    result = auto.pgconn.exec_prepared(b"two", [b"1"])
    assert result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"08P01"
    assert auto.pgconn.exec_prepared(b"two", [b"1", b"2"]).get_value(0, 0) == b"3"


def test_deallocate_all_makes_the_names_free(auto):
    auto.pgconn.prepare(b"gone", b"select 1")
    auto.execute("deallocate all")
    result = auto.pgconn.exec_prepared(b"gone", [])
    assert result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"26000"
    assert auto.pgconn.prepare(b"gone", b"select 'back'").status == psycopg.pq.ExecStatus.COMMAND_OK
    assert auto.pgconn.exec_prepared(b"gone", []).get_value(0, 0) == b"back"


def test_deallocate_all_does_not_touch_others(connect):
    one, other = connect(autocommit=True), connect(autocommit=True)
    other.pgconn.prepare(b"kept", b"select 'kept'")
    for _ in range(6):
        one.pgconn.prepare(b"mine", b"select 1")
        one.execute("deallocate all")
        assert other.pgconn.exec_prepared(b"kept", []).get_value(0, 0) == b"kept"


def test_discard_all_makes_the_names_free(connect):
    one, other = connect(autocommit=True), connect(autocommit=True)
    other.pgconn.prepare(b"kept", b"select 'kept'")
    one.pgconn.prepare(b"gone", b"select 1")
    one.execute("discard all")
    result = one.pgconn.exec_prepared(b"gone", [])
    assert result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"26000"
    for _ in range(6):
        assert other.pgconn.exec_prepared(b"kept", []).get_value(0, 0) == b"kept"


def test_the_driver_forgets_its_names_after_deallocate_all(connect):
    one = connect(autocommit=True, prepare_threshold=0)
    for _ in range(4):
        assert one.execute("select %s::int", [7]).fetchone() == (7,)
        one.execute("deallocate all")


def test_prepare_and_execute_in_sql(auto):
    auto.execute("prepare by_sql (int) as select $1 * 3")
    for number in range(6):
        assert auto.execute(f"execute by_sql({number})").fetchone() == (number * 3,)
    auto.execute("deallocate by_sql")
    with pytest.raises(psycopg.errors.InvalidSqlStatementName):
        auto.execute("execute by_sql(1)")


def test_prepare_and_execute_in_sql_within_a_transaction(conn):
    conn.execute("prepare in_tx (text) as select upper($1)")
    assert conn.execute("execute in_tx('abc')").fetchone() == ("ABC",)
    conn.execute("deallocate in_tx")
    conn.commit()


def test_a_statement_sees_new_rows_each_time(connect, table):
    reader, writer = connect(autocommit=True), connect(autocommit=True)
    for number in range(12):
        writer.execute(f"insert into {table} values (%s, 'x')", [number])
        row = reader.execute(f"select count(*) from {table} where id >= %s", [0],
                             prepare=True).fetchone()
        assert row == (number + 1,)


# PostgreSQL's errors if a table has changed under a prepared statement.


def test_a_new_column_under_a_prepared_star(conn, table):
    conn.execute(f"insert into {table} values (1, 'one')")
    conn.pgconn.prepare(b"star", f"select * from {table}".encode())
    assert conn.pgconn.exec_prepared(b"star", []).nfields == 2
    conn.execute(f"alter table {table} add column more int default 5")
    result = conn.pgconn.exec_prepared(b"star", [])
    assert result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"0A000"
    assert b"cached plan" in result.error_field(psycopg.pq.DiagnosticField.MESSAGE_PRIMARY)


def test_parsing_it_again_heals_a_changed_result(auto, table):
    text = f"select * from {table}".encode()
    auto.execute(f"insert into {table} values (1, 'one')")
    auto.pgconn.prepare(b"before", text)
    auto.pgconn.exec_prepared(b"before", [])
    auto.execute(f"alter table {table} add column more int default 5")
    assert auto.pgconn.prepare(b"after", text).status == psycopg.pq.ExecStatus.COMMAND_OK
    result = auto.pgconn.exec_prepared(b"after", [])
    assert [result.get_value(0, at) for at in range(result.nfields)] == [b"1", b"one", b"5"]


def test_another_client_s_statement_is_no_burden_after_a_change(connect, table):
    text = f"select * from {table}".encode()
    old = [connect(autocommit=True) for _ in range(6)]
    old[0].execute(f"insert into {table} values (1, 'one')")
    for one in old:
        one.pgconn.prepare(b"s", text)
        assert one.pgconn.exec_prepared(b"s", []).nfields == 2
    old[0].execute(f"alter table {table} add column more int default 5")
    for _ in range(6):
        new = connect(autocommit=True)
        assert new.pgconn.prepare(b"s", text).status == psycopg.pq.ExecStatus.COMMAND_OK
        result = new.pgconn.exec_prepared(b"s", [])
        assert result.error_message == b""
        assert result.nfields == 3


def test_a_changed_type_between_two_uses(conn, table):
    conn.pgconn.prepare(b"tx", f"select id from {table}".encode())
    conn.execute(f"insert into {table} values (1, 'one')")
    assert conn.pgconn.exec_prepared(b"tx", []).ftype(0) == 23
    conn.execute("savepoint before")
    conn.execute(f"alter table {table} alter column id type bigint")
    result = conn.pgconn.exec_prepared(b"tx", [])
    assert result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"0A000"
    conn.execute("rollback to savepoint before")
    assert conn.pgconn.exec_prepared(b"tx", []).get_value(0, 0) == b"1"


def test_a_dropped_column_that_is_named(auto, table):
    auto.pgconn.prepare(b"named", f"select data from {table}".encode())
    assert auto.pgconn.exec_prepared(b"named", []).nfields == 1
    auto.execute(f"alter table {table} drop column data")
    result = auto.pgconn.exec_prepared(b"named", [])
    assert result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"42703"


def test_a_table_dropped_and_made_anew(auto, table):
    auto.pgconn.prepare(b"anew", f"select count(*) from {table}".encode())
    assert auto.pgconn.exec_prepared(b"anew", []).get_value(0, 0) == b"0"
    auto.execute(f"drop table {table}")
    result = auto.pgconn.exec_prepared(b"anew", [])
    assert result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"42P01"
    auto.execute(f"create table {table} as select 1 as id")
    assert auto.pgconn.exec_prepared(b"anew", []).get_value(0, 0) == b"1"


def test_an_index_changes_nothing(auto, table):
    auto.pgconn.prepare(b"look", f"select data from {table} where id = $1".encode())
    auto.execute(f"insert into {table} select n, n::text from generate_series(1, 500) n")
    auto.execute(f"create index on {table} (data)")
    auto.execute(f"analyze {table}")
    for number in range(1, 20):
        assert auto.pgconn.exec_prepared(b"look", [b"%d" % number]).get_value(0, 0) == (
            b"%d" % number)
