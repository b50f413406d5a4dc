"""A membership of one process that owns a fixed set of level topics; tests change the set."""

from __future__ import annotations

from collections.abc import Iterable


class FixedMembership:
    """Owns `own`; with None, every level topic that exists."""

    def __init__(self, member: str, own: Iterable[str] | None = None) -> None:
        self.member = member
        self.own = None if own is None else frozenset(own)
        self.existing: frozenset[str] = frozenset()
        self.released: list[str] = []
        self.alive = True
        self.lost = False
        self.closed = False

    def topics(self, names: Iterable[str]) -> None:
        self.existing = frozenset(names)

    def wanted(self) -> frozenset[str]:
        return self.existing if self.own is None else self.existing & self.own

    def take(self, topic: str) -> bool:
        return True

    def release(self, topic: str) -> None:
        self.released.append(topic)

    def may_send(self) -> bool:
        return self.alive

    def is_lost(self) -> bool:
        return self.lost

    def close(self) -> None:
        self.closed = True
