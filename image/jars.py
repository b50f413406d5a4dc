"""Jars as a bill of materials names them: what each says of itself, and its hashes, by which scanners know those that say nothing."""

from __future__ import annotations

import hashlib
import re
import zipfile
from dataclasses import dataclass
from io import BytesIO

_NAME = re.compile(r"(?P<name>.+?)-(?P<version>\d.*)")
_COORDINATES = re.compile(r"META-INF/maven/(?P<group>[^/]+)/(?P<name>[^/]+)/pom\.properties")


@dataclass(frozen=True)
class Jar:
    """`group` is empty where the jar does not tell it, or where it holds other jars and tells several."""

    group: str
    name: str
    version: str
    sha1: str
    sha256: str


def jar(file_name: str, content: bytes) -> Jar:
    """A jar from its file `NAME-VERSION.jar`; a version is empty where the file name has none. Raises `BadZipFile` for another file."""
    stem = file_name.removesuffix(".jar")
    named = _NAME.fullmatch(stem)
    name, version = (named["name"], named["version"]) if named else (stem, "")
    sha1 = hashlib.sha1(content, usedforsecurity=False).hexdigest()
    return Jar(_group(name, content), name, version, sha1, hashlib.sha256(content).hexdigest())


def _group(name: str, content: bytes) -> str:
    with zipfile.ZipFile(BytesIO(content)) as packed:
        told = [found for entry in packed.namelist() if (found := _COORDINATES.fullmatch(entry))]
    groups = {found["group"] for found in told if found["name"] == name}
    return groups.pop() if len(groups) == 1 else ""
