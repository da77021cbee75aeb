"""Helpers of the scenarios: connections that are closed afterwards, tables of their own, and
coroutines as tests. libpq's environment variables have the address."""

import asyncio
import inspect
import itertools
import os
import time

import psycopg
import pytest

NUMBERS = itertools.count()


def pytest_pyfunc_call(pyfuncitem):
    """Runs a test that is a coroutine; a loop of its own for each."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True


@pytest.fixture
def connect():
    """Opens connections; those still open at the end are closed."""
    opened = []

    def open_one(*args, **kwargs):
        opened.append(psycopg.connect(*args, **kwargs))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture
def conn(connect):
    """A connection on which the first statement begins a transaction."""
    return connect()


@pytest.fixture
def auto(connect):
    return connect(autocommit=True)


@pytest.fixture
def name():
    """A name nobody else uses, in this run and on this server."""
    return f"t{os.getpid()}_{next(NUMBERS)}"


@pytest.fixture
def table(name):
    """A table (id int primary key, data text), seen by all and dropped at the end."""
    with psycopg.connect(autocommit=True) as owner:
        owner.execute(f"create table {name} (id int primary key, data text)")
    yield name
    with psycopg.connect(autocommit=True) as owner:
        # Whatever the scenario left behind may not block this for ever.
        owner.execute("select pg_terminate_backend(pid) from pg_locks"
                      " where relation = to_regclass(%s) and pid <> pg_backend_pid()", [name])
        owner.execute(f"drop table if exists {name}")


def until(question, seconds=20):
    """Asks until the answer is yes, and gives it."""
    deadline = time.monotonic() + seconds
    while not (answer := question()):
        assert time.monotonic() < deadline, f"{question} stayed {answer!r}"
        time.sleep(0.02)
    return answer


def is_running(watcher, marker):
    """Does PostgreSQL work at this moment on a statement that contains `marker`?"""
    return watcher.execute(
        "select count(*) from pg_stat_activity where state = 'active'"
        " and pid <> pg_backend_pid() and position(%s in query) > 0", [marker]).fetchone()[0]


def listen(one):
    """The notices from now on: (severity, state, message, detail, hint) of each."""
    heard = []
    one.add_notice_handler(lambda notice: heard.append((
        notice.severity_nonlocalized, notice.sqlstate, notice.message_primary,
        notice.message_detail, notice.message_hint)))
    return heard
