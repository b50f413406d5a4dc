"""The image of a kind cluster's node, made here.

It has a Debian root, kind's own files, the lab's Kubernetes, and the images it starts. It is what
`kind build node-image` would make, except that every part of Kubernetes is one program, and that a
bridge is the network of its one node. kind's files come out of its Go module; nothing is pulled,
and nothing shows on which machine it was made.
"""

import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from lab import cache, process
from lab.cache import RunDirectory
from lab.errors import LabError, say
from lab.image_archive import ImageConfig, write_archive, write_layer
from lab.kubernetes import node, node_remains
from lab.kubernetes.node import (
    COREDNS,
    IPTABLES_LIBRARIES,
    IPTABLES_NAMES,
    PAUSE_IMAGE,
    lacks_sys_resource,
    node_parts,
    pause_image,
)
from lab.kubernetes.tools import KUBE_NODE, KUBERNETES_VERSION
from lab.network import Namespace
from lab.packages import GoModule, unpacked
from lab.process import Opened, Process, output_of, wait_until

# A Debian root file system as a tar file, out of the machine's own package mirror: what a container
# that runs systemd is made of.
#
# Only what is essential and what is asked for gets in, without manuals and without kernel settings,
# and no trace of which mirror it came from. Made by mmdebstrap, unpacked from its package; needs
# root, because packages are configured in the new root.


_BUILD_TIMEOUT_SECONDS = 900.0
_TOOLS = ("mmdebstrap", "debian-archive-keyring")
_LIST_TARGETS = [
    "apt-get",
    "indextargets",
    "--format",
    "$(REPO_URI) $(RELEASE) $(COMPONENT)",
    "Created-By: Packages",
]
# A container shares its machine's kernel: what a package would set there at boot is none of its
# business.
_LEFT_OUT = (
    "/usr/share/man/*",
    "/usr/share/doc/*",
    "/usr/share/locale/*",
    "/usr/share/info/*",
    "/usr/lib/sysctl.d/*",
)
_FORGET_MIRROR = 'rm -rf "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d/* "$1"/var/log/*'


def debian_root(name: str, packages: Sequence[str], *, without: Sequence[str]) -> Path:
    """The tar file of a root with these packages and what they depend on.

    Files that match the globs `without` are left out. From the cache, under `name`, or built into
    it with the release that this machine runs: about a minute and 80 MB of downloads.
    """
    codename = codename_of(Path("/etc/os-release").read_text())
    key_parts = [
        codename,
        platform.machine(),
        *_LEFT_OUT,
        _FORGET_MIRROR,
        "with",
        *packages,
        "without",
        *without,
    ]
    return (
        cache.entry(
            name,
            key_parts,
            build=lambda content: _build(content, codename, packages=packages, without=without),
        )
        / "root.tar"
    )


def codename_of(os_release: str) -> str:
    """The word for the release, "bookworm", in the text of /etc/os-release.

    Raises `LabError` where it has none.
    """
    settings = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line)
    try:
        return settings["VERSION_CODENAME"].strip("\"'")
    except KeyError:
        raise LabError(
            "This is no Debian: /etc/os-release names no VERSION_CODENAME, so no root file "
            "system can be made."
        ) from None


def sources_of(listed_targets: str, codename: str) -> list[str]:
    """URI, suite and component, a line for each suite of the release.

    From the output of `apt-get indextargets`, without others' repositories.
    """
    suites = {codename, f"{codename}-updates", f"{codename}-security"}
    lines = dict.fromkeys(listed_targets.splitlines())  # once each, in their order
    return [line for line in lines if line.split()[1] in suites and line.split()[2] == "main"]


def _build(
    content: Path, codename: str, *, packages: Sequence[str], without: Sequence[str]
) -> None:
    say("debian", f"making a {codename} root file system; about a minute")
    work = content.parent / "work"
    work.mkdir()
    tools = unpacked(_TOOLS)
    keyring = tools / "usr/share/keyrings/debian-archive-keyring.gpg"
    mirrors = [
        f"deb [signed-by={keyring}] {source}"
        for source in sources_of(output_of(_LIST_TARGETS, timeout_seconds=60.0), codename)
    ]
    if not mirrors:
        raise LabError(
            f"apt-get knows no source of {codename} main. Add Debian's own to "
            f"/etc/apt/sources.list.d and run apt-get update."
        )
    remove = f'cd "$1" && rm -f {" ".join(without)}'
    command = [
        str(tools / "usr/bin/mmdebstrap"),
        "--mode=root",
        "--variant=essential",
        f"--include={','.join(packages)}",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT),
        f"--customize-hook={remove}",
        f"--customize-hook={_FORGET_MIRROR}",
        "--format=tar",
        codename,
        str(content / "root.tar"),
        *mirrors,
    ]
    environment = {
        "PATH": os.pathsep.join([str(tools / "usr/bin"), os.environ["PATH"]]),
        "TMPDIR": str(work),
    }
    with process.start(
        "mmdebstrap", command, log_path=work / "mmdebstrap.log", environment=environment
    ) as making:
        making.expect_success(_BUILD_TIMEOUT_SECONDS)


# A containerd's store that already holds images, so that a node finds them when it starts and pulls
# nothing.
#
# The store is filled by containerd itself, started here with nothing but the store: no container
# runs, no root file system is unpacked.


# What is in the images, and which images there are.
_KEPT = ("io.containerd.content.v1.content", "io.containerd.metadata.v1.bolt")
_IMPORT_TIMEOUT_SECONDS = 120.0


def preload(
    store: Path, archives: Sequence[Path], names: Mapping[str, Sequence[str]], *, programs: Path
) -> None:
    """Fill `store`, which is made, with the images of the docker archives.

    They get further `names` (image -> names). `programs` is the directory with containerd and ctr.
    """
    # The paths of sockets end at 108 characters, which a directory of the cache may exceed.
    with tempfile.TemporaryDirectory(prefix="tidegate-preload-") as scratch:
        work = Path(scratch)
        settings = work / "containerd.toml"
        settings.write_text(_containerd_settings(work, root=store, state=work / "state"))
        with process.start(
            "containerd",
            [str(programs / "containerd"), "-c", str(settings)],
            log_path=work / "containerd.log",
        ) as engine:
            ctr = [str(programs / "ctr"), f"--address={work}/containerd.sock", "--namespace=k8s.io"]
            wait_until(
                lambda: _answers(ctr),
                "containerd to answer",
                timeout_seconds=30.0,
                processes=[engine],
            )
            for archive in archives:
                importing = ("images", "import", "--all-platforms", "--no-unpack", archive)
                output_of([*ctr, *importing], timeout_seconds=_IMPORT_TIMEOUT_SECONDS)
            for image, further in names.items():
                for name in further:
                    output_of(
                        [*ctr, "images", "tag", image, name],
                        timeout_seconds=_IMPORT_TIMEOUT_SECONDS,
                    )
    for path in store.iterdir():
        if path.name not in _KEPT:
            shutil.rmtree(path)


def _containerd_settings(work: Path, *, root: Path, state: Path) -> str:
    """Of a containerd that answers on a socket in `work`."""
    return f"""version = 2
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{work}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{work}/opt"
"""


def _answers(client: list[str], environment: Mapping[str, str] | None = None) -> bool:
    """Whether the server that this client speaks to tells its version."""
    try:
        output_of([*client, "version"], timeout_seconds=20.0, environment=environment)
    except LabError:
        return False
    return True


# dockerd and containerd in a network namespace of the lab, out of Debian packages unpacked into the
# cache. Needs root.
#
# They have mount and process namespaces of their own too (`kind_files/engine.sh`): when the lab
# dies, the kernel ends every container with them, and no mount is left. What is left even then, the
# control group, `node_remains` takes away. Outside the lab's directory nothing of the machine's
# files is read as a setting or written.


_FILES = Path(__file__).parent / "kind_files"
_PACKAGES = ("docker.io", "libdevmapper1.02.1", "tini")
# Seen inside the namespace only.
_BRIDGE_ADDRESS = "10.197.0.1/24"
_CONTAINER_ADDRESSES = {"base": "10.196.0.0/16", "size": 24}
_START_TIMEOUT_SECONDS = 60.0


class Dockerd(Opened):
    """A context manager that returns once dockerd answers.

    `environment` is all that a client of it needs, and nothing of a person's.
    """

    def __init__(
        self,
        run: RunDirectory,
        namespace: Namespace,
        directory: Path,
        *,
        prepared: Path | None = None,
    ) -> None:
        """`prepared` is an earlier dockerd's data directory, with images to share; only read."""
        self._run = run
        self._prepared = prepared
        self._namespace = namespace
        self._directory = directory
        self._cgroup = f"tidegate-{run.lab_id}"

    def _open(self, stack: ExitStack) -> None:
        self._directory.mkdir(parents=True)
        self.environment = self._environment()
        self._run.record_undo(
            [
                sys.executable,
                str(Path(node_remains.__file__)),
                self._cgroup,
                str(self._directory),
            ]
        )
        stack.callback(node_remains.clear, self._cgroup, self._directory)
        node.make(self._cgroup)
        self.process = self._start()
        stack.callback(self.process.kill)
        wait_until(
            lambda: _answers(["docker"], self.environment),
            "dockerd to answer",
            timeout_seconds=_START_TIMEOUT_SECONDS,
            processes=[self.process],
        )

    def docker(self, *arguments: str, timeout_seconds: float = 120.0) -> str:
        """What the docker command writes to stdout.

        Raises `LabError` when it fails or has not ended in time.
        """
        return self.call(["docker", *arguments], timeout_seconds=timeout_seconds)

    def call(self, command: list[str], *, timeout_seconds: float) -> str:
        """What a client of this dockerd writes to stdout.

        Raises `LabError` when it fails or has not ended in time.
        """
        return output_of(command, timeout_seconds=timeout_seconds, environment=self.environment)

    def _environment(self) -> dict[str, str]:
        parts = node_parts(self._directory / "bin")
        files = unpacked(_PACKAGES)
        (library,) = files.glob("lib/*/libdevmapper.so.*")
        home = self._directory / "home"
        home.mkdir()
        programs = [str(files / "usr/sbin"), str(files / "usr/bin"), parts.environment["PATH"]]
        libraries = [parts.environment["LD_LIBRARY_PATH"], str(library.parent)]
        return {
            **parts.environment,
            "PATH": os.pathsep.join(programs),
            "LD_LIBRARY_PATH": os.pathsep.join(libraries),
            "HOME": str(home),
            "DOCKER_CONFIG": str(home / ".docker"),
            "DOCKER_HOST": f"unix://{self._directory}/docker.sock",
        }

    def _start(self) -> Process:
        (self._directory / "log").mkdir()
        if self._prepared is not None:
            _copy_images(self._prepared, self._directory / "data")
        engine = _containerd_settings(
            self._directory,
            root=self._directory / "containerd",
            state=self._directory / "containerd-state",
        )
        (self._directory / "containerd.toml").write_text(engine)
        settings = self._directory / "daemon.json"
        settings.write_text(json.dumps(self._settings(), indent=1))
        # Not `ip netns exec`: it would hide the control groups.
        inside = ["nsenter", f"--net=/run/netns/{self._namespace.name}"]
        apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        start = [
            *("docker-init", "--", str(_FILES / "engine.sh")),
            str(self._directory),
            str(self._prepared or ""),
            f"--config-file={settings}",
        ]
        argv = node.joined(self._cgroup, [*inside, *apart, *start])
        return process.start(
            "dockerd",
            argv,
            log_path=self._directory / "log" / "dockerd.log",
            environment=self.environment,
        )

    def _settings(self) -> dict[str, object]:
        directory = self._directory
        settings: dict[str, object] = {
            "hosts": [f"unix://{directory}/docker.sock"],
            "containerd": f"{directory}/containerd.sock",
            "data-root": f"{directory}/data",
            "exec-root": f"{directory}/exec",
            "pidfile": f"{directory}/dockerd.pid",
            "deprecated-key-path": f"{directory}/key.json",
            "storage-driver": "overlay2",
            "bip": _BRIDGE_ADDRESS,
            "default-address-pools": [_CONTAINER_ADDRESSES],
            # Nothing answers there, so names of the outside fail at once instead of after a time.
            "dns": [self._namespace.address],
            "userland-proxy": False,
            "exec-opts": ["native.cgroupdriver=cgroupfs"],
            "cgroup-parent": f"/{self._cgroup}/containers",
        }
        if lacks_sys_resource():
            settings |= {
                "runtimes": {"bounded": {"path": str(_FILES / "runc-bounded")}},
                "default-runtime": "bounded",
            }
        return settings


def _copy_images(prepared: Path, data: Path) -> None:
    """Copy all that dockerd knows of its images.

    The files of each layer get an empty directory, where engine.sh mounts them.
    """
    for part in ("image", "overlay2"):
        shutil.copytree(prepared / part, data / part, symlinks=True, ignore=_layer_files)


def _layer_files(directory: str, names: list[str]) -> list[str]:
    return names if Path(directory).name == "diff" else []


NODE_IMAGE = f"localhost/kind-node:{KUBERNETES_VERSION}"

_DIRECTORY = Path(__file__).parent / "kind_binary"
_OWN_FILES = Path(__file__).parent / "kind_files" / "node"

KIND = GoModule(
    program="kind",
    directory=_DIRECTORY,
    package="sigs.k8s.io/kind",
    title="kind",
    takes="some seconds",
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
_CLUSTER_PARTS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
)
_CLUSTER_IMAGE = f"localhost/kube:{KUBERNETES_VERSION}"
_DNS_IMAGE = "localhost/coredns:lab"


def image_inputs() -> Iterator[str | bytes]:
    """Everything that decides what the image is, as parts of a key.

    What has to be built for that is built.
    """
    inputs = [
        _root(),
        KUBE_NODE.binary(),
        COREDNS.binary(),
        pause_image(),
        unpacked(_PROXY_PACKAGES),
    ]
    yield from (_entry_name(path) for path in inputs)
    yield from (
        path.read_bytes() for path in (_DIRECTORY / "go.mod", _DIRECTORY / "go.sum", Path(__file__))
    )
    for path in sorted(_OWN_FILES.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(_OWN_FILES))
            yield path.read_bytes()


def _entry_name(path: Path) -> str:
    """The cache's name of the entry that holds `path`.

    Its key stands for everything that the entry was made from.
    """
    return path.relative_to(cache.root() / "entries").parts[0]


def write_node_image(archive: Path, work: Path) -> None:
    """Write a docker archive of `NODE_IMAGE`. Needs root.

    `work` is an empty directory; what is left in it is of no use.
    """
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
    config = ImageConfig(
        entrypoint=start, environment={"container": "docker"}, stop_signal="SIGRTMIN+3"
    )
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
    return "".join(
        f'  sandbox_image = "{image}"\n' if line.strip().startswith("sandbox_image") else line
        for line in lines
    )


def container_base(spec: str) -> dict[str, object]:
    """What a container of the node begins with: containerd's own (`ctr oci spec`) and kind's hook.

    The hook hides the machine's identity.
    """
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
    for name in (
        "containerd",
        "containerd-shim-runc-v2",
        "ctr",
    ):  # where kind's units and kind look for them
        _link(tree / "usr/local/bin" / name, f"/usr/bin/{name}")
    _link(tree / "usr/sbin/init", "/usr/lib/systemd/systemd")
    _link(tree / "opt/cni/bin", "/usr/lib/cni")


def _cluster_archive(work: Path) -> Path:
    """One image for all parts of the control plane and kube-proxy, as they are one program."""
    base, parts = work / "proxy", work / "cluster"
    shutil.copytree(
        unpacked(_PROXY_PACKAGES),
        base,
        symlinks=True,
        ignore=shutil.ignore_patterns("doc", "man", "gconv", "locale"),
    )
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
    command = [
        str(KUBE_NODE.binary()),
        "kubeadm",
        "config",
        "images",
        "list",
        "--kubernetes-version",
        KUBERNETES_VERSION,
    ]
    return {
        image.rpartition("/")[2].partition(":")[0]: image
        for image in output_of(command, timeout_seconds=30.0).split()
    }


def _link(link: Path, target: str) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
