"""A policy that is deleted leaves nothing of Tidegate's in a real ZooKeeper, whatever its size.

Kubernetes and the brokers are doubles, and so is the clock: what the store does is what counts.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.integration.operator.installation import lay_out
from tests.unit.control.stage import Stage
from tidegate.errors import NotFound
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.kube.api import BUSINESS_TIERS, ObjectRef

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

MEMBERS, TIERS = 1000, 4
ADOPTED_USER = "user-0007"
ADOPTED = (
    b'{"version":1,"config":{"SCRAM-SHA-256":"salt=c2FsdA==","producer_byte_rate":"10000000"}}'
)


@pytest.fixture
def stage(chroot: str, chroot_client: KazooClient) -> Iterator[Stage]:
    """An operator on this ZooKeeper."""
    lay_out(chroot_client, "memory-cluster")
    session = ZooKeeperSession(ZooKeeperConnection(chroot))
    stage = Stage(store=ZooKeeperQuotaStore(session))
    yield stage
    for controller in stage.controllers.values():
        controller.close()
    session.close()


def manage(stage: Stage) -> ObjectRef:
    """A policy with a thousand members, whose quotas are all in ZooKeeper."""
    policy = stage.policy()
    for number in range(TIERS):
        users = [f"user-{member:04}" for member in range(number, MEMBERS, TIERS)]
        members = [_member(user) for user in users]
        stage.kubernetes.create(
            BUSINESS_TIERS,
            {
                "metadata": {"name": f"tier-{number}", "namespace": "streaming"},
                "spec": {"policyRef": {"name": "orders"}, "level": "L0", "members": members},
            },
        )
    stage.run()
    assert stage.condition(policy) == ("True", "InSync")
    return policy


def _member(user: str) -> dict[str, Any]:
    return {"name": user, "user": user, "contract": {"perBroker": {"produce": "50M"}}}


def pass_until_gone(stage: Stage, policy: ObjectRef) -> float:
    """Passes as they fall due; how many seconds of the stage's clock it took."""
    began = stage.now
    while stage.now - began < 400:
        due_seconds = stage.run()
        try:
            stage.kubernetes.get(policy)
        except NotFound:
            return stage.now - began
        stage.now += max(due_seconds, 1.0)
    raise AssertionError(f"after {stage.now - began:.0f} s: {stage.message(policy)}")


def test_deleting_a_policy_of_a_thousand_members_leaves_nothing_of_ours(
    stage: Stage, chroot_client: KazooClient
) -> None:
    chroot_client.create(f"/config/users/{ADOPTED_USER}", ADOPTED)
    policy = manage(stage)
    assert len(stage.store.ledger_entities()) == MEMBERS
    stage.kubernetes.delete(policy)
    pass_until_gone(stage, policy)
    assert "RestoreIncomplete" not in stage.event_reasons()
    users = {
        user: chroot_client.get(f"/config/users/{user}")[0]
        for user in chroot_client.get_children("/config/users")
    }
    assert [user for user, data in users.items() if b"byte_rate" in data] == [ADOPTED_USER]
    assert b'"producer_byte_rate":"10000000"' in users[ADOPTED_USER]
    assert b'"SCRAM-SHA-256":"salt=c2FsdA=="' in users[ADOPTED_USER]
    assert stage.store.ledger_entities() == frozenset()
    assert stage.store.facts().owner_policy_key is None
