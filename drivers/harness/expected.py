"""The checked-in list of what may fail through the pooler, and why: expected/SUITE.toml.

    [[session]]                       # at most SESSION_MAX tests in all
    reason = "why it cannot pass"
    states = "A sentence of COMPAT.md, word by word."
    tests = ["id", "id"]
    flaky = true                      # may also pass

    [[transaction]]
    feature = "LISTEN"                # the session feature these tests need; or a reason
    tests = ["id", "prefix*"]

    [[auto]]
    reason = "why it cannot pass"
    states = "A sentence of docs/auto-mode.md, word by word."
    tests = ["id", "prefix*"]

    [[direct]]                        # in direct pools only; those of auto count there, too
    reason = "why it cannot pass"
    states = "A sentence of docs/direct.md, word by word."
    tests = ["id", "prefix*"]

Instead of `states`, a flaky group may have `race`: what the direct run can lose, too.
"""

import fnmatch
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "drivers/expected"
SESSION_MAX = 5

# List -> the keys of a group of which it has exactly one.
WHY = {"session": ["reason"], "transaction": ["feature", "reason"], "auto": ["reason"],
       "direct": ["reason"]}

# List -> the document that states each of its differences.
STATED = {"session": "COMPAT.md", "auto": "docs/auto-mode.md", "direct": "docs/direct.md"}


class Expected:
    """The entries of one suite in some of its lists."""

    def __init__(self, suite, *lists):
        path = FOLDER / f"{suite}.toml"
        document = tomllib.loads(path.read_text()) if path.exists() else {}
        if unknown := set(document) - set(WHY):
            raise ValueError(f"{path}: no list {', '.join(sorted(unknown))}; there are {', '.join(WHY)}")
        self.why = {}
        self.flaky = set()
        for name, group in ((name, group) for name in lists for group in document.get(name, [])):
            whys = [group[key] for key in WHY[name] if key in group]
            if len(whys) != 1:
                raise ValueError(f"{path}: each [[{name}]] has one of: {', '.join(WHY[name])}")
            if problem := unstated(name, group):
                raise ValueError(f"{path}: [[{name}]] {whys[0]!r}: {problem}")
            for test in group["tests"]:
                self.why[test] = whys[0]
                if group.get("flaky"):
                    self.flaky.add(test)
        if "session" in lists and len(self.why) > SESSION_MAX:
            raise ValueError(f"{path}: {len(self.why)} tests; session mode allows {SESSION_MAX}")
        if "session" in lists and any("*" in test for test in self.why):
            raise ValueError(f"{path}: no patterns in session mode; name each test")

    def reason(self, test):
        """Why this test may fail, or nothing."""
        entry = self._entry(test)
        return self.why[entry] if entry else None

    def _entry(self, test):
        if test in self.why:
            return test
        return next((entry for entry in self.why if matches(test, entry)), None)

    def stale(self, failed):
        """Entries that no failure needed."""
        used = {self._entry(test) for test in failed}
        return sorted(set(self.why) - used - self.flaky)


def unstated(name, group):
    """The problem of a group whose difference is not in its document; nothing if it is."""
    if name not in STATED or "race" in group and group.get("flaky"):
        return None
    sentence = group.get("states", "")
    if not sentence.endswith("."):
        return f"`states` is to be a sentence of {STATED[name]}"
    if sentence not in " ".join((ROOT / STATED[name]).read_text().split()):
        return f"{STATED[name]} does not state: {sentence}"
    return None


def matches(test, pattern):
    """Only `*` is special; brackets stand for themselves, since pytest's ids are full of them."""
    return "*" in pattern and fnmatch.fnmatchcase(test, pattern.replace("[", "[[]"))
