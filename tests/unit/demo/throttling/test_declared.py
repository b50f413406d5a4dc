"""What experiments 2 and 3 declare is what their script says, in words that the resources take."""

import json

import pytest
import yaml

from demo.parts import RESOURCES, limit_patch
from demo.script import BUSINESSES, CONTRACT, FEED_TOPIC, HIGH_LIMIT, LIMIT, Business
from demo.script import TOPIC as TOPIC_OF_EXPERIMENT_1
from tidegate.resources.kinds import parse_policy, parse_tier
from tidegate.resources.rates import parse_byte_rate

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
    throttled = spec.throttled_rates.per_partition.fetch if spec.throttled_rates and spec.throttled_rates.per_partition else None
    assert throttled == business.throttled


def test_the_limit_starts_far_away_and_is_patched_in_the_words_of_the_resource() -> None:
    brokers = parse_policy(POLICY, strict=True).spec.brokers
    assert brokers is not None
    assert brokers.egress is not None
    assert brokers.egress.limit == HIGH_LIMIT
    for limit in (LIMIT, HIGH_LIMIT):
        assert parse_byte_rate(json.loads(limit_patch(limit))["spec"]["brokers"]["egress"]["limit"]) == limit


def test_every_lower_tier_has_to_give_something_and_together_they_can_give_enough() -> None:
    at_throttled_rates = [business.throttled or business.wanted for business in BUSINESSES]
    assert sum(at_throttled_rates) <= LIMIT
    l1 = next(business for business in BUSINESSES if business.level == "L1")
    assert sum(at_throttled_rates) - (l1.throttled or 0) + l1.wanted > LIMIT
    assert FEED_TOPIC != TOPIC_OF_EXPERIMENT_1
