"""The cluster around a quota store on the admin protocol, with faults at its requests on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from lab.kafka import BrokersLab
from lab.process import patience, wait_until
from tests.integration.connections import connection_of
from tidegate.kafka.adminapi import log
from tidegate.kafka.adminapi.client import AdminClient, Lost
from tidegate.kafka.adminapi.log import LedgerLog
from tidegate.kafka.adminapi.quotas import alter, describe
from tidegate.kafka.adminapi.store import AdminQuotaStore
from tidegate.kafka.quota_node import entity_path
from tidegate.kafka.settings import KafkaConnection
from tidegate_logic.model import Entity, QuotaKey


class FaultyClient(AdminClient):
    """Sends what it is given, unless a fault was ordered for that kind of request."""

    def __init__(self, settings: KafkaConnection) -> None:
        super().__init__(settings)
        self.sent: list[str] = []
        self.altered = 0
        self._before: dict[str, list[Callable[[], object]]] = {}
        self._after: dict[str, list[Callable[[], object]]] = {}

    def before(self, request: str, action: Callable[[], object]) -> None:
        """Do this just before the next request of the kind; what it raises is raised."""
        self._before.setdefault(request, []).append(action)

    def after(self, request: str, action: Callable[[], object]) -> None:
        """Do this just after the answer to the next request of the kind."""
        self._after.setdefault(request, []).append(action)

    def forget_faults(self) -> None:
        """Take back what was ordered and has not happened."""
        self._before.clear()
        self._after.clear()

    def ask(self, request: Any, at: tuple[str, int] | None = None) -> Any:
        """See AdminClient."""
        return self._sent(super().ask, request, at)

    def write(self, request: Any, at: tuple[str, int] | None = None) -> Any:
        """See AdminClient."""
        return self._sent(super().write, request, at)

    def _sent(
        self,
        send: Callable[[Any, tuple[str, int] | None], Any],
        request: Any,
        at: tuple[str, int] | None,
    ) -> Any:
        kind = type(request).__name__.removesuffix("Request")
        _play(self._before, kind)
        answer = send(request, at)
        self.sent.append(kind)
        if kind == "AlterClientQuotas":
            self.altered += len(request.entries)
        _play(self._after, kind)
        return answer


_MARK = Entity("one-that-waits")


def _play(actions: dict[str, list[Callable[[], object]]], kind: str) -> None:
    waiting = actions.get(kind)
    if waiting:
        waiting.pop(0)()


def lose() -> None:
    """Let the connection break."""
    raise Lost("the test cut the connection")


@dataclass
class AdminWorld:
    """See the contract's StoreWorld."""

    settings: KafkaConnection
    topic: str
    cluster_id: str
    client: FaultyClient = field(init=False)
    others: AdminClient = field(init=False)
    stores: list[AdminQuotaStore] = field(default_factory=list)
    _marks: int = 0

    def __post_init__(self) -> None:
        self.client = FaultyClient(self.settings)
        self.others = AdminClient(self.settings)

    def store(self) -> AdminQuotaStore:
        return AdminQuotaStore(self.settings, self.topic, self.client)

    def another_store(self) -> AdminQuotaStore:
        self.stores.append(AdminQuotaStore(self.settings, self.topic))
        return self.stores[-1]

    def quotas(self, entity: Entity) -> Mapping[QuotaKey, str]:
        return describe(self.others, [entity], self.topic).get(entity, {})

    def expect(self, entity: Entity, expected: Mapping[QuotaKey, str]) -> None:
        """Wait until these are its quotas: brokers hear of a change a little after its answer."""
        wait_until(
            lambda: self.quotas(entity) == expected,
            f"the quotas {expected} of {entity}",
            timeout_seconds=10,
            poll_seconds=0.01,
        )

    def put(self, entity: Entity, values: Mapping[QuotaKey, str | None]) -> None:
        assert alter(self.others, {entity: values}, self.topic) == {entity: None}
        wait_until(
            lambda: all(self.quotas(entity).get(key) == text for key, text in values.items()),
            f"the quotas of {entity}",
            timeout_seconds=10,
            poll_seconds=0.01,
        )

    def clear(self) -> None:
        """Remove every quota there is."""
        every = describe(self.others, None, self.topic)
        alter(
            self.others,
            {entity: dict.fromkeys(values) for entity, values in every.items()},
            self.topic,
        )
        wait_until(
            lambda: not describe(self.others, None, self.topic),
            "the end of every quota",
            timeout_seconds=10,
            poll_seconds=0.01,
        )

    def let_it_show(self) -> None:
        """Return when the broker shows what was confirmed to anybody before: it shows all changes in
        the order in which they came, a moment later.
        """
        self._marks += 1
        self.put(_MARK, {QuotaKey.PRODUCER_BYTE_RATE: str(self._marks)})

    def changes(self) -> int:
        return self.client.altered

    def claim(self) -> bytes | None:
        return self._newest(b"claim")

    def record(self, entity: Entity) -> bytes | None:
        """What the ledger has of the entity, as text."""
        return self._newest(entity_path(entity).encode())

    def _newest(self, key: bytes) -> bytes | None:
        # as its writer, for whom the end of the last transaction has been written down
        ledger = LedgerLog(self.others, self.topic)
        ledger.become_writer()
        _, entries = ledger.news()
        return {entry.key: entry.value for entry in entries}.get(key)

    def break_record(self, entity: Entity) -> None:
        self.append(entity_path(entity).encode(), b'{"version":99}')

    def append(self, key: bytes, value: bytes | None) -> None:
        """Write to the ledger's topic, as its writer."""
        ledger = LedgerLog(self.others, self.topic)
        ledger.become_writer()
        ledger.commit([(key, value)])
        ledger.become_writer()  # once the end of that transaction is written down, and can be read

    def lose_next_request(self) -> None:
        self.client.before("EndTxn", lose)

    def lose_next_answer(self) -> None:
        self.client.after("EndTxn", lose)

    def before_next_commit(self, action: Callable[[], object]) -> None:
        self.client.before("EndTxn", action)

    def close(self) -> None:
        for store in self.stores:
            store.close()
        self.others.close()
        self.client.close()


def around(kafka: BrokersLab, name: str) -> Iterator[AdminWorld]:
    """The shared brokers without any quota, and a ledger of this test alone.

    Readers wait for the end of a transaction for longer than Tidegate does by default: busy brokers
    may write it down seconds after the answer, and a reader leaves the transaction out until then.
    One that is never ended costs each of its readers all of that time.
    """
    world = AdminWorld(connection_of(kafka.bootstrap_servers), f"__ledger-{name}", kafka.cluster_id)
    world.clear()
    with patch.object(log, "_MARKED_WITHIN_SECONDS", patience(2)):
        yield world
    world.clear()
    world.close()
