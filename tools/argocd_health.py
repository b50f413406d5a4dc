"""`deploy/argocd/argocd-cm*.yaml`: the health scripts as Argo CD's settings take them, made from
the scripts themselves.

Argo CD knows no files, only keys of its ConfigMap `argocd-cm`. Applied with server-side apply,
these files add their keys and leave all others alone.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from textwrap import indent

from tools.write_or_check import write_or_check

FOLDER = Path("deploy/argocd")
CUSTOMIZATIONS = FOLDER / "resource_customizations"
_HEAD = """\
# Made from {sources} by `make generate`; do not edit by hand.
# kubectl apply --server-side --field-manager=tidegate-health -f {path}
apiVersion: v1
kind: ConfigMap
metadata:
  name: argocd-cm
  namespace: argocd
data:
"""


def settings(path: Path, scripts: Iterable[Path]) -> str:
    """The text of `path`, with one key for each script; its folders name group and kind."""
    keys = (
        f"  resource.customizations.health.{script.parts[-3]}_{script.parts[-2]}: "
        f"|\n{_literal(script)}"
        for script in scripts
    )
    return _HEAD.format(sources="resource_customizations/", path=path) + "".join(keys)


def _literal(script: Path) -> str:
    return indent(script.read_text(encoding="utf-8"), "    ")


def files() -> dict[Path, str]:
    """Both files: the health scripts, and the setting that only waves of Applications need, which
    may be set up already.
    """
    groups = {"argocd-cm.yaml": "tidegate.io", "argocd-cm-waves.yaml": "argoproj.io"}
    return {
        FOLDER / name: settings(
            FOLDER / name, sorted((CUSTOMIZATIONS / group).glob("*/health.lua"))
        )
        for name, group in groups.items()
    }


if __name__ == "__main__":
    sys.exit(write_or_check(files(), command="python -m tools.argocd_health"))
