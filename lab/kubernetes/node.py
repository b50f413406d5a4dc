"""A whole one-node Kubernetes on the bridge of a lab. Needs root.

It has the API of `api`, and a node in a network namespace:

    with KafkaLab(namespaces=True) as kafka, NodeLab(kafka.bridge) as cluster:
        cluster.load_image(archive)
        cluster.kubectl("apply", "-f", "pod.yaml")

Pods reach everything on the bridge (brokers, ZooKeeper, Prometheus) under the node's address, as
they would leave a real node. kubelet, kube-proxy and containerd run in the node's namespace; the
API listens on the bridge's gateway. Nothing is routed beyond the bridge.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from lab import cache, process
from lab.cache import RunDirectory
from lab.errors import LabError
from lab.image_archive import ImageConfig, write_archive, write_layer
from lab.kubernetes import node_remains
from lab.kubernetes.api import ApiPlan, KubeApi
from lab.kubernetes.tools import KUBE_NODE, PAUSE, calls_policy
from lab.network import Namespace, Network
from lab.packages import GoModule, unpacked
from lab.process import Process, output_of, wait_until

# The container engine and network tools of a node, out of Debian packages unpacked into the cache:
# nothing is installed or enabled.


# Most machines have some of these already, in the same versions.
IPTABLES_LIBRARIES = (
    "libxtables12",
    "libip4tc2",
    "libip6tc2",
    "libmnl0",
    "libnftnl11",
    "libnfnetlink0",
    "libnetfilter-conntrack3",
)
_PACKAGES = (
    "containerd",
    "runc",
    "containernetworking-plugins",
    "iptables",
    "conntrack",
    "libseccomp2",
    *IPTABLES_LIBRARIES,
)
# Debian makes these links to xtables-nft-multi when the package is installed.
IPTABLES_NAMES = (
    "iptables",
    "iptables-save",
    "iptables-restore",
    "ip6tables",
    "ip6tables-save",
    "ip6tables-restore",
)
_CAP_SYS_RESOURCE = 24


@dataclass(frozen=True)
class NodeParts:
    """The programs of a node; `cni_plugins` is a directory.

    `environment` makes the programs and their libraries be found.
    """

    containerd: Path
    cni_plugins: Path
    environment: dict[str, str]


def node_files() -> Path:
    """The packages' files, downloaded first where the cache lacks them."""
    return unpacked(_PACKAGES)


def node_parts(links: Path) -> NodeParts:
    """The parts; `links` is a directory of the caller's for names that are links."""
    files = node_files()
    links.mkdir(parents=True, exist_ok=True)
    for name in IPTABLES_NAMES:
        (links / name).symlink_to(files / "usr/sbin/xtables-nft-multi")
    (libraries,) = (path.parent for path in files.glob("usr/lib/*/libseccomp.so.2"))
    programs = [links, files / "usr/sbin", files / "usr/bin", files / "sbin", files / "bin"]
    environment = {
        "PATH": os.pathsep.join([*map(str, programs), os.environ["PATH"]]),
        "LD_LIBRARY_PATH": str(libraries),
        "XTABLES_LIBDIR": str(libraries / "xtables"),
    }
    return NodeParts(files / "usr/bin/containerd", files / "usr/lib/cni", environment)


def lacks_sys_resource() -> bool:
    """Whether this machine may not lower a process's badness for the out-of-memory killer.

    Many virtual machines' containers may not.
    """
    bounding = re.search(
        r"^CapBnd:\s+([0-9a-f]+)$", Path("/proc/self/status").read_text(), re.MULTILINE
    )
    return bounding is not None and not int(bounding[1], 16) >> _CAP_SYS_RESOURCE & 1


# A control group for everything that a node of the lab starts, containers too: what is found in it
# is the lab's, and nothing else is.
#
# Made here; emptied and removed by `node_remains`, which must run without the rest of the lab.


_ROOT = Path("/sys/fs/cgroup")
_ENGINE_GROUP = "engine"


def make(cgroup: str) -> None:
    """Make the group: in each hierarchy of version 1, or once with version 2.

    With version 2 the group below it may limit what it runs. The engine has a group below: with
    version 2, a group that holds processes can have no groups below it that are limited.
    """
    unified = (_ROOT / "cgroup.controllers").exists()
    hierarchies = (
        [_ROOT]
        if unified
        else [path for path in sorted(_ROOT.iterdir()) if (path / "cgroup.procs").exists()]
    )
    for hierarchy in hierarchies:
        (hierarchy / cgroup / _ENGINE_GROUP).mkdir(parents=True)
        _inherit_processors(hierarchy, cgroup)
    if unified:
        controllers = (_ROOT / cgroup / "cgroup.controllers").read_text().split()
        (_ROOT / cgroup / "cgroup.subtree_control").write_text(
            " ".join(f"+{name}" for name in controllers)
        )


def joined(cgroup: str, argv: list[str]) -> list[str]:
    """The command that runs `argv` in the engine's group; what it starts is there too."""
    join = " ".join(
        f"echo $$ > {place}/{_ENGINE_GROUP}/cgroup.procs;" for place in node_remains.places(cgroup)
    )
    return ["sh", "-c", f'{join} exec "$0" "$@"', *argv]


def _inherit_processors(hierarchy: Path, cgroup: str) -> None:
    """A new group of version 1's cpuset allows no processor and no memory until it is set which."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if (hierarchy / name).exists() and not (hierarchy / "cgroup.controllers").exists():
            allowed = (hierarchy / name).read_text()
            for group in (hierarchy / cgroup, hierarchy / cgroup / _ENGINE_GROUP):
                (group / name).write_text(allowed)


# The names of a cluster: CoreDNS, built from the Go module proxy, as a process of the lab in the
# node's namespace.


COREDNS_VERSION = "v1.12.1"

COREDNS = GoModule(
    program="coredns",
    directory=Path(__file__).parent / "coredns_binary",
    package="github.com/coredns/coredns",
    title="CoreDNS",
    announcement=f"building CoreDNS {COREDNS_VERSION} from the Go module proxy; two to three "
    f"minutes on two cores, only this once",
    packages_compiled=1300,
)


def start_resolver(api: KubeApi, namespace: Namespace, directory: Path) -> Process:
    """Answer for the Services of `api` at the namespace's address, port 53.

    Every other name is unknown.
    """
    directory.mkdir(parents=True)
    (directory / "Corefile").write_text(
        f"""cluster.local {{
    bind {namespace.address}
    kubernetes {{
        kubeconfig {api.kubeconfig}
    }}
    errors
}}
. {{
    bind {namespace.address}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""
    )
    argv = [
        "nsenter",
        f"--net=/run/netns/{namespace.name}",
        str(COREDNS.binary()),
        "-conf",
        str(directory / "Corefile"),
    ]
    return process.start("coredns", argv, log_path=directory / "coredns.log")


# The image of the container that holds a Pod's namespaces open: one static program, built here, so
# that nothing is pulled.


PAUSE_IMAGE = "localhost/pause:lab"


def pause_image() -> Path:
    """A docker archive of it, from the cache or built into it."""
    program = PAUSE.binary()
    return (
        cache.entry(
            "pause-image",
            [PAUSE_IMAGE, program.read_bytes()],
            build=lambda content: _build(program, content),
        )
        / "pause.tar"
    )


def _build(program: Path, content: Path) -> None:
    tree, layer = content / "tree", content / "layer.tar"
    tree.mkdir()
    shutil.copy2(program, tree / "pause")
    write_layer(tree, layer)
    write_archive(content / "pause.tar", PAUSE_IMAGE, [layer], ImageConfig(entrypoint=("/pause",)))
    shutil.rmtree(tree)
    layer.unlink()


NODE = "lab"
POD_SUBNET = "10.244.0.0/24"
_ENGINE = Path(__file__).parent / "node_files" / "engine.sh"
_HOST_NUMBER = 50
_READY_TIMEOUT_SECONDS = 90.0
_IMPORT_TIMEOUT_SECONDS = 120.0
_KUBELET, _PROXY, _SCHEDULER = f"system:node:{NODE}", "system:kube-proxy", "system:kube-scheduler"


class NodeLab:
    """A context manager that returns once the node is Ready.

    `api` is its Kubernetes API, for everything that needs no node.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self._processes: list[Process] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            run = stack.enter_context(RunDirectory())
            self.directory = run.path / "node"
            self._cgroup = f"tidegate-{run.lab_id}"
            self._namespace = self._network.add("node", _HOST_NUMBER)
            self._parts = node_parts(self.directory / "bin")
            self._certificate()
            (self.directory / "audit-policy.json").write_text(json.dumps(calls_policy()))
            self.api = stack.enter_context(KubeApi(self._plan()))
            run.record_undo(
                [
                    sys.executable,
                    str(Path(node_remains.__file__)),
                    self._cgroup,
                    str(self.directory),
                ]
            )
            stack.callback(self._end)
            self._start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def kubeconfig(self) -> Path:
        """An administrator's."""
        return self.api.kubeconfig

    @property
    def calls_path(self) -> Path:
        """The API server's audit log, a JSON object a line.

        It has every call of a ServiceAccount outside kube-system.
        """
        return self.directory / "log" / "calls.jsonl"

    @property
    def namespace(self) -> Namespace:
        """The node's network namespace: what is dropped there, no Pod reaches."""
        return self._namespace

    def shared_folder(self, name: str) -> tuple[Path, str]:
        """A folder that any user of any Pod may write: its path here, and on the node.

        The path on the node is for a hostPath. The folder goes with the lab.
        """
        path = self.directory / "shared" / name
        path.mkdir(parents=True)
        path.chmod(0o777)
        return path, str(path)

    def kubectl(
        self, *arguments: str, input: str | None = None, timeout_seconds: float = 60.0
    ) -> str:
        """As `KubeApi.kubectl`."""
        return self.api.kubectl(*arguments, input=input, timeout_seconds=timeout_seconds)

    def load_image(self, archive: Path) -> None:
        """Have the node hold the images of a docker archive, under the names in it.

        Nothing is ever pulled.
        """
        self._ctr("images", "import", str(archive))

    def restart_apiserver(self) -> None:
        """As `KubeApi.restart_apiserver`."""
        self.api.restart_apiserver()

    def _plan(self) -> ApiPlan:
        return ApiPlan(
            binary=KUBE_NODE.binary,
            host=self._network.gateway,
            users={_KUBELET: "system:nodes", _PROXY: "system:node-proxier", _SCHEDULER: ""},
            apiserver_flags=(
                "--allow-privileged=true",
                "--enable-admission-plugins=NodeRestriction",
                f"--kubelet-client-certificate={self.directory / 'client.crt'}",
                f"--kubelet-client-key={self.directory / 'client.key'}",
                "--kubelet-preferred-address-types=InternalIP",
                f"--audit-policy-file={self.directory / 'audit-policy.json'}",
                f"--audit-log-path={self.calls_path}",
            ),
            controllers=("*",),
        )

    def _certificate(self) -> None:
        """What the API shows to kubelet; it signs itself, so kubelet trusts exactly this one."""
        key, certificate = (str(self.directory / f"client.{end}") for end in ("key", "crt"))
        who = [
            "-subj",
            "/O=system:masters/CN=kube-apiserver",
            "-addext",
            "extendedKeyUsage=clientAuth",
        ]
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        command = [
            "openssl",
            "req",
            "-x509",
            *curve,
            *who,
            "-days",
            "30",
            "-keyout",
            key,
            "-out",
            certificate,
        ]
        output_of(command, timeout_seconds=30.0)

    def _start(self) -> None:
        _open_namespace(self._namespace, gateway=self._network.gateway)
        self._start_containerd()
        self.load_image(pause_image())
        self._processes.append(start_resolver(self.api, self._namespace, self.directory / "dns"))
        self._start_kubelet()
        self._start_proxy()
        scheduler = f"--kubeconfig={self.api.kubeconfig_of(_SCHEDULER)}"
        self._run("kube-scheduler", scheduler, "--leader-elect=false", "--bind-address=127.0.0.1")
        running = self._processes
        wait_until(
            self._is_ready,
            "the node to be Ready",
            timeout_seconds=_READY_TIMEOUT_SECONDS,
            processes=running,
            poll_seconds=0.5,
        )

    def _start_containerd(self) -> None:
        make(self._cgroup)
        (self.directory / "cni").mkdir(parents=True)
        (self.directory / "cni" / "10-bridge.conflist").write_text(json.dumps(_pod_network()))
        (self.directory / "containerd.toml").write_text(
            _containerd_settings(self.directory, self._parts)
        )
        apart = ["unshare", "--mount", str(_ENGINE), str(self.directory)]
        argv = [*apart, str(self._parts.containerd), "-c", str(self.directory / "containerd.toml")]
        # Shims are its children and inherit the control group; Pods have groups of their own below
        # it, made by kubelet.
        self._run_argv("containerd", joined(self._cgroup, argv))
        self._mounts = f"/proc/{self._processes[-1].pid}/ns/mnt"
        wait_until(
            self._engine_answers,
            "containerd to answer",
            timeout_seconds=30.0,
            processes=self._processes,
        )

    def _start_kubelet(self) -> None:
        settings = self.directory / "kubelet.json"
        settings.write_text(json.dumps(self._kubelet_settings(), indent=1))
        flags = [
            f"--config={settings}",
            f"--kubeconfig={self.api.kubeconfig_of(_KUBELET)}",
            f"--hostname-override={NODE}",
            f"--node-ip={self._namespace.address}",
            f"--root-dir={self.directory / 'kubelet'}",
            f"--cert-dir={self.directory / 'kubelet-pki'}",
        ]
        # What either of them mounts for a Pod, the other one has to see.
        self._run_argv(
            "kubelet",
            ["nsenter", f"--mount={self._mounts}", str(KUBE_NODE.binary()), "kubelet", *flags],
        )

    def _kubelet_settings(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self._namespace.address,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self.directory / "client.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._cgroup}",
            "clusterDNS": [self._namespace.address],
            "clusterDomain": "cluster.local",
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "enforceNodeAllocatable": [],
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "imagefs.available": "1%",
            },
            "failCgroupV1": False,
            "failSwapOn": False,
            # nothing is ever pulled, so what a full disk has cost is gone for good
            "imageGCHighThresholdPercent": 100,
            "nodeStatusUpdateFrequency": "2s",
            "podLogsDir": str(self.directory / "pod-logs"),
            "registerNode": True,
        }

    def _start_proxy(self) -> None:
        self._run(
            "kube-proxy",
            f"--kubeconfig={self.api.kubeconfig_of(_PROXY)}",
            f"--hostname-override={NODE}",
            "--proxy-mode=iptables",
            f"--cluster-cidr={POD_SUBNET}",
            f"--bind-address={self._namespace.address}",
            "--conntrack-max-per-core=0",
        )

    @property
    def _socket(self) -> Path:
        return self.directory / "containerd.sock"

    def _run(self, part: str, *flags: str) -> None:
        self._run_argv(part, [str(KUBE_NODE.binary()), part, *flags])

    def _run_argv(self, part: str, argv: list[str]) -> None:
        # Not `ip netns exec`: its own mount namespace would hide kubelet's mounts from containerd.
        entered = ["nsenter", f"--net=/run/netns/{self._namespace.name}", *argv]
        log_path = self.directory / "log" / f"{part}.log"
        self._processes.append(
            process.start(part, entered, log_path=log_path, environment=self._parts.environment)
        )

    def _engine_answers(self) -> bool:
        try:
            self._ctr("version")
        except LabError:
            return False
        return True

    def _ctr(self, *arguments: str) -> None:
        command = [
            str(self._parts.containerd.with_name("ctr")),
            f"--address={self._socket}",
            "--namespace=k8s.io",
            *arguments,
        ]
        output_of(command, timeout_seconds=_IMPORT_TIMEOUT_SECONDS)

    def _is_ready(self) -> bool:
        template = '{range .items[*].status.conditions[?(@.type=="Ready")]}{.status}{end}'
        return self.kubectl("get", "nodes", "-o", f"jsonpath={template}") == "True"

    def _end(self) -> None:
        # kubelet first, or it would start anew what is ended.
        for started in reversed(self._processes):
            started.kill()
        node_remains.clear(self._cgroup, self.directory)


def _open_namespace(namespace: Namespace, *, gateway: str) -> None:
    output_of(
        ["ip", "-n", namespace.name, "route", "add", "default", "via", gateway],
        timeout_seconds=20.0,
    )
    output_of(
        ["ip", "netns", "exec", namespace.name, "sysctl", "-qw", "net.ipv4.ip_forward=1"],
        timeout_seconds=20.0,
    )


def _pod_network() -> dict[str, object]:
    ranges = [[{"subnet": POD_SUBNET}]]
    addresses = {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": addresses,
    }
    return {"cniVersion": "0.4.0", "name": "lab", "plugins": [bridge]}


def _containerd_settings(directory: Path, parts: NodeParts) -> str:
    clamp = str(lacks_sys_resource()).lower()
    return f"""version = 2
root = "{directory}/containerd"
state = "{directory}/state"
[grpc]
  address = "{directory}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{directory}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = {clamp}
  netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{parts.cni_plugins}"
  conf_dir = "{directory}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
"""
