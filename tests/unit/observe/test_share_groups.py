"""Share groups are read beside passes, once a minute, and only where a member may be read with."""

from __future__ import annotations

from threading import Event

import pytest

from lab.process import patience
from tests.unit.control.stage import Stage
from tidegate.errors import Unreachable
from tidegate.kube.api import ObjectRef
from tidegate.observe.share_groups import REPEAT_SECONDS, ShareGroupWatch
from tidegate_logic.contracts.share_groups import DWELL_SECONDS
from tidegate_logic.model import Entity, Level, Member, QuotaKey, ShareGroup, Tier
from tidegate_logic.reasons import Reason

ORDERS = ShareGroup("orders", frozenset({"reader"}))
READER = (Tier("a/t", Level.L1, (Member("m", Entity(client_id="reader")),)),)
USERS = (Tier("a/t", Level.L1, (Member("m", Entity("alice")),)),)
UNREACHABLE = Unreachable(Reason.BROKERS_UNREACHABLE, "no answer")


class Source:
    """Share groups as a test says; None = it does not answer."""

    def __init__(self, answer: tuple[ShareGroup, ...] | None = (ORDERS,)) -> None:
        self.answer = answer
        self.asked = 0

    def read(self) -> tuple[ShareGroup, ...]:
        self.asked += 1
        if self.answer is None:
            raise UNREACHABLE
        return self.answer


def test_brokers_are_asked_once_a_minute() -> None:
    watch, source = ShareGroupWatch(beside=False), Source()
    for second in range(0, 600, 15):
        assert watch.seen(source, READER, float(second)) == (ORDERS,)
    assert source.asked == 600 / REPEAT_SECONDS


@pytest.mark.parametrize("tiers", [None, (), USERS])
def test_nobody_is_asked_where_no_member_can_be_matched(tiers: tuple[Tier, ...] | None) -> None:
    watch, source = ShareGroupWatch(beside=False), Source()
    assert watch.seen(source, tiers, 0.0) == ()
    assert source.asked == 0


def test_what_was_known_stays_while_brokers_do_not_answer() -> None:
    watch, source = ShareGroupWatch(beside=False), Source()
    watch.seen(source, READER, 0.0)
    source.answer = None
    assert watch.seen(source, READER, 1e6) == (ORDERS,)
    assert watch.seen(Source(None), READER, 1e6) == (ORDERS,), "a new connection"


def test_brokers_that_never_answer_leave_share_groups_unknown() -> None:
    watch, source = ShareGroupWatch(beside=False), Source(None)
    for seconds in (0, 59, 60, 3600, 86_400):
        assert watch.seen(source, READER, 1e6 + seconds) is None
    source.answer = ()
    assert watch.seen(source, READER, 2e6) == ()


def test_no_pass_waits_for_a_broker_that_is_silent() -> None:
    answers = Event()

    class Silent(Source):
        def read(self) -> tuple[ShareGroup, ...]:
            assert answers.wait(patience(60))
            return super().read()

    watch, source = ShareGroupWatch(), Silent()
    assert watch.seen(source, READER, 0.0) is None
    assert watch.seen(source, READER, REPEAT_SECONDS) is None, "and no second question"
    answers.set()
    question = watch._question
    assert question is not None
    question.join(patience(60))
    assert source.asked == 1
    assert watch.seen(source, READER, REPEAT_SECONDS + 1) == (ORDERS,)


# --- the whole operator ---------------------------------------------------------------------------

PAIR = Entity("alice", "reader")


@pytest.fixture
def stage() -> Stage:
    stage = Stage(share_groups=Source(()))
    stage.policy()
    return stage


def a_tier(stage: Stage, **fields: object) -> ObjectRef:
    tier = stage.tier()
    contract = {"perPartition": {"fetch": "10M", "produce": "10M"}}
    stage.kubernetes.edit(
        tier,
        lambda raw: raw["spec"]["members"][0].update(
            clientId="reader", contract=contract, **fields
        ),
    )
    return tier


def pass_after(stage: Stage, seconds: float) -> None:
    """One pass that asks, and one that knows the answer."""
    stage.now += seconds
    stage.run()
    observer = stage.controllers["streaming/orders"]._pass.observer
    question = observer._share_groups._question
    if question is not None:
        question.join(patience(60))
    stage.run()


def fetch(stage: Stage) -> str | None:
    values: str | None = stage.store.read([PAIR])[PAIR].values.get(QuotaKey.CONSUMER_BYTE_RATE)
    return values


def test_the_tier_says_that_it_is_protected_and_is_ready(stage: Stage) -> None:
    tier, source = a_tier(stage), stage.share_groups
    assert isinstance(source, Source)
    pass_after(stage, 0.0)
    assert (fetch(stage), stage.condition(tier, "Ready")) == ("10000000", ("True", "Contract"))
    source.answer = (ORDERS,)
    pass_after(stage, REPEAT_SECONDS)
    assert fetch(stage) is None
    assert stage.produce(PAIR) == "10000000"
    assert stage.condition(tier, "Ready") == ("True", "ShareGroup")
    source.answer = ()
    pass_after(stage, REPEAT_SECONDS)
    pass_after(stage, DWELL_SECONDS - REPEAT_SECONDS)
    assert fetch(stage) is None
    for _ in range(15):  # in safe steps from what its clients may have read without a quota
        pass_after(stage, REPEAT_SECONDS)
    assert (fetch(stage), stage.condition(tier, "Ready")) == ("10000000", ("True", "Contract"))


def test_a_restarted_operator_does_not_throttle_a_share_group(stage: Stage) -> None:
    tier = a_tier(stage)
    source = stage.share_groups
    assert isinstance(source, Source)
    source.answer = (ORDERS,)
    pass_after(stage, 0.0)
    source.answer = None
    stage.restart()
    for _ in range(5):
        pass_after(stage, REPEAT_SECONDS)
        assert fetch(stage) is None
    assert "first fetch quota waits until it is known" in str(stage.kubernetes.get(tier)["status"])
    source.answer = (ORDERS,)
    pass_after(stage, REPEAT_SECONDS)
    assert fetch(stage) is None


def test_a_member_declares_its_share_groups_and_may_accept_throttling(stage: Stage) -> None:
    stage.share_groups = Source((ShareGroup("orders-1"),))
    tier = a_tier(stage, shareGroupNames=["orders-*"])
    pass_after(stage, 0.0)
    assert fetch(stage) is None
    stage.kubernetes.edit(
        tier, lambda raw: raw["spec"]["members"][0].update(shareGroups="Throttle")
    )
    pass_after(stage, 1.0)
    assert fetch(stage) == "10000000"
