"""Waking somebody when brokers come or go or the controller changes.

Two plain watches that arm themselves again from kazoo's callback thread without ever waiting there; kazoo's own watch recipes read on
that thread and start a thread for each watch after every lost connection.
"""

from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient, KazooState
from kazoo.protocol.states import EventType

_BROKERS_PATH = "/brokers/ids"
_CONTROLLER_PATH = "/controller"


class ClusterWatch:
    """Watches one client for as long as it lives."""

    def __init__(self, client: KazooClient, wake: Callable[[], None]) -> None:
        self._client = client
        self._wake = wake

    def start(self) -> None:
        """Arm the watches now and after every lost connection."""
        self._client.add_listener(self._on_state)
        self._arm_brokers()
        self._arm_controller()

    def _on_state(self, state: str) -> None:
        # a lost connection drops all watches, and nobody tells what they would have seen
        if state == KazooState.CONNECTED:
            self._arm_brokers()
            self._arm_controller()
            self._wake()

    def _on_brokers(self, event: Any) -> None:
        if event.type != EventType.NONE:
            self._arm_brokers()
            self._wake()

    def _on_controller(self, event: Any) -> None:
        if event.type != EventType.NONE:
            self._arm_controller()
            self._wake()

    def _arm_brokers(self) -> None:
        self._client.get_children_async(_BROKERS_PATH, watch=self._on_brokers)

    def _arm_controller(self) -> None:
        self._client.exists_async(_CONTROLLER_PATH, watch=self._on_controller)
