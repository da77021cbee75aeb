"""asyncpg through a pooler.

usage: asyncpg_client.py URL MODE NAMED

MODE is the pool mode. NAMED is "named" where prepared statements with a name may be used
outside of one transaction, else "unnamed". Ends with status 0 when all went well.
"""

import asyncio
import io
import sys

import asyncpg

URL, MODE, NAMED = sys.argv[1:4]
TRANSACTIONS = MODE != "statement"
CACHE = 100 if NAMED == "named" else 0


async def connect():
    return await asyncpg.connect(URL, statement_cache_size=CACHE)


async def queries_with_parameters():
    conn = await connect()
    assert await conn.fetchval("SELECT $1::int + $2::int", 1, 2) == 3
    rows = await conn.fetch("SELECT n, n::text AS word FROM generate_series(1, 100) n")
    assert [(row["n"], row["word"]) for row in rows] == [(n, str(n)) for n in range(1, 101)]
    assert await conn.execute("SELECT 1; SELECT 2") == "SELECT 1"
    assert await conn.fetchval("SELECT $1::int[]", [1, 2, 3]) == [1, 2, 3]
    await conn.close()


async def many_clients_with_the_statement_cache():
    async def client(number):
        conn = await connect()
        for turn in range(30):
            value = await conn.fetchval(f"SELECT '{number % 3} ' || $1::text", str(turn))
            assert value == f"{number % 3} {turn}", value
            await asyncio.sleep(0)
        await conn.close()

    await asyncio.gather(*(client(number) for number in range(12)))


async def statements_prepared_by_hand():
    conn = await connect()
    other = await connect()
    first = await conn.prepare("SELECT $1::int * 2 AS double")
    second = await other.prepare("SELECT $1::text || '!' AS loud")
    assert [a.name for a in first.get_attributes()] == ["double"]
    for number in range(10):
        assert await first.fetchval(number) == number * 2
        assert await second.fetchval(str(number)) == f"{number}!"
    await conn.close()
    await other.close()


async def errors_leave_the_connection_usable():
    conn = await connect()
    for _ in range(3):
        try:
            await conn.fetchval("SELECT 1 / $1::int", 0)
            raise AssertionError("no error")
        except asyncpg.DivisionByZeroError:
            pass
        try:
            await conn.fetchval("SELECT nothing FROM nowhere")
            raise AssertionError("no error")
        except asyncpg.UndefinedTableError:
            pass
        assert await conn.fetchval("SELECT 1") == 1
    await conn.close()


async def transactions_and_cursors():
    conn = await connect()
    await conn.execute("CREATE TABLE IF NOT EXISTS asyncpg_tx (n int)")
    async with conn.transaction():
        await conn.execute("INSERT INTO asyncpg_tx VALUES ($1)", 1)
        try:
            async with conn.transaction():
                await conn.execute("INSERT INTO asyncpg_tx VALUES ($1)", 2)
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        await conn.executemany("INSERT INTO asyncpg_tx VALUES ($1)", [(n,) for n in range(3, 60)])
    async with conn.transaction():
        seen = [row["n"] async for row in conn.cursor("SELECT n FROM asyncpg_tx ORDER BY n", prefetch=10)]
        assert seen == [1] + list(range(3, 60)), seen
        cursor = await conn.cursor("SELECT n FROM asyncpg_tx ORDER BY n")
        assert await cursor.forward(5) == 5
        assert (await cursor.fetchrow())["n"] == 7
    await conn.execute("DROP TABLE asyncpg_tx")
    await conn.close()


async def copy_in_and_out():
    conn = await connect()
    await conn.execute("CREATE TABLE IF NOT EXISTS asyncpg_copy (n int, word text)")
    records = [(n, f"word {n}") for n in range(3000)]
    if NAMED == "named":
        # It asks for the table's types by a statement prepared first.
        tag = await conn.copy_records_to_table("asyncpg_copy", records=records)
        assert tag == "COPY 3000", tag
    else:
        text = "".join(f"{n}\t{word}\n" for n, word in records)
        tag = await conn.copy_to_table("asyncpg_copy", source=io.BytesIO(text.encode()))
        assert tag == "COPY 3000", tag
    out = io.BytesIO()
    tag = await conn.copy_from_query("SELECT * FROM asyncpg_copy ORDER BY n", output=out)
    assert tag == "COPY 3000", tag
    assert out.getvalue().endswith(b"2999\tword 2999\n")
    await conn.execute("DROP TABLE asyncpg_copy")
    await conn.close()


async def a_timeout_cancels_the_query():
    conn = await connect()
    try:
        await conn.execute("SELECT pg_sleep(30)", timeout=0.3)
        raise AssertionError("no timeout")
    except asyncio.TimeoutError:
        pass
    assert await conn.fetchval("SELECT 'usable'") == "usable"
    await conn.close()


async def its_own_pool():
    async with asyncpg.create_pool(URL, statement_cache_size=CACHE, min_size=2, max_size=5) as pool:
        async def task(number):
            async with pool.acquire() as conn:
                return await conn.fetchval("SELECT $1::int", number)

        assert await asyncio.gather(*(task(n) for n in range(40))) == list(range(40))


async def a_block_is_refused_in_statement_mode():
    conn = await connect()
    try:
        await conn.execute("BEGIN")
        raise AssertionError("BEGIN was let through")
    except asyncpg.PostgresError:
        # It reports the lost connection rather than the words it was closed with.
        pass
    conn.terminate()


async def main():
    await queries_with_parameters()
    await many_clients_with_the_statement_cache()
    if NAMED == "named":
        await statements_prepared_by_hand()
    await errors_leave_the_connection_usable()
    await copy_in_and_out()
    await a_timeout_cancels_the_query()
    await its_own_pool()
    if TRANSACTIONS:
        await transactions_and_cursors()
    else:
        await a_block_is_refused_in_statement_mode()
    print("ok")


asyncio.run(asyncio.wait_for(main(), 50))
