"""docs/tutorials/from-kafka-configs.md: the day of the move changes no quota, and the way back
neither.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.tutorials.played import KINDS, Tutorial, objects_of
from tidegate.kube.api import BUSINESS_TIERS, ObjectRef
from tidegate_logic.model import Entity, QuotaKey

PAGE = "from-kafka-configs.md"
FETCH, PRODUCE = QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.PRODUCER_BYTE_RATE
SCRIPTED = {
    Entity("checkout"): {FETCH: "50000000", PRODUCE: "20000000"},
    Entity("search"): {FETCH: "30000000"},
    Entity("etl", "nightly"): {FETCH: "12000000"},
}
ZOOKEEPER = ("--zookeeper", "zk-1:2181/kafka")
IMPORT = ("import", "streaming/orders", *ZOOKEEPER, "--level-of", "checkout*=L0")


def quotas(tutorial: Tutorial) -> dict[Entity, dict[QuotaKey, str]]:
    stored = tutorial.stage.store.read(list(SCRIPTED))
    return {
        entity: {key: text for key, text in one.values.items() if text is not None}
        for entity, one in stored.items()
    }


@pytest.fixture
def tutorial(tmp_path: Path) -> Tutorial:
    """The cluster as the scripts left it, with the page's first policy."""
    policy, *_ = objects_of(PAGE)
    tutorial = Tutorial(tmp_path, [policy])
    for entity, values in SCRIPTED.items():
        tutorial.stage.store.put(entity, dict(values))
    return tutorial


@pytest.fixture
def moved(tutorial: Tutorial) -> Tutorial:
    """After step 4."""
    for tier in imported(tutorial):
        tutorial.stage.kubernetes.create(KINDS[tier["kind"]], tier)
    tutorial.play(15)
    assert tutorial.stage.condition(tutorial.policy) == ("True", "Observing")
    assert quotas(tutorial) == SCRIPTED
    tutorial.patch({"mode": "Enforce"})
    tutorial.play(60)
    assert tutorial.stage.condition(tutorial.policy) == ("True", "InSync")
    return tutorial


def imported(tutorial: Tutorial) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(tutorial.command(*IMPORT).out))


def test_what_the_scripts_set_becomes_tiers_and_no_quota_changes(
    tutorial: Tutorial, tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    answer = tutorial.command(*IMPORT)
    assert answer.code == 0, answer.err
    golden(answer.out, "tiers")
    files = [tmp_path / "policy.yaml", tmp_path / "tiers.yaml"]
    files[0].write_text(yaml.safe_dump(objects_of(PAGE)[0]))
    files[1].write_text(answer.out)
    plan = tutorial.command("plan", "-f", str(files[0]), "-f", str(files[1]), "--all")
    assert plan.code in (0, 2), plan.err
    golden(plan.out, "plan")
    assert quotas(tutorial) == SCRIPTED


def test_on_the_day_of_the_move_no_quota_changes(moved: Tutorial) -> None:
    assert quotas(moved) == SCRIPTED


def test_a_contract_per_partition_follows_the_leaders(moved: Tutorial) -> None:
    _, edited, _ = objects_of(PAGE)
    name = edited["metadata"]["name"]
    (tier,) = [
        ObjectRef.of(BUSINESS_TIERS, one)
        for one in moved.objects()
        if one["metadata"]["name"] == name
    ]
    moved.stage.kubernetes.edit(tier, lambda raw: raw.update(spec=edited["spec"]))
    moved.play(15)
    assert quotas(moved) == SCRIPTED
    moved.stage.leaders.leaders = {"orders": {1: 2, 2: 1}}
    moved.stage.leaders.brokers = frozenset({1, 2})
    moved.play(15)
    assert moved.quota("checkout") == 100_000_000


def test_the_way_back_leaves_what_the_scripts_had_set(moved: Tutorial) -> None:
    assert moved.command("restore", *ZOOKEEPER).code == 2
    answer = moved.command("restore", *ZOOKEEPER, "--yes")
    assert answer.code == 0, answer.err
    assert quotas(moved) == SCRIPTED


def test_the_policy_without_zookeeper_goes_through_the_brokers() -> None:
    *_, through_brokers = objects_of(PAGE)
    assert through_brokers["spec"]["kafka"].keys() == {"bootstrapServers", "quotaStore"}
