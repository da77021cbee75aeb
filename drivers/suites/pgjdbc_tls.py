"""pgjdbc over TLS: verify-full, SCRAM with and without channel binding. The scenarios are our own."""

from harness import cache
from harness.maven import COPY, MAVEN, JavaScenarioSuite
from harness.suite import SecuredSuite

from .pgjdbc import PgJdbc


class PgJdbcTls(SecuredSuite, JavaScenarioSuite):
    name = "pgjdbc-tls"
    version = PgJdbc.version
    file = "Secured.java"

    def download(self, path):
        cache.run([*MAVEN, COPY, f"-DoutputDirectory={path}",
                   f"-Dartifact={PgJdbc.artifact}:{self.version}"], cwd="/")
