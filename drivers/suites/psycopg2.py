"""psycopg2: libpq with simple queries, async mode, large objects, two-phase commit, COPY."""

from harness import lab
from harness.python import PytestSuite


class Psycopg2(PytestSuite):
    name = "psycopg2"
    version = "2.9.13"
    # The source package is psycopg2's. The wheel contains its own libpq.
    project = "psycopg2-binary"
    requirements = ("psycopg2-binary==2.9.13",)
    settings = {"max_prepared_transactions": 10}
    setup = (("postgres", "create database psycopg2_test"),
             ("psycopg2_test", "create extension hstore"))
    pool_size = {"session": 10}

    ends_backends = ("tests/test_cursor.py::CursorTests::test_external_close_async",)

    @property
    def source_path_extra(self):
        # Its build asks pg_config before it will even tell its name.
        return str(lab.postgres_bin())

    def environment(self, target):
        return {
            **target.libpq("postgres", "psycopg2_test"),
            "PSYCOPG2_TESTDB": "psycopg2_test", "PSYCOPG2_TESTDB_HOST": target.host,
            "PSYCOPG2_TESTDB_PORT": str(target.port), "PSYCOPG2_TESTDB_USER": "postgres",
        }
