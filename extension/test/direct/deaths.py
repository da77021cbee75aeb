"""Clients, backends and servers that end."""

import os
import select
import signal
import time

from direct.lobby import SYNC, Lobby, ask, execute, ok, parse, query, wait_for
from pooler import ARMED, LINGERING, SLEEPING
from session import Session


def direct_a_backend_that_ends_takes_its_guest_only(run):
    with Lobby(run, backends=2, deaths=1) as pooler:
        one, two = pooler.client(), pooler.client()
        ok(two.query("SET work_mem = '5MB'"))
        ok(one.query("BEGIN"))
        pid = ok(one.query("SELECT pg_backend_pid()")).value()
        ok(two.query(f"SELECT pg_terminate_backend({pid})"))
        wait_for(lambda: pooler.alive() == 1)
        try:
            one.query("SELECT 1")
            raise AssertionError("the session goes on")
        except OSError:
            pass
        assert ok(two.query("SHOW work_mem")).value() == "5MB"


def direct_a_backend_ends_while_it_waits(run):
    with Lobby(run, backends=2, deaths=2) as pooler:
        client = pooler.client()
        serving = int(ok(client.query("SELECT pg_backend_pid()")).value())
        # The backend that has served the client may linger with it. The other one waits.
        waiting = next(one for one in pooler.backends.values() if one.process != serving)
        waiting.expected = True
        run.session().query(f"SELECT pg_terminate_backend({waiting.process})")
        wait_for(lambda: pooler.alive() == 1)
        assert ok(client.query("SELECT pg_backend_pid()")).value() == str(serving)
        run.session().query(f"SELECT pg_terminate_backend({serving})")
        wait_for(lambda: pooler.alive() == 0)


def direct_a_client_outlives_the_backend_that_lingers_with_it(run):
    with Lobby(run, backends=2, deaths=1) as pooler:
        client = pooler.client()
        ok(client.query("SET work_mem = '5MB'"))
        serving = int(ok(client.query("SELECT pg_backend_pid()")).value())
        run.session().query(f"SELECT pg_terminate_backend({serving})")
        wait_for(lambda: pooler.alive() == 1)
        assert ok(client.query("SHOW work_mem")).value() == "5MB"


def direct_a_client_lost_in_a_transaction_ends_it(run):
    with Lobby(run, backends=2, deaths=1) as pooler:
        one, two = pooler.client(), pooler.client()
        ok(one.query("DROP TABLE IF EXISTS lost; CREATE TABLE lost (a int)"))
        ok(one.query("BEGIN; INSERT INTO lost VALUES (1)"))
        one.close()
        wait_for(lambda: pooler.alive() == 1)
        assert ok(two.query("SELECT count(*) FROM lost")).value() == "0"
        ok(two.query("DROP TABLE lost"))


def direct_clients_at_rest_outlive_a_crash_of_the_server(run):
    with Lobby(run, backends=2, deaths=1) as pooler:
        one, two = pooler.client(), pooler.client()
        ok(one.query("SET app.kept = 'yes'"))
        ok(ask(one, parse("s", "SELECT 'mine'") + SYNC))
        ok(two.query("BEGIN"))
        # The backend that lingers with it has put it at rest.
        wait_for(lambda: pooler.state(0) == ARMED)
        os.kill(pooler.backends[0].process, signal.SIGKILL)
        wait_for(lambda: pooler.alive() == 0)
        run.cluster.wait_until_ready()
        pooler.enlist()
        assert ok(one.query("SHOW app.kept")).value() == "yes"
        assert ok(ask(one, execute("s") + SYNC)).value() == "mine"
        # Its backend may have had the time to say why.
        while two.socket.recv(1000):
            pass


def direct_a_client_outlives_a_crash_of_the_backend_that_lingers_with_it(run):
    with Lobby(run, backends=2, deaths=1) as pooler:
        # It lingers only if the other one sleeps.
        wait_for(lambda: all(pooler.activity(number) == SLEEPING for number in pooler.backends))
        client = pooler.client()
        ok(client.query("SET work_mem = '5MB'"))
        serving = int(ok(client.query("SELECT pg_backend_pid()")).value())
        number = next(
            at for at, backend in pooler.backends.items() if backend.process == serving
        )
        wait_for(lambda: pooler.activity(number) == LINGERING)
        os.kill(serving, signal.SIGKILL)
        wait_for(lambda: pooler.alive() == 0)
        run.cluster.wait_until_ready()
        pooler.enlist()
        assert ok(client.query("SHOW work_mem")).value() == "5MB"


def direct_signals_do_not_lengthen_the_wait_for_the_pooler(run):
    """Weir is silent for longer than the five seconds for which a backend waits."""
    with Lobby(run, backends=0) as pooler:
        observer = run.session()
        backend = Session(run.cluster.port, "postgres", weir__report=1, weir__ticket="of nobody",
                          application_name="waits")
        text = "SELECT pid FROM pg_stat_activity WHERE application_name = 'waits'"
        pid = int(ok(observer.query(text)).value())
        control, _ = pooler.control.accept()
        begin = time.monotonic()
        backend.socket.sendall(query("SELECT 'on its own'"))
        while not select.select([backend.socket], [], [], 0.2)[0]:
            os.kill(pid, signal.SIGUSR1)
            assert time.monotonic() - begin < 9, "it still waits"
        assert ok(backend.take(backend.until_ready())).value() == "on its own"
        for one in (control, backend, observer):
            one.close()
