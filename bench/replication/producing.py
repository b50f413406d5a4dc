"""Moves and recovery of partitions that are produced to meanwhile, at 2 MB/s.

Kafka counts what followers in sync fetch of these partitions in the leader's rate. Three times with
L0 reading from the same broker: a move that follows the load, a broker that comes back, and a move
at a fixed rate that those in sync use up, which has to be reported. The NIC's room is such that
without that part on top of the rate the move would have next to nothing.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from kubernetes.client import ApiException

from bench.control.world import POLICY, OnKubernetes, metrics_of, operator_beside
from bench.replication import parts
from bench.replication.follow import fill, limits, tier_of
from bench.results import Figure
from lab.episodes import Business, Clients, fill_topic, running_clients
from lab.errors import LabError
from lab.kafka import BrokersLab, KafkaLab
from lab.kraft import KraftLab
from lab.load import LoadClient, LoadPlan, RateStep
from lab.process import wait_until
from lab.prometheus import monitoring
from tidegate.control.replication import PASS_SECONDS

NIC = 25 * parts.MB
PRODUCED = 2 * parts.MB
_MOVED_BYTES, _BEHIND_BYTES = 100 * parts.MB, 400 * parts.MB
_FIXED = (
    3 * parts.MB
)  # more than is produced, less than that for the replica in sync and the new one
_PARTITIONS = 4
_READ, _TOPIC = "read", "produced"
_BEFORE_SECONDS = 30
_L0_LOSS_PERCENT = 1.0
_LONGEST_SECONDS = 600.0


def producing_figures(lab: type[KafkaLab] | type[KraftLab], name: str) -> list[Figure]:
    """Seconds of the move and of the recovery, what L0 loses, seconds until a stall is reported."""
    checkout = Business("L0", "checkout", NIC * 64 // 100, None, NIC)
    with ExitStack() as stack:
        kafka = stack.enter_context(parts.brokers_with_nics(NIC, users=("checkout",), lab=lab))
        prometheus = stack.enter_context(monitoring(kafka))
        on = stack.enter_context(operator_beside(kafka, parts.temporary_log()))
        kafka.create_topic(_READ, [[1]])
        kafka.create_topic(_TOPIC, [[1, 2]] * _PARTITIONS)
        fill_topic(kafka, _READ)
        fill(kafka, _TOPIC, _MOVED_BYTES)
        stack.enter_context(_producing(kafka))
        bench = _Bench(kafka, parts.Replication(kafka), on, metrics_of(kafka, prometheus), checkout)
        fixed = bench.seconds_until_reported()
        move = bench.move()
        recovery = bench.recover()
    what = (
        f"{name}, {PRODUCED / parts.MB:.0f} MB/s produced to what is filled, one follower in sync"
    )
    return [
        Figure(
            f"{what}, Fixed at {_FIXED / parts.MB:.0f} MB/s: `ReassignmentStalls` after",
            fixed,
            "s",
            2 * PASS_SECONDS,
            "from the first throttle on",
        ),
        *_figures(f"{what}, move of {_MOVED_BYTES / parts.MB:.0f} MB, Follow", move),
        *_figures(
            f"{what}, broker back with {_BEHIND_BYTES / parts.MB:.0f} MB behind, Follow", recovery
        ),
    ]


@dataclass(frozen=True, slots=True)
class _Run:
    seconds: float
    before: float
    lost_percent: float
    left: int


@contextmanager
def _producing(kafka: BrokersLab) -> Iterator[None]:
    plan = LoadPlan(
        name="producing",
        mode="produce",
        bootstrap_servers=kafka.bootstrap_servers,
        topic=_TOPIC,
        partitions=tuple(range(_PARTITIONS)),
        duration_seconds=3600,
        max_bytes=3600 * PRODUCED,
        steps=(RateStep(0, PRODUCED),),
    )
    with LoadClient(plan, kafka.run.path / "load", namespace=kafka.client_namespace):
        yield


@dataclass(frozen=True, slots=True)
class _Bench:
    kafka: BrokersLab
    view: parts.Replication
    on: OnKubernetes
    metrics: Mapping[str, Any]
    checkout: Business

    def seconds_until_reported(self) -> float:
        """A move at a fixed rate, cancelled when its stall is in the status."""
        rate = {"reassignments": {"mode": "Fixed", "rate": {"max": str(_FIXED), "min": "100k"}}}
        with parts.declared(self.on, [(parts.POLICIES, self._policy(rate))]):
            self._reassign([1, 2, 3])
            wait_until(self.view.throttles, "a throttle", timeout_seconds=30, poll_seconds=0.2)
            began = time.time()
            wait_until(
                lambda: self._reason() == "ReassignmentStalls",
                "the stall to be reported",
                timeout_seconds=60,
                poll_seconds=0.2,
            )
            reported = time.time() - began
            self._reassign(None)
        self._back_to_two()
        return reported

    def move(self) -> _Run:
        """A third replica comes while L0 reads most of what the NIC can send."""
        terms = {"reassignments": {"mode": "Follow", "rate": {"min": "1M"}}}
        with self._beside_l0(terms, NIC * 64 // 100, 100) as clients:
            began = time.time()
            self._reassign([1, 2, 3])
            return self._until(lambda: not self.view.is_moving(), began, clients)

    def recover(self) -> _Run:
        """The broker of the third replica comes back, and the limit leaves it a few MB/s."""
        terms = {"recovery": {"mode": "Follow", "priority": "L1", "rate": {"min": "1M"}}}
        with self._beside_l0(terms, NIC // 5, 60) as clients:
            self.kafka.broker(3).kill()
            fill(self.kafka, _TOPIC, _BEHIND_BYTES)
            time.sleep(_BEFORE_SECONDS)
            began = time.time()
            self.kafka.broker(3).start()
            return self._until(lambda: not self.view.is_behind(), began, clients)

    @contextmanager
    def _beside_l0(
        self, terms: Mapping[str, Any], wanted: int, limit_percent: int
    ) -> Iterator[Clients]:
        l0 = Business("L0", "checkout", wanted, None, NIC)
        policy = self._policy(terms, metrics=dict(self.metrics), brokers=limits(NIC, limit_percent))
        running = running_clients(
            self.kafka,
            [l0],
            topic=_READ,
            run=next(iter(terms)),
            prefix="bench",
            l0_catch_up_seconds=0.0,
        )
        with (
            running as clients,
            parts.declared(
                self.on, [(parts.POLICIES, policy), ("businesstiers", tier_of(l0, _READ))]
            ),
        ):
            time.sleep(10 + _BEFORE_SECONDS)
            yield clients

    def _until(self, is_over: Callable[[], bool], began: float, clients: Clients) -> _Run:
        wait_until(is_over, "the end", timeout_seconds=_LONGEST_SECONDS, poll_seconds=0.5)
        seconds = time.time() - began
        left = self.view.left_after(20.0)
        time.sleep(3)  # the clients' last rows
        l0 = clients.by_user()["checkout"]
        before = l0.mean(began - _BEFORE_SECONDS, _BEFORE_SECONDS)
        return _Run(seconds, before, 100 * (1 - l0.mean(began, seconds) / before), left)

    def _policy(self, replication: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
        return parts.replication_policy(self.kafka, POLICY, replication, **spec)

    def _reason(self) -> str:
        with suppress(ApiException):
            status = self.on.read(parts.POLICIES, POLICY).get("status") or {}
            for one in status.get("conditions") or ():
                if one["type"] == "ReplicationCurrent":
                    return str(one["reason"])
        return ""

    def _reassign(self, replicas: Sequence[int] | None) -> None:
        wanted = None if replicas is None else list(replicas)
        self.kafka.admin.reassign({(_TOPIC, one): wanted for one in range(_PARTITIONS)})

    def _back_to_two(self) -> None:
        wait_until(lambda: not self.view.is_moving(), "the cancellation", timeout_seconds=60)
        if left := self.view.left_after(20.0):
            raise LabError(f"{left} throttles are left after a cancelled move.")


def _figures(what: str, run: _Run) -> list[Figure]:
    return [
        Figure(f"{what}: ends after", run.seconds, "s", _LONGEST_SECONDS, f"{run.left} left"),
        Figure(
            f"{what}: L0 loses",
            run.lost_percent,
            "%",
            _L0_LOSS_PERCENT,
            f"of the {run.before / parts.MB:.1f} MB/s that it read before",
        ),
    ]
