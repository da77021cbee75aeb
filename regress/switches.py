"""Counts changes of servers, per test. PostgreSQL's log shows how many transactions began on another
server than the one before, and how often the hostile client got the server just left. Weir's own
figures are not used for that, so its errors cannot hide. Weir's SHOW PINS gives the reasons for which
clients kept their server."""

import re
import statistics
from dataclasses import dataclass, field

# For postgresql.conf: each statement with its process and its application.
SETTINGS = """
log_statement = all
log_line_prefix = '%p %a: '
"""
LINE = re.compile(
    r"(\d+) (hostile|pg_regress/([^/:]+)|isolation/([^/:]+)/(?!control connection)[^:]+): LOG:  "
    r"(?:statement|execute [^:]*): (.*)"
)
# Weir's own, under the name of whoever was there: it gives the server to another client, asks what is
# left, or ends listening there.
OURS = re.compile(
    r"SET application_name = |SELECT pg_catalog\.concat\(kind, |LISTEN \"_weir_|UNLISTEN \*$"
)


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
            # But the first of each session, which has no server to leave.
            transactions=one.transactions - len(one.sessions),
            pinned=one.pinned / one.transactions,
            reasons=[reason for reason, _ in one.reasons.most_common()],
        )
        for test, one in kept.items()
        if one.transactions > len(one.sessions)
    }
    # The process of each session's last statement; the last session of each process; where the hostile
    # client has been since; and the processes that were left, and it has not come yet, with the test.
    last, owner, visits, left = {}, {}, set(), {}
    with open(log, encoding="utf8", errors="replace") as lines:
        for found in filter(None, map(LINE.match, lines)):
            pid, name, *tests, text = found.groups()
            test = next(filter(None, tests), None)
            if test is None:
                visits.add(pid)
                if pid in left:
                    counts[left.pop(pid)].visited += 1
            elif not OURS.search(text):
                before = last.get(name, pid)
                last[name] = pid
                left.pop(pid, None)
                if pid != before and test in counts:
                    counts[test].switches += 1
                    # Unless another client of the suite has been there meanwhile.
                    if owner[before] == name and before in visits:
                        counts[test].visited += 1
                    elif owner[before] == name:
                        left[before] = test
                owner[pid] = name
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
    """Returns the figures of a run: medians of switched and of unpinned transactions, all switches, and
    the share of those after which the hostile client came."""
    switches = sum(one.switches for one in counts.values())
    visited = sum(one.visited for one in counts.values())
    return (
        statistics.median(one.share for one in counts.values()),
        statistics.median(1 - one.pinned for one in counts.values()),
        switches,
        visited / switches if switches else 0.0,
    )
