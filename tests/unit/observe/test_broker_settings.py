"""Brokers that let consumers read from followers, while fetch quotas are scaled by leaders."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.goldens.golden import numbers
from tests.unit.control.stage import Stage
from tests.unit.observe.test_observation import answered
from tidegate.kube.api import ObjectRef
from tidegate.observe.broker_settings import (
    CORDONED,
    LOG_DIRS,
    RACK,
    SELECTOR,
    SETTLE_SECONDS,
    FollowerReads,
    cordoned_brokers,
    follower_reads_words,
    has_scaled_fetch,
)
from tidegate_logic.model import Contract, Entity, Level, Member, RateForm, Tier

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
NEAREST = "io.example.Nearest"
CONDITION = "FollowerFetch"


def said(rack: str = "", selector: str = "") -> dict[str, str]:
    given = {RACK: rack, SELECTOR: selector, "quota.window.num": "11"}
    return {name: value for name, value in given.items() if value}


def reads(settings: Mapping[int, Mapping[str, str]], brokers: int = 3) -> FollowerReads:
    return FollowerReads.of(range(1, brokers + 1), settings)


@pytest.mark.parametrize(
    ("settings", "brokers"),
    [
        ([said("a"), said("b"), said("c")], {}),
        ([said("a", RACK_AWARE), said("b", RACK_AWARE)], {1, 2}),
        ([said("a", RACK_AWARE), said("b")], {1}),
        # a consumer in the only rack that has a name reads there
        ([said("a", RACK_AWARE), said("", RACK_AWARE)], {1, 2}),
        # all in one rack, or in none: Kafka prefers the leader
        ([said("a", RACK_AWARE), said("a", RACK_AWARE)], {}),
        ([said("", RACK_AWARE), said("", RACK_AWARE)], {}),
        # one that Kafka does not bring may choose by anything
        ([said("", NEAREST), said()], {1}),
        ([said("a", "org.apache.kafka.common.replica.LeaderSelector"), said("b")], {}),
    ],
)
def test_consumers_may_read_from_followers_where_a_selector_has_racks_to_choose_from(
    settings: list[dict[str, str]], brokers: set[int]
) -> None:
    found = reads(dict(enumerate(settings, start=1)), len(settings))
    assert found.selectors.keys() == set(brokers)
    assert found.leaders_only == set(range(1, len(settings) + 1)) - set(brokers)


def test_what_is_not_known_is_no_finding() -> None:
    found = reads({1: {}, 2: said("a", RACK_AWARE)})
    assert (found.selectors, found.refused, found.silent) == ({}, {1}, {3})


def test_the_smallest_rack_bounds_what_its_consumers_get(golden: Callable[[str], None]) -> None:
    three = reads({one: said(f"r{one}", RACK_AWARE) for one in (1, 2, 3)})
    uneven = reads({one: said("b" if one == 4 else "a", RACK_AWARE) for one in range(1, 5)}, 4)
    mixed = reads({1: said("a", RACK_AWARE), 2: said("b", NEAREST), 3: said("b"), 4: {}}, 4)
    assert (three.racks, three.smallest_share) == (3, pytest.approx(1 / 3))
    assert (uneven.racks, uneven.smallest_share) == (2, pytest.approx(1 / 4))
    assert numbers(follower_reads_words(three)) == {1, 2, 3, 33}
    golden("\n".join(follower_reads_words(one) for one in (three, uneven, mixed)))


@pytest.mark.parametrize(
    ("cordoned", "expected"),
    [("*", {1}), ("/b,/a", {1}), ("/a", set()), ("", set()), ("/elsewhere", set())],
)
def test_a_broker_is_cordoned_with_the_last_of_its_log_directories(
    cordoned: str, expected: set[int]
) -> None:
    asked = {1: {CORDONED: cordoned, LOG_DIRS: "/a, /b"}, 2: said(), 3: {}}
    assert cordoned_brokers(asked) == expected


def test_without_its_log_directories_a_broker_is_not_known_to_be_cordoned() -> None:
    assert cordoned_brokers({1: {CORDONED: "/a"}}) == frozenset()


@pytest.mark.parametrize(
    ("contract", "expected"),
    [
        (Contract(RateForm.PER_PARTITION, fetch_bytes_per_second=1), True),
        (Contract(RateForm.TOTAL, fetch_bytes_per_second=1), True),
        (Contract(RateForm.PER_BROKER, fetch_bytes_per_second=1), False),
        (Contract(RateForm.PER_PARTITION, produce_bytes_per_second=1), False),
        (None, False),
    ],
)
def test_only_fetch_contracts_that_leaders_scale_are_affected(
    contract: Contract | None, expected: bool
) -> None:
    member = Member("a", Entity(user="a"), ("acc",), contract)
    assert has_scaled_fetch([Tier("streaming/gold", Level.L0, (member,))]) is expected


def fetches(stage: Stage, tier: ObjectRef) -> None:
    def edit(raw: Any) -> None:
        raw["spec"]["members"][0]["contract"] = {"perPartition": {"fetch": "2M"}}

    stage.kubernetes.edit(tier, edit)


def settle(stage: Stage) -> None:
    """Passes until the brokers have been asked, and one with their answers."""
    stage.run()
    stage.now += SETTLE_SECONDS
    stage.run()
    answered(stage)
    stage.now += 15
    stage.run()


def types(stage: Stage, policy: ObjectRef) -> set[str]:
    return {one["type"] for one in stage.kubernetes.get(policy)["status"]["conditions"]}


def test_a_fetch_contract_beside_a_selector_has_a_condition_and_no_event(
    stage: Stage, golden: Callable[[str], None]
) -> None:
    policy = stage.policy()
    fetches(stage, stage.tier())
    stage.leaders.said = {one: said(f"r{one}", RACK_AWARE) for one in (1, 2, 3)}
    settle(stage)
    assert stage.condition(policy, CONDITION) == ("True", "ReadsFromFollowers")
    assert stage.condition(policy) == ("True", "InSync")
    assert "ReadsFromFollowers" not in stage.event_reasons()
    golden(stage.message(policy, CONDITION))


def test_without_a_selector_nothing_is_said(stage: Stage) -> None:
    policy = stage.policy()
    fetches(stage, stage.tier())
    stage.leaders.said = {one: said(f"r{one}") for one in (1, 2, 3)}
    settle(stage)
    assert CONDITION not in types(stage, policy)


def test_nothing_is_said_where_only_produce_is_promised(stage: Stage) -> None:
    policy = stage.policy()
    stage.tier()
    stage.leaders.said = {one: said(f"r{one}", RACK_AWARE) for one in (1, 2, 3)}
    settle(stage)
    assert CONDITION not in types(stage, policy)


def test_brokers_that_came_back_without_a_selector_end_it(
    stage: Stage, golden: Callable[[str], None]
) -> None:
    policy = stage.policy()
    fetches(stage, stage.tier())
    stage.leaders.said = {1: said("a", RACK_AWARE), 2: said("b"), 3: said("b")}
    settle(stage)
    assert stage.condition(policy, CONDITION) == ("True", "ReadsFromFollowers")
    stage.restart()  # another replica knows no broker's settings yet: nothing changes
    stage.run()
    assert stage.condition(policy, CONDITION) == ("True", "ReadsFromFollowers")
    stage.leaders.said = {1: said("a"), 2: said("b"), 3: said("b")}
    settle(stage)
    assert stage.condition(policy, CONDITION) == ("False", "LeadersServeReads")
    golden(stage.message(policy, CONDITION))


def test_a_contract_that_is_gone_ends_it(stage: Stage, golden: Callable[[str], None]) -> None:
    policy = stage.policy()
    tier = stage.tier()
    fetches(stage, tier)
    stage.leaders.said = {one: said(f"r{one}", RACK_AWARE) for one in (1, 2, 3)}
    settle(stage)
    contract = {"perBroker": {"fetch": "2M"}}
    stage.kubernetes.edit(tier, lambda raw: raw["spec"]["members"][0].update(contract=contract))
    stage.run()
    assert stage.condition(policy, CONDITION) == ("False", "LeadersServeReads")
    golden(stage.message(policy, CONDITION))


def test_a_login_that_may_not_read_settings_is_reported_once(
    stage: Stage, golden: Callable[[str], None]
) -> None:
    policy = stage.policy()
    fetches(stage, stage.tier())
    stage.leaders.refuse = {1, 2, 3}
    settle(stage)
    assert stage.condition(policy, CONDITION) == ("Unknown", "NotAuthorized")
    assert stage.condition(policy) == ("True", "InSync")
    assert "NotAuthorized" not in stage.event_reasons()
    golden(stage.message(policy, CONDITION))


def test_a_silent_broker_leaves_it_unknown_once_the_others_have_no_selector(
    stage: Stage, golden: Callable[[str], None]
) -> None:
    policy = stage.policy()
    fetches(stage, stage.tier())
    stage.leaders.said = {one: said(f"r{one}", RACK_AWARE) for one in (1, 2, 3)}
    settle(stage)
    stage.restart()
    stage.leaders.said = {one: said(f"r{one}") for one in (1, 2, 3)}
    stage.leaders.silent = {3}
    settle(stage)
    assert stage.condition(policy, CONDITION) == ("Unknown", "BrokersUnreachable")
    golden(stage.message(policy, CONDITION))


def test_no_decision_depends_on_it(stage: Stage) -> None:
    stage.policy()
    fetches(stage, stage.tier())
    stage.leaders.said = {one: said(f"r{one}", RACK_AWARE) for one in (1, 2, 3)}
    settle(stage)
    seen = stage.controllers["streaming/orders"]._pass.observer
    assert seen._settings._known.keys() == {1, 2, 3}
    quotas = stage.store.read([Entity(user="alice")])
    stage.restart()
    stage.leaders.said = {}
    settle(stage)
    assert stage.store.read([Entity(user="alice")]) == quotas
