"""The descriptors of guests: a backend asks once for several, and uses only those that count."""

from direct.lobby import Lobby, ok, query, wait_for

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
        gone = len(pooler.needs)
        clients.pop(5).close()
        wait_for(lambda: len(pooler.generations) == GUESTS - 1)
        newcomer = pooler.client()
        for client in (newcomer, *clients):
            assert ok(client.query("SELECT 'mine'")).value() == "mine"
        assert {place for place, _ in pooler.needs[gone:]} == {5}, pooler.needs


def direct_descriptors_of_guests_that_have_left_are_not_used(run):
    with Lobby(run) as pooler:
        clients = [pooler.client() for _ in range(3)]
        wait_for(lambda: len(pooler.generations) == 3)
        # Those of other generations, and one of a place that does not exist.
        pooler.more = [(1, 77), (2, 0), (100_000, 1)]
        for number, client in enumerate(clients):
            assert ok(client.query(f"SELECT {number}")).value() == str(number)
        assert [place for place, _ in pooler.needs] == [0, 1, 2], pooler.needs


def direct_a_packet_with_a_wrong_count_ends_the_backend_alone(run):
    with Lobby(run, backends=2, deaths=1) as pooler:
        client = pooler.client()
        wait_for(lambda: pooler.generations)
        pooler.miscounts = True
        # The pooler closes a client whose descriptor could not be fetched.
        client.socket.sendall(query("SELECT 1"))
        assert client.socket.recv(1) == b""
        wait_for(lambda: pooler.alive() == 1)
        pooler.miscounts = False
        assert ok(pooler.client().query("SELECT 2")).value() == "2"
