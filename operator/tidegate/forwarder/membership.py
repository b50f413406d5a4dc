"""The line between deciding who forwards which level topic, and forwarding."""

from collections.abc import Iterable
from typing import Protocol


class Membership(Protocol):
    """One process among the forwarders of a queue.

    One thread calls `topics`, `wanted`, `take` and `release`; another one calls `may_send` and
    `is_lost`, and `close` at the end. No call waits for longer than a request takes; `wanted`,
    `may_send` and `is_lost` never wait.
    """

    @property
    def member(self) -> str:
        """Its own name, unique per process: the Pod's name with a random suffix."""

    def topics(self, names: Iterable[str]) -> None:
        """Report the level topics that exist now, as the forwarder lists them."""

    def wanted(self) -> frozenset[str]:
        """The level topics that this member is to forward now."""

    def take(self, topic: str) -> bool:
        """Become the owner. False: its last owner has not released it yet, so ask again."""

    def release(self, topic: str) -> None:
        """Let the next member have it, after what was sent is committed."""

    def may_send(self) -> bool:
        """Whether the session's last sign is younger than two thirds of its timeout."""

    def is_lost(self) -> bool:
        """Whether the session ended: nothing is owned any more, and the forwarder starts again."""

    def close(self) -> None:
        """Leave, so that the others take over immediately."""
