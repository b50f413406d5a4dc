"""docs/tutorials/share-a-budget.md: what the page shows is what happens with its files."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.doubles.kubectl import kubectl_get
from tests.unit.tutorials.played import BROKERS, Tutorial, objects_of

FILES = Path(__file__).parents[3] / "examples" / "budgets"
NAMES = ("policy.yaml", "search.yaml", "load.yaml")
USUAL = {
    "search-query": 9.0,
    "search-suggest": 6.0,
    "search-ranker": 3.0,
    "search-spelling": 3.0,
    "search-images": 6.0,
    "search-reports": 3.0,
}
INDEXING = {**USUAL, "search-indexer": 300.0}


def documents() -> list[dict[str, object]]:
    return [one for name in NAMES for one in yaml.safe_load_all((FILES / name).read_text("utf-8"))]


@pytest.fixture
def tutorial(tmp_path: Path) -> Tutorial:
    return Tutorial(tmp_path, documents(), dict(USUAL), through=BROKERS)


@pytest.fixture
def indexing(tutorial: Tutorial) -> Tutorial:
    """After the step in which it is switched on, with an indexer that reads all it can."""
    tutorial.play(15)
    tutorial.patch({"mode": "Enforce"})
    tutorial.play(180)
    tutorial.demand = dict(INDEXING)
    tutorial.play(120)
    return tutorial


def megabytes(tutorial: Tutorial, user: str) -> float:
    """What a service may read from all brokers together."""
    return len(BROKERS) * (tutorial.quota(user) or 0) / 1e6


def test_what_the_page_shows_of_the_files_is_in_them() -> None:
    shown = objects_of("share-a-budget.md")
    assert shown
    assert all(one in documents() for one in shown)


def test_a_new_index_can_be_simulated(tutorial: Tutorial, golden: Callable[[str], None]) -> None:
    played = tutorial.command("simulate", *(str(FILES / name) for name in NAMES))
    assert played.code == 0, played.err
    golden(played.out)


def test_the_indexer_gets_what_the_others_leave(
    indexing: Tutorial, golden: Callable[[str, str], None]
) -> None:
    assert megabytes(indexing, "search-indexer") == pytest.approx(87, abs=0.1)
    shown = [one for one in indexing.objects() if one["kind"] == "BandwidthBudget"]
    golden(kubectl_get(shown, age="4d"), "kubectl get bb")
    asked = ("--user", "search-indexer", "--policy", "streaming/orders")
    explained = indexing.command("explain", *asked)
    assert explained.code == 0, explained.err
    golden(explained.out, "explain")


def test_a_ranker_that_needs_more_shares_with_the_indexer(indexing: Tutorial) -> None:
    indexing.demand["search-ranker"] = 60.0
    indexing.play(120)
    for user in ("search-indexer", "search-ranker"):
        assert megabytes(indexing, user) == pytest.approx(45, abs=2)


def test_a_service_without_traffic_can_always_use_its_minimum(indexing: Tutorial) -> None:
    assert megabytes(indexing, "search-export") == pytest.approx(6, abs=0.1)


def test_without_the_budget_no_quota_is_left(indexing: Tutorial) -> None:
    (budget,) = [one for one in indexing.objects() if one["kind"] == "BandwidthBudget"]
    indexing.demand = dict(USUAL)
    indexing.delete(budget)
    indexing.play(120)
    assert {indexing.quota(user) for user in INDEXING} == {None}
