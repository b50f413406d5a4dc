"""What really happened, as ZooKeeper tells it: which quota was committed when, who led which partition since when, which brokers live.

It only reads, with a session of its own; the operator knows nothing of it. Times are ZooKeeper's own modification times, so they do not
depend on when this process came to look.
"""

import json
import threading
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from kazoo.client import KazooClient

from demo.board import Board
from demo.words import MarkKind

QUOTA_KEY = "producer_byte_rate"
_START_TIMEOUT_SECONDS = 15


@dataclass(frozen=True, slots=True)
class QuotaSeen:
    """From `at_seconds` on this quota stood in ZooKeeper, in bytes per second; None = no quota."""

    at_seconds: float
    quota: int | None


@dataclass(frozen=True, slots=True)
class LeaderSeen:
    """From `at_seconds` on this broker led the partition; -1 = nobody did."""

    at_seconds: float
    partition: int
    broker: int


class ZooKeeperWitness:
    """A context manager; while it is open it writes quota, leaders and brokers to the board and keeps the history of them."""

    def __init__(self, connect: str, board: Board, *, user: str, topic: str, partitions: int) -> None:
        self._client = KazooClient(hosts=connect, read_only=True)
        self._board = board
        self._quota_path = f"/config/users/{urllib.parse.quote(user, safe='')}"
        self._topic = topic
        self._partitions = partitions
        self._changed = threading.Condition()
        self._quotas: list[QuotaSeen] = []
        self._leaders: list[LeaderSeen] = []

    def __enter__(self) -> Self:
        self._client.start(timeout=_START_TIMEOUT_SECONDS)
        self._client.DataWatch(self._quota_path, self._on_quota)
        for partition in range(self._partitions):
            path = f"/brokers/topics/{self._topic}/partitions/{partition}/state"
            self._client.DataWatch(path, partial(self._on_leader, partition))
        self._client.ChildrenWatch("/brokers/ids", self._on_brokers)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()

    def quota(self) -> int | None:
        """The quota that stands now, in bytes per second."""
        with self._changed:
            return self._quotas[-1].quota if self._quotas else None

    def leaders(self) -> dict[int, int]:
        """Partition -> broker that leads it now; leaderless partitions are left out."""
        with self._changed:
            newest = {seen.partition: seen.broker for seen in self._leaders}
        return {partition: broker for partition, broker in sorted(newest.items()) if broker >= 0}

    def wait_for_quota(self, quota: int, *, timeout_seconds: float) -> bool:
        """Return True as soon as this quota stands, False after `timeout_seconds`."""
        return self._wait(lambda: bool(self._quotas) and self._quotas[-1].quota == quota, timeout_seconds)

    def wait_for_leader(self, partition: int, broker: int, *, timeout_seconds: float) -> bool:
        """Return True as soon as `broker` leads `partition`, False after `timeout_seconds`."""
        return self._wait(lambda: self._leader_now(partition) == broker, timeout_seconds)

    def quota_committed_at(self, quota: int, *, after_seconds: float) -> float | None:
        """When this quota was first committed after that time; None if it was not."""
        with self._changed:
            return next((seen.at_seconds for seen in self._quotas if seen.quota == quota and seen.at_seconds >= after_seconds), None)

    def leader_elected_at(self, partition: int, *, other_than: int, after_seconds: float) -> float | None:
        """When the partition first had another leader than this one after that time; None if it had not."""
        with self._changed:
            fitting = (seen for seen in self._leaders if seen.partition == partition and seen.broker not in (-1, other_than))
            return next((seen.at_seconds for seen in fitting if seen.at_seconds >= after_seconds), None)

    def _leader_now(self, partition: int) -> int | None:
        return next((seen.broker for seen in reversed(self._leaders) if seen.partition == partition), None)

    def _wait(self, condition: Callable[[], bool], timeout_seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, timeout_seconds)

    def _on_quota(self, data: bytes | None, stat: Any, _event: object) -> None:
        quota = quota_of_znode(data, QUOTA_KEY)
        if stat is None or self.quota() == quota:
            return
        with self._changed:
            self._quotas.append(QuotaSeen(stat.last_modified, quota))
            self._changed.notify_all()
        self._board.show_quota(quota)
        said = "no quota" if quota is None else f"quota {quota / 1e6:g} MB/s"
        self._board.mark(stat.last_modified, MarkKind.QUOTA, said)

    def _on_leader(self, partition: int, data: bytes | None, stat: Any, _event: object) -> None:
        if data is None:
            return
        broker = int(json.loads(data)["leader"])
        before = self.leaders().get(partition)
        with self._changed:
            self._leaders.append(LeaderSeen(stat.last_modified, partition, broker))
            self._changed.notify_all()
        self._board.show_leaders(self.leaders())
        if before is not None and before != broker:
            to = f"broker {broker}" if broker >= 0 else "nobody"
            self._board.mark(stat.last_modified, MarkKind.LEADER, f"partition {partition}: leader moves from broker {before} to {to}")

    def _on_brokers(self, ids: list[str]) -> None:
        self._board.show_brokers(frozenset(map(int, ids)))


def quota_of_znode(data: bytes | None, key: str) -> int | None:
    """The quota of that name in a user's config znode; None without one."""
    text = json.loads(data or b"{}").get("config", {}).get(key)
    return None if text is None else int(float(text))
