"""Suites of Go modules: `go test` in a writable copy of the module."""

import hashlib
import json
import re
import shutil

from . import cache
from .outcome import Outcome
from .suite import SCENARIOS, Suite


class GoSuite(Suite):
    """Tests of a Go module, run in a writable copy of it."""

    module = ""
    packages = ("./...",)
    separator = "/"
    # Changes to the tests: (file, old, new).
    patches = ()
    # Commands that make the module independent of the repository it is a part of.
    changes = ()

    def environment(self, target):
        raise NotImplementedError

    def fetch(self):
        self.work = cache.go_module(self.module, self.version, self.changes)
        for name, old, new in self.patches:
            text = (self.work / name).read_text()
            if new not in text:
                assert old in text, f"{name} of {self.name} is not what the patch is for"
                (self.work / name).write_text(text.replace(old, new))

    def run(self, target, log):
        argv = ["go", "test", "-count=1", "-p=1", "-json", f"-timeout={self.seconds_max - 10}s"]
        if skipped := self.skipped(target):
            argv.append("-skip=" + "|".join(f"^{test}$" for test in skipped))
        said = {}
        return self.spawn(
            [*argv, *self.packages], self.work, self.environment(target), log, Outcome(),
            lambda outcome, row: self.event(outcome, row, said),
        )

    def event(self, outcome, row, said):
        if not row.startswith("{"):
            return
        event = json.loads(row)
        package = event.get("Package", "").removeprefix(self.module).lstrip("/")
        action, test = event["Action"], event.get("Test")
        if test is None:
            if action == "fail" and "FailedBuild" in event:
                outcome.add(f"{package}:build", "failed", event["FailedBuild"])
            return
        # Some subtests are named by a temporary folder.
        test = f"{package}:{re.sub(r'[0-9]{6,}', 'N', test)}"
        if action == "output":
            said.setdefault(test, []).append(event["Output"])
        elif action in ("pass", "fail", "skip"):
            result = {"pass": "passed", "fail": "failed", "skip": "skipped"}[action]
            outcome.add(test, result, "".join(said.pop(test, []))[-4000:])


class GoScenarioSuite(GoSuite):
    """Scenarios of our own, with the modules that the go.sum of their folder pins."""

    module = "scenarios"
    modes = ("session", "auto")
    pool_size = {"session": 20}

    def fetch(self):
        scenarios = SCENARIOS / self.name
        mark = hashlib.sha256((scenarios / "go.sum").read_bytes()).hexdigest()[:8]
        self.work = cache.folder(f"{self.name}-{self.version}-go-{mark}", lambda path: (
            shutil.copytree(scenarios, path, dirs_exist_ok=True),
            cache.run(["go", "mod", "download"], cwd=path)))
        shutil.copytree(scenarios, self.work, dirs_exist_ok=True)

    def environment(self, target):
        return target.libpq("postgres", "postgres")
