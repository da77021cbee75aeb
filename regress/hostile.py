"""A hostile client between any two transactions.

The suite's clients come to Weir through this proxy. Each time one of them has ended a transaction,
its ReadyForQuery is held back until a client of ours, who shares its pool, has had a transaction on
one server after the other: the one just left is among them, and the next one that the suite's client
is given is another. Ours has settings and statements of its own, and would break nearly any test
that found one of them. What it does is never shown to the suite's clients.

The console is asked meanwhile whether the suite's client keeps its server, and why.
"""

import socket
import threading
from collections import Counter
from dataclasses import dataclass, field

from wire import READY_IDLE, Connection, close, first, pump, startup

# As many as Weir has in a pool; a client that keeps its server leaves one less.
SERVERS = 3
# They are given out in turn, and the one just left is asked first what is left in it: one more than
# there are is enough for it to have its turn.
VISITS = SERVERS + 1
# Of the names by which the suite prepares statements, so many are the hostile client's, too.
STATEMENTS = 3

# Each for itself: a role that may not have one of them has the others.
SETTINGS = (
    "SET search_path = nowhere",
    "SET datestyle = 'German, YMD'",
    "SET timezone = 'Asia/Kolkata'",
    "SET intervalstyle = 'iso_8601'",
    "SET client_encoding = 'LATIN1'",
    "SET extra_float_digits = -5",
    "SET bytea_output = 'escape'",
    "SET xmlbinary = 'hex'",
    "SET standard_conforming_strings = off",
    "SET client_min_messages = 'debug1'",
    "SET default_transaction_isolation = 'serializable'",
    "SET default_transaction_read_only = on",
    "SET row_security = off",
    "SET check_function_bodies = off",
    "SET work_mem = '64kB'",
    "SET enable_seqscan = off",
    "SET enable_hashjoin = off",
    "SET enable_hashagg = off",
    "SET enable_sort = off",
    "SET plan_cache_mode = 'force_generic_plan'",
    "SET max_parallel_workers_per_gather = 0",
    "SET lock_timeout = '1h'",
    "SET app.hostile = 'yes'",
    "SET ROLE pg_read_all_data",
)



@dataclass
class Kept:
    """Of one test: its transactions, and after how many of them its client kept the server, and
    why."""

    transactions: int = 0
    pinned: int = 0
    reasons: Counter = field(default_factory=Counter)


class Proxy:
    """Listens on a port of its own, for Weir at another."""

    def __init__(self, weir_port, names):
        self.weir_port = weir_port
        self.names = names[:STATEMENTS]
        self.hostile = {}
        self.kept = {}
        self.lock = threading.Lock()
        self.console = Connection(weir_port, user=b"postgres", database=b"pgbouncer")
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def stop(self):
        for one in (self.listener, self.console, *self.hostile.values()):
            one.close()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        weir = socket.create_connection(("127.0.0.1", self.weir_port))
        try:
            if words := startup(client, weir):
                threading.Thread(target=pump, args=(client, weir), daemon=True).start()
                self.replies(weir, client, words)
        except OSError:
            pass
        finally:
            for one in (client, weir):
                close(one)

    def replies(self, weir, client, words):
        """Passes them on; before a transaction's last one the hostile client has its turn."""
        user = words[b"user"]
        pool = user, words.get(b"database") or user
        test = words.get(b"application_name", b"").decode().removeprefix("pg_regress/")
        welcomed, held = False, b""
        while data := weir.recv(65536):
            held += data
            complete = b""
            while (message := first(held)) is not None:
                held = held[len(message):]
                if message == READY_IDLE and welcomed:
                    with self.lock:
                        self.visit(pool)
                        self.count(pool, test)
                welcomed = welcomed or message == READY_IDLE
                complete += message
            client.sendall(complete)

    def visit(self, pool):
        one = self.hostile.get(pool)
        try:
            if one is None:
                one = self.hostile[pool] = self.enemy(pool)
            for _ in range(VISITS):
                one.query("SELECT 1")
        except OSError:
            # The database or the role is gone, and may come again.
            if one:
                one.close()
            self.hostile.pop(pool, None)

    def enemy(self, pool):
        user, database = pool
        one = Connection(
            self.weir_port, user=user, database=database, application_name=b"hostile"
        )
        for statement in SETTINGS:
            one.query(statement)
        for name in self.names:
            one.query(f"PREPARE {name} AS SELECT 'hostile'")
        return one

    def count(self, pool, test):
        """Tests run one at a time, and the hostile client has nothing to keep a server for."""
        kept = self.kept.setdefault(test, Kept())
        kept.transactions += 1
        user, database = pool
        for row in self.console.query("SHOW PINS"):
            if row[:2] == [database, user]:
                kept.pinned += 1
                kept.reasons.update(row[4].decode().split(", "))
