"""pgx over TLS: verify-full, SCRAM with and without channel binding. The scenarios are our own."""

import shutil

from harness.go import GoSuite
from harness.suite import SCENARIOS, SecuredSuite

from .pgx import Pgx


class PgxTls(SecuredSuite, GoSuite):
    name = "pgx-tls"
    version = Pgx.version
    module = Pgx.module
    # Within pgx's own module, so that it has all that pgx has.
    packages = ("./secured",)

    def fetch(self):
        super().fetch()
        shutil.copytree(SCENARIOS / self.name, self.work / "secured", dirs_exist_ok=True)
