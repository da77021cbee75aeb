"""The unnamed statement."""

import struct

from direct.lobby import SYNC, Lobby, ask, describe, execute, message, move, ok, parse, query, wait_for


def direct_an_unnamed_statement_is_not_the_next_clients(run):
    with Lobby(run) as pooler:
        one, two = pooler.client(), pooler.client()
        ok(ask(one, parse("", "SELECT 'of one'") + execute("") + SYNC))
        assert [code for code, _ in ask(two, execute("") + SYNC).errors] == ["26000"]
        ok(ask(two, message(b"S")))
        ok(ask(one, parse("", "SELECT 'again'") + execute("") + SYNC))
        assert ok(two.query("SELECT 3")).value() == "3"


def direct_an_unnamed_statement_waits_for_its_bind(run):
    with Lobby(run) as pooler:
        one, two = pooler.client(), pooler.client()
        for _ in range(3):
            ok(ask(one, parse("", "SELECT 'of one'") + message(b"D", b"S\0") + SYNC))
            two.socket.sendall(query("SELECT 'of two'"))
            assert ok(ask(one, execute("") + SYNC)).value() == "of one"
            assert ok(two.take(two.until_ready())).value() == "of two"
        # A name that is prepared, and not run, keeps no backend.
        ok(ask(one, parse("named", "SELECT 1") + SYNC))
        assert ok(two.query("SELECT 2")).value() == "2"
        assert ok(ask(one, execute("named") + SYNC)).value() == "1"


def direct_a_long_unnamed_statement_keeps_its_backend(run):
    """There is no room for it in the lobby, so no other backend can prepare it again."""
    text = f"SELECT 'of one' /* {'x' * 70000} */"
    with Lobby(run, backends=2) as pooler:
        one, two = pooler.client(), pooler.client()
        for _ in range(3):
            ok(ask(one, parse("", text) + message(b"D", b"S\0") + SYNC))
            for _ in range(5):
                assert ok(two.query("SELECT 'of two'")).value() == "of two"
            assert ok(ask(one, execute("") + SYNC)).value() == "of one"


def direct_the_unnamed_statement_follows_its_client(run):
    typed = message(b"P", b"\0SELECT $1 || '!'\0" + struct.pack("!HI", 1, 25))
    bound = message(b"B", b"\0\0" + struct.pack("!HHI", 0, 1, 2) + b"hi" + b"\0\0")
    run_it = message(b"E", b"\0\0\0\0\0")
    with Lobby(run, backends=2, deaths=1) as pooler:
        one, two, three = (pooler.client() for _ in range(3))
        ok(ask(one, parse("", "SELECT 'of one'") + execute("") + SYNC))
        ok(ask(two, typed + bound + run_it + SYNC))
        for _ in range(3):
            ok(ask(three, parse("", "SELECT 'of three'") + execute("") + SYNC))
            assert ok(ask(one, execute("") + SYNC)).value() == "of one"
            assert ok(ask(two, bound + run_it + SYNC)).value() == "hi!"
            ok(ask(two, describe("")))
            # A named statement does not take its place.
            ok(ask(one, parse("named", "SELECT 'named'") + execute("named") + SYNC))
            ok(ask(one, message(b"C", b"Snamed\0") + SYNC))
            assert ok(ask(one, execute("") + SYNC)).value() == "of one"
        move(run, pooler, two)
        ok(ask(two, typed + bound + run_it + SYNC))
        ok(three.query("SELECT 3"))
        assert [code for code, _ in ask(three, execute("") + SYNC).errors] == ["26000"]
        # It is another one now, bound to a portal with a name.
        named = message(b"B", b"portal\0\0\0\0\0\0\0\0") + message(b"E", b"portal\0\0\0\0\0")
        ok(ask(one, parse("", "SELECT 'older'") + execute("") + parse("", "SELECT 'newer'") + named + SYNC))
        ok(ask(three, parse("", "SELECT 'of three'") + execute("") + SYNC))
        answer = ask(one, execute("") + SYNC)
        assert answer.errors or answer.value() == "newer", answer


def direct_an_unnamed_statement_whose_table_is_gone_fails(run):
    with Lobby(run) as pooler:
        one, two = pooler.client(), pooler.client()
        ok(one.query("DROP TABLE IF EXISTS vanishes; CREATE TABLE vanishes (a int)"))
        ok(ask(one, parse("", "SELECT count(*) FROM vanishes") + execute("") + SYNC))
        ok(two.query("DROP TABLE vanishes"))
        assert ask(one, execute("") + SYNC).errors
        assert ok(one.query("SELECT 1")).value() == "1"


def direct_a_message_that_is_not_valid_leaves_no_other_clients_statement(run):
    """Core drops its unnamed statement when it begins to run a text, and such a text never runs."""
    bad = (message(b"Q", b"SELECT '\xff\xff'\0"), message(b"P", b"\0SELECT '\xff\xff'\0\0\0") + SYNC)
    for text in bad:
        with Lobby(run) as pooler:
            one, two = pooler.client(), pooler.client()
            ok(ask(one, parse("", "SELECT 'of one'") + execute("") + SYNC))
            assert [code for code, _ in ask(two, text).errors] == ["22021"]
            assert [code for code, _ in ask(two, execute("") + SYNC).errors] == ["26000"]
            assert ok(ask(one, execute("") + SYNC)).value() == "of one"
        # In one write: its connection may end, but it gets no row.
        with Lobby(run, backends=2, deaths=None) as pooler:
            one, two = pooler.client(), pooler.client()
            for _ in range(2):
                ok(ask(one, parse("", "SELECT 'of one'") + execute("") + SYNC))
            two.socket.sendall(text + execute("") + SYNC)
            try:
                assert two.until_ready().errors
                assert not two.until_ready().rows
            except ConnectionError:
                pass
            assert ok(one.query("SELECT 1")).value() == "1"


def direct_an_unnamed_statement_keeps_its_encoding(run):
    with Lobby(run) as pooler:
        one, two = pooler.client(client_encoding="LATIN1"), pooler.client()
        ok(ask(one, message(b"P", b"\0SELECT '\xe9'\0\0\0") + execute("") + SYNC))
        for _ in range(2):
            ok(ask(two, parse("", "SELECT 'of two'") + execute("") + SYNC))
            assert ok(ask(one, execute("") + SYNC)).rows == [[b"\xe9"]]


TYPED = message(b"P", b"\0SELECT $1::int\0" + struct.pack("!HI", 1, 25))


def bind_and_run(value):
    bound = struct.pack("!HHI", 0, 1, len(value)) + value + b"\0\0"
    return message(b"B", b"\0\0" + bound) + message(b"E", b"\0\0\0\0\0")


def direct_a_client_whose_bind_has_failed_keeps_no_backend(run):
    """It may be idle from then on."""
    with Lobby(run) as pooler:
        one, two = pooler.client(), pooler.client()
        two.socket.settimeout(5)
        earlier = parse("", "SELECT 'earlier'") + execute("")
        for before in (b"", earlier):
            assert [code for code, _ in ask(one, before + TYPED + bind_and_run(b"x") + SYNC).errors] == ["22P02"]
            ok(ask(two, parse("", "SELECT 'of two'") + execute("") + SYNC))
            # It can still be bound.
            assert ok(ask(one, bind_and_run(b"7") + SYNC)).value() == "7"
        # A statement that is too long to be carried is lost, which is less than a backend.
        long = parse("", f"SELECT 1 / length(repeat('x', $1::int)), '{'x' * 9000}'")
        assert ask(one, long + bind_and_run(b"x") + SYNC).errors
        ok(two.query("SELECT 2"))
        assert [code for code, _ in ask(one, bind_and_run(b"7") + SYNC).errors] == ["26000"]


def direct_a_client_that_only_prepares_keeps_its_backend_for_a_moment(run):
    with Lobby(run) as pooler:
        one, two = pooler.client(), pooler.client()
        two.socket.settimeout(5)
        ok(one.query("SET client_encoding = 'LATIN1'"))
        text = message(b"P", b"\0SELECT '\xe4' || $1\0" + struct.pack("!HI", 1, 25))
        for _ in range(3):
            ok(ask(one, text + describe("")))
            ok(two.query("SELECT 2"))
            answer = ask(one, message(b"B", b"\0\0\0\0\0\1\0\0\0\1!\0\0") + message(b"E", b"\0\0\0\0\0") + SYNC)
            assert ok(answer).rows == [[b"\xe4!"]]
        # Also among named ones, and behind another one.
        batch = parse("", "SELECT 'first'") + parse("a", "SELECT 'a'") + parse("", "SELECT 'second'")
        ok(ask(one, batch + parse("b", "SELECT 'b'") + SYNC))
        ok(ask(two, parse("", "SELECT 'of two'") + execute("") + SYNC))
        for name, value in (("a", "a"), ("", "second"), ("b", "b")):
            assert ok(ask(one, execute(name) + SYNC)).value() == value


def direct_a_query_drops_what_was_only_prepared(run):
    with Lobby(run) as pooler:
        one, two = pooler.client(), pooler.client()
        for end in (query("COMMIT"), query("ROLLBACK")):
            ok(ask(one, parse("", "BEGIN") + execute("") + SYNC))
            ok(ask(one, parse("", "SELECT 'dropped'") + SYNC))
            ok(ask(one, end))
            ok(ask(two, parse("", "SELECT 'of two'") + execute("") + SYNC))
            assert [code for code, _ in ask(one, execute("") + SYNC).errors] == ["26000"]
        for rest in (query("SELECT 1"), SYNC + query("SELECT 1")):
            one.socket.sendall(parse("", "SELECT 'dropped'") + rest)
            one.take(one.until_ready())
            if rest.startswith(SYNC):
                one.take(one.until_ready())
            ok(ask(two, parse("", "SELECT 'of two'") + execute("") + SYNC))
            assert [code for code, _ in ask(one, execute("") + SYNC).errors] == ["26000"]
