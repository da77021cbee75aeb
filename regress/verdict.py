"""Compares what two runs of a suite printed, and knows which differences are allowed."""

import difflib
import tomllib
from dataclasses import dataclass


@dataclass(frozen=True)
class Allowed:
    """A reviewed difference: these lines of one test in place of those, and nothing else."""

    suite: str
    test: str
    reason: str
    direct: list
    weir: list


@dataclass
class Verdict:
    """Names of tests by what became of them, and the differences as text."""

    identical: list
    allowed: list
    different: list
    diffs: str


def read_allowed(path):
    entries = tomllib.loads(path.read_text())["difference"]
    return [Allowed(**entry) for entry in entries]


def compare(suite, direct, weir, allowed):
    verdict = Verdict([], [], [], "")
    for test in suite.tests:
        before, after = direct.texts.get(test), weir.texts.get(test)
        # Neither run having come to a test proves nothing about it.
        if before is not None and before == after:
            verdict.identical.append(test)
            continue
        diff = unified(test, before, after)
        entries = [entry for entry in allowed if (entry.suite, entry.test) == (suite.name, test)]
        if any(covers(entry, diff) for entry in entries):
            verdict.allowed.append(test)
        else:
            verdict.different.append(test)
            verdict.diffs += "\n".join(diff) + "\n"
    return verdict


def unified(test, before, after):
    if before is None or after is None:
        missing = " and ".join(
            name for name, text in (("directly", before), ("through Weir", after)) if text is None
        )
        return [f"{test}: no result {missing}"]
    texts = [text.decode(errors="backslashreplace").splitlines() for text in (before, after)]
    names = [f"direct/{test}", f"weir/{test}"]
    # Bytes may differ where lines do not, as in the end of the last one: still a difference.
    return list(difflib.unified_diff(*texts, *names, lineterm="")) or [f"{test}: line ends differ"]


def covers(entry, diff):
    """Exactly the lines that were reviewed; one more, and it is another difference."""
    body = diff[2:]
    gone = [line[1:] for line in body if line.startswith("-")]
    come = [line[1:] for line in body if line.startswith("+")]
    return bool(body) and (gone, come) == (entry.direct, entry.weir)
