"""Certificates for a lab: an authority, what it signed for `localhost`, and another authority."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

# One for each lab is enough; nothing of it lives longer.
DAYS = "2"


@dataclass
class Pki:
    """Paths of PEM files."""

    authority: Path
    stranger: Path
    certificate: Path
    key: Path


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], capture_output=True, check=True)


def make(folder):
    """Makes them in `folder`. The certificate is for the name and not for the address."""
    key_and_certificate = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    for name in ("authority", "stranger"):
        openssl("req", "-x509", *key_and_certificate, "-days", DAYS, "-subj", f"/CN={name}",
                "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem")
    openssl("req", *key_and_certificate, "-subj", "/CN=localhost",
            "-keyout", folder / "server.key", "-out", folder / "server.csr")
    (folder / "server.ext").write_text("subjectAltName = DNS:localhost\n")
    openssl("x509", "-req", "-in", folder / "server.csr", "-days", DAYS, "-CAcreateserial",
            "-CA", folder / "authority.pem", "-CAkey", folder / "authority.key",
            "-extfile", folder / "server.ext", "-out", folder / "server.pem")
    return Pki(folder / "authority.pem", folder / "stranger.pem", folder / "server.pem",
               folder / "server.key")
