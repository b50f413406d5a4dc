"""A cluster made by kind, on a dockerd on the bridge of a lab. Needs root.

It is Kubernetes as kubeadm sets it up, in a network namespace:

    with KafkaLab(namespaces=True) as kafka, KindLab(kafka.bridge) as cluster:
        cluster.load_image(archive)
        cluster.kubectl("apply", "-f", "pod.yaml")

Pods reach everything on the bridge (brokers, ZooKeeper, Prometheus) under the namespace's address,
as they would leave a real node; the API is reached from the machine at the same address. One node,
whose network enforces no NetworkPolicy. Nothing is routed beyond the bridge.
"""

import json
import shutil
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from string import Template

from lab import cache
from lab.cache import RunDirectory
from lab.errors import LabError, say
from lab.kubernetes.kind_image import KIND, NODE_IMAGE, Dockerd, image_inputs, write_node_image
from lab.kubernetes.node import lacks_sys_resource
from lab.kubernetes.tools import KUBE_NODE, calls_policy, run_kubectl
from lab.network import Namespace, Network
from lab.process import Opened, output_of, wait_until

# A dockerd's data that already holds the image of kind's node: what a KindLab starts from, instead
# of loading 500 MB each time.


_STORE_LOAD_TIMEOUT_SECONDS = 300.0


def node_data() -> Path:
    """The data directory, from the cache or built into it. Needs root.

    Read it, never write to it.
    """
    return cache.entry("kind-node", image_inputs(), build=_build) / "data"


def _build(content: Path) -> None:
    say("kind-node", "putting the image of kind's node together; about half a minute")
    work, archive = content.parent / "work", content.parent / "node.tar"
    work.mkdir()
    write_node_image(archive, work)
    with RunDirectory() as run:
        directory = run.path / "kind"
        with Dockerd(run, Network(run).add("kind", 60), directory) as engine:
            engine.docker(
                "load",
                "--quiet",
                "--input",
                str(archive),
                timeout_seconds=_STORE_LOAD_TIMEOUT_SECONDS,
            )
        (directory / "data").rename(content / "data")
    shutil.rmtree(work)
    archive.unlink()


CLUSTER = "lab"
_NODE = f"{CLUSTER}-control-plane"
_API_PORT = 6443
_SERVICE_SUBNET = "10.96.0.0/16"
_HOST_NUMBER = 60
_CALLS = "/calls"  # as the node and the API server see the directory
_CREATE_TIMEOUT_SECONDS = 240.0
_DNS_TIMEOUT_SECONDS = 90
_LOAD_TIMEOUT_SECONDS = 120.0
_RESTART_TIMEOUT_SECONDS = 90.0


class KindLab(Opened):
    """A context manager that returns once the node is Ready and names are answered."""

    def __init__(self, network: Network, *, mirrors: Mapping[str, str] | None = None) -> None:
        """`mirrors` says where the node pulls images from: a registry's host as images name it ->
        the URL of another one. All else is looked for where its name says, which is not reached.
        """
        self._network = network
        self._mirrors = dict(mirrors or {})

    def _open(self, stack: ExitStack) -> None:
        started = time.monotonic()
        prepared = node_data()
        run = stack.enter_context(RunDirectory())
        self.directory = run.path / "kind"
        self.kubeconfig = self.directory / "admin.kubeconfig"
        self._namespace = self._network.add("kind", _HOST_NUMBER)
        _open_namespace(self._namespace, gateway=self._network.gateway)
        self._calls = self.directory / "calls"
        self._engine = stack.enter_context(
            Dockerd(run, self._namespace, self.directory, prepared=prepared)
        )
        self._create()
        say(
            "kind",
            (
                f"ready at https://{self._namespace.address}:{_API_PORT} after "
                f"{time.monotonic() - started:.1f} s"
            ),
        )

    @property
    def calls_path(self) -> Path:
        """The API server's audit log, a JSON object a line.

        It has every call of a ServiceAccount outside kube-system.
        """
        return self._calls / "calls.jsonl"

    @property
    def namespace(self) -> Namespace:
        """The network namespace around the node: what is dropped there, no Pod reaches."""
        return self._namespace

    @property
    def engine_environment(self) -> Mapping[str, str]:
        """All that a client of its dockerd needs."""
        return self._engine.environment

    def shared_folder(self, name: str) -> tuple[Path, str]:
        """A folder that any user of any Pod may write: its path here, and on the node.

        The path on the node is for a hostPath. The folder goes with the lab.
        """
        path = self._calls / "shared" / name
        path.mkdir(parents=True)
        path.chmod(0o777)
        return path, f"{_CALLS}/shared/{name}"

    def kubectl(
        self, *arguments: str, input: str | None = None, timeout_seconds: float = 60.0
    ) -> str:
        """As `KubeApi.kubectl`."""
        return run_kubectl(
            KUBE_NODE.binary(),
            self.kubeconfig,
            arguments,
            input=input,
            timeout_seconds=timeout_seconds,
        )

    def load_image(self, archive: Path) -> None:
        """Have the node hold the images of a docker archive, under the names in it.

        Nothing is ever pulled.
        """
        self._kind("load", "image-archive", str(archive), timeout_seconds=_LOAD_TIMEOUT_SECONDS)

    def restart_apiserver(self) -> None:
        """Kill the API server; returns once the one that kubelet starts in its place is ready."""
        self._engine.docker("exec", _NODE, "pkill", "-KILL", "-x", "kube-apiserver")
        wait_until(
            self._is_ready,
            "the API server that was killed",
            timeout_seconds=_RESTART_TIMEOUT_SECONDS,
            poll_seconds=0.2,
        )

    def _create(self) -> None:
        self._calls.mkdir()
        (self._calls / "policy.json").write_text(json.dumps(calls_policy()))
        settings = self.directory / "cluster.yaml"
        settings.write_text(
            cluster_yaml(
                self._namespace.address, calls=self._calls, registries=self._write_mirrors()
            )
        )
        choices = (f"--config={settings}", f"--image={NODE_IMAGE}", "--wait=120s")
        self._kind(
            *("create", "cluster", *choices, f"--kubeconfig={self.kubeconfig}"),
            timeout_seconds=_CREATE_TIMEOUT_SECONDS,
        )
        available = [
            "--for=condition=Available",
            "deployment/coredns",
            f"--timeout={_DNS_TIMEOUT_SECONDS}s",
        ]
        self.kubectl(
            "--namespace=kube-system", "wait", *available, timeout_seconds=_DNS_TIMEOUT_SECONDS + 10
        )

    def _write_mirrors(self) -> Path:
        """The folder in which containerd looks for settings of a registry."""
        registries = self.directory / "registries"
        registries.mkdir()
        for host, url in self._mirrors.items():
            (registries / host).mkdir()
            (registries / host / "hosts.toml").write_text(
                f'server = "https://{host}"\n[host."{url}"]\n  capabilities = ["pull", "resolve"]\n'
            )
        return registries

    def _kind(self, *arguments: str, timeout_seconds: float) -> str:
        return self._engine.call(
            [str(KIND.binary()), *arguments, "--name", CLUSTER], timeout_seconds=timeout_seconds
        )

    def _is_ready(self) -> bool:
        try:
            return self.kubectl("get", "--raw", "/readyz", timeout_seconds=10.0) == "ok"
        except LabError:
            return False


def cluster_yaml(address: str, *, calls: Path, registries: Path) -> str:
    """kind's configuration; `calls` is the directory for the API server's audit log and policy,
    `registries` the one for containerd's settings of registries.
    """
    template = Template((Path(__file__).parent / "kind_files" / "cluster.yaml").read_text())
    return template.substitute(
        address=address,
        port=_API_PORT,
        services=_SERVICE_SUBNET,
        calls=calls,
        calls_there=_CALLS,
        registries=registries,
        restricted=str(lacks_sys_resource()).lower(),
    )


def _open_namespace(namespace: Namespace, *, gateway: str) -> None:
    inside = ["ip", "-n", namespace.name, "route", "add"]
    output_of([*inside, "default", "via", gateway], timeout_seconds=20.0)
    # A Pod that asks for a Service before kube-proxy knows it is refused, where it would wait half
    # a minute for an answer from outside.
    output_of([*inside, "unreachable", _SERVICE_SUBNET], timeout_seconds=20.0)
