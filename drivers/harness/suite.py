"""A suite: a pinned package, its requirements, and the way to run it."""

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

# For drivers whose packages carry no tests: a folder of our own for each.
SCENARIOS = Path(__file__).resolve().parent.parent / "scenarios"

MODES = ("session", "transaction", "auto")

# Pool sizes of the modes in which clients share servers. They are small, so that clients do share
# them. Auto mode has more, since some clients keep theirs.
POOL_SIZES = {"transaction": 3, "auto": 8}

# The assignment of servers: by Weir's defaults, or so that even a single client gets another server
# each time. In transaction mode suites run only with the second one. In direct pools the servers serve
# the clients' sockets.
DEFAULTS, TURNS, DIRECT = "defaults", "turns", "direct"
SERVERS = {
    DEFAULTS: {}, TURNS: {"min_pool_size": 4, "server_round_robin": 1}, DIRECT: {"data_path": DIRECT},
}
# The ways of each mode.
SERVERS_OF = {
    "session": (DEFAULTS, TURNS), "transaction": (TURNS,), "auto": (DEFAULTS, TURNS, DIRECT),
}

KEYS = {
    "session": {},
    # In transaction mode nothing is reset between clients, so one test's temporary table or SET
    # would fail whichever test gets that server next. This keeps each failure with the test that
    # needs a session; prepared statements, which Weir keeps track of, are left alone.
    "transaction": {
        "server_reset_query": "close all; reset session authorization; reset all; unlisten *; "
                              "select pg_advisory_unlock_all(); discard temp; discard sequences",
        "server_reset_query_always": 1,
        # A test that fails in a transaction may leave it open; few of those would use the pool up.
        "idle_transaction_timeout": 10,
    },
    "auto": {"idle_transaction_timeout": 10},
}


@dataclass(frozen=True)
class Way:
    """One way through Weir: the pool mode, and how servers are given out."""

    mode: str
    servers: str

    def __str__(self):
        return self.mode if self.servers == DEFAULTS or self.mode == "transaction" \
            else f"{self.mode}, {self.servers}"

    @property
    def folder(self):
        return str(self).replace(", ", "-")

    @property
    def keys(self):
        return {**KEYS[self.mode], **SERVERS[self.servers]}

    @property
    def is_direct(self):
        return self.servers == DIRECT

    @property
    def lists(self):
        """The lists of tests that may fail, in expected/SUITE.toml."""
        return (self.mode, DIRECT) if self.is_direct else (self.mode,)


WAYS = tuple(Way(mode, servers) for mode in MODES for servers in SERVERS_OF[mode])


@dataclass
class Target:
    """The address that a suite connects to."""

    port: int
    lab: object
    # A pool mode, or "direct".
    mode: str
    host: str = "127.0.0.1"

    def libpq(self, user, database):
        """The environment libpq and its kin read."""
        return {
            "PGHOST": self.host, "PGPORT": str(self.port), "PGUSER": user,
            "PGDATABASE": database, "PGSSLMODE": "disable",
        }


class Suite:
    """Subclasses in python.py, go.py and the like know one kind of test runner; theirs in suites/
    are a driver each and say the rest by their attributes."""

    name = ""
    version = ""
    modes = MODES
    # PostgreSQL's settings and pg_hba.conf.
    settings = {}
    hba = ""
    # Is the lab to have certificates (`Lab.pki`)?
    secured = False
    # Before the tests, straight to PostgreSQL: pairs of (database, statements).
    setup = ()
    # Weir's configuration: user -> password, further keys, and the pool size of each mode whose size
    # differs from POOL_SIZES. Session pools are as large as one test needs.
    users = {"postgres": ""}
    keys = {}
    pool_size = {"session": 5}
    # Tests that never run: id or prefix -> reason. Not for tests that fail through the pooler.
    left_out = {}
    # Tests that do not run in one mode, since they hang there or end the whole suite: mode -> tests.
    # They count as failures, so the expectations have to name them.
    fatal = {}
    # Tests that end a backend by its process id. If servers are shared, the backend may serve another
    # test a moment later, which would fail instead. In such modes these tests do not run, and count
    # as failures.
    ends_backends = ()
    seconds_max = 1200
    # The separator between a test's id and those of its subtests.
    separator = ""

    def fetch(self):
        """Gets the pinned package; slow the first time only."""
        raise NotImplementedError

    def run(self, target, log):
        """Runs the tests against `target`; returns an Outcome. `log` is a file for their output."""
        raise NotImplementedError

    def skipped(self, target):
        shared = self.ends_backends if target.mode in POOL_SIZES else ()
        return [*self.left_out, *self.fatal.get(target.mode, ()), *shared]

    def prepare(self, lab):
        for database, statements in self.setup:
            lab.sql(statements, database)

    def spawn(self, argv, cwd, env, log, outcome, line):
        """Runs a test process and gives each line it prints to `line(outcome, text)`."""
        begin = time.monotonic()
        with open(log, "w", encoding="utf8") as out:
            child = subprocess.Popen(
                [str(word) for word in argv], cwd=cwd, env={**os.environ, **env},
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            )
            try:
                child.wait(self.seconds_max)
            except subprocess.TimeoutExpired:
                print(f"  {self.name}: stopped after {self.seconds_max} s", flush=True)
            finally:
                # Ends the processes that the suite has started. The process group is its own.
                try:
                    os.killpg(child.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                child.wait()
        with open(log, encoding="utf8", errors="replace") as text:
            for row in text:
                line(outcome, row.rstrip("\n"))
        outcome.seconds = time.monotonic() - begin
        return outcome


class SecuredSuite(Suite):
    """Logins over TLS with SCRAM: nobody comes in without either."""

    secured = True
    hba = "hostssl all app 127.0.0.1/32 scram-sha-256\n"
    setup = (("postgres", "create role app login password 'hush'"),)
    users = {"app": "hush"}
    keys = {"auth_type": "scram-sha-256"}

    def environment(self, target):
        """Returns the environment variables that the scenarios need."""
        files = target.lab.pki
        return {"PORT": str(target.port), "AUTHORITY": str(files.authority),
                "STRANGER": str(files.stranger)}
