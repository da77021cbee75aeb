"""Compares what two runs of a suite printed, and knows which differences are allowed."""

import difflib
import re
import tomllib
from dataclasses import dataclass


@dataclass(frozen=True)
class Allowed:
    """A reviewed difference, one hunk: these lines of a test in place of those, and nothing else."""

    suite: str
    test: str
    # Weir's pool modes in which it is there.
    modes: list
    reason: str
    direct: list
    weir: list


@dataclass(frozen=True)
class Unstable:
    """Results that depend on the process, since a client's server varies. They are not compared from
    the first line to the last, or in the whole test without these."""

    suite: str
    test: str
    modes: list
    reason: str
    first: str = ""
    last: str = ""

    def cut(self, lines):
        if not self.first:
            return []
        begin, end = lines.index(self.first), lines.index(self.last)
        return lines[:begin] + lines[end:]


@dataclass(frozen=True)
class Masked:
    """A number of the process, in the lines of a test: what matches is not compared."""

    suite: str
    test: str
    modes: list
    reason: str
    pattern: str

    def cut(self, lines):
        return [re.sub(self.pattern, "", line) for line in lines]


@dataclass
class Reviewed:
    """The permitted differences in one mode."""

    allowed: list
    # Of kinds that cut: [`Unstable`], [`Masked`].
    unstable: list


@dataclass
class Verdict:
    """Names of tests by what became of them, the differences as text, and how many of them were
    allowed."""

    identical: list
    allowed: list
    different: list
    diffs: str
    hunks: int


def read_reviewed(path, mode):
    """Returns the permitted differences in a pool mode."""
    document = tomllib.loads(path.read_text())
    allowed = [Allowed(**entry) for entry in document["difference"]]
    unstable = [Unstable(**entry) for entry in document["unstable"]]
    unstable += [Masked(**entry) for entry in document["masked"]]
    return Reviewed(*([one for one in kind if mode in one.modes] for kind in (allowed, unstable)))


def compare(suite, direct, weir, reviewed):
    verdict = Verdict([], [], [], "", 0)
    for test in suite.tests:
        before, after = direct.texts.get(test), weir.texts.get(test)
        # Neither run having come to a test proves nothing about it.
        if before is not None and before == after:
            verdict.identical.append(test)
            continue
        allowed, unstable = (
            [one for one in kind if (one.suite, one.test) == (suite.name, test)]
            for kind in (reviewed.allowed, reviewed.unstable)
        )
        found = None if before is None or after is None else hunks(before, after, unstable)
        if found is not None and all(any(covers(one, hunk) for one in allowed) for hunk in found):
            verdict.allowed.append(test)
            verdict.hunks += len(found) + len(unstable)
        else:
            verdict.different.append(test)
            verdict.diffs += "\n".join(unified(test, before, after)) + "\n"
    return verdict


def lines(text):
    return text.decode(errors="backslashreplace").splitlines()


def hunks(before, after, unstable):
    """Pairs of lines: gone, and come in their place. None where it is not lines that differ, or where
    there is no end to what is not to be compared."""
    texts = [lines(before), lines(after)]
    try:
        for one in unstable:
            texts = [one.cut(text) for text in texts]
    except ValueError:
        return None
    steps = difflib.SequenceMatcher(None, *texts, autojunk=False).get_opcodes()
    found = [
        (texts[0][gone:gone_end], texts[1][come:come_end])
        for kind, gone, gone_end, come, come_end in steps
        if kind != "equal"
    ]
    return found if found or unstable else None


def covers(entry, hunk):
    """Exactly the lines that were reviewed; one more, and it is another difference."""
    return hunk == (entry.direct, entry.weir)


def unified(test, before, after):
    if before is None or after is None:
        missing = " and ".join(
            name for name, text in (("directly", before), ("through Weir", after)) if text is None
        )
        return [f"{test}: no result {missing}"]
    names = [f"direct/{test}", f"weir/{test}"]
    # Bytes may differ where lines do not, as in the end of the last one: still a difference.
    changes = difflib.unified_diff(lines(before), lines(after), *names, lineterm="")
    return list(changes) or [f"{test}: line ends differ"]
