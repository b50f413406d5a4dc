"""`tidegate ledger import` from end to end: on the in-memory tree, to brokers that keep what they
are given.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.quota_store_contract import ALICE, BOB, PRODUCE, first
from tests.unit.kafka.test_ledger_move import Brokers
from tidegate.kafka.quota_store import Claim
from tidegate.kafka.zookeeper.nodes import MIGRATION_PATH
from tidegate.kafka.zookeeper.tree import SetData

PLACES = ("--zookeeper", "zk-1:2181/kafka", "--bootstrap-servers", "kafka-1:9092")


@pytest.fixture
def moved(world: Any) -> Any:
    """A cluster that has left ZooKeeper, with a ledger of two quotas there."""
    world.store.claim(Claim("streaming/orders", "uid-1"))
    for entity in (ALICE, BOB):
        seen = world.store.read([entity])[entity]
        world.store.write([first(seen, {PRODUCE: "2048"})], "memory-cluster")
    world.store.elect_controller(kraft_epoch=3)
    world.store.prepare_migration()
    world.brokers = Brokers()
    return world


def test_without_yes_it_only_shows(moved: Any, golden: Callable[[str], None]) -> None:
    before = moved.snapshot()
    answer = moved.run("ledger", "import", *PLACES)
    assert (answer.code, answer.err) == (2, "")
    assert moved.snapshot() == before
    assert moved.brokers.ledger is None
    golden(answer.out)


def test_yes_moves_it_and_leaves_zookeeper_as_it_is(
    moved: Any, golden: Callable[[str], None]
) -> None:
    before = moved.snapshot()
    answer = moved.run("ledger", "import", *PLACES, "--yes")
    assert (answer.code, answer.err) == (0, "")
    assert moved.snapshot() == before
    claim, records = moved.brokers.ledger
    assert claim.policy_key == "streaming/orders"
    assert records.keys() == {ALICE, BOB}
    golden(answer.out)


def test_programs_get_what_people_read(moved: Any) -> None:
    answer = moved.run("ledger", "import", *PLACES, "--output", "json")
    document = json.loads(answer.out)
    assert (document["policy"], document["moved"]) == ("streaming/orders", False)
    assert document["message"].startswith("The ledger of 2 quotas would move from ZooKeeper ")


def test_while_controllers_write_to_zookeeper_nothing_moves(
    moved: Any, golden: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = moved.wait

    def meanwhile(seconds: float) -> None:
        (node,) = moved.store.tree.read([MIGRATION_PATH])
        moved.store.tree.commit([SetData(MIGRATION_PATH, b"{}", node.version)])
        wait(seconds)

    monkeypatch.setattr(moved, "wait", meanwhile)
    answer = moved.run("ledger", "import", *PLACES, "--yes")
    assert (answer.code, answer.out) == (1, "")
    assert moved.brokers.ledger is None
    golden(answer.err)


def test_a_zookeeper_without_a_ledger_is_no_success(
    world: Any, golden: Callable[[str], None]
) -> None:
    world.brokers = Brokers()
    answer = world.run("ledger", "import", *PLACES, "--yes")
    assert answer.code == 1
    golden(answer.err)


@pytest.mark.parametrize("places", [PLACES[:2], PLACES[2:], ()])
def test_both_places_are_needed(world: Any, places: tuple[str, ...]) -> None:
    answer = world.run("ledger", "import", *places)
    assert answer.code == 1
    assert "--zookeeper HOST:PORT/CHROOT" in answer.err
    assert "--bootstrap-servers HOST:PORT" in answer.err
