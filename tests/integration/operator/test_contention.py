"""Somebody sets a quota again and again with Kafka's own kafka-configs: the operator leaves it alone
for a minute, says so, and a person ends that at once.

Everything is real.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from lab.java import start_java
from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.packages import kafka_jars
from lab.process import patience, wait_until
from tests.integration.operator.operator_process import OperatorProcess
from tidegate.kafka.zookeeper.nodes import ledger_path
from tidegate_logic.model import Entity
from tidegate_logic.quotas.contention import RESYNC

# It waits for minutes, and the other tests that run an operator take as long without it.
pytestmark = [
    pytest.mark.integration,
    pytest.mark.brokers,
    pytest.mark.long,
]

OURS, THEIRS = 10_000_000, 5_000_000
POLL_SECONDS = 15


class Person:
    """Who has kubectl, `tidegate` and kafka-configs; `user` is the member with the quota."""

    def __init__(self, api: KubeApi, kafka: KafkaLab, namespace: str, user: str) -> None:
        self.api, self.kafka, self.namespace, self.user = api, kafka, namespace, user
        self.zookeeper = KazooClient(kafka.zookeeper_connect)

    def declare(self) -> None:
        version = {"apiVersion": "tidegate.io/v1alpha1"}
        kafka = {
            "bootstrapServers": self.kafka.bootstrap_servers,
            "quotaStore": "ZooKeeper",
            "zookeeper": {"connect": self.kafka.zookeeper_connect},
        }
        contract = {"perBroker": {"produce": str(OURS)}}
        members = [{"name": "shop", "user": self.user, "contract": contract}]
        tier = {"policyRef": {"name": "orders"}, "level": "L0", "members": members}
        items = [
            {
                **version,
                "kind": "BrokerBandwidthPolicy",
                "metadata": {"name": "orders", "namespace": self.namespace},
                "spec": {"mode": "Enforce", "kafka": kafka},
            },
            {
                **version,
                "kind": "BusinessTier",
                "metadata": {"name": "gold", "namespace": self.namespace},
                "spec": tier,
            },
        ]
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        self.api.kubectl("apply", "-f", "-", input=document)

    def kafka_configs(self, *change: str) -> None:
        """Change the user's quota as an administrator of Kafka does."""
        server = ("--bootstrap-server", self.kafka.bootstrap_servers)
        entity = ("--entity-type", "users", "--entity-name", self.user)
        with start_java(
            "kafka-configs",
            "kafka.admin.ConfigCommand",
            arguments=[*server, "--alter", *entity, *change],
            options=["-Xmx128m"],
            jars=kafka_jars(),
            directory=self.kafka.run.path / "kafka-configs",
        ) as tool:
            tool.expect_success(60.0)

    def quota(self) -> int | None:
        node = f"/config/users/{self.user}"
        if not self.zookeeper.exists(node):
            return None
        text = json.loads(self.zookeeper.get(node)[0])["config"].get("producer_byte_rate")
        return None if text is None else int(text)

    def written_at_seconds(self) -> float:
        """When the operator wrote the quota last, by its ledger."""
        record = json.loads(self.zookeeper.get(ledger_path(Entity(user=self.user)))[0])
        return float(record["entries"]["producer_byte_rate"]["written_at_seconds"])

    def has(self, quota: int, *, within_seconds: float) -> float:
        """Return once the quota is this; how many seconds it took."""
        began = time.monotonic()
        wait_until(lambda: self.quota() == quota, f"{quota}", timeout_seconds=within_seconds)
        return time.monotonic() - began

    def status(self, kind: str, name: str) -> dict[str, Any]:
        found = json.loads(self.api.kubectl("get", kind, name, "-n", self.namespace, "-o", "json"))
        return dict(found.get("status") or {})

    def ready(self, kind: str, name: str) -> tuple[str, str, str]:
        conditions = self.status(kind, name).get("conditions") or []
        ready = next((one for one in conditions if one["type"] == "Ready"), {})
        return ready.get("status", ""), ready.get("reason", ""), ready.get("message", "")

    def events(self, reason: str) -> list[str]:
        found = json.loads(self.api.kubectl("get", "events", "-n", self.namespace, "-o", "json"))
        return [str(one["message"]) for one in found["items"] if one["reason"] == reason]

    def tidegate(self, *arguments: str) -> str:
        where = ["--kubeconfig", str(self.api.kubeconfig), "-n", self.namespace]
        command = [sys.executable, "-m", "tidegate", *arguments, *where]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=patience(90))
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


@pytest.fixture
def person(crds: KubeApi, kafka: KafkaLab, namespace: str, unique_name: str) -> Iterator[Person]:
    somebody = Person(crds, kafka, namespace, unique_name)
    somebody.zookeeper.start()
    yield somebody
    somebody.zookeeper.stop()
    somebody.zookeeper.close()


def test_a_rival_is_left_alone_for_a_minute_is_seen_and_a_resync_ends_it_at_once(
    person: Person, tmp_path: Path
) -> None:
    person.declare()
    with OperatorProcess(person.api, person.namespace, tmp_path):
        person.has(OURS, within_seconds=60)
        for _ in range(2):
            person.kafka_configs("--add-config", f"producer_byte_rate={THEIRS}")
            person.has(OURS, within_seconds=POLL_SECONDS + 15)
        person.kafka_configs("--add-config", f"producer_byte_rate={THEIRS}")
        contended(person, str(THEIRS))
        began = time.monotonic()
        text = person.tidegate("explain", "--user", person.user, "--policy", "orders")
        assert "Another writer changed it" in text
        assert "The operator leaves it alone until" in text
        assert f"{OURS} B/s" in text
        assert person.quota() == THEIRS
        person.has(OURS, within_seconds=90)
        assert 40 < time.monotonic() - began < patience(60 + POLL_SECONDS + 5)
        wait_until(lambda: person.ready("bbp", "orders")[0] == "True", "Ready", timeout_seconds=30)

        person.kafka_configs("--delete-config", "producer_byte_rate")
        contended(person, "unlimited")
        text = person.tidegate("explain", "--user", person.user, "--policy", "orders")
        assert "unlimited now, but it should not be" in text
        assert "Someone removed the quota at level 3" in text
        assert person.quota() is None
        command = text.partition("To end that at once: ")[2].splitlines()[0].split()
        assert command == [
            "tidegate",
            "resync",
            f"{person.namespace}/orders",
            "--entity",
            f"user={person.user}",
        ]
        said = person.tidegate(*command[1:])
        person.has(OURS, within_seconds=POLL_SECONDS + 15)
        asked_at = datetime.fromisoformat(said.partition(f"{RESYNC}=")[2].split()[0]).timestamp()
        took_seconds = person.written_at_seconds() - asked_at
        print(f"from the annotation to the quota: {took_seconds:.2f} s")
        assert took_seconds < POLL_SECONDS  # it would be 120 s without
        wait_until(lambda: person.events("Resynced"), "the Event", timeout_seconds=15)
        assert f"user={person.user}" in person.events("Resynced")[0]
        person.api.kubectl("delete", "bbp", "orders", "-n", person.namespace, "--timeout=60s")
    assert person.quota() is None


def contended(person: Person, theirs: str) -> None:
    """Return once policy, tier and Events say so, with the other writer's value and the end."""

    def is_contended() -> bool:
        return person.ready("bbp", "orders")[:2] == ("False", "Contended")

    wait_until(is_contended, "contention", timeout_seconds=POLL_SECONDS + 15)
    (member,) = person.status("bt", "gold")["members"]
    until = member["contendedUntil"].partition("T")[2].removesuffix("Z")
    for message in (person.ready("bbp", "orders")[2], person.ready("bt", "gold")[2]):
        for part in (theirs, f"{OURS} B/s", f"until {until} UTC", "tidegate resync"):
            assert part in message, message
    assert person.ready("bt", "gold")[:2] == ("False", "Contended")
    wait_until(
        lambda: any(until in event for event in person.events("Contended")),
        "an Event with the end",
        timeout_seconds=15,
    )
