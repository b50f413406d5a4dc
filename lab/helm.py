"""Helm, built from the Go module proxy: how a chart is rendered, checked and installed in tests.

`lab/helm_binary` is upstream's module under another name, so that its files pin what is built; the command is upstream's own. Nothing of a
person's own Helm (its cache, repositories and plugins) is read or written.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from lab.errors import LabError
from lab.go_module import GoModule

HELM_VERSION = "v3.19.5"  # the newest of the minor that is built for the lab's Kubernetes

_KNOW_KUBERNETES = ("chartutil", "lint/rules")

HELM = GoModule(
    program="helm",
    directory=Path(__file__).parent / "helm_binary",
    package="helm.sh/helm/v3/cmd/helm",
    title="Helm",
    announcement=f"building Helm {HELM_VERSION} from the Go module proxy; two to three minutes on two cores, only this once",
    packages_compiled=950,
    stamps=(
        f"helm.sh/helm/v3/internal/version.version={HELM_VERSION}",
        # as upstream's own Makefile stamps it; without a cluster, charts are rendered and linted for this Kubernetes
        *(f"helm.sh/helm/v3/pkg/{package}.k8sVersionMajor=1" for package in _KNOW_KUBERNETES),
        *(f"helm.sh/helm/v3/pkg/{package}.k8sVersionMinor=34" for package in _KNOW_KUBERNETES),
    ),
)


class HelmFailed(LabError):
    """helm ended with a code other than 0; `said` is what it said, which for wrong values is the schema's message."""

    def __init__(self, command: str, *, exit_code: int, said: str) -> None:
        super().__init__(f"`helm {command}` ended with code {exit_code}: {said}")
        self.said = said


class Helm:
    """Helm with a home of its own in `home`; `kubeconfig` is needed only by what talks to a cluster."""

    def __init__(self, home: Path, kubeconfig: Path | None = None) -> None:
        self._binary = HELM.binary()
        places = {name: str(home / name.lower()) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME", "KUBECACHEDIR")}
        # Nothing listens there: without a kubeconfig, no cluster that happens to be around is spoken to.
        cluster = {"KUBECONFIG": str(kubeconfig or home / "no-kubeconfig")}
        self._environment = {**os.environ, **places, **cluster}

    def run(self, *arguments: str, timeout_seconds: float = 60.0) -> str:
        """What helm writes to stdout.

        Raises `HelmFailed` when it ends with another code than 0, `LabError` when it has not ended in time.
        """
        shown = " ".join(arguments)
        try:
            done = subprocess.run(
                [str(self._binary), *arguments], env=self._environment, capture_output=True, text=True, timeout=timeout_seconds
            )
        except subprocess.TimeoutExpired:
            raise LabError(f"`helm {shown}` had not ended after {timeout_seconds:g} s.") from None
        if done.returncode != 0:
            raise HelmFailed(shown, exit_code=done.returncode, said=(done.stdout + done.stderr).strip())
        return done.stdout
