"""Installs a release on a kind cluster, from the registry that it was pushed to. Needs root.

Nothing is loaded into the node beforehand. It pulls what the released chart names, by digest,
through a mirror that stands for the registry's host: a way from the lab's bridge to the registry on
loopback. The Kafka beside it is one broker without ZooKeeper.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template

from lab.errors import LabError
from lab.kafka import QuotaChange
from lab.kraft import KraftLab
from lab.kubernetes.kind import KindLab
from lab.kubernetes.tools import Helm
from lab.process import output_of
from lab.proxy import Proxy
from tidegate_logic.words import rate_words
from tools import kustomize_base
from tools.release.plan import Pushed

_CHART_NAMESPACE, _POLICY_NAMESPACE = "tidegate", "streaming"
_USER, _TOPIC = "checkout", "orders"
_PARTITIONS, _FETCH_PER_PARTITION = 3, 10_000_000  # bytes/s; the one broker leads all partitions
_READY_SECONDS = 120
_INSTALL_TIMEOUT_SECONDS = 300.0  # pip fetches some fifty packages
_OBJECTS = Template(Path(__file__).with_suffix(".yaml").read_text())


@dataclass(frozen=True)
class Released:
    """What there is to install: image and chart as they were pushed, and the folder of the files.

    `local` is host:port and folder of the registry on loopback that stands for the real one.
    """

    image: Pushed
    chart: Pushed
    files: Path
    local: str


def installed(released: Released, *, work: Path) -> Iterator[str]:
    """Install chart, manifests and command line, each until a quota is in force and gone again.

    `work` is an empty folder. A line for each of them. Raises `LabError`.
    """
    host, _, folder = released.chart.repository.partition("/")
    local_host, _, port = released.local.partition("/")[0].rpartition(":")
    with (
        KraftLab(brokers=1, namespaces=True) as kafka,
        Proxy((local_host, int(port)), host=kafka.bridge.gateway) as registry,
        KindLab(
            kafka.bridge, mirrors={host: f"http://{kafka.bridge.gateway}:{registry.port}"}
        ) as kind,
    ):
        kafka.create_topic(_TOPIC, assignment=[[1]] * _PARTITIONS)
        trial = _Trial(released, kafka, kind, work)
        yield trial.chart(f"{local_host}:{port}/{folder}")
        yield trial.manifests()


@dataclass(frozen=True)
class _Trial:
    released: Released
    kafka: KraftLab
    kind: KindLab
    work: Path

    def chart(self, reference: str) -> str:
        """The chart by its `oci://` name, with the command line beside it."""
        began = time.monotonic()
        helm = Helm(self.work / "helm", self.kind.kubeconfig)
        self.kind.kubectl("create", "namespace", _POLICY_NAMESPACE)
        place = f"--namespace={_CHART_NAMESPACE}"
        helm.run(
            "install",
            "tidegate",
            f"oci://{reference}",
            f"--version={self.released.chart.tag}",
            "--plain-http",
            place,
            "--create-namespace",
            f"--set=watch.namespaces={{{_POLICY_NAMESPACE}}}",
        )
        pulled = self._started(_CHART_NAMESPACE)
        ready_seconds = time.monotonic() - began
        self._declared(_POLICY_NAMESPACE)
        quota_seconds = time.monotonic() - began
        said = self._command_line()
        helm.run("test", "tidegate", place, timeout_seconds=_READY_SECONDS)
        self._given_back(_POLICY_NAMESPACE)
        helm.run("uninstall", "tidegate", place, "--wait", timeout_seconds=_READY_SECONDS)
        # the chart keeps them, and the manifests have to bring their own
        names = self.kind.kubectl("get", "crd", "-o", "name").split()
        self._delete(*names)
        return (
            f"kind: the chart was installed from the registry: {pulled}; ready after "
            f"{ready_seconds:.0f} s, a quota in force after {quota_seconds:.0f} s, and restored; "
            f"{said}"
        )

    def manifests(self) -> str:
        """`install.yaml`, which watches its own namespace."""
        began = time.monotonic()
        manifest = str(self.released.files / "install.yaml")
        self._delete("namespace", _CHART_NAMESPACE)
        self.kind.kubectl("apply", "--server-side", "-f", manifest)
        self._started(kustomize_base.NAMESPACE)
        self._declared(kustomize_base.NAMESPACE)
        quota_seconds = time.monotonic() - began
        self._given_back(kustomize_base.NAMESPACE)
        self._delete("-f", manifest)
        return (
            f"kind: install.yaml was applied: a quota in force after {quota_seconds:.0f} s, and "
            f"restored; nothing of it is left"
        )

    def _started(self, namespace: str) -> str:
        """Wait for every replica; that their image is the one that was signed."""
        self.kind.kubectl(
            "rollout",
            "status",
            "deployment/tidegate",
            f"--namespace={namespace}",
            f"--timeout={_READY_SECONDS}s",
            timeout_seconds=_READY_SECONDS + 10,
        )
        pods = json.loads(
            self.kind.kubectl("get", "pods", f"--namespace={namespace}", "--output=json")
        )
        images = {
            status["imageID"]
            for pod in pods["items"]
            for status in pod["status"].get("containerStatuses", ())
        }
        if images != {self.released.image.pinned}:
            raise LabError(
                f"The Pods run {', '.join(sorted(images)) or 'nothing'}, and "
                f"{self.released.image.pinned} was released."
            )
        return f"the node pulled {self.released.image.pinned}"

    def _declared(self, namespace: str) -> None:
        """A policy and a tier, and their quota in the broker."""
        objects = _OBJECTS.substitute(
            bootstrap_servers=self.kafka.bootstrap_servers,
            user=_USER,
            topic=_TOPIC,
            fetch=_FETCH_PER_PARTITION,
        )
        place = f"--namespace={namespace}"
        self.kind.kubectl("apply", place, "-f", "-", input=objects)
        self.kind.kubectl(
            "wait",
            "--for=condition=Ready",
            "bbp/orders",
            f"bt/{_USER}",
            place,
            f"--timeout={_READY_SECONDS}s",
            timeout_seconds=_READY_SECONDS + 10,
        )
        self._wait_for_quota(_PARTITIONS * _FETCH_PER_PARTITION)

    def _given_back(self, namespace: str) -> None:
        self._delete("bbp/orders", f"bt/{_USER}", f"--namespace={namespace}")
        self._wait_for_quota(None)

    def _wait_for_quota(self, bytes_per_second: int | None) -> None:
        self.kafka.wait_for_quota_applied(
            QuotaChange("FETCH", _USER, None, bytes_per_second), timeout_seconds=_READY_SECONDS
        )

    def _command_line(self) -> str:
        """The wheel with the packages that pip chooses, as a plugin of kubectl too."""
        (wheel,) = self.released.files.glob("*.whl")
        place = self.work / "command-line"
        output_of([sys.executable, "-m", "venv", place], timeout_seconds=_INSTALL_TIMEOUT_SECONDS)
        output_of(
            [place / "bin" / "pip", "install", "--quiet", wheel],
            timeout_seconds=_INSTALL_TIMEOUT_SECONDS,
        )
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "KUBECONFIG": str(self.kind.kubeconfig),
        }
        explained = output_of(
            [
                place / "bin" / "kubectl-tidegate",
                "explain",
                f"--user={_USER}",
                f"--policy={_POLICY_NAMESPACE}/orders",
            ],
            timeout_seconds=_READY_SECONDS,
            environment=environment,
        )
        wanted = f"fetch: {rate_words(_PARTITIONS * _FETCH_PER_PARTITION)}"
        if wanted not in explained:
            raise LabError(f"The wheel's command does not explain {wanted!r}, but says {explained}")
        return f"the wheel's command explains it: {explained.splitlines()[0]}"

    def _delete(self, *what: str) -> None:
        self.kind.kubectl(
            "delete",
            *what,
            f"--timeout={_READY_SECONDS}s",
            timeout_seconds=_READY_SECONDS + 10,
        )
