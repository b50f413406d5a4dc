"""The operator makes the control topic for its claims, and forwarders measure the clock there."""

from __future__ import annotations

from contextlib import suppress

import pytest

from lab.process import wait_until
from tests.integration.connections import connection_of
from tests.integration.forwarder.queue_world import APPEND_TIME, QueueWorld
from tidegate.errors import Unreachable
from tidegate.kafka.adminapi.client import AdminClient
from tidegate.kafka.prefix_claims import PrefixClaim, PrefixClaims

pytestmark = pytest.mark.integration


def test_claims_and_the_clock_share_the_control_topic(queue: QueueWorld) -> None:
    client = AdminClient(connection_of(queue.kafka.bootstrap_servers))
    claims = PrefixClaims(client)
    found: dict[str, PrefixClaim] = {}

    def is_claimed() -> bool:
        """The topic is made by the first try; its broker may hear of that a little later."""
        with suppress(Unreachable):
            found.update(claims.claim(queue.names, "uid-1", "shop/first"))
        return bool(found)

    wait_until(is_claimed, "the claim", timeout_seconds=30)
    assert [one.queue_key for one in found.values()] == ["shop/first"]
    level = queue.topic(queue.names.level_topic(1, 0).name, config=APPEND_TIME)
    queue.topic(queue.names.dead_topic)
    queue.topic(queue.target, config=APPEND_TIME)
    with queue.forwarding(), queue.reading() as reader:
        queue.send(level, [b"x"])
        reader.until(1)
        with queue.reading(queue.names.control_topic) as control:
            wait_until(
                lambda: (
                    bool(control.read() or True)
                    and sum(1 for r in control.records if r.key == b"clock") >= 8
                ),
                "probes",
                timeout_seconds=30,
            )
        later = claims.claim(queue.names, "uid-2", "shop/second")
        assert [one.queue_key for one in sorted(later.values(), key=lambda c: c.offset)] == [
            "shop/first",
            "shop/second",
        ]
        assert set(claims.release(queue.names, "uid-1")) == {"uid-2"}
        assert set(PrefixClaims(client).read(queue.names)) == {"uid-2"}
        queue.send(level, [b"y"])
        reader.until(2)
    client.close()
