#!/usr/bin/env python3
"""Counts the fields and the booleans of the structs of a connection. Fails if there are more than the
bounds below, which may only shrink.

  scripts/structs.py            the counts, and whether the bounds hold

The goal is 25 fields and 2 booleans. Source is read as text: a struct made by a macro is not seen.
"""

import re
import sys

from circles import ROOT, closing, without_tests, without_text

GOAL = (25, 2)
# Fields and booleans, where they are beyond the goal: nowhere.
BOUNDS = {}
NAMES = {
    "engine": ["Client", "Server", "Login", "ServerLogin", "Session", "ServerSession", "Extended",
               "Ledger"],
    "proxy": ["Conn"],
}


def counts(body: str) -> tuple[int, int]:
    fields = re.findall(r"^ {4}(?:pub(?:\([^)]*\))? )?\w+: *([^\n]+)", body, re.M)
    return len(fields), sum(kind.rstrip(", ") == "bool" for kind in fields)


def main() -> int:
    failed = False
    for crate, names in NAMES.items():
        for path in sorted((ROOT / "crates" / crate / "src").rglob("*.rs")):
            source = without_tests(without_text(path.read_text()))
            for found in re.finditer(r"\bstruct (\w+)(?:<[^>]*>)?\s*\{", source):
                if found.group(1) not in names:
                    continue
                where = f"{path.relative_to(ROOT / 'crates')}:{found.group(1)}"
                seen = counts(source[found.end() : closing(source, found.end() - 1)])
                bound = BOUNDS.get(where, GOAL)
                print(f"structs: {where}: {seen[0]} fields, {seen[1]} booleans, bounds {bound}")
                if seen[0] > bound[0] or seen[1] > bound[1]:
                    failed = True
                    print(
                        f"structs: error: {where} has more fields or booleans than its bounds: move "
                        "fields that belong together to a struct of their own, or make an enum of "
                        "the booleans",
                        file=sys.stderr,
                    )
                elif where in BOUNDS and any(max(a, goal) < b for a, b, goal in zip(seen, bound, GOAL)):
                    print(f"structs: the bounds of {where} can shrink")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
