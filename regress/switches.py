"""Who had which server, per test. PostgreSQL's log says how many transactions began on another server
than the one before, and how often the hostile client then had the server just left: Weir is not asked,
so it cannot be wrong about itself. Why a client stayed where it was is Weir's to say (SHOW PINS)."""

import re
import statistics
from dataclasses import dataclass, field

# For postgresql.conf: each statement with its process and its application.
SETTINGS = """
log_statement = all
log_line_prefix = '%p %a: '
"""
LINE = re.compile(r"(\d+) (pg_regress/(\S+)|hostile): LOG:  (?:statement|execute [^:]*): (.*)")
# Weir gives the server to the hostile client: still under the name of whoever was there.
HANDED_ON = "SET application_name = 'hostile'"


@dataclass
class Count:
    """Of one test."""

    transactions: int
    # So many of them began on another server than the one before.
    switches: int = 0
    # Of the switches, those from a server that the hostile client has had before the next one.
    visited: int = 0
    # After so many of them, as a share, the client kept its server.
    pinned: float = 0.0
    reasons: list = field(default_factory=list)

    @property
    def share(self):
        return self.switches / self.transactions


def read(log, kept):
    """Test -> Count, of PostgreSQL's log and of what the proxy has seen (hostile.Kept)."""
    counts = {
        test: Count(
            # But the first, which has no server to leave.
            transactions=one.transactions - 1,
            pinned=one.pinned / one.transactions,
            reasons=[reason for reason, _ in one.reasons.most_common()],
        )
        for test, one in kept.items()
        if one.transactions > 1
    }
    last, visits = {}, set()
    with open(log, encoding="utf8", errors="replace") as lines:
        for found in filter(None, map(LINE.match, lines)):
            pid, _, test, text = found.groups()
            if test is None:
                visits.add(pid)
            elif test in counts and HANDED_ON not in text:
                before = last.get(test, pid)
                if pid != before:
                    counts[test].switches += 1
                    counts[test].visited += before in visits
                last[test] = pid
                visits.discard(pid)
    return counts


def table(counts):
    """A line for each test, the least switched first."""
    rows = sorted(counts.items(), key=lambda row: (row[1].share, row[0]))
    return "test\ttransactions\tswitches\tshare\tpinned\treasons\n" + "".join(
        f"{test}\t{one.transactions}\t{one.switches}\t{one.share:.0%}\t{one.pinned:.0%}\t"
        f"{', '.join(one.reasons)}\n"
        for test, one in rows
    )


def summary(counts):
    """What is asked of a run: the medians of switched and of unpinned transactions, all switches, and
    the share of those after which the hostile client came."""
    switches = sum(one.switches for one in counts.values())
    visited = sum(one.visited for one in counts.values())
    return (
        statistics.median(one.share for one in counts.values()),
        statistics.median(1 - one.pinned for one in counts.values()),
        switches,
        visited / switches if switches else 0.0,
    )
