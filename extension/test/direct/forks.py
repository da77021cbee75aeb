"""Processes that a function has forked in a backend."""

import os
import signal
from pathlib import Path

from direct.lobby import Lobby, is_running, ok, query, wait_for
from pooler import CANCEL
from servers import run as run_command


def make_function(run):
    module = run.work / f"forks-{run.major}.so"
    if not module.exists():
        include = run.installation.ask("includedir-server")
        source = Path(__file__).with_suffix(".c")
        run_command(["gcc", "-shared", "-fPIC", f"-I{include}", source, "-o", module])
    ok(run.session().query(
        f"CREATE OR REPLACE FUNCTION fork_child() RETURNS int LANGUAGE C AS '{module}', 'fork_child'"
    ))


def has_ended(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def direct_a_forked_process_takes_no_order(run):
    make_function(run)
    with Lobby(run) as pooler:
        client = pooler.client()
        child = int(ok(client.query("BEGIN; SELECT fork_child()")).value())
        client.socket.sendall(query("SELECT pg_sleep(65)"))
        wait_for(lambda: is_running(run, "SELECT pg_sleep(65)"))
        transaction = pooler.transaction(0)
        pooler.order(0, CANCEL, transaction, to=child)
        wait_for(lambda: has_ended(child) or pooler.word(0, CANCEL) == 0)
        assert pooler.word(0, CANCEL) == transaction, "the child has taken the order"
        pooler.interrupt(0)
        assert [code for code, _ in client.take(client.until_ready()).errors] == ["57014"]
        ok(client.query("ROLLBACK"))


def direct_signals_end_a_forked_process(run):
    """As they do in a backend that serves no clients, from PostgreSQL 17 on."""
    make_function(run)
    with Lobby(run) as pooler:
        client = pooler.client()
        for number in (signal.SIGINT, signal.SIGIO):
            child = int(ok(client.query("SELECT fork_child()")).value())
            os.kill(child, number)
            wait_for(lambda child=child: has_ended(child))
            assert ok(client.query("SELECT 9")).value() == "9"
