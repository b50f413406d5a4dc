"""Certificates for one test: an authority of its own, and a key with a certificate that is good for
127.0.0.1 or other names, made by openssl.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.doctor import refuse_missing
from lab.packages import clock_behind
from lab.process import patience


@dataclass(frozen=True)
class Certificates:
    """PEM files. `both` holds key and certificate one after the other, as Java wants them."""

    authority: Path
    key: Path
    certificate: Path
    both: Path

    def server_settings(self, *, key_store: str, trust_store: str) -> dict[str, str]:
        """A Java server's settings, whose names begin as given: Kafka and ZooKeeper spell them
        differently.
        """
        return {
            f"{key_store}.type": "PEM",
            f"{key_store}.location": str(self.both),
            f"{trust_store}.type": "PEM",
            f"{trust_store}.location": str(self.authority),
        }


def make_certificates(
    folder: Path, *, minutes_ago: int = 0, names: Sequence[str] = ("IP:127.0.0.1",)
) -> Certificates:
    """A new authority and one certificate of it, for a server and for its client alike, valid for
    two days from then on. `names` are as openssl writes them: "IP:..." or "DNS:...".
    """
    refuse_missing("openssl")
    folder.mkdir(parents=True, exist_ok=True)
    made = Certificates(
        folder / "ca.pem", folder / "key.pem", folder / "certificate.pem", folder / "both.pem"
    )
    authority_key = folder / "ca-key.pem"
    then = clock_behind(minutes_ago) if minutes_ago else {}
    _openssl(
        "-subj", "/CN=test authority", "-keyout", authority_key, "-out", made.authority, **then
    )
    signed = (
        "-CA",
        made.authority,
        "-CAkey",
        authority_key,
        "-addext",
        f"subjectAltName={','.join(names)}",
        "-addext",
        "basicConstraints=CA:FALSE",
    )
    _openssl(
        "-subj", "/CN=127.0.0.1", "-keyout", made.key, "-out", made.certificate, *signed, **then
    )
    made.both.write_bytes(made.key.read_bytes() + made.certificate.read_bytes())
    return made


def _openssl(*arguments: str | Path, **environment: str) -> None:
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        *map(str, arguments),
    ]
    subprocess.run(
        command,
        check=True,
        capture_output=True,
        timeout=patience(60),
        env={**os.environ, **environment},
    )
