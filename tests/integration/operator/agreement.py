"""Whether quotas, ledger and statuses of one policy agree, on a Kafka without ZooKeeper.

All that is compared is in `Look`, so the comparison itself needs no Kafka.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lab.errors import LabError
from lab.kraft import KraftLab
from lab.kubernetes.api import KubeApi
from tests.integration.connections import connection_of
from tidegate.errors import TidegateError
from tidegate.kafka.adminapi.client import AdminClient
from tidegate.kafka.adminapi.quotas import describe
from tidegate.kafka.adminapi.store import LEDGER_TOPIC, AdminQuotaStore
from tidegate_logic.model import Entity, QuotaKey, StoredQuota
from tidegate_logic.quotas.leaving import is_restored

Texts = Mapping[QuotaKey, str]
RATES = {"produce": QuotaKey.PRODUCER_BYTE_RATE, "fetch": QuotaKey.CONSUMER_BYTE_RATE}
POLICY = "orders"


@dataclass(frozen=True)
class Promise:
    """What each user was promised, in bytes/s, both ways: for each partition that a broker leads,
    or on each broker.
    """

    per_partition: Mapping[str, int]
    per_broker: Mapping[str, int]

    def rates(self, most_leaders: int) -> dict[str, int]:
        """The quota of each user where one broker leads so many of the partitions, and no other
        one more.
        """
        by_leaders = {user: rate * most_leaders for user, rate in self.per_partition.items()}
        return {**by_leaders, **self.per_broker}


@dataclass(frozen=True)
class Look:
    """What was found. `before` are the quotas of users from before Tidegate, `tiers` are objects
    as Kubernetes has them, `leaders` partition -> broker of the topic that contracts name.
    """

    promise: Promise
    before: Mapping[str, Texts]
    partitions: int
    leaders: Mapping[int, int]
    brokers: Mapping[int, Mapping[Entity, Texts]]
    ledger: Mapping[Entity, StoredQuota]
    unreadable: tuple[str, ...]
    policy_uid: str
    policy: Mapping[str, Any]
    tiers: tuple[Mapping[str, Any], ...]


def disagreements(look: Look) -> list[str]:
    """One sentence for each thing that does not agree; empty = everything does."""
    if len(look.leaders) != look.partitions:
        return [f"only partitions {sorted(look.leaders)} of {look.partitions} have a leader"]
    rates = look.promise.rates(max(Counter(look.leaders.values()).values()))
    promised = {
        Entity(user): dict.fromkeys(RATES.values(), str(rate)) for user, rate in rates.items()
    }
    return [
        *_of_brokers(look, promised),
        *_of_ledger(look, promised),
        *_of_statuses(look, rates),
    ]


def _of_brokers(look: Look, promised: Mapping[Entity, Texts]) -> Iterator[str]:
    others = {Entity(user): texts for user, texts in look.before.items()}
    wanted = {**others, **promised}
    for broker, quotas in look.brokers.items():
        for entity in sorted({*wanted, *quotas}, key=str):
            has, should = dict(quotas.get(entity, {})), dict(wanted.get(entity, {}))
            if has != should:
                yield f"broker {broker} has {_shown(has)} for {entity}, not {_shown(should)}"


def _of_ledger(look: Look, promised: Mapping[Entity, Texts]) -> Iterator[str]:
    yield from (f"the ledger has {name}, which cannot be read" for name in look.unreadable)
    for entity in sorted({*promised, *look.ledger}, key=str):
        stored = look.ledger.get(entity)
        if stored is not None and stored.problem is not None:
            yield f"{entity}: {stored.problem}"
            continue
        record = None if stored is None else stored.ledger
        if entity not in promised:
            if record is not None and not all(map(is_restored, record.entries.values())):
                yield f"the ledger has a record of {entity}, which no tier names"
            continue
        if record is None:
            yield f"the ledger has no record of {entity}, which has a quota of ours"
            continue
        if record.policy_uid != look.policy_uid:
            yield f"the record of {entity} is of the policy with uid {record.policy_uid}"
        written = {key: entry.written for key, entry in record.entries.items()}
        if written != promised[entity]:
            yield f"the ledger says {_shown(written)} of {entity}, not {_shown(promised[entity])}"
        before = {
            key: entry.before for key, entry in record.entries.items() if entry.before is not None
        }
        known = look.before.get(str(entity.user), {})
        if before != dict(known):
            yield f"the ledger says {_shown(before)} was there before {entity}'s quota"


def _of_statuses(look: Look, rates: Mapping[str, int]) -> Iterator[str]:
    for obj in (look.policy, *look.tiers):
        if not _is_ready(obj):
            yield f"{obj['kind']} {obj['metadata']['name']} is not Ready: {_conditions(obj)}"
    counts = (look.policy.get("status") or {}).get("quotas") or {}
    counted = (counts.get("inSync"), counts.get("managed"))
    if counted != (len(rates), len(rates)):
        yield f"the policy counts {counted[0]} of {counted[1]} quotas in sync, not {len(rates)}"
    shown = {
        member["name"]: dict(member.get("quota") or {})
        for tier in look.tiers
        for member in (tier.get("status") or {}).get("members") or ()
    }
    for user in sorted({*shown, *rates}):
        should = dict.fromkeys(RATES, rates[user]) if user in rates else None
        if shown.get(user) != should:
            yield f"the status says {shown.get(user)} of {user}, not {should}"


def _is_ready(obj: Mapping[str, Any]) -> bool:
    return any(
        (one["type"], one["status"], one.get("observedGeneration"))
        == ("Ready", "True", obj["metadata"]["generation"])
        for one in _conditions(obj)
    )


def _conditions(obj: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list((obj.get("status") or {}).get("conditions") or ())


def _shown(texts: Mapping[QuotaKey, str | None]) -> str:
    return str({key.value: text for key, text in sorted(texts.items())})


class Observer:
    """Looks at one policy and its cluster, and changes nothing."""

    def __init__(
        self,
        kafka: KraftLab,
        kubernetes: KubeApi,
        namespace: str,
        topic: str,
        before: Mapping[str, Texts],
    ) -> None:
        self._kafka = kafka
        self._kubernetes = kubernetes
        self._namespace = namespace
        self._topic = topic
        self._before = before
        self._partitions = len(kafka.leaders(topic))
        servers = tuple(kafka.bootstrap_servers.split(","))
        self.store = AdminQuotaStore(connection_of(kafka.bootstrap_servers))
        self._each = {
            broker.broker_id: AdminClient(connection_of(server))
            for broker, server in zip(kafka.brokers, servers, strict=True)
        }

    def close(self) -> None:
        """Hang up."""
        self.store.close()
        for client in self._each.values():
            client.close()

    def disagreements(self, promise: Promise) -> list[str]:
        """See the function; also what keeps one from looking, such as an election."""
        try:
            return disagreements(self._look(promise))
        except (TidegateError, LabError) as error:
            return [f"it cannot be looked at: {error}"]

    def quotas(self) -> dict[int, dict[Entity, Texts]]:
        """Broker -> every quota that it says there is."""
        return {
            broker: describe(client, None, LEDGER_TOPIC) for broker, client in self._each.items()
        }

    def under_way(self) -> int:
        """How many changes have an intent and no outcome yet."""
        self.store.facts()
        items = self.store._ledger.journal.items.values()
        return sum(item.intent is not None for item in items)

    def _look(self, promise: Promise) -> Look:
        found = json.loads(
            self._kubernetes.kubectl("get", "bbp,bt", "-n", self._namespace, "-o", "json")
        )["items"]
        (policy,) = [one for one in found if one["kind"] == "BrokerBandwidthPolicy"]
        return Look(
            promise=promise,
            before=self._before,
            partitions=self._partitions,
            leaders=self._kafka.leaders(self._topic),
            brokers=self.quotas(),
            ledger=self.store.read_everything(),
            unreadable=tuple(self.store.unreadable_nodes()),
            policy_uid=policy["metadata"]["uid"],
            policy=policy,
            tiers=tuple(one for one in found if one["kind"] == "BusinessTier"),
        )
