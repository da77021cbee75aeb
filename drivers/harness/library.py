"""The library weir, built once a run for the labs of direct pools."""

import atexit
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

EXTENSION = Path(__file__).resolve().parents[2] / "extension"


@functools.cache
def build(postgres_bin):
    """Returns the file, which PostgreSQL's user may read."""
    folder = Path(tempfile.mkdtemp(prefix="weir-library-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    copy = folder / "extension"
    shutil.copytree(EXTENSION, copy, ignore=shutil.ignore_patterns("*.o", "*.so", "test"))
    command = ["make", "-s", "-C", copy, f"PG_CONFIG={postgres_bin / 'pg_config'}", "weir.so"]
    subprocess.run([str(word) for word in command], check=True)
    return copy / "weir.so"
