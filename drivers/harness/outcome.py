"""The results of the tests of one run, and the differences that the pooler causes."""

from dataclasses import dataclass, field

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass
class Outcome:
    """Test id -> PASSED, FAILED or SKIPPED, and what the failed ones said."""

    tests: dict = field(default_factory=dict)
    messages: dict = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, test, result, message=""):
        # A test can report twice (its call, its teardown); the worst is what it was.
        if self.tests.get(test) != FAILED:
            self.tests[test] = result
        if result == FAILED:
            self.messages.setdefault(test, message)

    def count(self, result):
        return sum(1 for was in self.tests.values() if was == result)

    def leaves(self, separator):
        """Without the tests that only sum up others below them, as Go's do."""
        if not separator:
            return self
        parents = set()
        for test in self.tests:
            while separator in test:
                test = test.rpartition(separator)[0]
                parents.add(test)
        failed = [test for test, result in self.tests.items() if result == FAILED]
        kept = Outcome(messages=self.messages, seconds=self.seconds)
        for test, result in self.tests.items():
            below = any(other.startswith(test + separator) for other in failed)
            # A parent that fails on its own account is a failure nothing below it tells.
            if test not in parents or (result == FAILED and not below):
                kept.tests[test] = result
        return kept


def is_cut_short(direct, pooled):
    """Has the direct run died half-way, so that comparing with it would hide failures?"""
    return len(direct.tests) < 0.95 * len(pooled.tests)


def lost(direct, pooled, separator):
    """Returns the tests that pass directly and not through the pooler: test id -> its message.

    A skipped or absent test counts as well, or a suite that ends half-way would look good. It does
    not count if it is absent because the test above it has failed."""
    found = {}
    for test, result in direct.tests.items():
        if result != PASSED:
            continue
        now = pooled.tests.get(test)
        if now is None and _ancestor_failed(test, pooled, separator):
            continue
        if now != PASSED:
            found[test] = pooled.messages.get(test, "" if now == FAILED else now or "did not run")
    return found


def _ancestor_failed(test, outcome, separator):
    while separator and separator in test:
        test = test.rpartition(separator)[0]
        if outcome.tests.get(test) == FAILED:
            return True
    return False
