"""peewee: an ORM for Python, over psycopg 2 and 3. The scenarios are our own."""

from harness.python import ScenarioSuite


class Peewee(ScenarioSuite):
    name = "peewee"
    version = "4.5.3"
    requirements = ("peewee==4.5.3", "psycopg2-binary==2.9.13", "psycopg[binary]==3.3.9")
    modes = ("session", "auto")
    pool_size = {"session": 20}

    def environment(self, target):
        return target.libpq("postgres", "postgres")
