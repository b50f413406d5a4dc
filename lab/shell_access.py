"""What a person's shell needs to use a standing lab: commands by their usual names, and where the parts answer.

<standing lab>/bin/kubectl, helm, kind, docker, kafka-topics.sh, kafka-configs.sh     as far as the lab has what they speak to
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lab import class_archive
from lab.helm import HELM
from lab.java import SMALL_JVM
from lab.kafka_jars import kafka_jars
from lab.kubernetes.kind import CLUSTER, KindLab
from lab.kubernetes.kind_image import KIND
from lab.kubernetes.tools import KUBE_NODE

_KAFKA_COMMANDS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
}
_QUIET_LOG = "log4j.rootLogger=ERROR, stderr\nlog4j.appender.stderr=org.apache.log4j.ConsoleAppender\n"
_QUIET_LOG += "log4j.appender.stderr.target=System.err\nlog4j.appender.stderr.layout=org.apache.log4j.SimpleLayout\n"


@dataclass(frozen=True)
class Tool:
    """A command as the lab calls it: its words, and what it finds in its environment beside the shell's own."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def write_tools(directory: Path, tools: Mapping[str, Tool]) -> None:
    """One executable file for each, named as people type it."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, tool in tools.items():
        words = ["exec", *(("env", *(f"{key}={value}" for key, value in tool.environment.items())) if tool.environment else ()), *tool.argv]
        file = directory / name
        file.write_text(f'#!/bin/sh\n{shlex.join(words)} "$@"\n')
        file.chmod(0o755)


def kafka_tools(directory: Path) -> dict[str, Tool]:
    """Kafka's own commands; `directory` holds the settings of their log."""
    settings = directory / "quiet.properties"
    settings.write_text(_QUIET_LOG)
    java = ("java", *SMALL_JVM, "-Xmx128m", f"-Dlog4j.configuration=file:{settings}", "-cp", class_archive.class_path(kafka_jars()))
    return {name: Tool((*java, main_class)) for name, main_class in _KAFKA_COMMANDS.items()}


def cluster_tools(cluster: object) -> dict[str, Tool]:
    """The commands that speak to a cluster, as KUBECONFIG says; for kind those of its container engine too."""
    tools = {"kubectl": Tool((str(KUBE_NODE.binary()), "kubectl")), "helm": Tool((str(HELM.binary()),))}
    if isinstance(cluster, KindLab):
        with_engine = {**cluster.engine_environment, "KIND_CLUSTER_NAME": CLUSTER}
        tools |= {"kind": Tool((str(KIND.binary()),), with_engine), "docker": Tool(("docker",), with_engine)}
    return tools


def exports(variables: Mapping[str, str], tools: Path) -> str:
    """What a shell evaluates."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return "\n".join([*lines, f'export PATH={shlex.quote(str(tools))}:"$PATH"'])
