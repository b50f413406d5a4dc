"""What no transaction of the operator may do, whatever has gone wrong: budget, holds, stale samples,
headroom, other writers' bytes and values, and the Lease.

Judged from outside: from znodes before and after, from objects, and from the load that really is.
"""

from __future__ import annotations

import inspect
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.simulation.load import DIRECTIONS
from tests.simulation.plan import BROKERS, MB
from tests.simulation.systems import QUOTA_KEYS, Kafka
from tidegate.kafka.claim import next_claim
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, JsonObject, ResourceKind

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

KEYS = frozenset(QUOTA_KEYS.values())
# how long ago a process may have decided what it writes now: it may have stood still for 30 s
LATE_SECONDS = 45.0
# so long everything has to be as it is before the load is blamed on a raise
STEADY_SECONDS = 120.0
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"')
# before that, the claim kept the holder who had made it (trust-3 F1)
CLAIMS_NAME_THEIR_HOLDER = "renews" in inspect.signature(next_claim).parameters


@dataclass(frozen=True)
class Change:
    """One quota before and after, with its ledger entries; an entry without fields = none."""

    user: str
    key: str
    old: str | None
    new: str | None
    left: JsonObject
    entry: JsonObject

    @property
    def is_raise(self) -> bool:
        return self.old is not None and (self.new is None or int(self.new) > int(self.old))

    @property
    def is_free(self) -> bool:
        """Whether the write budget does not pay: a first quota, and one that follows leaders up."""
        if self.entry and not self.left:
            return True
        return self.is_raise and self.entry.get("reason") == "LeadersMoved"

    @property
    def raises_by_load(self) -> bool:
        """Whether headroom allows it; not where an edit gave the contract a form that the tier has no
        throttled rate for: such a member is not throttled any more (NoThrottledRate).
        """
        forms = {str(one.get("basis", "")).partition(" ")[0] for one in (self.left, self.entry)}
        is_by_load = self.entry.get("reason") in ("Relaxing", "Released")
        return self.is_raise and is_by_load and len(forms) == 1


class WriteRules:
    """Judges one run; each finding goes to `world.violated`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._has_true_clocks = all(act.kind != "clock jump" for act in world.plan.acts)
        self._charged: dict[str, list[tuple[float, int]]] = defaultdict(list)
        self._loop: dict[str, Any] = {}
        # when something else than a raise by load last changed what clients may send
        self._disturbed_at: dict[str, float] = defaultdict(float)
        self.edited_at: dict[str, float] = defaultdict(float)  # the same without any raise of ours
        self._suspended_at: dict[tuple[str, str], float] = {}
        self._generations: dict[tuple[str, str, str], int] = {}
        self._unanswered: set[str] = set()
        self.answered: set[str] = set()

    # --- what others do -----------------------------------------------------------------------------

    def disturbed(self, kafka: str) -> None:
        """Note that limits, quotas or leaders were changed by others than the operator."""
        self._disturbed_at[kafka] = self.edited_at[kafka] = self._world.scheduler.now

    def forget_charges(self, kafka: str) -> None:
        """Begin to count again: the operator does not know whether its last write was done."""
        self._charged[kafka].clear()

    def ledger_lost(self, kafka: str) -> None:
        """Note that no record is left, and that nobody has answered for it."""
        self._unanswered.add(kafka)

    def ledger_answered(self, kafka: str) -> None:
        """Note that a person has answered."""
        self._unanswered.discard(kafka)
        self.answered.add(kafka)

    def ledger_given_up(self, kafka: str) -> bool:
        """Note that its policy went before anybody answered; whether there was anything to answer."""
        is_lost = kafka in self._unanswered
        self._unanswered.discard(kafka)
        return is_lost

    def declared(self, where: str, kind: ResourceKind, raw: JsonObject, *, policy: str) -> None:
        """Keep since when a policy has been suspended, and when a spec of it was changed last."""
        place = where, kind.plural, raw["metadata"]["name"]
        if self._generations.get(place) != raw["metadata"]["generation"]:
            self._generations[place] = raw["metadata"]["generation"]
            self.disturbed(next(p.kafka for p in self._world.plan.policies if p.name == policy))
        if kind != BROKER_BANDWIDTH_POLICIES:
            return
        if raw["spec"].get("suspend"):
            self._suspended_at.setdefault((where, policy), self._world.scheduler.now)
        else:
            self._suspended_at.pop((where, policy), None)

    # --- at each transaction ------------------------------------------------------------------------

    def judge(
        self,
        kafka: Kafka,
        process: Process,
        policy: JsonObject | None,
        changes: list[Change],
        claim: Mapping[str, Any],
    ) -> None:
        """Judge the changes of one transaction; `policy` is whose loop made them, as it is now."""
        for change in changes:
            self._judge_what_was_seen(process, change)
        if not changes:
            return
        if kafka.name in self._unanswered:
            self._world.violated(
                f"{process.name} wrote quotas of {kafka.name}, whose ledger was lost, before anybody "
                "answered for it"
            )
        if CLAIMS_NAME_THEIR_HOLDER and claim.get("holder") not in (process.name, None):
            self._world.violated(
                f"{process.name} wrote quotas of {kafka.name} after {claim['holder']} had taken over"
            )
        if policy is None:
            return
        self._judge_budget(kafka, policy, changes)
        self._judge_hold(kafka, process, policy)
        self._judge_samples(kafka, policy, changes)
        self._judge_headroom(kafka, policy, changes)

    def _judge_what_was_seen(self, process: Process, change: Change) -> None:
        """A value that the decision did not know is never replaced."""
        entry, left, old = change.entry, change.left, change.old
        known = entry.get("previous") if entry else left.get("written")
        if known != old:
            self._world.violated(
                f"{process.name} replaced {old} of {change.user} {change.key} by {change.new}, and "
                f"what it had decided on was {known}"
            )

    def _judge_budget(self, kafka: Kafka, policy: JsonObject, changes: list[Change]) -> None:
        now, loop = self._world.scheduler.now, self._world.scheduler.current
        if self._loop.get(kafka.name) is not loop:
            self._loop[kafka.name] = loop
            self._charged[kafka.name].clear()
        if "deletionTimestamp" in policy["metadata"] or not self._has_true_clocks:
            return
        budget = policy["spec"].get("writeBudget", {})
        most, period = budget.get("changes", 300), budget.get("periodSeconds", 900)
        charged = self._charged[kafka.name]
        charged.append((now, len({change.user for change in changes if not change.is_free})))
        since = now - max(15.0, period - LATE_SECONDS)
        charged[:] = [one for one in charged if one[0] > since]
        spent = sum(count for _, count in charged)
        if spent > most:
            self._world.violated(
                f"{spent} changes of {kafka.name} within {now - since:.0f} s, and the write budget is "
                f"{most} in {period} s"
            )

    def _judge_hold(self, kafka: Kafka, process: Process, policy: JsonObject) -> None:
        """Nothing is written for a policy that has been suspended for a while, as its watch saw."""
        name = policy["metadata"]["name"]
        since = self._suspended_at.get((process.where, name))
        if since is None or process.watch_gap_until >= since:
            return
        late = max(since, process.group.paused_until)
        if self._world.scheduler.now - late > 15.0:
            self._world.violated(
                f"{process.name} wrote quotas of {kafka.name} although {name} is suspended"
            )

    def _judge_samples(self, kafka: Kafka, policy: JsonObject, changes: list[Change]) -> None:
        load = self._world.loads.get(kafka.name)
        lowered = [
            change
            for change in changes
            if change.entry.get("reason") == "Throttled" and not change.is_raise
        ]
        if load is None or not lowered or not self._has_true_clocks:
            return
        stale_after = policy["spec"].get("metrics", {}).get("staleAfterSeconds")
        age = self._world.scheduler.now - load.scraped_at
        if age > (stale_after or 3 * load.scrape_seconds) + LATE_SECONDS:
            names = ", ".join(f"{one.user} {one.key} {one.old} -> {one.new}" for one in lowered)
            self._world.violated(f"{names}: throttled by samples that are {age:.0f} s old")

    def _judge_headroom(self, kafka: Kafka, policy: JsonObject, changes: list[Change]) -> None:
        """Under a load that does not change, raises by load never lead over a limit."""
        now, load = self._world.scheduler.now, self._world.loads.get(kafka.name)
        if any(change.is_raise and not change.raises_by_load for change in changes):
            self._disturbed_at[kafka.name] = now
        if load is None or not any(change.raises_by_load for change in changes):
            return
        steady_since = max(load.changed_at, self._disturbed_at[kafka.name])
        if now - steady_since < STEADY_SECONDS:
            return
        for way, name in DIRECTIONS.items():
            text = policy["spec"].get("brokers", {}).get(way.value, {}).get("limit")
            raised = [one for one in changes if one.key == QUOTA_KEYS[name] and one.raises_by_load]
            if text is None or not raised:
                continue
            limit = int(text.removesuffix("M")) * MB
            carried = load.other.get((BROKERS[0], way), 0.0) + load.sent(name)
            if carried > limit:
                self._world.violated(
                    f"{kafka.name} carries {carried / MB:.1f} of {limit / MB:.0f} MB/s {way.value} by "
                    f"raises: {', '.join(one.user for one in raised)}"
                )


# --- the bytes of others --------------------------------------------------------------------------


def foreign_tokens(data: bytes | None) -> list[tuple[str, str]]:
    """The settings of others in a quota node, each as the JSON strings that stand there."""
    return [pair for pair in _tokens(data) if json.loads(pair[0]) not in KEYS]


def is_reordered(before: bytes | None, after: bytes | None) -> bool:
    """Whether settings that stay changed their order."""
    was, now = [key for key, _ in _tokens(before)], [key for key, _ in _tokens(after)]
    return [key for key in was if key in now] != [key for key in now if key in was]


def _tokens(data: bytes | None) -> list[tuple[str, str]]:
    """Keys and values of the config; its document has two other keys, `version` and `config`."""
    found = _TOKEN.findall((data or b"").decode())[2:]
    return list(zip(found[::2], found[1::2], strict=True))
