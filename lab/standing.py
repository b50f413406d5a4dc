"""Labs that stay up after the command that started them: keepers, addresses, ends.

    <cache>/standing/<name>/keeper.json     identity, parts, and addresses once all serve
    <cache>/standing/<name>/keeper.log      what the keeper said

The parts themselves live in run directories of the keeper's process, which is the only one that
starts and stops them.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from lab import cache, java
from lab.errors import LabError
from lab.java import SMALL_JVM
from lab.kubernetes.api import KubeApi
from lab.kubernetes.kind import CLUSTER, KindLab
from lab.kubernetes.kind_image import KIND
from lab.kubernetes.tools import HELM, KUBE_NODE, kube_binary
from lab.packages import kafka_jars
from lab.process import ProcessIdentity, log_tail

# What a person's shell needs to use a standing lab: commands by their usual names, and where the
# parts answer.
#
# <standing lab>/bin/ has kubectl, helm, kind, docker, kafka-topics.sh and kafka-configs.sh, as far
# as the lab has what they speak to.


_KAFKA_COMMANDS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
}
_QUIET_LOG = """\
log4j.rootLogger=ERROR, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.SimpleLayout
"""


@dataclass(frozen=True)
class Tool:
    """A command as the lab calls it: its words, and its environment beside the shell's own."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def write_tools(directory: Path, tools: Mapping[str, Tool]) -> None:
    """One executable file for each, named as people type it."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, tool in tools.items():
        words = [
            "exec",
            *(
                ("env", *(f"{key}={value}" for key, value in tool.environment.items()))
                if tool.environment
                else ()
            ),
            *tool.argv,
        ]
        file = directory / name
        file.write_text(f'#!/bin/sh\n{shlex.join(words)} "$@"\n')
        file.chmod(0o755)


def kafka_tools(directory: Path) -> dict[str, Tool]:
    """Kafka's own commands; `directory` holds the settings of their log."""
    settings = directory / "quiet.properties"
    settings.write_text(_QUIET_LOG)
    command = (
        "java",
        *SMALL_JVM,
        "-Xmx128m",
        f"-Dlog4j.configuration=file:{settings}",
        "-cp",
        java.class_path(kafka_jars()),
    )
    return {name: Tool((*command, main_class)) for name, main_class in _KAFKA_COMMANDS.items()}


def cluster_tools(cluster: object) -> dict[str, Tool]:
    """The commands that speak to a cluster, as KUBECONFIG says.

    For kind those of its container engine too.
    """
    # an API alone needs no node's parts, which take minutes to build
    binary = kube_binary() if isinstance(cluster, KubeApi) else KUBE_NODE.binary()
    tools = {
        "kubectl": Tool((str(binary), "kubectl")),
        "helm": Tool((str(HELM.binary()),)),
    }
    if isinstance(cluster, KindLab):
        with_engine = {**cluster.engine_environment, "KIND_CLUSTER_NAME": CLUSTER}
        tools |= {
            "kind": Tool((str(KIND.binary()),), with_engine),
            "docker": Tool(("docker",), with_engine),
        }
    return tools


def exports(variables: Mapping[str, str], tools: Path) -> str:
    """What a shell evaluates."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return "\n".join([*lines, f'export PATH={shlex.quote(str(tools))}:"$PATH"'])


_START_TIMEOUT_SECONDS = 3600.0  # a first build of Kubernetes is part of it
_STOP_TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.1
_REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Wanted:
    """What a standing lab consists of."""

    parts: tuple[str, ...]
    brokers: int = 3
    namespaces: bool = False
    users: tuple[str, ...] = ()
    server_properties: dict[str, str] = field(default_factory=dict)
    scrape_interval_seconds: int = 1

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Self:
        """What `asdict` made of it, after a journey through JSON."""
        return cls(**(fields | {"parts": tuple(fields["parts"]), "users": tuple(fields["users"])}))


@dataclass(frozen=True)
class StandingLab:
    """One standing lab.

    `addresses` is part -> what a client of it needs to know; empty until everything serves.
    """

    name: str
    keeper: ProcessIdentity
    wanted: Wanted
    addresses: dict[str, dict[str, Any]]

    def is_alive(self) -> bool:
        """Whether its keeper still runs; when it does not, none of its parts does."""
        return self.keeper.is_alive()

    def write(self) -> None:
        """Record it, all at once, so that no reader sees half of it."""
        half = directory_of(self.name) / "keeper.json.new"
        half.write_text(json.dumps(asdict(self), indent=1))
        half.rename(half.with_suffix(""))


def directory_of(name: str) -> Path:
    """Where the standing lab `name` keeps its record."""
    return cache.root() / "standing" / name


def find(name: str) -> StandingLab | None:
    """The record of the standing lab `name`, alive or not; None when there is none."""
    try:
        fields = json.loads((directory_of(name) / "keeper.json").read_text())
    except (OSError, ValueError):
        return None
    return StandingLab(
        fields["name"],
        ProcessIdentity(**fields["keeper"]),
        Wanted.of(fields["wanted"]),
        fields["addresses"],
    )


def everything() -> list[StandingLab]:
    """Every recorded standing lab, by name."""
    names = sorted(path.name for path in (cache.root() / "standing").glob("*"))
    return [lab for name in names if (lab := find(name)) is not None]


def bring_up(name: str, wanted: Wanted) -> StandingLab:
    """Start a lab that stays up, and return once everything serves.

    It is ended again when that fails or is interrupted.
    """
    existing = find(name)
    if existing is not None and existing.is_alive():
        raise LabError(
            f"A lab named {name!r} is up already. Run `python -m lab down {name}` first, or give "
            f"this one another --name."
        )
    shutil.rmtree(directory_of(name), ignore_errors=True)
    directory_of(name).mkdir(parents=True)
    keeper = _start_keeper(name, wanted)
    try:
        return _await(name, keeper)
    except BaseException:
        keeper.terminate()
        keeper.wait(_STOP_TIMEOUT_SECONDS)
        shutil.rmtree(directory_of(name), ignore_errors=True)
        raise


def take_down(lab: StandingLab) -> None:
    """End a standing lab and everything of it; clear what a lost keeper left.

    Never signals a stranger.
    """
    if lab.is_alive():
        os.kill(lab.keeper.pid, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_TIMEOUT_SECONDS
        while lab.is_alive() and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        if lab.is_alive():  # its parts are tied to it and end with it; what it made is swept below
            os.kill(lab.keeper.pid, signal.SIGKILL)
    cache.sweep()
    shutil.rmtree(directory_of(lab.name), ignore_errors=True)


def _start_keeper(name: str, wanted: Wanted) -> subprocess.Popen[bytes]:
    with (directory_of(name) / "keeper.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "lab.keeper", name, json.dumps(asdict(wanted))],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=_REPOSITORY,
        )


def _await(name: str, keeper: subprocess.Popen[bytes]) -> StandingLab:
    """Pass the keeper's words on until it serves; `LabError` when it ended instead."""
    log_path = directory_of(name) / "keeper.log"
    deadline = time.monotonic() + _START_TIMEOUT_SECONDS
    with log_path.open() as log:
        while time.monotonic() < deadline:
            sys.stderr.write(log.read())
            lab = find(name)
            if lab is not None and lab.addresses:
                return lab
            if keeper.poll() is not None:
                sys.stderr.write(log.read())
                raise LabError("The lab could not start, for the reason above, and is down again.")
            time.sleep(_POLL_SECONDS)
    raise LabError(
        f"The lab did not serve within {_START_TIMEOUT_SECONDS:g} s.\n{log_tail(log_path)}"
    )
