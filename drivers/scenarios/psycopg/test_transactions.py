"""Transactions: begin, commit, rollback, savepoints, isolation, locks, and what a failed one does."""

import threading

import psycopg
import pytest
from conftest import listen
from psycopg.pq import TransactionStatus as Status


def count(one, table):
    return one.execute(f"select count(*) from {table}").fetchone()[0]


def test_the_status_follows_each_statement(conn):
    assert conn.info.transaction_status == Status.IDLE
    conn.execute("select 1")
    assert conn.info.transaction_status == Status.INTRANS
    with pytest.raises(psycopg.errors.UndefinedColumn):
        conn.execute("select nothing")
    assert conn.info.transaction_status == Status.INERROR
    conn.rollback()
    assert conn.info.transaction_status == Status.IDLE


def test_commit_shows_it_to_others_and_rollback_does_not(connect, table):
    one, other = connect(), connect(autocommit=True)
    one.execute(f"insert into {table} values (1, 'x')")
    assert count(other, table) == 0
    one.commit()
    assert count(other, table) == 1
    one.execute(f"insert into {table} values (2, 'x')")
    one.rollback()
    assert count(other, table) == 1


def test_autocommit_needs_no_commit(auto, connect, table):
    auto.execute(f"insert into {table} values (1, 'x')")
    assert auto.info.transaction_status == Status.IDLE
    assert count(connect(), table) == 1


def test_in_a_failed_transaction_everything_is_refused(conn):
    with pytest.raises(psycopg.errors.DivisionByZero):
        conn.execute("select 1 / 0")
    for _ in range(3):
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            conn.execute("select 1")
    conn.rollback()
    assert conn.execute("select 1").fetchone() == (1,)


def test_commit_of_a_failed_transaction_rolls_back(auto, table):
    auto.execute("begin")
    auto.execute(f"insert into {table} values (1, 'x')")
    with pytest.raises(psycopg.errors.DivisionByZero):
        auto.execute("select 1 / 0")
    assert auto.execute("commit").statusmessage == "ROLLBACK"
    assert count(auto, table) == 0


def test_nested_blocks_are_savepoints(conn, table):
    with conn.transaction():
        conn.execute(f"insert into {table} values (1, 'outer')")
        with pytest.raises(psycopg.errors.UniqueViolation), conn.transaction():
            conn.execute(f"insert into {table} values (2, 'inner')")
            conn.execute(f"insert into {table} values (1, 'again')")
        with conn.transaction():
            conn.execute(f"insert into {table} values (3, 'inner')")
    assert conn.execute(f"select id from {table} order by id").fetchall() == [(1,), (3,)]


def test_rollback_raised_leaves_one_block_only(conn, table):
    with conn.transaction():
        conn.execute(f"insert into {table} values (1, 'kept')")
        with conn.transaction() as inner:
            conn.execute(f"insert into {table} values (2, 'undone')")
            raise psycopg.Rollback(inner)
    assert count(conn, table) == 1


def test_force_rollback(conn, table):
    with conn.transaction(force_rollback=True):
        conn.execute(f"insert into {table} values (1, 'x')")
        assert count(conn, table) == 1
    assert count(conn, table) == 0


def test_savepoints_in_sql(conn, table):
    conn.execute("savepoint a")
    conn.execute(f"insert into {table} values (1, 'x')")
    conn.execute("savepoint b")
    with pytest.raises(psycopg.errors.UniqueViolation):
        conn.execute(f"insert into {table} values (1, 'x')")
    conn.execute("rollback to savepoint b")
    conn.execute(f"insert into {table} values (2, 'x')")
    conn.execute("release savepoint a")
    conn.commit()
    assert count(conn, table) == 2


def test_a_savepoint_that_is_not_there(conn):
    conn.execute("select 1")
    with pytest.raises(psycopg.errors.InvalidSavepointSpecification):
        conn.execute("rollback to savepoint absent")
    conn.rollback()


def test_a_savepoint_needs_a_transaction(auto):
    with pytest.raises(psycopg.errors.NoActiveSqlTransaction):
        auto.execute("savepoint lonely")


@pytest.mark.parametrize("level", list(psycopg.IsolationLevel), ids=lambda level: level.name)
def test_isolation_levels_are_set_for_each_transaction(conn, level):
    conn.isolation_level = level
    for _ in range(3):
        shown = conn.execute("show transaction_isolation").fetchone()[0]
        assert shown.replace(" ", "_").upper() == level.name
        conn.commit()


def test_read_only_transactions_refuse_writes(conn, table):
    conn.read_only = True
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        conn.execute(f"insert into {table} values (1, 'x')")
    conn.rollback()
    conn.read_only = False
    conn.execute(f"insert into {table} values (1, 'x')")
    conn.commit()


def test_deferrable(conn):
    conn.deferrable = conn.read_only = True
    conn.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
    assert conn.execute("show transaction_deferrable").fetchone() == ("on",)
    conn.rollback()


def test_repeatable_read_keeps_its_picture(connect, table):
    one, other = connect(), connect(autocommit=True)
    one.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    assert count(one, table) == 0
    other.execute(f"insert into {table} values (1, 'x')")
    assert count(one, table) == 0
    one.commit()
    assert count(one, table) == 1


def test_a_serialization_failure_reaches_the_second(connect, table):
    one, two = connect(), connect()
    one.execute(f"insert into {table} values (1, '0')")
    one.commit()
    for each in (one, two):
        each.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        each.execute(f"select data from {table}")
    one.execute(f"update {table} set data = 'one'")
    one.commit()
    with pytest.raises(psycopg.errors.SerializationFailure):
        two.execute(f"update {table} set data = 'two'")


def test_a_deadlock_hits_one_of_two(connect, table):
    one, two = connect(), connect()
    one.execute(f"insert into {table} values (1, ''), (2, '')")
    one.commit()
    one.execute(f"update {table} set data = 'one' where id = 1")
    two.execute(f"update {table} set data = 'two' where id = 2")
    failed = []

    def crosswise(each, number):
        try:
            each.execute(f"update {table} set data = data where id = {number}")
            each.commit()
        except psycopg.errors.DeadlockDetected:
            failed.append(each)
            each.rollback()

    threads = [threading.Thread(target=crosswise, args=args) for args in ((one, 2), (two, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failed) == 1


def test_nowait_and_skip_locked(connect, table):
    one, two = connect(), connect()
    one.execute(f"insert into {table} values (1, ''), (2, '')")
    one.commit()
    one.execute(f"select * from {table} where id = 1 for update")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        two.execute(f"select * from {table} for update nowait")
    two.rollback()
    assert two.execute(f"select id from {table} for update skip locked").fetchall() == [(2,)]


def test_transaction_locks_are_gone_at_the_end(connect):
    one, two = connect(), connect()
    one.execute("select pg_advisory_xact_lock(4711)")
    assert two.execute("select pg_try_advisory_xact_lock(4711)").fetchone() == (False,)
    one.commit()
    assert two.execute("select pg_try_advisory_xact_lock(4711)").fetchone() == (True,)


def test_a_session_lock_is_held_over_transactions(connect):
    one, two = connect(autocommit=True), connect(autocommit=True)
    one.execute("select pg_advisory_lock(815)")
    for _ in range(4):
        assert two.execute("select pg_try_advisory_lock(815)").fetchone() == (False,)
    assert one.execute("select pg_advisory_unlock(815)").fetchone() == (True,)


def test_a_deferred_constraint_fails_at_commit(conn, table):
    conn.execute(f"create table {table}_child (parent int references {table}"
                 " deferrable initially deferred)")
    conn.commit()
    try:
        conn.execute(f"insert into {table}_child values (99)")
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            conn.commit()
        assert conn.info.transaction_status == Status.IDLE
    finally:
        conn.execute(f"drop table {table}_child")
        conn.commit()


def test_commit_and_chain(auto):
    auto.execute("begin isolation level serializable")
    auto.execute("commit and chain")
    assert auto.info.transaction_status == Status.INTRANS
    assert auto.execute("show transaction_isolation").fetchone() == ("serializable",)
    auto.execute("rollback")
    assert auto.info.transaction_status == Status.IDLE


def test_a_procedure_that_commits_by_itself(auto, table, name):
    auto.execute(f"create procedure {name}() language plpgsql as $$ begin"
                 f" for i in 1..3 loop insert into {table} values (i, ''); commit; end loop;"
                 " end $$")
    try:
        assert auto.execute(f"call {name}()").statusmessage == "CALL"
        assert count(auto, table) == 3
    finally:
        auto.execute(f"drop procedure {name}()")


def test_begin_twice_is_a_warning(auto):
    notices = listen(auto)
    auto.execute("begin")
    auto.execute("begin")
    assert [notice[1] for notice in notices] == ["25001"]
    auto.execute("commit")
    auto.execute("commit")
    assert [notice[1] for notice in notices] == ["25001", "25P01"]


def test_vacuum_is_refused_inside_and_runs_outside(conn, table):
    with pytest.raises(psycopg.errors.ActiveSqlTransaction):
        conn.execute(f"vacuum {table}")
    conn.rollback()
    conn.autocommit = True
    assert conn.execute(f"vacuum {table}").statusmessage == "VACUUM"


def test_a_temporary_table_for_one_transaction(conn, name):
    conn.execute(f"create temp table {name} on commit drop as select 7 as n")
    assert conn.execute(f"select n from {name}").fetchone() == (7,)
    conn.commit()
    with pytest.raises(psycopg.errors.UndefinedTable):
        conn.execute(f"select n from {name}")


def test_a_temporary_table_for_the_session(auto, name):
    auto.execute(f"create temp table {name} (n int)")
    for number in range(5):
        auto.execute(f"insert into {name} values (%s)", [number])
    assert auto.execute(f"select count(*) from {name}").fetchone() == (5,)


def test_currval_needs_the_same_session(auto, name):
    auto.execute(f"create sequence {name}")
    try:
        for _ in range(4):
            value = auto.execute(f"select nextval('{name}')").fetchone()
            assert auto.execute(f"select currval('{name}')").fetchone() == value
    finally:
        auto.execute(f"drop sequence {name}")


# Two-phase commit, whose second half may come from anywhere.


def test_prepare_and_commit_by_the_driver_s_calls(conn, connect, table, name):
    conn.tpc_begin(conn.xid(7, name, "branch"))
    conn.execute(f"insert into {table} values (1, 'x')")
    conn.tpc_prepare()
    assert count(connect(), table) == 0
    conn.tpc_commit()
    assert count(connect(), table) == 1


def test_prepare_and_roll_back(conn, connect, table, name):
    conn.tpc_begin(name)
    conn.execute(f"insert into {table} values (1, 'x')")
    conn.tpc_prepare()
    conn.tpc_rollback()
    assert count(connect(), table) == 0


def test_another_connection_finishes_it(connect, table, name):
    one = connect()
    one.tpc_begin(name)
    one.execute(f"insert into {table} values (1, 'x')")
    one.tpc_prepare()
    one.close()
    other = connect()
    assert name in [str(xid.gtrid) for xid in other.tpc_recover()]
    other.rollback()
    other.tpc_commit(name)
    assert count(other, table) == 1


def test_one_phase_when_never_prepared(conn, connect, table, name):
    conn.tpc_begin(name)
    conn.execute(f"insert into {table} values (1, 'x')")
    conn.tpc_commit()
    assert count(connect(), table) == 1


def test_committing_what_was_never_prepared(conn):
    with pytest.raises(psycopg.errors.UndefinedObject):
        conn.tpc_commit("nobody prepared this")
