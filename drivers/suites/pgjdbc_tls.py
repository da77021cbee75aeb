"""pgjdbc over TLS: verify-full, SCRAM with and without channel binding. The scenarios are our own,
one file that Java runs as it is."""

from harness import cache
from harness.maven import COPY, MAVEN
from harness.outcome import FAILED, PASSED, Outcome
from harness.suite import SCENARIOS, SecuredSuite

from .pgjdbc import PgJdbc


class PgJdbcTls(SecuredSuite):
    name = "pgjdbc-tls"
    version = PgJdbc.version

    def fetch(self):
        self.jars = cache.folder(f"postgresql-{self.version}-jar", self.download)

    def download(self, path):
        cache.run([*MAVEN, COPY, f"-DoutputDirectory={path}",
                   f"-Dartifact={PgJdbc.artifact}:{self.version}"], cwd="/")

    def run(self, target, log):
        argv = ["java", "-cp", f"{self.jars}/*", SCENARIOS / self.name / "Secured.java"]
        return self.spawn(argv, "/", self.environment(target), log, Outcome(), read_line)


def read_line(outcome, line):
    """`passed NAME`, or `failed NAME: why`."""
    result, _, rest = line.partition(" ")
    name, _, why = rest.partition(": ")
    if result in (PASSED, FAILED):
        outcome.add(name, result, why)
