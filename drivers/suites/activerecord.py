"""ActiveRecord of Rails: its own tests of the PostgreSQL adapter."""

import re

from harness import cache, debian
from harness.outcome import FAILED, PASSED, SKIPPED, Outcome
from harness.script import debian_version
from harness.suite import Suite

TESTS = "test/cases/adapters/postgresql/*_test.rb"
RESULTS = {".": PASSED, "S": SKIPPED, "F": FAILED, "E": FAILED}


class ActiveRecord(Suite):
    name = "activerecord"
    version = "6.1.7.10"
    # The source package of the gems that Debian packages.
    source = "2:6.1.7.10+dfsg-1~deb12u4"
    settings = {"max_prepared_transactions": 10}
    setup = (("postgres", "create database activerecord_unittest; create database activerecord_unittest2"),)
    modes = ("session", "auto")
    pool_size = {"session": 30}
    # A test makes all tables anew while transactions of two databases are idle.
    keys = {"idle_transaction_timeout": 120}
    # The test sets `geqo` in its options. A refusal leaves all later tests without a connection.
    fatal = {"session": ["ActiveRecord::PostgresqlConnectionTest#test_connection_options"]}

    def fetch(self):
        if debian_version("ruby-activerecord") == "missing":
            raise cache.FetchError("ruby-activerecord is missing; scripts/setup drivers installs it")
        self.work = debian.source("rails", self.source) / "activerecord"

    def run(self, target, log):
        environment = {**target.libpq("postgres", "postgres"), "ARCONN": "postgresql"}
        load = f'Dir["{TESTS}"].sort.each {{ |file| require "./#{{file}}" }}'
        left = "|".join(map(re.escape, self.skipped(target)))
        return self.spawn(
            ["ruby", "-Itest", "-Ilib", "-e", load, "--", "--verbose", "--seed=1",
             *([f"--exclude=/^({left})$/"] if left else [])],
            self.work, environment, log, Outcome(), read_line,
        )


def read_line(outcome, line):
    """`Class#test_name = 0.01 s = .`; at the end, each failure below a line `Class#test_name:`."""
    if found := re.match(r"(\S+#\S.*) = \d+\.\d+ s = ([.SFE])$", line):
        outcome.tests[found[1]] = RESULTS[found[2]]
    elif (found := re.match(r"(\S+#.+?)(?: \[.*\])?:$", line)) and found[1] in outcome.tests:
        outcome.messages[found[1]] = ""
    elif outcome.messages:
        outcome.messages[next(reversed(outcome.messages))] += line + "\n"
