"""A broker under load that obeys: what its NIC and its clients' metrics show follows the quotas in ZooKeeper at that moment.

Kafka, its leaders, ZooKeeper, Prometheus, the Kubernetes API and the operator are real; only the bytes are made up, so that a test can fill
a NIC, empty it, silence it or let it lie within a second.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from dataclasses import dataclass, field

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from controller_logic.model import Level

MB = 1_000_000
CONTRACT, WANTED = 60 * MB, 25 * MB
THROTTLED = {Level.L1: 10 * MB, Level.L2: 5 * MB, Level.L3: MB}


@dataclass
class Tide:
    """One user of each level fetches `WANTED` from broker `leader`; `other` is what else its NIC carries.

    A broker in `silent` shows nothing at all, one in `cardless` no NIC, one in `lying` a NIC that stands still.
    """

    zookeeper: KazooClient
    users: dict[Level, str]
    leader: int = 2
    wanted: float = WANTED
    other: float = 0.0
    silent: set[int] = field(default_factory=set)
    cardless: set[int] = field(default_factory=set)
    lying: set[int] = field(default_factory=set)
    _bytes: dict[int, float] = field(default_factory=dict)
    _read_at: dict[int, float] = field(default_factory=dict)
    _quotas: dict[Level, int | None] = field(default_factory=dict)

    def look(self) -> dict[Level, int | None]:
        """What stands in ZooKeeper for each level, in bytes/s; when it does not answer, what stood there last."""
        with contextlib.suppress(KazooException):
            self._quotas = {level: self._quota(user) for level, user in self.users.items()}
        return dict(self._quotas)

    def page(self, broker: int) -> str:
        """What broker's exporters show now."""
        if broker in self.silent:
            return ""
        quotas = dict(self._quotas) if broker == self.leader else {}  # as seen last: while ZooKeeper is away, brokers go on too
        sent = {level: min(self.wanted, float("inf") if quota is None else quota) for level, quota in quotas.items()}
        nic = "" if broker in self.cardless else self._nic(broker, sum(sent.values()) + (self.other if sent else MB))
        return nic + "".join(self._client(level, rate) for level, rate in sent.items())

    def _nic(self, broker: int, rate: float) -> str:
        now = time.monotonic()
        moved = 0.0 if broker in self.lying else rate * (now - self._read_at.get(broker, now))
        self._read_at[broker] = now
        self._bytes[broker] = self._bytes.get(broker, 0.0) + moved
        return f'node_network_transmit_bytes_total{{device="eth0"}} {self._bytes[broker]}\n'

    def _client(self, level: Level, rate: float) -> str:
        labels = f'resource="Fetch",user="{self.users[level]}"'
        waits = 1000 if rate < self.wanted else 0
        return f"kafka_quota_byte_rate{{{labels}}} {rate}\nkafka_quota_throttle_time{{{labels}}} {waits}\n"

    def _quota(self, user: str) -> int | None:
        path = f"/config/users/{user}"
        content = json.loads(self.zookeeper.get(path)[0]) if self.zookeeper.exists(path) else {}
        text = content.get("config", {}).get("consumer_byte_rate")
        return None if text is None else int(text)


class Witness:
    """Looks at the quotas ten times a second and writes down every change, with its time."""

    def __init__(self, tide: Tide) -> None:
        self._tide = tide
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.changes: list[tuple[float, dict[Level, int | None]]] = []

    def __enter__(self) -> Witness:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def now(self) -> dict[Level, int | None]:
        """The quotas as seen last."""
        return self.changes[-1][1] if self.changes else {}

    def values(self, level: Level, *, since: float) -> list[int | None]:
        """Everything that stood for this level from that moment (monotonic) on, in order, each once while it stood."""
        before = [seen[level] for at, seen in self.changes if at <= since][-1:]
        seen = before + [seen[level] for at, seen in self.changes if at > since]
        return [value for place, value in enumerate(seen) if place == 0 or value != seen[place - 1]]

    def _look(self) -> None:
        while not self._ended.wait(0.1):
            seen = self._tide.look()
            if not self.changes or seen != self.changes[-1][1]:
                self.changes.append((time.monotonic(), seen))
