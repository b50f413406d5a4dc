"""The plugin `kubectl tidegate` as krew installs it: an archive, and the manifest that names it.

The archive has our wheel, the versions of the packages that it was tested with, and a script that
runs it with uv. So one archive serves Linux and macOS on every processor.
"""

import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

import yaml

from image import packages
from lab.errors import LabError
from lab.image_archive import sha256
from lab.process import output_of
from tools.release import files

MANIFEST = "krew.yaml"
PROGRAM = "kubectl-tidegate"
_VERSIONS = "versions.txt"
_RUN_TIMEOUT_SECONDS = 600.0  # packages are downloaded
_SCRIPT = f"""\
#!/bin/sh
# kubectl tidegate: runs the wheel beside this file, with the versions that it was tested with.
set -eu
self=$0
while [ -L "$self" ]; do # krew runs it through a link
  link=$(readlink "$self")
  case $link in
  /*) self=$link ;;
  *) self=$(dirname "$self")/$link ;;
  esac
done
here=$(cd "$(dirname "$self")" && pwd)
if ! command -v uv >/dev/null; then
  echo "kubectl tidegate runs with uv, which is not on your PATH:" >&2
  echo "https://docs.astral.sh/uv/getting-started/installation/" >&2
  exit 1
fi
exec uv tool run --quiet --python '>=3.11' --constraints "$here/{_VERSIONS}" \\
  --from "$here"/tidegate-*.whl {PROGRAM} "$@"
"""


def write(out: Path, wheel: Path, *, version: str) -> Path:
    """Write archive and manifest into `out`; return the archive. Raises `LabError`."""
    archive = out / f"{PROGRAM}-{version}.tar.gz"
    content = {
        PROGRAM: _SCRIPT.encode(),
        wheel.name: wheel.read_bytes(),
        _VERSIONS: versions(packages.locked_requirements()).encode(),
        "LICENSE": (packages.ROOT / "LICENSE").read_bytes(),
    }
    archive.write_bytes(files.archive_of((_member(name), data) for name, data in content.items()))
    described = manifest(files.chart_description(), archive, version=version)
    (out / MANIFEST).write_text(yaml.safe_dump(described, sort_keys=False, width=100))
    return archive


def _member(name: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.mode = 0o755 if name == PROGRAM else 0o644
    return member


def versions(requirements: str) -> str:
    """What uv.lock names, without hashes: the machine of a user may need other wheels."""
    named = re.findall(r"^([A-Za-z0-9].*?)(?: \\)?$", requirements, re.MULTILINE)
    return "".join(f"{line}\n" for line in named)


def manifest(chart: Mapping[str, Any], archive: Path, *, version: str) -> dict[str, Any]:
    """What krew reads. The archive is looked for on the page of the release."""
    template = Template(Path(__file__).with_suffix(".yaml").read_text())
    found: dict[str, Any] = yaml.safe_load(
        template.substitute(
            version=version,
            home=chart["home"],
            archive=archive.name,
            sha256=sha256(archive),
            program=PROGRAM,
        )
    )
    return found


def try_out(archive: Path, *, version: str, work: Path) -> str:
    """Unpack the archive, run its program through a link as krew does, and say what it said.

    uv downloads the packages, so this is not for where the key is. Raises `LabError`.
    """
    with tarfile.open(archive) as packed:
        packed.extractall(work / "store", filter="data")
    link = work / PROGRAM
    link.symlink_to(Path("store") / PROGRAM)
    said = output_of(
        [link, "version"],
        timeout_seconds=_RUN_TIMEOUT_SECONDS,
        environment=packages.with_uv(),
    )
    if version not in said:
        raise LabError(f"The program of {archive.name} says {said.strip()}, and not {version}.")
    return f"plugin of kubectl: {PROGRAM} says {version}"
