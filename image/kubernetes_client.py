"""What of the official Kubernetes client the operator can reach: of 64 groups of calls one, of 850 kinds those that it names.

The client loads calls and kinds when they are first asked for, so no import tells that one is missing. What is kept is found by reading,
and a test compares `SPOKEN_APIS` with what our sources ask for.
"""

from __future__ import annotations

import re
from pathlib import Path

from image.cuts import Saving

SPOKEN_APIS = ("custom_objects_api",)
_NAMED_KIND = re.compile(r"^\s*from kubernetes\.client\.models\.(\w+) import", re.MULTILINE)


def take_out_the_rest(site: Path) -> Saving:
    """Remove the modules of calls and kinds below `site`/kubernetes that `SPOKEN_APIS` cannot reach."""
    client = site / "kubernetes" / "client"
    spoken = [client / "api" / f"{name}.py" for name in SPOKEN_APIS]
    kept = {*spoken, *_reachable_kinds(spoken, models=client / "models")}
    modules = [*(client / "api").glob("*_api.py"), *(client / "models").glob("[!_]*.py")]
    gone = [path for path in modules if path not in kept]
    saved_bytes = sum(path.stat().st_size for path in gone)
    for path in gone:
        path.unlink()
    return Saving("the Kubernetes client's calls and kinds that the operator does not use", files=len(gone), saved_bytes=saved_bytes)


def _reachable_kinds(starts: list[Path], *, models: Path) -> set[Path]:
    """The modules of kinds that `starts` name, and those that these name in turn."""
    reached: set[Path] = set()
    waiting = list(starts)
    while waiting:
        named = {models / f"{name}.py" for name in _NAMED_KIND.findall(waiting.pop().read_text())}
        waiting.extend(named - reached)
        reached |= named
    return reached
