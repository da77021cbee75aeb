"""Backends that serve clients' sockets themselves (attend.c), with pooler.py in Weir's place."""

import os
import random
import signal
import struct
import threading
import time
from contextlib import contextmanager

from pooler import ARMED, BAD, ENDED, PARTIAL, PINNED_IDLE, RECALLED, SERVING, STATE, Pooler
from servers import PATIENCE_S


def ok(answer):
    assert not answer.errors, answer.errors
    return answer


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it did not happen")


class Lobby:
    """A pooler for the time of one case, whose backends have to survive it."""

    def __init__(self, run, backends=1, deaths=0):
        self.pooler = Pooler(run.cluster, run.work, backends)
        self.expected = backends - deaths

    def __enter__(self):
        return self.pooler

    def __exit__(self, kind, *_):
        try:
            if kind is not None:
                print(f"extension: {kind}: {self.pooler.returned}, {self.pooler.alive()} live")
            else:
                wait_for(lambda: self.pooler.alive() <= self.expected)
                assert self.pooler.alive() == self.expected, f"{self.pooler.alive()} backends live"
                bad = [one for one in self.pooler.returned if one[1] == STATE]
                assert not bad, f"guests whose state was not restored: {bad}"
        finally:
            self.pooler.close()


def message(code, body=b""):
    return code + struct.pack("!I", len(body) + 4) + body


def parse(name, text):
    return message(b"P", name.encode() + b"\0" + text.encode() + b"\0\0\0")


def execute(name):
    return message(b"B", b"\0" + name.encode() + b"\0\0\0\0\0\0\0") + message(b"E", b"\0\0\0\0\0")


SYNC = message(b"S")


def query(text):
    return message(b"Q", text.encode() + b"\0")


def ask(client, data):
    client.socket.sendall(data)
    return client.take(client.until_ready())


def direct_one_backend_serves_many_clients(run):
    with Lobby(run) as pooler:
        clients = [pooler.client() for _ in range(10)]
        pids = set()
        for number, client in enumerate(clients * 3):
            answer = ok(client.query(f"SELECT {number}, pg_backend_pid()"))
            assert answer.texts()[0][0] == str(number)
            pids.add(answer.texts()[0][1])
        assert pids == {str(pooler.homes[0].process)}, pids


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


def direct_settings_follow_their_client(run):
    for backends in (1, 2):
        settings_follow(run, backends)


def settings_follow(run, backends):
    with Lobby(run, backends) as pooler:
        clients = [pooler.client() for _ in range(5)]
        for number, client in enumerate(clients):
            ok(client.query(f"SET work_mem = '{number + 1}MB'"))
            ok(client.query(f"SELECT set_config('app.who', 'client;{number}=\\', false)"))
        for _ in range(4):
            for number, client in enumerate(clients):
                assert ok(client.query("SHOW work_mem")).value() == f"{number + 1}MB"
                assert ok(client.query("SHOW app.who")).value() == f"client;{number}=\\"
        ok(clients[0].query("RESET ALL"))
        ok(clients[1].query("BEGIN; SET work_mem = '77MB'; ROLLBACK"))
        assert ok(clients[1].query("SHOW work_mem")).value() == "2MB"
        assert ok(clients[0].query("SHOW work_mem")).value() == "4MB"
        for number in range(100):
            ok(clients[2].query(f"SET app.s{number} = '{number}'"))
        ok(clients[3].query("SELECT 1"))
        for number in (0, 50, 99):
            assert ok(clients[2].query(f"SHOW app.s{number}")).value() == str(number)
            value = clients[3].query(f"SELECT current_setting('app.s{number}', true)").value()
            assert value in (None, ""), value


def direct_a_place_is_clean_for_its_next_client(run):
    with Lobby(run) as pooler:
        one = pooler.client()
        ok(one.query("SET app.secret = 'of one'"))
        ok(ask(one, parse("s", "SELECT 'of one'") + SYNC))
        one.socket.sendall(message(b"X"))
        wait_for(lambda: pooler.returned)
        two = pooler.client()
        value = ok(two.query("SELECT current_setting('app.secret', true)")).value()
        assert not value, value
        assert [code for code, _ in ask(two, execute("s") + SYNC).errors] == ["26000"]


def direct_the_same_name_means_each_clients_own_statement(run):
    with Lobby(run, backends=2) as pooler:
        clients = [pooler.client() for _ in range(6)]
        for number, client in enumerate(clients):
            ok(ask(client, parse("s", f"SELECT 'own {number}'") + SYNC))
        for _ in range(4):
            for number, client in enumerate(clients):
                assert ok(ask(client, execute("s") + SYNC)).value() == f"own {number}"
                ok(client.query("BEGIN"))
                # Nobody has seen this Bind before the transaction.
                assert ok(ask(client, execute("s") + SYNC)).value() == f"own {number}"
                ok(client.query("COMMIT"))


def direct_statements_prepared_within_a_transaction_are_kept(run):
    with Lobby(run, backends=2) as pooler:
        clients = [pooler.client() for _ in range(4)]
        for number, client in enumerate(clients):
            ok(client.query("BEGIN"))
            ok(ask(client, parse("t", f"SELECT 'in {number}'") + SYNC))
            ok(client.query("ROLLBACK"))
        for number, client in enumerate(clients * 2):
            assert ok(ask(client, execute("t") + SYNC)).value() == f"in {number % 4}"


def direct_closed_and_deallocated_statements_are_gone_for_one_client(run):
    with Lobby(run) as pooler:
        one, two, three = (pooler.client() for _ in range(3))
        for client in (one, two, three):
            ok(ask(client, parse("s", "SELECT 'shared'") + SYNC))
            ok(ask(client, parse("other", "SELECT 'other'") + SYNC))
        ok(ask(one, message(b"C", b"Ss\0") + SYNC))
        ok(two.query("BEGIN"))
        ok(two.query("DEALLOCATE s"))
        ok(two.query("COMMIT"))
        for client in (one, two):
            assert [code for code, _ in ask(client, execute("s") + SYNC).errors] == ["26000"]
            assert ok(ask(client, execute("other") + SYNC)).value() == "other"
        assert ok(ask(three, execute("s") + SYNC)).value() == "shared"
        ok(three.query("DISCARD ALL"))
        assert ask(three, execute("other") + SYNC).errors
        assert ok(ask(one, execute("other") + SYNC)).value() == "other"


def direct_an_unnamed_statement_is_not_the_next_clients(run):
    with Lobby(run) as pooler:
        one, two = pooler.client(), pooler.client()
        ok(ask(one, parse("", "SELECT 'of one'") + execute("") + SYNC))
        assert [code for code, _ in ask(two, execute("") + SYNC).errors] == ["26000"]
        ok(ask(two, message(b"S")))
        ok(ask(one, parse("", "SELECT 'again'") + execute("") + SYNC))
        assert ok(two.query("SELECT 3")).value() == "3"


def direct_long_names_are_cut_as_the_server_cuts_them(run):
    with Lobby(run) as pooler:
        one, two = pooler.client(), pooler.client()
        ok(ask(one, parse("n" * 70, "SELECT 'one'") + SYNC))
        ok(ask(two, parse("n" * 63, "SELECT 'two'") + SYNC))
        assert ok(ask(one, execute("n" * 63) + SYNC)).value() == "one"
        assert ok(ask(two, execute("n" * 80) + SYNC)).value() == "two"


def direct_tables_change_between_executions(run):
    with Lobby(run, backends=2) as pooler:
        one, two = pooler.client(), pooler.client()
        ok(one.query("DROP TABLE IF EXISTS changes; CREATE TABLE changes (a int)"))
        for client in (one, two):
            ok(ask(client, parse("c", "SELECT count(*) FROM changes") + SYNC))
            ok(ask(client, parse("star", "SELECT * FROM changes") + SYNC))
        ok(two.query("INSERT INTO changes VALUES (1); ALTER TABLE changes ADD b text"))
        for client in (one, two):
            assert ok(ask(client, execute("c") + SYNC)).value() == "1"
            # A backend that has not prepared it before does not know the old columns.
            answer = ask(client, execute("star") + SYNC)
            assert answer.texts() == [["1", None]] or answer.errors[0][0] == "0A000", answer
        ok(one.query("DROP TABLE changes"))
        assert [code for code, _ in ask(two, execute("c") + SYNC).errors] == ["42P01"]


def move(run, pooler, client):
    """Ends the backend that serves the client, which goes to another one."""
    pid = ok(client.query("SELECT pg_backend_pid()")).value()
    before = pooler.alive()
    run.session().query(f"SELECT pg_terminate_backend({pid})")
    wait_for(lambda: pooler.alive() < before)
    # Also if another process has the tables locked.
    client.socket.settimeout(5)
    assert ok(client.query("SELECT pg_backend_pid()")).value() != pid


def codes(client, data):
    """The kinds of messages that answer this."""
    kinds = []
    note = client.note
    client.note = lambda answer, code, body: kinds.append(code) or note(answer, code, body)
    answer = ask(client, data)
    client.note = note
    return b"".join(kinds), [code for code, _ in answer.errors]


def describe(name):
    return message(b"D", b"S" + name.encode() + b"\0") + SYNC


def direct_a_statement_whose_table_is_gone_fails_by_itself(run):
    with Lobby(run, backends=2, deaths=1) as pooler:
        client = pooler.client()
        ok(client.query("DROP TABLE IF EXISTS gone; CREATE TABLE gone (a int)"))
        texts = {"all": "SELECT * FROM gone", "add": "INSERT INTO gone VALUES (7)",
                 "get": "DELETE FROM gone RETURNING a", "why": "EXPLAIN SELECT * FROM gone"}
        for name, text in texts.items():
            ok(ask(client, parse(name, text) + SYNC))
        ok(client.query("DROP TABLE gone"))
        move(run, pooler, client)
        for name in texts:
            assert [code for code, _ in ask(client, execute(name) + SYNC).errors] == ["42P01"], name
            if name != "add":
                assert codes(client, describe(name)) == (b"tEZ", ["42P01"]), name
        ok(client.query("CREATE TABLE gone (a int)"))
        assert codes(client, describe("add")) == (b"tnZ", [])
        ok(ask(client, execute("add") + SYNC))
        assert codes(client, describe("all")) == (b"tTZ", [])
        assert ok(ask(client, execute("all") + SYNC)).value() == "7"
        for name in ("get", "why"):
            for data in (describe(name), execute(name) + SYNC):
                assert codes(client, data)[1] == ["0A000"], name
        # When the backend has served another client, it prepares them once more.
        ok(ask(pooler.client(), parse("all", "SELECT 1") + SYNC))
        assert ok(ask(client, execute("get") + SYNC)).value() == "7"
        assert codes(client, describe("why")) == (b"tTZ", [])
        ok(client.query("DROP TABLE gone"))


def direct_a_locked_table_delays_its_own_statements_only(run):
    with Lobby(run, backends=2, deaths=1) as pooler:
        client = pooler.client()
        ok(client.query("DROP TABLE IF EXISTS shut; CREATE TABLE shut (a int)"))
        ok(client.query("INSERT INTO shut VALUES (3)"))
        for number in range(20):
            ok(ask(client, parse(f"s{number}", f"SELECT a, {number} FROM shut") + SYNC))
        locker = run.session()
        ok(locker.query("BEGIN; LOCK TABLE shut"))
        move(run, pooler, client)
        ok(pooler.client().query("SELECT 1"))
        client.socket.sendall(execute("s7") + SYNC)
        wait_for(lambda: ok(locker.query(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'shut'::regclass"
        )).value() == "1")
        ok(locker.query("COMMIT"))
        assert ok(client.take(client.until_ready())).texts() == [["3", "7"]]
        assert codes(client, describe("s8")) == (b"tTZ", [])
        ok(client.query("DROP TABLE shut"))


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
        waiting = next(home for home in pooler.homes.values() if home.process != serving)
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


def direct_a_client_lost_in_a_transaction_ends_it(run):
    with Lobby(run, backends=2, deaths=1) as pooler:
        one, two = pooler.client(), pooler.client()
        ok(one.query("DROP TABLE IF EXISTS lost; CREATE TABLE lost (a int)"))
        ok(one.query("BEGIN; INSERT INTO lost VALUES (1)"))
        one.close()
        wait_for(lambda: pooler.alive() == 1)
        assert ok(two.query("SELECT count(*) FROM lost")).value() == "0"
        ok(two.query("DROP TABLE lost"))


def direct_a_backend_goes_home_and_comes_back(run):
    with Lobby(run, backends=1) as pooler:
        client = pooler.client()
        ok(client.query("SET work_mem = '3MB'"))
        ok(ask(client, parse("s", "SELECT 7") + SYNC))
        pooler.send(0, 19)
        home = pooler.homes[0]
        wait_for(lambda: getattr(home, "left", False))
        assert ok(home.query("SHOW work_mem")).value() == "4MB"
        assert ok(home.query("SELECT count(*) FROM pg_prepared_statements")).value() == "0"
        pooler.send(0, 18)
        home.socket.sendall(SYNC)
        assert ok(client.query("SHOW work_mem")).value() == "3MB"
        assert ok(ask(client, execute("s") + SYNC)).value() == "7"


def direct_startup_parameters_are_the_clients_own(run):
    with Lobby(run) as pooler:
        one = pooler.client(application_name="first", work_mem="6MB")
        two = pooler.client()
        for _ in range(2):
            assert ok(one.query("SHOW application_name")).value() == "first"
            assert ok(two.query("SHOW application_name")).value() == ""
            assert ok(two.query("SHOW work_mem")).value() == "4MB"
            ok(one.query("SET work_mem = '9MB'"))
            assert ok(two.query("SHOW work_mem")).value() == "4MB"
            assert ok(one.query("SHOW work_mem")).value() == "9MB"
            ok(one.query("RESET work_mem"))
            assert ok(two.query("SHOW work_mem")).value() == "4MB"
            assert ok(one.query("SHOW work_mem")).value() == "6MB"


class Tolerant(Lobby):
    """Its clients' states may be refused."""

    def __exit__(self, kind, *more):
        self.refused = [one for one in self.pooler.returned if one[1] == STATE]
        self.pooler.returned[:] = [one for one in self.pooler.returned if one[1] != STATE]
        super().__exit__(kind, *more)


def is_refused(client):
    try:
        client.query("SELECT 1")
    except OSError:
        return True
    return False


def direct_a_bad_startup_value_changes_nothing_for_others(run):
    with Tolerant(run) as pooler:
        before = pooler.client(application_name="before", app__tenant="5")
        ok(before.query("SET work_mem = '5MB'"))
        none = pooler.client()
        for _ in range(3):
            bad = pooler.client(application_name="bad", statement_timeout="77s",
                                app__tenant="9", work_mem="no number")
            assert is_refused(bad)
            for client, name in ((before, "before"), (none, ""), (before, "before")):
                assert ok(client.query("SHOW application_name")).value() == name
                assert ok(client.query("SHOW statement_timeout")).value() == "0"
            assert ok(before.query("SHOW app.tenant")).value() == "5"
            assert ok(before.query("SHOW work_mem")).value() == "5MB"
            assert ok(none.query("SHOW work_mem")).value() == "4MB"
            assert not ok(none.query("SELECT current_setting('app.tenant', true)")).value()


def direct_applications_may_name_startup_parameters(run):
    with Lobby(run) as pooler:
        for number in range(100):
            client = pooler.client(**{f"app__p{number}": str(number), "app__all": "yes"})
            assert ok(client.query(f"SHOW app.p{number}")).value() == str(number)
            if number:
                gone = f"SELECT current_setting('app.p{number - 1}', true)"
                assert not ok(client.query(gone)).value()
            ok(client.query(f"SET app.p{number} = 'set'; RESET app.p{number}"))
            assert ok(client.query(f"SHOW app.p{number}")).value() == str(number)


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


def cancel(pooler, backend, transaction):
    """As Weir would: the number first, then the signal."""
    pooler.cancel(backend, transaction)
    os.kill(pooler.homes[backend].process, signal.SIGINT)


def is_running(run, text):
    return ok(run.session().query(
        f"SELECT count(*) FROM pg_stat_activity WHERE query = '{text}' AND state = 'active'"
    )).value() == "1"


@contextmanager
def running(run, client):
    """The client's transaction runs until the end of the block. It must succeed."""
    holder, text = run.session(), "SELECT pg_advisory_xact_lock(7)"
    ok(holder.query("SELECT pg_advisory_lock(7)"))
    client.socket.sendall(query(text))
    wait_for(lambda: is_running(run, text))
    yield
    ok(holder.query("SELECT pg_advisory_unlock(7)"))
    ok(client.take(client.until_ready()))


def direct_only_the_transaction_that_is_meant_is_cancelled(run):
    with Lobby(run) as pooler:
        one, two = pooler.client(), pooler.client()
        ok(one.query("SELECT 1"))
        late = pooler.transaction(0)
        with running(run, two):
            cancel(pooler, 0, late)
        one.socket.sendall(query("SELECT pg_sleep(60)"))
        wait_for(lambda: is_running(run, "SELECT pg_sleep(60)"))
        cancel(pooler, 0, pooler.transaction(0))
        assert [code for code, _ in one.take(one.until_ready()).errors] == ["57014"]
        cancel(pooler, 0, pooler.transaction(0))
        assert ok(two.query("SELECT 5")).value() == "5"


def direct_a_second_signal_cancels_no_other_transaction(run):
    with Lobby(run) as pooler:
        one, two = pooler.client(), pooler.client()
        one.socket.sendall(query("SELECT pg_sleep(61)"))
        wait_for(lambda: is_running(run, "SELECT pg_sleep(61)"))
        cancel(pooler, 0, pooler.transaction(0))
        assert [code for code, _ in one.take(one.until_ready()).errors] == ["57014"]
        # The second of two orders: its number went with the first signal.
        with running(run, two):
            os.kill(pooler.homes[0].process, signal.SIGINT)
        # Other senders need no number.
        two.socket.sendall(query("SELECT pg_sleep(62)"))
        wait_for(lambda: is_running(run, "SELECT pg_sleep(62)"))
        ok(run.session().query(f"SELECT pg_cancel_backend({pooler.homes[0].process})"))
        assert [code for code, _ in two.take(two.until_ready()).errors] == ["57014"]
        ok(two.query("SET statement_timeout = '50ms'"))
        assert [code for code, _ in two.query("SELECT pg_sleep(63)").errors] == ["57014"]


def direct_clients_at_rest_outlive_a_crash_of_the_server(run):
    with Lobby(run, backends=2, deaths=1) as pooler:
        one, two = pooler.client(), pooler.client()
        ok(one.query("SET app.kept = 'yes'"))
        ok(ask(one, parse("s", "SELECT 'mine'") + SYNC))
        ok(two.query("BEGIN"))
        # The backend that lingers with it has put it at rest.
        wait_for(lambda: pooler.state(0) == ARMED)
        os.kill(pooler.homes[0].process, signal.SIGKILL)
        wait_for(lambda: pooler.alive() == 0)
        run.cluster.wait_until_ready()
        pooler.enlist()
        assert ok(one.query("SHOW app.kept")).value() == "yes"
        assert ok(ask(one, execute("s") + SYNC)).value() == "mine"
        # Its backend may have had the time to say why.
        while two.socket.recv(1000):
            pass


def torture(pooler, seed, seconds, failures, counts):
    """One client that knows what its session must hold."""
    dice = random.Random(seed)
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            client = pooler.client()
            settings, names = {}, {}
            for _ in range(dice.randrange(1, 60)):
                one_step(client, dice, seed, settings, names)
                counts[0] += 1
            leave(client, dice)
    except Exception as error:
        failures.append(f"seed {seed}: {error!r}")


def one_step(client, dice, seed, settings, names):
    kind = dice.randrange(8)
    if kind == 0:
        name, value = f"app.v{dice.randrange(4)}", f"{seed} {dice.random()}"
        ok(client.query(f"SET {name} = '{value}'"))
        settings[name] = value
    elif kind == 1:
        name = f"app.v{dice.randrange(4)}"
        found = ok(client.query(f"SELECT current_setting('{name}', true)")).value()
        assert (found or "") == settings.get(name, ""), f"{name}: {found}, {settings.get(name)}"
    elif kind == 2:
        name, value = f"s{dice.randrange(5)}", f"{dice.choice((seed, 'all'))} {dice.randrange(3)}"
        data = message(b"C", b"S" + name.encode() + b"\0") + parse(name, f"SELECT '{value}'") + SYNC
        within(client, dice, data)
        names[name] = value
    elif kind == 3 and names:
        name = dice.choice(sorted(names))
        within(client, dice, message(b"C", b"S" + name.encode() + b"\0") + SYNC)
        del names[name]
    elif kind in (4, 5, 6):
        ok(client.query("BEGIN")) if dice.randrange(2) else None
        for name in dice.sample(sorted(names), len(names)):
            found = ok(ask(client, execute(name) + SYNC)).value()
            assert found == names[name], f"{name}: {found}, not {names[name]}"
        client.query("COMMIT")
    else:
        missing = f"s{dice.randrange(5)}"
        if missing not in names:
            answer = ask(client, execute(missing) + SYNC)
            assert [code for code, _ in answer.errors] == ["26000"], answer


def within(client, dice, data):
    """Within a transaction, by itself, or in two pieces."""
    kind = dice.randrange(3)
    if kind == 0:
        ok(client.query("BEGIN"))
    if kind == 1:
        cut = dice.randrange(1, len(data))
        client.socket.sendall(data[:cut])
        time.sleep(dice.random() / 500)
        data = data[cut:]
    ok(ask(client, data))
    if kind == 0:
        ok(client.query(dice.choice(("COMMIT", "ROLLBACK"))))


def leave(client, dice):
    if dice.randrange(2):
        client.socket.sendall(message(b"X"))
    client.close()


def direct_torture(run):
    with Lobby(run, backends=4) as pooler:
        failures, counts = [], [0]
        threads = [
            threading.Thread(
                target=torture, args=(pooler, seed, run.torture_seconds, failures, counts)
            )
            for seed in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(run.torture_seconds + PATIENCE_S)
        assert not any(thread.is_alive() for thread in threads), "a client waits for ever"
        assert not failures, failures[:3]
        print(f"extension: torture: {counts[0]} steps on {run.major}")
