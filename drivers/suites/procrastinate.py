"""procrastinate: a job queue over psycopg 3; LISTEN and NOTIFY, locks, its own functions and triggers.
The scenarios are our own."""

from harness.python import ScenarioSuite


class Procrastinate(ScenarioSuite):
    name = "procrastinate"
    version = "3.10.0"
    requirements = ("procrastinate==3.10.0", "psycopg[binary]==3.3.9", "psycopg-pool==3.3.3")
    modes = ("session", "auto")
    pool_size = {"session": 30}

    def environment(self, target):
        return target.libpq("postgres", "postgres")
