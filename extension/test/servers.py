"""Servers of PostgreSQL to try the library on: found, copied to where an unprivileged user may read
them, started with the library, ended by their process id."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

EXTENSION = Path(__file__).resolve().parent.parent
SCRIPTS = EXTENSION.parent / "scripts"
PATIENCE_S = 60
# Under valgrind a server is slow.
SLOWNESS = 6
CONFIGURATION = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 30
fsync = off
synchronous_commit = off
max_replication_slots = 4
wal_level = logical
max_prepared_transactions = 2
log_line_prefix = '%m [%p] '
dynamic_library_path = '{library}:$libdir'
"""


def say(text):
    print(f"extension: {text}", file=sys.stderr, flush=True)


def run(command, **more):
    done = subprocess.run(
        [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False, **more,
    )
    if done.returncode != 0:
        raise SystemExit(f"extension: {' '.join(map(str, command))} failed:\n{done.stdout}")
    return done.stdout


def as_guest(command):
    """PostgreSQL does not want to be root. What is started ends when we do."""
    user = ["--reuid", "postgres", "--regid", "postgres", "--init-groups"]
    return ["setpriv", "--pdeathsig", "QUIT", *(user if os.geteuid() == 0 else []),
            *(str(word) for word in command)]


def give_away(path):
    if os.geteuid() == 0:
        shutil.chown(path, "postgres", "postgres")


@dataclass(frozen=True)
class Installation:
    major: int
    pg_config: Path

    def ask(self, what):
        return Path(run([self.pg_config, f"--{what}"]).strip())

    def program(self, name):
        return self.ask("bindir") / name

    def pg_regress(self):
        path = self.ask("pgxs").parents[1] / "test" / "regress" / "pg_regress"
        return path if path.exists() else None


def installations(work, wanted):
    """Debian's server, and those that scripts bring. With `wanted`, only these majors."""
    candidates = {
        15: lambda: Path("/usr/lib/postgresql/15/bin/pg_config"),
        16: lambda: brought_by("postgres16", work),
        17: lambda: brought_by("postgres17", work),
        18: lambda: brought_by("postgres18", work),
    }
    if unknown := set(wanted) - candidates.keys():
        raise SystemExit(f"extension: no PostgreSQL {', '.join(map(str, unknown))} is known")
    return [Installation(major, candidates[major]()) for major in wanted or candidates]


def brought_by(script, work):
    return package_copy(Path(run([SCRIPTS / script]).split()[-1]), work) / "bin" / "pg_config"


def package_copy(folder, work):
    """Of a Python package: the libraries that a server is linked with lie beside its folder."""
    package = folder.parents[1]
    copy = work / package.name
    if not copy.exists():
        shutil.copytree(package, copy, symlinks=True)
        for path in [copy, *copy.rglob("*")]:
            if path.is_dir() or path.parent.name == "bin":
                path.chmod(0o755)
    return copy / folder.relative_to(package)


def build(installation, work, name, *flags):
    """The folder with weir.so. Nothing is written beside the sources."""
    folder = work / f"build-{name}"
    shutil.copytree(EXTENSION, folder, ignore=shutil.ignore_patterns("*.o", "*.so", "__pycache__"))
    run(["make", "-s", "-C", folder, f"PG_CONFIG={installation.pg_config}", "weir.so", *flags])
    library = work / f"library-{name}"
    library.mkdir()
    shutil.copy(folder / "weir.so", library)
    return library


class Cluster:
    """A server of its own on a port of 127.0.0.1, until `stop`."""

    launcher = ()

    def __init__(self, installation, work, name, library, settings="", wrapper=()):
        self.installation = installation
        self.folder = work / f"cluster-{name}"
        self.folder.mkdir()
        give_away(self.folder)
        self.log = work / f"cluster-{name}.log"
        self.wrapper = list(wrapper)
        data = self.folder / "data"
        run(as_guest([
            installation.program("initdb"), "-D", data, "-U", "postgres", "-A", "trust",
            "-E", "UTF8", "--locale=C", "--no-sync",
        ]), cwd=self.folder)
        with (data / "postgresql.conf").open("a") as file:
            file.write(CONFIGURATION.format(library=library) + settings)
        self.start()

    def start(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port = listener.getsockname()[1]
        command = [*self.wrapper, self.installation.program("postgres"), "-D", self.folder / "data",
                   "-p", str(self.port)]
        with self.log.open("a") as log:
            self.child = subprocess.Popen(
                [*self.launcher, *as_guest(command)], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log,
            )
        self.wait_until_ready()

    def postmaster(self):
        return self.child.pid

    def wait_until_ready(self):
        """Also after a crash: then the line is in the log once more."""
        self.starts = getattr(self, "starts", 0) + 1
        deadline = time.monotonic() + PATIENCE_S * (SLOWNESS if self.wrapper else 1)
        while time.monotonic() < deadline and self.child.poll() is None:
            lines = self.log.read_text(errors="replace")
            if lines.count("ready to accept connections") >= self.starts:
                return
            time.sleep(0.05)
        self.stop()
        raise SystemExit(f"extension: a server did not start:\n{self.log.read_text()[-3000:]}")

    def stop(self):
        if self.child.poll() is None:
            os.kill(self.postmaster(), signal.SIGINT)
            try:
                self.child.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                os.kill(self.postmaster(), signal.SIGQUIT)
                self.child.wait()


class Container(Cluster):
    """A server whose postmaster is the first process of a namespace of process ids, as in a container.
    It names its processes by their numbers in there."""

    launcher = ("unshare", "--pid", "--fork", "--kill-child=KILL", "--mount-proc")

    @classmethod
    def can_be(cls):
        return os.geteuid() == 0 and subprocess.run(
            [*cls.launcher, "true"], capture_output=True, check=False).returncode == 0

    def postmaster(self):
        return int(Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children").read_text())

    def process(self, number):
        """The number here of the process that has this number in the container; None if it has ended."""
        own = Path(f"/proc/{self.postmaster()}/ns/pid").readlink()
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                ids = re.search(r"^NSpid:\s(.*)$", status.read_text(), re.MULTILINE)[1].split()
                if int(ids[-1]) == number and (status.parent / "ns/pid").readlink() == own:
                    return int(ids[0])
            except OSError:
                continue
        return None
