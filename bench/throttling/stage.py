"""Where measured episodes are played: one real broker with a card of its own, Prometheus, the Kubernetes API, and the operator."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kubernetes.client import ApiException

from bench.control.world import GROUP, NAMESPACE, POLICY, VERSION, World, world
from bench.tide.crowd import fill
from bench.tide.declared import declared_policy, declared_tiers
from bench.tide.neighbour import TOPIC as NEIGHBOURS_TOPIC
from bench.tide.script import Business, Operation
from lab.errors import LabError
from lab.prometheus import PrometheusLab, monitoring
from lab.rates import ByteSeries, growth

_READY_SECONDS = 60.0
_PLURALS = ("brokerbandwidthpolicies", "businesstiers")


@dataclass(frozen=True, slots=True)
class TideStage:
    """The running parts; nothing is declared yet."""

    on: World
    prometheus: PrometheusLab

    def limit(self, operation: Operation, bytes_per_second: int) -> float:
        """Set every broker's limit; gives the time at which that was said."""
        said = time.time()
        patch = {"spec": {"brokers": {operation.limit_field: bytes_per_second}}}
        self.on.objects.patch_namespaced_custom_object(GROUP, VERSION, NAMESPACE, _PLURALS[0], POLICY, patch)
        return said

    def card(self, operation: Operation, *, start_seconds: float, end_seconds: float) -> ByteSeries | None:
        """What the broker's card moved, second by second; None without a card of its own (that needs root)."""
        if self.on.kafka.network is None:
            return None
        query = f'{operation.card_counter}{{broker="1",device="eth0"}}'
        answer = self.prometheus.query_range(query, start_seconds, end_unix_seconds=end_seconds, step_seconds=1)
        return ByteSeries(growth(answer[0]["values"]) if answer else ())

    def wait_until(self, holds: Callable[[], bool], *, longest_seconds: float) -> bool:
        """Look once a second; True as soon as it holds, False when the time is over. `LabError` when the operator ended."""
        ends = time.time() + longest_seconds
        while time.time() < ends:
            if holds():
                return True
            if not self.on.operator.is_running():
                raise LabError(f"The operator ended during a measurement.\n{self.on.operator.log_tail()}")
            time.sleep(min(1.0, max(0.0, ends - time.time())))
        return holds()

    def wait(self, seconds: float) -> None:
        """Let that much time pass."""
        self.wait_until(lambda: False, longest_seconds=seconds)

    @contextmanager
    def declared(self, businesses: Sequence[Business], operation: Operation, *, speed: str = "Ladder") -> Iterator[None]:
        """A policy and its tiers, Ready; deleted at the end, and the operator has forgotten them."""
        self.on.create(_PLURALS[0], declared_policy(self.on.kafka, self.prometheus, operation, speed=speed))
        for tier in declared_tiers(businesses, operation):
            self.on.create(_PLURALS[1], tier)
        try:
            if not self.wait_until(self._all_ready, longest_seconds=_READY_SECONDS):
                raise LabError(f"Policy and tiers were not Ready within {_READY_SECONDS:g} s.\n{self.on.operator.log_tail()}")
            yield
        finally:
            self._delete_all()

    def _all_ready(self) -> bool:
        objects = [entry for plural in _PLURALS for entry in self.on.listed(plural)]
        return all(
            any(c["type"] == "Ready" and c["status"] == "True" for c in (o.get("status") or {}).get("conditions") or ()) for o in objects
        )

    def _delete_all(self) -> None:
        for plural in _PLURALS:  # the policy first: it gives every quota back
            for entry in self.on.listed(plural):
                self.on.objects.delete_namespaced_custom_object(GROUP, VERSION, NAMESPACE, plural, entry["metadata"]["name"])
            self.wait_until(lambda plural=plural: not self._is_left(plural), longest_seconds=_READY_SECONDS)  # type: ignore[misc]

    def _is_left(self, plural: str) -> bool:
        try:
            return bool(self.on.listed(plural))
        except ApiException:
            return True


@contextmanager
def tide_stage(users: Sequence[str], log: Path) -> Iterator[TideStage]:
    """Everything running; the operator's log, with its audit trail, goes to that file."""
    with world(brokers=1, users=users, namespaces=os.geteuid() == 0, log=log) as on:
        on.kafka.create_topic(NEIGHBOURS_TOPIC, [[1]])
        fill(on.kafka)
        with monitoring(on.kafka) as prometheus:
            yield TideStage(on, prometheus)
