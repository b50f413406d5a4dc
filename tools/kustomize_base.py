"""`deploy/kustomize/`: the CRDs and the operator for people with Kustomize, made from `crds/` and
from what the chart renders.

Helm renders the chart, so this needs the lab's Helm. What only Helm understands is left out; the
rest is the chart's own text, its comments included.
"""

import re
import sys
import tempfile
from pathlib import Path

import yaml

from lab.kubernetes.tools import Helm
from tools.write_or_check import write_or_check

FOLDER = Path("deploy/kustomize")
CHART = Path("charts/tidegate")
CRDS = Path("crds")
NAMESPACE = "tidegate"
_ONLY_HELMS = re.compile(
    r"^ *(?:helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n|^# Source: .*\n", re.MULTILINE
)
_NOTE = "# Made from {source} by `make kustomize-base`; do not edit by hand.\n"
NAMESPACE_OBJECT = f"""\
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels:
    pod-security.kubernetes.io/enforce: restricted
"""


def rendered() -> str:
    """Every object of the operator but the CRDs, as a release `tidegate` has them with the chart's
    own values.
    """
    with tempfile.TemporaryDirectory(prefix="tidegate-helm-") as home:
        text = Helm(Path(home)).run(
            "template",
            "tidegate",
            str(CHART),
            "--namespace",
            NAMESPACE,
            "--no-hooks",
            "--set",
            "crds.enabled=false",
        )
    return without_helms(text)


def without_helms(rendered: str) -> str:
    """What Helm rendered, less the labels and comments that only Helm reads."""
    return _ONLY_HELMS.sub("", rendered)


def kustomization(*resources: str) -> str:
    """One that only lists what belongs to it."""
    document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(resources),
    }
    return yaml.safe_dump(document, sort_keys=False)


def files() -> dict[Path, str]:
    """Every file of the folder with its text."""
    crds = {path.name: path.read_text(encoding="utf-8") for path in sorted(CRDS.glob("*.yaml"))}
    note = _NOTE.format(source="charts/tidegate")
    return {
        **{FOLDER / "crds" / name: text for name, text in crds.items()},
        FOLDER / "crds" / "kustomization.yaml": _NOTE.format(source="crds/") + kustomization(*crds),
        FOLDER / "base" / "namespace.yaml": note + NAMESPACE_OBJECT,
        FOLDER / "base" / "operator.yaml": note + rendered(),
        FOLDER / "base" / "kustomization.yaml": note
        + kustomization("namespace.yaml", "operator.yaml"),
    }


if __name__ == "__main__":
    sys.exit(write_or_check(files(), command="python -m tools.kustomize_base"))
