#!/usr/bin/env python3
"""Checks what neither the compiler nor clippy checks. Prints every offence and exits 1 if any.

* crates depend on each other in the allowed directions only
* no source file is longer than 1,000 lines (a warning from 600 on)
* the pure crates contain no clock, thread, socket, lock or file access
* every test COMPAT.md, SECURITY.md, docs/performance.md and docs/testing.md name exists, and each
  row of COMPAT.md names one
* no tracked file names a path of somebody's machine, or holds the marks of an unfinished merge
* every script of the shell can be parsed
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Crate -> the crates of ours it may use outside its tests. "*" is all.
ALLOWED = {
    "weir-wire": set(),
    "weir-config": set(),
    "weir-sql": set(),
    "weir-x509": set(),
    "weir-engine": {"weir-wire", "weir-config", "weir-sql"},
    "weir-mutants": {"weir-wire", "weir-config", "weir-sql"},
    "weir-proxy": {"weir-engine", "weir-config", "weir-wire", "weir-x509"},
    "weir-admin": {"weir-engine", "weir-config", "weir-wire"},
    "weir-testkit": {"weir-wire", "weir-engine", "weir-config"},
    "weir-fuzzing": {"weir-admin", "weir-engine", "weir-config", "weir-sql", "weir-wire"},
    "weir-load": {"weir-proxy", "weir-config", "weir-wire"},
    "weir-cli": "*",
    "weir-bench": "*",
    "weir-e2e": "*",
}

LINES_MAX = 1000
LINES_WARN = 600

PURE_CRATES = [
    "crates/wire/src", "crates/config/src", "crates/sql/src", "crates/engine/src", "crates/x509/src",
]
IMPURE = re.compile(
    r"\b(Instant::now|SystemTime::now|thread::spawn|std::net|Mutex|std::fs|fs::read|File::open)\b"
)
# The one place where a pure crate touches the world: reading the configuration's files.
IMPURE_ALLOWED = {"crates/config/src/load.rs": {"std::fs", "fs::read", "File::open"}}

# Documents that say what works or holds, and by which test.
PROVEN = ["COMPAT.md", "SECURITY.md", "docs/performance.md", "docs/testing.md"]

# Spelt in two parts, since this file is tracked as well.
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:wo" r"rk|ro" r"ot)/")
MERGE_MARKS = ("<" * 7 + " ", ">" * 7 + " ")


def tracked_files():
    """Files git knows or would offer to add; in an unpacked archive, all but build output."""
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "-co", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=False,
    )
    if listing.returncode == 0:
        names = listing.stdout.decode().split("\0")
        paths = [ROOT / name for name in names if name]
    else:
        paths = [p for p in ROOT.rglob("*") if not {"target", ".git"} & set(p.parts)]
    return sorted(path for path in set(paths) if path.is_file())


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def check_dependencies():
    metadata = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked"],
        cwd=ROOT, capture_output=True, check=False, text=True,
    )
    if metadata.returncode != 0:
        yield f"cargo metadata failed: {metadata.stderr.strip()}"
        return
    packages = json.loads(metadata.stdout)["packages"]
    ours = {package["name"] for package in packages}
    for package in packages:
        allowed = ALLOWED.get(package["name"])
        if allowed is None:
            yield f"crate {package['name']} has no entry in ALLOWED of scripts/tidy.py"
            continue
        for dependency in package["dependencies"]:
            name = dependency["name"]
            if name not in ours or dependency["kind"] == "dev" or allowed == "*":
                continue
            if name not in allowed:
                yield f"crate {package['name']} may not depend on {name}"


def check_length(sources):
    for path, text in sources.items():
        lines = text.count("\n")
        if lines > LINES_MAX:
            yield f"{name_of(path)} has {lines} lines, more than {LINES_MAX}"
        elif lines > LINES_WARN:
            print(f"tidy: warning: {name_of(path)} has {lines} lines, more than {LINES_WARN}")


def product_lines(text):
    """Numbered lines of a source file without comments and without its tests at the bottom."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#[cfg(test)]"):
            rest = text.splitlines()[number:]
            # `mod tests;` is one line and the file goes on; `mod tests {` is its end.
            if rest and rest[0].rstrip().endswith("{"):
                return
        if not line.lstrip().startswith("//"):
            yield number, line


def check_purity(sources):
    for path, text in sources.items():
        name = name_of(path)
        in_tests = path.stem == "tests" or "tests" in path.parts
        if in_tests or not any(name.startswith(crate + "/") for crate in PURE_CRATES):
            continue
        for number, line in product_lines(text):
            for word in IMPURE.findall(line):
                if word not in IMPURE_ALLOWED.get(name, set()):
                    yield f"{name}:{number}: {word} in a crate that does no I/O"


def cells(row):
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def check_named_tests(sources):
    tests = set()
    for text in sources.values():
        tests |= set(re.findall(r"\bfn\s+(\w+)", text))
    for document in PROVEN:
        yield from check_document(document, tests)


def check_document(document, tests):
    """Tests are written `module::name`, several with commas, in the column headed "test"."""
    column = status = None
    for number, line in enumerate((ROOT / document).read_text().splitlines(), 1):
        if not line.startswith("|"):
            column = None
            continue
        row = cells(line)
        if column is None:
            heads = [head.lower() for head in row]
            column = heads.index("test") if "test" in heads else len(row)
            status = heads.index("status") if "status" in heads else None
            continue
        if column >= len(row):
            continue
        if not row[column] and status is not None and row[status] != "not applicable":
            yield f"{document}:{number}: what works without a test?"
        for test in re.findall(r"[\w:]*\w", row[column]):
            if test.rsplit("::", 1)[-1] not in tests:
                yield f"{document}:{number}: there is no test {test}"


def check_paths(paths):
    for path in paths:
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if MACHINE_PATH.search(line):
                yield f"{name_of(path)}:{number}: names a path of one machine"
            if line.startswith(MERGE_MARKS):
                yield f"{name_of(path)}:{number}: an unfinished merge"


def check_scripts(paths):
    for path in paths:
        with path.open("rb") as file:
            first = file.readline()
        if re.match(rb"#!.*\b(ba)?sh\b", first):
            parsed = subprocess.run(
                ["bash", "-n", path], capture_output=True, check=False, text=True
            )
            if parsed.returncode != 0:
                yield parsed.stderr.strip()


def main():
    paths = tracked_files()
    sources = {path: path.read_text() for path in paths if path.suffix == ".rs"}
    offences = [
        *check_dependencies(),
        *check_length(sources),
        *check_purity(sources),
        *check_named_tests(sources),
        *check_paths(paths),
        *check_scripts(paths),
    ]
    for offence in offences:
        print(f"tidy: {offence}", file=sys.stderr)
    if not offences:
        print(f"tidy: {len(paths)} files are in order")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
