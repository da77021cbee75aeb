"""PostgreSQL's source of the installed version: its test suites, and the library they load.

The archive comes from Debian by a private apt configuration; what is installed and configured on
the machine stays as it is. Everything is kept in a cache folder outside the tree.
"""

import functools
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "postgresql-15"
BINARIES = Path("/usr/lib/postgresql/15/bin")
DRIVERS = Path("/usr/lib/postgresql/15/lib/pgxs/src/test")
# Contributed modules that the suite loads; they come with the server package.
MODULES = [Path("/usr/lib/postgresql/15/lib") / f"{name}.so" for name in ("refint", "autoinc")]


@dataclass(frozen=True)
class Suites:
    """The folders of the tests in the source tree, and the one with the libraries that they load."""

    version: str
    regress: Path
    isolation: Path
    libraries: Path


def cache_folder():
    named = os.environ.get("WEIR_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "weir-regress"


def suites():
    """Fetches and builds what is not in the cache yet."""
    need_programs()
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    wanted = installed_version()
    version, archive = cached_archive(cache, wanted) or fetch(cache, wanted)
    if version != wanted:
        say(f"{PACKAGE} {wanted} is installed, the tests are those of {version}")
    tree = cache / f"tree-{version}"
    if not (tree / "built").exists():
        build(archive, tree)
    tests = tree / "src" / "test"
    return Suites(version, tests / "regress", tests / "isolation", tree / "libraries")


def say(text):
    print(f"regress: {text}", file=sys.stderr, flush=True)


def need_programs():
    needed = {
        BINARIES / "postgres": PACKAGE,
        BINARIES / "psql": "postgresql-client-15",
        DRIVERS / "regress" / "pg_regress": "postgresql-client-15",
        DRIVERS / "isolation" / "isolationtester": "postgresql-client-15",
        Path("/usr/bin/gcc"): "gcc",
        Path("/usr/bin/make"): "make",
        Path("/usr/bin/perl"): "perl",
        Path("/usr/bin/bzip2"): "bzip2",
    }
    missing = sorted({package for path, package in needed.items() if not path.exists()})
    if not missing:
        return
    command = ["apt-get", "install", "-q", "-y", "--no-install-recommends", *missing]
    if os.geteuid() != 0:
        raise SystemExit(f"regress: packages are missing; as root: {' '.join(command)}")
    # Weir's tests bring up their own clusters; none may be created or started by the package.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def installed_version():
    query = ["dpkg-query", "-W", "-f", "${source:Version}", PACKAGE]
    return subprocess.run(query, check=True, capture_output=True, text=True).stdout


def cached_archive(cache, wanted):
    archives = sorted(cache.glob("archive-*/*.orig.tar.*"), key=lambda path: path.stat().st_mtime)
    named = [(path.parent.name.removeprefix("archive-"), path) for path in archives]
    exact = [entry for entry in named if entry[0] == wanted]
    return (exact or [None])[-1]


def fetch(cache, wanted):
    """The source package of the wanted version, or the newest that can be fetched."""
    options = apt_options(cache)
    run_quietly(["apt-get", *options, "update"], cache)
    listing = run_quietly(["apt-cache", *options, "showsrc", "--only-source", PACKAGE], cache)
    offered = re.findall(r"^Version: (\S+)$", listing, re.MULTILINE)
    if not offered:
        raise SystemExit(f"regress: Debian offers no source of {PACKAGE}")
    # The index may name a version whose archive is no longer there.
    rank = lambda version: (version == wanted, KEY(version))
    for version in sorted(set(offered), key=rank, reverse=True):
        folder = cache / f"archive-{version}"
        folder.mkdir(exist_ok=True)
        if kept := next(folder.glob("*.orig.tar.*"), None):
            return version, kept
        say(f"fetching the source of {PACKAGE} {version}")
        source = ["apt-get", *options, "source", "--download-only", f"{PACKAGE}={version}"]
        done = subprocess.run(source, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return version, next(folder.glob("*.orig.tar.*"))
        say(f"it cannot be had: {(done.stderr.splitlines() or ['?'])[-1]}")
        shutil.rmtree(folder)
    raise SystemExit(f"regress: no source of {PACKAGE} can be fetched")


def compare_versions(one, other):
    later = ["dpkg", "--compare-versions", one, "gt", other]
    return 1 if subprocess.run(later, check=False).returncode == 0 else -1


KEY = functools.cmp_to_key(compare_versions)


def apt_options(cache):
    """A configuration beside the machine's: its entries for packages, read as ones for sources."""
    lists = cache / "apt" / "lists"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    sources = cache / "apt" / "sources"
    sources.mkdir(exist_ok=True)
    etc = Path("/etc/apt")
    for path in [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]:
        if not path.is_file() or path.suffix not in (".list", ".sources"):
            continue
        text = path.read_text()
        text = re.sub(r"^Types:.*$", "Types: deb-src", text, flags=re.MULTILINE)
        text = re.sub(r"^deb ", "deb-src ", text, flags=re.MULTILINE)
        (sources / path.name).write_text(text)
    settings = {
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": sources,
        "Dir::State::lists": lists,
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        # The download has no need of another user, who might not get into the cache folder.
        "APT::Sandbox::User": "root",
    }
    return [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]


def build(archive, tree):
    """Unpacks the tree and compiles `regress.so`; the server and its clients are the installed."""
    say(f"unpacking {archive.name} and building the library of its tests")
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir()
    run_quietly(["tar", "xf", str(archive), "--strip-components=1"], tree)
    # Only headers are used; what could be left out of them has no part in the server's ABI.
    run_quietly(["./configure", "--without-readline", "--without-zlib"], tree)
    run_quietly(["make", "-s", "-C", "src/backend", "generated-headers"], tree)
    libraries = tree / "libraries"
    libraries.mkdir()
    library = str(libraries / "regress.so")
    compiler = ["gcc", "-O1", "-fPIC", "-shared", "-Isrc/include"]
    run_quietly([*compiler, "-o", library, "src/test/regress/regress.c"], tree)
    for module in MODULES:
        shutil.copy(module, libraries)
    (tree / "built").touch()


def run_quietly(command, folder):
    """Its output is shown only if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        output = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        raise SystemExit(f"regress: {' '.join(command)} failed:\n{output}")
    return done.stdout
