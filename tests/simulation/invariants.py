"""What must hold at every moment of a run, and what must be so when the weather is fair again.

Everything is judged from outside: from znodes, objects and calls, never from the operator's own
decisions. Only the bound of a mute is the operator's own formula.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import dropwhile
from math import inf
from typing import TYPE_CHECKING, Any

from tests.simulation.budget_rules import BudgetRules
from tests.simulation.plan import BROKERS, MB, NAMESPACE, TOPICS
from tests.simulation.systems import QUOTA_KEYS, Kafka
from tests.simulation.virtual_time import VirtualTime
from tests.simulation.write_rules import Change, WriteRules, foreign_tokens, is_reordered
from tidegate.kube.api import (
    BANDWIDTH_BUDGETS,
    BROKER_BANDWIDTH_POLICIES,
    BUSINESS_TIERS,
    QUOTA_OVERRIDES,
    JsonObject,
    ObjectRef,
    ResourceKind,
)
from tidegate.resources.fields import parse_moment
from tidegate_logic.contracts.targets import is_override_only
from tidegate_logic.model import Entity, QuotaKey, QuotaWindow
from tidegate_logic.quotas.mute import predicted_mute_seconds
from tidegate_logic.quotas.sent_rates import FASTEST_NIC_BYTES_PER_SECOND

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

CLAIM = "/tidegate/claim"
USERS = "/config/users/"
LEDGER = "/tidegate/ledger/"
_COMMAND = re.compile(
    r"\((?P<key>\w+)=(?P<text>\d+)\): kafka-configs\.sh --bootstrap-server \S+ --alter --entity-type "
    r"users --entity-name (?P<user>\S+) "
    r"(?:--delete-config (?P=key)|--add-config (?P=key)=(?P<before>\d+))"
)
OURS = (USERS, "/config/clients/", "/config/changes/", "/tidegate")
KEYS = frozenset(QUOTA_KEYS.values())
# a list may be this old before nothing is decided on it any more, and some seconds for the pass
KNOWN_SECONDS = 960.0
REMOVAL_WINDOW_SECONDS = 900.0
GRACE_SECONDS = 30.0
NO_MUTE_BELOW = 1024
LEAST_RATE = 1_000_000  # a consumer's, whatever the tier's throttled rates

Nodes = Mapping[str, Any]
Rates = dict[str, dict[str, int]]  # by user and quota key
Written = tuple[str, str, str, float]  # user, quota key, value, and when


def config_of(nodes: Nodes, user: str) -> dict[str, Any]:
    node = nodes.get(USERS + user)
    return json.loads(node.data)["config"] if node is not None and node.data else {}


def data_of(nodes: Nodes, user: str) -> bytes | None:
    node = nodes.get(USERS + user)
    return None if node is None else node.data


def record_of(nodes: Nodes, user: str) -> dict[str, Any]:
    node = nodes.get(f"{LEDGER}users%2F{user}")
    return json.loads(node.data)["entries"] if node is not None else {}


def entries_of(nodes: Nodes, user: str) -> dict[str, Any]:
    """The quotas of ours; without those that the ledger only remembers as restored."""
    record = record_of(nodes, user)
    return {key: entry for key, entry in record.items() if not _is_memory(entry)}


def _is_memory(entry: JsonObject) -> bool:
    return entry["reason"] == "GivenBack" and entry["written"] in (None, "0")


def record_users(nodes: Nodes) -> set[str]:
    prefix = f"{LEDGER}users%2F"
    return {path.removeprefix(prefix) for path in nodes if path.startswith(prefix)}


def ledger_users(nodes: Nodes) -> set[str]:
    """The users with a quota of ours."""
    return {user for user in record_users(nodes) if entries_of(nodes, user)}


def claim_of(nodes: Nodes) -> dict[str, Any]:
    node = nodes.get(CLAIM)
    return json.loads(node.data) if node is not None else {}


class Invariants:
    """Judges one run; each finding goes to `world.violated`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.rules = WriteRules(world)
        self.budgets = BudgetRules(world, entries_of)
        # what others than the operator ever set, None = no quota: what may stand there without us
        self._foreign: dict[str, dict[tuple[str, str], set[str | None]]] = {}
        for name, before in world.plan.before.items():
            self._foreign[name] = defaultdict(lambda: {None})
            for user, quotas in before.items():
                for key, rate in quotas.items():
                    self._foreign[name][user, QUOTA_KEYS[key]] = {str(rate)}
        self._owner: dict[str, str] = {}
        self._may_take_over: set[tuple[str, str]] = set()
        # when the operator changed a quota, from what to what: a window still knows both
        self._changes: dict[tuple[str, str, str], list[tuple[float, int]]] = defaultdict(list)
        self._has_true_clocks = all(act.kind != "clock jump" for act in world.plan.acts)
        # since when no object names a quota (user and key) any more
        self._unnamed: dict[tuple[str, str], dict[tuple[str, str], float]] = defaultdict(dict)
        # when the operator freed whom, under the claim of which uid
        self._freed: dict[tuple[str, str, str], float] = {}
        self._named: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
        self._l0: dict[tuple[str, str], list[tuple[float, Rates]]] = defaultdict(list)
        self._left: dict[str, list[tuple[float, str]]] = defaultdict(list)
        self._managed: dict[str, list[tuple[float, int]]] = defaultdict(list)
        self._loop: dict[str, Any] = {}
        # the quotas that a person confirmed for removal, each as it was written
        self._confirmed: dict[tuple[str, str], set[Written]] = defaultdict(set)
        self._run_commands: set[tuple[str, str]] = set()  # by Kubernetes cluster

    # --- at each change of an object ----------------------------------------------------------------

    def declared(self, where: str, event: str, kind: ResourceKind, raw: JsonObject) -> None:
        """Keep what L0 was promised when, and forget confirmations of what came back."""
        world = self._world
        if kind == BROKER_BANDWIDTH_POLICIES:
            names = [raw["metadata"]["name"]]
            if event == "DELETED" and raw["spec"].get("deletionPolicy") == "Retain":
                self._stays_as_it_is(raw)
        else:
            names = [raw["spec"]["policyRef"]["name"]]
        self.rules.declared(where, kind, raw, policy=names[0])
        if event == "DELETED":
            self.budgets.unsteady(0.0)
        if event == "PUT" and "status" in raw and kind != QUOTA_OVERRIDES:
            generation, seen = (
                raw["metadata"]["generation"],
                raw["status"].get("observedGeneration"),
            )
            if generation == seen and kind in (BUSINESS_TIERS, BANDWIDTH_BUDGETS):
                return  # our own report changes nothing that was promised
        for name in names:
            now = world.scheduler.now
            self._l0[where, name].append((now, self._promised_to_l0(where, name)))
            keys = self._wanted_keys(where, name)
            named = {(user, key) for user in keys for key in keys[user]}
            since = self._unnamed[where, name]
            for quota in named:
                since.pop(quota, None)
            for quota in self._named[where, name] - named:
                since[quota] = now
            self._named[where, name] = named

    def _stays_as_it_is(self, policy: JsonObject) -> None:
        kafka = self._kafka_of(policy)
        nodes = kafka.tree._nodes
        for user in {path.removeprefix(USERS) for path in nodes if path.startswith(USERS)}:
            for key, text in config_of(nodes, user).items():
                self._foreign[kafka.name][user, key].add(text)

    def _kafka_of(self, policy: JsonObject) -> Kafka:
        name = policy["spec"]["kafka"]["zookeeper"]["connect"].partition("-zk")[0]
        return self._world.kafkas[name]

    def foreign_write(self, kafka: str, user: str, key: str, text: str | None) -> None:
        """Note what another writer set."""
        self.rules.disturbed(kafka)
        self._foreign[kafka][user, key].add(text)

    def _objects(self, where: str, kind: ResourceKind, policy: str) -> list[JsonObject]:
        return [
            raw
            for (of, _, _), raw in self._world.kubernetes[where]._objects.items()
            if of == kind
            and raw["spec"]["policyRef"]["name"] == policy
            and "deletionTimestamp" not in raw["metadata"]
        ]

    def _policy(self, where: str, name: str) -> JsonObject | None:
        return self._world.kubernetes[where]._objects.get(
            (BROKER_BANDWIDTH_POLICIES, NAMESPACE, name)
        )

    def wanted(
        self, where: str, name: str, leaders: Callable[[Iterable[str]], int], *, level: str = ""
    ) -> Rates:
        """The quotas as the tiers and overrides of a policy have them now."""
        found: Rates = {}
        now = self._world.scheduler.now + VirtualTime.EPOCH_SECONDS
        overrides = {
            raw["spec"]["target"]["user"]: raw["spec"]["rates"]["perBroker"]
            for raw in self._objects(where, QUOTA_OVERRIDES, name)
            if parse_moment(raw["spec"]["expiresAt"]) > now
        }
        for tier in self._objects(where, BUSINESS_TIERS, name):
            if level and tier["spec"]["level"] != level:
                continue
            for member in tier["spec"]["members"]:
                contract = member.get("contract", {"perBroker": {}})
                (form, rates), times = next(iter(contract.items())), 1
                if form == "perPartition":
                    times = leaders(member["topics"])
                quotas = {QUOTA_KEYS[key]: _bytes(text) * times for key, text in rates.items()}
                over = overrides.get(member["user"], {})
                quotas |= {QUOTA_KEYS[key]: _bytes(text) for key, text in over.items()}
                found[member["user"]] = quotas
        return found

    def _wanted_keys(self, where: str, name: str) -> dict[str, set[str]]:
        return {user: set(quotas) for user, quotas in self.wanted(where, name, lambda _: 1).items()}

    def _promised_to_l0(self, where: str, name: str) -> Rates:
        policy = self._policy(where, name)
        if policy is None or "deletionTimestamp" in policy["metadata"]:
            return {}
        return self.wanted(where, name, _fewest_leaders, level="L0")

    # --- at each transaction ------------------------------------------------------------------------

    def committed(
        self,
        kafka: Kafka,
        process: Process,
        writer: str,
        before: Nodes,
        after: Nodes,
        *,
        has_lease: bool,
    ) -> None:
        """Judge one transaction of the operator by the znodes before and after it.

        `has_lease`: its process knew that it had the Lease when it was sent.
        """
        changed = [
            path for path in before.keys() | after.keys() if before.get(path) is not after.get(path)
        ]
        changed.sort()
        for path in changed:
            is_parent = path in ("/", "/config/users", "/config/changes", "/config/clients")
            if not is_parent and not path.startswith(OURS):
                self._world.violated(
                    f"{process.name} changed {path}, which is none of its business"
                )
        users = [path.removeprefix(USERS) for path in changed if path.startswith(USERS)]
        has_ledger = any(path.startswith(LEDGER) for path in changed)
        policy = self._policy(process.where, writer.rpartition("/")[2])
        owner = self._owner.get(kafka.name)
        if (
            policy is not None
            and owner is not None
            and policy["metadata"]["uid"] != owner
            and self.rules.ledger_given_up(kafka.name)
        ):
            del self._owner[kafka.name]
        # records that are written back after an answer come before the claim
        is_rebuilt = CLAIM not in before and kafka.name in self.rules.answered
        if users and not has_lease:
            self._world.violated(f"{process.name} wrote quotas of {kafka.name} without its Lease")
        if users or (has_ledger and not is_rebuilt):
            self._judge_owner(kafka, process, writer, before)
        if CLAIM in before and CLAIM not in after:
            self._owner.pop(kafka.name, None)
        for user in users:
            self._judge_user(kafka, process, writer, user, before, after)
        changes = [change for user in users for change in _changes(user, before, after)]
        self.budgets.changed(kafka, changes)
        self.rules.judge(kafka, process, policy, changes, claim_of(before))
        self._judge_removals(kafka, process, writer, before, after)

    def _judge_owner(self, kafka: Kafka, process: Process, writer: str, before: Nodes) -> None:
        claim = claim_of(before)
        key, uid = claim.get("policy_key", ""), claim.get("policy_uid", "")
        if not writer.endswith(key) or not uid.startswith(process.where):
            self._world.violated(
                f"{process.name} ({writer}) wrote quotas of {kafka.name}, claimed by {key} with uid {uid or 'no one'}"
            )
        owner = self._owner.setdefault(kafka.name, uid)
        if owner != uid and (kafka.name, uid) in self._may_take_over:
            self._may_take_over.discard((kafka.name, uid))  # good once
            self._owner[kafka.name] = uid
        elif owner != uid:
            self._world.violated(
                f"quotas of {kafka.name} were written for policy uid {uid} while {owner} had not let go of them"
            )
            self._owner[kafka.name] = uid

    def _judge_user(
        self, kafka: Kafka, process: Process, writer: str, user: str, before: Nodes, after: Nodes
    ) -> None:
        was, now = config_of(before, user), config_of(after, user)
        raw, raw_after = data_of(before, user), data_of(after, user)
        if foreign_tokens(raw) != foreign_tokens(raw_after) or is_reordered(raw, raw_after):
            self._world.violated(
                f"{process.name} changed foreign bytes of {user}: {raw!r} -> {raw_after!r}"
            )
        records, records_before = entries_of(after, user), entries_of(before, user)
        for key in KEYS:
            old, new = was.get(key), now.get(key)
            if old == new:
                continue
            entry, left = records.get(key), records_before.get(key, {})
            if entry is None and new != left.get("before", "no record"):
                self._world.violated(f"{user} {key} {old} -> {new} without a ledger record")
            if entry is not None and entry["written"] != new:
                self._world.violated(f"{user} {key} is {new}, the ledger says {entry['written']}")
            is_throttled = entry is not None and "of_contract" in entry
            exposure = self._exposure(kafka, user, key, old, is_throttled)
            quota = claim_of(before).get("policy_uid", ""), user, key
            freed_at = self._freed.pop(quota, None)
            if new in (None, "0") and left:
                self._freed[quota] = self._world.scheduler.now
            elif old in (None, "0") and freed_at is not None:
                self._judge_return(process, writer, user, key, new, freed_at)
            if (
                not left and not is_throttled
            ):  # a writer that takes over what stands there knows nothing of before
                exposure = float(old or 0.0)
            self._remember(kafka, user, key, old, new)
            self._judge_mute(process, writer, user, key, old, new, exposure)
            self._judge_l0(process, writer, user, key, new=new, entry=entry)
            self._judge_calendar(process, writer, user, key, old=old, new=new, entry=entry)

    def _exposure(
        self, kafka: Kafka, user: str, key: str, old: str | None, is_throttled: bool
    ) -> float:
        """What a broker's window may hold: the quota in force, or for a throttle what was sent."""
        in_force = float(old or 0.0)
        load = self._world.loads.get(kafka.name)
        if load is None or not is_throttled:
            recent = self._changes[kafka.name, user, key] if self._has_true_clocks else ()
            since = self._world.scheduler.now - QuotaWindow().seconds
            return max([in_force, *(rate for at, rate in recent if at > since)])
        if self._world.scheduler.now - load.changed_at < 90.0:
            return 0.0  # no one could know it yet
        return min(in_force, load.exposure(user, key))

    def _remember(
        self, kafka: Kafka, user: str, key: str, old: str | None, new: str | None
    ) -> None:
        now, known = self._world.scheduler.now, self._changes[kafka.name, user, key]
        known[:] = [*known[-4:], *((now, int(text)) for text in (old, new) if text is not None)]

    def _judge_mute(
        self,
        process: Process,
        writer: str,
        user: str,
        key: str,
        old: str | None,
        new: str | None,
        exposure: float,
    ) -> None:
        if old is None or new is None or int(new) >= int(old) or exposure <= NO_MUTE_BELOW:
            return
        policy = self._policy(process.where, writer.rpartition("/")[2])
        allowed = 12.0
        if policy is not None:
            allowed = policy["spec"].get("escalation", {}).get("maxMuteSeconds", 12.0)
        predicted = predicted_mute_seconds(int(exposure), int(new), QuotaWindow())
        if predicted > allowed + 0.01:
            self._world.violated(
                f"{user} {key} {old} -> {new} may mute for {predicted:.1f} s, {allowed} s are allowed"
            )

    def _judge_return(
        self,
        process: Process,
        writer: str,
        user: str,
        key: str,
        new: str | None,
        freed_at: float,
    ) -> None:
        """Who was limited until lately, and is again, steps down from what no NIC exceeds."""
        since = self._world.scheduler.now - freed_at
        is_late = not self._has_true_clocks or since > REMOVAL_WINDOW_SECONDS - 120.0
        if new is None or is_late or self._world.loads:
            return
        policy = self._policy(process.where, writer.rpartition("/")[2])
        allowed = 12.0
        if policy is not None:
            allowed = policy["spec"].get("escalation", {}).get("maxMuteSeconds", 12.0)
        predicted = predicted_mute_seconds(FASTEST_NIC_BYTES_PER_SECOND, int(new), QuotaWindow())
        if predicted > allowed + 0.01:
            self._world.violated(
                f"{user} {key} was restored {since:.0f} s ago and gets {new}, which may mute for "
                f"{predicted:.1f} s, {allowed} s are allowed"
            )

    def _judge_calendar(
        self,
        process: Process,
        writer: str,
        user: str,
        key: str,
        *,
        old: str | None,
        new: str | None,
        entry: Any,
    ) -> None:
        """While an entry is in force, no quota of its levels is raised above the share."""
        name = writer.rpartition("/")[2]
        policy = self._policy(process.where, name)
        is_raise = None not in (old, new, entry) and int(new or 0) > int(old or 0)
        if policy is None or not is_raise or not self._has_true_clocks:
            return
        calendar = policy["spec"].get("escalation", {}).get("calendar", {"entries": ()})
        minute = self._world.scheduler.now / 60
        for one in calendar["entries"]:
            begin, end = (int(one[field][3:]) for field in ("from", "to"))
            if not begin <= minute < end - 0.5:  # a pass that is under way knew it in force
                continue
            for level, share in one["levels"].items():
                if user not in self.wanted(process.where, name, lambda _: 1, level=level):
                    continue
                allowed = int(share[:-1]) / 100 * entry.get("of_contract", inf)
                if int(new or 0) > max(LEAST_RATE, 1.04 * allowed) and "of_contract" in entry:
                    self._world.violated(
                        f"{user} {key} {old} -> {new} is more than {share} of {entry['of_contract']}"
                    )

    def _judge_l0(
        self, process: Process, writer: str, user: str, key: str, *, new: str | None, entry: Any
    ) -> None:
        if new is None or entry is None:
            return
        now = self._world.scheduler.now
        # before anything named it, nothing could be decided about it that is below a contract
        history = list(
            dropwhile(
                lambda state: key not in state[1].get(user, {}),
                self._l0[process.where, writer.rpartition("/")[2]],
            )
        )
        recent = [rates for at, rates in history if at >= now - KNOWN_SECONDS]
        older = [rates for at, rates in history if at < now - KNOWN_SECONDS]
        # an override ends by itself, without a change of any object
        known = [
            *older[-1:],
            *recent,
            self._promised_to_l0(process.where, writer.rpartition("/")[2]),
        ]
        if len(known) == 1 or not all(user in rates and key in rates[user] for rates in known):
            return
        least = min(rates[user][key] for rates in known)
        if int(new) < least:
            self._world.violated(
                f"{user} is of L0 and got {key} {new}, below its contract of {least}"
            )

    def _judge_removals(
        self, kafka: Kafka, process: Process, writer: str, before: Nodes, after: Nodes
    ) -> None:
        """A share of the quotas at most leaves within a quarter of an hour, as one loop can see."""
        name = writer.rpartition("/")[2]
        policy = self._policy(process.where, name)
        if policy is None or "deletionTimestamp" in policy["metadata"]:
            return
        now, loop = self._world.scheduler.now, self._world.scheduler.current
        if self._loop.get(kafka.name) is not loop:
            self._loop[kafka.name] = loop
            self._left[kafka.name].clear()
            self._managed[kafka.name].clear()
        managed = self._managed[kafka.name]
        managed += [(now, len(ledger_users(before))), (now, len(ledger_users(after)))]
        managed[:] = [one for one in managed if one[0] > now - REMOVAL_WINDOW_SECONDS]
        left = self._left[kafka.name]
        left[:] = [one for one in left if one[0] > now - REMOVAL_WINDOW_SECONDS]
        confirmed, staying = (
            self._confirmed[process.where, name],
            self._wanted_keys(process.where, name),
        )
        leaving = {
            user: _let_go(before, after, user, is_member=user in staying)
            for user in sorted(ledger_users(before))
        }
        gone = [user for user, quotas in leaving.items() if quotas - confirmed]
        for quotas in leaving.values():
            confirmed -= quotas  # good once
        left += [(now, user) for user in gone]
        percent = policy["spec"].get("removal", {}).get("maxPercent", 50)
        most = max(count for _, count in managed)
        unnamed = self._unnamed[process.where, name]
        for user, key, *_ in sorted(quota for quotas in leaving.values() for quota in quotas):
            since = now - unnamed.get((user, key), -GRACE_SECONDS)
            if since < GRACE_SECONDS - 1.0 and self._has_true_clocks:
                self._world.violated(
                    f"{user} {key} was restored {since:.0f} s after no object named it any more"
                )
        users = {user for _, user in left}
        if gone and len(users) * 100 > percent * most:
            self._world.violated(
                f"{len(users)} of {most} quotas of {kafka.name} were restored within a quarter of an hour, "
                f"{percent} % are allowed and no one confirmed it: {', '.join(sorted(users))}"
            )

    def confirm(self, where: str, name: str) -> bool:
        """Set the annotation that the message of Ready asks for; whether it asks."""
        policy = self._policy(where, name)
        if policy is None:
            return False
        message = _condition(policy, "Ready").get("message", "")
        asked = re.search(r"confirm-removal=(\S+) --overwrite", message)
        annotations = policy["metadata"].get("annotations") or {}
        if asked is None or annotations.get("tidegate.io/confirm-removal") == asked[1]:
            return False
        kafka = self._kafka_of(policy)
        self._left[kafka.name].clear()  # the message has named what left before
        nodes = kafka.tree._nodes
        for user in ledger_users(nodes):  # the value has a hash of some of these, as they are
            entries = entries_of(nodes, user)
            self._confirmed[where, name] |= {_written(user, key, entries[key]) for key in entries}
        self._annotate(where, policy, "tidegate.io/confirm-removal", asked[1])
        return True

    def answer_lost_ledger(self, where: str, name: str) -> None:
        """Let a person answer as the message of Ready advises, where the ledger was lost."""
        policy = self._policy(where, name)
        ready = _condition(policy, "Ready") if policy is not None else {}
        asked = re.search(r"`tidegate ledger (rebuild|accept) ", ready.get("message", ""))
        if policy is None or ready.get("reason") != "LedgerLost" or asked is None:
            return
        epoch = policy["status"]["ledger"]["epoch"]
        kafka = self._kafka_of(policy).name
        self.rules.ledger_answered(kafka)
        if asked[1] == "accept":  # what was there before is not known any more, so it is removed
            for texts in self._foreign[kafka].values():
                texts.add(None)
        self._annotate(where, policy, "tidegate.io/lost-ledger", f"{asked[1]}@{epoch}")

    def run_named_commands(self, where: str, name: str) -> None:
        """Let a person run what Events say of quotas that a lost ledger may leave, once each.

        Only for a quota as the Event names it, that no contract names, that is in no ledger, and
        that nobody else set: the person knows all that.
        """
        kafka = next(
            self._world.kafkas[plan.kafka]
            for plan in self._world.plan.policies
            if plan.name == name
        )
        nodes, policy = kafka.tree._nodes, self._policy(where, name)
        wanted = {} if policy is None else self._wanted_keys(where, name)
        for event in self._world.kubernetes[where].events:
            if event.reason != "LedgerLost" or event.regarding.name != name:
                continue
            for command in _COMMAND.finditer(event.note):
                key, text, user = command["key"], command["text"], command["user"]
                if (
                    config_of(nodes, user).get(key) == text
                    and text not in self._foreign[kafka.name][user, key]
                    and key not in entries_of(nodes, user)
                    and key not in wanted.get(user, ())
                    and (where, command[0]) not in self._run_commands
                ):
                    self._run_commands.add((where, command[0]))
                    self._world.note(f"a person runs: {command[0]}")
                    kafka.store.put(Entity(user), {QuotaKey(key): command["before"]})
                    self.foreign_write(kafka.name, user, key, command["before"])

    def replace_claim(self, where: str, name: str) -> None:
        """Let a person name the claim that is replaced, where the message of Ready asks for it."""
        policy = self._policy(where, name)
        message = _condition(policy, "Ready").get("message", "") if policy is not None else ""
        asked = re.search(r"replace-claim=(\S+) --overwrite", message)
        if policy is not None and asked is not None:
            self._may_take_over.add((self._kafka_of(policy).name, policy["metadata"]["uid"]))
            self._annotate(where, policy, "tidegate.io/replace-claim", asked[1])

    def _annotate(self, where: str, policy: JsonObject, name: str, value: str) -> None:
        def change(raw: JsonObject) -> None:
            raw["metadata"].setdefault("annotations", {})[name] = value

        self._world.kubernetes[where].edit(ObjectRef.of(BROKER_BANDWIDTH_POLICIES, policy), change)

    # --- when the weather is fair again -------------------------------------------------------------

    def problems(self) -> list[str]:
        """What is not as it should be in the end; empty = all is well."""
        return [
            *(
                problem
                for kafka in self._world.kafkas.values()
                for problem in self._problems_of(kafka)
            ),
            *(problem for moves in self._world.moves.values() for problem in moves.problems()),
        ]

    def _problems_of(self, kafka: Kafka) -> Iterable[str]:
        world, nodes = self._world, kafka.tree._nodes
        name = next(plan.name for plan in world.plan.policies if plan.kafka == kafka.name)
        living: dict[str, str] = {}
        for where in world.kubernetes:
            policy = self._policy(where, name)
            if policy is None:
                continue
            if "deletionTimestamp" in policy["metadata"]:
                yield f"policy {name} in {where} is deleted and does not go"
            living[policy["metadata"]["uid"]] = where
        claim = claim_of(nodes)
        owner = living.get(claim.get("policy_uid", ""))
        if living and owner is None:
            yield f"{kafka.name} is claimed by {claim.get('policy_uid', 'no one')}, and {sorted(living)} exist"
            return
        if not living and claim:
            yield f"the claim of {claim['policy_uid']} on {kafka.name} is left, and its policy is gone"
        rates = self.wanted(owner, name, kafka.largest_leaders) if owner is not None else {}
        yield from self._wrong_quotas(kafka, rates, has_policy=owner is not None)
        for where in living.values():
            yield from self._wrong_status(where, name, rates if where == owner else None)

    def _wrong_quotas(self, kafka: Kafka, rates: Rates, *, has_policy: bool) -> Iterable[str]:
        nodes = kafka.tree._nodes
        users = {path.removeprefix(USERS) for path in nodes if path.startswith(USERS)}
        for user in sorted(users | ledger_users(nodes) | rates.keys()):
            config, entries = config_of(nodes, user), entries_of(nodes, user)
            for key in sorted(KEYS):
                text, rate = config.get(key), rates.get(user, {}).get(key)
                if rate is not None and (text != str(rate) or key not in entries):
                    yield f"{kafka.name}: {user} {key} is {text}, its contract is {rate}"
                if rate is None and key in entries:
                    yield f"{kafka.name}: the ledger still has {user} {key}"
                if rate is None and text not in self._foreign[kafka.name][user, key]:
                    yield f"{kafka.name}: {user} {key} is {text}, which no one but the operator wrote"
        for user in sorted(record_users(nodes)):
            memories = [one for one in record_of(nodes, user).values() if _is_memory(one)]
            if not entries_of(nodes, user) and not memories:
                yield f"{kafka.name}: an empty ledger record of {user} is left"
            oldest = self._world.scheduler.now - REMOVAL_WINDOW_SECONDS - 120.0
            late = [one for one in memories if one["written_at_seconds"] < oldest]
            if late and self._has_true_clocks and has_policy:
                yield f"{kafka.name}: the ledger remembers {user} for longer than a quarter of an hour"
            if memories and not has_policy:
                yield f"{kafka.name}: the ledger remembers {user}, and its policy is gone"

    def _wrong_status(self, where: str, name: str, rates: Rates | None) -> Iterable[str]:
        policy = self._policy(where, name)
        if policy is None or "deletionTimestamp" in policy["metadata"]:
            return
        ready = _condition(policy, "Ready")
        if rates is None:
            if (ready.get("status"), ready.get("reason")) != ("False", "ClaimedElsewhere"):
                yield f"policy {name} in {where} does not own its Kafka cluster, and is Ready={ready}"
            return
        tiers = self._objects(where, BUSINESS_TIERS, name)
        if ready.get("status") != "True" and tiers:
            yield f"policy {name} in {where} is Ready={ready.get('status')}: {ready.get('message')}"
        for raw in (policy, *tiers):
            if (raw.get("status") or {}).get("observedGeneration") != raw["metadata"]["generation"]:
                yield f"the status of {raw['metadata']['name']} in {where} is of an older spec"
        for tier in tiers:
            for shown in (tier.get("status") or {}).get("members") or ():
                quota = {QUOTA_KEYS[key]: rate for key, rate in (shown.get("quota") or {}).items()}
                if quota != rates.get(shown["name"]):
                    yield f"the status in {where} says {shown['name']} has {quota}, Kafka has {rates.get(shown['name'])}"


def _changes(user: str, before: Nodes, after: Nodes) -> list[Change]:
    """The quotas of the user that a transaction changed."""
    was, now = config_of(before, user), config_of(after, user)
    left, records = entries_of(before, user), entries_of(after, user)
    return [
        Change(user, key, was.get(key), now.get(key), left.get(key, {}), records.get(key, {}))
        for key in sorted(KEYS)
        if was.get(key) != now.get(key)
    ]


def _let_go(before: Nodes, after: Nodes, user: str, *, is_member: bool) -> set[Written]:
    """The quotas of the user that begin to be restored.

    A throttle that ends takes nothing away from one who stays a member: it may be without contract.
    """
    was, now = entries_of(before, user), entries_of(after, user)
    return {
        _written(user, key, entry)
        for key, entry in was.items()
        if entry["reason"] != "GivenBack"
        and not is_override_only(entry["basis"])
        and not (is_member and "of_contract" in entry)
        and now.get(key, {"reason": "GivenBack"})["reason"] == "GivenBack"
    }


def _written(user: str, key: str, entry: JsonObject) -> Written:
    return user, key, entry["written"], entry["written_at_seconds"]


def _fewest_leaders(topics: Iterable[str]) -> int:
    return -(-sum(TOPICS[topic] for topic in topics) // len(BROKERS))


def _bytes(text: str) -> int:
    return int(text.removesuffix("M")) * MB


def _condition(raw: JsonObject, kind: str) -> JsonObject:
    conditions = (raw.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] == kind), {})
