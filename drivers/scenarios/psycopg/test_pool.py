"""psycopg_pool: a pool in front of the pool, its checks, its resets and its limits."""

import threading

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool, NullConnectionPool, PoolTimeout


def test_connections_are_lent_and_taken_back():
    with ConnectionPool(min_size=2, max_size=4) as pool:
        pool.wait(timeout=30)
        for number in range(30):
            with pool.connection() as one:
                assert one.execute("select %s::int", [number]).fetchone() == (number,)
        assert pool.get_stats()["connections_num"] <= 4


def test_a_block_that_fails_is_rolled_back(table):
    with ConnectionPool(min_size=1, max_size=1) as pool:
        with pytest.raises(ZeroDivisionError), pool.connection() as one:
            one.execute(f"insert into {table} values (1, 'x')")
            raise ZeroDivisionError
        with pool.connection() as one:
            assert one.execute(f"select count(*) from {table}").fetchone() == (0,)


def test_a_broken_connection_is_replaced():
    with ConnectionPool(min_size=1, max_size=1) as pool:
        with pool.connection() as one:
            first = one
            with pytest.raises(psycopg.OperationalError):
                one.execute("select pg_terminate_backend(pg_backend_pid()), pg_sleep(10)")
        with pool.connection(timeout=30) as one:
            assert one is not first
            assert one.execute("select 'new'").fetchone() == ("new",)


def test_nobody_gets_one_when_all_are_lent():
    with ConnectionPool(min_size=1, max_size=1) as pool, pool.connection():
        with pytest.raises(PoolTimeout):
            with pool.connection(timeout=0.1):
                pass


def test_configure_and_reset_are_called():
    reset = []

    def configure(one):
        one.execute("set timezone = 'Asia/Tokyo'")
        one.commit()

    with ConnectionPool(min_size=1, max_size=1, configure=configure, reset=reset.append) as pool:
        for _ in range(3):
            with pool.connection() as one:
                assert one.execute("show timezone").fetchone() == ("Asia/Tokyo",)
    assert len(reset) >= 2


def test_a_check_before_each_loan():
    with ConnectionPool(min_size=1, max_size=1, check=ConnectionPool.check_connection) as pool:
        for _ in range(5):
            with pool.connection() as one:
                assert one.execute("select 1").fetchone() == (1,)


def test_a_pool_that_keeps_nothing():
    with NullConnectionPool(max_size=3) as pool:
        for number in range(20):
            with pool.connection() as one:
                assert one.execute("select %s::int", [number]).fetchone() == (number,)


def test_threads_share_a_pool():
    seen = []
    with ConnectionPool(min_size=4, max_size=8) as pool:
        def work(number):
            for turn in range(20):
                with pool.connection(timeout=60) as one:
                    seen.append(one.execute("select %s::int, %s::int", [number, turn]).fetchone()
                                == (number, turn))
        threads = [threading.Thread(target=work, args=[number]) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(seen) == 320 and all(seen)


async def test_an_async_pool():
    async with AsyncConnectionPool(min_size=2, max_size=4, open=False) as pool:
        for number in range(20):
            async with pool.connection() as one:
                cursor = await one.execute("select %s::int", [number])
                assert await cursor.fetchone() == (number,)
