"""Everything that the experiment stands on, started part by part with its progress shown, and taken away again at any end.

ZooKeeper, three brokers, Prometheus and the Kubernetes API come from the lab; the operator is a process of its own, started as a user
would start it. Kubernetes and the operator start beside Kafka. As root, every broker gets a network namespace; without root all are on
loopback.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from demo.beside import Beside
from demo.declared import NAMESPACE
from demo.interruption import Interruption
from demo.kafka_administrator import create_topic
from demo.script import REPLICAS, USER
from demo.tide.script import USERS
from lab import process
from lab.doctor import refuse_missing
from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.kubernetes.tools import kube_binary
from lab.network import free_port
from lab.packages import kafka_jars
from lab.process import Process
from lab.prometheus import PrometheusLab, ScrapeTarget, monitoring

CRDS = Path(__file__).parent.parent / "crds"
OPERATOR_LOG = "operator.log"
AUDIT_TRAIL = "audit.jsonl"
_BROKERS = 3
_OPERATOR_HOST = "127.0.0.1"
_NEEDED = ("linux", "util-linux", "java", "maven", "go", "apt", "disk")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Estate:
    """The running parts; Prometheus may still be starting, since nobody needs it before the first measurement."""

    kafka: KafkaLab
    prometheus: Beside[PrometheusLab]
    kube: KubeApi
    operator: Process


@dataclass(slots=True)
class SetupLog:
    """How long each part took to set up, told line by line as it happens."""

    say: Callable[[str], None]
    seconds: dict[str, float] = field(default_factory=dict)

    def timed(self, part: str, work: Callable[[], T]) -> T:
        """Do `work`, note and tell how long it took."""
        started = time.monotonic()
        answer = work()
        self.seconds[part] = time.monotonic() - started
        self.say(f"  {part:<40} {self.seconds[part]:6.1f} s")
        return answer


@contextmanager
def estate(log: SetupLog, output: Path, *, interruption: Interruption) -> Iterator[Estate]:
    """All parts, running; the operator's log and audit trail go to `output`.

    Raises LabError when the machine lacks something or a part does not start; what was started is stopped then.
    """
    refuse_missing(*_NEEDED)
    # What is not in the cache yet is fetched and built here, one after the other: both want the whole machine.
    with interruption.told():
        log.timed("Kafka's jars (downloaded once)", kafka_jars)
        log.timed("Kubernetes' binary (built once)", kube_binary)
        log.say("  starting Kafka, Prometheus, the Kubernetes API and the operator ...")
    with ExitStack() as stack, interruption.told():
        metrics_port = free_port()
        kubernetes = stack.enter_context(Beside(_kubernetes(log, output, metrics_port)))
        brokers = KafkaLab(brokers=_BROKERS, namespaces=os.geteuid() == 0, users=(USER, *USERS))
        kafka = _open(stack, log, "ZooKeeper and three brokers", brokers)
        create_topic(kafka, REPLICAS)
        kube, operator = kubernetes.ready()
        # It waits for a first scrape of the operator, too, which has been started by now.
        operators_metrics = ScrapeTarget("operator", f"{_OPERATOR_HOST}:{metrics_port}")
        prometheus = stack.enter_context(Beside(monitoring(kafka, further=[operators_metrics])))
        yield Estate(kafka, prometheus, kube, operator)


@contextmanager
def _kubernetes(log: SetupLog, output: Path, metrics_port: int) -> Iterator[tuple[KubeApi, Process]]:
    with ExitStack() as stack:
        kube = _open(stack, log, "Kubernetes API", KubeApi())
        log.timed("custom resource definitions", lambda: _install(kube))
        yield kube, stack.enter_context(_start_operator(kube, output, metrics_port))


def describe(parts: Estate) -> dict[str, str]:
    """What runs where, as label and text."""
    if parts.kafka.network is None:
        where = "three brokers and the clients on loopback (network namespaces need root)"
    else:
        where = "a network namespace for each broker and one for the clients, joined by a bridge"
    return {"Kafka": "3.9.2 with ZooKeeper, quota window 11 x 1 s (Kafka's default)", "Network": where}


def _open(stack: ExitStack, log: SetupLog, part: str, context: AbstractContextManager[T]) -> T:
    return log.timed(part, lambda: stack.enter_context(context))


def _install(kube: KubeApi) -> None:
    kube.install_crds(CRDS)
    kube.kubectl("create", "namespace", NAMESPACE)


def _start_operator(kube: KubeApi, output: Path, metrics_port: int) -> Process:
    ports = ["--listen-address", _OPERATOR_HOST, "--liveness-port", "0", "--metrics-port", str(metrics_port)]
    audit = ["--audit-file", str(output / AUDIT_TRAIL)]
    argv = [sys.executable, "-m", "tidegate", "run", "--kubeconfig", str(kube.kubeconfig), "--namespace", NAMESPACE, *ports, *audit]
    return process.start("operator", argv, log_path=output / OPERATOR_LOG)
