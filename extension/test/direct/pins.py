"""What keeps a client at its backend."""

import select
import socket
import struct
import time

from direct.lobby import SYNC, Lobby, ask, execute, message, ok, parse, query, wait_for
from pooler import HOLDING, PINNED_IDLE, RECALL_ASKED, RECALLED, SERVING, SLEEPING
from servers import PATIENCE_S


def direct_what_cannot_move_keeps_its_backend(run):
    for text in (
        "CREATE TEMP TABLE mine (a int)", "SELECT pg_advisory_lock(1)", "LISTEN here",
        "PREPARE p AS SELECT 1", "BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT 1; COMMIT",
        "SELECT setseed(0.5)", "SET ROLE pg_monitor", "SELECT setseed(0.5); BEGIN; ROLLBACK",
    ):
        with Lobby(run, backends=2, deaths=1) as pooler:
            one, two = pooler.client(), pooler.client()
            ok(one.query(text))
            pid = ok(one.query("SELECT pg_backend_pid()")).value()
            for _ in range(5):
                assert ok(two.query("SELECT pg_backend_pid()")).value() != pid, text
                assert ok(one.query("SELECT pg_backend_pid()")).value() == pid, text
            one.socket.sendall(message(b"X"))
            wait_for(lambda: pooler.alive() == 1)
            assert ok(two.query("SELECT 1")).value() == "1"


def direct_a_cursor_that_has_failed_keeps_its_backend(run):
    with Lobby(run, backends=2, deaths=1) as pooler:
        one, two = pooler.client(), pooler.client()
        ok(one.query("BEGIN; DECLARE c NO SCROLL CURSOR WITH HOLD FOR SELECT 1; COMMIT"))
        assert [code for code, _ in one.query("FETCH BACKWARD FROM c").errors] == ["55000"]
        for _ in range(5):
            assert ok(two.query("SELECT count(*) FROM pg_cursors")).value() == "0"
            assert ok(one.query("SELECT count(*) FROM pg_cursors")).value() == "1"
        one.socket.sendall(message(b"X"))
        wait_for(lambda: pooler.alive() == 1)


def direct_a_temporary_slot_keeps_its_backend_at_once(run):
    """What it leaves is seen at the end of the very transaction that makes it."""
    with Lobby(run, deaths=1) as pooler:
        client = pooler.client()
        ok(client.query("SELECT pg_create_physical_replication_slot('mine', false, true)"))
        wait_for(lambda: pooler.activity(0) != SERVING)
        assert pooler.activity(0) == PINNED_IDLE
        client.close()
        wait_for(lambda: pooler.alive() == 0)


def direct_dropping_what_pins_frees_the_backend(run):
    with Lobby(run) as pooler:
        one, two = pooler.client(), pooler.client()
        ok(one.query("CREATE TEMP TABLE mine (a int); SELECT pg_advisory_lock(3)"))
        ok(one.query("DROP TABLE mine; SELECT pg_advisory_unlock(3)"))
        assert ok(two.query("SELECT 1")).value() == "1"


def direct_the_line_tells_when_a_pinned_client_runs_nothing(run):
    with Lobby(run) as pooler:
        client = pooler.client()
        ok(ask(client, parse("sleep", "SELECT pg_sleep(0.3)") + SYNC))
        assert pooler.activity(0) != PINNED_IDLE
        ok(client.query("SELECT pg_advisory_lock(5)"))
        for data in (query("SELECT pg_sleep(0.3)"), execute("sleep") + SYNC, query("BEGIN")):
            wait_for(lambda: pooler.activity(0) == PINNED_IDLE)
            client.socket.sendall(data)
            wait_for(lambda: pooler.activity(0) == SERVING)
            ok(client.take(client.until_ready()))
        time.sleep(0.1)
        assert pooler.activity(0) == SERVING, "a transaction is open"
        ok(client.query("COMMIT"))
        wait_for(lambda: pooler.activity(0) == PINNED_IDLE)
        ok(client.query("SELECT pg_advisory_unlock(5)"))
        wait_for(lambda: pooler.activity(0) not in (PINNED_IDLE, SERVING))


def direct_a_notification_is_no_work_of_a_pinned_client(run):
    with Lobby(run) as pooler:
        client = pooler.client()
        ok(client.query("LISTEN news"))
        wait_for(lambda: pooler.activity(0) == PINNED_IDLE)
        ok(run.session().query("NOTIFY news, 'one'"))
        kind, length = struct.unpack("!cI", client.socket.recv(5, socket.MSG_WAITALL))
        body = client.socket.recv(length - 4, socket.MSG_WAITALL)
        assert kind == b"A" and body.endswith(b"news\0one\0"), (kind, body)
        assert pooler.activity(0) == PINNED_IDLE
        ok(client.query("UNLISTEN news"))


NUMBERS = """
DROP SEQUENCE IF EXISTS drawn; CREATE SEQUENCE drawn;
DROP TABLE IF EXISTS identities; CREATE TABLE identities (a int GENERATED ALWAYS AS IDENTITY, b int);
DROP TABLE IF EXISTS serials; CREATE TABLE serials (a serial, b int)
"""


DRAWS = (
    "SELECT nextval('drawn')", "SELECT setval('drawn', 7)", "INSERT INTO identities (b) VALUES (1)",
    "INSERT INTO serials (b) VALUES (1)",
)


def direct_a_number_is_not_told_to_another_client(run):
    ok(run.session().query(NUMBERS))
    for draw in DRAWS:
        for ask in ("SELECT lastval()", "SELECT currval('drawn')"):
            with Lobby(run) as pooler:
                one, two = pooler.client(), pooler.client()
                ok(one.query(draw))
                assert [code for code, _ in two.query(ask).errors] == ["55000"], (draw, ask)
                number = ok(two.query("SELECT nextval('drawn')")).value()
                assert ok(two.query(ask)).value() == number


QUESTIONS = (
    (DRAWS[0], "SELECT lastval()", "SELECT last_value FROM drawn"),
    (DRAWS[1], "SELECT currval('drawn')", "SELECT 7"),
    (DRAWS[2], "SELECT currval('identities_a_seq')", "SELECT max(a) FROM identities"),
    (DRAWS[3], "SELECT currval('serials_a_seq')", "SELECT max(a) FROM serials"),
)


def direct_a_client_finds_its_numbers_if_no_other_was_served(run):
    ok(run.session().query(NUMBERS))
    for draw, question, answer in QUESTIONS:
        with Lobby(run) as pooler:
            client = pooler.client()
            ok(client.query(draw))
            for _ in range(8):
                ok(client.query("SELECT 1"))
            number = ok(client.query(answer)).value()
            assert ok(client.query(question)).value() == number, draw


def direct_others_wait_for_a_client_that_may_ask_for_its_number(run):
    ok(run.session().query(NUMBERS))
    for other in ("SELECT 1", "BEGIN; SELECT 1; COMMIT"):
        with Lobby(run, backends=2) as pooler:
            busy, draws, waits = (pooler.client() for _ in range(3))
            ok(busy.query("BEGIN"))
            ok(draws.query("INSERT INTO serials (b) VALUES (1)"))
            waits.socket.sendall(query("SELECT 'served'"))
            for _ in range(3):
                ok(draws.query(other))
            number = ok(draws.query("SELECT max(a) FROM serials")).value()
            assert ok(draws.query("SELECT lastval()")).value() == number
            ok(busy.query("COMMIT"))
            assert ok(waits.take(waits.until_ready())).value() == "served"


def direct_a_hold_ends_by_itself_and_is_tried_a_few_times_only(run):
    ok(run.session().query(NUMBERS))
    with Lobby(run) as pooler:
        draws, waits = pooler.client(), pooler.client()
        ok(draws.query("SELECT nextval('drawn')"))
        wait_for(lambda: pooler.activity(0) == HOLDING)
        assert ok(waits.query("SELECT 'served'")).value() == "served"
        assert pooler.silent() == 1
        ok(draws.query("SELECT nextval('drawn')"))
        for _ in range(5):
            ok(draws.query("SELECT 1"))
        assert pooler.silent() == 2
        # On a slow machine, the longest time of a hold may pass meanwhile.
        for _ in range(20):
            if pooler.silent() < 16:
                ok(draws.query("SELECT nextval('drawn')"))
        assert pooler.silent() == 16
        ok(draws.query("SELECT nextval('drawn')"))
        wait_for(lambda: pooler.activity(0) != SERVING)
        assert pooler.activity(0) == SLEEPING


def direct_a_backend_that_holds_returns_its_client(run):
    ok(run.session().query(NUMBERS))
    with Lobby(run) as pooler:
        client = pooler.client()
        ok(client.query("SELECT nextval('drawn')"))
        wait_for(lambda: pooler.activity(0) == HOLDING)
        assert pooler.recall(0) == RECALL_ASKED
        wait_for(lambda: (0, RECALLED) in pooler.returned)
        ok(pooler.client().query("SELECT 1"))
        wait_for(lambda: pooler.activity(0) != SERVING)
        assert (pooler.activity(0), pooler.silent()) == (SLEEPING, 0)
        pooler.admit(0)
        ok(client.query("SELECT 1"))


def direct_a_client_outlives_the_backend_that_holds_it(run):
    ok(run.session().query(NUMBERS))
    with Lobby(run, backends=2, deaths=1) as pooler:
        client = pooler.client()
        ok(client.query("SET work_mem = '5MB'"))
        serving = ok(client.query("SELECT pg_backend_pid(), nextval('drawn')")).value()
        run.session().query(f"SELECT pg_terminate_backend({serving})")
        wait_for(lambda: pooler.alive() == 1)
        assert ok(client.query("SHOW work_mem")).value() == "5MB"


def direct_an_older_number_is_not_told(run):
    """The client draws in one backend, then in another, which ends. The first one serves it again."""
    ok(run.session().query(NUMBERS))
    draw = "SELECT pg_backend_pid(), nextval('drawn')"
    with Lobby(run, backends=2, deaths=1) as pooler:
        client, busy = pooler.client(), pooler.client()
        for _ in range(17):
            ok(client.query(draw))
        ok(busy.query("BEGIN"))
        first = ok(client.query(draw)).value()
        wait_for(lambda: SLEEPING in (pooler.activity(0), pooler.activity(1)))
        ok(busy.query("COMMIT"))
        busy.close()
        wait_for(lambda: pooler.activity(0) == pooler.activity(1) == SLEEPING)
        second = ok(client.query(draw)).value()
        assert second != first, (first, second)
        run.session().query(f"SELECT pg_terminate_backend({second})")
        wait_for(lambda: pooler.alive() == 1)
        assert ok(client.query("SELECT pg_backend_pid()")).value() == first
        assert [code for code, _ in client.query("SELECT currval('drawn')").errors] == ["55000"]


def direct_numbers_end_with_their_client(run):
    """The next one at its place has another generation."""
    ok(run.session().query(NUMBERS))
    with Lobby(run) as pooler:
        client = pooler.client()
        ok(client.query("SELECT nextval('drawn')"))
        client.close()
        wait_for(lambda: pooler.returned and not pooler.generations)
        other = pooler.client()
        assert [code for code, _ in other.query("SELECT lastval()").errors] == ["55000"]


def direct_a_client_that_asks_lets_others_be_served(run):
    """One backend serves all. The client that asks neither rests nor leaves."""
    ok(run.session().query(NUMBERS))
    draw = "INSERT INTO serials (b) VALUES (1)"
    for busy in ((draw, "SELECT lastval()"), ("BEGIN; INSERT INTO serials (b) VALUES (1)",
                 "SELECT lastval(); COMMIT"), (draw,), ("SELECT 1",)):
        with Lobby(run) as pooler:
            asks, waits = pooler.client(), pooler.client()
            ok(asks.query(draw))
            ok(asks.query("SELECT lastval()"))
            waits.socket.sendall(query("SELECT 'served'"))
            deadline = time.monotonic() + PATIENCE_S
            while not select.select([waits.socket], [], [], 0)[0]:
                assert time.monotonic() < deadline, busy
                for text in busy:
                    ok(asks.query(text))
            assert ok(waits.take(waits.until_ready())).value() == "served"
            # It has drawn no number since.
            assert [code for code, _ in asks.query("SELECT lastval()").errors] in (["55000"], [])
            ok(asks.query(draw))
            number = ok(asks.query("SELECT max(a) FROM serials")).value()
            assert ok(asks.query("SELECT lastval()")).value() == number


def direct_a_client_that_asks_may_pause_before_its_question(run):
    ok(run.session().query(NUMBERS))
    with Lobby(run) as pooler:
        asks, waits = pooler.client(), pooler.client()
        for pause in (0, 0.5):
            ok(asks.query("INSERT INTO serials (b) VALUES (1)"))
            waits.socket.sendall(query("SELECT 'served'"))
            time.sleep(pause)
            ok(asks.query("SELECT lastval()"))
            assert ok(waits.take(waits.until_ready())).value() == "served"


def direct_holds_are_worthwhile_again_when_a_client_asks(run):
    ok(run.session().query(NUMBERS))
    with Lobby(run) as pooler:
        client = pooler.client()
        while pooler.silent() < 16:
            ok(client.query("SELECT nextval('drawn')"))
        ok(client.query("SELECT lastval()"))
        assert pooler.silent() == 0
        ok(client.query("SELECT nextval('drawn')"))
        wait_for(lambda: pooler.activity(0) == HOLDING)
