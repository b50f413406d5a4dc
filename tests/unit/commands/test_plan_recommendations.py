"""`tidegate plan` shows recommended contracts as the operator would take them, and says where it cannot know them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from controller_logic.model import DirectionUsage, Entity, QuotaKey, Usage
from controller_logic.reasons import Reason
from tests.goldens.golden import line_with
from tests.unit.commands.conftest import World
from tidegate.errors import Unauthorized
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, JsonObject
from tidegate.kube.rollup_jobs import record_result

MONTH_MS = 30 * 86_400_000


@pytest.fixture
def made(world: World, policy: dict[str, Any], tier: dict[str, Any]) -> JsonObject:
    """A cluster in which alice moves twice what she is promised, and a policy that allows a tenth."""
    policy["spec"]["metrics"] = {"prometheus": {"url": "http://prometheus:9090"}}
    policy["spec"]["rollup"] = {
        "storage": {"url": "s3://usage"},
        "recommend": {"headroomPercent": 0, "apply": "WithinPercent", "maxChangePercent": 10},
    }
    world.kubernetes.create(BUSINESS_TIERS, tier)
    return world.kubernetes.create(BROKER_BANDWIDTH_POLICIES, policy)


def record(world: World, policy: JsonObject, *, valid_ms: int = MONTH_MS) -> None:
    usage = Usage(7, world.now, {(Entity("alice"), QuotaKey.CONSUMER_BYTE_RATE): DirectionUsage(60e6, 20e6, 3, 1.0, 0.0)})
    now_ms = round(world.now * 1000)
    record_result(world.kubernetes, policy, published=(), usage=usage, now_ms=now_ms, valid_until_ms=now_ms + valid_ms)


def test_a_plan_shows_what_is_recommended_and_plans_with_what_is_applied(world: World, made: JsonObject) -> None:
    record(world, made)
    document = json.loads(world.run("plan", "--output", "json").out)
    (said,) = document["recommendations"]
    assert (said["declared"], said["recommended"], said["applied"]) == (10_000_000, 20_000_000, 11_000_000)
    assert document["changes"][0]["target"] == 11_000_000
    page = world.run("plan").out
    assert "streaming/core / shop" in line_with(page, "RecommendationApplied")


def test_figures_that_count_no_more_change_nothing(world: World, made: JsonObject) -> None:
    record(world, made, valid_ms=-1)
    document = json.loads(world.run("plan", "--output", "json").out)
    assert (document["recommendations"], document["changes"][0]["target"]) == ([], 10_000_000)


def test_a_result_that_may_not_be_read_is_named_in_a_warning(world: World, made: JsonObject, golden: Callable[[str], None]) -> None:
    refused = Unauthorized("Kubernetes refused it (403)", Reason.NOT_AUTHORIZED)

    def refuse(*_: object) -> None:
        raise refused

    world.kubernetes.read_config_map = refuse  # type: ignore[method-assign, assignment]
    (warning,) = json.loads(world.run("plan", "--output", "json").out)["warnings"]
    assert refused.message in warning
    golden(warning)
