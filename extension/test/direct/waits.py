"""Guests that share the sets with which core waits (waits.c): it waits for the one that it serves."""

import os
from pathlib import Path

from direct.lobby import Lobby, ask, ok, query, wait_for
from session import Session

# The backend has 160 sets, so guests with this distance share one.
SETS = 160
PARTNERS = [(guest, guest + SETS) for guest in range(0, 30, 7)]
LONG = "SELECT repeat('w', 1000) FROM generate_series(1, 20000)"


def ticks(pid):
    """The CPU time of a process."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(words[11]) + int(words[12])


def waits(run, pid, event):
    """It waits, and does nothing else."""
    observer = Session(run.cluster.port, "postgres")
    text = f"SELECT wait_event FROM pg_stat_activity WHERE pid = {pid}"
    wait_for(lambda: ok(observer.query(text)).value() == event)
    before = ticks(pid)
    ok(observer.query("SELECT pg_sleep(0.1)"))
    used = (ticks(pid) - before) / os.sysconf("SC_CLK_TCK")
    assert used <= 0.05, f"{used} s of CPU time while it waits: {event}"
    observer.close()


def is_read(run, guest, pid):
    """Core waits for the rest of a message."""
    text = query("SELECT 'whole'")
    guest.socket.sendall(text[:7])
    waits(run, pid, "ClientRead")
    assert ok(ask(guest, text[7:])).value() == "whole"


def is_served(run, guest):
    """In one transaction: core waits for bytes, for room to write, and for bytes again."""
    pid = ok(guest.query("BEGIN; SELECT pg_backend_pid()")).value()
    is_read(run, guest, pid)
    guest.socket.sendall(query(LONG))
    waits(run, pid, "ClientWrite")
    assert len(guest.take(guest.until_ready()).rows) == 20000
    is_read(run, guest, pid)
    ok(guest.query("COMMIT"))


def direct_guests_share_the_sets_with_which_core_waits(run):
    with Lobby(run) as pooler:
        guests = [pooler.client() for _ in range(SETS + 30)]
        for guest in guests:
            assert ok(guest.query("SELECT 7")).value() == "7"
        # The second of each pair has the set. Core has waited for neither.
        for one, other in PARTNERS:
            for number in (other, one, other):
                is_served(run, guests[number])
        # The places of some have other guests, and the backend has had the sockets of both.
        for one, other in PARTNERS:
            guests[other].close()
            wait_for(lambda place=other: place not in pooler.generations)
            guests[other] = pooler.client()
            is_served(run, guests[other])
            is_served(run, guests[one])
        for guest in guests:
            assert ok(guest.query("SELECT 8")).value() == "8"
            guest.close()
