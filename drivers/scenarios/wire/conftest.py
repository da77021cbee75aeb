"""Helpers of the scenarios: connections that are closed afterwards, and names and tables of their
own."""

import itertools
import os
import time

import pytest

from wire import Connection, query

NUMBERS = itertools.count()


@pytest.fixture
def connect():
    """Opens connections; those still open at the end are closed."""
    opened = []

    def open_one(*args, **parameters):
        opened.append(Connection(*args, **parameters))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture
def watcher():
    """A connection to look at the others from."""
    one = Connection()
    yield one
    one.close()


@pytest.fixture
def name():
    """A name that no other test of this run and no other run on this server uses."""
    return f"t{os.getpid()}_{next(NUMBERS)}"


@pytest.fixture
def table(name, watcher):
    """A table (id int primary key, data text), seen by all and dropped at the end."""
    watcher.talk(query(f"create table {name} (id int primary key, data text)"))
    yield name
    # Whatever the scenario left behind may not block this for ever.
    watcher.talk(query("select pg_terminate_backend(pid) from pg_locks"
                       f" where relation = to_regclass('{name}') and pid <> pg_backend_pid()"))
    watcher.talk(query(f"drop table if exists {name}"))


def until(question, seconds=20):
    """Asks until the answer is yes, and gives it."""
    deadline = time.monotonic() + seconds
    while not (answer := question()):
        assert time.monotonic() < deadline, f"{question} stayed {answer!r}"
        time.sleep(0.02)
    return answer


def count(one, what):
    """Returns the number that `select count(*) from …` gives."""
    words = one.talk(query(f"select count(*) from {what}"))
    row = next(word for word in words.split(" ") if word.startswith("D:"))
    return int(row[2:])


def running(watcher, marker):
    """Returns how many backends run a statement that contains `marker`."""
    return count(watcher, "pg_stat_activity where state = 'active' and pid <> pg_backend_pid()"
                          f" and position('{marker}' in query) > 0")
