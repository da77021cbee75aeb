"""Scenarios of our own over drivers that Debian packages: one script, which prints TAP, the Test
Anything Protocol of Perl."""

import re
import subprocess

from . import cache
from .outcome import FAILED, PASSED, Outcome
from .suite import SCENARIOS, Suite


def debian_version(package):
    """The version of an installed package without Debian's own parts, or "missing"."""
    try:
        asked = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package],
                               capture_output=True, text=True, check=False).stdout
    except OSError:
        asked = ""
    return re.sub(r"^\d+:|-[^-]*$", "", asked) or "missing"


class ScriptSuite(Suite):
    """One script for one interpreter; a test is named by what stands behind its number."""

    # The Debian package that brings the driver, and the command that runs the script.
    package = ""
    command = ()
    pool_size = {"session": 10}
    modes = ("session", "auto")
    seconds_max = 300

    @property
    def version(self):
        return debian_version(self.package)

    def fetch(self):
        if self.version == "missing":
            raise cache.FetchError(f"{self.package} is missing; scripts/setup drivers installs it")
        self.work = SCENARIOS / self.name

    def environment(self, target):
        return target.libpq("postgres", "postgres")

    def run(self, target, log):
        return self.spawn(self.command, self.work, self.environment(target), log, Outcome(),
                          read_tap)


def read_tap(outcome, row):
    if found := re.match(r"(not )?ok \d+ - (.+)", row):
        outcome.add(found[2], FAILED if found[1] else PASSED)
    elif row.startswith("#") and outcome.tests:
        last = list(outcome.tests)[-1]
        if outcome.tests[last] == FAILED:
            outcome.messages[last] = outcome.messages.get(last, "") + row + "\n"
