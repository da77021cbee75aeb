"""Clients whose packages are in no registry that we use: our own programs send the same messages. Each has
a file in scenarios/wire; the versions are those whose source the messages were read from."""

from harness import cache
from harness.python import RUNNER, ScenarioSuite
from harness.suite import SCENARIOS


class WireSuite(ScenarioSuite):
    settings = {"max_prepared_transactions": 10}
    pool_size = {"session": 20}

    def fetch(self):
        self.work = SCENARIOS / "wire"
        self.collected = (f"test_{self.name}.py",)
        self.python = cache.venv("wire", RUNNER)

    def environment(self, target):
        return target.libpq("postgres", "postgres")


class Npgsql(WireSuite):
    """Npgsql, for .NET."""

    name = "npgsql"
    version = "10"


class Postgrex(WireSuite):
    """Postgrex and Ecto, for Elixir."""

    name = "postgrex"
    version = "0.22"


class Postgrest(WireSuite):
    """PostgREST, over Haskell's hasql."""

    name = "postgrest"
    version = "16.1"
    users = {"postgres": "", "authenticator": ""}
    setup = (("postgres", """
        create role web_anon; create role web_user;
        create role authenticator login noinherit; grant web_anon, web_user to authenticator;
        alter role authenticator set pgrst.db_schemas = 'api';
    """),)
