"""How long people wait for the command: the processor that its start takes, for help, `version` and
a plan of files, and a whole `tidegate doctor` on a sound cluster by the clock.

Processor time is that of the process by the kernel, user and system together, so that other work on
the machine counts little.
"""

import json
import os
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from bench.control.world import CRDS, resource
from bench.results import Figure, cost_of
from lab.kafka import BrokersLab, KafkaLab
from lab.kraft import KraftLab
from lab.kubernetes.api import KubeApi
from lab.kubernetes.tools import kube_binary
from lab.process import CommandFailed, wait_until
from lab.prometheus import PrometheusLab, monitoring
from tidegate.commands.examples import EXAMPLES

START_BOUND_SECONDS = 0.25
COMMAND_BOUND_SECONDS = 0.3
PLAN_BOUND_SECONDS = 0.8
DOCTOR_BOUND_SECONDS = 3.0
_DOCTOR_RUNS = 7
_NAME = "bench"


def start_figures() -> list[Figure]:
    """The medians of what needs no cluster, kubectl's beside them, and of a plan of examples/."""
    kubectl = ("kubectl", [str(kube_binary()), "kubectl"])
    return [
        _start(["--help"], START_BOUND_SECONDS, runs=21),
        _start(["--version"], START_BOUND_SECONDS, runs=21),
        _start(["version"], COMMAND_BOUND_SECONDS, runs=11),
        _slowest_help(),
        _start(["version", "--client"], None, runs=11, program=kubectl),
        _start(["get", "--help"], None, runs=11, program=kubectl),
        _plan(),
    ]


_TIDEGATE = ("tidegate", [sys.executable, "-m", "tidegate"])


def _start(
    arguments: Sequence[str],
    bound_seconds: float | None,
    *,
    runs: int,
    program: tuple[str, list[str]] = _TIDEGATE,
) -> Figure:
    name, argv = program
    processor_seconds([*argv, *arguments])  # the first run reads the files of the modules
    times = [processor_seconds([*argv, *arguments]) for _ in range(runs)]
    return _figure(f"`{name} {' '.join(arguments)}`", times, bound_seconds)


def _figure(what: str, times: Sequence[float], bound_seconds: float | None) -> Figure:
    return Figure(
        f"processor of {what}, median of {len(times)}",
        median(times),
        "s",
        bound_seconds,
        f"best {min(times):.3g} s, worst {max(times):.3g} s",
    )


def _slowest_help() -> Figure:
    """That of every command is measured, and the slowest shown."""
    figures = [
        _start([*name.split(), "--help"], COMMAND_BOUND_SECONDS, runs=3) for name in EXAMPLES
    ]
    slowest = max(figures, key=lambda one: one.value)
    return replace(slowest, name=f"slowest help of {len(figures)} commands: {slowest.name}")


def _plan() -> Figure:
    """Of the files in examples/, whose members get their quotas."""
    folder = Path(__file__).parents[1] / "examples"
    with KraftLab(brokers=1) as kafka:
        kafka.create_topic("acc", [[1], [1], [1]])
        address = ["--bootstrap-servers", kafka.bootstrap_servers]
        argv = [*_TIDEGATE[1], "plan", "-f", str(folder), *address]
        times = [processor_seconds(argv, codes=(2,)) for _ in range(12)][1:]
    what = "`tidegate plan -f examples/` on one broker on loopback"
    return _figure(what, times, PLAN_BOUND_SECONDS)


def processor_seconds(argv: Sequence[str], codes: Collection[int] = (0,)) -> float:
    """User and system time of one run. Raises RuntimeError where it ends with another code.

    It runs in an empty folder, where no checkout can take the place of what is installed.
    """
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            process = os.posix_spawn(
                argv[0],
                list(argv),
                os.environ,
                file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
            )
            _, status, usage = os.wait4(process, 0)
        finally:
            os.chdir(here)
    if (code := os.waitstatus_to_exitcode(status)) not in codes:
        raise RuntimeError(f"{' '.join(argv)} ended with code {code}")
    return usage.ru_utime + usage.ru_stime


def doctor_figures() -> list[Figure]:
    """The median of runs on three brokers with nothing wrong. One with a problem ends the bench."""
    with KafkaLab(brokers=3) as kafka:
        by_zookeeper = {
            "quotaStore": "ZooKeeper",
            "zookeeper": {"connect": kafka.zookeeper_connect},
        }
        return [_doctor(kafka, by_zookeeper, "three brokers")]


def kraft_doctor_figures() -> list[Figure]:
    """The same on three brokers of Kafka 4.3.1, each a controller."""
    with KraftLab(brokers=3) as kafka:
        return [_doctor(kafka, {}, "three brokers of Kafka 4.3.1 without ZooKeeper")]


def _doctor(kafka: BrokersLab, quota_store: Mapping[str, Any], where: str) -> Figure:
    with monitoring(kafka) as prometheus, KubeApi() as kube:
        kafka.create_topic(_NAME, [[1], [2], [3]])
        kube.install_crds(CRDS)
        objects = _objects(kafka, quota_store, prometheus)
        listed = {"apiVersion": "v1", "kind": "List", "items": objects}

        def applied() -> bool:
            try:
                kube.kubectl("apply", "-f", "-", input=json.dumps(listed))
            except CommandFailed:  # a CRD that was just installed is unknown for a moment
                return False
            return True

        wait_until(applied, "the fresh CRDs", timeout_seconds=30, poll_seconds=1)
        argv = [sys.executable, "-m", "tidegate", "doctor", "--kubeconfig", str(kube.kubeconfig)]
        costs = [cost_of(argv, timeout_seconds=60) for _ in range(_DOCTOR_RUNS)]
    seconds = [cost.seconds for cost in costs]
    processor = median(cost.processor_seconds for cost in costs)
    return Figure(
        f"`tidegate doctor` on {where} with nothing wrong, median of {_DOCTOR_RUNS}",
        median(seconds),
        "s",
        DOCTOR_BOUND_SECONDS,
        f"best {min(seconds):.1f} s, worst {max(seconds):.1f} s, processor {processor:.1f} s",
    )


def _objects(
    kafka: BrokersLab, quota_store: Mapping[str, Any], prometheus: PrometheusLab
) -> list[dict[str, Any]]:
    metrics = {
        "prometheus": {"url": prometheus.url},
        "preset": "JmxExporter",
        "scrapeIntervalSeconds": 1,
        "staleAfterSeconds": 10,
    }
    policy = {
        "mode": "Observe",
        "kafka": {"bootstrapServers": kafka.bootstrap_servers, **quota_store},
        "metrics": metrics,
        "brokers": {"egress": {"limit": "100M"}, "ingress": {"limit": "100M"}},
    }
    contract = {"perPartition": {"fetch": "10M", "produce": "10M"}}
    member = {"name": "shop", "user": "shop", "topics": [_NAME], "contract": contract}
    tier = {"policyRef": {"name": _NAME}, "level": "L0", "members": [member]}
    return [
        resource("BrokerBandwidthPolicy", _NAME, policy),
        resource("BusinessTier", _NAME, tier),
    ]
