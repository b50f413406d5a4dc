"""How long people wait for the command: the processor that `tidegate --help` takes, and a whole
`tidegate doctor` on a sound cluster by the clock.

Processor time is that of the process by the kernel, user and system together, so that other work on
the machine counts little.
"""

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.control.world import CRDS
from bench.results import Figure, cost_of
from lab.kafka import BrokersLab, KafkaLab
from lab.kraft import KraftLab
from lab.kubernetes.api import KubeApi
from lab.kubernetes.tools import KubectlFailed
from lab.process import wait_until
from lab.prometheus import PrometheusLab, monitoring

START_BOUND_SECONDS = 0.25
DOCTOR_BOUND_SECONDS = 3.0
_DOCTOR_RUNS = 7
_NAME = "bench"


def start_figures() -> list[Figure]:
    """The medians of `--help` and `--version`; what imports a command is shown beside them."""
    return [
        _start(["--help"], START_BOUND_SECONDS, runs=21),
        _start(["--version"], START_BOUND_SECONDS, runs=21),
        _start(["plan", "--help"], None, runs=5),
    ]


def _start(arguments: Sequence[str], bound_seconds: float | None, *, runs: int) -> Figure:
    processor_seconds(arguments)  # the first run reads the files of the modules
    times = [processor_seconds(arguments) for _ in range(runs)]
    return Figure(
        f"processor of `tidegate {' '.join(arguments)}`, median of {runs}",
        median(times),
        "s",
        bound_seconds,
        f"best {min(times):.3g} s, worst {max(times):.3g} s",
    )


def processor_seconds(arguments: Sequence[str]) -> float:
    """User and system time of one run. Raises RuntimeError where it ends with another code than 0.

    It runs in an empty folder, where no checkout can take the place of what is installed.
    """
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            process = os.posix_spawn(
                sys.executable,
                [sys.executable, "-m", "tidegate", *arguments],
                os.environ,
                file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
            )
            _, status, usage = os.wait4(process, 0)
        finally:
            os.chdir(here)
    if status:
        raise RuntimeError(f"tidegate {' '.join(arguments)} ended with status {status}")
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
            except KubectlFailed:  # a CRD that was just installed is unknown for a moment
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
        {
            "apiVersion": "tidegate.io/v1alpha1",
            "kind": kind,
            "metadata": {"name": _NAME, "namespace": "default"},
            "spec": spec,
        }
        for kind, spec in (("BrokerBandwidthPolicy", policy), ("BusinessTier", tier))
    ]
