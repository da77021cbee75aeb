"""The messages of PostgREST: libpq's messages with statements named by numbers, and one transaction a
request, which sets a role, a search_path and the claims of its token for itself."""

import json

import pytest

from conftest import until
from wire import Connection, bind, describe, execute, parse, query, sync

SCHEMA = "api"


@pytest.fixture(scope="module", autouse=True)
def schema():
    """A schema with a table that each role sees its own rows of, and functions that ask and answer."""
    owner = Connection(user="postgres")
    answer = owner.talk(query("""
        DROP SCHEMA IF EXISTS api CASCADE; CREATE SCHEMA api;
        GRANT USAGE ON SCHEMA api TO web_anon, web_user;
        CREATE TABLE api.notes (id serial PRIMARY KEY, owner text, data text);
        ALTER TABLE api.notes ENABLE ROW LEVEL SECURITY;
        GRANT ALL ON api.notes TO web_user; GRANT USAGE ON api.notes_id_seq TO web_user;
        CREATE POLICY own ON api.notes TO web_user USING (
            owner = nullif(current_setting('request.jwt.claims', true), '')::json->>'email');
        CREATE FUNCTION api.whoami() RETURNS text LANGUAGE sql STABLE AS
            $$ SELECT current_user || ' ' || coalesce(
                nullif(current_setting('request.jwt.claims', true), '')::json->>'email', 'nobody') $$;
        CREATE FUNCTION api.teapot() RETURNS text LANGUAGE plpgsql AS $$ BEGIN
            PERFORM set_config('response.status', '418', true);
            PERFORM set_config('response.headers', '[{"X-Tea": "green"}]', true);
            RETURN 'short and stout'; END $$;
        CREATE FUNCTION api.refuse() RETURNS text LANGUAGE plpgsql AS
            $$ BEGIN RAISE sqlstate 'PT402' USING message = 'Payment required'; END $$;
        CREATE FUNCTION api.check_request() RETURNS void LANGUAGE plpgsql AS
            $$ BEGIN IF current_setting('request.path', true) = '/closed' THEN
               RAISE insufficient_privilege USING hint = 'closed'; END IF; END $$;
    """))
    assert "E:" not in answer, owner.error
    yield
    owner.talk(query("DROP SCHEMA api CASCADE"))
    owner.close()


class Session:
    """A connection of PostgREST's pool. Each text is prepared once, under the next number: BEGIN and
    COMMIT as well."""

    def __init__(self, wire, prepares=True):
        self.wire, self.prepares, self.names = wire, prepares, {}
        assert wire.talk(query("SET client_encoding = 'UTF8';SET client_min_messages TO WARNING;")) \
            == "C:SET C:SET Z:I"

    def ask(self, sql, *values):
        """One statement with its parameters. The answer begins with the columns, or the error."""
        if not self.prepares:
            return self.wire.talk(parse(sql) + self.use("", values)).removeprefix("1 2 ")
        if sql not in self.names:
            name = str(len(self.names))
            answer = self.wire.talk(parse(sql, name), sync())
            if not answer.startswith("1 "):
                return answer
            self.names[sql] = name
        return self.wire.talk(self.use(self.names[sql], values)).removeprefix("2 ")

    def use(self, name, values):
        return bind(values, name, results=(1,)) + describe("P") + execute() + sync()

    def begin(self, mode="READ ONLY"):
        assert self.ask(f"BEGIN ISOLATION LEVEL READ COMMITTED {mode}") == "n C:BEGIN Z:T"

    def end(self, how):
        assert self.ask(how) == f"n C:{'COMMIT' if how == 'COMMIT' else 'ROLLBACK'} Z:I"

    def request(self, sql, *values, role="web_anon", path="/", email=None, mode="READ ONLY",
                end="COMMIT", **headers):
        """One HTTP request; returns the answers of its main statement."""
        claims = json.dumps({"role": role, **({"email": email} if email else {})})
        self.begin(mode)
        answer = self.ask(
            "select set_config('search_path', $1, true), set_config($2, $3, true),"
            " set_config('role', $4, true), set_config('request.jwt.claims', $5, true),"
            " set_config('request.method', $6, true), set_config('request.path', $7, true),"
            " set_config('request.headers', $8, true)",
            f'"{SCHEMA}", "public"', "statement_timeout", "10s", role, claims, "GET", path,
            json.dumps(headers))
        assert answer.endswith("C:SELECT_1 Z:T"), answer
        answer = self.ask("select api.check_request()")
        if not answer.endswith("Z:E"):
            answer = self.ask(sql, *values)
        self.end("ABORT" if answer.endswith("Z:E") else end)
        return answer


MAIN = "WITH pgrst_source AS ({}) SELECT null::bigint AS total, count(*) AS page," \
       " coalesce(json_agg(pgrst_source)->>0, '') AS body," \
       " nullif(current_setting('response.headers', true), '') AS headers," \
       " nullif(current_setting('response.status', true), '') AS status FROM pgrst_source"


def body(answer):
    """Returns the fields of the main statement's one row after the two numbers."""
    row = next((word[2:] for word in answer.split(" ") if word.startswith("D:")), None)
    assert row is not None, answer
    return row.split("|")[2:]


@pytest.fixture
def session(connect):
    """Opens connections of the role that PostgREST logs in as."""
    def open_one(prepares=True, **parameters):
        return Session(connect(user="authenticator", application_name="PostgREST 16.1", **parameters),
                       prepares)
    return open_one


WHOAMI = MAIN.format("SELECT api.whoami() AS n")


@pytest.mark.parametrize("prepares", (True, False))
def test_each_request_has_its_role_and_claims(session, prepares):
    one = session(prepares)
    for turn in range(10):
        answer = one.request(WHOAMI, role="web_user", email=f"user{turn}@example.org")
        assert body(answer)[0] == f'{{"n":"web_user_user{turn}@example.org"}}'
        assert body(one.request(WHOAMI))[0] == '{"n":"web_anon_nobody"}'


def test_nothing_of_a_request_is_left(session):
    one = session()
    for turn in range(5):
        one.request(WHOAMI, role="web_user", email="someone@example.org")
        answer = one.ask(
            "select current_user, nullif(current_setting('request.jwt.claims', true), ''),"
            " nullif(current_setting('request.path', true), ''), current_setting('statement_timeout'),"
            " current_setting('client_min_messages')")
        assert "D:authenticator|~|~|0|warning " in answer


def test_rows_of_their_owner_alone(session):
    pool = [session() for _ in range(6)]
    insert = MAIN.format("INSERT INTO notes (owner, data) VALUES ($1, $2) RETURNING data")
    read = MAIN.format("SELECT data FROM notes ORDER BY id LIMIT 1")
    for place, one in enumerate(pool):
        answer = one.request(insert, f"u{place}@example.org", f"note of {place}", role="web_user",
                             email=f"u{place}@example.org", mode="READ WRITE")
        assert body(answer)[0] == f'{{"data":"note_of_{place}"}}'
    for turn in range(10):
        for place, one in enumerate(pool):
            who = (place + turn) % len(pool)
            answer = one.request(read, role="web_user", email=f"u{who}@example.org")
            assert body(answer)[0] == f'{{"data":"note_of_{who}"}}'


def test_a_role_without_rights_is_refused(session):
    one = session()
    for _ in range(3):
        assert one.request(MAIN.format("SELECT data FROM api.notes")) == "E:42501 Z:E"
        assert body(one.request(WHOAMI))[0] == '{"n":"web_anon_nobody"}'


def test_a_write_in_a_request_that_reads(session):
    one = session()
    answer = one.request(MAIN.format("INSERT INTO notes (data) VALUES ('x') RETURNING data"),
                         role="web_user")
    assert answer.endswith("E:25006 Z:E")


def test_a_function_sets_status_and_headers(session):
    one = session()
    teapot = MAIN.format("SELECT api.teapot() AS n")
    for _ in range(5):
        assert body(one.request(teapot, mode="READ WRITE"))[1:] == ['[{"X-Tea":_"green"}]', "418"]
        assert body(one.request(WHOAMI))[1:] == ["~", "~"]


def test_a_function_refuses(session):
    one = session()
    for _ in range(3):
        assert one.request(MAIN.format("SELECT api.refuse() AS n")).endswith("E:PT402 Z:E")
        assert one.wire.error["M"] == "Payment required"


def test_the_function_before_each_request_refuses(session):
    one = session()
    for _ in range(3):
        assert one.request(WHOAMI, path="/closed").endswith("E:42501 Z:E")
        assert body(one.request(WHOAMI, path="/open"))[0] == '{"n":"web_anon_nobody"}'


def test_prefer_tx_rollback(session):
    one = session()
    insert = MAIN.format("INSERT INTO notes (owner, data) VALUES ('r@example.org', 'x') RETURNING data")
    for _ in range(3):
        answer = one.request(insert, role="web_user", email="r@example.org", mode="READ WRITE",
                             end="ABORT")
        assert body(answer)[0] == '{"data":"x"}'
    answer = one.request(MAIN.format("SELECT data FROM notes"), role="web_user", email="r@example.org")
    assert body(answer)[0] == ""


def test_a_time_zone_for_one_request(session):
    one = session()
    zone = one.wire.parameters["TimeZone"]
    for _ in range(5):
        one.begin()
        one.ask("select set_config('timezone', $1, true)", "America/Lima")
        assert one.wire.parameters["TimeZone"] == "America/Lima"
        one.end("COMMIT")
        assert one.wire.parameters["TimeZone"] == zone
        assert f"D:{zone} " in one.ask("show timezone")


def test_a_statement_timeout_of_the_role(session):
    one = session()
    one.begin()
    one.ask("select set_config('statement_timeout', $1, true)", "200ms")
    assert one.ask("select pg_sleep(600)").endswith("E:57014 Z:E")
    one.end("ABORT")
    assert "D:0 " in one.ask("show statement_timeout")


def test_the_schema_cache_is_loaded(session):
    """Queries of the catalogue with no search_path, in one transaction."""
    one = session()
    for _ in range(3):
        one.begin()
        assert one.wire.talk(query("set local schema ''")) == "C:SET Z:T"
        answer = one.ask(
            "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = ANY($1) AND c.relkind = ANY('{r,v,m,f,p}')", "{api}")
        assert "D:api.notes " in answer
        answer = one.ask(
            "SELECT p.proname FROM pg_proc p WHERE p.pronamespace = $1::regnamespace"
            " ORDER BY 1", "api")
        assert [word[2:] for word in answer.split(" ") if word.startswith("D:")] \
            == ["check_request", "refuse", "teapot", "whoami"]
        one.end("COMMIT")
        assert 'D:"$user",_public ' in one.ask("show search_path")


def test_settings_of_the_database_are_read(session):
    one = session()
    answer = one.ask(
        "SELECT split_part(setting, '=', 1) FROM pg_db_role_setting,"
        " unnest(setconfig) setting WHERE setrole = current_user::regrole::oid")
    assert "D:pgrst.db_schemas " in answer


def test_the_schema_cache_is_reloaded_by_a_notification(session, connect):
    """The listener's connection hears it. A statement whose table has changed is parsed anew."""
    one, listener, owner = session(), session(), connect(user="postgres")
    assert listener.wire.talk(query('LISTEN "pgrst"')) == "C:LISTEN Z:I"
    for turn in range(3):
        owner.talk(query(f"ALTER TABLE api.notes ADD COLUMN more{turn} int;"
                         "NOTIFY pgrst, 'reload schema'"))
        assert listener.wire.answers(until="A") == "A:pgrst|reload_schema"
        answer = one.request(MAIN.format(f"SELECT more{turn} FROM notes"), role="web_user")
        assert body(answer)[0] == ""


def test_columns_that_a_request_names_one_by_one(session, connect):
    """The columns are in the text, so a further one does not change a prepared statement."""
    one, owner = session(), connect(user="postgres")
    read = MAIN.format("SELECT data FROM notes")
    for turn in range(3):
        assert body(one.request(read, role="web_user"))[0] == ""
        owner.talk(query(f"ALTER TABLE api.notes ADD COLUMN further{turn} int"))


def test_a_listener_hears_while_requests_run(session, connect):
    listener, one = session(), session()
    listener.wire.talk(query('LISTEN "pgrst"'))
    for turn in range(20):
        one.request(WHOAMI)
        one.wire.talk(query(f"NOTIFY pgrst, '{turn}'"))
    heard = listener.wire.answers(until="A", times=20)
    assert heard == " ".join(f"A:pgrst|{turn}" for turn in range(20))


def test_a_pool_of_ten(session):
    pool = [session() for _ in range(10)]
    for turn in range(10):
        for place, one in enumerate(pool):
            who = f"p{place}t{turn}@example.org"
            answer = one.request(WHOAMI, role="web_user", email=who)
            assert body(answer)[0] == f'{{"n":"web_user_{who}"}}'


def test_a_connection_that_was_terminated_is_replaced(session, connect):
    """The request fails, and another connection of the pool serves the next one."""
    one, owner = session(), connect(user="postgres")
    one.begin()
    pid = one.ask("select pg_backend_pid()::text as pid").split("D:")[1].split(" ")[0]
    owner.talk(query(f"SELECT pg_terminate_backend({pid})"))
    until(lambda: owner.talk(query(f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid}"))
          .endswith("C:SELECT_0 Z:I"))
    assert one.wire.answers(until="!") == "E:57P01!"
    assert body(session().request(WHOAMI))[0] == '{"n":"web_anon_nobody"}'
