"""Makes `crds/*.yaml`, the chart's templates of them and `docs/resources.md` from the models; with --check it only compares.

Run as `python -m tidegate.resources.generate [--check]` from the root of a checkout.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tidegate.resources.chart_template import chart_path, chart_template
from tidegate.resources.crd import crd_document
from tidegate.resources.kinds import GROUP, KINDS, Kind
from tidegate.resources.reference_page import reference_page
from tools.generate import write_or_check

_HEADER = "# Generated from operator/tidegate/resources; do not edit: change the models and run `make generate`.\n"


class _WrittenOut(yaml.SafeDumper):
    """YAML without anchors: a person who reads a field sees its rules there, and so does every tool that knows no anchors."""

    def ignore_aliases(self, _: Any) -> bool:
        return True


def crd_yaml(kind: Kind) -> str:
    """The CRD of a kind as the text of its file in `crds/`."""
    return _HEADER + yaml.dump(crd_document(kind), Dumper=_WrittenOut, sort_keys=False, width=120, allow_unicode=True)


def generated_files() -> Mapping[Path, str]:
    """Every generated file, relative to the checkout, with its text."""
    crds = {Path("crds") / f"{GROUP}_{kind.plural}.yaml": crd_yaml(kind) for kind in KINDS}
    templates = {Path(chart_path(kind)): chart_template(crd_yaml(kind)) for kind in KINDS}
    return {**crds, **templates, Path("docs/resources.md"): reference_page(KINDS)}


if __name__ == "__main__":
    sys.exit(write_or_check(generated_files(), command="python -m tidegate.resources.generate"))
