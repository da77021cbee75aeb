"""psycopg 3 through a pooler.

usage: psycopg_client.py URL MODE NAMED

MODE is the pool mode. NAMED is "named" where prepared statements with a name may be used
outside of one transaction, else "unnamed". Ends with status 0 when all went well.
"""

import sys
import threading
import time

import psycopg

URL, MODE, NAMED = sys.argv[1:4]
TRANSACTIONS = MODE != "statement"


def connect(**more):
    threshold = 2 if NAMED == "named" else None
    return psycopg.connect(URL, autocommit=True, prepare_threshold=threshold, **more)


def parameters_bound_by_the_server():
    with connect() as conn:
        row = conn.execute("SELECT %s::int + %s, %s::text", [1, 2, "naïve"]).fetchone()
        assert row == (3, "naïve"), row
        row = conn.execute("SELECT %b::int4", [7]).fetchone()
        assert row == (7,), row


def parameters_bound_by_the_client():
    with connect(cursor_factory=psycopg.ClientCursor) as conn:
        row = conn.execute("SELECT %s, %s", ["it's", None]).fetchone()
        assert row == ("it's", None), row


def statements_prepared_after_a_few_runs():
    with connect() as conn, connect() as other:
        for number in range(20):
            for c in (conn, other):
                row = c.execute("SELECT %s::int * 2", [number]).fetchone()
                assert row == (number * 2,), row
        # Beyond a hundred the driver drops old ones by DEALLOCATE, an SQL command that knows only
        # the server's own names.
        for number in range(150 if MODE == "session" else 80):
            row = conn.execute(f"SELECT {number} + %s::int", [1], prepare=NAMED == "named")
            assert row.fetchone() == (number + 1,)


def an_error_leaves_the_connection_usable():
    with connect() as conn:
        for _ in range(3):
            try:
                conn.execute("SELECT 1 / %s::int", [0])
                raise AssertionError("no error")
            except psycopg.errors.DivisionByZero:
                pass
            assert conn.execute("SELECT 1").fetchone() == (1,)


def notices_reach_their_handler():
    with connect() as conn:
        seen = []
        conn.add_notice_handler(lambda notice: seen.append(notice.message_primary))
        conn.execute("DO $$ BEGIN RAISE NOTICE 'heard'; END $$")
        assert seen == ["heard"], seen


def transactions_and_savepoints():
    with connect() as conn:
        conn.execute("CREATE TABLE IF NOT EXISTS psycopg_tx (n int)")
        with conn.transaction():
            conn.execute("INSERT INTO psycopg_tx VALUES (%s)", [1])
            try:
                with conn.transaction():
                    conn.execute("INSERT INTO psycopg_tx VALUES (%s)", [2])
                    conn.execute("SELECT 1/0")
            except psycopg.errors.DivisionByZero:
                pass
            conn.execute("INSERT INTO psycopg_tx VALUES (%s)", [3])
        rows = conn.execute("SELECT n FROM psycopg_tx ORDER BY n").fetchall()
        assert rows == [(1,), (3,)], rows
        conn.execute("DROP TABLE psycopg_tx")


def pipelines():
    with connect() as conn:
        with conn.pipeline() as pipeline:
            cursors = [conn.execute("SELECT %s::int", [number]) for number in range(30)]
            pipeline.sync()
            more = conn.execute("SELECT 'after the sync'")
        assert [cursor.fetchone()[0] for cursor in cursors] == list(range(30))
        assert more.fetchone() == ("after the sync",)


def a_pipeline_with_an_error():
    with connect() as conn:
        try:
            with conn.pipeline():
                conn.execute("SELECT 1")
                conn.execute("SELECT 1/0")
                conn.execute("SELECT 2")
            raise AssertionError("no error")
        except psycopg.errors.DivisionByZero:
            pass
        assert conn.execute("SELECT 3").fetchone() == (3,)


def executemany_with_and_without_rows():
    with connect() as conn, conn.cursor() as cursor:
        conn.execute("CREATE TABLE IF NOT EXISTS psycopg_many (n int)")
        cursor.executemany("INSERT INTO psycopg_many VALUES (%s)", [(n,) for n in range(50)])
        assert conn.execute("SELECT count(*) FROM psycopg_many").fetchone() == (50,)
        conn.execute("DROP TABLE psycopg_many")


def copy_in_and_out():
    with connect() as conn, conn.cursor() as cursor:
        conn.execute("CREATE TABLE IF NOT EXISTS psycopg_copy (n int, word text)")
        with cursor.copy("COPY psycopg_copy FROM STDIN") as copy:
            for number in range(5000):
                copy.write_row((number, f"word {number}"))
        with cursor.copy("COPY (SELECT * FROM psycopg_copy ORDER BY n) TO STDOUT") as copy:
            rows = list(copy.rows())
        assert len(rows) == 5000 and rows[4999] == ("4999", "word 4999"), rows[-1]
        try:
            with cursor.copy("COPY psycopg_copy FROM STDIN") as copy:
                copy.write("not a number\tx\n")
            raise AssertionError("no error")
        except psycopg.errors.InvalidTextRepresentation:
            pass
        try:
            with cursor.copy("COPY psycopg_copy FROM STDIN") as copy:
                copy.write_row((1, "x"))
                raise ZeroDivisionError
        except (ZeroDivisionError, psycopg.errors.QueryCanceled):
            pass
        assert conn.execute("SELECT count(*) FROM psycopg_copy").fetchone() == (5000,)
        conn.execute("DROP TABLE psycopg_copy")


def cursors_on_the_server():
    with connect() as conn, conn.transaction(), conn.cursor("portions") as cursor:
        cursor.itersize = 10
        cursor.execute("SELECT * FROM generate_series(1, 95)")
        assert [row[0] for row in cursor] == list(range(1, 96))


def cancelling_a_query():
    with connect() as conn, connect() as watcher:
        def cancel():
            seen = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query = %s"
            while watcher.execute(seen, ["SELECT pg_sleep(30)"]).fetchone() == (0,):
                pass
            conn.cancel()

        canceller = threading.Thread(target=cancel)
        canceller.start()
        begun = time.monotonic()
        try:
            conn.execute("SELECT pg_sleep(30)")
            raise AssertionError("not cancelled")
        except psycopg.errors.QueryCanceled:
            pass
        canceller.join()
        assert time.monotonic() - begun < 15
        assert conn.execute("SELECT 'usable'").fetchone() == ("usable",)


def a_block_is_refused_in_statement_mode():
    conn = connect()
    try:
        conn.execute("BEGIN")
        raise AssertionError("BEGIN was let through")
    except psycopg.OperationalError as error:
        assert "transaction blocks not allowed in statement pooling mode" in str(error), error


parameters_bound_by_the_server()
parameters_bound_by_the_client()
statements_prepared_after_a_few_runs()
an_error_leaves_the_connection_usable()
notices_reach_their_handler()
copy_in_and_out()
cancelling_a_query()
if TRANSACTIONS:
    transactions_and_savepoints()
    pipelines()
    a_pipeline_with_an_error()
    executemany_with_and_without_rows()
    cursors_on_the_server()
else:
    a_block_is_refused_in_statement_mode()
print("ok")
