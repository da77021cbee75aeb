"""Weir's orders to a backend: to cancel, to end its client, to tell what that does."""

import time
from contextlib import contextmanager

from direct.lobby import SYNC, Lobby, execute, is_running, message, ok, parse, query, wait_for
from pooler import (
    ANSWER, ASK, AT_REST, CANCEL, END, IDLES, PARTIAL, PINNED_IDLE, QUERIES, QUERY_US, RUNS,
    SERVING, TRANSACTION_US,
)


def cancel(pooler, backend, transaction):
    pooler.order(backend, CANCEL, transaction)


@contextmanager
def running(run, client):
    """The client's transaction runs until the end of the block. It must succeed."""
    holder, text = run.session(), "SELECT pg_advisory_xact_lock(7)"
    ok(holder.query("SELECT pg_advisory_lock(7)"))
    client.socket.sendall(query(text))
    wait_for(lambda: is_running(run, text))
    yield
    ok(holder.query("SELECT pg_advisory_unlock(7)"))
    ok(client.take(client.until_ready()))


def direct_only_the_transaction_that_is_meant_is_cancelled(run):
    with Lobby(run) as pooler:
        one, two = pooler.client(), pooler.client()
        ok(one.query("SELECT 1"))
        late = pooler.transaction(0)
        with running(run, two):
            cancel(pooler, 0, late)
        one.socket.sendall(query("SELECT pg_sleep(60)"))
        wait_for(lambda: is_running(run, "SELECT pg_sleep(60)"))
        cancel(pooler, 0, pooler.transaction(0))
        assert [code for code, _ in one.take(one.until_ready()).errors] == ["57014"]
        cancel(pooler, 0, pooler.transaction(0))
        assert ok(two.query("SELECT 5")).value() == "5"


def direct_a_second_signal_cancels_no_other_transaction(run):
    with Lobby(run) as pooler:
        one, two = pooler.client(), pooler.client()
        one.socket.sendall(query("SELECT pg_sleep(61)"))
        wait_for(lambda: is_running(run, "SELECT pg_sleep(61)"))
        cancel(pooler, 0, pooler.transaction(0))
        assert [code for code, _ in one.take(one.until_ready()).errors] == ["57014"]
        # The second of two orders: its number went with the first signal.
        with running(run, two):
            pooler.interrupt(0)
        # Other senders need no number.
        two.socket.sendall(query("SELECT pg_sleep(62)"))
        wait_for(lambda: is_running(run, "SELECT pg_sleep(62)"))
        ok(run.session().query(f"SELECT pg_cancel_backend({pooler.backends[0].process})"))
        assert [code for code, _ in two.take(two.until_ready()).errors] == ["57014"]
        ok(two.query("SET statement_timeout = '50ms'"))
        assert [code for code, _ in two.query("SELECT pg_sleep(63)").errors] == ["57014"]


def answer(pooler, backend=0):
    """What the client does, and for how many microseconds."""
    pooler.order(backend, ASK, pooler.transaction(backend))
    wait_for(lambda: pooler.word(backend, ANSWER))
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    told = pooler.word(backend, ANSWER)
    return told & 3, now - (told >> 2)


def direct_an_answer_tells_what_the_client_does(run):
    with Lobby(run) as pooler:
        locker, client = run.session(), pooler.client()
        ok(locker.query("DROP TABLE IF EXISTS held; CREATE TABLE held (a int)"))
        ok(client.query("BEGIN"))
        time.sleep(0.3)
        doing, age = answer(pooler)
        assert doing == IDLES and 250_000 < age < 5_000_000, (doing, age)
        # It waits for a lock while the text is analyzed, which no hook sees.
        ok(locker.query("BEGIN; LOCK TABLE held"))
        client.socket.sendall(query("SELECT a FROM held"))
        wait_for(lambda: is_running(run, "SELECT a FROM held"))
        time.sleep(0.3)
        doing, age = answer(pooler)
        assert doing == RUNS and 250_000 < age < 5_000_000, (doing, age)
        ok(locker.query("COMMIT"))
        ok(client.take(client.until_ready()))
        ok(client.query("SELECT pg_advisory_lock(7); COMMIT"))
        wait_for(lambda: pooler.activity(0) == PINNED_IDLE)
        assert answer(pooler)[0] == AT_REST
        ok(client.query("SELECT pg_advisory_unlock(7); DROP TABLE held"))


def direct_a_client_that_has_begun_a_long_message_counts_as_idle_in_a_transaction(run):
    long = query("SELECT 2 -- " + "x" * 100_000)
    with Lobby(run) as pooler:
        client = pooler.client()
        client.socket.sendall(long[:-1])
        wait_for(lambda: pooler.activity(0) == SERVING)
        time.sleep(0.3)
        doing, age = answer(pooler)
        assert doing == IDLES and 250_000 < age < 5_000_000, (doing, age)
        client.socket.sendall(long[-1:])
        assert ok(client.take(client.until_ready())).value() == "2"


def direct_a_client_that_has_begun_a_message_keeps_no_backend(run):
    with Lobby(run) as pooler:
        client = pooler.client()
        client.socket.sendall(query("SELECT 1") + query("SELECT 2")[:1])
        ok(client.take(client.until_ready()))
        wait_for(lambda: (0, PARTIAL) in pooler.returned)
        client.socket.sendall(query("SELECT 2")[1:])
        assert ok(client.take(client.until_ready())).value() == "2"


def direct_an_order_to_end_brings_weirs_words(run):
    words = b"SFATAL\0VFATAL\0C57014\0Mquery timeout\0\0"
    with Lobby(run, backends=2, deaths=1) as pooler:
        # It has the first place when it is served.
        other = pooler.client()
        ok(other.query("SET work_mem = '5MB'"))
        client = pooler.client()
        pid = ok(client.query("BEGIN; SELECT pg_backend_pid()")).value()
        number = next(at for at, one in pooler.backends.items() if one.process == int(pid))
        pooler.leave_words(1, words)
        late = pooler.transaction(number)
        ok(client.query("COMMIT; SELECT pg_advisory_lock(6)"))
        # The answer arrives before the transaction is counted as over.
        wait_for(lambda: pooler.transaction(number) != late)
        pooler.order(number, END, late)
        ok(client.query("SELECT 1"))
        client.socket.sendall(query("SELECT pg_sleep(64)"))
        wait_for(lambda: is_running(run, "SELECT pg_sleep(64)"))
        pooler.order(number, END, pooler.transaction(number))
        try:
            client.until_ready()
            raise AssertionError("the session goes on")
        except ConnectionError as error:
            assert str(error) == "('57014', 'query timeout')", error
        assert client.socket.recv(10) == b""
        wait_for(lambda: pooler.alive() == 1)
        assert ok(other.query("SHOW work_mem")).value() == "5MB"


def direct_queries_and_their_times_are_counted(run):
    with Lobby(run) as pooler:
        client = pooler.client()
        ok(client.query("SELECT 1"))
        wait_for(lambda: pooler.word(0, QUERY_US) > 0)
        before = [pooler.word(0, at) for at in (QUERIES, QUERY_US, TRANSACTION_US)]
        ok(client.query("BEGIN"))
        ok(client.query("SELECT pg_sleep(0.1)"))
        time.sleep(0.3)
        ok(client.query("COMMIT"))
        wait_for(lambda: pooler.word(0, QUERY_US) > before[1])
        after = [pooler.word(0, at) for at in (QUERIES, QUERY_US, TRANSACTION_US)]
        queries, busy, all_of_it = (new - old for new, old in zip(after, before))
        assert queries == 3, queries
        assert 100_000 <= busy < all_of_it - 250_000, (busy, all_of_it)


def tracking(client, is_on):
    """The client's session, with or without PostgreSQL's record of what it does."""
    ok(client.query(f"BEGIN; SET LOCAL track_activities = {'on' if is_on else 'off'}"))


def direct_the_time_of_a_query_is_that_of_its_whole_batch(run):
    batch = parse("", "SELECT pg_sleep(0.3)") + execute("") + execute("") + SYNC
    for is_on in (True, False):
        with Lobby(run) as pooler:
            client = pooler.client()
            tracking(client, is_on)
            client.socket.sendall(batch)
            time.sleep(0.45)
            doing, age = answer(pooler)
            assert doing == RUNS and 400_000 < age < 5_000_000, (is_on, doing, age)
            ok(client.take(client.until_ready()))
            ok(client.query("COMMIT"))


def direct_copy_data_has_a_time_of_its_own(run):
    for is_on in (True, False):
        with Lobby(run) as pooler:
            client = pooler.client()
            ok(client.query("CREATE TABLE IF NOT EXISTS copied (a int)"))
            tracking(client, is_on)
            client.socket.sendall(query("COPY copied FROM STDIN"))
            for _ in range(3):
                for _ in range(3):
                    client.socket.sendall(message(b"d", b"1\n"))
                    time.sleep(0.1)
                doing, age = answer(pooler)
                assert doing == RUNS and age < 250_000, (is_on, doing, age)
            # The client sends nothing any more. A backend may wake up for other reasons.
            for _ in range(50):
                time.sleep(0.2)
                doing, age = answer(pooler)
                assert doing == RUNS, (is_on, doing)
                if age > 550_000:
                    break
            assert 550_000 < age < 5_000_000, (is_on, age)
            client.socket.sendall(message(b"c"))
            ok(client.take(client.until_ready()))
            ok(client.query("COMMIT; DROP TABLE copied"))
