"""Prepared statements that follow their client."""

from direct.lobby import (
    SYNC, Lobby, ask, codes, describe, execute, message, move,
    ok, parse, wait_for,
)


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
            # Whichever backend it is.
            assert codes(client, execute("star") + SYNC)[1] == ["0A000"]
            assert codes(client, describe("star")) == (b"tEZ", ["0A000"])
            assert codes(client, describe("c")) == (b"tTZ", [])
        # A client that prepares it again is told the new columns. The others have their own.
        ok(ask(one, message(b"C", b"Sstar\0") + SYNC))
        ok(ask(one, parse("star", "SELECT * FROM changes") + SYNC))
        for _ in range(4):
            assert ok(ask(one, execute("star") + SYNC)).texts() == [["1", None]]
            assert codes(two, execute("star") + SYNC)[1] == ["0A000"]
        # It has the old columns again when the new one is gone.
        ok(one.query("ALTER TABLE changes DROP b"))
        for _ in range(4):
            assert codes(one, execute("star") + SYNC)[1] == ["0A000"]
            assert ok(ask(two, execute("star") + SYNC)).texts() == [["1"]]
        ok(one.query("DROP TABLE changes"))
        assert [code for code, _ in ask(two, execute("c") + SYNC).errors] == ["42P01"]


def direct_a_statement_works_again_when_its_columns_are_back(run):
    # The second time a backend lingers with the client.
    for backends in (2, 3):
        with Lobby(run, backends, deaths=1) as pooler:
            client = pooler.client()
            ok(client.query("DROP TABLE IF EXISTS back; CREATE TABLE back (a int)"))
            ok(client.query("INSERT INTO back VALUES (5)"))
            ok(ask(client, parse("star", "SELECT * FROM back") + SYNC))
            ok(client.query("ALTER TABLE back ADD b int"))
            # Another backend has to prepare it now.
            move(run, pooler, client)
            for _ in range(3):
                assert codes(client, execute("star") + SYNC)[1] == ["0A000"]
            ok(client.query("ALTER TABLE back DROP b"))
            for _ in range(3):
                assert ok(ask(client, execute("star") + SYNC)).value() == "5"
            ok(client.query("DROP TABLE back"))


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


def direct_a_text_that_does_not_parse_any_more_fails_by_itself(run):
    """A `search_path` of more than 4 KB is not kept with a statement, so neither is the rest of its
    parse context."""
    path = ", ".join(f"{letter * 60}{number}" for letter in "abcdefgh" for number in range(10))
    with Lobby(run, backends=2, deaths=1) as pooler:
        client, other = pooler.client(), pooler.client()
        ok(client.query("SET standard_conforming_strings = off; SET escape_string_warning = off"))
        ok(client.query(f"BEGIN; SET LOCAL search_path = {path}"))
        ok(ask(client, parse("quoted", "SELECT 'it\\'s'") + SYNC))
        ok(ask(client, parse("plain", "SELECT 8") + SYNC))
        ok(client.query("COMMIT"))
        ok(ask(client, parse("kept", "SELECT 'it\\'s kept'") + SYNC))
        ok(client.query("SET standard_conforming_strings = on"))
        move(run, pooler, client)
        assert [code for code, _ in ask(client, execute("quoted") + SYNC).errors] == ["42601"]
        assert codes(client, describe("quoted")) == (b"tEZ", ["42601"])
        assert ok(ask(client, execute("plain") + SYNC)).value() == "8"
        assert ok(ask(client, execute("kept") + SYNC)).value() == "it's kept"
        ok(client.query("SET standard_conforming_strings = off"))
        # Once the backend has served another client with statements, it prepares them once more.
        ok(ask(other, parse("plain", "SELECT 9") + SYNC))
        assert ok(ask(client, execute("quoted") + SYNC)).value() == "it's"
        assert ok(ask(client, execute("plain") + SYNC)).value() == "8"
