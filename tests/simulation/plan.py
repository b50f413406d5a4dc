"""A bad day as a value: what is installed, what people do, and what goes wrong, all from a seed.

Nothing here runs. A run plays a plan; the plan with one act less is another run, by which a failing
day is made smaller.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tidegate_logic.replication.throttles import (
    FOLLOWER_LIST,
    FOLLOWER_RATE,
    LEADER_LIST,
    LEADER_RATE,
    ConfigChange,
    Operation,
    broker_resource,
    topic_resource,
)

USERS = (
    "alice",
    "bob",
    "carol",
    "dave",
    "erin",
    "frank",
    "grace",
    "heidi",
    "ivan",
    "judy",
    "ken",
    "lea",
)
TOPICS = {"acc": 4, "pay": 6}
KEYS = ("fetch", "produce")
TEAMS = ("search", "shop")
BROKERS = (1, 2, 3)
NAMESPACE = "streaming"
LEVELS = ("L0", "L0", "L1", "L2", "L3")
CALENDARS = (("L3",), ("L3",), ("L2", "L3"), ("L1",))
MB = 1_000_000


@dataclass(frozen=True)
class Act:
    """One thing that happens, `at` seconds after the begin. `is_fault`: no one wants it."""

    at: float
    kind: str
    args: dict[str, Any] = field(default_factory=dict)
    is_fault: bool = False

    def __str__(self) -> str:
        shown = " ".join(f"{name}={value}" for name, value in self.args.items())
        return f"{self.at:7.1f} s  {self.kind} {shown}"


@dataclass(frozen=True)
class Size:
    """Out of what a day is drawn: what is installed, what people do, and what goes wrong."""

    second_kubernetes: float
    replicas: tuple[int, ...]
    replicas_beside: tuple[int, ...]  # where a second Kubernetes cluster has as many
    policies: tuple[int, ...]
    users: tuple[int, ...]
    tiers: tuple[int, ...]
    levels: tuple[str, ...]
    metrics: float
    storm_seconds: tuple[float, ...]
    poll_seconds: tuple[float, ...]
    latency_seconds: tuple[float, ...]
    edits: int
    edits_beside: int
    faults: tuple[int, ...]
    fault_seconds: tuple[float, ...]
    call_seconds: tuple[float, ...]
    megabytes: tuple[int, int]  # the least and the most of a contract
    megabytes_before: tuple[int, int]
    tiny_before: float  # so small a quota that it takes ten steps to give it back
    tight_budget: float  # how often it is of ten changes
    budget_seconds: tuple[int, ...]
    scrape_seconds: tuple[int, ...]
    again_seconds: tuple[float, ...]  # until a person does once more what a person undid
    mistake_seconds: tuple[float, ...]  # between a confirmed removal and the one by mistake


FULL = Size(
    second_kubernetes=0.25,
    replicas=(1, 1, 2, 2, 3),
    replicas_beside=(1, 1, 2),
    policies=(1, 1, 1, 1, 1, 1, 2, 3),
    users=(2, 4, 4, 6, 12),
    tiers=(2, 4, 10),
    levels=LEVELS,
    metrics=0.35,
    storm_seconds=(20.0, 30.0, 45.0, 60.0, 120.0, 400.0),
    poll_seconds=(20.0, 40.0, 60.0),
    latency_seconds=(0.0, 0.002, 0.02, 0.1),
    edits=5,
    edits_beside=4,
    faults=(0, 1, 2, 4, 6, 9),
    fault_seconds=(1.0, 5.0, 15.0, 60.0),
    call_seconds=(0.5, 3.0, 9.0, 30.0),
    megabytes=(1, 40),
    megabytes_before=(1, 100),
    tiny_before=0.2,
    tight_budget=0.3,
    budget_seconds=(60, 600, 900),
    scrape_seconds=(10, 15, 30),
    again_seconds=(1.0, 30.0, 120.0),
    mistake_seconds=(60.0, 120.0),
)
SHORT = Size(
    second_kubernetes=0.15,
    replicas=(1, 1, 1, 1, 2),
    replicas_beside=(1,),
    policies=(1,) * 15 + (2,),
    users=(2,) * 14 + (4,) * 5 + (12,),
    tiers=(1, 2, 2),
    levels=LEVELS,
    metrics=0.1,
    storm_seconds=(10.0, 15.0, 20.0, 25.0),
    poll_seconds=(60.0,),
    latency_seconds=(0.0, 0.002, 0.02),
    edits=2,
    edits_beside=1,
    faults=(1, 1, 2, 3),
    fault_seconds=(1.0, 5.0, 15.0),
    call_seconds=(0.5, 3.0, 9.0),
    megabytes=(4, 16),
    megabytes_before=(4, 32),
    tiny_before=0.02,
    tight_budget=0.3,
    budget_seconds=(60,),
    scrape_seconds=(15, 30),
    again_seconds=(1.0, 15.0),
    mistake_seconds=(50.0,),
)
# ten to twenty minutes of steady overload: throttles begin, go down their ladders and come back
OVERLOAD = replace(
    FULL,
    second_kubernetes=0.0,
    replicas=(1, 1, 2),
    policies=(1,),
    users=(6, 8, 12),
    tiers=(3, 4),
    metrics=1.0,
    storm_seconds=(600.0, 800.0, 1200.0),
    poll_seconds=(60.0,),
    latency_seconds=(0.002, 0.02),
    edits=1,
    faults=(0, 1, 2),
    fault_seconds=(5.0, 15.0),
    megabytes=(4, 40),
    tiny_before=0.0,
    tight_budget=0.7,
    budget_seconds=(600,),
    scrape_seconds=(15, 15, 30),
)
# twenty minutes in which members share budgets: people change who shares what, then all stays
SHARED = replace(
    OVERLOAD,
    users=(4, 6, 8),
    tiers=(2, 3),
    levels=("L0", "L1", "L2", "L3", "L3"),
    storm_seconds=(900.0, 1100.0),
    faults=(0, 0, 1, 2),
    tight_budget=0.15,
)
FULL_DAYS = 0.05
OVERLOAD_DAYS = 0.04
SHARED_DAYS = 0.04
DAYS_WITH_BUDGETS = 0.3  # of the others in which load is measured
CALM_SECONDS = 500.0  # at the end of a shared day
DAYS_WITH_MOVES = 0.25
DAYS_WITH_A_CALENDAR = 0.4  # of those in which load is measured
DAYS_WITH_A_TAKEOVER = 0.02
DAYS_WITH_DEPARTURES = 0.02


@dataclass(frozen=True)
class PolicyPlan:
    """One policy, the same in every Kubernetes cluster, with its tiers."""

    name: str
    kafka: str
    spec: dict[str, Any]
    tiers: dict[str, dict[str, Any]]
    budgets: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """All of one day. `before` are quotas from before the operator, by Kafka cluster and user."""

    seed: int
    clusters: tuple[str, ...]
    replicas: int
    policies: tuple[PolicyPlan, ...]
    before: dict[str, dict[str, dict[str, int]]]
    latency_seconds: float
    poll_seconds: float
    relist_seconds: float
    storm_seconds: float
    has_login: bool
    has_audit: bool
    acts: tuple[Act, ...]
    deletes_namespace: bool = False
    size: Size = FULL

    def without(self, dropped: Collection[int]) -> Plan:
        """The same day without the acts of these numbers."""
        kept = tuple(act for number, act in enumerate(self.acts) if number not in dropped)
        return replace(self, acts=kept)

    @property
    def slots(self) -> list[str]:
        """The places of operator processes: `blue-1` is the first replica in Kubernetes blue."""
        return [f"{name}-{n + 1}" for name in self.clusters for n in range(self.replicas)]


def contract(size: Size, random: Random) -> dict[str, Any]:
    """A contract with one direction or both."""
    names = random.choice((("fetch",), ("produce",), KEYS))
    rates = {name: f"{random.randint(*size.megabytes)}M" for name in names}
    return {random.choice(("perBroker", "perPartition")): rates}


def member(user: str, size: Size, random: Random) -> dict[str, Any]:
    topics = random.choice((["acc"], ["pay"], ["acc", "pay"]))
    return {"name": user, "user": user, "topics": topics, "contract": contract(size, random)}


def tier(
    policy: str, users: Collection[str], level: str, size: Size, random: Random
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "policyRef": {"name": policy},
        "level": level,
        "members": [member(user, size, random) for user in users],
    }
    if level != "L0":
        spec["throttledRates"] = {"perBroker": {"fetch": "200k", "produce": "200k"}}
    return spec


def plan_of(seed: int, *, with_namespaces: bool = False) -> Plan:
    """The day of this seed: a short one, or once in twenty times a full one.

    What goes wrong mostly takes few people, one replica and half a minute; a day with more of each
    costs as much as some short ones, and is drawn for what does not.
    """
    random = Random(f"bad day {seed}")
    size = FULL if random.random() < FULL_DAYS else SHORT
    overloaded, shared = Random(f"overload {seed}"), Random(f"shared {seed}")
    if shared.random() < SHARED_DAYS and size is SHORT:
        size = SHARED
    if overloaded.random() < OVERLOAD_DAYS:
        size = OVERLOAD
    clusters = ("blue", "green") if random.random() < size.second_kubernetes else ("blue",)
    replicas = random.choice(size.replicas if len(clusters) == 1 else size.replicas_beside)
    names = ("orders", "ledger", "audit")[: random.choice(size.policies)]
    policies = tuple(
        _policy(name, f"kafka-{number}", size, random) for number, name in enumerate(names)
    )
    storm_seconds = random.choice(size.storm_seconds)
    plan = Plan(
        seed=seed,
        clusters=clusters,
        replicas=replicas,
        policies=policies,
        before={policy.kafka: _before(policy, size, random) for policy in policies},
        latency_seconds=random.choice(size.latency_seconds),
        poll_seconds=random.choice(size.poll_seconds),
        relist_seconds=random.choice((60.0, 300.0)),
        storm_seconds=storm_seconds,
        has_login=random.random() < 0.3,
        has_audit=random.random() < 0.2,
        acts=(),
        deletes_namespace=with_namespaces and random.random() < 0.25,
        size=size,
    )
    if size is SHARED or Random(f"has budgets {seed}").random() < DAYS_WITH_BUDGETS:
        plan = _with_budgets(plan, Random(f"budgets {seed}"))
    if size is OVERLOAD:
        acts = _overload(plan, overloaded)
    elif size is SHARED:
        acts = _shared(plan, shared)
        plan, moves = _with_moves(plan, Random(f"moves {seed}"))
        acts += moves
    else:
        plan, departures = _with_departures(plan, Random(f"departures {seed}"))
        acts = [*_people(plan, random), *_weather(plan, random), *departures]
        acts += _policy_edits(plan, acts, Random(f"policy edits {seed}"))
        plan, moves = _with_moves(plan, Random(f"moves {seed}"))
        acts += moves
    acts += _budget_edits(plan, Random(f"budget edits {seed}"))
    plan = _with_calendar(plan, Random(f"calendar {seed}"))
    acts += _meddling(plan, Random(f"meddling {seed}"))
    plan, takeover = _with_takeover(plan, Random(f"takeover {seed}"))
    acts += takeover
    acts += _lost_ledger(plan, Random(f"lost ledger {seed}"))
    return replace(
        plan,
        acts=tuple(sorted(acts, key=lambda act: act.at)),
        # with the namespace go the Secrets, which another replica has never read (known limits)
        deletes_namespace=plan.deletes_namespace and not plan.has_login,
    )


def _policy(name: str, kafka: str, size: Size, random: Random) -> PolicyPlan:
    users = list(USERS[: random.choice(size.users)])
    random.shuffle(users)
    count = random.randint(1, min(len(users), random.choice(size.tiers)))
    tiers = {}
    for number in range(count):
        share = users[number::count]
        tiers[f"{name}-tier-{number}"] = tier(name, share, random.choice(size.levels), size, random)
    spec: dict[str, Any] = {"mode": "Enforce"}
    if random.random() < size.tight_budget:
        spec["writeBudget"] = {"changes": 10, "periodSeconds": random.choice(size.budget_seconds)}
    if random.random() < 0.5:
        spec["removal"] = {"maxPercent": random.choice((20, 50, 100, 100))}
    if random.random() < 0.2:
        spec["escalation"] = {"maxMuteSeconds": random.choice((4, 30))}
    if random.random() < 0.15:
        spec["deletionPolicy"] = "Retain"
    if random.random() < size.metrics:
        url = f"http://{kafka}-prometheus:9090"
        spec["metrics"] = {
            "prometheus": {"url": url},
            "scrapeIntervalSeconds": random.choice(size.scrape_seconds),
        }
        spec["brokers"] = {
            way: {"limit": f"{random.choice((30, 60, 120))}M"} for way in ("egress", "ingress")
        }
        spec["escalation"] = {**spec.get("escalation", {}), "holdSeconds": random.choice((5, 45))}
    return PolicyPlan(name, kafka, spec, tiers)


def _before(policy: PolicyPlan, size: Size, random: Random) -> dict[str, dict[str, int]]:
    """Quotas that stand there before the operator; none ends in 000, as all of ours do."""
    share = random.choice((0.0, 0.2, 0.6))
    found = {
        user: {name: _rate_before(size, random) for name in KEYS if random.random() < 0.6}
        for user in (*USERS, "zoe")
        if random.random() < share
    }
    if policy.spec.get("writeBudget", {}).get("periodSeconds", 60) > 60:
        # a dozen steps of a dozen users, ten in a quarter of an hour, would take a day
        return {
            user: {name: max(rate, MB + 7) for name, rate in quotas.items()}
            for user, quotas in found.items()
        }
    return found


def _rate_before(size: Size, random: Random) -> int:
    """Now and then so small that giving it back takes more than ten steps."""
    return (
        random.choice((1, 2, 50)) * 1000 + 7
        if random.random() < size.tiny_before
        else random.randint(*size.megabytes_before) * MB + 7
    )


# --- what people do -------------------------------------------------------------------------------


def _people(plan: Plan, random: Random) -> list[Act]:
    acts = []
    for _ in range(
        random.randint(0, plan.size.edits) + plan.size.edits_beside * (len(plan.clusters) - 1)
    ):
        acts.append(_edit(plan, random, random.uniform(5.0, plan.storm_seconds)))
    for measured in (one for one in plan.policies if "metrics" in one.spec):
        for _ in range(random.randint(1, 3)):
            args = {"kafka": measured.kafka, "factor": random.choice((0.1, 0.5, 1.0, 3.0))}
            args["other"] = random.choice((0.0, 0.0, 20e6))
            acts.append(Act(random.uniform(0.0, plan.storm_seconds / 2), "load", args))
    policy = random.choice(plan.policies)
    where = random.choice(plan.clusters)
    chance = random.random()
    if chance < 0.15:  # somebody deletes all tiers, one after the other
        at, step = random.uniform(20.0, plan.storm_seconds), random.choice((0.5, 5.0, 30.0))
        for name in policy.tiers:
            acts.append(Act(at, "delete tier", {"where": where, "tier": name}))
            at += step
    elif chance < 0.35:
        at = random.uniform(10.0, plan.storm_seconds)
        acts.append(Act(at, "delete policy", {"where": where, "policy": policy.name}))
        if random.random() < 0.5:
            again = at + random.choice(plan.size.again_seconds)
            acts.append(Act(again, "create policy", {"where": where, "policy": policy.name}))
    elif chance < 0.45:  # the same removal twice, confirmed by a person the first time
        acts += _confirmed_removals(policy, where, plan.size, random)
    if len(plan.clusters) > 1 and random.random() < 0.3:
        at = random.uniform(20.0, plan.storm_seconds)
        acts.append(Act(at, "replace claim", {"where": where, "policy": policy.name}))
    if random.random() < 0.3:
        at = random.uniform(5.0, plan.storm_seconds)
        acts.append(Act(at, "confirm removal", {"where": where, "policy": policy.name}))
    return acts


def _with_departures(plan: Plan, random: Random) -> tuple[Plan, list[Act]]:
    """Six tiers of one member each, of which four go one by one, each when the last one is gone.

    A step takes little away; only all of them together are more than may leave unconfirmed.
    """
    if random.random() >= DAYS_WITH_DEPARTURES:
        return plan, []
    (first, *rest), where = plan.policies, random.choice(plan.clusters)
    tiers = {
        f"{first.name}-tier-{number}": tier(first.name, [user], "L1", plan.size, random)
        for number, user in enumerate(USERS[:6])
    }
    spec = {**first.spec, "removal": {"maxPercent": 50}}
    spec.pop("writeBudget", None)
    plan = replace(plan, policies=(replace(first, spec=spec, tiers=tiers), *rest))
    at = random.uniform(5.0, 20.0)
    return plan, [
        Act(at + 45.0 * number, "delete tier", {"where": where, "tier": name})
        for number, name in enumerate(sorted(tiers)[:4])
    ]


def _with_calendar(plan: Plan, random: Random) -> Plan:
    """Entries that begin and end within minutes of midnight UTC, when every day begins."""
    if random.random() >= DAYS_WITH_A_CALENDAR:
        return plan

    def entry() -> dict[str, Any]:
        begin = random.randint(1, 5)
        shares = {level: f"{random.choice((5, 20, 60))}%" for level in random.choice(CALENDARS)}
        end = begin + random.randint(1, 8)
        return {"from": f"00:{begin:02}", "to": f"00:{end:02}", "levels": shares}

    def with_entries(spec: dict[str, Any]) -> dict[str, Any]:
        entries = [entry() for _ in range(random.randint(1, 2))]
        escalation = {**spec.get("escalation", {}), "calendar": {"entries": entries}}
        return {**spec, "escalation": escalation} if "metrics" in spec else spec

    policies = tuple(replace(one, spec=with_entries(one.spec)) for one in plan.policies)
    return replace(plan, policies=policies)


def _policy_edits(plan: Plan, acts: list[Act], random: Random) -> list[Act]:
    """Other limits in the middle of an episode, and a freeze that ends again.

    A policy that is deleted while it is frozen leaves everything as it is, so that is not played.
    """
    policy, where = random.choice(plan.policies), random.choice(plan.clusters)
    at, edits = random.uniform(5.0, plan.storm_seconds), []
    args: dict[str, Any] = {"where": where, "policy": policy.name}
    if "brokers" in policy.spec and random.random() < 0.5:
        edits.append(Act(at, "edit limit", {**args, "limit": f"{random.choice((20, 200))}M"}))
    if random.random() < 0.15 and all(act.kind != "delete policy" for act in acts):
        kind = random.choice(("suspend", "observe"))
        edits.append(Act(at, kind, {**args, "seconds": random.choice((5.0, 40.0))}))
    return edits


def _with_moves(plan: Plan, random: Random) -> tuple[Plan, list[Act]]:
    """Replication under throttles of one policy, in some days: moves, and others who throttle."""
    if random.random() >= DAYS_WITH_MOVES:
        return plan, []
    chosen, where = random.choice(plan.policies), random.choice(plan.clusters)
    spec = {**chosen.spec, "replication": _replication(chosen, random)}
    policies = [replace(chosen, spec=spec) if one is chosen else one for one in plan.policies]
    acts, kafka = [], {"kafka": chosen.kafka}

    def happens(kind: str, **args: Any) -> None:
        acts.append(Act(random.uniform(1.0, plan.storm_seconds), kind, {**kafka, **args}))

    for _ in range(random.randint(1, 4)):
        leader, new = random.sample(BROKERS, 2)
        size = {"leader": leader, "new": new, "megabytes": random.choice((50, 400, 4000))}
        happens("move", is_move=random.random() < 0.7, **size)
    if random.random() < 0.3:
        happens("cancel moves")
    for _ in range(random.choice((0, 0, 1, 2))):
        happens("throttle by others", change=_change_by_others(random))
    if random.random() < 0.2:
        later = random.choice((None, _replication(chosen, random)))
        args = {"where": where, "policy": chosen.name, "replication": later}
        acts.append(Act(random.uniform(5.0, plan.storm_seconds), "edit replication", args))
    return replace(plan, policies=tuple(policies)), acts


def _replication(policy: PolicyPlan, random: Random) -> dict[str, Any]:
    """`spec.replication`; Follow only where load is measured."""
    fixed = {"mode": "Fixed", "rate": {"max": f"{random.choice((5, 40))}M"}}
    if "metrics" not in policy.spec or random.random() < 0.3:
        return {"reassignments": fixed}
    follow = {"mode": "Follow", "rate": {"min": f"{random.choice((1, 10))}M"}}
    return {"reassignments": random.choice((fixed, follow)), "recovery": follow}


def _change_by_others(random: Random) -> ConfigChange:
    """A rate that ends as none of ours does, or a replica that no move of ours has."""
    broker = broker_resource(random.choice(BROKERS))
    if random.random() < 0.5:
        rate = str(random.randint(10**7, 10**8) * 10 + 7)
        return ConfigChange(
            broker, random.choice((LEADER_RATE, FOLLOWER_RATE)), Operation.SET, rate
        )
    item = f"900:{random.choice(BROKERS)}"
    lists = random.choice((LEADER_LIST, FOLLOWER_LIST))
    return ConfigChange(topic_resource("moved"), lists, Operation.APPEND, item)


def _confirmed_removals(policy: PolicyPlan, where: str, size: Size, random: Random) -> list[Act]:
    """All tiers go, a person confirms that, they come back, and go again by mistake."""
    acts, at = [], 20.0
    for _ in range(2):
        for name in policy.tiers:
            acts.append(Act(at, "delete tier", {"where": where, "tier": name}))
        acts.append(
            Act(at + 5.0, "confirm removal", {"where": where, "policy": policy.name, "once": True})
        )
        for name in policy.tiers:
            acts.append(
                Act(at + 40.0, "create tier", {"where": where, "tier": name, "policy": policy.name})
            )
        at += random.choice(size.mistake_seconds)
    return acts


def _edit(plan: Plan, random: Random, at: float) -> Act:
    policy, where = random.choice(plan.policies), random.choice(plan.clusters)
    name = random.choice(list(policy.tiers))
    user = random.choice(policy.tiers[name]["members"])["user"]
    kind = random.choice(
        ("edit contract",) * 4
        + (
            "delete tier",
            "create tier",
            "delete member",
            "create override",
            "delete override",
            "touch tier",
        )
    )
    args: dict[str, Any] = {"where": where, "tier": name, "policy": policy.name}
    if kind in ("edit contract", "delete member", "create override"):
        args["user"] = user
    if kind == "edit contract":
        args["contract"] = contract(plan.size, random)
    if kind == "create override":
        args["rates"] = f"{random.randint(1, 60)}M"
        args["lasts"] = random.choice((30.0, 90.0, 600.0))
    return Act(at, kind, args)


def _overload(plan: Plan, random: Random) -> list[Act]:
    """More than the limit from the first minute on, then some room, and what may go wrong with it.

    The load does not change otherwise, so that what goes over a limit later is our own doing.
    """
    (policy,), where = plan.policies, plan.clusters[0]
    kafka, frozen_at = {"kafka": policy.kafka}, random.uniform(60.0, 300.0)
    limit = float(policy.spec["brokers"]["egress"]["limit"].removesuffix("M")) * 1e6
    much, little = random.choice((1.0, 0.5, 0.2)) * limit, random.choice((0.0, 0.3, 0.5)) * limit
    little = min(much, little)
    factor, last = random.choice((1.0, 1.0, 3.0)), plan.storm_seconds
    acts = [
        Act(random.uniform(1.0, 20.0), "load", {**kafka, "factor": factor, "other": much}),
        Act(random.uniform(200.0, 400.0), "load", {**kafka, "factor": factor, "other": little}),
    ]
    args = {"where": where, "policy": policy.name}
    if random.random() < 0.4:  # a limit that is lowered while no sample comes
        acts.append(Act(frozen_at, "frozen samples", {**kafka, "seconds": 280.0}, is_fault=True))
        acts.append(Act(frozen_at + 150.0, "edit limit", {**args, "limit": "20M"}))
    if random.random() < 0.4:  # a freeze, and what would be written but for it
        at = random.uniform(60.0, last - 200.0)
        name, spec = random.choice(sorted(policy.tiers.items()))
        edit = {"user": spec["members"][0]["user"], "contract": contract(plan.size, random)}
        acts.append(Act(at, "suspend", {**args, "seconds": 180.0}))
        acts.append(Act(at + 90.0, "edit contract", {"where": where, "tier": name, **edit}))
    acts += [
        _fault(plan, random, random.uniform(0.0, last)) for _ in range(random.choice((0, 1, 2)))
    ]
    return acts


# --- budgets --------------------------------------------------------------------------------------


def _with_budgets(plan: Plan, random: Random) -> Plan:
    """Members of two teams, a budget for each, and mostly one above both.

    In a shared day, some members have no contract: only the budget limits them.
    """

    def shared(member: dict[str, Any]) -> dict[str, Any]:
        member = {**member, "labels": {"team": random.choice(TEAMS)}}
        if plan.size is SHARED and random.random() < 0.2:
            del member["contract"]
        return member

    def with_budgets(policy: PolicyPlan) -> PolicyPlan:
        tiers = {
            name: {**spec, "members": [shared(member) for member in spec["members"]]}
            for name, spec in policy.tiers.items()
        }
        named = "" if policy is plan.policies[0] else f"{policy.name}-"
        above = random.choice((None, f"{named}retail", f"{named}retail"))
        budgets = {
            f"{named}{team}": _budget(
                policy.name, random, {"selector": {"matchLabels": {"team": team}}}, parent=above
            )
            for team in TEAMS
        }
        if random.random() < 0.3:  # whose members are in a budget of their team, too
            budgets[f"{named}all"] = _budget(policy.name, random, {"tiers": sorted(tiers)[:1]})
        if above is not None:
            budgets[above] = _budget(policy.name, random)
        return replace(policy, tiers=tiers, budgets=budgets)

    measured = [with_budgets(one) if "metrics" in one.spec else one for one in plan.policies]
    return replace(plan, policies=tuple(measured))


def _budget(
    policy: str,
    random: Random,
    members: dict[str, Any] | None = None,
    parent: str | None = None,
) -> dict[str, Any]:
    names = random.choice((("fetch",), KEYS, KEYS))
    spec: dict[str, Any] = {"policyRef": {"name": policy}, "total": _total(names, random)}
    if members is not None:
        spec["members"] = members
        percent, weight = random.choice((0, 5, 10, 20)), random.choice((1, 1, 3))
        spec["share"] = {"minimumPercent": percent, "weight": weight}
    if parent is not None:
        spec["parent"] = {"name": parent}
    return spec


def _total(names: Collection[str], random: Random) -> dict[str, Any]:
    return {name: f"{random.choice((20, 40, 80, 120))}M" for name in names}


def _budget_edits(plan: Plan, random: Random) -> list[Act]:
    """What people do to budgets, at times in the middle of a division or just before a kill."""
    last = plan.storm_seconds - (CALM_SECONDS if plan.size is SHARED else 0.0)
    acts: list[Act] = []
    for policy in (one for one in plan.policies if one.budgets):
        where, args = random.choice(plan.clusters), {"policy": policy.name}
        for _ in range(random.randint(0, 4 if plan.size is SHARED else 2)):
            at, name = random.uniform(5.0, last), random.choice(sorted(policy.budgets))
            kind = random.choice(
                (
                    *("edit budget", "edit budget", "reparent budget", "delete budget"),
                    *("create budget", "rename budget", "lose labels"),
                )
            )
            what: dict[str, Any] = {} if kind == "lose labels" else {"budget": name}
            if kind == "edit budget":
                what["total"] = _total(policy.budgets[name]["total"], random)
            if kind == "reparent budget":
                what["parent"] = random.choice((None, "retail", *TEAMS))
            acts.append(Act(at, kind, {"where": where, **args, **what}))
            if plan.size is SHARED and random.random() < 0.25:
                kill = {"slot": random.choice(plan.slots), "back_in": 3.0}
                acts.append(Act(at + random.uniform(0.0, 60.0), "kill", kill, is_fault=True))
    return acts


def _shared(plan: Plan, random: Random) -> list[Act]:
    """What members want changes a few times, then stays for as long as all need to settle."""
    (policy,), last = plan.policies, plan.storm_seconds - CALM_SECONDS
    level_of = {
        member["user"]: tier["level"]
        for tier in policy.tiers.values()
        for member in tier["members"]
    }
    is_short = random.random() < 0.5  # all but L0 want more than there is, to the end
    acts = []
    for at in (1.0, *(random.uniform(60.0, last) for _ in range(random.randint(0, 3)))):
        wants = {user: random.choice((0.0, 0.5, 2.0, 5.0, 10.0, 40.0)) for user in level_of}
        if is_short:
            wants = {user: 0.2 if level == "L0" else 40.0 for user, level in level_of.items()}
        acts.append(Act(at, "demand", {"kafka": policy.kafka, "wants": wants}))
    if random.random() < 0.3:
        acts.append(_edit(plan, random, random.uniform(5.0, last)))
    acts += [_fault(plan, random, random.uniform(0.0, last)) for _ in range(random.choice((0, 1)))]
    return acts


def _meddling(plan: Plan, random: Random) -> list[Act]:
    """Others who write at the worst moments, and processes that stand still in a call."""
    acts: list[Act] = []
    if random.random() < 0.2:
        kafka = random.choice(plan.policies).kafka
        args = {
            "kafka": kafka,
            "key": random.choice(KEYS),
            "value": random.randint(1, 200) * MB + 7,
        }
        when = random.choice(("before an attempt", "before a commit"))
        at = random.uniform(0.0, plan.storm_seconds)
        acts.append(Act(at, "writer inside", {**args, "when": when}, is_fault=True))
    if random.random() < 0.1:
        args = {"what": random.choice(("stop before", "stop after")), "writes_only": False}
        args |= {"slot": random.choice(plan.slots), "system": random.choice(_SYSTEMS)}
        args |= {"skip": random.choice((0, 0, 1, 2, 5)), "seconds": 0.0}
        acts.append(Act(random.uniform(0.0, plan.storm_seconds), "at a call", args, is_fault=True))
    return acts


def _with_takeover(plan: Plan, random: Random) -> tuple[Plan, list[Act]]:
    """A contract is edited; a process that is about to write that stands still while it is undone.

    Another replica has the turn meanwhile. So what was decided meets quotas and a ledger that are
    as they were, and a Lease that is the writer's again; only the claim is not the same.
    """
    if random.random() >= DAYS_WITH_A_TAKEOVER:
        return plan, []
    policy, where = random.choice(plan.policies), random.choice(plan.clusters)
    name, spec = random.choice(sorted(policy.tiers.items()))
    edit = {"user": spec["members"][0]["user"], "contract": contract(plan.size, random)}
    args = {"where": where, "policy": policy.name, "tier": name, **edit}
    at = random.uniform(plan.storm_seconds / 2, plan.storm_seconds)
    plan = replace(
        plan, replicas=max(2, plan.replicas), storm_seconds=max(at + 45.0, plan.storm_seconds)
    )
    return plan, [Act(at, "taken over", args, is_fault=True)]


def _lost_ledger(plan: Plan, random: Random) -> list[Act]:
    """Somebody removes all that Tidegate keeps in ZooKeeper, and answers what the policy asks then.

    Afterwards the same person runs the commands that Events name, for quotas that no one needs.
    Not beside a second Kubernetes cluster: the claim is lost, too, and a policy that never had one
    takes a cluster without a claim as a new one (known limits).
    """
    is_simple = len(plan.policies) == len(plan.clusters) == 1
    is_simple = is_simple and "replication" not in plan.policies[0].spec
    if random.random() >= 0.05 or not is_simple:
        return []
    (policy,) = plan.policies
    at = random.uniform(5.0, plan.storm_seconds)
    return [Act(at, "ledger vanishes", {"kafka": policy.kafka}, is_fault=True)]


# --- what goes wrong ------------------------------------------------------------------------------

# at a call: what happens to it, and to which system it goes
_AT_CALLS = ("crash before", "crash after", "lost", "lost answer", "late", "hang")
_SYSTEMS = ("zookeeper",) * 4 + ("kubernetes",) * 3 + ("lease",) * 2 + ("brokers", "prometheus")


def _weather(plan: Plan, random: Random) -> list[Act]:
    acts = []
    for _ in range(random.choice(plan.size.faults)):
        acts.append(_fault(plan, random, random.uniform(0.0, plan.storm_seconds)))
    return acts


def _fault(plan: Plan, random: Random, at: float) -> Act:
    if random.random() < 0.45:
        return _at_call(plan, random, at)
    slot, kafka = random.choice(plan.slots), random.choice(plan.policies).kafka
    policy, where = random.choice(plan.policies), random.choice(plan.clusters)
    span = round(random.choice(plan.size.fault_seconds) * random.uniform(0.5, 1.5), 1)
    kind = random.choice(
        (
            *(
                "kill",
                "restart",
                "pause",
                "clock jump",
                "session loss",
                "watch gap",
                "outage",
                "outage",
            ),
            *("broker dies", "broker dies", "no controller", "second writer", "second writer"),
            *("lease stolen", "lease deleted", "slow lease", "newer version", "frozen samples"),
            *(("credentials expire",) if plan.has_login else ()),
        )
    )
    args: dict[str, Any] = {}
    match kind:
        case "kill" | "restart":
            args = {"slot": slot, "back_in": random.choice((0.5, 3.0, 20.0))}
        case "pause" | "session loss" | "watch gap" | "newer version":
            args = {"slot": slot, "seconds": span}
        case "clock jump":
            args = {
                "slot": slot,
                "by": random.choice((-600.0, -60.0, -5.0, 5.0, 60.0, 600.0)),
                "seconds": span,
            }
        case "outage":
            args = {
                "slot": slot,
                "system": random.choice(("zookeeper", "kubernetes", "brokers", "prometheus")),
                "seconds": span,
            }
        case "broker dies":
            args = {"kafka": kafka, "broker": random.choice(BROKERS), "seconds": span}
        case "frozen samples":
            args = {"kafka": kafka, "seconds": 2 * span}
        case "no controller":
            args = {"kafka": kafka, "seconds": min(span, 20.0)}
        case "second writer":
            args = {"kafka": kafka, "user": random.choice(USERS), "key": random.choice(KEYS)}
            args["value"] = random.choice((None, random.randint(1, 200) * MB + 7))
        case "lease stolen" | "lease deleted":
            args = {"where": where, "policy": policy.name}
        case "slow lease":
            args = {
                "where": where,
                "policy": policy.name,
                "seconds": span,
                "by": random.choice((0.05, 1.0, 10.0)),
            }
        case "credentials expire":
            args = {"kafka": kafka, "where": where, "seconds": span}
    return Act(at, kind, args, is_fault=True)


def _at_call(plan: Plan, random: Random, at: float) -> Act:
    writes_only = random.random() < 0.6
    args = {
        "what": random.choice(_AT_CALLS),
        "slot": random.choice(plan.slots),
        "system": random.choice(_SYSTEMS),
        "skip": random.choice((0, 0, 0, 1, 2) if writes_only else (0, 0, 1, 2, 3, 5, 8)),
        "seconds": round(random.choice(plan.size.call_seconds) * random.uniform(0.5, 1.5), 1),
        "writes_only": writes_only,
    }
    return Act(at, "at a call", args, is_fault=True)
