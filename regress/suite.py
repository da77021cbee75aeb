"""The two suites, and one run of one of them against a port."""

import collections
import contextlib
import re
import shutil
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path

from rig import as_guest, give_away
from source import BINARIES, DRIVERS

# A suite that takes longer waits for something that does not come; its other tests are missing.
LIMIT_S = 1200


@dataclass(frozen=True)
class Suite:
    """One of PostgreSQL's suites: its driver, its folder, and its tests by groups."""

    name: str
    driver: Path
    folder: Path
    schedule: list
    libraries: Path
    # Some tests show the name of their database.
    database: str

    @property
    def tests(self):
        return [test for group in self.schedule for test in group]

    def with_groups(self, wanted):
        """Returns the suite with only the groups for whose number and tests `wanted` returns true."""
        kept = [group for number, group in enumerate(self.schedule) if wanted(number, group)]
        return replace(self, schedule=kept)

    def without(self, tests):
        """Returns the suite without these tests."""
        kept = [[test for test in group if test not in tests] for group in self.schedule]
        return replace(self, schedule=[group for group in kept if group])


@dataclass(frozen=True)
class Run:
    """The results of one run: a text for each test, and the tests that the driver calls passed."""

    texts: dict
    passed: set
    seconds: float


def regress(suites):
    driver = DRIVERS / "regress" / "pg_regress"
    schedule = groups(suites.regress / "parallel_schedule")
    return Suite("regress", driver, suites.regress, schedule, suites.libraries, "regression")


def isolation(suites):
    driver = DRIVERS / "isolation" / "pg_isolation_regress"
    folder = suites.isolation
    schedule = groups(folder / "isolation_schedule")
    return Suite("isolation", driver, folder, schedule, suites.libraries, "isolation_regression")


def groups(schedule):
    lines = schedule.read_text().splitlines()
    return [line.removeprefix("test:").split() for line in lines if line.startswith("test:")]


def run(suite, port, stage, one_by_one=False):
    """Runs it. `stage` should be the same folder each time: some tests show paths."""
    prepare(suite, stage)
    command = [
        str(suite.driver),
        f"--bindir={BINARIES}",
        f"--dlpath={stage / 'libraries'}",
        f"--inputdir={stage}",
        f"--outputdir={stage}",
        f"--schedule={stage / 'chosen_schedule'}",
        f"--dbname={suite.database}",
        "--host=127.0.0.1",
        f"--port={port}",
        "--user=postgres",
        "--max-concurrent-tests=20",
        # The tests of a group one after the other, or all together.
        f"--max-connections={1 if one_by_one else 0}",
    ]
    begun = time.monotonic()
    log = stage / "driver.log"
    with log.open("w") as output:
        # Its status is no verdict: what counts is whether both runs print the same.
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                as_guest(command),
                cwd=stage,
                check=False,
                timeout=LIMIT_S,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
    seconds = time.monotonic() - begun
    passed = set(re.findall(r"(\S+)\s+\.\.\. ok\b", log.read_text()))
    results = {test: stage / "results" / f"{test}.out" for test in suite.tests}
    texts = {test: path.read_bytes() for test, path in results.items() if path.exists()}
    if not texts:
        raise SystemExit(f"regress: {suite.driver.name} did nothing:\n{log.read_text()}")
    return Run(texts, passed, seconds)


def prepare(suite, stage):
    """A copy of the suite that its driver, which is not root, may write into."""
    shutil.rmtree(stage, ignore_errors=True)
    shutil.copytree(suite.folder, stage)
    shutil.copytree(suite.libraries, stage / "libraries")
    chosen = "".join(f"test: {' '.join(group)}\n" for group in suite.schedule)
    (stage / "chosen_schedule").write_text(chosen)
    for path in [stage, *stage.rglob("*")]:
        give_away(path)


def statement_names(suite):
    """Returns the names under which the suite's SQL prepares statements, the most frequent first."""
    found = collections.Counter()
    for path in [*suite.folder.glob("sql/*.sql"), *suite.folder.glob("specs/*.spec")]:
        text = path.read_text(errors="replace")
        found.update(name.lower() for name in re.findall(r"(?im)^(?:step.*)?\bprepare +(\w+)", text))
    found.pop("transaction", None)
    return [name for name, _ in found.most_common()]
