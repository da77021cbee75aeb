"""The folder where pinned packages are unpacked, once: sources of suites, environments to run
them in. A folder counts only when it is whole, which its `.whole` file says."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path


class FetchError(Exception):
    """A package could not be had."""


def root():
    """$WEIR_CACHE, or weir-drivers in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")
    return Path(os.environ.get("WEIR_CACHE", Path(home) / "weir-drivers"))


def run(argv, cwd=None, env=None):
    """Runs an installer; its output matters only when it fails."""
    done = subprocess.run(
        [str(word) for word in argv], cwd=cwd, env=env and {**os.environ, **env},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )
    if done.returncode != 0:
        raise FetchError(f"{' '.join(map(str, argv))}:\n{done.stdout[-3000:]}")
    return done.stdout


def folder(name, fill):
    """The cache's folder `name`; `fill(path)` makes it when it is not there whole."""
    path = root() / name
    if not (path / ".whole").exists():
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        print(f"  fetching {name}", flush=True)
        fill(path)
        (path / ".whole").touch()
    return path


def unpack(archive, into):
    """The single folder inside a tar file, its name left away."""
    with tarfile.open(archive) as tar:
        for member in tar:
            _, _, name = member.name.partition("/")
            if name:
                member.name = name
                tar.extract(member, into, filter="data")


def sdist(project, version, path_extra=""):
    """The unpacked source package of a project on PyPI."""
    def fill(path):
        env = {"PATH": f"{path_extra}:{os.environ['PATH']}"}
        run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", project,
             "-d", path / ".download", f"{project}=={version}"], env=env)
        archive, = (path / ".download").iterdir()
        unpack(archive, path)
    return folder(f"{project}-{version}-src", fill)


def venv(name, requirements):
    """A virtual environment with these packages; returns its python."""
    def fill(path):
        run([sys.executable, "-m", "venv", path])
        run([path / "bin/python", "-m", "pip", "install", "-q", *requirements])
    # A changed requirement is another environment.
    mark = hashlib.sha256(" ".join(requirements).encode()).hexdigest()[:8]
    return folder(f"{name}-venv-{mark}", fill) / "bin/python"


def go_module(module, version, changes=()):
    """A writable copy of a Go module, which the module cache keeps read-only. `changes` are commands
    for modules that are part of a larger repository, from which go.mod or go.work expect something."""
    def fill(path):
        said = run(["go", "mod", "download", "-json", f"{module}@{version}"], cwd="/")
        source = next(line.split('"')[3] for line in said.splitlines() if '"Dir"' in line)
        run(["cp", "-R", f"{source}/.", path])
        run(["chmod", "-R", "u+w", path])
        for command in changes:
            run(command, cwd=path)
        run(["go", "mod", "download"], cwd=path)
    return folder(f"{module.replace('/', '-')}-{version}", fill)


def crate(name, version):
    """A copy of a crate's sources, and a package of its own, so that its tests can be run."""
    def fill(path):
        probe = path / ".probe"
        (probe / "src").mkdir(parents=True)
        (probe / "src/lib.rs").touch()
        (probe / "Cargo.toml").write_text(
            f'[package]\nname = "probe"\nversion = "0.0.0"\nedition = "2021"\n'
            f'[workspace]\n[dependencies]\n{name} = "={version}"\n'
        )
        said = run(["cargo", "metadata", "--format-version=1"], cwd=probe)
        document = json.loads(said[said.index('{"packages"'):])
        manifest = next(package["manifest_path"] for package in document["packages"]
                        if package["name"] == name)
        run(["cp", "-R", f"{Path(manifest).parent}/.", path])
        shutil.rmtree(probe)
        with open(path / "Cargo.toml", "a", encoding="utf8") as file:
            file.write("\n[workspace]\n")
        # The toolchain that is here is the one Weir is built with.
        (path / "rust-toolchain.toml").unlink(missing_ok=True)
        run(["cargo", "fetch"], cwd=path)
    return folder(f"{name}-{version}", fill)
