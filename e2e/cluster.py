"""Which cluster the scenarios run on: `LAB=node` or `LAB=kind` of the lab, or whatever `KUBECONFIG`
names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from lab.errors import LabError
from lab.kubernetes.kind import KindLab
from lab.kubernetes.node import NodeLab
from lab.kubernetes.tools import KUBE_NODE, run_kubectl
from lab.network import Network


class Cluster(Protocol):
    """A cluster whose Pods reach the lab's bridge."""

    @property
    def kubeconfig(self) -> Path:
        """An administrator's."""

    def kubectl(
        self, *arguments: str, input: str | None = None, timeout_seconds: float = 60.0
    ) -> str:
        """What kubectl writes; `lab.kubernetes.tools.KubectlFailed` when it fails."""

    def load_image(self, archive: Path) -> None:
        """Have every node hold the image of a docker archive."""

    def shared_folder(self, name: str) -> tuple[Path, str]:
        """A folder that any user of any Pod may write: its path here, and on the node, for a
        hostPath.
        """

    def restart_apiserver(self) -> None:
        """Kill the API server; return once it answers again."""


class ForeignCluster:
    """Somebody's own cluster. Its Pods must reach this machine's bridge, and its nodes must hold
    the image or be able to pull it.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig

    def kubectl(
        self, *arguments: str, input: str | None = None, timeout_seconds: float = 60.0
    ) -> str:
        """As the protocol says."""
        return run_kubectl(
            KUBE_NODE.binary(),
            self.kubeconfig,
            arguments,
            input=input,
            timeout_seconds=timeout_seconds,
        )

    def load_image(self, archive: Path) -> None:
        """Nothing: how an image gets to somebody's nodes is theirs."""

    def shared_folder(self, name: str) -> tuple[Path, str]:
        """There is none."""
        raise LabError(
            f"Somebody's own cluster shares no folder with this machine, so there is none for "
            f"{name}."
        )

    def restart_apiserver(self) -> None:
        """Nothing: somebody's API server is not ours to kill."""


@contextmanager
def cluster(network: Network) -> Iterator[Cluster]:
    """The cluster that the environment asks for; kind where it says nothing."""
    kind_of_lab = os.environ.get("LAB")
    if kind_of_lab is None and "KUBECONFIG" in os.environ:
        yield ForeignCluster(Path(os.environ["KUBECONFIG"]))
    elif kind_of_lab == "node":
        with NodeLab(network) as node:
            yield node
    elif kind_of_lab in (None, "kind"):
        with KindLab(network) as kind:
            yield kind
    else:
        raise LabError(
            f"LAB={kind_of_lab} is no cluster of the lab. Say LAB=node, LAB=kind, or "
            f"KUBECONFIG=<file> without LAB."
        )
