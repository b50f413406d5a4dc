"""What budgets promise, judged from outside: from objects, quotas in Kafka, and the load that is.

A budget is as slow as the metrics, and quotas are lowered in steps. So sums and minimums are judged
once nothing has changed for longer than that takes: no object, no leader, no demand, no fault.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from tests.simulation.plan import BROKERS, MB, NAMESPACE, TOPICS, Act
from tests.simulation.systems import QUOTA_KEYS, Kafka
from tests.simulation.write_rules import Change
from tidegate.kube.api import (
    BANDWIDTH_BUDGETS,
    BROKER_BANDWIDTH_POLICIES,
    BUSINESS_TIERS,
    QUOTA_OVERRIDES,
    JsonObject,
)
from tidegate_logic.model import Entity

if TYPE_CHECKING:
    from tests.simulation.world import World

# readings, a division, all steps down to a small share, and the divisions that follow from them
LAGS_SECONDS = 360.0
# until an operator is there again that has the Lease, readings and a whole view of everything
RECOVERS_SECONDS = 90.0
# a fight with another writer, and the pause after it; a clock that was wrong has left its times
LONG_SECONDS = 3_600.0
_LONG = {"second writer", "writer inside", "clock jump", "ledger vanishes", "newer version"}
# what clients need on each broker, which L0 cannot take away
FLOORS = {"fetch": 1_000_000, "produce": 279_621}
_HYSTERESIS = 0.9  # a limit that is nearly the minimum is not worth a write
_ROUNDING = 0.001  # of a total, besides a KiB for each quota


@dataclass(frozen=True)
class Shared:
    """One member as its budget sees it. A quota times `whole` is its rate in the whole cluster.

    `path` has the names of its budget and of that one's parents.
    """

    user: str
    path: tuple[str, ...]
    is_free: bool
    whole: float
    contract: Mapping[str, float]


class BudgetRules:
    """Judges one run; each finding goes to `world.violated`."""

    def __init__(
        self, world: World, entries_of: Callable[[Mapping[str, Any], str], dict[str, Any]]
    ) -> None:
        self._world, self._entries_of = world, entries_of
        self._calm_from = 0.0
        self._leaders: dict[str, Any] = {}
        # by Kafka cluster: the changes of members' quotas while nothing else changed
        self._swings: dict[str, list[Change]] = defaultdict(list)

    # --- what breaks the calm -----------------------------------------------------------------------

    def unsteady(self, seconds: float) -> None:
        """Note that something is wrong now, and for so long."""
        ends_at = self._world.scheduler.now + seconds + RECOVERS_SECONDS
        self._calm_from = max(self._calm_from, ends_at)

    def troubled(self, fault: Act) -> None:
        """Note what goes wrong, with how long it lasts."""
        is_long = fault.kind in _LONG
        self.unsteady(LONG_SECONDS if is_long else fault.args.get("seconds") or 0.0)

    def _calm_since(self, kafka: Kafka) -> float:
        world, now = self._world, self._world.scheduler.now
        seen = (frozenset(kafka.brokers), tuple(sorted(kafka.leaders.items(), key=str)))
        if self._leaders.get(kafka.name) != seen:
            self._leaders[kafka.name] = seen
            self._calm_from = max(self._calm_from, now)
        load = world.loads[kafka.name]
        return max(
            self._calm_from,
            world.invariants.rules.edited_at[kafka.name],
            load.changed_at,
            load.is_frozen_until,
            *self._ends_of_overrides(now),
        )

    def _ends_of_overrides(self, now: float) -> list[float]:
        ends = [end for end in self._world.override_ends if end <= now]
        return [0.0, *ends]

    # --- at each scrape -----------------------------------------------------------------------------

    def judge(self, kafka: Kafka) -> None:
        """Judge the quotas of now, if all has been as it is for long enough."""
        world = self._world
        calm_seconds = world.scheduler.now - self._calm_since(kafka)
        if calm_seconds < LAGS_SECONDS or len(world.kubernetes) > 1:
            self._swings[kafka.name].clear()
            return
        ((where, kubernetes),) = world.kubernetes.items()
        name = next(one.name for one in world.plan.policies if one.kafka == kafka.name)
        policy = kubernetes._objects.get((BROKER_BANDWIDTH_POLICIES, NAMESPACE, name))
        if policy is None or not _is_at_work(policy) or None in kafka.leaders.values():
            return
        budgets = {
            raw["metadata"]["name"]: raw
            for raw in self._objects(where, BANDWIDTH_BUDGETS, name)
            if not raw["metadata"].get("deletionTimestamp")
        }
        members = list(self._members(kafka, where, name, budgets))
        for key in QUOTA_KEYS:
            for budget, raw in budgets.items():
                inside = [one for one in members if budget in one.path]
                if key in raw["spec"]["total"] and inside:
                    total = _bytes(raw["spec"]["total"][key])
                    least = {one.user: _minimum(one, key, budgets, members) for one in inside}
                    self._judge_sum(kafka, budget, key, total, inside, least)
            self._judge_minimums(kafka, key, budgets, members)
        self._judge_statuses(budgets, members)

    def _judge_sum(
        self,
        kafka: Kafka,
        budget: str,
        key: str,
        total: float,
        inside: Sequence[Shared],
        least: Mapping[str, float],
    ) -> None:
        """What members that a budget limits may have together is what L0 leaves of it at most.

        Of a minimum, and of what clients need, only what is wanted counts: the rest is lent.
        """
        left = max(0.0, total - sum(self._uses(kafka, one, key) for one in inside if one.is_free))
        limited = [one for one in inside if not one.is_free]
        may = {one.user: self._permitted(kafka, one, key) for one in limited}
        even = total / len(inside)
        left = max(left, sum(min(even, FLOORS[key] * one.whole) for one in limited))
        load = self._world.loads[kafka.name]
        counted = 0.0
        for one in limited:
            own = max(least[one.user], min(even, FLOORS[key] * one.whole))
            is_own = may[one.user] <= own * (1 + _ROUNDING) + 4096
            wants = one.whole * load.wants.get((one.user, key), 0.0)
            counted += min(may[one.user], wants) if is_own else may[one.user]
        noise = load.noise * total
        if counted > left + noise + total * _ROUNDING + len(limited) * 4096:
            rates = ", ".join(f"{user} {rate / MB:.2f}" for user, rate in may.items())
            self._world.violated(
                f"budget {budget} has {left / MB:.2f} of {total / MB:.0f} MB/s {key} left for its "
                f"members, and they may have more: {rates}"
            )

    def _judge_minimums(
        self, kafka: Kafka, key: str, budgets: Mapping[str, JsonObject], members: Sequence[Shared]
    ) -> None:
        """Who wants its minimum has it, where all of them and what clients need fit in."""
        least = {one.user: _minimum(one, key, budgets, members) for one in members}
        totals = {
            name: _bytes(raw["spec"]["total"].get(key, "1000000M")) for name, raw in budgets.items()
        }
        room = {}
        for name, total in totals.items():
            inside = [one for one in members if name in one.path]
            free = sum(self._uses(kafka, one, key) for one in inside if one.is_free)
            room[name] = total - 1.2 * free
            room[name] -= sum(
                max(least[one.user], min(total / len(inside), FLOORS[key] * one.whole))
                for one in inside
                if not one.is_free
            )
        load = self._world.loads[kafka.name]
        for one in members:
            wants = one.whole * load.wants.get((one.user, key), 0.0)
            if one.is_free or wants < least[one.user] or any(room[name] < 0 for name in one.path):
                continue
            if self._is_throttled(kafka, one.user, key):
                continue
            may = self._permitted(kafka, one, key)
            if may < least[one.user] * _HYSTERESIS - 4096:
                self._world.violated(
                    f"{one.user} may have {may / MB:.2f} MB/s {key} of budget {one.path[0]}, wants "
                    f"{wants / MB:.2f}, and its minimum is {least[one.user] / MB:.2f}"
                )

    def _judge_statuses(self, budgets: Mapping[str, JsonObject], members: Sequence[Shared]) -> None:
        for name, raw in budgets.items():
            status, inside = raw.get("status") or {}, [m for m in members if m.path[0] == name]
            if status.get("observedGeneration") != raw["metadata"]["generation"]:
                self._world.violated(f"the status of budget {name} is of an older spec")
            shown = {one["member"] for one in status.get("members") or ()}
            if shown != {one.user for one in inside}:
                self._world.violated(
                    f"the status of budget {name} names {sorted(shown)}, its members are "
                    f"{sorted(one.user for one in inside)}"
                )

    # --- at each transaction ------------------------------------------------------------------------

    def changed(self, kafka: Kafka, changes: Sequence[Change]) -> None:
        """Under steady demand no limit of a budget changes to and fro; the tide gate's may."""
        load = self._world.loads.get(kafka.name)
        plan = next(one for one in self._world.plan.policies if one.kafka == kafka.name)
        if load is None or not plan.budgets or "writeBudget" in plan.spec:
            return
        if self._world.scheduler.now - self._calm_since(kafka) < LAGS_SECONDS:
            return
        swings = self._swings[kafka.name]
        swings += [one for one in changes if not _is_by_load(one)]
        ups = [one for one in swings if one.is_raise]
        if len(swings) > 2 and ups:
            told = ", ".join(f"{one.user} {one.key} {one.old} -> {one.new}" for one in swings)
            self._world.violated(f"under steady demand the limits of budgets change: {told}")

    # --- who is in which budget ---------------------------------------------------------------------

    def _objects(self, where: str, kind: Any, policy: str) -> list[JsonObject]:
        found = [
            raw
            for (of, _, _), raw in self._world.kubernetes[where]._objects.items()
            if of == kind and raw["spec"]["policyRef"]["name"] == policy
        ]
        return sorted(
            found,
            key=lambda raw: (raw["metadata"]["creationTimestamp"], raw["metadata"]["name"]),
        )

    def _members(
        self, kafka: Kafka, where: str, policy: str, budgets: Mapping[str, JsonObject]
    ) -> Iterable[Shared]:
        overridden = {
            raw["spec"]["target"]["user"] for raw in self._objects(where, QUOTA_OVERRIDES, policy)
        }
        for tier in self._objects(where, BUSINESS_TIERS, policy):
            for member in tier["spec"]["members"]:
                own = next(
                    (name for name, raw in budgets.items() if _names(raw, tier, member)), None
                )
                if own is None:
                    continue
                contract = member.get("contract", {"perPartition": {}})
                (form, rates), partitions = next(iter(contract.items())), 0
                partitions = sum(TOPICS[topic] for topic in member["topics"])
                largest = kafka.largest_leaders(member["topics"])
                led = {kafka.leaders[of] for of in kafka.leaders if of[0] in member["topics"]}
                whole, times = float(len(led)), len(led)
                if form == "perPartition":
                    whole, times = partitions / largest, partitions
                yield Shared(
                    member["user"],
                    _path(own, budgets),
                    tier["spec"]["level"] == "L0" or member["user"] in overridden,
                    whole,
                    {key: _bytes(text) * times for key, text in rates.items()},
                )

    def _uses(self, kafka: Kafka, member: Shared, key: str) -> float:
        return len(BROKERS) * self._world.loads[kafka.name].sends(member.user, key)

    def _permitted(self, kafka: Kafka, member: Shared, key: str) -> float:
        """What its quota permits in the whole cluster, but for uneven leaders."""
        text = kafka.store_view(Entity(member.user)).get(QUOTA_KEYS[key])
        return inf if text is None else float(text) * member.whole

    def _is_throttled(self, kafka: Kafka, user: str, key: str) -> bool:
        entry = self._entries_of(kafka.tree._nodes, user).get(QUOTA_KEYS[key], {})
        return "of_contract" in entry


def _is_at_work(policy: JsonObject) -> bool:
    spec = policy["spec"]
    return not (
        "deletionTimestamp" in policy["metadata"]
        or spec.get("suspend")
        or spec["mode"] == "Observe"
        or "writeBudget" in spec  # so few changes that everything may take longer
        or spec.get("escalation", {}).get("maxMuteSeconds", 12) < 12  # twenty steps of 30 s
    )


def _names(budget: JsonObject, tier: JsonObject, member: JsonObject) -> bool:
    members = budget["spec"].get("members") or {}
    labels = {**tier["spec"].get("labels", {}), **member.get("labels", {})}
    wanted = members.get("selector", {}).get("matchLabels", {})
    return tier["metadata"]["name"] in members.get("tiers", ()) or bool(
        wanted and wanted.items() <= labels.items()
    )


def _path(name: str, budgets: Mapping[str, JsonObject]) -> tuple[str, ...]:
    path = [name]
    while (parent := budgets[path[-1]]["spec"].get("parent", {}).get("name")) is not None:
        if parent in path or parent not in budgets:
            return (name,)
        path.append(parent)
    return tuple(path)


def _minimum(
    member: Shared, key: str, budgets: Mapping[str, JsonObject], members: Sequence[Shared]
) -> float:
    spec = budgets[member.path[0]]["spec"]
    if key not in spec["total"]:
        return 0.0
    percent = spec.get("share", {}).get("minimumPercent", 5)
    others = sum(one.path[0] == member.path[0] for one in members)
    least: float = _bytes(spec["total"][key]) * min(percent, 100 / others) / 100
    return min(least, member.contract.get(key, inf))


def _is_by_load(change: Change) -> bool:
    return any(
        "of_contract" in one or one.get("reason") in ("Throttled", "Relaxing", "Released")
        for one in (change.left, change.entry)
    )


def _bytes(text: str) -> float:
    return int(text.removesuffix("M")) * MB
