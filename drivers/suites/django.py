"""Django: the applications of its tests that speak of databases, over psycopg 3."""

from pathlib import Path

import harness
from harness import cache
from harness.outcome import Outcome
from harness.python import read_record
from harness.suite import Suite

# Of some two hundred; what is not here tests templates, forms, the admin.
APPS = (
    "postgres_tests", "backends", "transactions", "transaction_hooks", "select_for_update",
    "queries", "bulk_create", "schema", "migrations", "introspection", "inspectdb", "constraints",
    "indexes", "get_or_create", "update", "raw_query", "lookup", "expressions", "aggregation",
    "annotations", "db_functions", "datatypes", "timezones", "force_insert_update",
    "multiple_database", "basic", "delete", "prefetch_related", "model_fields",
)


class Django(Suite):
    name = "django"
    version = "5.2.19"
    setup = (("postgres", "create database test_django; create database test_django2"),)
    # Tests of two databases, of which some hold a second connection and a third.
    pool_size = {"session": 20}

    def fetch(self):
        self.work = cache.sdist("django", self.version)
        self.python = cache.venv(f"django-{self.version}", [
            f"django=={self.version}", "psycopg[binary]==3.3.9", "psycopg-pool==3.3.3",
            "jinja2==3.1.6", "tblib==3.2.2", "docutils==0.23", "Pillow==13.0.0",
        ])

    def run(self, target, log):
        record = log.with_suffix(".jsonl")
        record.unlink(missing_ok=True)
        settings = Path(harness.__file__).parent / "django_settings"
        outcome = self.spawn(
            # The databases are there and stay; Weir would hold them open when they are dropped.
            [self.python, "-Wa", "runtests.py", "--settings=weir_settings", "--keepdb",
             "--noinput", "--parallel=1", "--verbosity=0", *APPS],
            self.work / "tests",
            {"PYTHONPATH": str(settings), "PYTHONDONTWRITEBYTECODE": "1",
             "WEIR_RECORD": str(record), "WEIR_MODE": target.mode,
             **target.libpq("postgres", "postgres")},
            log, Outcome(), lambda *_: None,
        )
        read_record(record, outcome)
        return outcome
