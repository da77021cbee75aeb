"""Backends that serve the clients of a lobby: requests, answers, goodbyes, and the way out."""

import select
import struct
import threading
import time

from direct.lobby import SYNC, Lobby, ask, execute, message, move, ok, parse, query, wait_for
from pooler import BAD, ENDED, PARTIAL, RECALLED


def direct_one_backend_serves_many_clients(run):
    with Lobby(run) as pooler:
        clients = [pooler.client() for _ in range(10)]
        pids = set()
        for number, client in enumerate(clients * 3):
            answer = ok(client.query(f"SELECT {number}, pg_backend_pid()"))
            assert answer.texts()[0][0] == str(number)
            pids.add(answer.texts()[0][1])
        assert pids == {str(pooler.backends[0].process)}, pids


def direct_a_client_gets_no_report_and_is_told_its_parameters(run):
    with Lobby(run) as pooler:
        one, other = pooler.client(), pooler.client()
        assert ok(one.query("SELECT 1")).parameters["TimeZone"]
        answer = ok(one.query("SET TimeZone = 'Asia/Tokyo'"))
        assert answer.parameters["TimeZone"] == "Asia/Tokyo", answer.parameters
        assert not answer.reports
        ok(other.query("SELECT 1"))
        answer = ok(one.query("SELECT 2"))
        assert not answer.parameters, answer.parameters
        assert ok(other.query("SHOW TimeZone")).value() != "Asia/Tokyo"


def direct_long_batches_and_single_bytes(run):
    with Lobby(run, backends=2) as pooler:
        one, two = pooler.client(), pooler.client()
        ok(ask(one, parse("s", "SELECT 'one'") + SYNC))
        ok(ask(two, parse("s", "SELECT 'two'") + SYNC))
        for client, word in ((one, "one"), (two, "two")):
            answer = ok(ask(client, execute("s") * 3000 + SYNC))
            assert answer.texts() == [[word]] * 3000, len(answer.rows)
            long = parse("long", f"SELECT '{word}' || length('{'x' * 50_000}')") + execute("long")
            assert ok(ask(client, long + SYNC)).value() == f"{word}50000"
            for byte in query(f"SELECT '{word} slowly'"):
                client.socket.sendall(bytes([byte]))
                time.sleep(0.001)
            assert ok(client.take(client.until_ready())).value() == f"{word} slowly"
        assert any(reason == PARTIAL for _, reason in pooler.returned)
        answers = two.pipeline([f"SELECT {number}" for number in range(500)])
        assert [answer.value() for answer in answers] == [str(number) for number in range(500)]


def direct_a_client_that_leaves_costs_no_backend(run):
    with Lobby(run) as pooler:
        for farewell in (b"", message(b"X"), query("SELECT 1") + message(b"X")):
            client = pooler.client()
            ok(client.query("SELECT 1"))
            client.socket.sendall(farewell)
            if not farewell:
                client.close()
            count = len(pooler.returned)
            del count
        wait_for(lambda: [reason for _, reason in pooler.returned].count(ENDED) == 3)
        assert ok(pooler.client().query("SELECT 2")).value() == "2"


def direct_what_follows_a_goodbye_runs_for_nobody(run):
    with Lobby(run) as pooler:
        ok(run.session().query("DROP TABLE IF EXISTS behind"))
        for rest in (b"", b"Q", query("CREATE TABLE behind (a int)"), message(b"X"), b"junk" * 9):
            one, two = pooler.client(), pooler.client()
            one.socket.sendall(query("SELECT 1") + message(b"X") + rest)
            assert ok(one.take(one.until_ready())).value() == "1"
            for number in ("2", "3"):
                assert ok(two.query(f"SELECT {number}")).value() == number, rest
        assert ok(two.query("SELECT to_regclass('behind')")).texts() == [[None]]
        assert {reason for _, reason in pooler.returned} == {ENDED}, pooler.returned


def direct_lengths_that_no_message_has(run):
    with Lobby(run) as pooler:
        for length in (0, 3, 0x80000000, 0xFFFFFFFF):
            client = pooler.client()
            client.socket.sendall(b"Q" + struct.pack("!I", length) + b"junk")
            assert client.socket.recv(100) == b""
        assert [reason for _, reason in pooler.returned] == [BAD] * 4
        assert ok(pooler.client().query("SELECT 2")).value() == "2"


def direct_errors_stay_with_their_client(run):
    with Lobby(run) as pooler:
        one, two = pooler.client(), pooler.client()
        for _ in range(3):
            assert one.query("SELECT 1/0").errors[0][0] == "22012"
            assert ask(one, parse("x", "SELECT nothing") + execute("x") + SYNC).errors
            ok(one.query("BEGIN"))
            assert one.query("SELECT 1/0").status == "E"
            assert one.query("ROLLBACK").status == "I"
            assert ok(two.query("SELECT 1")).value() == "1"


def direct_copy_both_ways(run):
    with Lobby(run) as pooler:
        one, two = pooler.client(), pooler.client()
        ok(one.query("DROP TABLE IF EXISTS copied; CREATE TABLE copied (a int)"))
        lines = b"".join(b"%d\n" % number for number in range(20_000))
        one.socket.sendall(query("COPY copied FROM STDIN"))
        for at in range(0, len(lines), 9000):
            one.socket.sendall(message(b"d", lines[at:at + 9000]))
        one.socket.sendall(message(b"c"))
        ok(one.take(one.until_ready()))
        ok(two.query("COPY copied TO STDOUT"))
        assert ok(two.query("SELECT count(*) FROM copied")).value() == "20000"
        ok(two.query("DROP TABLE copied"))


def direct_a_backend_leaves_the_lobby_and_comes_back(run):
    with Lobby(run, backends=1) as pooler:
        client = pooler.client()
        ok(client.query("SET work_mem = '3MB'"))
        ok(ask(client, parse("s", "SELECT 7") + SYNC))
        pooler.send(0, 19)
        backend = pooler.backends[0]
        wait_for(lambda: getattr(backend, "left", False))
        assert ok(backend.query("SHOW work_mem")).value() == "4MB"
        assert ok(backend.query("SELECT count(*) FROM pg_prepared_statements")).value() == "0"
        pooler.send(0, 18)
        backend.socket.sendall(SYNC)
        assert ok(client.query("SHOW work_mem")).value() == "3MB"
        assert ok(ask(client, execute("s") + SYNC)).value() == "7"


def direct_a_recalled_client_comes_back_with_its_state(run):
    with Lobby(run, backends=2) as pooler:
        one = pooler.client()
        ok(one.query("SET app.kept = 'yes'"))
        two = pooler.client()  # the second place
        ok(two.query("BEGIN"))
        for place in (0, 1):
            pooler.recall(place)
        wait_for(lambda: (0, RECALLED) in pooler.returned)
        assert (1, RECALLED) not in pooler.returned
        one.socket.sendall(query("SHOW app.kept"))
        ok(two.query("COMMIT"))
        wait_for(lambda: (1, RECALLED) in pooler.returned)
        pooler.admit(0)
        assert ok(one.take(one.until_ready())).value() == "yes"


def direct_copy_data_behind_an_error_keeps_no_backend(run):
    """The client has not read the error yet, and sends on."""
    with Lobby(run) as pooler:
        one, two = pooler.client(), pooler.client()
        two.socket.settimeout(5)
        ok(two.query("CREATE TABLE IF NOT EXISTS strays (a int)"))
        begin = query("COPY strays FROM STDIN") + message(b"d", b"no number\n") + message(b"c")
        for size in (0, 2, 8187, 8188, 100_000):
            late = message(b"d", b"1\n" * (size // 2))
            for cut in (0, 5, max(5, len(late) // 2), len(late)):
                # Some of it is there before the error, and some comes later.
                answer = ask(one, begin + late[:cut])
                assert [code for code, _ in answer.errors] == ["22P02"], answer
                assert ok(two.query("SELECT 2")).value() == "2"
                one.socket.sendall(late[cut:])
                assert ok(two.query("SELECT 3")).value() == "3"
                one.socket.sendall(message(b"d", b"1\n") * 200 + message(b"c"))
                assert ok(two.query("SELECT 4")).value() == "4"
                assert ok(one.query("SELECT count(*) FROM strays")).value() == "0"
                # The rest comes together with a request.
                ok(ask(one, message(b"d", b"1\n") * 3 + message(b"f", b"no\0") + query("SELECT 5")))
        one.socket.sendall(message(b"d", b"1\n") + message(b"X"))
        wait_for(lambda: pooler.returned)
        assert ok(two.query("SELECT count(*) FROM strays")).value() == "0"


def direct_a_long_late_message_delays_others_by_a_part_of_it(run):
    with Lobby(run) as pooler:
        late = pooler.client()
        ok(late.query("SELECT 1"))
        before, behind = pooler.client(), pooler.client()
        length = 16 << 20
        ok(before.query("BEGIN"))
        sender = threading.Thread(
            target=late.socket.sendall, args=(message(b"d", b"1\n" * (length // 2)),), daemon=True
        )
        sender.start()
        wait_for(lambda: is_full(late.socket))
        behind.socket.sendall(query("BEGIN"))
        ok(before.query("COMMIT"))
        # The backend is this client's now, and does not read on.
        ok(behind.take(behind.until_ready()))
        read = length + 5 - pooler.stray(0)
        assert 0 < read <= 64 * 8192, read
        ok(behind.query("COMMIT"))
        sender.join()
        assert ok(late.query("SELECT 1")).value() == "1"


def is_full(connection):
    return not select.select([], [connection], [], 0)[1]


def direct_parameters_are_told_within_a_transaction(run):
    """Drivers quote and decode by them at once."""
    with Lobby(run) as pooler:
        one, other = pooler.client(), pooler.client()
        ok(other.query("SET standard_conforming_strings = off; SET client_encoding = 'LATIN1'"))
        for end in ("COMMIT", "ROLLBACK"):
            ok(one.query("SELECT 1"))
            assert not ok(one.query("BEGIN")).parameters
            answer = ok(one.query("SET standard_conforming_strings = off"))
            assert answer.parameters["standard_conforming_strings"] == "off", answer.parameters
            answer = one.query("SELECT 1/0")
            assert answer.errors and answer.parameters["standard_conforming_strings"] == "on"
            assert not ok(one.query("ROLLBACK")).parameters
            # The backend tells this value to the other client before.
            ok(other.query("SELECT 1"))
            answer = ok(one.query("BEGIN; SET client_encoding = 'LATIN1'"))
            assert answer.parameters["client_encoding"] == "LATIN1", answer.parameters
            answer = ok(one.query(f"SET client_encoding = 'UTF8'; {end}"))
            assert answer.parameters["client_encoding"] == "UTF8", answer.parameters


def direct_a_client_is_told_what_it_has_changed_and_no_more(run):
    """Other clients have used the backend meanwhile, with other settings."""
    with Lobby(run) as pooler:
        one, two = pooler.client(), pooler.client()
        ok(two.query("SET TimeZone = 'Africa/Cairo'; SET IntervalStyle = 'iso_8601'"))
        ok(one.query("SELECT 1"))
        for zone in ("Asia/Tokyo", "Europe/Rome"):
            ok(two.query("SELECT 1"))
            assert ok(one.query(f"SET TimeZone = '{zone}'")).parameters == {"TimeZone": zone}
            ok(two.query("SELECT 1"))
            assert not ok(one.query("SELECT 1")).parameters
            ok(two.query("SELECT 1"))
            ok(one.query("BEGIN"))
            answer = ok(one.query("SET IntervalStyle = 'sql_standard'"))
            assert answer.parameters == {"IntervalStyle": "sql_standard"}, answer.parameters
            answer = ok(one.query("ROLLBACK"))
            assert answer.parameters == {"IntervalStyle": "postgres"}, answer.parameters
            assert not ok(two.query("SHOW IntervalStyle")).parameters
    # A new backend has told nobody anything.
    with Lobby(run, backends=2, deaths=1) as pooler:
        client = pooler.client()
        ok(client.query("SELECT 1"))
        move(run, pooler, client)
        answer = ok(client.query("SET TimeZone = 'Asia/Tokyo'"))
        assert answer.parameters == {"TimeZone": "Asia/Tokyo"}, answer.parameters
