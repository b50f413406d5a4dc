"""What really happened, as ZooKeeper tells it: which quota was committed when, who led which partition since when, which brokers live.

It only reads, with a session of its own; the operator knows nothing of it. Times are ZooKeeper's own modification times, so they do not
depend on when this process came to look.
"""

import json
import threading
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import urllib3
from kazoo.client import KazooClient
from kubernetes import client, config

from demo.board import Board, ThrottlingBoard
from demo.episode import QuotaStep, TierStep
from demo.estate import NAMESPACE, POLICY
from demo.script import BROKER, BUSINESSES, Business
from demo.words import MarkKind
from lab.kafka import KafkaLab
from lab.prometheus import PrometheusLab
from lab.rates import ByteSeries, growth, steady_mean

# What the broker's network card sent, second by second, as Prometheus scraped it.
#
# Without root no broker has a card of its own. The operator then reads what the broker says it
# sent (JMX); the experiment is judged by what
# its readers got: there are no others.


_CARD = f'node_network_transmit_bytes_total{{broker="{BROKER}",device="eth0"}}'
_JMX = f'kafka_broker_bytesout_total{{broker="{BROKER}",topic=""}}'


def card_source(kafka: KafkaLab) -> str:
    """Where the bytes of the card come from, in words."""
    if kafka.network is None:
        return "what all four clients got together (only in a network namespace has a broker its own card, and that needs root)"
    return "the network card of the broker's own namespace (node_exporter), scraped once a second by Prometheus"


def sent_by_card(prometheus: PrometheusLab, *, start_seconds: float, end_seconds: float) -> ByteSeries:
    """Bytes per second over the span; empty where nothing was scraped."""
    answer = prometheus.query_range(_CARD, start_seconds, end_unix_seconds=end_seconds, step_seconds=1)
    return ByteSeries(growth(answer[0]["values"]) if answer else ())


def recent_card_rate(kafka: KafkaLab, prometheus: PrometheusLab, *, seconds: int) -> float | None:
    """The mean of the last seconds in bytes per second; None before enough was scraped."""
    counter = _JMX if kafka.network is None else _CARD
    answer = prometheus.query(f"rate({counter}[{seconds + 1}s])")
    return float(answer[0]["value"][1]) if answer else None


# What the policy's status says of each level over time, as a user would see it with `kubectl get
# bbp -o yaml`. It polls, once a second.


_POLL_SECONDS = 1.0
_TIMEOUT_SECONDS = 5


class TierWatch:
    """A context manager; while it is open, every change of a level's state is kept and shown."""

    def __init__(self, kubeconfig: Path, board: ThrottlingBoard) -> None:
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
            for tier in self._told():
                self._take(TierStep(time.time(), str(tier["level"]), str(tier["state"]), str(tier.get("because") or "")))

    def _told(self) -> list[dict[str, Any]]:
        try:
            policy: Any = self._api.get_namespaced_custom_object(
                "tidegate.io", "v1alpha1", NAMESPACE, "brokerbandwidthpolicies", POLICY, _request_timeout=_TIMEOUT_SECONDS
            )
        except (client.ApiException, urllib3.exceptions.HTTPError, OSError):
            return []  # asked again in a second
        return list((policy.get("status") or {}).get("tiers") or ())

    def _take(self, told: TierStep) -> None:
        before = next((step for step in reversed(self._steps) if step.level == told.level), None)
        if before is not None and before.state == told.state:
            return
        self._steps.append(told)
        self._board.show_state(told.level, told.state)
        if before is not None:
            because = f": {told.because}" if told.because else ""
            self._board.note(told.at_seconds, MarkKind.STATE, f"{told.level} is {told.state}{because}")


# The second witness: the bytes that the brokers themselves say they took from clients, read
# through Prometheus.


_COUNTER = "kafka_broker_bytesin_total"


def counted_by_brokers(prometheus: PrometheusLab, start_seconds: float, *, length_seconds: int) -> float | None:
    """Steady mean of all brokers' intake in bytes per second over the window; None when no broker was scraped in it.

    The counter holds every topic and what a record batch adds to the payload (well below 1 % here); replication is not in it.
    """
    answer = prometheus.query_range(_COUNTER, start_seconds - 1, end_unix_seconds=start_seconds + length_seconds + 1, step_seconds=1)
    series = [ByteSeries(growth(result["values"])) for result in answer]
    return sum(steady_mean(one, start_seconds, length_seconds) for one in series) if series else None


# Carries the Kubernetes Events about our resources to a board, as a user would see them with
# `kubectl get events`.
#
# It polls, because a demo can afford it and a watch would need its own reconnecting.


_EVENTS_POLL_SECONDS = 0.5


class KubernetesEvents:
    """A context manager; while it is open, every new Event of the namespace goes to `note`, those that were there before do not."""

    def __init__(self, kubeconfig: Path, note: Callable[[float, MarkKind, str], None], *, namespace: str) -> None:
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
            return list(self._api.list_namespaced_event(self._namespace, _request_timeout=_TIMEOUT_SECONDS).items)
        except (client.ApiException, urllib3.exceptions.HTTPError, OSError):
            return []  # the events are only shown; the next poll brings what this one missed

    def _show(self, event: Any) -> None:
        if event.metadata.uid in self._seen:
            return
        self._seen.add(event.metadata.uid)
        about = f"{event.involved_object.kind}/{event.involved_object.name}"
        at = event.metadata.creation_timestamp.timestamp()
        self._note(at, MarkKind.EVENT, f"{event.reason} ({about}): {event.message}")


QUOTA_KEY = "producer_byte_rate"
_START_TIMEOUT_SECONDS = 15


@dataclass(frozen=True, slots=True)
class QuotaSeen:
    """From `at_seconds` on this quota stood in ZooKeeper, in bytes per second; None = no quota."""

    at_seconds: float
    quota: int | None


@dataclass(frozen=True, slots=True)
class LeaderSeen:
    """From `at_seconds` on this broker led the partition; -1 = nobody did."""

    at_seconds: float
    partition: int
    broker: int


class ZooKeeperWitness:
    """A context manager; while it is open it writes quota, leaders and brokers to the board and keeps the history of them."""

    def __init__(self, connect: str, board: Board, *, user: str, topic: str, partitions: int) -> None:
        self._client = KazooClient(hosts=connect, read_only=True)
        self._board = board
        self._quota_path = f"/config/users/{urllib.parse.quote(user, safe='')}"
        self._topic = topic
        self._partitions = partitions
        self._changed = threading.Condition()
        self._quotas: list[QuotaSeen] = []
        self._leaders: list[LeaderSeen] = []

    def __enter__(self) -> Self:
        self._client.start(timeout=_START_TIMEOUT_SECONDS)
        self._client.DataWatch(self._quota_path, self._on_quota)
        for partition in range(self._partitions):
            path = f"/brokers/topics/{self._topic}/partitions/{partition}/state"
            self._client.DataWatch(path, partial(self._on_leader, partition))
        self._client.ChildrenWatch("/brokers/ids", self._on_brokers)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()

    def quota(self) -> int | None:
        """The quota that stands now, in bytes per second."""
        with self._changed:
            return self._quotas[-1].quota if self._quotas else None

    def leaders(self) -> dict[int, int]:
        """Partition -> broker that leads it now; leaderless partitions are left out."""
        with self._changed:
            newest = {seen.partition: seen.broker for seen in self._leaders}
        return {partition: broker for partition, broker in sorted(newest.items()) if broker >= 0}

    def wait_for_quota(self, quota: int, *, timeout_seconds: float) -> bool:
        """Return True as soon as this quota stands, False after `timeout_seconds`."""
        return self._wait(lambda: bool(self._quotas) and self._quotas[-1].quota == quota, timeout_seconds)

    def wait_for_leader(self, partition: int, broker: int, *, timeout_seconds: float) -> bool:
        """Return True as soon as `broker` leads `partition`, False after `timeout_seconds`."""
        return self._wait(lambda: self._leader_now(partition) == broker, timeout_seconds)

    def quota_committed_at(self, quota: int, *, after_seconds: float) -> float | None:
        """When this quota was first committed after that time; None if it was not."""
        with self._changed:
            return next((seen.at_seconds for seen in self._quotas if seen.quota == quota and seen.at_seconds >= after_seconds), None)

    def leader_elected_at(self, partition: int, *, other_than: int, after_seconds: float) -> float | None:
        """When the partition first had another leader than this one after that time; None if it had not."""
        with self._changed:
            fitting = (seen for seen in self._leaders if seen.partition == partition and seen.broker not in (-1, other_than))
            return next((seen.at_seconds for seen in fitting if seen.at_seconds >= after_seconds), None)

    def _leader_now(self, partition: int) -> int | None:
        return next((seen.broker for seen in reversed(self._leaders) if seen.partition == partition), None)

    def _wait(self, condition: Callable[[], bool], timeout_seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, timeout_seconds)

    def _on_quota(self, data: bytes | None, stat: Any, _event: object) -> None:
        quota = quota_of_znode(data, QUOTA_KEY)
        if stat is None or self.quota() == quota:
            return
        with self._changed:
            self._quotas.append(QuotaSeen(stat.last_modified, quota))
            self._changed.notify_all()
        self._board.show_quota(quota)
        said = "no quota" if quota is None else f"quota {quota / 1e6:g} MB/s"
        self._board.mark(stat.last_modified, MarkKind.QUOTA, said)

    def _on_leader(self, partition: int, data: bytes | None, stat: Any, _event: object) -> None:
        if data is None:
            return
        broker = int(json.loads(data)["leader"])
        before = self.leaders().get(partition)
        with self._changed:
            self._leaders.append(LeaderSeen(stat.last_modified, partition, broker))
            self._changed.notify_all()
        self._board.show_leaders(self.leaders())
        if before is not None and before != broker:
            to = f"broker {broker}" if broker >= 0 else "nobody"
            self._board.mark(stat.last_modified, MarkKind.LEADER, f"partition {partition}: leader moves from broker {before} to {to}")

    def _on_brokers(self, ids: list[str]) -> None:
        self._board.show_brokers(frozenset(map(int, ids)))


def quota_of_znode(data: bytes | None, key: str) -> int | None:
    """The quota of that name in a user's config znode; None without one."""
    text = json.loads(data or b"{}").get("config", {}).get(key)
    return None if text is None else int(float(text))


# Which quota of each business stood in ZooKeeper since when, as ZooKeeper tells it, with its own
# times. It only reads.


FETCH_KEY = "consumer_byte_rate"


class QuotaWitness:
    """A context manager with a session of its own; while it is open, every write of a business's quota is kept and shown."""

    def __init__(self, connect: str, board: ThrottlingBoard) -> None:
        self._client = KazooClient(hosts=connect, read_only=True)
        self._board = board
        self._lock = threading.Lock()
        self._steps: list[QuotaStep] = []
        self._now: dict[str, int | None] = {}

    def __enter__(self) -> Self:
        self._client.start(timeout=_START_TIMEOUT_SECONDS)
        for business in BUSINESSES:
            path = f"/config/users/{urllib.parse.quote(business.user, safe='')}"
            self._client.DataWatch(path, partial(self._on_quota, business))
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()

    def steps(self) -> tuple[QuotaStep, ...]:
        """Every write so far, in the order of time."""
        with self._lock:
            return tuple(sorted(self._steps, key=lambda step: step.at_seconds))

    def quotas(self) -> dict[str, int | None]:
        """Level -> the quota that stands now, in bytes per second; None = no quota."""
        with self._lock:
            return dict(self._now)

    def _on_quota(self, business: Business, data: bytes | None, stat: Any, _event: object) -> None:
        quota = quota_of_znode(data, FETCH_KEY)
        with self._lock:
            before = self._now.get(business.level)
            self._now[business.level] = quota
            if stat is None or before == quota:
                return
            self._steps.append(QuotaStep(stat.last_modified, business.level, before, quota))
        self._board.show_quota(business.level, quota)
        self._board.note(stat.last_modified, MarkKind.QUOTA, f"{business.level} {_words(before)} -> {_words(quota)}")


def _words(quota: int | None) -> str:
    return "no quota" if quota is None else f"{quota / 1e6:.2f} MB/s"
