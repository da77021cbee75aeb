"""Suites for Node.js: scenarios of our own, run by its built-in test runner."""

import hashlib
import json
import shutil
from pathlib import Path

from . import cache
from .outcome import Outcome
from .suite import SCENARIOS, Suite


class NodeSuite(Suite):
    """The scenarios of one folder, with the packages that its package-lock.json pins."""

    # Other files of the scenario that `install` needs.
    installed = ()
    # The file that runs them all.
    file = "all.js"

    def environment(self, target):
        raise NotImplementedError

    def fetch(self):
        if not shutil.which("node") or not shutil.which("npm"):
            raise cache.FetchError("node or npm is missing; scripts/setup drivers installs them")
        self.work = SCENARIOS / self.name
        sources = [self.work / name for name in ("package-lock.json", *self.installed)]
        mark = hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()[:8]
        self.packages = cache.folder(f"{self.name}-{self.version}-npm-{mark}", self.install)

    def install(self, path):
        for name in ("package.json", "package-lock.json"):
            shutil.copy(self.work / name, path)
        cache.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=path)

    def run(self, target, log):
        record = log.with_suffix(".jsonl")
        record.unlink(missing_ok=True)
        reporter = Path(__file__).with_name("record.mjs").as_uri()
        outcome = self.spawn(
            ["node", f"--test-reporter={reporter}", f"--test-reporter-destination={record}",
             self.file, *self.skipped(target)],
            self.work, {"NODE_PATH": str(self.packages / "node_modules"),
                        **self.environment(target)},
            log, Outcome(), lambda *_: None,
        )
        if record.exists():
            for row in record.read_text(encoding="utf8").splitlines():
                outcome.add(*json.loads(row))
        return outcome
