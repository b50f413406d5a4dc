"""Watches quotas in ZooKeeper: which value was in force for which user since when.

It has a session of its own. It only reads and shares nothing with the operator, so it is an
independent record of what the operator wrote. Times are ZooKeeper's own modification times: they do
not depend on when this process came to read.
"""

import json
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from kazoo.client import KazooClient

FETCH_KEY = "consumer_byte_rate"
PRODUCE_KEY = "producer_byte_rate"
_START_TIMEOUT_SECONDS = 15


@dataclass(frozen=True, slots=True)
class QuotaWrite:
    """One write of a user's quota, in bytes per second; None = no quota.

    What is there when the watch begins is the first write.
    """

    at_seconds: float
    user: str
    before: int | None
    after: int | None


class QuotaWatch:
    """A context manager; while it is open, every write to the znodes of `users` is recorded.

    `key` is the quota's name in Kafka. `on_write` gets every change of a value at once, in the
    session's thread.
    """

    def __init__(
        self,
        connect: str,
        users: Iterable[str],
        key: str = FETCH_KEY,
        *,
        on_write: Callable[[QuotaWrite], None] | None = None,
    ) -> None:
        # A test may stop ZooKeeper for a while: the session is made again by itself, and then every
        # znode is read again.
        self._client = KazooClient(
            hosts=connect, read_only=True, command_retry={"max_tries": -1, "max_delay": 1.0}
        )
        self._users = tuple(users)
        self._key = key
        self._on_write = on_write
        self._changed = threading.Condition()
        self._writes: list[QuotaWrite] = []
        self._in_force: dict[str, int | None] = dict.fromkeys(self._users)

    def __enter__(self) -> Self:
        self._client.start(timeout=_START_TIMEOUT_SECONDS)
        for user in self._users:
            self._client.DataWatch(
                f"/config/users/{urllib.parse.quote(user, safe='')}", partial(self._record, user)
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()

    def quotas(self) -> dict[str, int | None]:
        """User -> the quota in force now."""
        with self._changed:
            return dict(self._in_force)

    def writes(self) -> list[QuotaWrite]:
        """Every change of a value so far, in the order of time."""
        with self._changed:
            changes = [write for write in self._writes if write.before != write.after]
        return sorted(changes, key=lambda write: write.at_seconds)

    def values(self, user: str, *, since: float = 0.0) -> list[int | None]:
        """The value in force at `since` (seconds since the epoch), then every later one.

        A value written twice is there twice.
        """
        with self._changed:
            writes = sorted(
                (write for write in self._writes if write.user == user),
                key=lambda write: write.at_seconds,
            )
        before = [write.after for write in writes if write.at_seconds < since][-1:]
        return before + [write.after for write in writes if write.at_seconds >= since]

    def wait_for(self, user: str, quota: int | None, *, timeout_seconds: float) -> bool:
        """Return True as soon as this quota is in force, False after `timeout_seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: self._in_force[user] == quota, timeout_seconds)

    def _record(self, user: str, data: bytes | None, stat: Any, _event: object = None) -> None:
        quota = quota_in(data, self._key)
        with self._changed:
            before = self._in_force[user]
            if stat is None and before is None:
                return  # there is no znode yet
            write = QuotaWrite(
                time.time() if stat is None else stat.last_modified, user, before, quota
            )
            self._writes.append(write)
            self._in_force[user] = quota
            self._changed.notify_all()
        if self._on_write is not None and before != quota:
            self._on_write(write)


def quota_in(data: bytes | None, key: str) -> int | None:
    """The quota of that name in the content of a user's znode; None without one."""
    text = json.loads(data or b"{}").get("config", {}).get(key)
    return None if text is None else int(float(text))
