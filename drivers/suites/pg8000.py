"""pg8000: a driver in pure Python with a protocol implementation of its own."""

from harness.python import PytestSuite


class Pg8000(PytestSuite):
    name = "pg8000"
    version = "1.31.6"
    project = "pg8000"
    requirements = ("pg8000==1.31.6", "pytest-mock==3.15.1", "pytest-benchmark==5.2.0",
                    "pytz==2025.2")
    paths = ("test",)
    options = ("--benchmark-disable",)
    settings = {"max_prepared_transactions": 10}
    setup = (("postgres", "create extension hstore"),)
    left_out = {
        "test/test_readme.py": "runs the manual's examples, which name a server of their own",
    }

    def environment(self, target):
        return {"PGHOST": target.host, "PGPORT": str(target.port), "PGPASSWORD": "pw"}
