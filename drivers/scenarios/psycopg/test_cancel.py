"""Cancelling, running out of time, and leaving in the middle of something."""

import socket
import struct
import threading
import time

import psycopg
import pytest
from conftest import is_running, until


def sleeping(connect, name, statement=None):
    """A connection that works on a long statement, which PostgreSQL has begun."""
    one, caught = connect(autocommit=True), []

    def run():
        try:
            one.execute(statement or f"select pg_sleep(60), '{name}'")
        except psycopg.Error as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    watcher = connect(autocommit=True)
    until(lambda: is_running(watcher, name))
    return one, thread, caught


def test_a_running_query_is_cancelled_and_the_connection_lives(connect, name):
    one, thread, caught = sleeping(connect, name)
    one.cancel()
    thread.join()
    assert [error.sqlstate for error in caught] == ["57014"]
    assert one.execute("select 'alive'").fetchone() == ("alive",)


def test_cancel_safe_uses_the_newer_way(connect, name):
    one, thread, caught = sleeping(connect, name)
    one.cancel_safe(timeout=20)
    thread.join()
    assert [error.sqlstate for error in caught] == ["57014"]
    assert one.execute("select 'alive'").fetchone() == ("alive",)


def test_a_cancel_key_object_taken_before(connect, name):
    one = connect(autocommit=True)
    key = one.pgconn.get_cancel()
    timer = threading.Thread(target=lambda: until(
        lambda: is_running(watcher, name)) and key.cancel())
    watcher = connect(autocommit=True)
    timer.start()
    with pytest.raises(psycopg.errors.QueryCanceled):
        one.execute(f"select pg_sleep(60), '{name}'")
    timer.join()


def test_a_cancel_when_nothing_runs_harms_nobody(connect):
    one = connect(autocommit=True)
    others = [connect(autocommit=True) for _ in range(3)]
    for number in range(10):
        assert one.execute("select 1").fetchone() == (1,)
        one.cancel()
        for other in others:
            assert other.execute("select %s::int", [number]).fetchone() == (number,)


def test_a_late_cancel_never_hits_another_client(connect, name):
    # `one` is idle each time it cancels; what runs meanwhile is somebody else's.
    one = connect(autocommit=True)
    busy, failed = connect(autocommit=True), []
    stop = threading.Event()

    def work():
        while not stop.is_set():
            try:
                busy.execute("select pg_sleep(0.01)")
            except psycopg.Error as error:
                failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(30):
        one.execute("select 1")
        one.cancel()
    stop.set()
    thread.join()
    assert not failed


def test_of_two_running_queries_only_the_meant_one_ends(connect, name):
    one, thread, caught = sleeping(connect, name + "one")
    two, other_thread, other_caught = sleeping(connect, name + "two")
    one.cancel()
    thread.join()
    assert [error.sqlstate for error in caught] == ["57014"]
    assert other_thread.is_alive() and not other_caught
    two.cancel()
    other_thread.join()
    assert [error.sqlstate for error in other_caught] == ["57014"]


def test_a_cancel_in_a_transaction_fails_the_transaction(conn, connect, name):
    watcher = connect(autocommit=True)
    conn.execute("select 1")
    timer = threading.Thread(target=lambda: until(
        lambda: is_running(watcher, name)) and conn.cancel())
    timer.start()
    with pytest.raises(psycopg.errors.QueryCanceled):
        conn.execute(f"select pg_sleep(60), '{name}'")
    timer.join()
    assert conn.info.transaction_status == psycopg.pq.TransactionStatus.INERROR
    conn.rollback()
    assert conn.execute("select 1").fetchone() == (1,)


def test_a_cancel_within_a_pipeline(connect, name):
    one, watcher = connect(autocommit=True), connect(autocommit=True)
    timer = threading.Thread(target=lambda: until(
        lambda: is_running(watcher, name)) and one.cancel())
    timer.start()
    with pytest.raises(psycopg.errors.QueryCanceled):
        with one.pipeline():
            first = one.execute("select 'first'")
            one.execute(f"select pg_sleep(60), '{name}'")
            one.execute("select 'never'")
    timer.join()
    assert first.fetchone() == ("first",)
    assert one.execute("select 'after'").fetchone() == ("after",)


def test_waiting_for_a_lock_is_cancelled(connect, table):
    holder = connect()
    holder.execute(f"lock {table}")
    one, thread, caught = sleeping(connect, f"update {table}", f"update {table} set id = id")
    one.cancel()
    thread.join()
    assert [error.sqlstate for error in caught] == ["57014"]


def test_cancels_from_many_sides_at_once(connect, name):
    one, thread, caught = sleeping(connect, name)
    storm = [threading.Thread(target=one.cancel) for _ in range(20)]
    for each in storm:
        each.start()
    for each in storm:
        each.join()
    thread.join()
    assert [error.sqlstate for error in caught] == ["57014"]
    other = connect(autocommit=True)
    for number in range(20):
        assert other.execute("select %s::int", [number]).fetchone() == (number,)


def test_a_wrong_key_cancels_nothing(connect, name):
    one, thread, caught = sleeping(connect, name)
    with socket.create_connection((one.info.host, one.info.port)) as wire:
        wire.sendall(struct.pack("!iiii", 16, 80877102, one.info.backend_pid, 12345))
        assert wire.recv(1) == b""
    assert thread.is_alive() and not caught
    one.cancel()
    thread.join()


def test_the_query_of_a_client_that_vanished_comes_to_an_end(connect, name):
    one, watcher = connect(autocommit=True), connect(autocommit=True)
    one.pgconn.send_query(f"select pg_sleep(2), '{name}'".encode())
    one.pgconn.flush()
    until(lambda: is_running(watcher, name))
    one.pgconn.finish()
    until(lambda: not is_running(watcher, name))


def test_a_client_that_vanished_in_a_transaction_leaves_nothing(connect, table):
    one, watcher = connect(), connect(autocommit=True)
    one.execute(f"insert into {table} values (1, 'undone')")
    one.pgconn.finish()
    assert watcher.execute(f"insert into {table} values (1, 'kept') returning data").fetchone() \
        == ("kept",)


def test_a_client_that_vanished_with_rows_unread(connect):
    for _ in range(5):
        one = connect(autocommit=True)
        one.pgconn.send_query(b"select repeat('x', 1000) from generate_series(1, 100000)")
        one.pgconn.flush()
        one.pgconn.finish()
    other = connect(autocommit=True)
    assert other.execute("select 'mine'").fetchone() == ("mine",)


def test_a_client_that_vanished_in_a_pipeline(connect, table):
    one = connect(autocommit=True)
    one.pgconn.enter_pipeline_mode()
    for number in range(50):
        one.pgconn.send_query_params(f"insert into {table} values ({number}, 'x')".encode(), None)
    one.pgconn.send_flush_request()
    one.pgconn.flush()
    one.pgconn.finish()
    # Without its Sync nothing of it is committed.
    other = connect()
    # Granted only when that backend has let go of the table.
    other.execute(f"lock {table}")
    assert other.execute(f"select count(*) from {table}").fetchone() == (0,)


def test_connect_timeout_on_a_port_that_says_nothing():
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        begin = time.monotonic()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(host="127.0.0.1", port=mute.getsockname()[1], connect_timeout=2)
        assert time.monotonic() - begin < 30
