"""Two Kubernetes clusters with a policy of the same name, one Kafka: one of them writes.

The first tests run passes of two operators on a real ZooKeeper, with Kubernetes as doubles; the
last one runs two operators as processes on two real API servers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from controller_logic.model import Entity
from tests.integration.operator.installation import lay_out
from tests.unit.control.stage import Stage
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.kube.api import ObjectRef

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PASSES = 40  # 10 minutes of passes
BOB = Entity("bob")


def _walk(client: KazooClient, path: str) -> Iterator[str]:
    for child in client.get_children(path):
        below = f"{path.rstrip('/')}/{child}"
        yield below
        yield from _walk(client, below)


def _versions(client: KazooClient) -> dict[str, Any]:
    """The last transaction of every quota, of the ledger, the claim and the notifications."""
    roots = ("/config", "/tidegate")
    return {
        path: client.get(path)[1].mzxid
        for root in roots
        for path in (root, *_walk(client, root))
        if client.exists(path)
    }


@pytest.fixture
def operators(chroot: str, chroot_client: KazooClient) -> Iterator[tuple[Stage, Stage]]:
    """Two operators, each with a Kubernetes and a session of its own. The second one's tiers name
    one user more.
    """
    lay_out(chroot_client, "memory-cluster")
    chroot_client.create("/brokers/topics/acc")
    stores = [ZooKeeperQuotaStore(ZooKeeperSession(ZooKeeperConnection(chroot))) for _ in range(2)]
    first, second = (Stage(store=store) for store in stores)
    yield first, second
    for store in stores:
        store.close()


def _declare(stage: Stage, *more: str) -> ObjectRef:
    policy = stage.policy(removal={"maxPercent": 100})
    stage.tier()
    for user in more:
        stage.tier(f"of-{user}", user=user, rate="5M")
    return policy


def _annotate(stage: Stage, policy: ObjectRef, named: str) -> None:
    annotations = {"tidegate.io/replace-claim": named}
    stage.kubernetes.edit(policy, lambda raw: raw["metadata"].update(annotations=annotations))


def _pass_in_turn(*stages: Stage) -> None:
    for _ in range(PASSES):
        for stage in stages:
            stage.now += 15
            stage.run()


def test_one_of_two_policies_of_one_name_writes_and_the_other_says_why_not(
    operators: tuple[Stage, Stage], chroot_client: KazooClient
) -> None:
    first, second = operators
    ours, theirs = _declare(first), _declare(second, "bob")
    first.run()
    second.run()
    versions = _versions(chroot_client)
    _pass_in_turn(second, first)
    assert _versions(chroot_client) == versions
    assert first.condition(ours) == ("True", "InSync")
    assert second.condition(theirs) == ("False", "ClaimedElsewhere")
    assert ours.uid in second.message(theirs)


def test_a_take_over_moves_the_claim_once_and_the_old_owner_stops(
    operators: tuple[Stage, Stage], chroot_client: KazooClient
) -> None:
    first, second = operators
    ours, theirs = _declare(first), _declare(second, "bob")
    first.run()
    _annotate(second, theirs, ours.uid)
    second.run()
    assert second.produce(BOB) == "5000000"
    _annotate(first, ours, theirs.uid)
    versions = _versions(chroot_client)
    _pass_in_turn(first, second)
    assert _versions(chroot_client) == versions
    assert first.condition(ours) == ("False", "ClaimedElsewhere")
    assert second.condition(theirs) == ("True", "InSync")
    reasons = {
        which: [event.reason for event in stage.kubernetes.events if event.regarding == policy]
        for which, stage, policy in (("first", first, ours), ("second", second, theirs))
    }
    assert reasons["first"].count("ClaimedElsewhere") == 1
    assert reasons["second"].count("ClaimTakenOver") == 1
