"""Source packages of Debian, as their authors released them: without Debian's own changes."""

import re
from pathlib import Path

from . import cache

SOURCES = Path("/etc/apt")


def source(package, version):
    """The unpacked source of a package, got by apt with lists of its own."""
    def fill(path):
        apt = path / ".apt"
        for name in ("parts", "lists/partial", "cache/archives/partial"):
            (apt / name).mkdir(parents=True)
        name_sources(apt / "parts")
        options = [
            "-q", "-o", f"Dir::Etc::SourceParts={apt / 'parts'}", "-o", "Dir::Etc::SourceList=/dev/null",
            "-o", f"Dir::State::Lists={apt / 'lists'}", "-o", f"Dir::Cache={apt / 'cache'}",
            # Its user may not write into this folder.
            "-o", "APT::Sandbox::User=root",
        ]
        cache.run(["apt-get", *options, "update"])
        cache.run(["apt-get", *options, "source", "--download-only", "--tar-only",
                   f"{package}={version}"], cwd=apt)
        archive, = (file for file in apt.glob("*.orig.tar.*") if file.suffix != ".asc")
        cache.unpack(archive, path)
        cache.run(["rm", "-r", apt])
    return cache.folder(f"{package}-{version}-src", fill)


def name_sources(parts):
    """Writes the lists of this machine's Debian mirrors, asking for sources in place of binaries."""
    for file in (SOURCES / "sources.list", *SOURCES.glob("sources.list.d/*")):
        if file.suffix in (".list", ".sources") and file.exists() and "debian" in file.read_text():
            text = re.sub(r"(?m)^Types:.*$", "Types: deb-src", file.read_text())
            (parts / file.name).write_text(re.sub(r"(?m)^deb\s", "deb-src ", text))
