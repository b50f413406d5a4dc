"""What the benchmarks of replication stand on: brokers with slow NICs of their own, and one
operator for all of them.

A NIC is a network namespace whose sending side the kernel limits (`tc tbf`). Needs root.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from kubernetes.client import ApiException

from bench.control.world import OnKubernetes, is_true, policy
from lab.errors import LabError
from lab.kafka import BrokersLab, KafkaLab
from lab.process import wait_until
from lab.rates import ByteSeries, Sample
from tidegate.errors import TidegateError
from tidegate.kafka.replication import KafkaReplication
from tidegate.kafka.settings import KafkaConnection
from tidegate_logic.replication.moves import moves_of
from tidegate_logic.replication.throttles import LEADER_RATE, broker_resource

MB = 1_000_000
MIB = 1024 * 1024
POLICIES = "brokerbandwidthpolicies"
# the logs of moves are larger than those of tests, and none may be deleted meanwhile
SERVER = {"log.retention.bytes": "-1", "log.segment.bytes": str(256 * MIB)}


@contextmanager
def brokers_with_nics(nic_bytes_per_second: int, users: Sequence[str] = ()) -> Iterator[BrokersLab]:
    """Three brokers whose NICs send no faster than this."""
    with KafkaLab(brokers=3, namespaces=True, users=users, server_properties=SERVER) as kafka:
        for broker in kafka.brokers:
            if broker.plan.namespace is not None:
                kafka.bridge.limit_egress(broker.plan.namespace, nic_bytes_per_second)
        yield kafka


def replication_policy(
    kafka: BrokersLab, name: str, replication: Mapping[str, Any], **spec: Any
) -> dict[str, Any]:
    """A policy whose deletion gives everything back."""
    declared = policy(kafka, "Restore", name)
    declared["spec"] |= {"replication": dict(replication), **spec}
    return declared


@contextmanager
def declared(on: OnKubernetes, objects: Sequence[tuple[str, dict[str, Any]]]) -> Iterator[None]:
    """Create these (plural, object) and wait until all are Ready; delete them at the end."""
    for plural, one in objects:
        on.create(plural, one)
    try:
        on.wait(
            lambda: all(
                is_true(on.read(plural, one["metadata"]["name"]), "Ready")
                for plural, one in objects
            ),
            "the objects to be Ready",
            poll_seconds=1,
        )
        yield
    finally:
        for plural, one in objects:
            with suppress(ApiException):
                on.delete(plural, one["metadata"]["name"])
        wait_until(
            lambda: not on.listed(POLICIES),
            "the policies to go",
            timeout_seconds=90,
            poll_seconds=1,
        )


@dataclass(frozen=True, slots=True)
class Played:
    """A move from the request to its end.

    `seen_after_seconds` is from the request to the first throttle; None = none was awaited.
    """

    began_seconds: float
    ended_seconds: float
    seen_after_seconds: float | None

    @property
    def seconds(self) -> float:
        return self.ended_seconds - self.began_seconds


class Replication:
    """What a cluster's brokers say of replication."""

    def __init__(self, kafka: BrokersLab) -> None:
        self.kafka = kafka
        self._source = KafkaReplication(KafkaConnection(tuple(kafka.bootstrap_servers.split(","))))

    def is_moving(self) -> bool:
        """Whether a partition is reassigned; True as well while the brokers do not answer."""
        try:
            return any(
                one.is_reassigned for one in self._source.read(with_recovery=False).partitions
            )
        except TidegateError:
            return True

    def is_behind(self) -> bool:
        """Whether a live replica is out of sync."""
        try:
            return bool(self._source.read(with_recovery=True).partitions)
        except TidegateError:
            return True

    def bytes_behind(self) -> int:
        """How many bytes live replicas out of sync lack; a replica of unknown size lacks all."""
        seen = self._source.read(with_recovery=True)
        moves, _ = moves_of(seen, {})
        return sum(
            (move.size or 0) if move.bytes_left is None else move.bytes_left for move in moves
        )

    def throttles(self) -> int:
        """How many throttles there are anywhere."""
        return sum(len(values) for values in self._source.scan().values())

    def rate_of(self, broker: int) -> str:
        """The rate in force for what this broker sends; empty where there is none."""
        resource = broker_resource(broker)
        with suppress(TidegateError):
            return self._source.configs({resource}).get(resource, {}).get(LEADER_RATE, "")
        return ""

    def left_after(self, seconds: float) -> int:
        """How many throttles are still there when clean-up has had so long."""
        until = time.time() + seconds
        while (left := self.throttles()) and time.time() < until:
            time.sleep(0.5)
        return left

    def close(self) -> None:
        self._source.close()


def play(
    replication: Replication,
    begin: Callable[[], object],
    each_second: Callable[[], object],
    *,
    longest_seconds: float,
    awaits_throttle: bool,
) -> Played:
    """Begin a move and wait for its end."""
    begin()
    began, seen = time.time(), None
    while replication.is_moving():
        now = time.time()
        if now - began > longest_seconds:
            raise LabError(f"The move has not ended after {longest_seconds:g} s.")
        awaits_now = awaits_throttle and seen is None
        if awaits_now and replication.throttles():
            seen = now - began
        each_second()
        time.sleep(0.2 if awaits_now else 1.0)
    return Played(began, time.time(), seen)


class NicCounter:
    """What a broker's NIC has sent or received, by the kernel, whenever it is read."""

    def __init__(self, kafka: BrokersLab, broker: int, way: str = "tx") -> None:
        namespace = kafka.broker(broker).plan.namespace
        if namespace is None:
            raise LabError("Brokers on loopback have no NIC of their own.")
        # the other end of the pair, in our own namespace: what it receives the broker has sent
        device = namespace.name.replace("-", "")
        other = {"tx": "rx", "rx": "tx"}[way]
        self._file = Path(f"/sys/class/net/{device}/statistics/{other}_bytes")
        self._readings: list[tuple[float, int]] = []

    def read(self) -> None:
        """Take a reading."""
        self._readings.append((time.time(), int(self._file.read_text())))

    def series(self) -> ByteSeries:
        """What passed between the readings."""
        begin = [Sample(at, 0) for at, _ in self._readings[:1]]
        return ByteSeries(
            [
                *begin,
                *(Sample(at, now - before) for (_, before), (at, now) in pairwise(self._readings)),
            ]
        )


def keep_seconds(
    file: Path,
    title: str,
    began_seconds: float,
    seconds: float,
    moved: Mapping[str, ByteSeries],
    rates: Mapping[int, str],
) -> None:
    """Append what each of these moved in each second in MB, and the rate in force.

    It shows when one of them lost, and the operator's log beside it shows why.
    """
    with file.open("a") as rows:
        rows.write(f"{title}\nsecond,{','.join(moved)},rate\n")
        for second in range(-10, int(seconds) + 1):
            at = began_seconds + second
            each = ",".join(f"{series.mean(at, 1) / MB:.1f}" for series in moved.values())
            rows.write(f"{second},{each},{rates.get(int(at), '')}\n")


def temporary_log() -> Path:
    """Where an operator's log is kept after the run."""
    return Path(tempfile.mkdtemp(prefix="tidegate-bench-")) / "operator.log"
