"""The commands as processes on a Kafka without ZooKeeper: plan and explain write nothing, restore
leaves the former quotas from topic and brokers alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.kraft import KraftLab
from tests.contract.quota_store_contract import FETCH
from tests.goldens.golden import numbers
from tests.integration.commands.test_real_cluster import tidegate
from tests.integration.connections import connection_of
from tests.integration.kafka.admin_world import AdminWorld
from tests.unit.control.stage import Stage
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS
from tidegate.observe.connections import open_topology
from tidegate.observe.secrets_and_hosts import Secrets
from tidegate.resources.policy import KafkaCluster as KafkaSpec
from tidegate_logic.model import Entity

pytestmark = pytest.mark.integration


class Installation:
    """One topic with two partitions on the broker, a policy with one member for it, its ledger."""

    def __init__(self, kafka: KraftLab, name: str, folder: Path) -> None:
        settings = connection_of(kafka.bootstrap_servers)
        self.world = AdminWorld(settings, f"__ledger-{name}", kafka.cluster_id)
        self.name, self.user = name, f"{name}-user"
        self.kafka = {
            "bootstrapServers": kafka.bootstrap_servers,
            "ledgerTopic": self.world.topic,
        }
        contract = {"perPartition": {"fetch": "10M"}}
        member = {"name": "shop", "user": self.user, "topics": [name], "contract": contract}
        self.policy = {"mode": "Enforce", "kafka": self.kafka}
        self.tier = {"policyRef": {"name": "orders"}, "level": "L0", "members": [member]}
        objects = [
            self._object("BrokerBandwidthPolicy", "orders", self.policy),
            self._object("BusinessTier", "gold", self.tier),
        ]
        self.file = str(folder / "all.yaml")
        Path(self.file).write_text(yaml.safe_dump_all(objects, default_style='"'))
        self.brokers = (
            *("--bootstrap-servers", kafka.bootstrap_servers),
            *("--ledger-topic", self.world.topic),
        )

    def _object(self, kind: str, name: str, spec: Any) -> dict[str, Any]:
        return {
            "apiVersion": "tidegate.io/v1alpha1",
            "kind": kind,
            "metadata": {"name": name, "namespace": "streaming"},
            "spec": spec,
        }

    def operate(self) -> None:
        """Run one pass of the operator, which then stops."""
        spec = KafkaSpec.model_validate(self.kafka)
        store = self.world.another_store()
        topology = open_topology(
            spec, Secrets(), folder=Path("/nowhere"), topic_names=store.topic_names
        )
        stage = Stage(store=store, leaders=topology)  # type: ignore[arg-type]
        for kind, name, content in (
            (BROKER_BANDWIDTH_POLICIES, "orders", self.policy),
            (BUSINESS_TIERS, "gold", self.tier),
        ):
            metadata = {"name": name, "namespace": "streaming"}
            stage.kubernetes.create(kind, {"metadata": metadata, "spec": content})
        stage.run()
        topology.close()

    def state(self) -> Any:
        """Quotas and ledger."""
        store = self.world.another_store()
        return store.read_everything(), store.facts().claim


@pytest.fixture
def installation(kraft: KraftLab, unique_name: str, tmp_path: Path) -> Iterator[Installation]:
    kraft.create_topic(unique_name, assignment=[[1], [1]])
    made = Installation(kraft, unique_name, tmp_path)
    made.world.clear()
    yield made
    made.world.clear()
    made.world.close()


def test_plan_names_the_change_and_writes_nothing(installation: Installation) -> None:
    code, out, err = tidegate("plan", "-f", installation.file, "-o", "json")
    assert code == 2, err
    (change,) = json.loads(out)["changes"]
    assert (change["entity"], change["inForce"], change["next"]) == (
        {"user": installation.user},
        None,
        "20000000",
    )
    assert installation.state() == ({}, None)
    # not even the topic is made
    assert installation.world.topic not in installation.world.another_store().topic_names()


def test_after_the_operator_plan_is_empty_and_explain_names_who_set_it(
    installation: Installation,
) -> None:
    installation.operate()
    before = installation.state()
    assert tidegate("plan", "-f", installation.file)[0] == 0
    whom = ("--user", installation.user, "--client-id", "any")
    for source in (("-f", installation.file), installation.brokers):
        code, out, err = tidegate("explain", *whom, *source)
        assert code == 0, err
        assert "streaming/orders" in out
        assert numbers(out) >= {20000000}
    assert installation.state() == before


def test_restore_needs_nothing_but_the_brokers_and_leaves_no_trace(
    installation: Installation,
) -> None:
    installation.world.put(Entity(installation.user), {FETCH: "25000000"})
    installation.operate()
    assert installation.world.quotas(Entity(installation.user)) == {FETCH: "20000000"}
    assert tidegate("restore", *installation.brokers)[0] == 2
    code, _, err = tidegate("restore", *installation.brokers, "--yes")
    assert code == 0, err
    assert installation.world.quotas(Entity(installation.user)) == {FETCH: "25000000"}
    quotas, claim = installation.state()
    assert claim is None
    assert [one.ledger for one in quotas.values()] == [None]


def test_brokers_that_do_not_answer_are_named_without_a_traceback() -> None:
    code, _, err = tidegate("restore", "--bootstrap-servers", "127.0.0.1:1")
    assert code == 1
    assert "127.0.0.1:1" in err
    assert "Traceback" not in err
