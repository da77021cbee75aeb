"""libpqxx: the C++ client; cursors, pipelines, COPY streams, subtransactions, notifications."""

import re

from harness import cache, debian
from harness.outcome import FAILED, PASSED, SKIPPED, Outcome
from harness.suite import Suite

RUNNERS = ("test/runner", "test/unit/unit_runner")


class Libpqxx(Suite):
    name = "libpqxx"
    version = "6.4.5-2"
    modes = ("session", "auto")
    seconds_max = 300

    def fetch(self):
        source = debian.source("libpqxx", self.version)
        self.build = cache.folder(f"libpqxx-{self.version}-build", lambda path: make(source, path))

    def run(self, target, log):
        environment = target.libpq("postgres", "postgres")
        whole = Outcome()
        for runner in RUNNERS:
            part = self.spawn(
                [self.build / runner], self.build, environment,
                log.with_name(f"{runner.rpartition('/')[2]}.log"), Outcome(), Reader().line,
            )
            whole.tests |= part.tests
            whole.messages |= part.messages
            whole.seconds += part.seconds
        return whole


class Reader:
    """Reads what a runner prints. A test that it does not go beyond has ended the runner."""

    def __init__(self):
        self.test, self.result, self.said = None, FAILED, []

    def line(self, outcome, row):
        if found := re.match(r"Running: (\S+)|Ran \d+ test", row):
            self.close(outcome, PASSED)
            self.test, self.said = found[1], []
            if self.test:
                outcome.tests[self.test] = FAILED
        elif row.startswith("FAILED: "):
            self.close(outcome, FAILED)
            self.test = None
        elif row.startswith("Not testing unsupported feature"):
            self.close(outcome, SKIPPED)
            self.test = None
        else:
            self.said.append(row)

    def close(self, outcome, result):
        if self.test:
            outcome.tests[self.test] = result
            if result == FAILED:
                outcome.messages[self.test] = "\n".join(self.said)


def make(source, build):
    cache.run(["cmake", "-S", source, "-B", build, "-DSKIP_PQXX_STATIC=ON",
               "-DCMAKE_CXX_FLAGS=-O0"])
    cache.run(["make", "-C", build, "-j2", "runner", "unit_runner"])
