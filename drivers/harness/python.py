"""Suites of Python packages: the tests of the source package, run by pytest."""

import json
from pathlib import Path

from . import cache
from .outcome import Outcome
from .suite import SCENARIOS, Suite

RUNNER = ("pytest==8.4.2", "pytest-timeout==2.4.0")


class PytestSuite(Suite):
    """Tests of a Python package, from its source package, run in an environment of their own."""

    project = ""
    requirements = ()
    # The files that are copied from the source package, and those that pytest collects: by default all.
    paths = ("tests",)
    collected = ()
    test_seconds_max = 60
    source_path_extra = ""

    def environment(self, target):
        raise NotImplementedError

    def options(self, target):
        """Further arguments of pytest."""
        return ()

    def fetch(self):
        self.source = cache.sdist(self.project, self.version, self.source_path_extra)
        self.work = cache.folder(f"{self.project}-{self.version}-tests", self.copy_tests)
        self.python = cache.venv(
            f"{self.project}-{self.version}", [*RUNNER, *self.requirements])

    def copy_tests(self, path):
        """The tests alone, or `import` would find the package's sources, which are not built."""
        for name in self.paths:
            cache.run(["cp", "-R", self.source / name, path])

    def run(self, target, log):
        record = Path(log).with_suffix(".jsonl")
        record.unlink(missing_ok=True)
        plugin = Path(__file__).parent / "pytest_plugin"
        outcome = Outcome()
        skipped = [f"--deselect={test}" for test in self.skipped(target)]
        self.spawn(
            [self.python, "-m", "pytest", "-q", "-p", "weir_record", "-p", "no:cacheprovider",
             f"--timeout={self.test_seconds_max}", "--tb=native", *skipped,
             *self.options(target), *(self.collected or self.paths)],
            self.work,
            {"PYTHONPATH": str(plugin), "WEIR_RECORD": str(record), "PYTHONDONTWRITEBYTECODE": "1",
             **self.environment(target)},
            log, outcome, lambda *_: None,
        )
        read_record(record, outcome)
        return outcome


class ScenarioSuite(PytestSuite):
    """Scenarios of our own, for a Python package that carries no tests."""

    paths = (".",)

    def fetch(self):
        self.work = SCENARIOS / self.name
        self.python = cache.venv(f"{self.name}-{self.version}", [*RUNNER, *self.requirements])


def read_record(path, outcome):
    if path.exists():
        for row in path.read_text().splitlines():
            outcome.add(*json.loads(row))
