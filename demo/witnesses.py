"""What happened as others than the operator report it.

They are ZooKeeper or the brokers themselves, the policy's status, Kubernetes Events and the
brokers' own counters.
"""

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

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
from lab.episodes import nic_counter
from lab.kafka import BrokerPlan, BrokersLab, KafkaLab
from lab.process import repeated
from lab.prometheus import PrometheusLab
from lab.quota_watch import FETCH_KEY, PRODUCE_KEY, QuotaWatch, QuotaWrite, watched_quotas
from lab.rates import ByteSeries, growth, steady_mean

_NIC = nic_counter(BROKER)
_JMX = f'kafka_broker_bytesout_total{{broker="{BROKER}",topic=""}}'
_START_TIMEOUT_SECONDS = 15
_TIMEOUT_SECONDS = 5
_EVENTS_POLL_SECONDS = 0.5
_LEADERS_POLL_SECONDS = 0.1
_COUNTER = "kafka_broker_bytesin_total"


def quota_of_user(kafka: BrokersLab, board: Board, user: str) -> QuotaWatch:
    """A watch of one user's produce quota that shows each change on the board."""

    def show(write: QuotaWrite) -> None:
        text = "no quota" if write.after is None else f"quota {write.after / 1e6:g} MB/s"
        board.mark(write.at_seconds, MarkKind.QUOTA, text)

    return watched_quotas(kafka, [user], PRODUCE_KEY, on_write=show)


def quotas_of_levels(kafka: BrokersLab, board: Board) -> QuotaWatch:
    """A watch of the four businesses' fetch quotas that shows each change on the board."""
    level_of = {business.user: business.level for business in BUSINESSES}

    def show(write: QuotaWrite) -> None:
        level = level_of[write.user]
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


class LeaderWatch:
    """While open, writes the leaders' moves to the board and keeps their history."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._changed = threading.Condition()
        self._leaders: list[LeaderStep] = []

    def leaders(self) -> dict[int, int]:
        """Partition -> broker that leads it now; leaderless partitions are left out."""
        with self._changed:
            newest = {step.partition: step.broker for step in self._leaders}
        return {partition: broker for partition, broker in sorted(newest.items()) if broker >= 0}

    def wait_for_leader(self, partition: int, broker: int, *, timeout_seconds: float) -> bool:
        """Return True as soon as `broker` leads `partition`, False after `timeout_seconds`."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self.leaders().get(partition) == broker, timeout_seconds
            )

    def leader_elected_at(
        self, partition: int, *, other_than: int, after_seconds: float
    ) -> float | None:
        """When the partition first had another leader after that time; None = never."""
        with self._changed:
            times = [
                step.at_seconds
                for step in self._leaders
                if step.partition == partition
                and step.broker not in (-1, other_than)
                and step.at_seconds >= after_seconds
            ]
        return times[0] if times else None

    def take(self, step: LeaderStep) -> None:
        """Keep what the cluster said, from any thread."""
        before = self.leaders().get(step.partition)
        with self._changed:
            self._leaders.append(step)
            self._changed.notify_all()
        if before is not None and before != step.broker:
            to = f"broker {step.broker}" if step.broker >= 0 else "no broker"
            self._board.mark(
                step.at_seconds,
                MarkKind.LEADER,
                f"partition {step.partition}: leader moves from broker {before} to {to}",
            )


def watched_leaders(
    kafka: BrokersLab, board: Board, *, topic: str, partitions: int
) -> AbstractContextManager[LeaderWatch]:
    """A watch of this cluster, wherever it keeps its leaders; what is there now is known at once.

    Without ZooKeeper the first broker must run while the watch is open.
    """
    watch, those = LeaderWatch(board), range(partitions)
    if isinstance(kafka, KafkaLab):
        return _leaders_of_zookeeper(kafka.zookeeper_connect, watch, topic, those)
    return _leaders_of_metadata(kafka.brokers[0].plan, watch, topic, those)


@contextmanager
def _leaders_of_zookeeper(
    connect: str, watch: LeaderWatch, topic: str, partitions: range
) -> Iterator[LeaderWatch]:
    """A session of its own reads ZooKeeper; times are ZooKeeper's modification times."""

    def on_leader(partition: int, data: bytes | None, stat: Any, _event: object) -> None:
        if data is not None:
            watch.take(LeaderStep(stat.last_modified, partition, int(json.loads(data)["leader"])))

    session = KazooClient(hosts=connect, read_only=True)
    with ExitStack() as stack:
        stack.callback(session.close)
        stack.callback(session.stop)
        session.start(timeout=_START_TIMEOUT_SECONDS)
        for partition in partitions:
            path = f"/brokers/topics/{topic}/partitions/{partition}/state"
            session.DataWatch(path, partial(on_leader, partition))
        yield watch


@contextmanager
def _leaders_of_metadata(
    broker: BrokerPlan, watch: LeaderWatch, topic: str, partitions: range
) -> Iterator[LeaderWatch]:
    """One broker is asked ten times a second.

    A leader is taken for elected when the last answer without it came: a tenth of a second early
    rather than late.
    """
    asked = _admin(f"{broker.host}:{broker.ports.plain}")
    asked_at_seconds = time.time()

    def ask(timeout_seconds: float = _TIMEOUT_SECONDS) -> None:
        nonlocal asked_at_seconds
        now, before = time.time(), watch.leaders()
        known = asked.list_topics(timeout=timeout_seconds).topics[topic].partitions
        for partition in partitions:
            if known[partition].leader != before.get(partition, -1):
                watch.take(LeaderStep(asked_at_seconds, partition, known[partition].leader))
        asked_at_seconds = now

    def ask_again() -> None:
        with contextlib.suppress(KafkaException):  # the next answer brings what this one lacks
            ask()

    ask(_START_TIMEOUT_SECONDS)
    with repeated(ask_again, seconds=_LEADERS_POLL_SECONDS):
        yield watch


def _admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient(
        {"bootstrap.servers": bootstrap_servers, "log_level": 0, "error_cb": _be_quiet}
    )


def _be_quiet(_error: object) -> None:
    """Ignore connection errors: killed brokers cause them."""


@contextmanager
def watched_tiers(kubeconfig: Path, board: Board) -> Iterator[Sequence[TierStep]]:
    """Every change of a level's state in the policy's status so far, in the order of time."""
    api = client.CustomObjectsApi(config.new_client_from_config(str(kubeconfig)))
    policies = ("tidegate.io", "v1alpha1", NAMESPACE, "brokerbandwidthpolicies")
    steps: list[TierStep] = []

    def look() -> None:
        try:
            policy: Any = api.get_namespaced_custom_object(
                *policies, POLICY, _request_timeout=_TIMEOUT_SECONDS
            )
        except (client.ApiException, urllib3.exceptions.HTTPError, OSError):
            return  # asked again in a second
        for tier in (policy.get("status") or {}).get("levels") or ():
            take(TierStep(time.time(), tier["level"], tier["state"], tier.get("because") or ""))

    def take(step: TierStep) -> None:
        before = next((one for one in reversed(steps) if one.level == step.level), None)
        if before is not None and before.state == step.state:
            return
        steps.append(step)
        if before is not None:
            because = f": {step.because}" if step.because else ""
            text = f"{step.level} is {step.state}{because}"
            board.mark(step.at_seconds, MarkKind.STATE, text)

    with repeated(look):
        yield steps


_LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_DYNAMIC = {
    ConfigSource.DYNAMIC_BROKER_CONFIG.value,
    ConfigSource.DYNAMIC_TOPIC_CONFIG.value,
}


@contextmanager
def watched_throttles(
    kafka: BrokersLab, board: Board, *, topics: Sequence[str]
) -> Iterator[Sequence[ThrottleStep]]:
    """What was set first, and every change of throttles in Kafka so far, in the order of time.

    Brokers and topics are asked once a second for what is set on them.
    """
    admin = _admin(kafka.bootstrap_servers)
    brokers = [ConfigResource(ResourceType.BROKER, str(broker)) for broker in BROKERS]
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]

    def throttles(timeout_seconds: float) -> Throttles:
        """Every rate and list that is set now; an error without an answer in that time."""
        found: dict[tuple[str, str], str] = {}
        asked = [*(admin.describe_configs([broker]) for broker in brokers)]
        asked.append(admin.describe_configs(resources))
        for answers in asked:
            for resource, answer in answers.items():
                name = f"{resource.restype.name.lower()} {resource.name}"
                found |= {(name, key): value for key, value in _set(answer.result(timeout_seconds))}
        return found

    steps = [ThrottleStep(time.time(), throttles(_START_TIMEOUT_SECONDS))]

    def look() -> None:
        with contextlib.suppress(KafkaException, TimeoutError):  # asked again in a second
            step, before = ThrottleStep(time.time(), throttles(_TIMEOUT_SECONDS)), steps[-1]
            if step.throttles != before.throttles:
                steps.append(step)
                _mark_throttles(board, step, before.throttles)

    with repeated(look):
        yield steps


def _mark_throttles(board: Board, step: ThrottleStep, before: Throttles) -> None:
    for where in sorted(before.keys() | step.throttles.keys()):
        resource, key = where
        if before.get(where) != step.throttles.get(where):
            text = f"{resource}: {key} {_throttle_text(key, step.throttles.get(where))}"
            board.mark(step.at_seconds, MarkKind.THROTTLE, text)


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


@contextmanager
def noted_events(kubeconfig: Path, board: Board) -> Iterator[None]:
    """While it is open, every new Event of the namespace is on the board."""
    api = client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))

    def listed() -> list[Any]:
        try:
            answer = api.list_namespaced_event(NAMESPACE, _request_timeout=_TIMEOUT_SECONDS)
        except (client.ApiException, urllib3.exceptions.HTTPError, OSError):
            return []  # the events are only shown; the next poll brings what this one missed
        return list(answer.items)

    seen = {event.metadata.uid for event in listed()}

    def look() -> None:
        for event in listed():
            if event.metadata.uid not in seen:
                seen.add(event.metadata.uid)
                about = f"{event.involved_object.kind}/{event.involved_object.name}"
                at = event.metadata.creation_timestamp.timestamp()
                board.mark(at, MarkKind.EVENT, f"{event.reason} ({about}): {event.message}")

    with repeated(look, seconds=_EVENTS_POLL_SECONDS):
        yield


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
