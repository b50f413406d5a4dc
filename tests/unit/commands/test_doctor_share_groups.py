"""What `tidegate doctor` says of share groups."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidegate_logic.model import (
    MAX_BYTE_RATE,
    ClientRate,
    Default,
    Direction,
    Entity,
    QuotaKey,
    Readings,
    ShareGroup,
)

ALICE = Entity("alice")
ORDERS = ShareGroup("orders", frozenset({"reader"}), frozenset({"acc"}))


def said(world: Any, policy: Any, tier: Any) -> list[dict[str, Any]]:
    answer = world.run("doctor", "-f", world.write_files(policy, tier), "-o", "json")
    assert answer.out, answer.err
    return [one for one in json.loads(answer.out)["findings"] if one["check"] == "share-groups"]


@pytest.fixture
def member(tier: Any) -> Any:
    """The only member: alice, who reads topic acc."""
    return tier["spec"]["members"][0]


@pytest.mark.usefixtures("member")
def test_nothing_is_said_without_share_groups(world: Any, policy: Any, tier: Any) -> None:
    assert said(world, policy, tier) == []


def test_a_group_that_reads_with_a_member_is_named_with_what_it_costs(
    world: Any, policy: Any, tier: Any, member: Any
) -> None:
    world.share_groups = (ORDERS,)
    member["shareGroupNames"] = ["orders"]
    (one,) = said(world, policy, tier)
    assert (one["state"], one["reason"]) == ("warning", "ShareGroup")
    assert "streaming/core / shop (user=alice)" in one["what"]
    member["shareGroups"] = "Throttle"
    (one,) = said(world, policy, tier)
    assert "share.delivery.count.limit" in one["toDo"]


@pytest.mark.parametrize(("rate", "is_reported"), [(9.5e6, True), (2e6, False), (None, True)])
def test_another_writers_fetch_quota_is_reported_unless_the_group_reads_far_less(
    world: Any, policy: Any, tier: Any, member: Any, rate: float | None, *, is_reported: bool
) -> None:
    world.share_groups = (ORDERS,)
    member["shareGroupNames"] = ["orders"]
    if rate is not None:
        policy["spec"]["metrics"] = {"prometheus": {"url": "http://prometheus:9090"}}
        clients = {(ALICE, 1, Direction.EGRESS): ClientRate(world.now, rate)}
        world.readings = lambda: Readings(world.now, 15.0, clients=clients)
    world.store.put(ALICE, {QuotaKey.CONSUMER_BYTE_RATE: "10000000"})
    found = said(world, policy, tier)
    assert (len(found) == 2) is is_reported
    assert rate is None or f"{rate / 1e6:g} MB/s cannot be throttled" in found[0]["soWhat"]


def test_the_quota_of_kafkas_default_user_is_reported_where_it_counts(
    world: Any, policy: Any, tier: Any, member: Any
) -> None:
    world.share_groups = (ORDERS,)
    member["shareGroupNames"] = ["orders"]
    world.store.put(Entity(Default.DEFAULT), {QuotaKey.CONSUMER_BYTE_RATE: "5000000"})
    _, quota = said(world, policy, tier)
    assert "the fetch quota of user=<default>, 5 MB/s" in quota["what"]
    world.store.put(Entity(Default.DEFAULT), {QuotaKey.CONSUMER_BYTE_RATE: str(MAX_BYTE_RATE)})
    assert len(said(world, policy, tier)) == 1


def test_a_group_that_matches_nobody_is_named_with_the_members_it_may_be(
    world: Any, policy: Any, tier: Any, member: Any
) -> None:
    world.share_groups = (ORDERS,)
    (one,) = said(world, policy, tier)
    assert "cannot be matched" in one["what"]
    assert "streaming/core / shop" in one["soWhat"]
    member["topics"] = ["other*"]
    assert said(world, policy, tier) == []
