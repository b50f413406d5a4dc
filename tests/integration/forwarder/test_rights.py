"""A forwarder with the rights that it needs, and no others, on brokers with an authorizer."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from lab.kafka_admin import login_settings
from lab.kraft import KraftLab
from lab.process import patience
from tests.integration.forwarder.queue_world import QueueWorld
from tidegate.queues.names import REASON_HEADER, Guarantee

pytestmark = pytest.mark.integration

USER = "alice"


def grant(queue: QueueWorld, *targets: str) -> None:
    """What the forwarders' user needs: its queue, and to write to these targets."""
    names, every, exact = queue.names, ResourcePatternType.PREFIXED, ResourcePatternType.LITERAL
    topic, transaction = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
    rights = [
        (topic, queue.prefix, every, AclOperation.READ),
        *(
            (topic, name, exact, AclOperation.WRITE)
            for name in (names.control_topic, names.dead_topic, *targets)
        ),
        (ResourceType.GROUP, names.group, exact, AclOperation.READ),
        (transaction, f"{names.group}.", every, AclOperation.WRITE),
    ]
    bindings = [
        AclBinding(kind, name, how, f"User:{USER}", "*", operation, AclPermissionType.ALLOW)
        for kind, name, how, operation in rights
    ]
    client = AdminClient({"bootstrap.servers": queue.kafka.bootstrap_servers})
    for done in client.create_acls(bindings).values():
        done.result(patience(20))


@pytest.mark.parametrize("guarantee", list(Guarantee), ids=str)
def test_a_target_that_refuses_the_user_is_dead_and_the_rest_goes_on(
    kraft: KraftLab, unique_name: str, guarantee: Guarantee
) -> None:
    queue = QueueWorld(kraft, unique_name, guarantee)
    (level,) = queue.create(partitions=1)
    refused = queue.topic(f"{queue.prefix}-refused")
    hidden = queue.topic("missing-" + queue.prefix)
    grant(queue, queue.target)
    login = login_settings(
        kraft.sasl_bootstrap_servers, USER, password=kraft.password(USER), mechanism="PLAIN"
    )
    with (
        queue.forwarding(client=login, starts_again=True),
        queue.reading() as reader,
        queue.reading(queue.names.dead_topic) as dead,
    ):
        queue.send(level, [b"alone"], target=refused)  # nothing else is in its transaction
        dead.until(1)
        for number in range(30):
            target = (queue.target, refused, hidden)[number % 3]
            queue.send(level, [b"%d" % number], target=target)
        reader.until(10)
        dead.until(21)
        arrived = [int(r.value or b"") for r in reader.settled()]
        reasons = {r.value: (r.header(REASON_HEADER) or b"").split(b":")[0] for r in dead.settled()}
    assert list(dict.fromkeys(arrived)) == list(range(0, 30, 3))
    assert reasons.pop(b"alone") == b"TargetRefused"
    assert reasons == {
        b"%d" % number: (b"", b"TargetRefused", b"TargetNotFound")[number % 3]
        for number in range(30)
        if number % 3
    }
    if guarantee is Guarantee.EXACTLY_ONCE:
        assert len(arrived) == 10
