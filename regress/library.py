"""The library weir in the servers of a run, and the proof that Weir does not ask them."""

import re
import shutil
import subprocess
from pathlib import Path

from rig import give_away
from source import BINARIES

EXTENSION = Path(__file__).resolve().parent.parent / "extension"
# The end of the question that Weir asks where no library reports.
PROBE = re.compile(r"\) found \(kind, name, value\)")


def build(work):
    """Builds it in a copy of its folder."""
    copy = work / "extension"
    shutil.copytree(EXTENSION, copy, ignore=shutil.ignore_patterns("*.o", "*.so", "test"))
    command = ["make", "-s", "-C", copy, f"PG_CONFIG={BINARIES / 'pg_config'}", "weir.so"]
    subprocess.run([str(word) for word in command], check=True)
    give_away(copy / "weir.so")


def settings(work, socket):
    """For postgresql.conf. `socket`: of a Weir with direct pools. PL/pgSQL is in every process from
    the start, since a process with it refuses settings that one without it accepts."""
    return (f"session_preload_libraries = '{work / 'extension' / 'weir.so'}, plpgsql'\n"
            f"weir.control_socket = '{socket}'\n")


def probes(log):
    """The lines of the server's log that are questions of Weir's."""
    with open(log, encoding="utf8", errors="replace") as lines:
        return [line for line in lines if PROBE.search(line)]
