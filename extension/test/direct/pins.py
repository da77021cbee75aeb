"""What keeps a client at its backend."""

import time

from direct.lobby import SYNC, Lobby, ask, execute, message, ok, parse, query, wait_for
from pooler import PINNED_IDLE, SERVING


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


def direct_who_draws_stays_where_clients_ask(run):
    ok(run.session().query(NUMBERS))
    with Lobby(run, backends=2) as pooler:
        clients = [pooler.client() for _ in range(4)]
        for _ in range(3):
            for client in clients:
                ok(client.query("SELECT nextval('drawn')"))
    with Lobby(run, backends=3) as pooler:
        asks, draws, other = (pooler.client() for _ in range(3))
        assert [code for code, _ in asks.query("SELECT lastval()").errors] == ["55000"]
        ok(draws.query("INSERT INTO serials (b) VALUES (1)"))
        pid = ok(draws.query("SELECT pg_backend_pid()")).value()
        number = ok(draws.query("SELECT max(a) FROM serials")).value()
        for _ in range(5):
            assert ok(other.query("SELECT pg_backend_pid()")).value() != pid
        assert ok(draws.query("SELECT lastval()")).value() == number
