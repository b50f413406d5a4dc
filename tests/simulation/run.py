"""Plays one bad day, judges it, and makes a failing one smaller."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.plan import NAMESPACE, Plan
from tests.simulation.virtual_time import Stuck
from tests.simulation.world import World
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES

SETTLES_WITHIN_SECONDS = (
    6_000.0  # two repairs too many are followed by a quarter of an hour's pause
)
GONE_WITHIN_SECONDS = 1_500.0


@dataclass(frozen=True)
class Outcome:
    """What came of a day: no `violations` = all was well. `digest` is of every step of `trace`."""

    plan: Plan
    violations: tuple[str, ...]
    trace: tuple[str, ...]
    digest: str
    seconds: float
    tracebacks: tuple[BaseException | None, ...] = ()


def play(plan: Plan) -> Outcome:
    """Play one day to its end, or to its first violation."""
    random.seed(plan.seed)  # the jitter of the operator's own back-off
    world = World(plan)
    try:
        _play(world)
    except Stuck as error:
        world.violated(f"the operator stands still: {error}")
    finally:
        world.end()
    return Outcome(
        plan,
        tuple(world.violations),
        tuple(world.trace),
        world.digest(),
        world.scheduler.now - world.began_at,
        tuple(world.tracebacks),
    )


def _play(world: World) -> None:
    plan, scheduler = world.plan, world.scheduler
    world.install_everything()
    for act in plan.acts:
        scheduler.at(world.began_at + act.at, lambda act=act: world.play(act))  # type: ignore[misc]
    last = max((act.at for act in plan.acts), default=0.0)
    if not _run(world, max(plan.storm_seconds, last)):
        return
    world.fair_weather()
    world.note("FAIR WEATHER")
    slow = any(
        one.spec.get("writeBudget", {}).get("periodSeconds", 0) > 60 for one in plan.policies
    )
    settles_within_seconds = SETTLES_WITHIN_SECONDS * (4 if slow else 1)
    if not _settle(world, settles_within_seconds, "the weather is fair again"):
        return
    if not _share_again(world):
        return
    world.note("EVERYTHING IS DELETED")
    for where, kubernetes in world.kubernetes.items():
        if plan.deletes_namespace:
            kubernetes.delete_namespace(NAMESPACE)
        for policy in plan.policies:
            ref = world.ref(where, BROKER_BANDWIDTH_POLICIES, policy.name)
            if ref is not None:
                kubernetes.delete(ref)
    _settle(world, GONE_WITHIN_SECONDS, "everything was deleted")


def _share_again(world: World) -> bool:
    """Let a policy be deleted while budgets limit its members; whether nothing was violated."""
    shared = [one for one in world.plan.policies if one.budgets]
    for policy in shared:
        world.loads[policy.kafka].want(3.0, 0.0)
        for where in world.kubernetes:
            world.create_budgets(where, policy)
    return _run(world, 60.0) if shared else True


def _run(world: World, seconds: float) -> bool:
    """Let time pass; whether nothing was violated meanwhile."""
    ends_at = world.scheduler.now + seconds
    while world.scheduler.now < ends_at and not world.violations:
        world.scheduler.run_until(min(ends_at, world.scheduler.now + 30.0))
        if world.scheduler.errors:
            raise world.scheduler.errors[0]
    return not world.violations


def _settle(world: World, within_seconds: float, since: str) -> bool:
    ends_at, step_seconds = world.scheduler.now + within_seconds, 5.0
    while True:
        if not _run(world, step_seconds):
            return False
        for where in world.kubernetes:
            for policy in world.plan.policies:
                world.confirm_removal(where, policy.name)
                world.invariants.answer_lost_ledger(where, policy.name)
                world.invariants.run_named_commands(where, policy.name)
        problems = world.invariants.problems()
        if not problems:
            return True
        if world.scheduler.now >= ends_at:
            for problem in problems:
                world.violated(f"{within_seconds:.0f} s after {since}: {problem}")
            return False
        step_seconds = min(step_seconds * 1.5, 15.0)


def smaller(outcome: Outcome, replay: Callable[[Plan], Outcome] = play) -> Outcome:
    """The same day with as few acts as still lead to a violation of the same kind."""
    best, number = outcome, len(outcome.plan.acts) - 1
    while number >= 0:
        tried = replay(best.plan.without({number}))
        if _is_alike(tried, outcome):
            best = tried
        number -= 1
    return best


def _is_alike(one: Outcome, other: Outcome) -> bool:
    """Whether the first violation is of the same kind, for any quota or process."""
    return bool(one.violations) and _kind(one.violations[0]) == _kind(other.violations[0])


def _kind(violation: str) -> str:
    """The words of a violation without names and numbers."""
    return " ".join(word for word in violation.split() if word.isalpha() and word.islower())
