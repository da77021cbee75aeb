"""psycopg 3: libpq with pipelines, statements prepared after a few uses, COPY, async. Its package
carries no tests; these are our own."""

from harness.python import ScenarioSuite


class Psycopg(ScenarioSuite):
    name = "psycopg"
    version = "3.3.9"
    requirements = ("psycopg[binary]==3.3.9", "psycopg-pool==3.3.3")
    settings = {"max_prepared_transactions": 20}
    # Beside the scenarios' own connections, forty at a time are compared with one another.
    pool_size = {"session": 60}
    users = {"postgres": "", "alice": ""}
    setup = (("postgres", "create role alice login; grant all on schema public to alice"),)

    def environment(self, target):
        return {
            **target.libpq("postgres", "postgres"), "PGSSLMODE": "prefer",
            "PGCONNECT_TIMEOUT": "30", "DIRECT_PORT": str(target.lab.port),
        }
