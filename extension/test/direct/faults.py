"""The library fails where a client's app.fault says. The server is another one than that of the other
files, since its library can fail."""

import select

from direct.lobby import SYNC, Lobby, Tolerant, ask, execute, is_refused, ok, parse, query, wait_for
from pooler import PINNED_IDLE, SERVING

SOURCES = "SELECT count(*) FROM pg_backend_memory_contexts WHERE name = 'CachedPlanSource' AND ident = "


def is_pinned(pooler):
    wait_for(lambda: pooler.activity(0) != SERVING)
    return pooler.activity(0) == PINNED_IDLE


def direct_a_statement_follows_a_failure_to_save_it(run):
    with Lobby(run) as pooler:
        one, two = pooler.client(), pooler.client()
        ok(one.query("SET app.fault = 'names'"))
        ok(ask(one, parse("s", "SELECT 'one'") + SYNC))
        assert is_pinned(pooler)
        ok(one.query("RESET app.fault"))
        ok(ask(two, parse("s", "SELECT 'two'") + SYNC))
        for client, answer in ((one, "one"), (two, "two"), (one, "one")):
            assert ok(ask(client, execute("s") + SYNC)).value() == answer


def direct_an_unnamed_statement_is_awaited_after_a_failure_to_count(run):
    with Lobby(run) as pooler:
        client = pooler.client()
        ok(ask(client, parse("reset", "RESET app.fault") + SYNC))
        ok(client.query("SET app.fault = 'names'"))
        ok(ask(client, parse("s", "SELECT 1") + SYNC))
        # It is longer than what the backend looks at, so no other backend could prepare it.
        ok(ask(client, execute("reset") + parse("", f"SELECT 5 --{'x' * 9000}") + SYNC))
        assert is_pinned(pooler)
        assert ok(ask(client, execute("") + SYNC)).value() == "5"


def direct_a_statement_that_the_server_does_not_take_is_freed(run):
    text = "SELECT 7777"
    for backends in (1, 2):
        with Tolerant(run, backends=1, deaths=None) as pooler:
            one, two = pooler.client(), pooler.client()
            ok(ask(one, parse("s", text) + SYNC))
            ok(one.query("SET app.fault = 'statement'"))
            if backends == 2:
                # The other one has to prepare it again.
                first = pooler.backends[0].process
                ok(run.session().query(f"SELECT pg_terminate_backend({first})"))
                wait_for(lambda: pooler.alive() == 0)
                pooler.enlist()
            ok(two.query("SELECT 1"))
            assert is_refused(one)
            assert ok(two.query(f"{SOURCES}'{text}'")).value() == "0", backends


def direct_rights_are_asked_after_a_failure_to_ask(run):
    admin = run.session()
    for text in (
        "DROP ROLE IF EXISTS plain", "CREATE ROLE plain LOGIN",
        "CREATE OR REPLACE FUNCTION sets_it() RETURNS text LANGUAGE sql SECURITY DEFINER "
        "AS $$SELECT set_config('log_min_messages', 'error', false)$$",
    ):
        ok(admin.query(text))
    with Lobby(run, deaths=1, user="plain") as pooler:
        client = pooler.client()
        ok(client.query("SELECT set_config('app.fault', 'forbidden', false), sets_it()"))
        for _ in range(2):
            assert is_pinned(pooler)
            ok(client.query("SELECT 1"))
        client.close()
        wait_for(lambda: pooler.alive() == 0)


def direct_a_conflict_with_recovery_ends_with_the_transaction_it_is_for(run):
    """A transaction of the library's own, which restores a client's statements."""
    with Lobby(run) as pooler:
        one, two = pooler.client(), pooler.client()
        ok(ask(one, parse("s", "SELECT 6") + SYNC))
        ok(one.query("SET app.fault = 'conflict'"))
        for _ in range(2):
            ok(two.query("SELECT 1"))
            assert ok(ask(one, execute("s") + SYNC)).value() == "6"


def direct_a_cancel_between_two_clients_has_no_effect(run):
    with Lobby(run) as pooler:
        one, two = pooler.client(), pooler.client()
        admin = run.session()
        for client in (one, two, one):
            ok(admin.query(f"SELECT pg_cancel_backend({pooler.backends[0].process})"))
            assert ok(client.query("SELECT 1")).value() == "1"
        told = select.select([pooler.backends[0].socket], [], [], 0)[0]
        assert not told, "the pooler gets an error"


def direct_a_socket_stays_in_no_set_of_another_client(run):
    """The library takes the set of the first client for that of the second."""
    with Lobby(run) as pooler:
        one = pooler.client()
        ok(one.query("SELECT 1"))
        two = pooler.client(app__fault="set")
        ok(two.query("BEGIN"))
        ok(two.query("COMMIT"))
        two.close()
        wait_for(lambda: 1 not in pooler.generations)
        # Core waits with the set of the first one, in which the lost socket would be reported.
        pid = ok(one.query("BEGIN; SELECT pg_backend_pid()")).value()
        one.socket.sendall(query("SELECT 'whole'")[:7])
        text = f"SELECT wait_event FROM pg_stat_activity WHERE pid = {pid}"
        wait_for(lambda: ok(run.session().query(text)).value() == "ClientRead")
        assert ok(ask(one, query("SELECT 'whole'")[7:])).value() == "whole"
        ok(one.query("COMMIT"))
