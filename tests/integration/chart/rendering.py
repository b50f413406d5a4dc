"""The chart as `helm template` renders it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from lab.kubernetes.tools import Helm

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[2]
CHART = CHECKOUT / "charts" / "tidegate"
VALUES_FILES = sorted((HERE / "values").glob("*.yaml"))
# The one in Python takes seconds for a chart's CRDs.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def rendered(helm: Helm, values: Path | None = None, *arguments: str, **sets: object) -> str:
    """All objects of a release called `tidegate` in the namespace `platform`, as text. `sets`
    replace top-level values.
    """
    from_file = ["--values", str(values)] if values else []
    from_sets = [
        argument
        for name, value in sets.items()
        for argument in ("--set-json", f"{name}={json.dumps(value)}")
    ]
    return helm.run(
        "template",
        "tidegate",
        str(CHART),
        "--namespace",
        "platform",
        *from_file,
        *from_sets,
        *arguments,
    )


def objects(text: str) -> list[dict[str, Any]]:
    """The documents of a rendered text, without empty ones."""
    return [document for document in yaml.load_all(text, Loader=_LOADER) if document]


def only(found: list[dict[str, Any]], kind: str, *, name: str = "") -> dict[str, Any]:
    """The one object of a kind, and of a name where one is given."""
    (one,) = (
        item for item in found if item["kind"] == kind and name in ("", item["metadata"]["name"])
    )
    return one
