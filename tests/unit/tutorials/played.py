"""The tutorials of docs/tutorials, played: their objects go to a whole operator in memory, and
their clients send what the pages say.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from tests.doubles.kubernetes import InMemoryKubernetes
from tests.doubles.quota_store import MemoryQuotaStore
from tests.unit.commands.conftest import Answer, World
from tests.unit.control.stage import Leaders, Stage
from tidegate.control.runtime import OptionalKind
from tidegate.kube.api import (
    BANDWIDTH_BUDGETS,
    BROKER_BANDWIDTH_POLICIES,
    BUSINESS_TIERS,
    ObjectRef,
)
from tidegate.kube.cache import relist
from tidegate_logic.model import (
    ClientRate,
    Direction,
    Entity,
    NicSpan,
    QuotaKey,
    Readings,
)

PAGES = Path(__file__).parents[3] / "docs" / "tutorials"
FETCH, OUT = QuotaKey.CONSUMER_BYTE_RATE, Direction.EGRESS
LEADERS = {"orders": {1: 1, 2: 1, 3: 1}}
BROKERS = (1, 2, 3)
KINDS = {kind.kind: kind for kind in (BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, BANDWIDTH_BUDGETS)}
_SCRAPE_SECONDS = 5.0
_STARTS = datetime(2026, 11, 23, 9, tzinfo=UTC)
_BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)


def objects_of(page: str) -> list[dict[str, Any]]:
    """Every object that a page shows."""
    blocks = _BLOCK.findall((PAGES / page).read_text(encoding="utf-8"))
    return [one for block in blocks for one in yaml.safe_load_all(block)]


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Tutorial:
    """A cluster with these objects, of which clients fetch at most their quota."""

    folder: Path
    given: Iterable[Mapping[str, Any]]
    demand: dict[str, float] = field(default_factory=dict)  # MB/s of all these brokers, by user
    through: tuple[int, ...] = (1,)
    replication: float = 16.0  # MB/s that leave each broker besides

    def __post_init__(self) -> None:
        self.stage = Stage(
            store=MemoryQuotaStore(topics=list(LEADERS)),
            leaders=Leaders(leaders=dict(LEADERS)),
            kubernetes=InMemoryKubernetes(created_at=lambda: _moment(self.stage.now)),
            now=_STARTS.timestamp(),
        )
        self.stage.world.optional_kinds[BANDWIDTH_BUDGETS] = OptionalKind()
        for document in self.given:
            if document["kind"] not in KINDS:
                continue  # a load to simulate, which no API server has
            self.stage.kubernetes.create(KINDS[document["kind"]], document)

    @property
    def policy(self) -> ObjectRef:
        (policy,) = self.stage.kubernetes.list_all(BROKER_BANDWIDTH_POLICIES).items
        return ObjectRef.of(BROKER_BANDWIDTH_POLICIES, policy)

    def patch(self, spec: Mapping[str, Any]) -> None:
        self.stage.kubernetes.edit(self.policy, lambda raw: raw["spec"].update(spec))

    def delete(self, found: Mapping[str, Any]) -> None:
        self.stage.kubernetes.delete(ObjectRef.of(KINDS[found["kind"]], found))

    def play(self, seconds: float) -> None:
        """Scrapes and passes every 5 s."""
        for _ in range(int(seconds / _SCRAPE_SECONDS)):
            self.stage.now += _SCRAPE_SECONDS
            self.stage.readings = self.readings()
            relist(self.stage.cache, self.stage.kubernetes, BANDWIDTH_BUDGETS)
            self.stage.run()

    def quota(self, user: str, client_id: str | None = None) -> int | None:
        """The fetch quota in force, in bytes per second on each broker."""
        entity = Entity(user, client_id)
        text = self.stage.store.read([entity])[entity].values.get(FETCH)
        return None if text is None else int(float(text))

    def readings(self) -> Readings:
        """Three samples of every NIC: these brokers send to all clients, the others replicate."""
        each = {user: wanted * 1e6 / len(self.through) for user, wanted in self.demand.items()}
        got = {user: min(wanted, self.quota(user) or wanted) for user, wanted in each.items()}
        now, carried = self.stage.now, self.replication * 1e6
        nic = {
            (broker, way): tuple(
                NicSpan(
                    now - _SCRAPE_SECONDS * back,
                    _SCRAPE_SECONDS,
                    carried + (sum(got.values()) if broker in self.through and way is OUT else 0),
                )
                for back in (2, 1, 0)
            )
            for broker in BROKERS
            for way in Direction.COMBINED.parts
        }
        clients = {
            (Entity(user), broker, OUT): ClientRate(now, rate, 0.0)
            for user, rate in got.items()
            for broker in self.through
        }
        return Readings(now, _SCRAPE_SECONDS, nic, clients=clients)

    def objects(self) -> list[dict[str, Any]]:
        """The policy and the tiers with their status."""
        return [
            dict(one)
            for kind in KINDS.values()
            for one in self.stage.kubernetes.list_all(kind).items
        ]

    def command(self, *arguments: str) -> Answer:
        """A command against the cluster as it is now."""
        world = World(
            self.folder,
            store=self.stage.store,
            kubernetes=self.stage.kubernetes,
            leaders=dict(self.stage.leaders.leaders),
            now=self.stage.now,
            readings=self.readings,
        )
        return world.run(*arguments)
