#!/usr/bin/env python3
"""Counts what still reaches through the walls of the engine. Fails if a count is above its
bound below. The bounds may only shrink: a step that lowers a count lowers its bound, too.

  scripts/walls.py            the counts, and whether the bounds hold
  scripts/walls.py --list     every place that is counted, too

Each file of the engine belongs to one of four layers: data, rules, machines, engine. A file imports
from its own layer and from lower ones.

Source is read as text, without comments, strings and tests: what a macro makes is not seen.
"""

import re
import sys

from circles import IMPL_OF_ENGINE, ROOT, closing, imports, product_files, without_tests, without_text

BOUNDS = {
    "methods of Engine outside engine/": 0,
    "files outside engine/ that name Engine": 0,
    "methods of Engine": 249,
    "files outside lifecycle/pair that link a client and a server": 0,
    "files outside phase that replace a phase": 0,
    "imports from a higher layer": 0,
}

LAYERS = ["data", "rules", "machines", "engine"]
DATA = """
    encoding ids own_error values vars lifecycle/close_reason lifecycle/own_query lifecycle/replication
    login/guesses login/server_secret notify/interruption operator/failures operator/histogram
    operator/stats relay/batch_end relay/changes relay/ledger/depth routing/freshness
    session/carried session/pins
""".split()
# Files whose functions borrow a client, a server or a pool, and return what follows. A folder stands
# for the files in it.
MACHINES = """
    admission/lobby_seats admission/seat cancel/ahead cancel/requests cancel/signal lifecycle/ahead
    lifecycle/apply lifecycle/attend lifecycle/connect_query lifecycle/defaults lifecycle/enlist
    lifecycle/failed lifecycle/leave lifecycle/lost lifecycle/open lifecycle/open_failure
    lifecycle/pair lifecycle/prepare lifecycle/principal lifecycle/release lifecycle/replicate
    lifecycle/statements login/auth_query login/certificate login/checks login/door login/patience
    login/sasl login/startup login/steps notify/connection notify/listen relay/replies
    relay/requests relay/resend relay/substitute routing/begun routing/choose routing/hold
    routing/refused session/holding session/verdict
""".split()

METHOD = re.compile(r"\bfn\s+(\w+)")
LINK = re.compile(r"\b(?:client|half|self)\w*(?:\(\w+\)|\[\w+\])?\.server\s*=[^=>]|"
                  r"\b(?:server|half|self)\w*(?:\(\w+\)|\[\w+\])?\.client(?:\s*=[^=>]|\.take\()")

PHASE = re.compile(r"\.phase\s*=[^=>]|mem::(?:swap|replace|take)\(\s*&mut [\w.\[\]]+\.phase\b")


def layer(file: str) -> int:
    """The layer's number. A file that is not in a list above has rules."""
    if file.split("/")[0] == "engine":
        return LAYERS.index("engine")
    parents = ["/".join(file.split("/")[:end]) for end in range(1, file.count("/") + 2)]
    return LAYERS.index("machines" if any(one in MACHINES for one in parents) else
                        "data" if file in DATA else "rules")


def methods(source: str) -> list[str]:
    """The names of the methods of `Engine`."""
    found = []
    for block in IMPL_OF_ENGINE.finditer(source):
        end = closing(source, block.end() - 1)
        for method in METHOD.finditer(source, block.end(), end):
            before = source[block.end() : method.start()]
            if before.count("{") == before.count("}"):
                found.append(method.group(1))
    return found


def main() -> int:
    modules = product_files(ROOT / "crates/engine")
    sources = {"/".join(name) or "lib": without_tests(without_text(path.read_text()))
               for name, path in modules.items()}
    outside = {file: text for file, text in sources.items()
               if file.split("/")[0] != "engine" and file != "lib"}
    counted = {
        "methods of Engine outside engine/":
            [f"{file}: {name}" for file, text in outside.items() for name in methods(text)],
        "files outside engine/ that name Engine":
            [file for file, text in outside.items() if re.search(r"\bEngine\b", text)],
        "methods of Engine":
            [f"{file}: {name}" for file, text in sources.items() for name in methods(text)],
        "files outside lifecycle/pair that link a client and a server":
            [file for file, text in sources.items()
             if file != "lifecycle/pair" and LINK.search(text)],
        "files outside phase that replace a phase":
            [file for file, text in sources.items() if file != "phase" and PHASE.search(text)],
        "imports from a higher layer":
            [f"{LAYERS[layer(file)]} {file} uses {LAYERS[layer(used)]} {used}"
             for file, others in imports(modules).items() if file != "lib"
             for used in sorted(others) if layer(used) > layer(file)],
    }
    failed = False
    for what, places in counted.items():
        count, bound = len(places), BOUNDS[what]
        print(f"walls: {what}: {count}, bound {bound}")
        for place in places if "--list" in sys.argv[1:] else []:
            print(f"  {place}")
        if count > bound:
            failed = True
            print(f"walls: error: {what}: {count} is more than {bound}", file=sys.stderr)
        elif count < bound:
            print(f"walls: the bound of {what} can shrink to {count}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
