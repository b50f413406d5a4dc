"""The short way to a first quota says and writes what the long way says key by key."""

import pytest

from tests.unit.controller_logic.worlds import (
    ALICE,
    MB,
    START_SECONDS,
    member,
    per_broker,
    per_partition,
    policy,
    stored,
    topology,
    total,
)
from tidegate_logic.contracts.leader_scaling import Leaders
from tidegate_logic.contracts.targets import QuotaScalings, promise_of
from tidegate_logic.model import Contract, RateForm, TopicLeaders
from tidegate_logic.quotas.entity_plan import Beside, ChangeWords, first_write, plan_entity
from tidegate_logic.quotas.plan import rules_of
from tidegate_logic.quotas.steps import KeyState, follow

TOPOLOGY = topology({"orders": {1: 2, 2: 1}, "leaderless": TopicLeaders({1: 1}, leaderless=1)})
RULES = rules_of(policy(), START_SECONDS, lambda *_: None)


@pytest.mark.parametrize(
    "contract",
    [
        per_partition(10 * MB, 5 * MB),
        per_broker(produce=1),
        total(fetch=9 * MB),
        Contract(RateForm.TOTAL, 10 * MB, None, 20, 3),
    ],
    ids=str,
)
def test_a_first_quota_is_what_its_keys_come_to_one_by_one(contract: Contract) -> None:
    alice = member(ALICE, contract, "orders")
    scaling = QuotaScalings(Leaders(TOPOLOGY), RULES.policy.scaling).under(alice)
    promise = promise_of(contract, scaling)
    write = first_write(stored(ALICE), contract, scaling, RULES)
    _, planned = plan_entity(stored(ALICE), promise, RULES, Beside())
    steps = tuple(
        follow(KeyState(key, None, None), target, RULES.keys)
        for key, target in promise.targets.items()
    )
    assert write is not None
    assert planned is not None
    assert (write.values, write.ledger, write.message) == (
        planned.values,
        planned.ledger,
        planned.message,
    )
    assert write.ledger is not None
    assert write.values == {step.key: step.text for step in steps}
    assert write.ledger.entries == {step.key: step.entry for step in steps}
    assert {(write.kind, write.reason, write.charged)} == {
        (step.kind, step.because, step.charged) for step in steps
    }
    assert write.message == ChangeWords(steps)(write)


def test_leaders_that_are_not_known_in_full_set_no_first_quota() -> None:
    alice = member(ALICE, per_partition(10 * MB), "leaderless")
    scaling = QuotaScalings(Leaders(TOPOLOGY), RULES.policy.scaling).under(alice)
    promise = promise_of(alice.contract, scaling)
    assert first_write(stored(ALICE), alice.contract, scaling, RULES) is None
    _, write = plan_entity(stored(ALICE), promise, RULES, Beside())
    assert write is None
