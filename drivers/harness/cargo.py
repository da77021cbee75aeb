"""Suites of Rust crates: `cargo test` in a copy of the crate."""

import re
import shutil
from pathlib import Path

from . import cache
from .outcome import FAILED, PASSED, SKIPPED, Outcome
from .suite import Suite

SUITES = Path(__file__).resolve().parent.parent / "suites"
RESULTS = {"ok": PASSED, "FAILED": FAILED, "ignored": SKIPPED}


class CargoSuite(Suite):
    crate = ""
    arguments = ()
    # A folder beside the suites, copied into the crate, with what its package leaves out.
    helper = ""

    def patch(self, text, target):
        """The text of a test's source with the target's addresses in it."""
        return text

    def manifest(self, text):
        """Cargo.toml with what cannot be built here taken out, and the helper put in."""
        return text

    def environment(self, target):
        return {}

    def fetch(self):
        self.pristine = cache.crate(self.crate, self.version)

    def run(self, target, log):
        work = cache.root() / f"{self.crate}-{self.version}-patched"
        shutil.copytree(self.pristine, work, dirs_exist_ok=True)
        if self.helper:
            shutil.copytree(SUITES / self.helper, work / self.helper, dirs_exist_ok=True)
        rewrite(self.pristine / "Cargo.toml", work / "Cargo.toml", self.manifest)
        for path in self.pristine.glob("tests/**/*.rs"):
            rewrite(path, work / path.relative_to(self.pristine),
                    lambda text: self.patch(text, target))
        self.binary, self.failing = "", None
        skipped = [word for test in self.skipped(target) for word in ("--skip", test)]
        return self.spawn(
            ["cargo", "test", "--no-fail-fast", *self.arguments, "--", "--test-threads=2",
             *skipped],
            work,
            {"CARGO_TARGET_DIR": str(cache.root() / "cargo-target"), "CARGO_TERM_COLOR": "never",
             "RUST_BACKTRACE": "0",
             **self.environment(target)},
            log, Outcome(), self.line,
        )

    def line(self, outcome, row):
        if found := re.match(r" +Running (?:unittests )?(\S+)", row):
            self.binary = found[1].removeprefix("tests/").removesuffix(".rs")
        elif found := re.match(r"test (\S+) \.\.\. (ok|FAILED|ignored)", row):
            outcome.add(f"{self.binary}:{found[1]}", RESULTS[found[2]])
        elif found := re.match(r"---- (\S+) stdout ----", row):
            self.failing = f"{self.binary}:{found[1]}"
            outcome.messages[self.failing] = ""
        elif row in ("failures:", ""):
            self.failing = None if row else self.failing
        elif row.startswith("error: could not compile"):
            outcome.add("build", FAILED, row)
        elif self.failing:
            outcome.messages[self.failing] += row + "\n"


def rewrite(pristine, copy, change):
    """Writes the changed text. An unchanged file keeps its time, so it is not compiled again."""
    text = pristine.read_text()
    if (changed := change(text)) != text:
        copy.write_text(changed)
