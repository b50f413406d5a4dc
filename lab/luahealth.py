"""Argo CD's own interpreter of health scripts, and its custom resource definitions, from the Go module proxy.

`lab/luahealth_binary` is Argo CD's module under another name, so that its files pin what is built. Only `make test-argo` needs it: the
build takes minutes, and the daily tests have a Lua that is as strict.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from lab.errors import LabError
from lab.go_module import GoModule

ARGO_CD_VERSION = "v3.2.0"  # the newest whose module needs no files of its repository beside it
_ARGO_CD = f"github.com/argoproj/argo-cd/v3@{ARGO_CD_VERSION}"
_TIMEOUT_SECONDS = 60.0

LUAHEALTH = GoModule(
    program="luahealth",
    directory=Path(__file__).parent / "luahealth_binary",
    package="./cmd/luahealth",
    title="Argo CD's interpreter of health scripts",
    announcement=f"building a part of Argo CD {ARGO_CD_VERSION} from the Go module proxy; four to six minutes on two cores, only this once",
    packages_compiled=1050,
)


def health_of(script: Path, objects: Sequence[Path]) -> list[dict[str, str]]:
    """What Argo CD would show of each object, a file of JSON: `status` and `message`. Raises `LabError` where the script fails."""
    done = subprocess.run(
        [str(LUAHEALTH.binary()), str(script), *map(str, objects)], capture_output=True, text=True, timeout=_TIMEOUT_SECONDS
    )
    if done.returncode != 0:
        raise LabError(f"Argo CD could not run {script}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def argo_cd_crds() -> Path:
    """The folder with Argo CD's CRDs, out of the module that the interpreter is built from."""
    command = ["go", "mod", "download", "-json", _ARGO_CD]
    done = subprocess.run(command, cwd=LUAHEALTH.directory, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise LabError(f"`{' '.join(command)}` failed, so there are no CRDs of Argo CD: {(done.stdout + done.stderr).strip()}")
    return Path(json.loads(done.stdout)["Dir"]) / "manifests" / "crds"
