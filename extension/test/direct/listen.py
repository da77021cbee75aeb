"""A client that listens leaves the lobby with its backend."""

import select
import socket
import struct

from direct.lobby import SYNC, Lobby, ask, execute, message, ok, parse, wait_for
from pooler import GO, LEAVE, LEAVING, LISTENS, PINNED_IDLE
from servers import PATIENCE_S


def notification(session):
    """Its channel and its text, if that is the next message."""
    kind, length = struct.unpack("!cI", session.socket.recv(5, socket.MSG_WAITALL))
    body = session.socket.recv(length - 4, socket.MSG_WAITALL)
    assert kind == b"A", (kind, body)
    return tuple(body[4:-1].decode().split("\0"))


def is_silent(session, seconds):
    return not select.select([session.socket], [], [], seconds)[0]


def leaves(pooler):
    wait_for(lambda: pooler.returned)
    assert pooler.returned == [(0, LISTENS)], pooler.returned
    wait_for(lambda: pooler.activity(0) == LEAVING)


def direct_a_client_that_listens_leaves_with_its_backend(run):
    with Lobby(run, deaths=1) as pooler:
        pooler.give_up_listeners()
        client, home = pooler.client(work_mem="6MB"), pooler.backends[0]
        ok(client.query("SET maintenance_work_mem = '9MB'; SET app.x = 'y'"))
        ok(ask(client, parse("s", "SELECT 'own'") + SYNC))
        ok(client.query('LISTEN news; LISTEN "a;b"'))
        leaves(pooler)
        assert pooler.leaver(0) == 0
        state, channels = pooler.left_state(0)
        assert b";s:maintenance_work_mem=9MB" in state and b";d:work_mem=6MB" in state, state
        assert b"SELECT 'own'" in state, state
        assert sorted(channels.split(b";")) == [b"", b"l:a\\073b", b"l:news"], channels
        # Nothing is told before Weir has the client, whatever else Weir says.
        ok(run.session().query("NOTIFY news, 'one'"))
        pooler.send(0, LEAVE)
        assert is_silent(home, 0.3) and is_silent(client, 0)
        pooler.send(0, GO)
        wait_for(lambda: getattr(home, "left", False))
        assert notification(home) == ("news", "one")
        # The session is that of an ordinary backend, which listens.
        for name, value in (("work_mem", "4MB"), ("maintenance_work_mem", "64MB")):
            assert ok(home.query(f"SHOW {name}")).value() == value
        assert ok(home.query("SELECT current_setting('app.x', true)")).value() in ("", None)
        assert ok(home.query("SELECT count(*) FROM pg_prepared_statements")).value() == "0"
        assert {"l:news", "l:a\\073b"} <= set(home.state), home.state
        ok(home.query("UNLISTEN *"))
        assert "l:news" not in home.state, home.state
        ok(home.query("SELECT 1"))


def in_parallel(client):
    """A worker of a parallel query takes all parameters over."""
    number = "current_setting('server_version_num')::int"
    name = f"CASE WHEN {number} < 160000 THEN 'force_parallel_mode' ELSE 'debug_parallel_query' END"
    ok(client.query(f"SELECT set_config({name}, 'on', false)"))
    ok(client.query("SELECT count(*) FROM pg_class"))
    ok(client.query(f"SELECT set_config({name}, 'off', false)"))


def direct_a_backend_that_has_left_comes_back(run):
    for text in ("DROP ROLE IF EXISTS hears", "CREATE ROLE hears LOGIN"):
        ok(run.session().query(text))
    with Lobby(run, user="hears") as pooler:
        pooler.give_up_listeners()
        number = 0
        for step in range(3):
            client = pooler.client(work_mem="6MB")
            ok(client.query(f"SET maintenance_work_mem = '9MB'; LISTEN c{step}"))
            # Others have ended.
            left = step + 1
            wait_for(lambda: sum(reason == LISTENS for _, reason in pooler.returned) == left)
            pooler.send(number, GO)
            home = pooler.backends[number]
            wait_for(lambda: getattr(home, "dead", False))
            # An ordinary session for some time.
            ok(home.query("SET work_mem = '7MB'; SET TimeZone = 'Asia/Tokyo'; PREPARE p AS SELECT 1"))
            ok(ask(home, parse("s", "SELECT 'of another client'") + SYNC))
            for question in ("SHOW weir.ticket", "SELECT current_setting('weir.ticket')"):
                assert ok(home.query(question)).value() == ""
            # Only Weir knows the mark.
            for text in ("SET weir.ticket = 'x'", "SELECT set_config('weir.ticket', 'x', false)"):
                assert home.query(text).errors, text
            # A rollback restores a ticket, which has no effect.
            ok(home.query("BEGIN; RESET weir.ticket; ROLLBACK"))
            ok(home.query("BEGIN; SAVEPOINT s; SET weir.ticket = ''; ROLLBACK TO s; COMMIT"))
            ok(home.query("RESET weir.ticket"))
            assert not select.select([pooler.control], [], [], 0)[0], "it has come by itself"
            ok(home.query("DISCARD ALL"))
            number = pooler.enlist_again(number)
            client.close()
            other = pooler.client(maintenance_work_mem="8MB")
            for name, value in (("work_mem", "4MB"), ("maintenance_work_mem", "8MB")):
                assert ok(other.query(f"SHOW {name}")).value() == value
            for view in ("prepared_statements", "listening_channels()"):
                assert ok(other.query(f"SELECT count(*) FROM pg_{view}")).value() == "0"
            ok(other.query("SET work_mem = '5MB'"))
            assert ok(other.query("SHOW work_mem")).value() == "5MB"
            in_parallel(other)
            other.close()


def direct_a_client_with_more_keeps_its_backend(run):
    for more, less in (
        ("CREATE TEMP TABLE mine (a int)", "DROP TABLE mine"),
        ("SELECT pg_advisory_lock(9)", "SELECT pg_advisory_unlock(9)"),
        ("SET client_encoding = 'LATIN1'", "RESET client_encoding"),
    ):
        with Lobby(run, deaths=1) as pooler:
            pooler.give_up_listeners()
            client = pooler.client()
            ok(client.query(f"{more}; LISTEN news"))
            wait_for(lambda: pooler.activity(0) == PINNED_IDLE)
            ok(run.session().query("NOTIFY news, 'one'"))
            assert notification(client) == ("news", "one"), more
            assert not pooler.returned
            ok(client.query(less))
            leaves(pooler)
            pooler.send(0, GO)
            # Weir is told the state, although it is that of the login.
            assert ok(pooler.backends[0].query("UNLISTEN *")).reports == ["v1"], more


def direct_a_client_stays_where_listeners_do_not_leave(run):
    with Lobby(run) as pooler:
        client = pooler.client()
        ok(client.query("LISTEN news"))
        wait_for(lambda: pooler.activity(0) == PINNED_IDLE)
        ok(client.query("UNLISTEN news"))
        assert not pooler.returned


def direct_the_next_request_of_a_client_that_listens_is_served(run):
    """It was begun together with LISTEN, so the backend has read a part of it."""
    with Lobby(run, deaths=1) as pooler:
        pooler.give_up_listeners()
        client = pooler.client()
        ok(ask(client, message(b"Q", b"LISTEN news\0") + parse("", "SELECT 'next'") + execute("")))
        client.socket.sendall(SYNC)
        assert ok(client.take(client.until_ready())).value() == "next"
        leaves(pooler)
        pooler.send(0, GO)


def direct_the_unnamed_statement_leaves_too(run):
    with Lobby(run, deaths=1) as pooler:
        pooler.give_up_listeners()
        client = pooler.client()
        ok(ask(client, parse("l", "LISTEN news") + parse("", "SELECT 'unnamed'") + SYNC))
        ok(ask(client, execute("l") + SYNC))
        leaves(pooler)
        state, _ = pooler.left_state(0)
        assert b"SELECT 'unnamed'" in state, state
        pooler.send(0, GO)


def direct_a_backend_that_leaves_with_its_client_can_be_terminated(run):
    with Lobby(run, deaths=1) as pooler:
        pooler.give_up_listeners()
        client = pooler.client()
        pid = ok(client.query("SELECT pg_backend_pid()")).value()
        ok(client.query("LISTEN news"))
        leaves(pooler)
        ok(run.session().query(f"SELECT pg_terminate_backend({pid}, {1000 * PATIENCE_S})"))
        wait_for(lambda: pooler.alive() == 0)
