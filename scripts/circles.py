#!/usr/bin/env python3
"""Counts circles: files of a crate that import each other, and functions of the engine that can all
reach each other by calls. Fails if there are larger ones than the bounds below, which may only shrink;
and if a file imports from a room of its crate that its own room does not know.

  scripts/circles.py            the largest of each, and whether the bounds hold
  scripts/circles.py --list     every circle with its members

Source is read as text, without comments, strings and tests: an import or a call made by a macro is not
seen.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Of files, in any crate.
FILES_MAX = 3
FUNCTIONS_MAX = 3

# The rooms that a room of a crate does not know.
ROOMS = {"proxy": {"exchange": {"data", "cold", "lobby", "stepped"}, "data": {"cold", "lobby", "stepped"}, "lobby": {"cold", "data", "stepped"}, "cold": {"stepped"}}}

USE = re.compile(r"\buse\s+((?:crate|super|self)::[^;]+);")
IMPL_OF_ENGINE = re.compile(r"\bimpl(?:<[^>]*>)?\s+(?:[\w:]+(?:<[^>]*>)?\s+for\s+)?Engine(?:<[^>]*>)?\s*\{")
FUNCTION = re.compile(r"\bfn\s+(\w+)\s*(?:<[^>]*>)?\s*\(")
CALL = re.compile(r"\b(?:self|engine|Self)\s*(?:\.|::)\s*(\w+)\s*(?:::<[^>]*>)?\(")


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


def main() -> int:
    lists = "--list" in sys.argv[1:]
    failures = []

    def judge(what: str, found: list[list[str]], bound: int) -> None:
        largest = len(found[0]) if found else 0
        print(f"circles: {what}: largest {largest}, bound {bound}")
        for circle in found if lists else []:
            print(f"  {len(circle)}: {' '.join(circle)}")
        if largest > bound:
            failures.append(f"{what}: a circle has grown")

    def judge_rooms(crate: str, edges: dict[str, set[str]]) -> None:
        for room, closed in ROOMS.get(crate, {}).items():
            for file in (file for file in edges if file.split("/")[0] == room):
                for used in sorted(edges[file]):
                    if used.split("/")[0] in closed:
                        failures.append(f"{crate}: {file} may not use {used}")

    for crate in sorted((ROOT / "crates").iterdir()):
        if (crate / "src").is_dir():
            edges = imports(product_files(crate))
            judge(crate.name, circles(edges), FILES_MAX)
            judge_rooms(crate.name, edges)
    judge("functions of the engine", circles(calls(product_files(ROOT / "crates/engine"))), FUNCTIONS_MAX)
    for what in failures:
        print(f"circles: error: {what}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
