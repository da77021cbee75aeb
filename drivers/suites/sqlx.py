"""sqlx: Rust's asynchronous driver that prepares everything by name; its tests of PostgreSQL, over
tokio. The queries that its macros check are checked against the lab when the tests are built."""

import re

from harness.cargo import CargoSuite

# Of those for PostgreSQL all but postgres-rustsec, which sends a statement of four gigabytes.
TARGETS = ("postgres", "postgres-derives", "postgres-describe", "postgres-error",
           "postgres-macros", "postgres-migrate", "postgres-query-builder", "postgres-test-attr",
           "postgres-types")
FEATURES = ("runtime-tokio", "postgres", "migrate", "_unstable-all-types")
# For other databases and other kinds of tests; libsqlite3-sys wants a library of the system.
UNUSED = ("async-std", "criterion", "libsqlite3-sys", "trybuild")


class Sqlx(CargoSuite):
    name = "sqlx"
    version = "0.9.0"
    crate = "sqlx"
    helper = "sqlx-test"
    arguments = (f"--features={','.join(FEATURES)}", *(f"--test={name}" for name in TARGETS))
    setup = (("postgres", "create database sqlx"),)
    keys = {"ignore_startup_parameters": "extra_float_digits"}
    pool_size = {"session": 30}

    def prepare(self, lab):
        super().prepare(lab)
        lab.sql((self.pristine / "tests/postgres/setup.sql").read_text(), "sqlx")

    def manifest(self, text):
        for name in UNUSED:
            text = re.sub(rf"\[(target\.[^\n]*)?dev-dependencies\.{name}\]\n(.+\n)+", "", text)
        return text + f'\n[dev-dependencies.{self.helper}]\npath = "{self.helper}"\n'

    def environment(self, target):
        return {"DATABASE_URL": f"postgres://postgres@{target.host}:{target.port}/sqlx"}
