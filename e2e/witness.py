"""Sees every value that a user's fetch quota takes, in order, however short it stands."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable

from kazoo.client import KazooClient
from kazoo.recipe.watchers import DataWatch


class Witness:
    """`zookeeper` is started. What stands when it begins is the first value of each user."""

    def __init__(self, zookeeper: KazooClient, users: Iterable[str]) -> None:
        self._seen: dict[str, list[tuple[float, int | None]]] = defaultdict(list)
        self._users = tuple(users)
        for user in self._users:
            DataWatch(zookeeper, f"/config/users/{user}", self._note(user))

    def fetch_quotas(self, user: str, *, since: float = 0.0) -> list[int | None]:
        """The values in order, from that time (seconds since the epoch) on; the same value twice was written twice."""
        return [value for at, value in self._seen[user] if at >= since]

    def _note(self, user: str):  # type: ignore[no-untyped-def]  # kazoo's callback
        def note(data: bytes | None, _stat: object) -> None:
            rate = json.loads(data or b"{}").get("config", {}).get("consumer_byte_rate")
            self._seen[user].append((time.time(), None if rate is None else int(rate)))

        return note
