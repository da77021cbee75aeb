"""A throw-away PostgreSQL, and Weir before it, both as an unprivileged user."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from source import BINARIES, say

SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 100
# Settings that the suites' driver sends at the start of each session. A pooler sets them on the
# server that it has. RESET then leads to the server's own values (docs/regress.md).
datestyle = 'Postgres, MDY'
timezone = 'America/Los_Angeles'
max_prepared_transactions = 10
fsync = off
synchronous_commit = off
full_page_writes = off
max_wal_size = 4GB
log_line_prefix = '%m [%p] %q%a '
"""
# The maximum time of a start or a stop on a loaded machine.
PATIENCE_S = 60


def as_guest(command):
    """Neither PostgreSQL nor Weir wants to be root. What is started ends when we do."""
    user = ["--reuid", "postgres", "--regid", "postgres", "--init-groups"]
    return ["setpriv", "--pdeathsig", "QUIT", *(user if os.geteuid() == 0 else []), *command]


def give_away(path):
    if os.geteuid() == 0:
        shutil.chown(path, "postgres", "postgres")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Process:
    """Something that listens on a port of 127.0.0.1 until it is told to end."""

    def __init__(self, name, command, folder, port):
        self.name = name
        self.port = port
        self.log = folder / f"{name}.log"
        with self.log.open("w") as log:
            self.child = subprocess.Popen(
                as_guest(command), cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            self.wait_until_up()
        except BaseException:
            self.stop()
            raise

    def wait_until_up(self):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if self.child.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise SystemExit(f"regress: {self.name} did not start:\n{self.last_words()}")

    def stop(self):
        """True if it had not ended by itself, and did end in order."""
        running = self.child.poll() is None
        if running:
            self.child.send_signal(self.SIGNAL)
        try:
            status = self.child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
            status = self.child.wait()
        return running and status == 0

    def last_words(self):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])


class Cluster(Process):
    """A PostgreSQL with nothing in it; superuser is `postgres`, and nobody needs a password."""

    SIGNAL = signal.SIGINT  # a fast shutdown

    def __init__(self, folder, settings=""):
        data = folder / "data"
        port = free_port()
        initdb = [BINARIES / "initdb", "-D", data, "-U", "postgres", "--auth=trust", "--no-sync"]
        command = as_guest([*map(str, initdb), "-E", "UTF8", "--no-locale"])
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        with (data / "postgresql.conf").open("a") as file:
            file.write(f"{SETTINGS}{settings}port = {port}\n")
        super().__init__("postgres", [str(BINARIES / "postgres"), "-D", str(data)], folder, port)
        self.wait_until_ready()

    def wait_until_ready(self):
        ready = [str(BINARIES / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        deadline = time.monotonic() + PATIENCE_S
        while subprocess.run(ready, check=False).returncode != 0:
            if time.monotonic() > deadline:
                raise SystemExit("regress: PostgreSQL does not get ready")
            time.sleep(0.05)


class Weir(Process):
    """Weir before a cluster, open to the roles that the suites make up."""

    SIGNAL = signal.SIGQUIT  # at once

    def __init__(self, folder, binary, cluster, users, keys):
        port = free_port()
        ini = folder / "weir.ini"
        ini.write_text(
            f"""[databases]
* = host=127.0.0.1 port={cluster.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder / "userlist.txt"}
admin_users = postgres
max_client_conn = 200
{keys}"""
        )
        quoted = (name.replace('"', '""') for name in users)
        (folder / "userlist.txt").write_text("".join(f'"{name}" ""\n' for name in quoted))
        super().__init__("weir", [str(binary), str(ini)], folder, port)


def roles_named_in(folder):
    """Every word of the suites that can be a role: PostgreSQL wants them to begin so."""
    words = {"postgres"}
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".sql", ".spec"):
            words |= set(re.findall(r"\bregress\w*", path.read_text(errors="replace")))
    return sorted(words)


def build_weir():
    """The binary to test. A debug build: it checks its invariants as it goes."""
    named = os.environ.get("WEIR_BIN")
    if named:
        return Path(named)
    root = Path(__file__).resolve().parent.parent
    say("building weir")
    subprocess.run(["cargo", "build", "-q", "--locked", "-p", "weir-cli"], cwd=root, check=True)
    return Path(root, os.environ.get("CARGO_TARGET_DIR", "target"), "debug", "weir")
