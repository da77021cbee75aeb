"""psycopg 3 as a client of the console, with statements prepared on the server.

usage: psycopg_console.py URL

Ends with status 0 when all went well.
"""

import sys

import psycopg

URL = sys.argv[1]


def prepared_and_binary(conn):
    for turn in range(3):
        for binary in (False, True):
            cursor = conn.execute("SHOW VERSION", prepare=True, binary=binary)
            assert cursor.fetchone()[0].startswith("PgBouncer 1."), turn
            assert cursor.statusmessage == "SHOW"
            pools = conn.execute("SHOW POOLS", prepare=True, binary=binary)
            names = [column.name for column in pools.description]
            rows = [dict(zip(names, row)) for row in pools]
            console = next(row for row in rows if row["database"] == "pgbouncer")
            # Numbers arrive as numbers.
            assert console["cl_active"] == 1 and console["pool_mode"] == "statement", console
            stats = conn.execute("SHOW STATS", prepare=True, binary=binary).fetchall()
            assert all(isinstance(int(value), int) for row in stats for value in row[1:])


def verbs(conn):
    assert conn.execute("RELOAD", prepare=True).statusmessage == "RELOAD"
    assert conn.execute("PAUSE", prepare=True).statusmessage == "PAUSE"
    state = dict(conn.execute("SHOW STATE", prepare=True).fetchall())
    assert state["paused"] == "yes", state
    assert conn.execute("RESUME", prepare=True).statusmessage == "RESUME"


def pipeline(conn):
    with conn.pipeline():
        cursors = [conn.execute("SHOW VERSION") for _ in range(5)]
    assert all(cursor.fetchone()[0].startswith("PgBouncer") for cursor in cursors)


def errors(conn):
    for text, parameters in (("SHOW NONSENSE", None), ("KILL_CLIENT %s", [1])):
        try:
            conn.execute(text, parameters, prepare=True)
        except psycopg.errors.ProtocolViolation as error:
            said = error.diag.message_primary
            assert "SHOW HELP" in said or "no parameters" in said, said
        else:
            raise AssertionError(text)
    assert conn.execute("SHOW VERSION").fetchone()


with psycopg.connect(URL, autocommit=True) as console:
    for part in (prepared_and_binary, verbs, pipeline, errors):
        part(console)
print("ok")
