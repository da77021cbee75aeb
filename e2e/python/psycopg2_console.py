"""psycopg2 as a monitor on the console, by simple queries.

usage: psycopg2_console.py CONNECTION DATABASE

DATABASE has one client in a transaction. Ends with status 0 when all went well.
"""

import sys
from decimal import Decimal

import psycopg2
from psycopg2.extras import DictCursor

CONNECTION, DATABASE = sys.argv[1:]


def show(conn, what):
    with conn.cursor(cursor_factory=DictCursor) as cursor:
        cursor.execute("SHOW " + what)
        return cursor.fetchall()


def of_database(conn, what, column="database"):
    (row,) = [row for row in show(conn, what) if row[column] == DATABASE]
    return row


def tables(conn):
    ((version,),) = show(conn, "VERSION")
    assert version.startswith("PgBouncer 1."), version
    pool = of_database(conn, "POOLS")
    assert (pool["cl_active"], pool["sv_active"], pool["maxwait"]) == (1, 1, 0), pool
    stats = of_database(conn, "STATS")
    counts = [value for name, value in stats.items() if name != "database"]
    assert len(counts) > 10 and all(isinstance(count, (int, Decimal)) for count in counts), stats
    assert of_database(conn, "DATABASES", "name")["paused"] == 0
    assert of_database(conn, "CLIENTS")["type"] == "C"
    assert of_database(conn, "SERVERS")["type"] == "S"
    assert dict(show(conn, "LISTS"))["used_servers"] == 1
    assert {row["key"] for row in show(conn, "CONFIG")} >= {"max_client_conn", "pool_mode"}


def without_autocommit(conn):
    try:
        conn.cursor().execute("SHOW VERSION")
    except psycopg2.errors.ProtocolViolation as error:
        assert "invalid command 'BEGIN'" in error.diag.message_primary, error
    else:
        raise AssertionError("BEGIN was accepted")


console = psycopg2.connect(CONNECTION)
without_autocommit(console)
console.rollback()
console.autocommit = True
for _ in range(3):
    tables(console)
console.close()
print("ok")
