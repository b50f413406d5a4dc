"""What the lab asks of a running Kafka through its admin protocol.

Topics, leaders, moves of partitions, SCRAM users, logins. It sets no quota. Every call makes a
client of its own, so that a broker killed in between never leaves a stale connection, and waits at
most `_TIMEOUT_SECONDS` for its answer.
"""

import socket
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from lab.errors import LabError
from lab.process import patience, wait_until, when_busy

with warnings.catch_warnings():
    # kafka-python loads its message definitions by a function that Python 3.11 calls deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import TopicPartition as AdminPartition
    from kafka.admin import KafkaAdminClient

_TIMEOUT_SECONDS = 60.0  # brokers that share a busy machine have been seen to take 20
_SCRAM_ITERATIONS = 4096
_PREFERRED = 0  # the protocol's election type


class _NoBrokerYet(LabError):
    """A broker answered with an empty cluster, as it does just after its start.

    librdkafka calls that a partial response.
    """


class KafkaAdmin:
    """Administration of one Kafka cluster without login, through its plain listener."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    def cluster_id(self) -> str:
        """The cluster id, as the brokers tell it."""
        return str(self._metadata().cluster_id)

    def wait_for_brokers(self, broker_ids: Sequence[int]) -> None:
        """Return once every broker that answers knows exactly these brokers."""
        wanted = set(broker_ids)
        wait_until(
            lambda: self._all_agree(lambda view: set(view.brokers) == wanted),
            f"every broker to know brokers {sorted(wanted)}",
            timeout_seconds=_TIMEOUT_SECONDS,
        )

    def create_topic(
        self,
        name: str,
        assignment: Sequence[Sequence[int]],
        *,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; return once every broker knows its leaders.

        `assignment` has the replicas of each partition, the preferred leader first.
        """
        topic = NewTopic(
            name,
            num_partitions=len(assignment),
            replica_assignment=[list(replicas) for replicas in assignment],
            config=dict(config or {}),
        )
        client = self._client()
        client.create_topics([topic], operation_timeout=patience(_TIMEOUT_SECONDS))[name].result(
            patience(_TIMEOUT_SECONDS)
        )
        self.wait_for_leaders(
            name,
            {number: replicas[0] for number, replicas in enumerate(assignment)},
            timeout_seconds=_TIMEOUT_SECONDS,
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic; brokers delete its files a moment later."""
        client = self._client()
        client.delete_topics([name], operation_timeout=patience(_TIMEOUT_SECONDS))[name].result(
            patience(_TIMEOUT_SECONDS)
        )

    def leaders(self, topic: str) -> dict[int, int]:
        """Partition -> broker that leads it, as one broker knows it; empty for an unknown topic.

        Partitions without a leader are left out.
        """
        return _leaders(self._metadata(), topic)

    def wait_for_leaders(
        self, topic: str, leaders: Mapping[int, int], *, timeout_seconds: float
    ) -> None:
        """Return once every broker that answers says that `topic` is led exactly so."""
        wait_until(
            lambda: self.is_led_as(topic, leaders),
            f"leaders {dict(leaders)} of topic {topic}",
            timeout_seconds=timeout_seconds,
        )

    def is_led_as(self, topic: str, leaders: Mapping[int, int]) -> bool:
        """Whether every broker that answers says so; brokers learn of a change one by one."""
        return self._all_agree(lambda view: _leaders(view, topic) == leaders)

    def preferred_leaders(self, topic: str) -> dict[int, int]:
        """Partition -> the first of its replicas, even if another leads now.

        Raises KeyError for an unknown topic.
        """
        return {
            number: partition.replicas[0]
            for number, partition in self._metadata().topics[topic].partitions.items()
        }

    def replicas(self, topic: str) -> dict[int, list[int]]:
        """Partition -> the brokers that have a replica of it. KeyError for an unknown topic."""
        return {
            number: list(partition.replicas)
            for number, partition in self._metadata().topics[topic].partitions.items()
        }

    def controller(self) -> int | None:
        """The active controller of a Kafka with ZooKeeper; None while there is none."""
        found = self._metadata().controller_id
        return found if found >= 0 else None

    def elect_preferred_leaders(self, topic: str) -> None:
        """Give each partition of `topic` back to the first of its replicas, where it is in sync."""
        # By kafka-python: confluent-kafka's binding of this one request fails before it is sent.
        with self._kafka_python() as client:
            # A partition that cannot have an election yet is refused; the caller looks at the
            # leaders instead.
            client.elect_leaders(
                _PREFERRED,
                [topic],
                timeout_ms=int(patience(_TIMEOUT_SECONDS) * 1000),
                raise_errors=False,
            )

    def reassign(self, replicas: Mapping[tuple[str, int], Sequence[int] | None]) -> None:
        """Move partitions to these replicas; None takes back a move that is under way.

        Returns once the controller has taken it; a partition that it refuses is an error.
        """
        with self._kafka_python() as client:
            answers = client.alter_partition_reassignments(
                {
                    AdminPartition(*partition): None if target is None else list(target)
                    for partition, target in replicas.items()
                },
                timeout_ms=int(patience(_TIMEOUT_SECONDS) * 1000),
            )
        refused = {str(one): error.__name__ for one, error in answers.items() if error is not None}
        if refused:
            raise LabError(f"These partitions are not reassigned: {refused}.")

    def quorum_leader(self) -> int | None:
        """The active controller of a Kafka without ZooKeeper; None while it is not known."""
        with self._kafka_python() as client:
            (topic,) = client.describe_metadata_quorum()["topics"]
        (partition,) = topic["partitions"]
        return partition["leader_id"] if partition["leader_id"] >= 0 else None

    def create_scram_user(
        self, user: str, password: str, *, mechanism: str = "SCRAM-SHA-256"
    ) -> None:
        """Give `user` a credential of this mechanism, or a new one; those of others stay."""
        kind = ScramMechanism[mechanism.replace("-", "_")]
        credential = ScramCredentialInfo(kind, _SCRAM_ITERATIONS)
        upsertion = UserScramCredentialUpsertion(user, credential, password.encode())
        client = self._client()
        client.alter_user_scram_credentials([upsertion])[user].result(patience(_TIMEOUT_SECONDS))

    def _all_agree(self, holds: Callable[[Any], bool]) -> bool:
        servers = [server for server in self._bootstrap_servers.split(",") if _listens(server)]
        return bool(servers) and all(KafkaAdmin(server)._says(holds) for server in servers)

    def _says(self, holds: Callable[[Any], bool]) -> bool:
        try:
            return holds(self._metadata())
        except _NoBrokerYet:
            return False

    def _kafka_python(self) -> "closing[KafkaAdminClient]":
        return closing(KafkaAdminClient(bootstrap_servers=self._bootstrap_servers.split(",")))

    def _client(self) -> AdminClient:
        """A client; keep it until the answer is there: one that goes away cancels its requests."""
        return AdminClient(
            {"bootstrap.servers": self._bootstrap_servers, "log_level": 0, "error_cb": _be_quiet}
        )

    def _metadata(self) -> Any:
        try:
            return self._client().list_topics(timeout=patience(_TIMEOUT_SECONDS))
        except KafkaException as error:
            if error.args[0].code() == KafkaError._PARTIAL:
                raise _NoBrokerYet(
                    f"{self._bootstrap_servers} serves, but it has no broker from the controller "
                    f"yet."
                ) from error
            raise LabError(
                f"No broker of {self._bootstrap_servers} answered a metadata request within "
                f"{patience(_TIMEOUT_SECONDS):.3g} s: {error}.{when_busy()}"
            ) from error


def _leaders(view: Any, topic: str) -> dict[int, int]:
    if topic not in view.topics:
        return {}
    return {
        number: partition.leader
        for number, partition in view.topics[topic].partitions.items()
        if partition.leader >= 0
    }


def _listens(server: str) -> bool:
    host, _, port = server.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def can_log_in(
    bootstrap_servers: str, user: str, *, password: str, mechanism: str = "SCRAM-SHA-256"
) -> bool:
    """Whether the brokers accept this login; `LabError` when they give no answer at all."""
    refusals: list[str] = []
    client = Producer(
        {
            **login_settings(bootstrap_servers, user, password=password, mechanism=mechanism),
            "log_level": 0,
            "error_cb": _note_refusal(refusals),
        }
    )
    deadline = time.monotonic() + patience(_TIMEOUT_SECONDS)
    while time.monotonic() < deadline:
        try:
            client.list_topics(timeout=0.25)
        except KafkaException:
            client.poll(0)
            if refusals:
                return False
        else:
            return True
    raise LabError(
        f"{bootstrap_servers} neither accepted nor refused the login of {user} within "
        f"{patience(_TIMEOUT_SECONDS):.3g} s.{when_busy()}"
    )


def login_settings(
    bootstrap_servers: str, user: str, *, password: str, mechanism: str
) -> dict[str, Any]:
    """The settings with which a librdkafka client logs in on the SASL listener."""
    return {
        "bootstrap.servers": bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def _note_refusal(refusals: list[str]) -> Any:
    def note(error: Any) -> None:
        if error.name() == "_AUTHENTICATION":
            refusals.append(str(error))

    return note


def _be_quiet(_error: object) -> None:
    """Ignore connection errors: killed brokers cause them.

    What matters comes back as the result of the call.
    """
