"""What `forward` does before a member can forward anything."""

import threading

import pytest

from tests.doubles.membership import FixedMembership
from tidegate.errors import Unreachable, UserActionRequired
from tidegate.forwarder.forwarder import forward
from tidegate.forwarder.membership import Membership
from tidegate.forwarder.metrics import ForwarderMetrics
from tidegate.forwarder.settings import ForwarderSettings
from tidegate.queues.names import Guarantee, QueueNames
from tidegate_logic.reasons import Reason


def settings(**client: object) -> ForwarderSettings:
    return ForwarderSettings(QueueNames("shop"), Guarantee.AT_LEAST_ONCE, (), None, client)


def test_settings_that_librdkafka_refuses_are_said_in_a_sentence() -> None:
    membership = FixedMembership("one")
    with pytest.raises(UserActionRequired, match=r"ssl\.ca\.location"):
        forward(
            lambda _: membership,
            "pod",
            settings(**{"security.protocol": "ssl", "ssl.ca.location": "/missing"}),
            ForwarderMetrics(),
            threading.Event(),
        )
    assert membership.closed


def test_a_membership_that_cannot_be_reached_is_tried_again_under_another_name() -> None:
    names: list[str] = []
    stop = _Counting(2)

    def open_membership(name: str) -> Membership:
        names.append(name)
        raise Unreachable(Reason.ZOOKEEPER_UNREACHABLE, "not there")

    forward(open_membership, "pod", settings(), ForwarderMetrics(), stop)
    assert len(names) == len(set(names)) == 2
    assert all(name.startswith("pod-") for name in names)


class _Counting(threading.Event):
    """Set after so many waits, none of which takes any time."""

    def __init__(self, waits: int) -> None:
        super().__init__()
        self._left = waits

    def wait(self, timeout: float | None = None) -> bool:
        self._left -= 1
        if self._left <= 0:
            self.set()
        return self.is_set()
