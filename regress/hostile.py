"""A hostile client between any two transactions.

The suite's clients come to Weir through this proxy. Each time one of them has ended a transaction,
its ReadyForQuery is held back until a client of ours, who shares its pool, has had transactions on
some servers, and the next one that the suite's client is given is another. Ours has settings and
statements of its own, and would break nearly any test that found one of them. What it does is never
shown to the suite's clients.

The console is asked meanwhile whether the suite's client keeps its server, and why.
"""

import itertools
import socket
import struct
import threading
from collections import Counter
from dataclasses import dataclass, field

from blocked import quoted, with_names
from crowd import Crowd
from wire import READY_IDLE, Connection, close, has_ended, messages, startup

# As many as Weir has in a pool; a client that keeps its server leaves one less. Of the isolation
# tests' sessions up to nine have one at a time.
SERVERS = {"regress": 3, "isolation": 12}
# Servers are given out in turn, and the one just left is asked first what is left in it: of three, one
# more than there are is enough for it to have its turn. Of twelve it comes later, but mostly before a
# client of the suite; not always as many, lest they take turns with the same ones.
VISITS = {"regress": (4,), "isolation": (3, 4, 5)}
# In direct pools, so many servers are kept from the client that has left them, after two of three
# transactions: a client that comes back to its server is to meet what another one has left there.
# None of the regression tests' servers is: their sessions come one by one, so each finds another
# server, and `currval` fails in a pool whose servers are all in use (docs/direct.md).
KEEPS = {"regress": 0, "isolation": 2}
KEPT = (True, True, False)
# The isolation tests' driver watches its sessions by this one, which would have no end of visits.
WATCHER = "/control connection"
# A parameter as it is reported, and columns of SHOW CLIENTS and SHOW SERVERS.
NAME = b"application_name\0"
USER, DATABASE, STATE = 1, 2, 4
PORT, POINTER = 6, 14
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
    """Of one test: its transactions, after how many of them its client kept the server, and why; and
    the names of its sessions."""

    transactions: int = 0
    pinned: int = 0
    sessions: set = field(default_factory=set)
    reasons: Counter = field(default_factory=Counter)


@dataclass
class Session:
    """The state of one of the suite's clients."""

    # User and database.
    pool: tuple
    test: str
    # As it was told.
    pid: int = 0
    # Its application_name, now and at the end of the previous transaction.
    name: str = ""
    name_before: str = ""
    # Its id on the console, once it is logged in.
    pointer: bytes = b""

    @classmethod
    def starting(cls, words):
        user = words[b"user"]
        _, _, test = words.get(b"application_name", b"").decode().partition("/")
        return cls((user, words.get(b"database") or user), test)

    def hear(self, message):
        if message[:1] == b"K":
            self.pid = struct.unpack_from("!i", message, 5)[0]
        elif message[:1] == b"S" and message.startswith(NAME, 5):
            self.name = message[5 + len(NAME):-1].decode()


class Proxy:
    """Listens on a port of its own, for Weir at another."""

    def __init__(self, weir_port, cluster_port, suite, statements, is_direct):
        self.weir_port = weir_port
        self.is_direct = is_direct
        self.visits = itertools.cycle(VISITS[suite])
        self.keeps = KEEPS[suite]
        self.kept_next = itertools.cycle(KEPT)
        self.statements = statements[:STATEMENTS]
        self.hostile = {}
        # Process ids as they were told, and what their sessions call themselves.
        self.names = {}
        self.kept = {}
        self.lock = threading.Lock()
        self.console = Connection(weir_port, user=b"postgres", database=b"pgbouncer")
        self.observer = Connection(cluster_port, user=b"postgres", database=b"postgres")
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def stop(self):
        for one in (self.listener, self.console, self.observer, *self.hostile.values()):
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
        for one in (client, weir):
            # When a notice comes is part of what the isolation tests compare.
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if words := startup(client, weir):
                threading.Thread(target=self.requests, args=(client, weir), daemon=True).start()
                self.replies(weir, client, words)
        except OSError:
            pass
        finally:
            for one in (client, weir):
                close(one)

    def requests(self, client, weir):
        """Passes them on until one of the two has gone."""
        try:
            for whole in messages(client):
                weir.sendall(b"".join(with_names(message, self.names) for message in whole))
            weir.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def replies(self, weir, client, words):
        """Passes them on; before a transaction's last one the hostile client has its turn."""
        session = Session.starting(words)
        for whole in messages(weir):
            for message in whole:
                session.hear(message)
                if message == READY_IDLE:
                    self.names[session.pid] = session.name
                    with self.lock:
                        self.take_turn(session, weir)
            client.sendall(b"".join(whole))

    def take_turn(self, session, weir):
        """Called at the end of a transaction or the login of a client of the suite."""
        if not session.pointer:
            session.pointer = self.pointer(weir)
        elif not session.name.endswith(WATCHER):
            self.visit(session)
            # The transaction that set the name did not run under it.
            if session.test and session.name == session.name_before:
                self.count(session)
        session.name_before = session.name

    def proxied_pools(self):
        """Database, user and reason of the pools whose clients Weir serves itself."""
        pools = self.console.query("SHOW POOLS EXTENDED")
        own = [pool for pool in pools if pool[-2] == b"proxy"]
        return [tuple((word or b"").decode() for word in (*pool[:2], pool[-1])) for pool in own]

    def pointer(self, weir):
        """Returns the console's id of the client that has this connection."""
        port = str(weir.getsockname()[1]).encode()
        while True:
            for row in self.console.query("SHOW CLIENTS EXTENDED"):
                if row[PORT] == port:
                    return row[POINTER]
            # Weir is just handing it to the lobby, unless it has gone.
            if has_ended(weir):
                raise ConnectionError

    def visit(self, session):
        pool = session.pool
        one = self.hostile.get(pool)
        try:
            if one is None:
                one = self.hostile[pool] = self.crowd(pool) if self.is_direct else self.enemy(pool)
            if self.is_direct:
                keeps = self.keeps > 0 and next(self.kept_next)
                one.visit(self.server_of(session) if keeps else None)
            else:
                for _ in range(next(self.visits)):
                    one.query("SELECT 1")
        except OSError:
            # The database or the role is gone, and may come again.
            if one:
                one.close()
            self.hostile.pop(pool, None)

    def crowd(self, pool):
        def count_idle():
            rows = self.console.query("SHOW SERVERS")
            return sum((row[USER], row[DATABASE], row[STATE]) == (*pool, b"idle") for row in rows)

        return Crowd(lambda: self.enemy(pool), count_idle, self.keeps)

    def server_of(self, session):
        """Returns the process that has had the session's last transaction, or None."""
        rows = self.observer.query(
            "SELECT pid FROM pg_stat_activity WHERE state = 'idle' "
            f"AND application_name = {quoted(session.name)} ORDER BY state_change DESC LIMIT 1"
        )
        return int(rows[0][0]) if rows else None

    def enemy(self, pool):
        user, database = pool
        one = Connection(
            self.weir_port, user=user, database=database, application_name=b"hostile"
        )
        for statement in SETTINGS:
            # In a direct pool, a role and SQL's PREPARE would keep the server for this client.
            if not (self.is_direct and statement.startswith("SET ROLE")):
                one.query(statement)
        for name in self.statements:
            if self.is_direct:
                one.prepare(name, "SELECT 'hostile'")
            else:
                one.query(f"PREPARE {name} AS SELECT 'hostile'")
        return one

    def count(self, session):
        kept = self.kept.setdefault(session.test, Kept())
        kept.transactions += 1
        kept.sessions.add(session.name)
        for row in self.console.query("SHOW PINS"):
            if row[2] == session.pointer:
                kept.pinned += 1
                kept.reasons.update(row[4].decode().split(", "))
