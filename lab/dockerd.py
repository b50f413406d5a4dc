"""dockerd and containerd in a network namespace of the lab, out of Debian packages unpacked into the cache. Needs root.

They have mount and process namespaces of their own too (`kind_files/engine.sh`): when the lab dies, the kernel ends every container with
them, and no mount is left. What is left even then, the control group, `node_remains` takes away. Outside the lab's directory nothing of the
machine's files is read as a setting or written.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from lab import control_group, process
from lab.command import output_of
from lab.kubernetes import node_remains
from lab.network import Namespace
from lab.node_parts import lacks_sys_resource, node_parts
from lab.packages import unpacked
from lab.process import Process
from lab.run_directory import RunDirectory
from lab.waiting import wait_until

_FILES = Path(__file__).parent / "kind_files"
_PACKAGES = ("docker.io", "libdevmapper1.02.1", "tini")
# Seen inside the namespace only.
_BRIDGE_ADDRESS = "10.197.0.1/24"
_CONTAINER_ADDRESSES = {"base": "10.196.0.0/16", "size": 24}
_START_TIMEOUT_SECONDS = 60.0


class Dockerd:
    """A context manager that returns once dockerd answers. `environment` is all that a client of it needs, and nothing of a person's."""

    def __init__(self, run: RunDirectory, namespace: Namespace, directory: Path, *, prepared: Path | None = None) -> None:
        """`prepared` is the data directory of an earlier dockerd, whose images this one has too; it is only read."""
        self._run = run
        self._prepared = prepared
        self._namespace = namespace
        self._directory = directory
        self._cgroup = f"tidegate-{run.lab_id}"
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._directory.mkdir(parents=True)
            self.environment = self._environment()
            self._run.record_undo([sys.executable, str(Path(node_remains.__file__)), self._cgroup, str(self._directory)])
            stack.callback(node_remains.clear, self._cgroup, self._directory)
            control_group.make(self._cgroup)
            self.process = self._start()
            stack.callback(self.process.kill)
            wait_until(self._answers, "dockerd to answer", timeout_seconds=_START_TIMEOUT_SECONDS, processes=[self.process])
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def docker(self, *arguments: str, timeout_seconds: float = 120.0) -> str:
        """What the docker command writes to stdout; `LabError` when it fails or has not ended in time."""
        return self.call(["docker", *arguments], timeout_seconds=timeout_seconds)

    def call(self, command: list[str], *, timeout_seconds: float) -> str:
        """What a client of this dockerd writes to stdout; `LabError` when it fails or has not ended in time."""
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
        (self._directory / "containerd.toml").write_text(_containerd_settings(self._directory))
        settings = self._directory / "daemon.json"
        settings.write_text(json.dumps(self._settings(), indent=1))
        # Not `ip netns exec`: it would hide the control groups.
        inside = ["nsenter", f"--net=/run/netns/{self._namespace.name}"]
        apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "docker-init", "--"]
        start = [str(_FILES / "engine.sh"), str(self._directory), str(self._prepared or ""), f"--config-file={settings}"]
        argv = control_group.joined(self._cgroup, [*inside, *apart, *start])
        return process.start("dockerd", argv, log_path=self._directory / "log" / "dockerd.log", environment=self.environment)

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
            # Nobody answers there, so names of the outside fail at once instead of after a time.
            "dns": [self._namespace.address],
            "userland-proxy": False,
            "exec-opts": ["native.cgroupdriver=cgroupfs"],
            "cgroup-parent": f"/{self._cgroup}/containers",
        }
        if lacks_sys_resource():
            settings |= {"runtimes": {"bounded": {"path": str(_FILES / "runc-bounded")}}, "default-runtime": "bounded"}
        return settings

    def _answers(self) -> bool:
        return subprocess.run(["docker", "version"], env=self.environment, capture_output=True, timeout=20).returncode == 0


def _copy_images(prepared: Path, data: Path) -> None:
    """All that dockerd knows of its images, and an empty directory for the files of each layer, where engine.sh mounts them."""
    for part in ("image", "overlay2"):
        shutil.copytree(prepared / part, data / part, symlinks=True, ignore=_layer_files)


def _layer_files(directory: str, names: list[str]) -> list[str]:
    return names if Path(directory).name == "diff" else []


def _containerd_settings(directory: Path) -> str:
    return f"""version = 2
root = "{directory}/containerd"
state = "{directory}/containerd-state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{directory}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{directory}/opt"
"""
