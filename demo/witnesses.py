"""What happened as others than the operator report it.

They are ZooKeeper or the brokers themselves, the policy's status, Kubernetes Events and the
brokers' own counters.
"""

import contextlib
import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import urllib3
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType
from kazoo.client import KazooClient
from kubernetes import client, config

from demo.board import Board
from demo.episode import TierStep
from demo.move_outcome import FOLLOWER_RATE, LEADER_RATE, Foretold, Throttles, ThrottleStep
from demo.parts import NAMESPACE, POLICY
from demo.script import BROKER, BROKERS, BUSINESSES
from demo.words import MarkKind
from lab.episodes import Operation
from lab.kafka import BrokersLab, KafkaLab
from lab.prometheus import PrometheusLab
from lab.quota_watch import FETCH_KEY, PRODUCE_KEY, QuotaWatch, QuotaWrite, watched_quotas
from lab.rates import ByteSeries, growth, steady_mean

_NIC = Operation.CONSUME.nic_counter(BROKER)
_JMX = f'kafka_broker_bytesout_total{{broker="{BROKER}",topic=""}}'
_START_TIMEOUT_SECONDS = 15
_TIMEOUT_SECONDS = 5
_POLL_SECONDS = 1.0
_EVENTS_POLL_SECONDS = 0.5
_LEADERS_POLL_SECONDS = 0.1
_COUNTER = "kafka_broker_bytesin_total"


def quota_of_user(kafka: BrokersLab, board: Board, user: str) -> QuotaWatch:
    """A watch of one user's produce quota that shows each change on the board."""

    def show(write: QuotaWrite) -> None:
        board.show_quota(user, write.after)
        text = "no quota" if write.after is None else f"quota {write.after / 1e6:g} MB/s"
        board.mark(write.at_seconds, MarkKind.QUOTA, text)

    return watched_quotas(kafka, [user], PRODUCE_KEY, on_write=show)


def quotas_of_levels(kafka: BrokersLab, board: Board) -> QuotaWatch:
    """A watch of the four businesses' fetch quotas that shows each change on the board."""
    level_of = {business.user: business.level for business in BUSINESSES}

    def show(write: QuotaWrite) -> None:
        level = level_of[write.user]
        board.show_quota(level, write.after)
        board.mark(
            write.at_seconds,
            MarkKind.QUOTA,
            f"{level} {_quota_text(write.before)} -> {_quota_text(write.after)}",
        )

    return watched_quotas(kafka, level_of, FETCH_KEY, on_write=show)


def _quota_text(quota: int | None) -> str:
    return "no quota" if quota is None else f"{quota / 1e6:.2f} MB/s"


def nic_source(kafka: BrokersLab) -> str:
    """Where the bytes of the NIC come from, in words."""
    if kafka.network is None:
        return (
            "what all four clients got together (only in a network namespace has a broker its "
            "own NIC, and that needs root)"
        )
    return (
        "the NIC of the broker's own network namespace (node_exporter), scraped once a second "
        "by Prometheus"
    )


def recent_nic_rate(kafka: BrokersLab, prometheus: PrometheusLab, *, seconds: int) -> float | None:
    """The mean of the last seconds in bytes per second; None before enough was scraped.

    Without root no broker has a NIC of its own; then it is what the broker says it sent (JMX),
    which is what the operator reads.
    """
    counter = _JMX if kafka.network is None else _NIC
    answer = prometheus.query(f"rate({counter}[{seconds + 1}s])")
    return float(answer[0]["value"][1]) if answer else None


@dataclass(frozen=True, slots=True)
class LeaderStep:
    """From `at_seconds` on this broker led the partition; -1 = none did."""

    at_seconds: float
    partition: int
    broker: int


class LeaderWatch(ABC):
    """While open, writes leaders and live brokers to the board and keeps the leaders' history."""

    def __init__(self, board: Board, *, topic: str, partitions: int) -> None:
        self._board = board
        self._topic = topic
        self._partitions = partitions
        self._changed = threading.Condition()
        self._leaders: list[LeaderStep] = []

    @abstractmethod
    def __enter__(self) -> Self:
        """Begin to watch; what is there now is known when this returns."""

    @abstractmethod
    def __exit__(self, *_: object) -> None:
        """End the watch; what it recorded stays."""

    def leaders(self) -> dict[int, int]:
        """Partition -> broker that leads it now; leaderless partitions are left out."""
        with self._changed:
            newest = {step.partition: step.broker for step in self._leaders}
        return {partition: broker for partition, broker in sorted(newest.items()) if broker >= 0}

    def wait_for_leader(self, partition: int, broker: int, *, timeout_seconds: float) -> bool:
        """Return True as soon as `broker` leads `partition`, False after `timeout_seconds`."""
        return self._wait(lambda: self._leader_now(partition) == broker, timeout_seconds)

    def leader_elected_at(
        self, partition: int, *, other_than: int, after_seconds: float
    ) -> float | None:
        """When the partition first had another leader after that time; None = never."""
        with self._changed:
            fitting = (
                step
                for step in self._leaders
                if step.partition == partition and step.broker not in (-1, other_than)
            )
            return next(
                (step.at_seconds for step in fitting if step.at_seconds >= after_seconds), None
            )

    def _leader_now(self, partition: int) -> int | None:
        return next(
            (step.broker for step in reversed(self._leaders) if step.partition == partition), None
        )

    def _wait(self, condition: Callable[[], bool], timeout_seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, timeout_seconds)

    def _take(self, step: LeaderStep) -> None:
        before = self.leaders().get(step.partition)
        with self._changed:
            self._leaders.append(step)
            self._changed.notify_all()
        self._board.show_leaders(self.leaders())
        if before is not None and before != step.broker:
            to = f"broker {step.broker}" if step.broker >= 0 else "no broker"
            self._board.mark(
                step.at_seconds,
                MarkKind.LEADER,
                f"partition {step.partition}: leader moves from broker {before} to {to}",
            )


def watched_leaders(kafka: BrokersLab, board: Board, *, topic: str, partitions: int) -> LeaderWatch:
    """A watch of this cluster, wherever it keeps its leaders.

    Without ZooKeeper the first broker must run while the watch is open.
    """
    if isinstance(kafka, KafkaLab):
        connect = kafka.zookeeper_connect
        return ZooKeeperLeaderWatch(connect, board, topic=topic, partitions=partitions)
    first = kafka.brokers[0].plan
    address = f"{first.host}:{first.ports.plain}"
    return MetadataLeaderWatch(address, board, topic=topic, partitions=partitions)


class ZooKeeperLeaderWatch(LeaderWatch):
    """It reads ZooKeeper with a session of its own; times are ZooKeeper's modification times."""

    def __init__(self, connect: str, board: Board, *, topic: str, partitions: int) -> None:
        super().__init__(board, topic=topic, partitions=partitions)
        self._client = KazooClient(hosts=connect, read_only=True)

    def __enter__(self) -> Self:
        self._client.start(timeout=_START_TIMEOUT_SECONDS)
        for partition in range(self._partitions):
            path = f"/brokers/topics/{self._topic}/partitions/{partition}/state"
            self._client.DataWatch(path, partial(self._on_leader, partition))
        self._client.ChildrenWatch("/brokers/ids", self._on_brokers)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()

    def _on_leader(self, partition: int, data: bytes | None, stat: Any, _event: object) -> None:
        if data is not None:
            self._take(LeaderStep(stat.last_modified, partition, int(json.loads(data)["leader"])))

    def _on_brokers(self, ids: list[str]) -> None:
        self._board.show_brokers(frozenset(map(int, ids)))


class MetadataLeaderWatch(LeaderWatch):
    """It asks one broker ten times a second.

    A leader is taken for elected when the last answer without it came: a tenth of a second early
    rather than late.
    """

    def __init__(self, address: str, board: Board, *, topic: str, partitions: int) -> None:
        super().__init__(board, topic=topic, partitions=partitions)
        self._client = AdminClient(
            {"bootstrap.servers": address, "log_level": 0, "error_cb": _be_quiet}
        )
        self._asked_at_seconds = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leader-watch", daemon=True)

    def __enter__(self) -> Self:
        self._asked_at_seconds = time.time()
        self._ask(_START_TIMEOUT_SECONDS)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_LEADERS_POLL_SECONDS):
            with contextlib.suppress(KafkaException):  # the next answer brings what this one lacks
                self._ask(_TIMEOUT_SECONDS)

    def _ask(self, timeout_seconds: float) -> None:
        asked_at = time.time()
        answer = self._client.list_topics(timeout=timeout_seconds)
        self._board.show_brokers(frozenset(answer.brokers))
        known = answer.topics[self._topic].partitions
        before = self.leaders()
        for partition in range(self._partitions):
            leader = known[partition].leader
            if leader != before.get(partition, -1):
                self._take(LeaderStep(self._asked_at_seconds, partition, leader))
        self._asked_at_seconds = asked_at


def _be_quiet(_error: object) -> None:
    """Ignore connection errors: killed brokers cause them."""


class TierWatch:
    """A context manager; while it is open, every change of a level's state is kept and shown."""

    def __init__(self, kubeconfig: Path, board: Board) -> None:
        self._api = client.CustomObjectsApi(config.new_client_from_config(str(kubeconfig)))
        self._board = board
        self._steps: list[TierStep] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tier-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_TIMEOUT_SECONDS)

    def steps(self) -> tuple[TierStep, ...]:
        """Every change so far, in the order of time."""
        return tuple(self._steps)

    def _run(self) -> None:
        while not self._ended.wait(_POLL_SECONDS):
            for tier in self._read():
                self._take(
                    TierStep(
                        time.time(),
                        str(tier["level"]),
                        str(tier["state"]),
                        str(tier.get("because") or ""),
                    )
                )

    def _read(self) -> list[dict[str, Any]]:
        try:
            policy: Any = self._api.get_namespaced_custom_object(
                "tidegate.io",
                "v1alpha1",
                NAMESPACE,
                "brokerbandwidthpolicies",
                POLICY,
                _request_timeout=_TIMEOUT_SECONDS,
            )
        except (client.ApiException, urllib3.exceptions.HTTPError, OSError):
            return []  # asked again in a second
        return list((policy.get("status") or {}).get("levels") or ())

    def _take(self, step: TierStep) -> None:
        before = next((one for one in reversed(self._steps) if one.level == step.level), None)
        if before is not None and before.state == step.state:
            return
        self._steps.append(step)
        self._board.show_state(step.level, step.state)
        if before is not None:
            because = f": {step.because}" if step.because else ""
            self._board.mark(
                step.at_seconds, MarkKind.STATE, f"{step.level} is {step.state}{because}"
            )


_LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_DYNAMIC = {
    ConfigSource.DYNAMIC_BROKER_CONFIG.value,
    ConfigSource.DYNAMIC_TOPIC_CONFIG.value,
}


class ThrottleWatch:
    """A context manager; while it is open, every change of throttles in Kafka is kept and shown.

    Brokers and topics are asked once a second for what is set on them.
    """

    def __init__(self, kafka: BrokersLab, board: Board, *, topics: Sequence[str]) -> None:
        self._kafka = AdminClient(
            {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0, "error_cb": _be_quiet}
        )
        self._board = board
        self._topics = topics
        self._steps: list[ThrottleStep] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="throttle-watch", daemon=True)

    def __enter__(self) -> Self:
        self._steps.append(ThrottleStep(time.time(), self._throttles(_START_TIMEOUT_SECONDS)))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def steps(self) -> tuple[ThrottleStep, ...]:
        """What was set first, and every change so far, in the order of time."""
        return tuple(self._steps)

    def _throttles(self, timeout_seconds: float) -> Throttles:
        """Every rate and list that is set now; an error without an answer in that time."""
        found: dict[tuple[str, str], str] = {}
        brokers = [ConfigResource(ResourceType.BROKER, str(broker)) for broker in BROKERS]
        topics = [ConfigResource(ResourceType.TOPIC, topic) for topic in self._topics]
        asked = [*(self._kafka.describe_configs([broker]) for broker in brokers)]
        asked.append(self._kafka.describe_configs(topics))
        for answers in asked:
            for resource, answer in answers.items():
                name = f"{resource.restype.name.lower()} {resource.name}"
                found |= {(name, key): value for key, value in _set(answer.result(timeout_seconds))}
        return found

    def _run(self) -> None:
        while not self._ended.wait(_POLL_SECONDS):
            with contextlib.suppress(KafkaException, TimeoutError):  # asked again in a second
                self._take(ThrottleStep(time.time(), self._throttles(_TIMEOUT_SECONDS)))

    def _take(self, step: ThrottleStep) -> None:
        before = self._steps[-1].throttles
        if step.throttles == before:
            return
        self._steps.append(step)
        rate = step.throttles.get((f"broker {BROKER}", LEADER_RATE))
        self._board.show_quota("move", None if rate is None else int(rate))
        for where in sorted(before.keys() | step.throttles.keys()):
            if before.get(where) != step.throttles.get(where):
                text = (
                    f"{where[0]}: {where[1]} {_throttle_text(where[1], step.throttles.get(where))}"
                )
                self._board.mark(step.at_seconds, MarkKind.THROTTLE, text)


_ESTIMATE = (
    'tidegate_replication_eta_seconds{kind="Reassignment"}',
    'tidegate_replication_bytes_left{kind="Reassignment"}',
)


def foretold_by_metrics(
    prometheus: PrometheusLab, start_seconds: float, end_seconds: float
) -> tuple[Foretold, ...]:
    """Every estimate of the end in the operator's metrics, with the time of its first scrape.

    The status has the same figures, but renews them once a minute only.
    """
    window = {"end_unix_seconds": end_seconds, "step_seconds": 1.0}
    seconds, left = (
        {
            float(at): float(value)
            for one in prometheus.query_range(metric, start_seconds, **window)
            for at, value in one["values"]
        }
        for metric in _ESTIMATE
    )
    found: list[Foretold] = []
    for at in sorted(seconds.keys() & left.keys()):
        one = Foretold(at, seconds[at], int(left[at]))
        newest = found[-1] if found else None
        if one.bytes_left and (
            newest is None or (newest.seconds, newest.bytes_left) != (one.seconds, one.bytes_left)
        ):
            found.append(one)
    return tuple(found)


def _set(entries: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The throttles among a resource's settings that somebody has set."""
    for key in (LEADER_RATE, FOLLOWER_RATE, *_LISTS):
        entry = entries.get(key)
        if entry is not None and entry.source in _DYNAMIC and entry.value:
            yield key, entry.value


def _throttle_text(key: str, value: str | None) -> str:
    if value is None:
        return "is taken away"
    return f"= {int(value) / 1e6:.2f} MB/s" if key in (LEADER_RATE, FOLLOWER_RATE) else f"= {value}"


class KubernetesEvents:
    """While it is open, every new Event of the namespace goes to `note`.

    A context manager. Events that were there before do not count.
    """

    def __init__(
        self, kubeconfig: Path, note: Callable[[float, MarkKind, str], None], *, namespace: str
    ) -> None:
        self._api = client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))
        self._note = note
        self._namespace = namespace
        self._seen: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubernetes-events", daemon=True)

    def __enter__(self) -> Self:
        self._seen.update(event.metadata.uid for event in self._listed())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_TIMEOUT_SECONDS)

    def _run(self) -> None:
        while not self._ended.wait(_EVENTS_POLL_SECONDS):
            for event in self._listed():
                self._show(event)

    def _listed(self) -> list[Any]:
        try:
            return list(
                self._api.list_namespaced_event(
                    self._namespace, _request_timeout=_TIMEOUT_SECONDS
                ).items
            )
        except (client.ApiException, urllib3.exceptions.HTTPError, OSError):
            return []  # the events are only shown; the next poll brings what this one missed

    def _show(self, event: Any) -> None:
        if event.metadata.uid in self._seen:
            return
        self._seen.add(event.metadata.uid)
        about = f"{event.involved_object.kind}/{event.involved_object.name}"
        at = event.metadata.creation_timestamp.timestamp()
        self._note(at, MarkKind.EVENT, f"{event.reason} ({about}): {event.message}")


def counted_by_brokers(
    prometheus: PrometheusLab, start_seconds: float, *, length_seconds: int
) -> float | None:
    """Steady mean of all brokers' intake in bytes per second; None when none was scraped.

    The counter holds every topic and what a record batch adds to the payload (well below 1 % here);
    replication is not in it.
    """
    answer = prometheus.query_range(
        _COUNTER,
        start_seconds - 1,
        end_unix_seconds=start_seconds + length_seconds + 1,
        step_seconds=1,
    )
    series = [ByteSeries(growth(result["values"])) for result in answer]
    return (
        sum(steady_mean(one, start_seconds, length_seconds) for one in series) if series else None
    )
