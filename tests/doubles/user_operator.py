"""A stand-in for Strimzi's User Operator, as far as quotas go.

Written after its source (Strimzi 0.45 to 1.2): it lists every quota in Kafka, keyed by user name
whatever client id goes with it; each KafkaUser has its declared quotas set for the name of its
login and any removed from the other one; and users without a KafkaUser lose theirs, unless the
pattern of ignored users fits their whole name. It only ever writes the entity of a user alone.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate_logic.model import Entity, QuotaKey

EVERY_SECONDS = 120.0  # STRIMZI_FULL_RECONCILIATION_INTERVAL_MS
Values = Mapping[QuotaKey, str | None]

_FIELDS = {
    "producerByteRate": QuotaKey.PRODUCER_BYTE_RATE,
    "consumerByteRate": QuotaKey.CONSUMER_BYTE_RATE,
    "requestPercentage": QuotaKey.REQUEST_PERCENTAGE,
    "controllerMutationRate": QuotaKey.CONTROLLER_MUTATION_RATE,
}
_CERTIFICATES = ("tls", "tls-external")


@dataclass
class UserOperator:
    """`quotas` gives what stands in Kafka, `write` changes one entity: all four keys, None = none.

    `kafka_users` are KafkaUsers as Kubernetes has them, of one cluster.
    """

    quotas: Callable[[], Mapping[Entity, Mapping[QuotaKey, str]]]
    write: Callable[[Entity, Values], object]
    kafka_users: Callable[[], Iterable[Mapping[str, Any]]]
    ignored_users: str | None = None  # STRIMZI_IGNORED_USERS_PATTERN
    written: list[Entity] = field(default_factory=list)

    def reconcile_all(self) -> None:
        """One full reconciliation."""
        cache: dict[str, Values] = {}
        for entity, values in self.quotas().items():
            if isinstance(entity.user, str) and values:
                cache[entity.user] = values
        by_name = {str(raw["metadata"]["name"]): raw for raw in self.kafka_users()}
        found = {
            user.removeprefix("CN=")
            for user in cache
            if self.ignored_users is None or not re.fullmatch(self.ignored_users, user)
        }
        for name in sorted(by_name.keys() | found):
            raw = by_name.get(name)
            if raw is not None and _is_paused(raw):
                continue
            spec = {} if raw is None else raw.get("spec") or {}
            login = (spec.get("authentication") or {}).get("type")
            declared = spec.get("quotas")
            wanted = None if declared is None else _values(declared)
            by_certificate = login in _CERTIFICATES
            self._reconcile(f"CN={name}", wanted if by_certificate else None, cache)
            self._reconcile(name, None if by_certificate else wanted, cache)

    def _reconcile(self, user: str, wanted: Values | None, cache: Mapping[str, Values]) -> None:
        current = cache.get(user)
        if wanted is None and current is None:
            return
        if wanted is not None and current is not None and _numbers(wanted) == _numbers(current):
            return
        self.written.append(Entity(user))
        self.write(Entity(user), wanted or dict.fromkeys(_FIELDS.values()))


def _is_paused(raw: Mapping[str, Any]) -> bool:
    annotations = raw["metadata"].get("annotations") or {}
    return str(annotations.get("strimzi.io/pause-reconciliation", "")).lower() == "true"


def _values(declared: Mapping[str, Any]) -> Values:
    return {
        key: None if declared.get(name) is None else str(declared[name])
        for name, key in _FIELDS.items()
    }


def _numbers(values: Values) -> dict[QuotaKey, float]:
    return {key: float(text) for key, text in values.items() if text is not None}


def kafka_user(
    name: str,
    *,
    login: str | None = "scram-sha-512",
    quotas: Mapping[str, Any] | None = None,
    namespace: str = "kafka",
    cluster: str = "orders",
    **annotations: str,
) -> dict[str, Any]:
    """A KafkaUser as somebody would apply it."""
    spec: dict[str, Any] = {} if login is None else {"authentication": {"type": login}}
    if quotas is not None:
        spec["quotas"] = dict(quotas)
    return {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaUser",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"strimzi.io/cluster": cluster},
            "annotations": {
                f"strimzi.io/{key.replace('_', '-')}": text for key, text in annotations.items()
            },
        },
        "spec": spec,
    }
