"""Which quota of each business stood in ZooKeeper since when, as ZooKeeper tells it, with its own times. It only reads."""

import threading
import urllib.parse
from functools import partial
from typing import Any, Self

from kazoo.client import KazooClient

from demo.episode import QuotaStep
from demo.tide.board import TideBoard
from demo.tide.script import BUSINESSES, Business
from demo.witnesses import quota_of_znode
from demo.words import MarkKind

FETCH_KEY = "consumer_byte_rate"
_START_TIMEOUT_SECONDS = 15


class QuotaWitness:
    """A context manager with a session of its own; while it is open, every write of a business's quota is kept and shown."""

    def __init__(self, connect: str, board: TideBoard) -> None:
        self._client = KazooClient(hosts=connect, read_only=True)
        self._board = board
        self._lock = threading.Lock()
        self._steps: list[QuotaStep] = []
        self._now: dict[str, int | None] = {}

    def __enter__(self) -> Self:
        self._client.start(timeout=_START_TIMEOUT_SECONDS)
        for business in BUSINESSES:
            path = f"/config/users/{urllib.parse.quote(business.user, safe='')}"
            self._client.DataWatch(path, partial(self._on_quota, business))
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()

    def steps(self) -> tuple[QuotaStep, ...]:
        """Every write so far, in the order of time."""
        with self._lock:
            return tuple(sorted(self._steps, key=lambda step: step.at_seconds))

    def quotas(self) -> dict[str, int | None]:
        """Level -> the quota that stands now, in bytes per second; None = no quota."""
        with self._lock:
            return dict(self._now)

    def _on_quota(self, business: Business, data: bytes | None, stat: Any, _event: object) -> None:
        quota = quota_of_znode(data, FETCH_KEY)
        with self._lock:
            before = self._now.get(business.level)
            self._now[business.level] = quota
            if stat is None or before == quota:
                return
            self._steps.append(QuotaStep(stat.last_modified, business.level, before, quota))
        self._board.show_quota(business.level, quota)
        self._board.note(stat.last_modified, MarkKind.QUOTA, f"{business.level} {_words(before)} -> {_words(quota)}")


def _words(quota: int | None) -> str:
    return "no quota" if quota is None else f"{quota / 1e6:.2f} MB/s"
