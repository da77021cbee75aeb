"""pg8000: a driver in pure Python with a protocol implementation of its own."""

from harness.python import PytestSuite


class Pg8000(PytestSuite):
    name = "pg8000"
    version = "1.31.6"
    project = "pg8000"
    requirements = ("pg8000==1.31.6", "pytest-mock==3.15.1", "pytest-benchmark==5.2.0",
                    "pytz==2025.2")
    paths = ("test",)
    settings = {"max_prepared_transactions": 10}
    setup = (("postgres", "create extension hstore"),)
    # A test makes the second one; PostgreSQL is to have the say on its login.
    users = {"postgres": "pw", "boltzmann": ""}
    left_out = {
        "test/test_readme.py": "runs the manual's examples, which name a server of their own",
    }

    # Its statement of 60,000 parameters is longer than what Weir remembers of an unnamed one, and
    # after PostgreSQL's error the driver waits for an answer to a message nobody may answer.
    fatal = {"transaction": ["test/native/test_query.py::test_max_parameters"]}

    ends_backends = tuple(
        f"test/native/test_connection.py::test_broken_pipe_{what}"
        for what in ("flush", "read", "unpack")
    )

    def options(self, target):
        return ("--benchmark-disable",)

    def environment(self, target):
        return {"PGHOST": target.host, "PGPORT": str(target.port), "PGPASSWORD": "pw"}
