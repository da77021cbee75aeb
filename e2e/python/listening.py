"""LISTEN and NOTIFY with psycopg 3 and asyncpg, through a pooler that has few servers.

usage: listening.py URL

Ends with status 0 when all went well.
"""

import asyncio
import sys
import time

import asyncpg
import psycopg

(URL,) = sys.argv[1:]
CLIENTS = 12


def listening(**more):
    """A connection, and what it has been told."""
    conn = psycopg.connect(URL, **more)
    told = []
    conn.add_notify_handler(told.append)
    return conn, told


def heard(conn, told, count):
    """Waits for notifications. The driver looks for them whenever it does something else."""
    limit = time.monotonic() + 30
    while len(told) < count and time.monotonic() < limit:
        conn.execute("SELECT 1")
        if not conn.autocommit:
            conn.rollback()
    notes = told[:]
    told.clear()
    assert len(notes) == count, notes
    return notes


def psycopg_hears_others_and_itself():
    conns = [listening(autocommit=True) for _ in range(CLIENTS)]
    for number, (conn, _) in enumerate(conns):
        conn.execute("LISTEN everybody")
        conn.execute(f'LISTEN "only {number}"')
    for number, (conn, told) in enumerate(conns):
        conn.execute("SELECT pg_notify(%s, %s)", [f"only {number}", "mine"])
        (note,) = heard(conn, told, 1)
        own = conn.info.backend_pid
        assert (note.pid, note.channel, note.payload) == (own, f"only {number}", "mine"), note
    conns[0][0].execute("NOTIFY everybody, 'all of you'")
    for number, (conn, told) in enumerate(conns):
        (note,) = heard(conn, told, 1)
        assert note.payload == "all of you", note
        assert (note.pid == conn.info.backend_pid) == (number == 0), note
    for conn, _ in conns:
        conn.close()


def psycopg_in_transactions():
    conn, told = listening()
    conn.execute("LISTEN never")
    conn.rollback()
    conn.execute("LISTEN news")
    conn.commit()
    conn.execute("UNLISTEN news")
    conn.rollback()
    with psycopg.connect(URL, autocommit=True) as other:
        for payload in ["1", "2"]:
            other.execute("SELECT pg_notify('never', 'x'), pg_notify('news', %s)", [payload])
    assert [note.payload for note in heard(conn, told, 2)] == ["1", "2"]
    conn.close()


async def asyncpg_hears_in_order():
    conns = [await asyncpg.connect(URL) for _ in range(CLIENTS)]
    told = {conn: [] for conn in conns}
    for conn in conns:
        await conn.add_listener("news", lambda conn, *rest: told[conn].append(rest))
    other = await asyncpg.connect(URL)
    for number in range(100):
        await other.execute("SELECT pg_notify('news', $1)", str(number))
        await conns[number % CLIENTS].fetchval("SELECT 1")

    async def until_told(count):
        while any(len(rest) < count for rest in told.values()):
            await asyncio.sleep(0.01)

    await asyncio.wait_for(until_told(100), 30)
    for conn in conns:
        assert [payload for _, _, payload in told[conn]] == [str(n) for n in range(100)]
    await conns[0].execute("NOTIFY news, 'own'")
    assert told[conns[0]][-1] == (conns[0].get_server_pid(), "news", "own"), told[conns[0]][-1]
    await asyncio.wait_for(until_told(101), 30)
    for conn in conns:
        await conn.reset()
        assert await conn.fetchval("SELECT count(*) FROM pg_listening_channels()") == 0
        await conn.close()
    await other.close()


def main():
    psycopg_hears_others_and_itself()
    psycopg_in_transactions()
    asyncio.run(asyncpg_hears_in_order())
    print("ok")


main()
