"""RECORD, in which every Python package lists its files with their hashes: made true again after files were left out or changed.

Auditors compare it with what lies there, and `importlib.metadata` lists a package's files from it.
"""

from __future__ import annotations

import base64
import csv
import hashlib
from pathlib import Path


def correct(site: Path) -> None:
    """Correct the RECORD of every package in `site`: rows of files that are gone go, sizes and hashes are those of what is there."""
    for record in sorted(site.glob("*.dist-info/RECORD")):
        with record.open(newline="") as old:
            names = [row[0] for row in csv.reader(old) if (site / row[0]).exists()]
        with record.open("w", newline="") as new:
            csv.writer(new, lineterminator="\n").writerows([_row(site, name, unhashed=record) for name in names])


def _row(site: Path, name: str, *, unhashed: Path) -> tuple[str, str, str]:
    path = site / name
    if path == unhashed:
        return name, "", ""
    content = path.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return name, f"sha256={digest}", str(len(content))
