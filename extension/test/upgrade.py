"""Servers that are for no client: pg_upgrade's, and those of a single user, as initdb and pg_rewind start
them. The library is in shared_preload_libraries there, and must not start the pooler."""

import re
import shutil
import signal
import socket
import time

from cases import ok
from servers import Cluster, as_guest, give_away, run
from session import Session

# Stands for the pooler. Each start adds a line to a file.
PROGRAM = "#!/bin/sh\necho $$ >>{starts}\nexec sleep 600\n"
PATIENCE_S = 20


class Preloaded(Cluster):
    """A cluster whose supervisor starts PROGRAM."""

    def __init__(self, test, name):
        name = f"{test.major}-{name}"
        self.marks = test.work / f"starts-{name}"
        self.marks.touch()
        give_away(self.marks)
        program = test.work / f"program-{name}"
        program.write_text(PROGRAM.format(starts=self.marks))
        program.chmod(0o755)
        self.settings = ("shared_preload_libraries = 'weir'\nwal_log_hints = on\n"
                         f"weir.program = '{program}'\nweir.proxy_port = {free_port()}\n")
        super().__init__(test.installation, test.work, name, test.library, self.settings)
        self.data = self.folder / "data"
        self.until_started(1)

    def programs(self):
        return len(self.marks.read_text().split())

    def until_started(self, count):
        end = time.monotonic() + PATIENCE_S
        while self.programs() < count:
            assert time.monotonic() < end, "the supervisor starts no program"
            time.sleep(0.02)

    def tool(self, name, *words, **more):
        """What a program of PostgreSQL prints."""
        return run(as_guest([self.installation.program(name), *words]), cwd=self.folder, **more)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def upgrade_starts_no_pooler_in_either_server(test):
    old, new = Preloaded(test, "old"), Preloaded(test, "new")
    try:
        for text in ("CREATE TABLE kept AS SELECT 81 AS number", "CREATE ROLE app LOGIN"):
            ok(Session(old.port).query(text))
        for cluster in (old, new):
            cluster.stop()
        before = old.programs(), new.programs()
        ports = str(free_port()), str(free_port())
        bindir = test.installation.ask("bindir")
        new.tool("pg_upgrade", "--retain", "-b", bindir, "-B", bindir, "-d", old.data, "-D", new.data,
                 "-p", ports[0], "-P", ports[1], "-s", new.folder)
        assert (old.programs(), new.programs()) == before, "the pooler was started"
        logs = [path.read_text(errors="replace") for path in new.folder.rglob("pg_upgrade_server.log")]
        assert sum(log.count("database system is ready") for log in logs) >= 3, logs
        said = [line for log in logs for line in log.splitlines()
                if re.search(r"weir:|weir (supervisor|extension)|heap OID", line)]
        assert not said, said
        new.start()
        assert ok(Session(new.port).query("SELECT number FROM kept")).value() == "81"
        new.until_started(before[1] + 1)
    finally:
        old.stop()
        new.stop()


def upgrade_and_single_users_have_no_pooler(test):
    cluster = Preloaded(test, "single")
    try:
        cluster.stop()
        log = cluster.log.read_text(errors="replace")
        assert "PANIC" not in log, log[-3000:]
        source = cluster.folder / "source"
        shutil.copytree(cluster.data, source, copy_function=shutil.copy)
        for path in [source, *source.rglob("*")]:
            give_away(path)
            path.chmod(0o700 if path.is_dir() else 0o600)
        cluster.start()
        cluster.until_started(cluster.programs() + 1)
        cluster.child.send_signal(signal.SIGQUIT)
        cluster.child.wait(PATIENCE_S)
        before = cluster.programs()
        # The server was not shut down, so this starts it for a single user first.
        said = cluster.tool("pg_rewind", "--no-sync", "--target-pgdata", cluster.data, "--source-pgdata",
                            source)
        assert "no rewind required" in said, said
        assert "shut down" in cluster.tool("pg_controldata", cluster.data)
        cluster.tool("postgres", "--single", "-D", cluster.data, "postgres")
        if test.major >= 16:
            settings = [line.replace(" = ", "=").replace("'", "")
                        for line in cluster.settings.splitlines()]
            settings.append(f"dynamic_library_path={test.library}:$libdir")
            words = [word for setting in settings for word in ("-c", setting)]
            cluster.tool("initdb", "-D", cluster.folder / "another", "-U", "postgres", "-A", "trust",
                         "--no-sync", *words)
        assert cluster.programs() == before, "the pooler was started"
    finally:
        cluster.stop()
