"""`tidegate ledger` from end to end: `import` on the in-memory tree, to brokers that keep what they
are given, and the answers for a lost ledger on the in-memory API server.
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
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, ObjectRef

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


# --- answers for a lost ledger --------------------------------------------------------------------

LOST_LEDGER = "tidegate.io/lost-ledger"


@pytest.fixture
def lost(world: Any, policy: Any) -> ObjectRef:
    """A policy whose ledger is lost, as the operator has reported it."""
    made = world.kubernetes.create(BROKER_BANDWIDTH_POLICIES, policy)
    ref = ObjectRef.of(BROKER_BANDWIDTH_POLICIES, made)
    report(world, ref, "LedgerLost")
    return ref


def report(world: Any, ref: ObjectRef, reason: str) -> None:
    ready = {"type": "Ready", "status": "False", "reason": reason, "message": "The ledger is gone."}
    ledger = {"clusterId": "memory-cluster", "epoch": 4, "records": 2}
    version = world.kubernetes.get(ref)["metadata"]["resourceVersion"]
    world.kubernetes.patch_status(
        ref, {"conditions": [ready], "ledger": ledger}, resource_version=version
    )


def annotation(world: Any, ref: ObjectRef) -> str | None:
    value = (world.kubernetes.get(ref)["metadata"].get("annotations") or {}).get(LOST_LEDGER)
    return None if value is None else str(value)


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (("rebuild",), "rebuild@4"),
        (("accept",), "accept@4"),
        (("accept", "--keep-quotas"), "accept-keeping-quotas@4"),
    ],
)
def test_an_answer_is_an_annotation_that_names_the_lost_ledger(
    world: Any, lost: ObjectRef, words: tuple[str, ...], value: str
) -> None:
    answer = world.run("ledger", *words, "streaming/orders", "--dry-run=client")
    assert (answer.code, annotation(world, lost)) == (2, None)
    assert f"{LOST_LEDGER}={value}" in answer.out
    answer = world.run("ledger", *words, "streaming/orders")
    assert (answer.code, answer.err, annotation(world, lost)) == (0, "", value)


def test_an_answer_reads_like_this(
    world: Any, lost: ObjectRef, golden: Callable[[str], None]
) -> None:
    asked = world.run("ledger", "rebuild").out
    golden(f"{world.run('ledger', 'accept', '--dry-run=client').out}\n{asked}")
    document = json.loads(world.run("ledger", "accept", "--dry-run=client", "-o", "json").out)
    assert (document["value"], document["asked"]) == ("accept@4", False)


def test_there_is_no_answer_for_a_ledger_that_is_there(world: Any, lost: ObjectRef) -> None:
    report(world, lost, "Paused")
    answer = world.run("ledger", "accept", "streaming/orders")
    assert answer.code != 0
    assert "has lost no ledger" in answer.err
    assert annotation(world, lost) is None
