"""The throttle as a controller of the control study's plant: it is given what that plant observes and answers with quotas.

Around `throttle` stands what the rest of the product does: contracts on leaders, the mute guard for their lowerings, the write budget, a
ledger of what was written. Nothing of the study's own controllers is used.
"""

from collections.abc import Mapping
from math import ceil, isfinite
from typing import Any

from controller_logic.contracts.leaders import LeaderSpread, partition_scale
from controller_logic.model import (
    BrokerLimit,
    ClientRate,
    Direction,
    Entity,
    LedgerEntry,
    Level,
    NicSpan,
    QuotaWindow,
    Readings,
    ScalingMethod,
)
from controller_logic.quotas.kafka_window import step_distance_seconds
from controller_logic.quotas.steps import MuteGuard
from controller_logic.reasons import Reason
from controller_logic.throttle.decision import StepKind, ThrottleDecision
from controller_logic.throttle.input import LastChange, ManagedRate, ThrottleInput, ThrottleMemory
from controller_logic.throttle.settings import ClientFloors, ThrottleSettings
from controller_logic.throttle.throttle import throttle

_BUDGET_SECONDS = 900.0
_DIRECTIONS = {"out": Direction.EGRESS, "in": Direction.INGRESS}
_NEWEST_SECONDS = 65.0  # how much of a NIC's past a reading holds
_SCALING = {"max": ScalingMethod.MAX, "mean": ScalingMethod.MEAN, "min": ScalingMethod.MIN}
_SAME = 0.005  # a value that differs by less is not worth a write

Key = tuple[Any, Any, str]
Observed = Mapping[str, Any]


class Adapter:
    """One operator: its memory, its ledger, the cards' last minute, and what it wrote in the last quarter of an hour."""

    name = "tidegate"

    def __init__(self, policy: Observed, **settings: Any) -> None:
        window = QuotaWindow(int(policy["window_s"]), 1)
        # the study's floors are far below what a real client needs, and its reference keeps to them
        self._settings = ThrottleSettings(window, int(policy["max_mute_s"]), floors=ClientFloors(0, 0), **settings)
        self._guard = MuteGuard(self._settings.max_mute_seconds, window, step_distance_seconds(window))
        self._limit = int(policy["writes_per_15min"])
        self._memory = ThrottleMemory()
        self._spans: dict[tuple[int, Direction], list[NicSpan]] = {}
        self._changes: dict[Key, LastChange] = {}
        self._charged: list[float] = []
        self.decision = ThrottleDecision()

    def tick(self, observed: Observed) -> dict[str, Any]:
        """The study's interface: what to write now."""
        now = observed["now"]
        policy = observed["policy"]
        rates = {key: _managed(key, what, observed, self._changes.get(key)) for key, what in policy["entities"].items()}
        managed, live = tuple(rates.values()), frozenset(observed["alive"])
        given = ThrottleInput(now, self._readings(observed), _limits(policy), live, managed, self._settings)
        self.decision, self._memory = throttle(given, self._memory)
        writes = self._admitted(rates, now)
        for key in writes:
            self._changes[key] = LastChange(now, rates[key].in_force)
        findings = [finding for one in self.decision.rounds for finding in one.findings]
        steps = [step for step in self.decision.steps.values() if step.kind is not StepKind.HOLD]
        return {
            "quotas": {key: float(value) for key, value in writes.items()},
            "conditions": [f"{finding.reason.value} {finding.message}" for finding in findings],
            "records": [{"time": now, "kind": str(step.kind), "entity": step.key} for step in steps],
        }

    def _readings(self, observed: Observed) -> Readings:
        now = observed["now"]
        for broker, nics in observed["nic"].items():
            for way, direction in _DIRECTIONS.items():
                nic = nics.get(way)
                spans = self._spans.setdefault((broker, direction), [])
                if nic is not None and nic[0] is not None and (not spans or nic[1] > spans[-1].at_seconds):
                    spans.append(NicSpan(nic[1], nic[2], nic[0]))
        kept = {key: tuple(span for span in spans if now - span.at_seconds <= _NEWEST_SECONDS) for key, spans in self._spans.items()}
        clients = {
            (_entity(key), broker, _DIRECTIONS[key[2]]): ClientRate(at, rate, milliseconds)
            for key, by_broker in observed["rates"].items()
            for broker, (rate, milliseconds, at) in by_broker.items()
        }
        return Readings(now, float(observed["policy"]["scrape_s"]), kept, clients)

    def _admitted(self, rates: Mapping[Key, ManagedRate], now: float) -> dict[Key, int]:
        """What is worth a write and fits the budget: first contracts are free, then cuts, then the rest up to four fifths."""
        self._charged = [at for at in self._charged if now - at < _BUDGET_SECONDS]
        order = {step_key: place for place, step_key in enumerate(self.decision.steps)}
        wanted = {key: self._wanted(key, rate, now) for key, rate in rates.items()}
        writes = {key: value for key, value in wanted.items() if rates[key].in_force is None}
        changes = [key for key, value in wanted.items() if rates[key].in_force is not None and _differs(value, rates[key].in_force)]
        for key in sorted(changes, key=lambda one: (not self._is_cut(rates[one]), order.get(rates[one].key, len(order)))):
            if len(self._charged) < (self._limit if self._is_cut(rates[key]) else self._limit * 4 // 5):
                self._charged.append(now)
                writes[key] = wanted[key]
        return writes

    def _is_cut(self, rate: ManagedRate) -> bool:
        step = self.decision.steps.get(rate.key)
        return step is not None and step.lowers

    def _wanted(self, key: Key, rate: ManagedRate, now: float) -> int:
        step = self.decision.steps.get(rate.key)
        value = rate.contract if step is None else step.value
        if step is not None or rate.in_force is None or value >= rate.in_force:
            return value
        change = self._changes.get(key)
        entry = None if change is None else LedgerEntry(None, str(rate.in_force), str(change.previous), change.at_seconds, Reason.CONTRACT)
        return self._guard.step(value, rate.in_force, entry, now_seconds=now).value


def _differs(value: int, in_force: int | None) -> bool:
    return in_force is None or abs(in_force - value) > _SAME * value


def _entity(key: Key) -> Entity:
    return Entity(key[0], key[1])


def _managed(key: Key, what: Observed, observed: Observed, change: LastChange | None) -> ManagedRate:
    leaders: dict[int, int] = {}
    for topic in what["topics"]:
        for broker, count in observed["leaders"].get(topic, {}).items():
            leaders[broker] = leaders.get(broker, 0) + count
    floor = observed["policy"]["tier_floor_per_partition"][what["tier"]]
    in_force = observed["inforce"].get(key)
    method = what.get("mapping", "max")
    return ManagedRate(
        _entity(key),
        _DIRECTIONS[key[2]],
        Level(what["tier"]),
        _scaled(what["contract_per_partition"], leaders, method),
        None if floor is None or not isfinite(floor) else _scaled(floor, leaders, method),
        None if in_force is None else round(in_force),
        frozenset(leaders),
        change,
    )


def _scaled(per_partition: float, leaders: Mapping[int, int], method: str) -> int:
    counts = [count for count in leaders.values() if count]
    if not counts:
        return ceil(per_partition)
    spread = LeaderSpread(1, sum(counts), len(counts), max(counts), min(counts))
    return partition_scale(spread, _SCALING[method]).of(ceil(per_partition))


def _limits(policy: Observed) -> dict[int, BrokerLimit]:
    out, into = policy["threshold"]["out"], policy["threshold"]["in"]
    speeds = {broker: round(capacity) for broker, capacity in policy["capacity"].items()}
    return {broker: BrokerLimit(round(out[broker]), round(into[broker]), speed, speed) for broker, speed in speeds.items()}
