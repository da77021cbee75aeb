"""A throw-away PostgreSQL, and a Weir before it. Both live in a temporary folder, listen on
loopback, and end with the lab. Nothing here knows of suites."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from . import library, pki

START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 20
# PostgreSQL and Weir both refuse to run as root.
USER = "postgres" if os.geteuid() == 0 else None


class LabError(Exception):
    """The lab itself could not be brought up; says nothing about a driver."""


def postgres_bin():
    """The folder of the newest PostgreSQL installed; $PG_BIN overrules."""
    if "PG_BIN" in os.environ:
        return Path(os.environ["PG_BIN"])
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if not found:
        raise LabError("no PostgreSQL found below /usr/lib/postgresql; name one by $PG_BIN")
    return max(found, key=lambda path: float(path.parent.name))


def weir_bin():
    """The release build; $WEIR_BIN overrules."""
    root = Path(__file__).resolve().parents[2]
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    path = Path(os.environ.get("WEIR_BIN", target / "release/weir"))
    if not path.exists():
        raise LabError(f"{path} is missing; cargo build --release -p weir-cli makes it")
    return path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


class Process:
    """A child that is ready when its port answers, and is ended by its own id."""

    def __init__(self, argv, port, log, stop_signal, user=None):
        self.port, self.log, self.stop_signal = port, log, stop_signal
        with open(log, "ab") as out:
            self.child = subprocess.Popen(
                argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL, user=user,
                group=user, extra_groups=[] if user else None, cwd="/",
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not answers(port):
            if self.child.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise LabError(f"{argv[0]} did not start:\n{self.tail()}")
            time.sleep(0.02)

    def alive(self):
        return self.child.poll() is None

    def tail(self):
        return "\n".join(Path(self.log).read_text(errors="replace").splitlines()[-20:])

    def stop(self):
        if self.alive():
            self.child.send_signal(self.stop_signal)
            try:
                self.child.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()


class Lab:
    """One folder with a PostgreSQL in it. `weir` puts a pooler before it. If it is `secured` both
    have the same certificate. For `direct` pools the server loads the library weir."""

    def __init__(self, settings=(), hba="", keep=None, secured=False, direct=False):
        self.bin = postgres_bin()
        self.dir = Path(tempfile.mkdtemp(prefix="weir-drivers-"))
        self.dir.chmod(0o755)
        self.data = self.dir / "data"
        self.direct_socket = self.dir / "direct" if direct else None
        self.port = free_port()
        self.keep = keep
        self.running = []
        try:
            self.pki = self._certify() if secured else None
            self._initdb(dict(settings), hba)
            postgres = self._start(
                [str(self.bin / "postgres"), "-D", str(self.data)], self.port, "postgres.log",
                signal.SIGINT, USER,
            )
            self._await_logins(postgres)
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for process in reversed(self.running):
            process.stop()
        if self.keep:
            self.keep.mkdir(parents=True, exist_ok=True)
            for log in self.dir.glob("*.log"):
                shutil.copy(log, self.keep / log.name)
        shutil.rmtree(self.dir, ignore_errors=True)

    def _certify(self):
        made = pki.make(self.dir)
        made.key.chmod(0o600)
        if USER:
            shutil.chown(made.key, USER, USER)
        return made

    def _initdb(self, settings, hba):
        if USER:
            shutil.chown(self.dir, USER, USER)
        done = subprocess.run(
            [str(self.bin / "initdb"), "-D", str(self.data), "-U", "postgres", "-A", "trust",
             "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"],
            user=USER, group=USER, extra_groups=[] if USER else None, cwd="/",
            capture_output=True, text=True, check=False,
        )
        if done.returncode != 0:
            raise LabError(f"initdb failed: {done.stderr}")
        settings = {
            "port": self.port, "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.dir, "fsync": "off", "synchronous_commit": "off",
            "full_page_writes": "off", "max_connections": 200, "shared_buffers": "64MB",
            "timezone": "UTC", "log_timezone": "UTC", **settings,
        }
        if self.direct_socket:
            settings |= {"session_preload_libraries": library.build(self.bin),
                         "weir.control_socket": self.direct_socket}
        if self.pki:
            settings |= {"ssl": "on", "ssl_cert_file": self.pki.certificate,
                         "ssl_key_file": self.pki.key}
        with open(self.data / "postgresql.conf", "a", encoding="utf8") as conf:
            conf.writelines(f"{key} = '{value}'\n" for key, value in settings.items())
        if hba:
            # The operator's own access first: a suite's rules must not lock the lab out.
            (self.data / "pg_hba.conf").write_text("local all postgres trust\n" + hba)

    def _start(self, argv, port, log, stop_signal, user=None):
        process = Process(argv, port, self.dir / log, stop_signal, user)
        self.running.append(process)
        return process

    def _await_logins(self, postgres):
        # Its port answers before it lets anybody in.
        deadline = time.monotonic() + START_SECONDS_MAX
        while self._try_sql("select", "postgres").returncode != 0:
            if not postgres.alive() or time.monotonic() > deadline:
                raise LabError(f"PostgreSQL lets nobody in:\n{postgres.tail()}")
            time.sleep(0.02)

    def sql(self, text, database="postgres"):
        """Runs statements as the superuser, straight against PostgreSQL."""
        done = self._try_sql(text, database)
        if done.returncode != 0:
            raise LabError(f"psql: {done.stderr}")

    def _try_sql(self, text, database):
        return subprocess.run(
            [str(self.bin / "psql"), "-Xq", "-v", "ON_ERROR_STOP=1", "-h", str(self.dir),
             "-p", str(self.port), "-U", "postgres", "-d", database],
            input=text, capture_output=True, text=True, check=False,
        )

    def weir(self, mode, pool_size, users, keys):
        """Starts Weir before this PostgreSQL; returns its process."""
        port = free_port()
        userlist = self.dir / "userlist.txt"
        userlist.write_text("".join(f'"{name}" "{word}"\n' for name, word in users.items()))
        settings = {
            "listen_addr": "127.0.0.1", "listen_port": port, "unix_socket_dir": self.dir,
            "auth_type": "trust", "auth_file": userlist, "pool_mode": mode,
            "default_pool_size": pool_size, "max_client_conn": 500,
            # A suite that needs more servers than there are shall fail, not hang.
            "query_wait_timeout": 20,
            # Suites ask again and again for a database that does not exist, and want PostgreSQL's
            # own words each time; a pooler says for a while what it has heard the first time.
            "server_login_retry": 0,
            **keys,
        }
        if self.direct_socket:
            settings |= {"direct_socket": self.direct_socket}
        if self.pki:
            settings |= {"client_tls_sslmode": "require",
                         "client_tls_cert_file": self.pki.certificate,
                         "client_tls_key_file": self.pki.key}
        ini = self.dir / "weir.ini"
        ini.write_text(
            f"[databases]\n* = host=127.0.0.1 port={self.port}\n\n[pgbouncer]\n"
            + "".join(f"{key} = {value}\n" for key, value in settings.items())
        )
        argv = [str(weir_bin())] + (["-u", USER] if USER else []) + [str(ini)]
        return self._start(argv, port, "weir.log", signal.SIGINT)
