"""What the core's messages read, each once. All other tests here assert reasons, numbers and
fields.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.controller_logic.loaded_world import USERS, loaded_world, set_limit
from tests.unit.controller_logic.plant import IN, OUT
from tests.unit.controller_logic.worlds import (
    ALICE,
    FETCH,
    MB,
    START_SECONDS,
    World,
    fixed_world,
    many_world,
    member,
    orders_world,
    per_broker,
    per_partition,
    policy,
    report_of,
    stored,
    tier,
    topology,
    total,
)
from tidegate_logic.contracts import desired
from tidegate_logic.contracts.overrides import Override, apply_overrides
from tidegate_logic.contracts.recommend import AdviceBasis, Recommendations, advise
from tidegate_logic.decision import Decision
from tidegate_logic.model import (
    AdviceTerms,
    Contract,
    DirectionUsage,
    Entity,
    LedgerRecord,
    Level,
    Mode,
    QuotaWrite,
    TopicLeaders,
    Usage,
    WriteKind,
)
from tidegate_logic.quotas.entity_plan import ChangeWords
from tidegate_logic.quotas.steps import KeyStep
from tidegate_logic.reasons import Reason
from tidegate_logic.throttle import record
from tidegate_logic.throttle.buckets import floor_of
from tidegate_logic.throttle.input import ClientFloors, ManagedRate

Example = Callable[[], str]


def of_alice(decision: Decision) -> str:
    return report_of(decision, ALICE).message


def only_note(decision: Decision) -> str:
    (note,) = decision.notes
    return note.message


# writes


def change(because: Reason, **changes: object) -> Example:
    """What a write reads that does this to alice's fetch quota."""
    step = replace(
        KeyStep(FETCH, "10000000", "20000000", None, because, WriteKind.RAISE), **changes
    )  # type: ignore[arg-type]
    write = QuotaWrite(
        ALICE,
        {FETCH: step.text},
        stored(ALICE),
        None,
        WriteKind.RAISE,
        because,
        ChangeWords((step,)),
        charged=True,
    )
    return lambda: write.message


CHANGES = {
    f"a write, {reason.value}": change(reason)
    for reason in (
        Reason.FIRST_QUOTA,
        Reason.ADOPTED,
        Reason.CONTRACT_CHANGED,
        Reason.LEADERS_MOVED,
        Reason.ADAPTED,
        Reason.CONTRACT,
        Reason.REPAIRED,
        Reason.THROTTLED,
        Reason.RELAXING,
        Reason.RELEASED,
        Reason.GIVEN_BACK,
    )
} | {
    "a write where none was in force": change(Reason.FIRST_QUOTA, seen=None),
    "a write of one step": change(Reason.CONTRACT_CHANGED, text="5000000", due_in_seconds=30.0),
    "a write that may mute": change(Reason.THROTTLED, text="5000000", predicted_mute_seconds=11.25),
    "a write of the ledger alone": change(Reason.GIVEN_BACK, text="10000000"),
    "a write of what never binds": change(
        Reason.FIRST_QUOTA, seen=None, text=str(desired.NEVER_BINDS)
    ),
}


# members


def throttled_for_minutes(then_limit: int | None = None) -> Decision:
    world = loaded_world(limit=50 * MB)
    world.minutes(6)
    if then_limit is not None:
        set_limit(world, then_limit)
    return world.scrape()


def never_throttled() -> str:
    world = loaded_world(limit=50 * MB)
    assert world.tiers is not None
    world.tiers = (*world.tiers[:3], replace(world.tiers[3], throttled=(per_partition(MB),)))
    return report_of(world.run(), USERS[Level.L3]).message


def member_of(made: World) -> Example:
    """What alice's report says after one pass."""
    return lambda: of_alice(made.run())


def after_leaders(first: dict[int, int], then: dict[str, TopicLeaders | dict[int, int]]) -> Example:
    """What alice's report says after the leaders of her topic moved."""

    def made() -> str:
        world = orders_world()
        world.topology = topology({"orders": first})
        world.run()
        world.topology = topology(then)
        return of_alice(world.after(60))

    return made


def stepping_down() -> str:
    world = fixed_world(100 * MB)
    world.run()
    world.tiers = (tier(member(ALICE, per_broker(MB))),)
    return of_alice(world.after(3600))


def another_writer() -> World:
    world = fixed_world(10 * MB)
    world.run()
    for _ in range(3):
        world.someone_sets(ALICE, "5000000")
        world.after(15)
    world.someone_sets(ALICE, "5000000")
    world.now_seconds += 15
    return world


def foreign_content() -> World:
    world = fixed_world(MB)
    world.quotas = {ALICE: replace(stored(ALICE), version=3, problem="bad JSON")}
    return world


def another_policys() -> World:
    world = fixed_world(MB)
    world.quotas = {
        ALICE: replace(
            stored(ALICE, {FETCH: "5000"}), ledger=LedgerRecord(ALICE, "other/policy", "u", {})
        )
    }
    return world


def overlapping() -> World:
    return World(
        (
            tier(member(ALICE, per_broker(5 * MB))),
            tier(member(ALICE, per_broker(7 * MB)), key="streaming/late"),
        )
    )


MEMBERS: dict[str, Example] = {
    "a member at a contract per partition": member_of(orders_world()),
    "a member at a contract per broker": member_of(fixed_world(MB)),
    "a member whose quota is not written yet": member_of(fixed_world(MB, mode=Mode.OBSERVE)),
    "a member without a contract": member_of(World((tier(member(ALICE, None)),))),
    "a member of L0 without a contract": member_of(
        World((tier(member(ALICE, None), level=Level.L0),))
    ),
    "a member on its way down": stepping_down,
    "a member whose topic does not exist": after_leaders({1: 1}, {}),
    "a member whose leaders moved a little": after_leaders(
        {1: 20, 2: 20}, {"orders": {1: 21, 2: 19}}
    ),
    "a member whose leaders are known in part": after_leaders(
        {1: 2, 2: 1}, {"orders": TopicLeaders({2: 1}, leaderless=2)}
    ),
    "a member that is left to another writer": lambda: of_alice(another_writer().run()),
    "a member whose znode cannot be read": lambda: of_alice(foreign_content().run()),
    "a member of another policy": lambda: of_alice(another_policys().run()),
    "a member that overlaps": lambda: overlapping().run().members[1].message,
    "a member of a deleted policy": member_of(fixed_world(MB, deleting=True)),
    "a member that is throttled": lambda: (
        report_of(throttled_for_minutes(), USERS[Level.L3]).message
    ),
    "a member that is never throttled": never_throttled,
    "why a level is throttled": lambda: throttled_for_minutes().levels[-1].because,
}


# notes


def removal_held() -> str:
    world = many_world()
    world.run()
    world.tiers = ()
    return only_note(world.after_grace(60))


def removal_that_another_confirmation_is_not_for(value: str) -> str:
    world = many_world()
    world.run()
    world.tiers, world.policy = (), policy(confirmed_removal=value)
    return only_note(world.after(60))


def removal_confirmed() -> str:
    world = many_world()
    world.run()
    world.tiers = ()
    value = only_note(world.after(60)).partition("confirm-removal=")[2].partition(" ")[0]
    world.policy = policy(confirmed_removal=value)
    decision = world.after(1)
    (note,) = [note for note in decision.notes if note.reason is Reason.GIVEN_BACK]
    return note.message  # the others say that each waits for its grace


def frozen(**changes: object) -> Example:
    def made() -> str:
        world = fixed_world(MB)
        world.run()
        world.policy = policy(deleting=True, **changes)
        return only_note(world.after(60))

    return made


def budget_spent() -> str:
    world = many_world()
    world.run()
    world.tiers = (
        tier(
            *[replace(one, contract=per_broker(2 * MB)) for one in (world.tiers or ())[0].members]
        ),
    )
    world.policy = policy(write_budget_changes=5)
    return only_note(world.after(60))


def high_skew() -> str:
    world = orders_world()
    world.topology = topology({"orders": {1: 10, 2: 1, 3: 1, 4: 1}})
    return only_note(world.run())


def changed_by_another_and_let_go() -> str:
    world = fixed_world(10 * MB, max_removal_percent=100)
    world.run()
    world.someone_sets(ALICE, "7000000")
    world.tiers = ()
    return only_note(world.after_grace(60))


NOTES: dict[str, Example] = {
    "a removal that is held": removal_held,
    "a removal that an old confirmation is not for": lambda: (
        removal_that_another_confirmation_is_not_for("10")
    ),
    "a removal that a very long value does not confirm": lambda: (
        removal_that_another_confirmation_is_not_for("confirmed by everybody " * 10)
    ),
    "a removal that is confirmed": removal_confirmed,
    "a policy that is deleted while paused": frozen(paused_by=("spec.suspend",)),
    "a policy that is deleted in Observe": frozen(mode=Mode.OBSERVE),
    "a budget that is spent": budget_spent,
    "leaders that are uneven": high_skew,
    "a key that another writer changed": changed_by_another_and_let_go,
    "a znode that cannot be read": lambda: only_note(foreign_content().run()),
    "an entity of another policy": lambda: only_note(another_policys().run()),
    "an overlap": lambda: only_note(overlapping().run()),
    "another writer": lambda: only_note(another_writer().run()),
}


# throttling, metering, overrides, recommendations

CONSUMER = ManagedRate(Entity("a"), OUT, Level.L3, 50 * MB, 2 * MB, 50 * MB, frozenset({1}))


def floor(**changes: object) -> Example:
    return lambda: floor_of(replace(CONSUMER, **changes), ClientFloors()).because  # type: ignore[arg-type]


def misfit(contract: Contract, rates: Contract, *others: Override) -> Example:
    """Why an override of these rates does nothing for a member with this contract."""
    override = Override(
        "streaming/backfill",
        expires_at_seconds=START_SECONDS + 60,
        reason="agreed",
        entity=ALICE,
        rates=rates,
    )
    laid = apply_overrides((tier(member(ALICE, contract)),), (*others, override), START_SECONDS)
    return lambda: laid.not_applicable["streaming/backfill"][0].message


FIRST = Override(
    "streaming/first",
    expires_at_seconds=START_SECONDS + 60,
    reason="agreed",
    entity=ALICE,
    rates=per_broker(MB, MB),
)


def advice(usage: DirectionUsage | None, terms: AdviceTerms | None = None) -> Example:
    """What is said of alice's contract of 60 MB/s in total, with this usage."""
    figures = {} if usage is None else {(ALICE, FETCH): usage}
    basis = AdviceBasis(
        Usage(7, START_SECONDS, figures),
        (tier(member(ALICE, total(fetch=60 * MB))),),
        terms or AdviceTerms(),
    )

    def made() -> str:
        ((said,),) = advise(basis, Recommendations()).advice.values()
        return said.message

    return made


OTHERS: dict[str, Example] = {
    "left alone": lambda: "\n".join(
        (
            record.NEVER_THROTTLED,
            record.NO_THROTTLED_RATE,
            record.NOTHING_TO_GIVE,
            record.NOT_DUE,
            record.OTHERS_GIVE_ENOUGH,
            record.LOWER_TIERS_FIRST,
        )
    ),
    "metering withheld": lambda: "\n".join(
        (desired.SOMEBODY_ELSES, desired.HIDES_DECLARED, desired.HIDES_STORED)
    ),
    "a consumer's floor": floor(floor=40_000),
    "a producer's floor": floor(direction=IN, producers=20),
    "an override that would lose a direction": misfit(
        total(MB, 2 * MB), per_broker(produce=20 * MB)
    ),
    "an override per partition without topics": misfit(total(MB), per_partition(20 * MB, 20 * MB)),
    "an override after another": misfit(total(MB), per_broker(20 * MB), FIRST),
    "advice, usage unknown": advice(None),
    "advice, usage incomplete": advice(DirectionUsage(30e6, 10e6, 3, 0.79, 0.0)),
    "advice, usage throttled": advice(DirectionUsage(30e6, 10e6, 3, 1.0, 0.51)),
    "advice, unused": advice(DirectionUsage(0.0, 0.0, 3, 1.0, 0.0)),
    "advice, the contract fits": advice(DirectionUsage(46e6, 16e6, 3, 1.0, 0.0)),
    "advice, recommended": advice(DirectionUsage(30e6, 10e6, 3, 1.0, 0.0)),
    "advice, applied": advice(
        DirectionUsage(30e6, 30e6, 1, 1.0, 0.0), AdviceTerms(max_change_percent=20)
    ),
}

EXAMPLES = CHANGES | MEMBERS | NOTES | OTHERS


@pytest.mark.parametrize("example", EXAMPLES)
def test_message(example: str, golden: Callable[[str], None]) -> None:
    golden(EXAMPLES[example]())
