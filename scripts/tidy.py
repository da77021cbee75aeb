#!/usr/bin/env python3
"""Checks what neither the compiler nor clippy checks. Prints every offence and exits 1 if any.

* crates depend on each other in the allowed directions only
* no source file, of Rust or C, is longer than 1,000 lines (a warning from 600 on)
* lines of C are at most 100 columns long, and have no tabs; what depends on PostgreSQL's version is in
  extension/compat.h
* the pure crates contain no clock, thread, socket, lock or file access; no decision of the pooler
  depends on the wall clock, which may be set at any time
* every test COMPAT.md, SECURITY.md, docs/performance.md and docs/testing.md name exists, and each
  row of COMPAT.md has one in its appendix
* each package's tests are run by `make test` or by `make verify` (.config/nextest.toml)
* no tracked file names a path of somebody's machine, a number of a document that no reader has, or holds
  the marks of an unfinished merge; none is larger than 400 kB, as a dump of memory or a built program is
* every script of the shell can be parsed
* every list of what may fail in a driver's suite (drivers/expected) can be read
* no sentence of a document begins with a bare relative ("Who", "Whoever", "What"), unless it asks;
  nor does one of a comment in the crates that are rewritten
* no comment of a Rust file begins with such a word, or with "Those", "Which", "Whether", "Where",
  "How" or "The same"
* no line of a document has more than 100 columns, no row of a table more than 160
* every identifier and every source file that a document names in backticks exists
* the glossary has one entry for each word, and one meaning in each entry
* each entry of the changelog is one line of at most 120 characters
* every link from one document to another, or to a heading, leads there
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
    "weir-pgpool": {"weir-config", "weir-wire"},
    "weir-sql": set(),
    "weir-x509": set(),
    "weir-cluster": set(),
    "weir-cluster-mutants": set(),
    "weir-etcd": {"weir-cluster"},
    "weir-engine": {"weir-wire", "weir-config", "weir-sql"},
    "weir-mutants": {"weir-wire", "weir-config", "weir-sql"},
    "weir-net": {"weir-config", "weir-wire", "weir-x509"},
    "weir-room": {"weir-net"},
    "weir-proxy": {
        "weir-room", "weir-cluster", "weir-etcd", "weir-net", "weir-engine", "weir-config", "weir-sql", "weir-wire",
        "weir-x509",
    },
    "weir-admin": {"weir-engine", "weir-config", "weir-sql", "weir-wire"},
    "weir-testkit": {"weir-wire", "weir-engine", "weir-config"},
    "weir-model": {"weir-wire"},
    "weir-fuzzing": {
        "weir-admin", "weir-engine", "weir-config", "weir-model", "weir-pgpool", "weir-sql", "weir-wire",
    },
    "weir-load": {"weir-net", "weir-config", "weir-wire"},
    "weir-cli": "*",
    "weir-bench": "*",
    "weir-e2e": "*",
    "weir-thesis": {"weir-admin", "weir-load", "weir-testkit"},
}

LINES_MAX = 1000
BYTES_MAX = 400_000
LINES_WARN = 600
COLUMNS_MAX = 100

PURE_CRATES = [
    "crates/wire/src", "crates/config/src", "crates/sql/src", "crates/engine/src", "crates/x509/src",
    "crates/cluster/src", "crates/pgpool/src",
]
IMPURE = re.compile(
    r"\b(Instant::now|SystemTime::now|thread::spawn|std::net|Mutex|std::fs|fs::read|File::open)\b"
)
# The one place where a pure crate touches the world: reading the configuration's files.
IMPURE_ALLOWED = {"crates/config/src/load.rs": {"std::fs", "fs::read", "File::open"}}

WALL_CLOCK = re.compile(r"\b(SystemTime|UNIX_EPOCH)\b")
# The data path, the cold side and what they decide with. The log, the console and the command line show
# the time of day. The dates of certificates are the only thing that is judged by it.
WALL_CLOCKLESS = (
    "crates/cluster/src", "crates/engine/src", "crates/net/src", "crates/proxy/src", "crates/room/src",
)
WALL_CLOCK_ALLOWED = "crates/proxy/src/log/line.rs"

# Documents that say what works or holds, and by which test.
PROVEN = ["COMPAT.md", "SECURITY.md", "docs/performance.md", "docs/testing.md"]
# The end of a test's name says when it runs (.config/nextest.toml). Documents may leave it out.
TEST_MARKS = re.compile(r"(_core)?(_strict)?$")

# `make test` leaves the tests of these packages out, but for those whose name says that they are core.
NOT_CORE = ("e2e/", "bench/", "crates/testkit/", "crates/fuzzing/", "crates/model/", "crates/mutants/",
            "crates/cluster-mutants/", "thesis/")
# Promises of SECURITY.md whose tests need another server than PostgreSQL: LDAP, PAM.
NEEDS_MORE = {"W6", "W7"}

# Documents that are not in plain English yet. Their prose is not checked. This list only shrinks: tidy
# says so when one of them passes.
NOT_REWRITTEN = set()

# Crates whose comments are in plain English. This list only grows.
REWRITTEN_CRATES = (
    "admin", "cli", "cluster", "config", "engine", "load", "net", "pgpool", "proxy", "room", "sql",
    "testkit",
    "wire", "x509",
)

# Documents whose diagrams show calls.
CALL_DIAGRAMS = {"docs/life-of-a-query.md", "docs/tour.md"}
GLOSSARY = "docs/glossary.md"
CHANGELOG = "CHANGELOG.md"
ROW_COLUMNS_MAX = 160
ENTRY_COLUMNS_MAX = 120

RELATIVE = re.compile(r"(?:Who|Whoever|Whom|Whomever|Whose|What|Whatever)\b")
# A comment that begins so leaves it to the reader to guess what it is about.
BARE_OPENING = re.compile(rf"{RELATIVE.pattern}|(?:Those|Which|Whether|Where|How|The same)\b")
# Folders whose comments may still begin so. This list only shrinks.
OPENINGS_NOT_REWRITTEN = ("e2e/tests/e2e/auto", "e2e/tests/e2e/builtin")
# The comments in this folder are the text of docs/config.md.
KEYS = "crates/config/src/table/"
# A definition that goes on to another meaning.
SECOND_MEANING = re.compile(r"[.;] (?:Also\b|Or\b|In [^.:;]{1,40}:)")
IDENTIFIER = re.compile(r"[A-Za-z_]\w*(?:::\w+)*(?:\(\))?")
SOURCE_FILE = re.compile(r"[\w./-]+\.(?:rs|py|json|toml|md|service|socket)|[\w.-]+/[\w./-]*")
# Words in backticks that are not Weir's: of SQL, PostgreSQL, PgBouncer, libraries and other programs;
# and names that stand for any name.
FOREIGN = set("""
    ISNULL NOTNULL PQbackendPID connection_failure duplicate_prepared_statement horology
    invalid_sql_statement_name pam_unix samenet ttdummy
    DateTest test_auth.py test_load_balance_hosts.py test_misc.py test_peering.py wait_until
    server_tls_reload_interval fuzz/work fuzz/artifacts fuzz/regressions/TARGET/
    ba70b6c899df3aad foo.rs foo/tests.rs mod.rs get_ unprepare weir_7 weir_N PGBOUNCER_N
    app_name_redirect_preference_list auto_failback check_temp_table client_idle_limit
    connection_life_time delay_threshold delay_threshold_by_time disable_load_balance_on_write
    dml_adaptive failover_command follow_primary_command health_check_max_retries
    health_check_period health_check_timeout health_check_user max_pool num_init_children
    pcp_attach_node pcp_detach_node pcp_node_info pcp_proc_info pcp_recovery_node pgpool_status
    pcp_health_check_stats pcp_invalidate_query_cache pcp_log_rotate pcp_node_count pcp_pool_status
    pcp_proc_count pcp_promote_node pcp_reload_config pcp_stop_pgpool pcp_watchdog_info
    pool_passwd primary_routing_query_pattern_list read_only_function_list reset_query_list
    sr_check_period sr_check_user statement_level_load_balance streaming_replication
    user_redirect_preference_list write_function_list backend_hostnameN backend_portN
    backend_weightN load_balance_mode
""".split())

# Spelt in two parts, since this file is tracked as well.
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:wo" r"rk|ro" r"ot)/")
# Requirements are named in words.
NUMBER_OF_NOTHING = re.compile(r"\bR0\d\d-\d")
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


def check_clocks(sources):
    for path, text in sources.items():
        name = name_of(path)
        if name == WALL_CLOCK_ALLOWED or not name.startswith(WALL_CLOCKLESS):
            continue
        for number, line in product_lines(text):
            for word in WALL_CLOCK.findall(line):
                yield f"{name}:{number}: {word}: the wall clock may be set at any time; use a monotonic one"


def cells(row):
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def check_named_tests(sources):
    tests, core = set(), set()
    for path, text in sources.items():
        tests |= set(re.findall(r"\bmod\s+(\w+)", text))
        for name in re.findall(r"\bfn\s+(\w+)", text):
            plain = TEST_MARKS.sub("", name)
            tests |= {name, plain}
            if "_core" in name[len(plain):] or not name_of(path).startswith(NOT_CORE):
                core |= {name, plain}
    for document in PROVEN:
        yield from check_document(document, tests, core)


def check_tiers(paths):
    """`make test` runs the packages of default-members, and the core tests of the others. `make verify`
    runs the other tests of those."""
    manifests = {path.parent: path.read_text() for path in paths if path.name == "Cargo.toml"}
    whole = manifests.pop(ROOT)
    product = set(re.findall(r'"([^"]+)"', re.search(r"default-members = \[(.*?)\]", whole, re.S)[1]))
    members = re.compile(r"(crates/[^/]+|bench|e2e|thesis)$")
    left = {name_of(folder) for folder in manifests if members.match(name_of(folder))} - product
    if {f"{folder}/" for folder in left} != set(NOT_CORE):
        yield f"scripts/tidy.py: NOT_CORE is not what Cargo.toml leaves out of default-members: {left}"
    names = {re.search(r'^name = "weir-(.*)"$', manifests[ROOT / folder], re.M)[1] for folder in left}
    config = ".config/nextest.toml"
    for found in re.findall(r"package\(/\^weir-\((.*?)\)\$/\)", (ROOT / config).read_text()):
        if set(found.split("|")) != names:
            yield f"{config}: the filters name {found}, and the packages beside the product are {names}"


def check_core(document, claims, core):
    """Of each promise of SECURITY.md at least one test is run by `make test`."""
    for claim, named in claims.items():
        if claim not in NEEDS_MORE and not named & core:
            yield f"{document}: no test of {claim} is a core test: mark one (.config/nextest.toml)"


def check_document(document, tests, core):
    """Tests are written `module::name`, several with commas, in the column headed "test". A row with a
    status has its tests in the section "Tests: …" of the same name, in the row of the same feature."""
    column = status = section = None
    rows, claimed, shown, promises = set(), {}, set(), {}
    for number, line in enumerate((ROOT / document).read_text().splitlines(), 1):
        if line.startswith("#"):
            section = line.lstrip("# ")
        if not line.startswith("|"):
            column = None
            continue
        row = cells(line)
        if column is None:
            heads = [head.lower() for head in row]
            only_core = "core test" in heads
            column = next((heads.index(head) for head in ("test", "core test") if head in heads), len(row))
            status = heads.index("status") if "status" in heads[1:] else None
            continue
        if not row[0].strip("-"):
            continue
        if status is not None:
            rows.add((section, row[0]))
            if row[status] != "not applicable":
                claimed[section, row[0]] = number
        if column >= len(row):
            continue
        if row[column]:
            shown.add((section.removeprefix("Tests: "), row[0]))
        for test in re.findall(r"[\w:]*\w", row[column]):
            name = test.rsplit("::", 1)[-1]
            promises.setdefault(row[0], set()).add(name)
            if name not in tests:
                yield f"{document}:{number}: there is no test {test}"
            elif only_core and name not in core:
                yield f"{document}:{number}: {test} is no core test (.config/nextest.toml)"
    if document == "SECURITY.md":
        yield from check_core(document, promises, core)
    for claim, number in claimed.items():
        if claim not in shown:
            section, feature = claim
            yield (f'{document}:{number}: no test is named for this row: add a row for {feature} '
                   f'to the section "Tests: {section}", with the names of its tests')
    for section, feature in shown - rows if rows else ():
        yield f"{document}: tests are named for {feature}, which has no row in the section {section}"


def check_c(sources):
    for path, text in sources.items():
        for number, line in enumerate(text.splitlines(), 1):
            if len(line) > COLUMNS_MAX or "\t" in line:
                yield f"{name_of(path)}:{number}: a tab, or more than {COLUMNS_MAX} columns"
            if "PG_VERSION_NUM" in line and path.name != "compat.h":
                yield f"{name_of(path)}:{number}: what depends on the version belongs into compat.h"


def check_paths(paths):
    for path in paths:
        if path.stat().st_size > BYTES_MAX:
            yield f"{name_of(path)} has more than {BYTES_MAX} bytes: does it belong here?"
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if MACHINE_PATH.search(line):
                yield f"{name_of(path)}:{number}: names a path of one machine"
            if NUMBER_OF_NOTHING.search(line):
                yield f"{name_of(path)}:{number}: has the number of a requirement: use words"
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


def check_expected():
    sys.path.insert(0, str(ROOT / "drivers"))
    sys.dont_write_bytecode = True
    from harness.expected import FOLDER, WHY, Expected

    for path in sorted(FOLDER.iterdir()):
        try:
            for mode in WHY:
                Expected(path.stem, mode)
        except (ValueError, KeyError) as error:
            yield f"a list in drivers/expected cannot be read: {error!r}"


def blocks(text):
    """Paragraphs, list items, headings and table cells of a document, each with its first line's number.
    Code between fences is left out."""
    number, lines, in_code = 0, [], False
    for at, line in enumerate(text.splitlines(), 1):
        is_fence = line.lstrip().startswith("```")
        starts = re.match(r"\s*(?:[*-]|\d+\.) |#|\|", line)
        if lines and (is_fence or starts or not line.strip()):
            yield number, " ".join(lines)
            lines = []
        if is_fence:
            in_code = not in_code
        elif line.startswith("|") and not in_code:
            yield from ((at, cell) for cell in cells(line))
        elif line.strip() and not in_code:
            number = number if lines else at
            lines.append(line.strip())
    if lines:
        yield number, " ".join(lines)


def comments(text):
    """Comments of a source file, a paragraph each, with its first line's number."""
    number, lines = 0, []
    for at, line in enumerate(text.splitlines() + [""], 1):
        found = re.match(r"\s*//[/!]? (\S.*)", line)
        if found and not (lines and found[1].startswith(("* ", "- "))):
            number = number if lines else at
            lines.append(found[1])
            continue
        if lines:
            yield number, " ".join(lines)
        number, lines = at, [found[1]] if found else []


def check_comments(sources):
    for path, text in sources.items():
        if any(name_of(path).startswith(f"crates/{crate}/") for crate in REWRITTEN_CRATES):
            yield from check_sentences(name_of(path), comments(text))


def is_help(lines, number):
    """Is the comment at this line the help text of an option of the command line?"""
    code = next((line for line in lines[number - 1:] if not line.lstrip().startswith("//")), "")
    return code.lstrip().startswith(("#[arg(", "#[command("))


def check_openings(sources):
    for path, text in sources.items():
        name, lines = name_of(path), text.splitlines()
        if name.startswith((*OPENINGS_NOT_REWRITTEN, KEYS)):
            continue
        for number, block in comments(text):
            sentence = re.split(r"(?<=[.!?])\s", block)[0]
            is_bare = BARE_OPENING.match(block) and not sentence.endswith("?")
            if is_bare and not is_help(lines, number):
                yield (f"{name}:{number}: say what the item is or does: a comment begins with "
                       f'"{block[:40]}"')


def check_sentences(name, paragraphs):
    for number, block in paragraphs:
        if block.startswith("#"):
            continue
        block = re.sub(r"^(?:[*-]|\d+\.) +", "", block)
        for sentence in re.split(r"(?<=[.!?:])[*_)\"]*\s+", block):
            bare = sentence.lstrip("*_(\"")
            if RELATIVE.match(bare) and not bare.rstrip("*_)\"").endswith("?"):
                yield f"{name}:{number}: begins with a bare relative: {bare[:50]}"


def check_columns(name, text):
    for number, line in enumerate(text.splitlines(), 1):
        most = COLUMNS_MAX
        if line.startswith("|"):
            most = ROW_COLUMNS_MAX
        elif name == CHANGELOG:
            most = ENTRY_COLUMNS_MAX
        if len(line) > most:
            yield f"{name}:{number}: {len(line)} columns, more than {most}"


def check_changelog(text):
    in_entry = False
    for number, line in enumerate(text.splitlines(), 1):
        if in_entry and line.startswith(" "):
            yield f"{CHANGELOG}:{number}: an entry of more than one line"
        in_entry = line.startswith("- ") or in_entry and line.startswith(" ")


class Source:
    """The names that documents may use: words of the source without its comments, files, and the words
    of the files that are about a type."""

    def __init__(self, paths, sources):
        self.names = [name_of(path) for path in paths]
        self.places = {"/" + "/".join(name.split("/")[first:last])
                       for name in self.names
                       for first in range(name.count("/") + 1)
                       for last in range(first + 1, name.count("/") + 2)}
        # A file or a folder is a module, too.
        self.words = {word for name in self.names for word in re.findall(r"\w+", name)}
        self.of_type = {}
        for path in paths:
            if path.suffix in (".md", ".svg") or name_of(path) == "scripts/tidy.py":
                continue
            try:
                text = sources[path] if path in sources else path.read_text()
            except UnicodeDecodeError:
                continue
            if path in sources:
                text = re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
            words = set(re.findall(r"\w+", text))
            words |= {TEST_MARKS.sub("", word) for word in words}
            self.words |= words
            if path in sources:
                found = re.findall(r"\b(?:struct|enum|trait)\s+(\w+)", text)
                found += re.findall(r"^\s*impl\b[^{;]*?\b(\w+)(?:<[^{]*>)?\s*(?:where[^{]*)?\{", text,
                                    flags=re.MULTILINE)
                for one in set(found):
                    self.of_type.setdefault(one, set()).update(words)

    def has_file(self, name):
        return "/" + name.rstrip("/") in self.places

    def has_identifier(self, name):
        parts = name.removesuffix("()").split("::")
        for before, part in zip([None, *parts], parts):
            if part not in self.of_type.get(before, self.words):
                return False
        return True


def check_names(name, text, source):
    top = {path.split("/")[0] for path in source.names if "/" in path}
    top |= {path.split("/")[1] for path in source.names if path.startswith("crates/")}
    for number, block in blocks(text):
        for code in re.findall(r"`([^`]+)`", block):
            if code in FOREIGN:
                continue
            if SOURCE_FILE.fullmatch(code):
                is_ours = code.endswith((".rs", ".py")) or code.split("/")[0] in top
                if is_ours and not source.has_file(code):
                    yield f"{name}:{number}: there is no file {code}"
            elif IDENTIFIER.fullmatch(code) and not source.has_identifier(code):
                yield f"{name}:{number}: there is no {code} in the source"


def check_glossary(text):
    entries, meanings, unused = {}, {}, []
    is_used = True
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#"):
            is_used = "do not use" not in line
        if not line.startswith("|"):
            continue
        first, meaning = cells(line)[:2]
        if not is_used:
            unused += [(number, word.strip()) for word in first.split(",")]
            continue
        for group in re.findall(r"\*\*(.+?)\*\*", first):
            for word in (word.strip().lower() for word in group.split(",")):
                if word in entries:
                    yield f"{GLOSSARY}:{number}: {word} has an entry in line {entries[word]} too"
                entries[word] = number
            if SECOND_MEANING.search(meaning):
                yield f"{GLOSSARY}:{number}: two meanings of one word: {group}"
            if meaning in meanings:
                yield f"{GLOSSARY}:{number}: {group} means the same as {meanings[meaning]}"
            meanings[meaning] = group
    for number, word in unused:
        if word.lower() in entries:
            yield f"{GLOSSARY}:{number}: {word} is not used, but has an entry"


def anchor(heading):
    """The name by which a link leads to a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.lstrip("# ").rstrip())
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def check_links(paths):
    texts = {path: path.read_text() for path in paths if path.suffix == ".md"}
    anchors = {path: {anchor(block) for _, block in blocks(text) if block.startswith("#")}
               for path, text in texts.items()}
    for path, text in texts.items():
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if link.startswith("http"):
                continue
            place, _, heading = link.partition("#")
            target = (path.parent / place).resolve() if place else path
            if not target.exists():
                yield f"{name_of(path)}: a link to {link}, which is not there"
            elif heading and heading not in anchors.get(target, {heading}):
                yield f"{name_of(path)}: a link to {link}, which has no such heading"


def check_diagrams(paths):
    """In a diagram of calls, each function exists in the file at the beginning of its line."""
    code = {path: path.read_text() for path in paths if path.suffix in (".rs", ".c")}
    for path in paths:
        if name_of(path) not in CALL_DIAGRAMS:
            continue
        is_diagram, files, file = False, [], None
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if line.startswith("```"):
                is_diagram, files, file = not is_diagram and line == "```", [], None
                continue
            if not is_diagram:
                continue
            if begins := re.match(r"([\w/]+\.(?:rs|c))\s+", line):
                file, line = begins[1], line[begins.end():]
                files = [text for other, text in code.items() if f"/{name_of(other)}".endswith(f"/{file}")]
                if not files:
                    yield f"{name_of(path)}:{number}: there is no file {file}"
            names = re.split(r"\s{2,}", re.sub(r"^[\s│├└─]+", "", line))[0]
            # A function of another module has the module's name before it.
            for function in re.findall(r"(?:^|, )(?:[A-Z]\w*::)?(\w+)(?=,|$)", names) if files else []:
                defined = re.compile(rf"(?:\bfn {function}\b|^(?:\w.*\W)?{function}\()", re.MULTILINE)
                if not any(defined.search(text) for text in files):
                    yield f"{name_of(path)}:{number}: there is no function {function} in {file}"


def check_prose(paths, sources):
    source = Source(paths, sources)
    for path in paths:
        name = name_of(path)
        if path.suffix != ".md":
            continue
        text = path.read_text()
        found = [
            *check_sentences(name, blocks(text)),
            *check_columns(name, text),
            *check_names(name, text, source),
            *(check_changelog(text) if name == CHANGELOG else ()),
            *(check_glossary(text) if name == GLOSSARY else ()),
        ]
        if name not in NOT_REWRITTEN:
            yield from found
        elif not found:
            print(f"tidy: warning: {name} is in order: take it out of NOT_REWRITTEN")


def main():
    paths = tracked_files()
    sources = {path: path.read_text() for path in paths if path.suffix == ".rs"}
    library = {path: path.read_text() for path in paths if path.suffix in (".c", ".h")}
    offences = [
        *check_dependencies(),
        *check_length({**sources, **library}),
        *check_c(library),
        *check_purity(sources),
        *check_clocks(sources),
        *check_named_tests(sources),
        *check_tiers(paths),
        *check_paths(paths),
        *check_scripts(paths),
        *check_expected(),
        *check_prose(paths, sources),
        *check_comments(sources),
        *check_openings(sources),
        *check_links(paths),
        *check_diagrams(paths),
    ]
    for offence in offences:
        print(f"tidy: {offence}", file=sys.stderr)
    if not offences:
        print(f"tidy: {len(paths)} files are in order")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
