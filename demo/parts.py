"""The parts that the experiments run on, started one by one and taken away at any end.

Three brokers, with a ZooKeeper or without, Prometheus and the Kubernetes API come from the lab; the
operator is a process of its own, started as a user would start it. Kubernetes and the operator
start beside Kafka. As root, every broker gets a network namespace; without root all are on
loopback.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import yaml

from demo.script import REPLICAS, TOPIC, USER, USERS
from demo.words import Interruption
from lab import process
from lab.doctor import refuse_missing
from lab.kafka import BrokersLab, KafkaLab
from lab.kraft import KraftLab
from lab.kubernetes.api import KubeApi
from lab.kubernetes.tools import kube_binary
from lab.network import free_port
from lab.operator import LISTENS_ON, console_command, operator_command
from lab.packages import KAFKAS as VERSIONS
from lab.packages import kafka_jars
from lab.process import Process
from lab.prometheus import PrometheusLab, ScrapeTarget, monitoring

T = TypeVar("T")


class Beside(Generic[T]):
    """A context manager around another: entering returns at once, `ready` waits for the other.

    Leaving it first waits until the other is open or has failed, because something half open cannot
    be closed.
    """

    def __init__(self, part: AbstractContextManager[T]) -> None:
        self._part = part
        self._stack = ExitStack()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="beside")
        self._opened: Future[T] = Future()

    def __enter__(self) -> Self:
        self._opened = self._thread.submit(self._stack.enter_context, self._part)
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(wait=True)
        self._stack.close()

    def ready(self) -> T:
        """What the part gave when it was open; raises what its opening raised."""
        return self._opened.result()


EXAMPLES = Path(__file__).parent.parent / "examples"
# What experiment 1 needs of them; the others show what else can be declared.
_FILES = ("00-namespace.yaml", "00-policy.yaml", "10-tiers.yaml")
POLICY = "demo"
NAMESPACE = "streaming"


def declared_resources(kafka: BrokersLab, contract_bytes_per_second: int) -> str:
    """The examples as YAML documents for `kubectl apply -f -`.

    The example only observes, and throttles by load. Here it enforces, and has no limit: the
    experiment is about leaders, and a limit would lower quotas as well.
    """
    documents = [document for name in _FILES for document in _documents(EXAMPLES / name)]
    for document in documents:
        if document["kind"] == "BrokerBandwidthPolicy":
            _fill_in_kafka(document["spec"]["kafka"], kafka)
            document["spec"]["mode"] = "Enforce"
            del document["spec"]["metrics"], document["spec"]["brokers"]
        if document["kind"] == "BusinessTier":
            _fill_in_contract(document, contract_bytes_per_second)
    return yaml.safe_dump_all(documents, sort_keys=False)


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    return (
        document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document
    )


def _fill_in_kafka(spec: dict[str, Any], kafka: BrokersLab) -> None:
    spec["bootstrapServers"] = kafka.bootstrap_servers
    for key in ("quotaStore", "zookeeper"):
        spec.pop(key, None)
    if isinstance(kafka, KafkaLab):
        spec["zookeeper"] = {"connect": kafka.zookeeper_connect}


def _fill_in_contract(tier: dict[str, Any], contract_bytes_per_second: int) -> None:
    for member in tier["spec"]["members"]:
        if member.get("user") == USER:
            member["contract"]["perPartition"]["produce"] = str(contract_bytes_per_second)


# Little is kept, so that a broker that comes back has little to catch up with.
_TOPIC_CONFIG = {"retention.bytes": str(64 << 20), "segment.bytes": str(16 << 20)}


def create_topic(kafka: BrokersLab, assignment: tuple[tuple[int, ...], ...]) -> None:
    """The experiment's topic with these replicas per partition, the preferred leader first."""
    kafka.create_topic(TOPIC, assignment, config=_TOPIC_CONFIG)


def set_fixed_quota(kafka: BrokersLab, user: str, *, key: str, bytes_per_second: int) -> None:
    """Set Kafka's own quota for the user with kafka-configs; `key` is Kafka's name of it."""
    kafka.run_tool(
        "kafka-configs",
        "kafka.admin.ConfigCommand",
        *("--alter", "--entity-type", "users", "--entity-name", user),
        *("--add-config", f"{key}={bytes_per_second}"),
    )


def revive(kafka: BrokersLab, broker: int) -> None:
    """Start a killed broker and give every partition back to its preferred leader.

    That happens as soon as the broker has caught up.
    """
    kafka.broker(broker).start()
    kafka.restore_preferred_leaders(TOPIC)


RESOURCES = Path(__file__).parent / "throttling.yaml"
REPLICATION_RESOURCES = Path(__file__).parent / "replication.yaml"


def filled_in(file: Path, kafka: BrokersLab, prometheus: PrometheusLab) -> str:
    """One of the two files as YAML documents for `kubectl apply -f -`."""
    documents = list(_documents(file))
    for document in documents:
        if document["kind"] == "BrokerBandwidthPolicy":
            _fill_in(document["spec"], kafka, prometheus)
    return yaml.safe_dump_all(documents, sort_keys=False)


def limit_patch(egress_limit: int) -> str:
    """The merge patch that sets the limit of every broker, in bytes per second."""
    return json.dumps({"spec": {"brokers": {"egress": {"limit": f"{egress_limit // 1_000_000}M"}}}})


def _fill_in(spec: dict[str, Any], kafka: BrokersLab, prometheus: PrometheusLab) -> None:
    _fill_in_kafka(spec["kafka"], kafka)
    spec["metrics"]["prometheus"]["url"] = prometheus.url
    if kafka.network is None:
        spec["metrics"]["preset"] = "JmxExporter"


CRDS = Path(__file__).parent.parent / "crds"
OPERATOR_LOG = "operator.log"
CONSOLE_LOG = "console.log"
AUDIT_TRAIL = "audit.jsonl"
_BROKERS = 3
_READY_SECONDS = 60
# No node pulls it: experiment 6 runs what the Deployment asks for as a process.
_FORWARDER_IMAGE = "tidegate-forwarder"


@dataclass(frozen=True, slots=True)
class KafkaKind:
    """A Kafka that the demo can play on."""

    version: str
    has_zookeeper: bool

    @property
    def parts(self) -> str:
        """What has to be started."""
        if self.has_zookeeper:
            return "ZooKeeper and three brokers"
        return f"three brokers of Kafka {self.version}"

    @property
    def description(self) -> str:
        """What it is, for the report."""
        metadata = "with ZooKeeper" if self.has_zookeeper else "without ZooKeeper (KRaft)"
        return f"{self.version} {metadata}, quota window 11 x 1 s (Kafka's default)"

    @property
    def witness(self) -> str:
        """Who says when a quota was written and a leader elected."""
        if self.has_zookeeper:
            return "ZooKeeper's own modification times"
        return (
            "a quota when broker 1 logs that it took it over; a leader when broker 1, asked ten "
            "times a second, last gave another answer"
        )

    def cluster(self) -> BrokersLab:
        """The cluster, not started yet."""
        users = (USER, *USERS)
        namespaces = os.geteuid() == 0
        if self.has_zookeeper:
            return KafkaLab(brokers=_BROKERS, namespaces=namespaces, users=users)
        return KraftLab(version=self.version, brokers=_BROKERS, namespaces=namespaces, users=users)


# What the environment variable KAFKA may say.
KAFKAS = {
    name: KafkaKind(version, has_zookeeper=name.endswith("-zookeeper"))
    for name, version in VERSIONS.items()
}
DEFAULT_KAFKA = "3.9-zookeeper"
_NEEDED = ("linux", "util-linux", "java", "maven", "go", "apt", "disk")


@dataclass(frozen=True, slots=True)
class Parts:
    """The running parts; Prometheus may still be starting.

    It is not needed before the first measurement.
    """

    kind: KafkaKind
    kafka: BrokersLab
    prometheus: Beside[PrometheusLab]
    kube: KubeApi
    operator: Process

    def kubectl(self, *arguments: str, document: str = "") -> str:
        """What kubectl says to this in the experiments' namespace; `document` is its input."""
        return self.kube.kubectl(
            *("-n", NAMESPACE, *arguments), input=document, timeout_seconds=_READY_SECONDS + 10
        )

    def wait_for_ready(self) -> None:
        """Return once the policy and every tier are Ready."""
        for what in (("bbp", POLICY), ("bt", "--all")):
            self.kubectl("wait", "--for=condition=Ready", f"--timeout={_READY_SECONDS}s", *what)


@dataclass(slots=True)
class SetupLog:
    """How long each part took to set up, reported line by line as it happens."""

    report: Callable[[str], None]
    seconds: dict[str, float] = field(default_factory=dict)

    def timed(self, part: str, work: Callable[[], T]) -> T:
        """Do `work`, and report how long it took."""
        started = time.monotonic()
        answer = work()
        self.seconds[part] = time.monotonic() - started
        self.report(f"  {part:<40} {self.seconds[part]:6.1f} s")
        return answer


@contextmanager
def running_parts(
    log: SetupLog, output: Path, *, kind: KafkaKind, interruption: Interruption
) -> Iterator[Parts]:
    """All parts, running; the operator's log and audit trail go to `output`.

    Raises LabError when the machine lacks something or a part does not start; what was started is
    stopped then.
    """
    refuse_missing(*_NEEDED)
    # What is not in the cache yet is fetched and built here, one after the other: both want the
    # whole machine.
    with interruption.reported():
        log.timed("Kafka's jars (downloaded once)", lambda: kafka_jars(kind.version))
        log.timed("Kubernetes' binary (built once)", kube_binary)
        log.report("  starting Kafka, Prometheus, the Kubernetes API and the operator ...")
    with ExitStack() as stack, interruption.reported():
        metrics_port = free_port()
        kubernetes = stack.enter_context(Beside(_kubernetes(log, output, metrics_port)))
        kafka = _open(stack, log, kind.parts, kind.cluster())
        create_topic(kafka, REPLICAS)
        kube, operator = kubernetes.ready()
        # It waits for a first scrape of the operator, too, which has been started by now.
        operators_metrics = ScrapeTarget("operator", f"{LISTENS_ON}:{metrics_port}")
        prometheus = stack.enter_context(Beside(monitoring(kafka, further=[operators_metrics])))
        yield Parts(kind, kafka, prometheus, kube, operator)


@contextmanager
def _kubernetes(
    log: SetupLog, output: Path, metrics_port: int
) -> Iterator[tuple[KubeApi, Process]]:
    with ExitStack() as stack:
        kube = _open(stack, log, "Kubernetes API", KubeApi())
        log.timed("custom resource definitions", lambda: _install(kube))
        operator = stack.enter_context(_start_operator(kube, output, metrics_port))
        port = free_port()
        stack.enter_context(_start_console(kube, output, port))
        log.report(f"  watch it in a browser: http://{LISTENS_ON}:{port}/")
        yield kube, operator


def describe(parts: Parts) -> dict[str, str]:
    """What runs where, as label and text."""
    if parts.kafka.network is None:
        where = "three brokers and the clients on loopback (network namespaces need root)"
    else:
        where = "a network namespace for each broker and one for the clients, joined by a bridge"
    return {
        "Kafka": parts.kind.description,
        "Times of quotas and leaders": parts.kind.witness,
        "Network": where,
    }


def _open(stack: ExitStack, log: SetupLog, part: str, context: AbstractContextManager[T]) -> T:
    return log.timed(part, lambda: stack.enter_context(context))


def _install(kube: KubeApi) -> None:
    kube.install_crds(CRDS)
    kube.kubectl("create", "namespace", NAMESPACE)


def _start_operator(kube: KubeApi, output: Path, metrics_port: int) -> Process:
    argv = operator_command(kube.kubeconfig, NAMESPACE, metrics_port=metrics_port)
    argv += ["--audit-file", str(output / AUDIT_TRAIL), "--forwarder-image", _FORWARDER_IMAGE]
    return process.start("operator", argv, log_path=output / OPERATOR_LOG)


def _start_console(kube: KubeApi, output: Path, port: int) -> Process:
    argv = console_command(kube.kubeconfig, NAMESPACE, port=port, audit_file=output / AUDIT_TRAIL)
    return process.start("console", argv, log_path=output / CONSOLE_LOG)
