"""The descriptors of guests: a backend asks once for several, and uses only those that count."""

import os

from direct.lobby import Lobby, ok, query, wait_for
from direct.orders import running
from pooler import BASE, ENLIST, LEAVE

GUESTS = 20


def direct_descriptors_of_other_guests_come_with_one(run):
    with Lobby(run, backends=2) as pooler:
        pooler.gives_all = True
        clients = [pooler.client() for _ in range(GUESTS)]
        wait_for(lambda: len(pooler.generations) == GUESTS)
        for _ in range(3):
            for number, client in enumerate(clients):
                assert ok(client.query(f"SELECT {number}")).value() == str(number)
        assert 1 <= len(pooler.needs) <= 2, pooler.needs
        # A new client in the place of an old one has another descriptor.
        asked = len(pooler.needs)
        clients.pop(5).close()
        wait_for(lambda: len(pooler.generations) == GUESTS - 1)
        gone = set(range(GUESTS)) - set(pooler.generations)
        newcomer = pooler.client()
        for client in (newcomer, *clients):
            assert ok(client.query("SELECT 'mine'")).value() == "mine"
        assert {place for place, _ in pooler.needs[asked:]} == gone, pooler.needs


def direct_descriptors_of_guests_that_have_left_are_not_used(run):
    with Lobby(run) as pooler:
        clients = [pooler.client() for _ in range(3)]
        wait_for(lambda: len(pooler.generations) == 3)
        # Those of other generations, and one of a place that does not exist.
        pooler.more = [(1, 77), (2, 0), (100_000, 1)]
        for number, client in enumerate(clients):
            assert ok(client.query(f"SELECT {number}")).value() == str(number)
        assert sorted(place for place, _ in pooler.needs) == [0, 1, 2], pooler.needs


def direct_a_packet_with_a_wrong_count_ends_the_backend_alone(run):
    for fault in ("miscounts", "uncounted"):
        with Lobby(run, backends=2, deaths=1) as pooler:
            client = pooler.client()
            wait_for(lambda: pooler.generations)
            setattr(pooler, fault, True)
            # The pooler closes a client whose descriptor could not be fetched.
            client.socket.sendall(query("SELECT 1"))
            assert client.socket.recv(1) == b""
            wait_for(lambda: pooler.alive() == 1)
            setattr(pooler, fault, False)
            assert ok(pooler.client().query("SELECT 2")).value() == "2"


def direct_guests_have_no_numbers_that_the_server_may_use(run):
    with Lobby(run) as pooler:
        pooler.base = int(ok(run.session().query("SHOW max_files_per_process")).value())
        pooler.enlist()
        wait_for(lambda: pooler.alive() == 1)


def numbers_of_guests(process):
    return [int(one) for one in os.listdir(f"/proc/{process}/fd") if int(one) >= BASE]


def direct_a_backend_that_has_left_keeps_no_descriptor(run):
    with Lobby(run) as pooler:
        pooler.gives_all = True
        clients = [pooler.client() for _ in range(GUESTS)]
        wait_for(lambda: len(pooler.generations) == GUESTS)
        ok(clients[0].query("SELECT 1"))
        backend = pooler.backends[0]
        assert len(numbers_of_guests(backend.process)) == GUESTS
        pooler.send(0, LEAVE)
        wait_for(lambda: getattr(backend, "left", False))
        assert numbers_of_guests(backend.process) == []
        # It may come back.
        pooler.send(0, ENLIST)
        ok(backend.query("SELECT 1"))
        for number, client in enumerate(clients):
            assert ok(client.query(f"SELECT {number}")).value() == str(number)


def direct_a_backend_without_a_pooler_keeps_the_guest_that_it_serves_alone(run):
    with Lobby(run) as pooler:
        pooler.gives_all = pooler.ends = True
        clients = [pooler.client() for _ in range(GUESTS)]
        wait_for(lambda: len(pooler.generations) == GUESTS)
        with running(run, clients[0]):
            wait_for(lambda: len(numbers_of_guests(pooler.backends[0].process)) == 1)
