"""The operator as a release of its chart: Pods of its image, with the chart's rights and nothing
more.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from e2e.cluster import Cluster
from lab.kubernetes.tools import Helm
from lab.process import CommandFailed, wait_until

CHART = Path(__file__).parents[1] / "charts" / "tidegate"
NAMESPACE = "tidegate-system"
_NAME = "tidegate"
_READY_TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True)
class Image:
    """The operator's image as nodes know it."""

    repository: str
    tag: str


class Release:
    """`helm` acts on `cluster`. Values are given as `--set` writes them."""

    def __init__(self, cluster: Cluster, helm: Helm, image: Image) -> None:
        self._cluster = cluster
        self._helm = helm
        self._image = image

    def install(self, **values: object) -> float:
        """Install the chart into a namespace of its own and wait until every replica is Ready; the
        seconds that took.
        """
        began = time.monotonic()
        self._helm.run(
            "install",
            _NAME,
            str(CHART),
            f"--namespace={NAMESPACE}",
            "--create-namespace",
            *self._sets(values),
        )
        self.wait_until_ready()
        return time.monotonic() - began

    def upgrade(self, chart: Path = CHART, **values: object) -> None:
        """Upgrade the release and wait until its new Pods are Ready."""
        self._helm.run(
            "upgrade", _NAME, str(chart), f"--namespace={NAMESPACE}", *self._sets(values)
        )
        self.wait_until_ready()

    def uninstall(self) -> None:
        """Uninstall the release and delete its namespace; the CRDs stay, as the chart's default
        says.
        """
        self._helm.run(
            "uninstall", _NAME, f"--namespace={NAMESPACE}", "--wait", timeout_seconds=120.0
        )
        self._kubectl("delete", "namespace", NAMESPACE, "--timeout=90s", timeout_seconds=100.0)

    def test(self) -> str:
        """`helm test`, whose Pod asks every replica; `CommandFailed` when one does not answer as
        Tidegate.
        """
        return self._helm.run("test", _NAME, f"--namespace={NAMESPACE}", timeout_seconds=120.0)

    def wait_until_ready(self) -> None:
        """Return once the Deployment is rolled out."""
        deadline = f"--timeout={_READY_TIMEOUT_SECONDS:g}s"
        self._kubectl(
            "rollout",
            "status",
            f"deployment/{_NAME}",
            deadline,
            timeout_seconds=_READY_TIMEOUT_SECONDS + 10,
        )

    def scale(self, replicas: int) -> None:
        """Run that many replicas, and wait until it is so; with 0, until no Pod is left."""
        self._kubectl("scale", f"deployment/{_NAME}", f"--replicas={replicas}")
        if replicas:
            self.wait_until_ready()
        wait_until(
            lambda: len(self.pods()) == replicas,
            f"{replicas} Pods",
            timeout_seconds=_READY_TIMEOUT_SECONDS,
            poll_seconds=0.5,
        )

    def pods(self) -> Sequence[str]:
        """The names of the operator's Pods, terminating ones too."""
        return [pod["metadata"]["name"] for pod in self._pods()]

    def restarts(self) -> int:
        """How often a container of the operator was started again."""
        return sum(
            status["restartCount"]
            for pod in self._pods()
            for status in pod["status"].get("containerStatuses", ())
        )

    def kill(self, pod: str) -> None:
        """SIGKILL, as a node that vanishes would do it; the Deployment makes another one."""
        self._kubectl("delete", "pod", pod, "--grace-period=0", "--force")

    def holder(self, namespace: str, policy: str = "orders") -> str:
        """The Pod that writes for this policy now; empty while none does."""
        lease = json.loads(
            self._cluster.kubectl(
                "get", "lease", f"tidegate.{namespace}.{policy}", "-n", NAMESPACE, "-o", "json"
            )
        )
        identity = lease["spec"].get("holderIdentity") or ""
        return next((pod for pod in self.pods() if identity.startswith(pod)), "")

    def wait_for_another_holder(self, than: str, namespace: str, *, timeout_seconds: float) -> str:
        """The Pod that has taken over from `than`."""
        other = partial(self._holder_other_than, than, namespace)
        return wait_until(
            other, f"a holder other than {than}", timeout_seconds=timeout_seconds, poll_seconds=0.2
        )

    def logs(self) -> str:
        """Log and audit trail of all replicas that are there."""
        return "\n".join(self._log(pod) for pod in self.pods())

    def audit_lines(self, **fields: object) -> list[Mapping[str, Any]]:
        """The lines of the audit trail that have these values, replica after replica."""
        lines = (line for line in self.logs().splitlines() if line.startswith("{"))
        return [
            line
            for line in map(json.loads, lines)
            if all(line.get(name) == value for name, value in fields.items())
        ]

    def _log(self, pod: str) -> str:
        """Empty for a Pod that has gone since it was listed, or has not begun."""
        try:
            return self._kubectl("logs", pod)
        except CommandFailed as failed:
            if not any(reason in failed.stderr for reason in ("NotFound", "waiting to start")):
                raise
            return ""

    def _holder_other_than(self, than: str, namespace: str) -> str:
        holder = self.holder(namespace)
        return "" if holder == than else holder

    def _pods(self) -> list[Any]:
        selector = "app.kubernetes.io/name=tidegate,app.kubernetes.io/component!=test"
        return list(json.loads(self._kubectl("get", "pods", "-l", selector, "-o", "json"))["items"])

    def _kubectl(self, *arguments: str, timeout_seconds: float = 60.0) -> str:
        return self._cluster.kubectl(
            *arguments, f"--namespace={NAMESPACE}", timeout_seconds=timeout_seconds
        )

    def _sets(self, values: Mapping[str, object]) -> list[str]:
        image = {
            "image.repository": self._image.repository,
            "image.tag": self._image.tag,
            "image.pullPolicy": "Never",
            "watch.allNamespaces": "true",  # scenarios make namespaces of their own
        }
        return [f"--set={name}={value}" for name, value in {**image, **values}.items()]
