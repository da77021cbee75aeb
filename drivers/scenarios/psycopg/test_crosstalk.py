"""Many connections at once, each of which knows what its own results have to be."""

import asyncio
import random

import psycopg
import pytest
from psycopg import AsyncConnection

CLIENTS = 40


async def play(script, turns=15):
    """Every client plays the script, all at the same time; each gets its number."""
    async def one_client(number):
        async with await AsyncConnection.connect(
                autocommit=True, application_name=f"client {number}") as one:
            for turn in range(turns):
                await script(one, number, turn)
    await asyncio.gather(*map(one_client, range(CLIENTS)))


async def row(one, text, values=None, **kwargs):
    return await (await one.execute(text, values, **kwargs)).fetchone()


async def test_simple_queries():
    async def script(one, number, turn):
        assert await row(one, f"select {number}, {turn}") == (number, turn)
    await play(script)


async def test_parameters_without_a_name():
    async def script(one, number, turn):
        assert await row(one, "select %s::int, %s::int", [number, turn], prepare=False) == (
            number, turn)
    await play(script)


async def test_prepared_statements_of_one_name_and_different_texts():
    async def script(one, number, turn):
        kind = number % 5
        text = ["select %s::int", "select %s::int * 2", "select %s::text", "select -(%s::int)",
                "select %s::int8 + 1"][kind]
        expected = [number, number * 2, str(number), -number, number + 1][kind]
        value = str(number) if kind == 2 else number
        assert await row(one, text, [value], prepare=True) == (expected,)
    await play(script)


async def test_results_of_very_different_sizes():
    async def script(one, number, turn):
        size = random.Random(number * 100 + turn).choice([0, 10, 5000, 70_000, 300_000])
        text, = await row(one, "select repeat(chr(65 + %s), %s)", [number % 26, size])
        assert text == chr(65 + number % 26) * size
    await play(script, turns=6)


async def test_transactions_of_several_statements(table):
    async def script(one, number, turn):
        async with one.transaction(force_rollback=turn % 2 == 0):
            key = number * 1000 + turn
            await one.execute(f"insert into {table} values (%s, %s)", [key, f"of {number}"])
            assert await row(one, f"select data from {table} where id = %s", [key]) == (
                f"of {number}",)
    await play(script, turns=8)
    with psycopg.connect() as one:
        assert one.execute(f"select count(*) from {table}").fetchone() == (CLIENTS * 4,)


async def test_errors_are_told_to_who_made_them():
    async def script(one, number, turn):
        if (number + turn) % 3 == 0:
            with pytest.raises(psycopg.errors.InvalidTextRepresentation,
                               match=f"client {number} turn {turn}\""):
                await one.execute("select %s::text::int", [f"client {number} turn {turn}"])
        else:
            assert await row(one, "select %s::int", [number]) == (number,)
    await play(script)


async def test_pipelines():
    async def script(one, number, turn):
        async with one.pipeline():
            cursors = [await one.execute("select %s::int, %s::int", [number, part])
                       for part in range(12)]
        assert [await cursor.fetchone() for cursor in cursors] == [
            (number, part) for part in range(12)]
    await play(script, turns=5)


async def test_copy_out():
    async def script(one, number, turn):
        data = b""
        async with one.cursor().copy(f"copy (select {number} from generate_series(1, 200))"
                                     " to stdout") as copy:
            async for piece in copy:
                data += bytes(piece)
        assert data == b"%d\n" % number * 200
    await play(script, turns=5)


async def test_copy_in(table):
    async def script(one, number, turn):
        async with one.cursor().copy(f"copy {table} from stdin") as copy:
            for part in range(20):
                await copy.write_row((number * 10_000 + turn * 100 + part, f"of {number}"))
    await play(script, turns=4)
    with psycopg.connect() as one:
        assert one.execute(f"select count(*), count(*) filter (where data = 'of ' || id / 10000)"
                           f" from {table}").fetchone() == (CLIENTS * 80, CLIENTS * 80)


async def test_settings_stay_with_their_client():
    zones = ["UTC", "Asia/Tokyo", "Europe/Berlin", "America/Lima", "Africa/Cairo"]

    async def script(one, number, turn):
        if turn == 0:
            await one.execute(f"set timezone = '{zones[number % 5]}'")
        assert await row(one, "select current_setting('timezone'),"
                              " current_setting('application_name')") == (
            zones[number % 5], f"client {number}")
        assert one.info.parameter_status("TimeZone") == zones[number % 5]
    await play(script)


async def test_notices():
    async def script(one, number, turn):
        heard = []
        hear = lambda notice: heard.append(notice.message_primary)  # noqa: E731
        one.add_notice_handler(hear)
        await one.execute(f"do $$ begin raise notice 'from {number}'; end $$")
        one.remove_notice_handler(hear)
        assert heard == [f"from {number}"]
    await play(script, turns=8)


async def test_cancels_in_the_midst_of_it():
    async def script(one, number, turn):
        if number % 8 == 0:
            task = asyncio.create_task(one.execute("select pg_sleep(30)"))
            await asyncio.sleep(0.01)  # any moment will do: before, while or after it begins
            await one.cancel_safe(timeout=60)
            # A cancel that comes before its query meets nothing; then another is needed.
            while not task.done():
                await asyncio.wait([task], timeout=0.2)
                if not task.done():
                    await one.cancel_safe(timeout=60)
            with pytest.raises(psycopg.errors.QueryCanceled):
                task.result()
        else:
            assert await row(one, "select %s::int, pg_sleep(0.002)::text", [number]) == (number, "")
    await play(script, turns=4)


async def test_connections_that_come_and_go():
    async def one_client(number):
        for turn in range(6):
            async with await AsyncConnection.connect(application_name=f"brief {number}") as one:
                assert await row(one, "select current_setting('application_name'), %s::int",
                                 [turn]) == (f"brief {number}", turn)
    await asyncio.gather(*map(one_client, range(CLIENTS)))


async def test_connections_that_vanish_beside_others():
    async def one_client(number):
        for turn in range(5):
            one = await AsyncConnection.connect(autocommit=True)
            if number % 4 == 0:
                one.pgconn.send_query(f"select {number}, repeat('v', 20000)"
                                      " from generate_series(1, 50)".encode())
                one.pgconn.flush()
                one.pgconn.finish()
            else:
                assert await row(one, "select %s::int, %s::int", [number, turn]) == (number, turn)
                await one.close()
    await asyncio.gather(*map(one_client, range(CLIENTS)))


async def test_temporary_names_within_transactions():
    async def script(one, number, turn):
        async with one.transaction():
            await one.execute(f"create temp table mine on commit drop as select {number} as n")
            assert await row(one, "select n from mine") == (number,)
    await play(script, turns=4)


async def test_two_users_beside_one_another():
    async def one_client(number):
        user = ("postgres", "alice")[number % 2]
        async with await AsyncConnection.connect(user=user, autocommit=True) as one:
            for turn in range(10):
                assert await row(one, "select current_user::text, session_user::text, %s::int",
                                 [turn], prepare=True) == (user, user, turn)
    await asyncio.gather(*map(one_client, range(CLIENTS)))
