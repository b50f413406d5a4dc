"""What a command may touch outside itself: streams, the clock, ZooKeeper, Kafka, Prometheus and Kubernetes. Tests hand in their own.

It holds also the two things that a command leaves behind: its exit code, and whether errors show their traceback.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

import typer

from tidegate.commands.connections import (
    OpenKubernetes,
    OpenReader,
    OpenTopology,
    OpenTree,
    open_kubernetes,
    open_reader,
    open_topology,
    open_tree,
)
from tidegate.commands.output import ExitCode


@dataclass(slots=True)
class Surroundings:
    """The world of one command. `exit_code` is what the process ends with when no error is raised, `exit_code_of` what when one is."""

    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    standard_input: TextIO = field(default_factory=lambda: sys.stdin)
    now_seconds: Callable[[], float] = time.time
    wait_seconds: Callable[[float], None] = time.sleep
    open_tree: OpenTree = open_tree
    open_topology: OpenTopology = open_topology
    open_kubernetes: OpenKubernetes = open_kubernetes
    open_reader: OpenReader = open_reader
    debug: bool = False
    exit_code: int = ExitCode.OK
    exit_code_of: Callable[[Exception], int] = lambda _: ExitCode.ERROR


def surroundings_of(context: typer.Context, *, debug: bool) -> Surroundings:
    """The surroundings that `cli.main` handed to this command, told whether `--debug` was given."""
    around = context.find_object(Surroundings) or Surroundings()
    around.debug = debug
    return around
