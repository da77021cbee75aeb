"""AsyncConnection: the same protocol, driven by an event loop."""

import asyncio

import psycopg
import pytest
from conftest import is_running
from psycopg import AsyncConnection


async def test_a_query():
    async with await AsyncConnection.connect() as one:
        cursor = await one.execute("select %s::int, %s::text", [1, "x"])
        assert await cursor.fetchall() == [(1, "x")]


async def test_rows_by_iteration():
    async with await AsyncConnection.connect() as one, one.cursor() as cursor:
        await cursor.execute("select generate_series(1, 100)")
        assert [row[0] async for row in cursor] == list(range(1, 101))


async def test_a_stream_and_a_named_cursor():
    async with await AsyncConnection.connect() as one:
        async with one.cursor() as cursor:
            rows = [row[0] async for row in cursor.stream("select generate_series(1, 50)")]
        async with one.cursor("named") as cursor:
            cursor.itersize = 9
            await cursor.execute("select generate_series(1, 50)")
            assert [row[0] async for row in cursor] == rows == list(range(1, 51))


async def test_copy_in_and_out(table):
    async with await AsyncConnection.connect() as one:
        async with one.cursor() as cursor:
            async with cursor.copy(f"copy {table} from stdin") as copy:
                for number in range(2000):
                    await copy.write_row((number, "a" * 100))
            total = 0
            async with cursor.copy(f"copy {table} to stdout") as copy:
                async for piece in copy:
                    total += len(bytes(piece))
        assert total == sum(len(str(number)) + 102 for number in range(2000))


async def test_a_pipeline():
    async with await AsyncConnection.connect(autocommit=True) as one:
        async with one.pipeline():
            cursors = [await one.execute("select %s::int", [number]) for number in range(60)]
        assert [(await cursor.fetchone())[0] for cursor in cursors] == list(range(60))


async def test_a_transaction_with_a_savepoint(table):
    async with await AsyncConnection.connect() as one:
        async with one.transaction():
            await one.execute(f"insert into {table} values (1, 'x')")
            with pytest.raises(psycopg.errors.UniqueViolation):
                async with one.transaction():
                    await one.execute(f"insert into {table} values (1, 'x')")
        cursor = await one.execute(f"select count(*) from {table}")
        assert await cursor.fetchone() == (1,)


async def test_a_cancelled_task_cancels_its_query(connect, name):
    watcher = connect(autocommit=True)
    async with await AsyncConnection.connect(autocommit=True) as one:
        task = asyncio.create_task(one.execute(f"select pg_sleep(60), '{name}'"))
        while not is_running(watcher, name):
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        cursor = await one.execute("select 'alive'")
        assert await cursor.fetchone() == ("alive",)


async def test_a_query_that_runs_out_of_time():
    async with await AsyncConnection.connect(autocommit=True) as one:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(one.execute("select pg_sleep(60)"), 0.3)
        cursor = await one.execute("select 'alive'")
        assert await cursor.fetchone() == ("alive",)


async def test_cancel_safe(connect, name):
    watcher = connect(autocommit=True)
    async with await AsyncConnection.connect(autocommit=True) as one:
        task = asyncio.create_task(one.execute(f"select pg_sleep(60), '{name}'"))
        while not is_running(watcher, name):
            await asyncio.sleep(0.02)
        await one.cancel_safe(timeout=20)
        with pytest.raises(psycopg.errors.QueryCanceled):
            await task


async def test_notifications(name):
    async with await AsyncConnection.connect(autocommit=True) as one, \
            await AsyncConnection.connect(autocommit=True) as other:
        await one.execute(f"listen {name}")
        await other.execute(f"notify {name}, 'async'")
        heard = [note.payload async for note in one.notifies(timeout=8, stop_after=1)]
    assert heard == ["async"]


async def test_two_tasks_take_turns_on_one_connection():
    async with await AsyncConnection.connect(autocommit=True) as one:
        async def ask(number):
            cursor = one.cursor()
            await cursor.execute("select %s::int, pg_sleep(0.001)", [number])
            return (await cursor.fetchone())[0]
        assert await asyncio.gather(*map(ask, range(30))) == list(range(30))
