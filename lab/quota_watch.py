"""Watches quotas in Kafka: which value was in force for which user since when.

It only reads and shares nothing with the operator, so it is an independent record of what the
operator wrote. With ZooKeeper, times are ZooKeeper's own modification times; without, they are
those at which the first broker logs that it took the value over. They do not depend on when this
process came to read.
"""

import json
import re
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from kazoo.client import KazooClient

from lab.kafka import BrokersLab, KafkaLab, QuotaChange, changes_in
from lab.process import Opened, repeated

FETCH_KEY = "consumer_byte_rate"
PRODUCE_KEY = "producer_byte_rate"
_KIND = {FETCH_KEY: "FETCH", PRODUCE_KEY: "PRODUCE"}
_START_TIMEOUT_SECONDS = 15
_LOG_POLL_SECONDS = 0.05
# as `lab.java` has every log written
_LOG_LINE = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d),(\d{3}) .*")


@dataclass(frozen=True, slots=True)
class QuotaWrite:
    """One write of a user's quota, in bytes per second; None = no quota.

    What is there when the watch begins is the first write.
    """

    at_seconds: float
    user: str
    before: int | None
    after: int | None


class QuotaWatch(Opened):
    """While it is open, every change of the quotas of `users` is recorded, and what was recorded
    stays; what is there now is known once it is open.

    `source` is where each kind reads, `key` the quota's name in Kafka. `on_write` gets every change
    of a value at once, in the thread that read it.
    """

    def __init__(
        self,
        source: Any,
        users: Iterable[str],
        key: str = FETCH_KEY,
        *,
        on_write: Callable[[QuotaWrite], None] | None = None,
    ) -> None:
        self._source = source
        self._users = tuple(users)
        self._key = key
        self._on_write = on_write
        self._changed = threading.Condition()
        self._writes: list[QuotaWrite] = []
        self._in_force: dict[str, int | None] = dict.fromkeys(self._users)

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

    def _record(self, user: str, quota: int | None, *, at_seconds: float) -> None:
        with self._changed:
            before = self._in_force[user]
            write = QuotaWrite(at_seconds, user, before, quota)
            self._writes.append(write)
            self._in_force[user] = quota
            self._changed.notify_all()
        if self._on_write is not None and before != quota:
            self._on_write(write)


def watched_quotas(
    kafka: BrokersLab,
    users: Iterable[str],
    key: str = FETCH_KEY,
    *,
    on_write: Callable[[QuotaWrite], None] | None = None,
) -> QuotaWatch:
    """A watch of this cluster, wherever it keeps its quotas.

    Without ZooKeeper the first broker must run while the watch is open.
    """
    if isinstance(kafka, KafkaLab):
        return ZooKeeperQuotaWatch(kafka.zookeeper_connect, users, key, on_write=on_write)
    return BrokerLogQuotaWatch(kafka.brokers[0], users, key, on_write=on_write)


class ZooKeeperQuotaWatch(QuotaWatch):
    """Every write to the znodes of the users, seen by a session of its own at a connect string."""

    def _open(self, stack: ExitStack) -> None:
        # A test may stop ZooKeeper for a while: the session is made again by itself, and then every
        # znode is read again.
        retry = {"max_tries": -1, "max_delay": 1.0}
        client = KazooClient(hosts=self._source, read_only=True, command_retry=retry)
        stack.callback(client.close)
        stack.callback(client.stop)
        client.start(timeout=_START_TIMEOUT_SECONDS)
        for user in self._users:
            znode = f"/config/users/{urllib.parse.quote(user, safe='')}"
            client.DataWatch(znode, partial(self._on_data, user))

    def _on_data(self, user: str, data: bytes | None, stat: Any, _event: object = None) -> None:
        if stat is None and self.quotas()[user] is None:
            return  # there is no znode yet
        at_seconds = time.time() if stat is None else stat.last_modified
        self._record(user, quota_in(data, self._key), at_seconds=at_seconds)


def quota_in(data: bytes | None, key: str) -> int | None:
    """The quota of that name in the content of a user's znode; None without one."""
    text = json.loads(data or b"{}").get("config", {}).get(key)
    return None if text is None else int(float(text))


class BrokerLogQuotaWatch(QuotaWatch):
    """Every quota of the users that this broker logs to have taken over, from its start on."""

    _read_bytes = 0

    def _open(self, stack: ExitStack) -> None:
        self._entities = {
            QuotaChange("FETCH", user, None, None).entity_text(): user for user in self._users
        }
        self._read()
        stack.enter_context(repeated(self._read, seconds=_LOG_POLL_SECONDS))

    def _read(self) -> None:
        text = self._source.log_text(self._read_bytes)
        whole = text[: text.rfind("\n") + 1]
        self._read_bytes += len(whole.encode())
        for at_seconds, user, quota in self._changes(whole):
            if quota is not None or self.quotas()[user] is not None:
                self._record(user, quota, at_seconds=at_seconds)

    def _changes(self, text: str) -> Iterator[tuple[float, str, int | None]]:
        for line in text.splitlines():
            for kind, entity, value in changes_in(line):
                user = self._entities.get(entity)
                if user is not None and kind == _KIND[self._key]:
                    yield _logged_at(line), user, None if value is None else int(value)


def _logged_at(line: str) -> float:
    """When the line was logged, in seconds since the epoch; brokers write the local time of day."""
    written = _LOG_LINE.fullmatch(line)
    if written is None:
        raise ValueError(f"a line of a broker's log without a time: {line}")
    day, clock, milliseconds = written.groups()
    return datetime.fromisoformat(f"{day} {clock}").timestamp() + int(milliseconds) / 1000
