"""The output of a run: a table for people, and JSON for programs."""

import json

from .outcome import FAILED, PASSED, SKIPPED

# So many tests that did not run are named one by one; more mean that the suite has died.
ABSENT_MAX = 10

HEAD = ("driver", "mode", "passed", "failed", "skipped", "only through Weir", "listed", "seconds")


class Report:
    """Gathers one row for each suite and mode, and the problems that make the run fail."""

    def __init__(self):
        self.rows = []
        self.problems = []
        self.details = []

    def direct(self, suite, outcome):
        self._row(suite, "direct", outcome, "-", "-")

    def pooled(self, suite, way, outcome, lost, expected):
        unlisted = {test: why for test, why in lost.items() if expected.reason(test) is None}
        self._row(suite, str(way), outcome, len(lost), len(lost) - len(unlisted))
        absent = sorted(test for test in unlisted if test not in outcome.tests)
        if len(absent) > ABSENT_MAX:
            self.problem(f"{suite.name}, {way}: {len(absent)} tests did not run, "
                         f"{absent[0]} the first by name")
            unlisted = {test: why for test, why in unlisted.items() if test in outcome.tests}
        for test, message in sorted(unlisted.items()):
            self.problem(f"{suite.name}, {way}: {test} fails only through Weir: {gist(message)}")
        self.details.append({
            "driver": suite.name, "mode": way.mode, "servers": way.servers,
            "only_through_weir": [
                {"test": test, "listed_as": expected.reason(test), "message": message}
                for test, message in sorted(lost.items())
            ],
        })

    def stale(self, suite, name, entries):
        for entry in entries:
            print(f"  warning: {suite.name}, {name}: {entry} is listed but does not fail")

    def problem(self, text):
        print(f"  problem: {text}", flush=True)
        self.problems.append(text)

    def _row(self, suite, mode, outcome, lost, listed):
        self.rows.append((
            f"{suite.name} {suite.version}", mode, outcome.count(PASSED), outcome.count(FAILED),
            outcome.count(SKIPPED), lost, listed, round(outcome.seconds),
        ))

    def table(self):
        rows = [tuple(map(str, row)) for row in (HEAD, *self.rows)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if column < 2 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths))
            ).rstrip()
            for row in rows
        )

    def write(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({
            "rows": [dict(zip(HEAD, row)) for row in self.rows],
            "problems": self.problems, "details": self.details,
        }, indent=1) + "\n")


def gist(message):
    """The line of a failure that says most."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    telling = [line for line in lines if "rror" in line or "FATAL" in line]
    return (telling or lines or [""])[-1][:200]
