"""docs/tutorials/protect-checkout.md: what the page shows is what happens."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doubles.kubectl import kubectl_get
from tests.unit.tutorials.played import Tutorial, objects_of

CALM = {"checkout": 20.0, "search": 20.0}
BUSY = {**CALM, "backfill": 60.0}


@pytest.fixture
def tutorial(tmp_path: Path) -> Tutorial:
    return Tutorial(tmp_path, objects_of("protect-checkout.md"), CALM)


@pytest.fixture
def enforced(tutorial: Tutorial) -> Tutorial:
    """After step 4, and with the backfill of step 5."""
    tutorial.play(15)
    tutorial.patch({"mode": "Enforce"})
    tutorial.play(60)
    tutorial.demand = dict(BUSY)
    tutorial.play(120)
    return tutorial


def test_the_plan_before_anything_is_written(
    tutorial: Tutorial, golden: Callable[[str], None]
) -> None:
    tutorial.play(15)
    assert [tutorial.quota(user) for user in BUSY] == [None, None, None]
    plan = tutorial.command("plan", "--policy", "streaming/orders")
    assert plan.code == 2, plan.err
    golden(plan.out)


def test_the_backfill_gives_way_and_no_one_else(
    enforced: Tutorial, golden: Callable[[str, str], None]
) -> None:
    assert [enforced.quota(user) for user in BUSY] == [20_000_000, 20_000_000, 45_000_000]
    golden(kubectl_get(enforced.objects(), age="4d"), "kubectl get bbp,bt")
    explained = enforced.command("explain", "--user", "backfill", "--policy", "streaming/orders")
    assert explained.code == 0, explained.err
    golden(explained.out, "explain")


def test_when_the_load_is_gone_the_quota_is_the_contract(enforced: Tutorial) -> None:
    enforced.demand = dict(CALM)
    enforced.play(300)
    assert enforced.quota("backfill") == 60_000_000


def test_an_exempt_backfill_has_its_contract_and_search_gives_way_instead(
    enforced: Tutorial,
) -> None:
    asked = ("--user", "backfill", "--exempt", "--for", "3h", "--reason", "reindex")
    answer = enforced.command("override", "create", *asked)
    assert answer.code == 0, answer.err
    enforced.play(600)
    assert (enforced.quota("checkout"), enforced.quota("backfill")) == (20_000_000, 60_000_000)
    assert 8_000_000 <= (enforced.quota("search") or 0) < 20_000_000
    enforced.demand = dict(CALM)
    enforced.stage.now += 3 * 3600
    enforced.play(300)
    assert [enforced.quota(user) for user in BUSY] == [20_000_000, 20_000_000, 60_000_000]
