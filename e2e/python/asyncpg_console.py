"""asyncpg, which knows no other way than the extended protocol with binary results, as a client of
the console.

usage: asyncpg_console.py URL

Ends with status 0 when all went well.
"""

import asyncio
import sys

import asyncpg

URL = sys.argv[1]


async def main():
    conn = await asyncpg.connect(URL)
    for _ in range(3):
        assert (await conn.fetchval("SHOW VERSION")).startswith("PgBouncer 1.")
        pools = await conn.fetch("SHOW POOLS")
        console = next(row for row in pools if row["database"] == "pgbouncer")
        assert console["cl_active"] == 1 and console["sv_active"] == 0, console
        for row in await conn.fetch("SHOW STATS"):
            assert all(isinstance(int(value), int) for value in list(row)[1:]), row
    statement = await conn.prepare("RELOAD")
    await statement.fetch()
    assert statement.get_statusmsg() == "RELOAD"
    lists = await conn.prepare("SHOW LISTS")
    assert [column.name for column in lists.get_attributes()] == ["list", "items"]
    assert len(await lists.fetch()) == 14
    try:
        await conn.fetch("SHOW NONSENSE")
    except asyncpg.PostgresError as error:
        assert error.sqlstate == "08P01", error
    else:
        raise AssertionError("an error was expected")
    await conn.close()


asyncio.run(asyncio.wait_for(main(), 50))
print("ok")
