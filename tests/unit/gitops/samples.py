"""The health scripts for Argo CD and their samples, in the layout of Argo CD's own: a folder for
each group and kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHECKOUT = Path(__file__).parents[3]
CUSTOMIZATIONS = CHECKOUT / "deploy" / "argocd" / "resource_customizations"
SCRIPTS = sorted(CUSTOMIZATIONS.glob("*/*/health.lua"))


@dataclass(frozen=True)
class Sample:
    """One object and what Argo CD is to show of it: `status`, and `message` where there is one."""

    script: Path
    path: Path
    expected: dict[str, str]

    @property
    def name(self) -> str:
        return f"{self.script.parent.name}-{self.path.stem}"

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = yaml.load(self.path.read_text(encoding="utf-8"), _TextForTimes)
        return document


class _TextForTimes(yaml.CSafeLoader):
    """A YAML loader that leaves times as text, as JSON has them."""


_TextForTimes.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _samples() -> Iterator[Sample]:
    """Every sample of the `health_test.yaml` files."""
    for script in SCRIPTS:
        for test in yaml.safe_load(
            (script.parent / "health_test.yaml").read_text(encoding="utf-8")
        )["tests"]:
            yield Sample(script, script.parent / test["inputPath"], test["healthStatus"])


SAMPLES = tuple(_samples())


def script_of(kind: str) -> str:
    """The text of the script for one kind of Tidegate's."""
    return (CUSTOMIZATIONS / "tidegate.io" / kind / "health.lua").read_text(encoding="utf-8")
