"""The image of a kind cluster's node, made here: a Debian root, kind's own files, the lab's Kubernetes, and the images it starts.

It is what `kind build node-image` would make, except that every part of Kubernetes is one program, and that a bridge is the network of its
one node. kind's files come out of its Go module; nothing is pulled, and nothing tells on which machine it was made.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from image.archive import ImageConfig, write_archive, write_layer
from lab import cache
from lab.command import output_of
from lab.debian_root import debian_root
from lab.go_module import GoModule
from lab.kind_preload import preload
from lab.kube_dns import COREDNS
from lab.kubernetes.tools import KUBE_NODE, KUBERNETES_VERSION
from lab.node_parts import IPTABLES_LIBRARIES, IPTABLES_NAMES, node_parts
from lab.packages import unpacked
from lab.pause_image import PAUSE_IMAGE, pause_image

KIND_VERSION = "v0.33.0"
NODE_IMAGE = f"localhost/kind-node:{KUBERNETES_VERSION}"

_DIRECTORY = Path(__file__).parent / "kind_binary"
_OWN_FILES = Path(__file__).parent / "kind_files" / "node"

KIND = GoModule(
    program="kind",
    directory=_DIRECTORY,
    package="sigs.k8s.io/kind",
    title="kind",
    announcement=f"building kind {KIND_VERSION} from the Go module proxy; some seconds",
    packages_compiled=290,
)

_ROOT_PACKAGES = (
    "systemd",
    "dbus",
    "containerd",
    "runc",
    "containernetworking-plugins",
    "iptables",
    "conntrack",
    "iproute2",
    "ethtool",
    "kmod",
    "mount",
    "procps",
    "jq",
)
# As in kind's own image: services that a container has no use for.
_NOT_STARTED = (
    "usr/lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service",
    "usr/lib/systemd/system/multi-user.target.wants/*",
    "etc/systemd/system/*.wants/*",
    "usr/lib/systemd/system/local-fs.target.wants/*",
    "usr/lib/systemd/system/sockets.target.wants/*udev*",
    "usr/lib/systemd/system/sockets.target.wants/*initctl*",
    "usr/lib/systemd/system/basic.target.wants/*",
)
# What kube-proxy calls.
_PROXY_PACKAGES = ("iptables", "libc6", *IPTABLES_LIBRARIES)
_SERVICES = ("containerd", "kernel-settings", "kubelet", "undo-mount-hacks")
_CLUSTER_PARTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler")
_CLUSTER_IMAGE = f"localhost/kube:{KUBERNETES_VERSION}"
_DNS_IMAGE = "localhost/coredns:lab"


def image_inputs() -> Iterator[str | bytes]:
    """Everything that decides what the image is, as parts of a key; what has to be built for that is built."""
    inputs = [_root(), KUBE_NODE.binary(), COREDNS.binary(), pause_image(), unpacked(_PROXY_PACKAGES)]
    yield from (_entry_name(path) for path in inputs)
    yield from (path.read_bytes() for path in (_DIRECTORY / "go.mod", _DIRECTORY / "go.sum", Path(__file__)))
    for path in sorted(_OWN_FILES.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(_OWN_FILES))
            yield path.read_bytes()


def _entry_name(path: Path) -> str:
    """The cache's name of the entry that holds `path`; its key stands for everything that the entry was made from."""
    return path.relative_to(cache.root() / "entries").parts[0]


def write_node_image(archive: Path, work: Path) -> None:
    """Write a docker archive of `NODE_IMAGE`. `work` is an empty directory; what is left in it is of no use. Needs root."""
    tree = work / "tree"
    tree.mkdir()
    engine = node_parts(work / "bin").containerd.parent
    spec = output_of([str(engine / "ctr"), "oci", "spec"], timeout_seconds=30.0)
    _lay_files(tree, _kind_files(), spec=spec)
    _lay_programs(tree)
    archives = [pause_image(), _dns_archive(work), _cluster_archive(work)]
    preload(tree / "var/lib/containerd", archives, _names(), programs=engine)
    layer = work / "layer.tar"
    write_layer(tree, layer)
    start = ("/usr/local/bin/entrypoint", "/sbin/init")
    # systemd looks for `container`, and ends at this signal only
    config = ImageConfig(entrypoint=start, environment={"container": "docker"}, stop_signal="SIGRTMIN+3")
    write_archive(archive, NODE_IMAGE, [_root(), layer], config)


def _root() -> Path:
    return debian_root("kind-root", _ROOT_PACKAGES, without=_NOT_STARTED)


def _kind_files() -> Path:
    """The files of kind's own base image, in its Go module."""
    command = ["go", "mod", "download", "-json", "sigs.k8s.io/kind"]
    module = json.loads(output_of(command, timeout_seconds=120.0, working_directory=_DIRECTORY))
    return Path(module["Dir"]) / "images/base/files"


def _lay_files(tree: Path, kind_files: Path, *, spec: str) -> None:
    for source in (kind_files, _OWN_FILES):
        for path in sorted(path for path in source.rglob("*") if path.is_file()):
            target = tree / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
            # a Go module keeps no modes
            target.chmod(0o755 if {"bin", "sbin"} & set(target.relative_to(tree).parts) else 0o644)
    settings = tree / "etc/containerd/config.toml"
    settings.write_text(with_pause_image(settings.read_text(), _wanted_images()["pause"]))
    (tree / "etc/containerd/cri-base.json").write_text(json.dumps(container_base(spec)))
    _write(tree / "etc/systemd/journald.conf.d/kind.conf", "[Journal]\nReadKMsg=no\n")
    _write(tree / "kind/version", KUBERNETES_VERSION)
    (tree / "etc/kubernetes/manifests").mkdir(parents=True)
    wanted = tree / "etc/systemd/system/multi-user.target.wants"
    for service in _SERVICES:
        _link(wanted / f"{service}.service", f"/etc/systemd/system/{service}.service")
    # it would register formats with the machine's kernel
    _link(tree / "etc/systemd/system/systemd-binfmt.service", "/dev/null")


def with_pause_image(containerd_settings: str, image: str) -> str:
    """kind's settings of containerd, with the pause image that this version of kubeadm names."""
    lines = containerd_settings.splitlines(keepends=True)
    return "".join(f'  sandbox_image = "{image}"\n' if line.strip().startswith("sandbox_image") else line for line in lines)


def container_base(spec: str) -> dict[str, object]:
    """What a container of the node begins with: containerd's own (`ctr oci spec`) and kind's hook that hides the machine's identity."""
    base: dict[str, object] = json.loads(spec)
    base["hooks"] = {"createContainer": [{"path": "/kind/bin/mount-product-files.sh"}]}
    process = base["process"]
    if isinstance(process, dict):
        process.pop("rlimits", None)
    return base


def _lay_programs(tree: Path) -> None:
    programs = tree / "usr/bin"
    programs.mkdir(parents=True)
    shutil.copy(KUBE_NODE.binary(), programs / "kube-node")
    for part in ("kubeadm", "kubectl", "kubelet"):
        _link(programs / part, "kube-node")
    for name in ("containerd", "containerd-shim-runc-v2", "ctr"):  # where kind's units and kind look for them
        _link(tree / "usr/local/bin" / name, f"/usr/bin/{name}")
    _link(tree / "usr/sbin/init", "/usr/lib/systemd/systemd")
    _link(tree / "opt/cni/bin", "/usr/lib/cni")


def _cluster_archive(work: Path) -> Path:
    """One image for all parts of the control plane and kube-proxy, as they are one program."""
    base, parts = work / "proxy", work / "cluster"
    shutil.copytree(unpacked(_PROXY_PACKAGES), base, symlinks=True, ignore=shutil.ignore_patterns("doc", "man", "gconv", "locale"))
    for name in IPTABLES_NAMES:
        _link(base / "usr/sbin" / name, "xtables-nft-multi")
    (parts / "usr/local/bin").mkdir(parents=True)
    shutil.copy(KUBE_NODE.binary(), parts / "usr/local/bin/kube-node")
    for part in _CLUSTER_PARTS:
        _link(parts / "usr/local/bin" / part, "kube-node")
    return _archive(_CLUSTER_IMAGE, trees=[base, parts], entrypoint="/usr/local/bin/kube-node")


def _dns_archive(work: Path) -> Path:
    tree = work / "dns"
    tree.mkdir()
    shutil.copy(COREDNS.binary(), tree / "coredns")
    return _archive(_DNS_IMAGE, trees=[tree], entrypoint="/coredns")


def _archive(name: str, *, trees: list[Path], entrypoint: str) -> Path:
    layers = [tree.with_suffix(".layer") for tree in trees]
    for tree, layer in zip(trees, layers, strict=True):
        write_layer(tree, layer)
    archive = trees[-1].with_suffix(".tar")
    write_archive(archive, name, layers, ImageConfig(entrypoint=(entrypoint,)))
    return archive


def _names() -> dict[str, list[str]]:
    """The names by which kubeadm asks for each image."""
    wanted = _wanted_images()
    return {
        PAUSE_IMAGE: [wanted["pause"]],
        _DNS_IMAGE: [wanted["coredns"]],
        _CLUSTER_IMAGE: [wanted[part] for part in _CLUSTER_PARTS],
    }


def _wanted_images() -> dict[str, str]:
    """By the last word of their names: "etcd" -> "registry.k8s.io/etcd:3.6.5-0"."""
    command = [str(KUBE_NODE.binary()), "kubeadm", "config", "images", "list", "--kubernetes-version", KUBERNETES_VERSION]
    return {image.rpartition("/")[2].partition(":")[0]: image for image in output_of(command, timeout_seconds=30.0).split()}


def _link(link: Path, target: str) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
