"""r2dbc-postgresql: a reactive driver for Java; portals with a fetch size, requests queued on one
connection. Its package carries no tests; these are our own."""

from harness import cache
from harness.maven import COPY_ALL, MAVEN, JavaScenarioSuite
from harness.suite import SCENARIOS


class R2dbc(JavaScenarioSuite):
    name = "r2dbc"
    # pom.xml has it, too.
    version = "1.1.3.RELEASE"
    # The driver names it at each login.
    keys = {"ignore_startup_parameters": "extra_float_digits"}
    pool_size = {"session": 20}
    seconds_max = 300

    def download(self, path):
        cache.run([*MAVEN, "-f", SCENARIOS / self.name / "pom.xml", COPY_ALL,
                   f"-DoutputDirectory={path}"], cwd="/")

    def environment(self, target):
        return target.libpq("postgres", "postgres")
