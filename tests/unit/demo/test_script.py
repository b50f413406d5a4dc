"""The script of the experiments: its arithmetic, the size that a machine can carry, and what is
declared to the operator.
"""

import json
from collections.abc import Callable

import pytest
import yaml

from demo.parts import RESOURCES, limit_patch
from demo.script import (
    BUSINESSES,
    CONTRACT,
    FEED_TOPIC,
    FULL_CONTRACT,
    HIGH_LIMIT,
    LIMIT,
    PHASES,
    SMALL_CONTRACT,
    Business,
    expected_by_broker,
    quota_of,
    scale_for,
)
from demo.script import TOPIC as TOPIC_OF_EXPERIMENT_1
from tests.goldens.golden import numbers
from tidegate.resources.kinds import parse_policy, parse_tier
from tidegate.resources.rates import parse_byte_rate

# --- arithmetic -----------------------------------------------------------------------------------
# The arithmetic that the experiment is held against.


PER_PARTITION = 10_000_000
OFFERED = 25_000_000


@pytest.mark.parametrize(
    ("phase", "total"),
    [
        ("fixed-before", 30e6),
        ("fixed-killed", 20e6),
        ("max-before", 30e6),
        ("max-killed", 40e6),
        ("mean-killed", 30e6),
    ],
)
def test_totals_are_those_of_leaders_times_quota(phase: str, total: float) -> None:
    played = next(one for one in PHASES if one.key == phase)
    expected = expected_by_broker(
        played.leaders, quota_of(played, PER_PARTITION), offered_bytes_per_second=OFFERED
    )
    assert sum(expected.values()) == total


def test_a_broker_cannot_deliver_more_than_is_offered_to_it() -> None:
    assert expected_by_broker({0: 1, 1: 2}, 100, offered_bytes_per_second=70) == {1: 70, 2: 70}


def test_the_offer_is_above_the_quota_of_every_broker_in_every_phase() -> None:
    for phase in PHASES:
        quota = quota_of(phase, PER_PARTITION)
        expected = expected_by_broker(phase.leaders, quota, offered_bytes_per_second=OFFERED)
        assert set(expected.values()) == {quota}, phase.key


# --- the size -------------------------------------------------------------------------------------
# The size of the experiment follows from what the machine carried.


@pytest.mark.parametrize(
    ("carried", "contract"), [(49e6, SMALL_CONTRACT), (50e6, FULL_CONTRACT), (0, SMALL_CONTRACT)]
)
def test_a_weak_machine_plays_three_megabytes_per_partition(carried: float, contract: int) -> None:
    assert (
        scale_for(carried, tried_bytes_per_second=90e6, cores=2).contract_bytes_per_second
        == contract
    )


def test_the_reason_names_what_the_machine_carried_and_what_was_needed(
    golden: Callable[[str], None],
) -> None:
    reason = scale_for(41.4e6, tried_bytes_per_second=90e6, cores=2).reason
    assert numbers(reason) >= {41, 90, 50, 3}
    golden(reason)


# --- what is declared -----------------------------------------------------------------------------
# What experiments 2 and 3 declare is what their script says, in words that the resources take.


POLICY, *TIERS = yaml.safe_load_all(RESOURCES.read_text(encoding="utf-8"))


@pytest.mark.parametrize("business", BUSINESSES, ids=lambda business: business.level)
def test_each_business_is_declared_as_it_is_played(business: Business) -> None:
    declared = next(document for document in TIERS if document["spec"]["level"] == business.level)
    spec = parse_tier(declared, strict=True).spec
    member = spec.members[0]
    assert (member.user, member.topics) == (business.user, (FEED_TOPIC,))
    assert member.contract is not None
    assert member.contract.per_partition is not None
    assert member.contract.per_partition.fetch == CONTRACT
    throttled = (
        spec.throttled_rates.per_partition.fetch
        if spec.throttled_rates and spec.throttled_rates.per_partition
        else None
    )
    assert throttled == business.throttled


def test_the_limit_starts_far_away_and_is_patched_in_the_words_of_the_resource() -> None:
    brokers = parse_policy(POLICY, strict=True).spec.brokers
    assert brokers is not None
    assert brokers.egress is not None
    assert brokers.egress.limit == HIGH_LIMIT
    for limit in (LIMIT, HIGH_LIMIT):
        assert (
            parse_byte_rate(json.loads(limit_patch(limit))["spec"]["brokers"]["egress"]["limit"])
            == limit
        )


def test_every_lower_tier_has_to_give_something_and_together_they_can_give_enough() -> None:
    at_throttled_rates = [business.throttled or business.wanted for business in BUSINESSES]
    assert sum(at_throttled_rates) <= LIMIT
    l1 = next(business for business in BUSINESSES if business.level == "L1")
    assert sum(at_throttled_rates) - (l1.throttled or 0) + l1.wanted > LIMIT
    assert FEED_TOPIC != TOPIC_OF_EXPERIMENT_1
