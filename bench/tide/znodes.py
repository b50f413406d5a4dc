"""Which quota of each user stood in ZooKeeper since when, with ZooKeeper's own times: a witness that is not the operator. It only reads."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from kazoo.client import KazooClient

from demo.witnesses import quota_of_znode

_START_TIMEOUT_SECONDS = 15


@dataclass(frozen=True, slots=True)
class QuotaWrite:
    """One write of one user's quota, in bytes per second; None = no quota."""

    at_seconds: float
    user: str
    before: int | None
    after: int | None


class Znodes:
    """A context manager with a session of its own, that keeps every write of `znode_key` for these users."""

    def __init__(self, connect: str, users: Sequence[str], znode_key: str) -> None:
        self._client = KazooClient(hosts=connect, read_only=True)
        self._users = users
        self._key = znode_key
        self._lock = threading.Lock()
        self._writes: list[QuotaWrite] = []
        self._now: dict[str, int | None] = {}

    def __enter__(self) -> Self:
        self._client.start(timeout=_START_TIMEOUT_SECONDS)
        for user in self._users:
            self._client.DataWatch(f"/config/users/{user}", partial(self._on_data, user))
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()

    def writes(self) -> list[QuotaWrite]:
        """Every write so far, in the order of time."""
        with self._lock:
            return sorted(self._writes, key=lambda write: write.at_seconds)

    def quotas(self) -> dict[str, int | None]:
        """User -> the quota that stands now."""
        with self._lock:
            return dict(self._now)

    def _on_data(self, user: str, data: bytes | None, stat: Any, _event: object) -> None:
        quota = quota_of_znode(data, self._key)
        with self._lock:
            before = self._now.get(user)
            self._now[user] = quota
            if stat is not None and before != quota:
                self._writes.append(QuotaWrite(stat.last_modified, user, before, quota))
