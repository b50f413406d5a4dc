"""Which Strimzi cluster a policy's Kafka cluster is, and the KafkaUsers of it.

Reading KafkaUsers is a right that the operator may have or not; without it, and without Strimzi's
custom resources, quotas go on as if there were no KafkaUsers. Once they were read, what they say
counts for a while although they cannot be read again, whatever the cause.
"""

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from tidegate.errors import NotFound, TidegateError, Unauthorized
from tidegate.kube.api import Kubernetes, ResourceKind
from tidegate.resources.policy import KafkaCluster
from tidegate_logic.model import KafkaUser, QuotaKey, StrimziUsers
from tidegate_logic.quotas.strimzi import CERTIFICATE_PREFIX, PAUSED
from tidegate_logic.reasons import Reason

CLUSTER_LABEL = "strimzi.io/cluster"
# the newest first; before Strimzi 0.49 there is the second only
KAFKA_USERS = tuple(
    ResourceKind("kafka.strimzi.io", version, "kafkausers", "KafkaUser")
    for version in ("v1", "v1beta2")
)
# The distance of two readings where one takes no longer than 0.8 s. It is less than that of two
# passes (15 s), so that each pass begins one and the next knows it: a change is seen within 30 s.
KAFKA_USERS_AGE_SECONDS = 12.0
# where there is no right, or no such kind: asked for again after this
REFUSED_AGE_SECONDS = 60.0
# the distance of two readings, in times that the first takes
_AFTER_AN_ANSWER, _AFTER_A_FAILURE = 15.0, 4.0

# names of Services that Strimzi makes; those of further listeners do not tell where a name ends
_SERVICE = re.compile(r"(?P<cluster>.+)-kafka-(?:bootstrap|brokers)")


@dataclass(frozen=True, slots=True)
class StrimziPlace:
    """The name of a Strimzi cluster, and the namespace of its KafkaUsers."""

    namespace: str
    cluster: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.cluster}"


def strimzi_place(kafka: KafkaCluster, policy_namespace: str) -> StrimziPlace | None:
    """The Strimzi cluster that the policy names, or that its bootstrap addresses are of, if any.

    `orders-kafka-bootstrap.kafka.svc:9092` and a broker's own
    `orders-pool-0.orders-kafka-brokers.kafka.svc:9092` are of kafka/orders.
    """
    if kafka.strimzi is not None:
        return StrimziPlace(kafka.strimzi.namespace or policy_namespace, kafka.strimzi.cluster)
    for server in kafka.bootstrap_servers.split(","):
        labels = server.rpartition(":")[0].split(".")
        for place, label in enumerate(labels[:2]):
            found = _SERVICE.fullmatch(label)
            if found is not None:
                namespace = labels[place + 1] if len(labels) > place + 1 else policy_namespace
                return StrimziPlace(namespace, found["cluster"])
    return None


def read_kafka_user(raw: Mapping[str, Any]) -> KafkaUser:
    """One KafkaUser as the User Operator understands it."""
    metadata, spec = raw["metadata"], raw.get("spec") or {}
    name = str(metadata["name"])
    login = (spec.get("authentication") or {}).get("type")
    annotations = metadata.get("annotations") or {}
    return KafkaUser(
        key=f"{metadata['namespace']}/{name}",
        kafka_name=f"{CERTIFICATE_PREFIX}{name}" if login in ("tls", "tls-external") else name,
        declares_quotas=spec.get("quotas") is not None,
        is_paused=str(annotations.get(PAUSED, "")).strip().lower() == "true",
    )


_QUOTAS = {
    "consumerByteRate": QuotaKey.CONSUMER_BYTE_RATE,
    "producerByteRate": QuotaKey.PRODUCER_BYTE_RATE,
    "requestPercentage": QuotaKey.REQUEST_PERCENTAGE,
    "controllerMutationRate": QuotaKey.CONTROLLER_MUTATION_RATE,
}


def declared_quotas(raw: Mapping[str, Any]) -> dict[QuotaKey, str]:
    """The quotas that a KafkaUser declares, as they stand in Kafka; none where it declares none."""
    quotas = (raw.get("spec") or {}).get("quotas") or {}
    return {key: str(quotas[name]) for name, key in _QUOTAS.items() if quotas.get(name) is not None}


def list_kafka_users(kubernetes: Kubernetes, place: StrimziPlace) -> list[Mapping[str, Any]]:
    """The KafkaUsers of the cluster, as the API server has them.

    Raises NotFound if it does not serve them, and what `Kubernetes.list_all` raises.
    """
    for kind in KAFKA_USERS:
        with suppress(NotFound):
            listed = kubernetes.list_all(kind, (place.namespace,))
            return [raw for raw in listed if _is_of(raw, place)]
    raise NotFound(
        Reason.KAFKA_USERS_UNREAD,
        "Kubernetes serves no KafkaUsers of kafka.strimzi.io, so Strimzi's User Operator is not "
        "installed there.",
    )


def _is_of(raw: Mapping[str, Any], place: StrimziPlace) -> bool:
    labels = raw["metadata"].get("labels") or {}
    return bool(labels.get(CLUSTER_LABEL) == place.cluster)


def users_of(place: StrimziPlace, listed: Iterable[Mapping[str, Any]]) -> StrimziUsers:
    """What the core needs of these KafkaUsers."""
    return StrimziUsers(
        str(place), {str(raw["metadata"]["name"]): read_kafka_user(raw) for raw in listed}
    )


# what is known of the users of a cluster; None = it is not Strimzi's, or Strimzi is not installed
KafkaUsersOf = Callable[[StrimziPlace | None], StrimziUsers | None]


def no_kafka_users(_: StrimziPlace | None) -> StrimziUsers | None:
    """The answer where Kubernetes is not asked."""
    return None


def kafka_users_now(kubernetes: Kubernetes) -> KafkaUsersOf:
    """The KafkaUsers as they are now, for one look; not known where they cannot be read."""

    def read(place: StrimziPlace | None) -> StrimziUsers | None:
        if place is None:
            return None
        try:
            return users_of(place, list_kafka_users(kubernetes, place))
        except NotFound:
            return None
        except TidegateError as error:
            return _without(place, error)

    return read


def _without(place: StrimziPlace, error: TidegateError) -> StrimziUsers | None:
    """What is known after this failure where nothing was known before."""
    if isinstance(error, NotFound):
        return None
    return StrimziUsers(str(place), unread="" if _is_an_answer(error) else error.message)


def _is_an_answer(error: TidegateError) -> bool:
    """Whether there is nothing to wait for: no right, or no such kind."""
    return isinstance(error, NotFound | Unauthorized)


class KnownKafkaUsers:
    """The KafkaUsers of one cluster, read again beside the passes. For one caller at a time.

    A pass waits for the first reading only. After a failure, those read last count for
    `keep_seconds`. `beside` False = every reading is waited for.
    """

    def __init__(
        self,
        kubernetes: Kubernetes,
        monotonic: Callable[[], float],
        *,
        keep_seconds: float,
        beside: bool = True,
    ) -> None:
        self._kubernetes = kubernetes
        self._monotonic = monotonic
        self._keep_seconds = keep_seconds
        self._beside = beside
        self._place: StrimziPlace | None = None
        self._known: tuple[float, StrimziUsers] | None = None  # when it was asked for
        self._failure: TidegateError | None = None
        self._due_at_seconds = float("-inf")
        self._reading: threading.Thread | None = None

    def __call__(self, place: StrimziPlace | None) -> StrimziUsers | None:
        """See KafkaUsersOf."""
        if place != self._place:
            if self._is_reading():  # for a cluster that the policy no longer names
                self._reading = None
            self._place, self._known, self._failure = place, None, None
            self._due_at_seconds = float("-inf")
        if place is None:
            return None
        if self._monotonic() >= self._due_at_seconds and not self._is_reading():
            self._reread(place)
        known = self._known
        if known is not None and self._monotonic() - known[0] < self._keep_seconds:
            return known[1]
        failure = self._failure
        if failure is None:
            return StrimziUsers(str(place), unread="they are being read")
        return _without(place, failure)

    def fresh(self) -> StrimziUsers | None:
        """Read them now; soon after a reading without an answer, do not.

        Without an answer what is known counts, but with `unread`.
        """
        place = self._place
        if place is None:
            return None
        gave_up = self._failure is not None and self._monotonic() < self._due_at_seconds
        if not gave_up:
            self._read(place)
        now = self(place)
        failure = self._failure
        if now is None or now.unread or failure is None or _is_an_answer(failure):
            return now
        return replace(now, unread=failure.message)

    def _is_reading(self) -> bool:
        return self._reading is not None and self._reading.is_alive()

    def _reread(self, place: StrimziPlace) -> None:
        if not self._beside or (self._known is None and self._failure is None):
            self._read(place)
            return
        self._reading = threading.Thread(
            target=self._read, args=(place,), name="KafkaUsers", daemon=True
        )
        self._reading.start()

    def _read(self, place: StrimziPlace) -> None:
        began_seconds, wait_seconds = self._monotonic(), KAFKA_USERS_AGE_SECONDS
        known, failure = None, None
        try:
            known = users_of(place, list_kafka_users(self._kubernetes, place))
        except TidegateError as error:
            failure = error
            if _is_an_answer(error):
                wait_seconds = REFUSED_AGE_SECONDS
        if place != self._place:
            return
        ended_seconds = self._monotonic()
        if self._known is not None and self._known[0] > began_seconds:
            return  # a later reading was faster
        if known is not None:
            self._known = began_seconds, known
        self._failure = failure
        times = _AFTER_AN_ANSWER if failure is None else _AFTER_A_FAILURE
        self._due_at_seconds = ended_seconds + max(
            wait_seconds, times * (ended_seconds - began_seconds)
        )
