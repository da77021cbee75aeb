#!/usr/bin/env python3
"""Counts what still reaches through the walls between the files of a crate: of the engine by layers,
of the proxy by rooms, of each crate, of bench and of thesis by circles of imports. Fails if a count is above its bound below.
The bounds may only shrink: a step that lowers a count lowers its bound, too.

  scripts/walls.py            the counts, and whether the bounds hold
  scripts/walls.py --list     every place that is counted, too

Each file of the engine belongs to one of four layers: data, rules, machines, engine. A file imports
from its own layer and from lower ones.

Source is read as text, without comments, strings and tests: an import or a call made by a macro is not
seen.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

BOUNDS = {
    "methods of Engine outside engine/": 0,
    "files outside engine/ that name Engine": 0,
    "methods of Engine": 111,
    "files outside lifecycle/pair that link a client and a server": 0,
    "files outside phase that replace a phase": 0,
    "imports from a higher layer": 0,
    "imports from a room that the file's own does not know": 0,
    "largest circle of methods of Engine": 2,
    "largest circle of files that import each other": 3,
    "largest circle of files of bench": 0,
    "largest circle of files of thesis": 0,
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

# The rooms of the proxy that a room does not know.
ROOMS = {
    "exchange": {"data", "cold", "lobby", "stepped"},
    "data": {"cold", "lobby", "stepped"},
    "lobby": {"cold", "data", "stepped"},
    "cold": {"stepped"},
}

USE = re.compile(r"\buse\s+((?:crate|super|self)::[^;]+);")
IMPL_OF_ENGINE = re.compile(
    r"\bimpl(?:<[^>]*>)?\s+(?:[\w:]+(?:<[^>]*>)?\s+for\s+)?Engine(?:<[^>]*>)?\s*\{"
)
FUNCTION = re.compile(r"\bfn\s+(\w+)\s*(?:<[^>]*>)?\s*\(")
CALL = re.compile(r"\b(?:self|engine|Self)\s*(?:\.|::)\s*(\w+)\s*(?:::<[^>]*>)?\(")

METHOD = re.compile(r"\bfn\s+(\w+)")
LINK = re.compile(r"\blink::(?:\{[^}]*)?join\b|\.(?:client|server)\.end\(|"
                  r"\.(?:client|server)\s*=\s*Link\b|"
                  r"mem::(?:swap|replace|take)\(\s*&mut [\w.\[\]]+\.(?:client|server)[,)]")

PHASE = re.compile(r"\.phase\s*=[^=>]|mem::(?:swap|replace|take)\(\s*&mut [\w.\[\]]+\.phase\b")


def without_text(source: str) -> str:
    """Comments, strings and character literals become blanks."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\[^\n]+?|[^\\\n\'])\'', re.S
    )
    blank = lambda found: re.sub(r"[^\n]", " ", found.group())
    return pattern.sub(blank, source)


def closing(source: str, at: int) -> int:
    """Returns the position of the brace that closes the one at `at`."""
    depth = 0
    for brace in re.compile(r"[{}]").finditer(source, at):
        depth += 1 if brace.group() == "{" else -1
        if depth == 0:
            return brace.start()
    return len(source)


def without_tests(source: str) -> str:
    found = re.search(r"#\[cfg\(test\)\]\s*mod\s+\w+\s*\{", source)
    return source if found is None else source[: found.start()]


def product_files(crate: Path) -> dict[tuple[str, ...], Path]:
    """The files of a crate by the path of their module."""
    modules = {}
    for path in sorted((crate / "src").rglob("*.rs")):
        parts = path.relative_to(crate / "src").with_suffix("").parts
        if parts[-1] in ("tests", "model"):
            continue
        modules[() if parts in (("lib",), ("main",)) else parts] = path
    return modules


def expanded(tree: str) -> list[str]:
    """The paths of a use tree: a::{b, c::{d}} is a::b and a::c::d."""
    tree = re.sub(r"\s+", " ", tree).strip()
    brace = tree.find("{")
    if brace < 0:
        return [tree.split(" as ")[0].strip()]
    head, inner = tree[:brace], tree[brace + 1 : tree.rfind("}")]
    parts, depth, start = [], 0, 0
    for at, sign in enumerate(inner + ","):
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            parts.append(inner[start:at].strip())
            start = at + 1
    return [path for part in parts if part for path in expanded(head + part)]


def imports(modules: dict[tuple[str, ...], Path]) -> dict[str, set[str]]:
    edges = {}
    for name, path in modules.items():
        found = set()
        for tree in USE.findall(without_tests(without_text(path.read_text()))):
            for used in expanded(tree):
                segments = used.split("::")
                base = () if segments[0] == "crate" else name
                while segments and segments[0] in ("crate", "self", "super"):
                    if segments.pop(0) == "super":
                        base = base[:-1]
                target = (*base, *segments)
                while target not in modules and target:
                    target = target[:-1]
                if target and target != name:
                    found.add("/".join(target))
        edges["/".join(name) or "lib"] = found
    return edges


def calls(modules: dict[tuple[str, ...], Path]) -> dict[str, set[str]]:
    """Of the methods of `Engine`, by name."""
    bodies: dict[str, list[str]] = {}
    for path in modules.values():
        source = without_tests(without_text(path.read_text()))
        for block in IMPL_OF_ENGINE.finditer(source):
            end = closing(source, block.end() - 1)
            at = block.end()
            while (found := FUNCTION.search(source, at, end)) is not None:
                opening = source.find("{", found.end())
                at = closing(source, opening)
                bodies.setdefault(found.group(1), []).append(source[opening:at])
    called = lambda texts: {name for text in texts for name in CALL.findall(text)}
    return {name: called(texts) & bodies.keys() for name, texts in bodies.items()}


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The sets of two and more that can all reach each other, the largest first (Tarjan)."""
    index, low, stack, on_stack, found = {}, {}, [], set(), []
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(sorted(edges[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in edges:
                    continue
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(sorted(edges[other]))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    circle = []
                    while True:
                        circle.append(stack.pop())
                        on_stack.remove(circle[-1])
                        if circle[-1] == node:
                            break
                    if len(circle) > 1:
                        found.append(sorted(circle))
    return sorted(found, key=len, reverse=True)


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


def largest(found) -> list[str]:
    """The members of the largest of all circles."""
    return max((one for circles in found for one in circles), key=len, default=[])


def main() -> int:
    crates = {path.name: product_files(path) for path in sorted((ROOT / "crates").iterdir())
              if (path / "src").is_dir()}
    edges = {crate: imports(modules) for crate, modules in crates.items()}
    modules = crates["engine"]
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
             for file, others in edges["engine"].items() if file != "lib"
             for used in sorted(others) if layer(used) > layer(file)],
        "imports from a room that the file's own does not know":
            [f"{file} uses {used}" for file, others in edges["proxy"].items()
             for used in sorted(others) if used.split("/")[0] in ROOMS.get(file.split("/")[0], ())],
        "largest circle of methods of Engine": largest([circles(calls(modules))]),
        "largest circle of files that import each other":
            largest(circles(files) for files in edges.values()),
        "largest circle of files of bench":
            largest([circles(imports(product_files(ROOT / "bench")))]),
        "largest circle of files of thesis":
            largest([circles(imports(product_files(ROOT / "thesis")))]),
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
