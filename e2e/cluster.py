"""Which cluster the scenarios run on: kind of the lab, or whatever `KUBECONFIG` names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from lab.errors import LabError
from lab.kubernetes.kind import KindLab
from lab.kubernetes.tools import kube_binary, run_kubectl
from lab.network import Network


class Cluster(Protocol):
    """A cluster whose Pods reach the lab's bridge."""

    @property
    def kubeconfig(self) -> Path:
        """An administrator's."""

    def kubectl(
        self, *arguments: str, input: str | None = None, timeout_seconds: float = 60.0
    ) -> str:
        """What kubectl writes; `lab.process.CommandFailed` when it fails."""

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
            kube_binary(),
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
    """The cluster that KUBECONFIG names; kind where it names none, or with LAB=kind."""
    if "KUBECONFIG" in os.environ and os.environ.get("LAB") != "kind":
        yield ForeignCluster(Path(os.environ["KUBECONFIG"]))
    else:
        with KindLab(network) as kind:
            yield kind
