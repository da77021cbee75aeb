"""Settings and startup parameters that follow their client."""

from direct.lobby import (
    SYNC, Lobby, Tolerant, ask, execute, is_refused, message, ok,
    parse, wait_for,
)


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


def direct_a_setting_that_its_client_may_not_set_keeps_the_backend(run):
    """A function with the rights of a superuser has set it."""
    admin = run.session()
    for text in (
        "DROP ROLE IF EXISTS plain", "CREATE ROLE plain LOGIN",
        "CREATE OR REPLACE FUNCTION sets_it(value text) RETURNS text LANGUAGE sql SECURITY DEFINER "
        "AS $$SELECT set_config('log_min_messages', value, false)$$",
    ):
        ok(admin.query(text))
    shown = "SELECT current_setting('log_min_messages')"
    with Lobby(run, backends=2, deaths=1, user="plain") as pooler:
        one, two, three = (pooler.client() for _ in range(3))
        ok(one.query("SELECT sets_it('error')"))
        for _ in range(3):
            ok(two.query("BEGIN"))
            assert ok(two.query(shown)).value() == "warning"
            assert ok(one.query(shown)).value() == "error"
            ok(two.query("COMMIT"))
            assert ok(three.query(shown)).value() == "warning"
        one.close()
        wait_for(lambda: pooler.alive() == 1)
    # With the right to set it, the client goes where it likes.
    ok(admin.query("GRANT SET ON PARAMETER log_min_messages TO plain"))
    with Lobby(run, user="plain") as pooler:
        one, two = pooler.client(), pooler.client()
        ok(one.query("SET log_min_messages = 'error'"))
        for _ in range(2):
            assert ok(two.query(shown)).value() == "warning"
            assert ok(one.query(shown)).value() == "error"


def direct_a_client_that_is_told_everything_harms_nobody(run):
    """Each transaction writes messages then, those of the library among them, and each message is
    sent at once."""
    for text in ("DROP ROLE IF EXISTS plain", "CREATE ROLE plain LOGIN"):
        ok(run.session().query(text))
    for user in ("postgres", "plain"):
        with Lobby(run, backends=2, user=user) as pooler:
            told, other = pooler.client(), pooler.client()
            ok(other.query("SET work_mem = '5MB'"))
            ok(told.query("SET client_min_messages = 'debug5'"))
            for number in range(5):
                ok(told.query(f"CREATE TEMP TABLE own{number} (a int)"))
                ok(told.query(f"DROP TABLE own{number}"))
                ok(ask(told, parse("", f"SELECT {number}") + execute("") + SYNC))
                ok(ask(told, parse(f"s{number}", f"SELECT {number}") + SYNC))
                assert ok(other.query("SHOW work_mem")).value() == "5MB"
                assert ok(ask(told, execute(f"s{number}") + SYNC)).value() == str(number)
            assert ok(told.query("SHOW client_min_messages")).value() == "debug5"
            assert ok(other.query("SHOW client_min_messages")).value() == "notice"
    # The backends' own sessions are told as much.
    ok(run.session().query("ALTER ROLE plain SET client_min_messages = 'debug5'"))
    with Lobby(run, backends=2, user="plain") as pooler:
        one, two = pooler.client(), pooler.client()
        for _ in range(5):
            ok(one.query("CREATE TEMP TABLE IF NOT EXISTS own (a int); DROP TABLE own"))
            assert ok(two.query("SHOW client_min_messages")).value() == "debug5"


def direct_parameters_that_need_a_conversion_are_told_after_the_transaction(run):
    """A conversion can fail, and its error would end the transaction."""
    for role, can_be_told in (("gr\u00fcn", True), ("\u7dd1", False)):
        admin = run.session()
        ok(admin.query(f'DROP ROLE IF EXISTS "{role}"; CREATE ROLE "{role}" LOGIN SUPERUSER'))
        with Lobby(run, deaths=None, user=role) as pooler:
            client = pooler.client(client_encoding="LATIN1")
            for text in ("BEGIN", "SELECT 1"):
                assert not ok(client.query(text)).parameters, (role, text)
            told = ok(client.query("COMMIT")).parameters
            assert can_be_told == ("session_authorization" in told), (role, told)
            client.close()
