"""Who may do what, on a real API server with the operator as a process: Secrets by their label,
tiers by the labels of their namespace, entities by the policy's list, and the roles for people.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import ApiClient, AuthorizationV1Api

from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.kubernetes.tools import Helm
from lab.process import patience, started, wait_until
from tests.integration.chart.rendering import objects, only, rendered
from tests.integration.conftest import CHECKOUT
from tests.integration.operator.installation import one_of_each_kind
from tests.integration.operator.test_operator import LOCAL_COMMAND, RIGHTS
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate_logic.model import Entity, QuotaKey

pytestmark = pytest.mark.integration

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE


@dataclass
class Place:
    """A running operator with the documented rights, and a namespace with objects."""

    api: KubeApi
    kafka: KafkaLab
    store: ZooKeeperQuotaStore
    namespace: str
    log_path: Path

    def apply(self, *items: dict[str, Any]) -> None:
        _apply(self.api, *items)

    def ready(self, name: str, namespace: str | None = None) -> tuple[str, str, str]:
        """Status, reason and message of Ready."""
        raw = self.api.kubectl("get", name, "-n", namespace or self.namespace, "-o", "json")
        conditions = json.loads(raw).get("status", {}).get("conditions", [])
        found = [one for one in conditions if one["type"] == "Ready"]
        return (
            (found[0]["status"], found[0]["reason"], found[0]["message"]) if found else ("", "", "")
        )

    def wait_for(self, name: str, status: str, reason: str, namespace: str | None = None) -> str:
        """The message of Ready, once it has this status and reason."""
        wait_until(
            lambda: self.ready(name, namespace)[:2] == (status, reason),
            f"{name} to be {status} for {reason}",
            timeout_seconds=120,
            poll_seconds=0.5,
        )
        return self.ready(name, namespace)[2]

    def quota(self, user: str) -> str | None:
        entity = Entity(user)
        return self.store.read([entity])[entity].values.get(PRODUCE)

    def patch_policy(self, **spec: Any) -> None:
        self.api.kubectl(
            "patch", "bbp", "orders", "-n", self.namespace, "--type=merge",
            f"--patch={json.dumps({'spec': spec})}",
        )  # fmt: skip


@pytest.fixture
def place(
    crds: KubeApi, kafka: KafkaLab, namespace: str, unique_name: str, tmp_path: Path
) -> Iterator[Place]:
    kafka.create_topic(unique_name, assignment=[[1, 2], [2, 3], [3, 1]])
    crds.kubectl("apply", "-f", str(RIGHTS))
    with _operated(crds, kafka, namespace, tmp_path) as found:
        yield found
        crds.kubectl(
            "label", "secret", "login", "-n", namespace, "tidegate.io/credentials=true",
            "--overwrite",
        )  # fmt: skip
        crds.kubectl("delete", "bbp", "orders", "-n", namespace, "--timeout=90s")


@contextmanager
def _operated(api: KubeApi, kafka: KafkaLab, namespace: str, directory: Path) -> Iterator[Place]:
    """An operator with whatever rights its ServiceAccount has."""
    token = api.kubectl("create", "token", "tidegate", "--namespace=tidegate", "--duration=1h")
    kubeconfig = api.kubeconfig_for(token=token.strip(), path=directory / "tidegate.kubeconfig")
    log_path = directory / "operator.log"
    store = ZooKeeperQuotaStore(ZooKeeperSession(ZooKeeperConnection(kafka.zookeeper_connect)))
    with log_path.open("wb") as log:
        operator = subprocess.Popen(
            [*LOCAL_COMMAND, "--kubeconfig", str(kubeconfig)], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield Place(api, kafka, store, namespace, log_path)
    finally:
        operator.terminate()
        operator.wait(timeout=patience(30))
        store.close()


def _tier(name: str, place: Place, *users: str, namespace: str) -> dict[str, Any]:
    members = [
        {"name": user, "user": user, "contract": {"perBroker": {"produce": "3M"}}} for user in users
    ]
    reference = {"name": "orders", "namespace": place.namespace}
    return {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "BusinessTier",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"policyRef": reference, "level": "L0", "members": members},
    }


def test_a_secret_serves_a_policy_once_it_has_the_label(place: Place, unique_name: str) -> None:
    items = one_of_each_kind(place.kafka, place.namespace, unique_name, labels={})["items"]
    place.apply(*items)
    message = place.wait_for("bbp/orders", "False", "SecretNotAllowed")
    assert f"kubectl label secret -n {place.namespace} login" in message
    assert place.quota(unique_name) is None
    place.api.kubectl(
        "label", "secret", "login", "-n", place.namespace, "tidegate.io/credentials=true"
    )
    place.wait_for("bbp/orders", "True", "InSync")
    assert place.quota(unique_name) == "2000000"


def test_tiers_of_other_namespaces_and_their_entities_are_what_the_policy_allows(
    place: Place, unique_name: str
) -> None:
    theirs, other = f"{unique_name}-b", f"{unique_name}-other"
    elsewhere = f"{place.namespace}-b"
    place.api.kubectl("create", "namespace", elsewhere)
    try:
        place.apply(*one_of_each_kind(place.kafka, place.namespace, unique_name)["items"])
        place.apply(_tier("theirs", place, theirs, other, unique_name, namespace=elsewhere))
        place.wait_for("bbp/orders", "True", "InSync")
        place.wait_for("bt/theirs", "False", "TierNotAllowed", elsewhere)
        assert (place.quota(unique_name), place.quota(theirs)) == ("2000000", None)

        place.patch_policy(
            allowedTiers={
                "namespaces": "Selector",
                "selector": {"matchLabels": {"kafka": unique_name}},
            },
            allowedEntities=[
                {"users": [unique_name], "namespaces": [place.namespace]},
                {"users": [f"{theirs}*"], "namespaces": [elsewhere]},
            ],
            removal={"maxPercent": 100},
        )
        place.api.kubectl("label", "namespace", elsewhere, f"kafka={unique_name}")
        message = place.wait_for("bt/theirs", "False", "EntityNotAllowed", elsewhere)
        assert f"user={other}" in message
        assert f"may name are {theirs}*" in message
        wait_until(lambda: place.quota(theirs) == "3000000", "the quota", timeout_seconds=30)
        assert place.quota(other) is None
        assert place.quota(unique_name) == "2000000", "its owner keeps it"

        place.patch_policy(
            allowedEntities=[{"users": [unique_name], "namespaces": [place.namespace]}]
        )
        wait_until(lambda: place.quota(theirs) is None, "it to be restored", timeout_seconds=90)
        assert place.quota(unique_name) == "2000000"
    finally:
        place.api.kubectl("delete", "namespace", elsewhere, "--wait=false")
    assert "Traceback" not in place.log_path.read_text()


KINDS = ("brokerbandwidthpolicies", "businesstiers", "quotaoverrides", "bandwidthbudgets")


@pytest.mark.parametrize(
    ("duty", "writes"),
    [
        ("view", ()),
        ("owner", (KINDS[0], KINDS[3])),
        ("contracts", (KINDS[1],)),
        ("overrides", (KINDS[2],)),
    ],
)
def test_a_person_with_a_role_of_the_chart_may_do_that_and_no_more(
    crds: KubeApi,
    api_client: ApiClient,
    namespace: str,
    tmp_path: Path,
    duty: str,
    writes: tuple[str, ...],
) -> None:
    found = objects(rendered(Helm(tmp_path)))
    role = only(found, "ClusterRole", name=f"tidegate-{duty}")
    role["metadata"]["name"] = name = f"{namespace}-{duty}"
    crds.kubectl("apply", "-f", "-", input=json.dumps(role))
    crds.kubectl(
        "create", "rolebinding", duty, "-n", namespace, f"--clusterrole={name}", "--user=maria"
    )

    def may(verb: str, what: str, subresource: str = "") -> bool:
        place = {"namespace": namespace, "group": "tidegate.io", "resource": what}
        attributes = {**place, "verb": verb, "subresource": subresource}
        asked = {"spec": {"user": "maria", "resourceAttributes": attributes}}
        answer = AuthorizationV1Api(api_client).create_subject_access_review(asked)
        return bool(answer.status.allowed)

    try:
        wait_until(lambda: may("list", KINDS[0]), "the role", timeout_seconds=20)
        for kind in KINDS:
            assert may("list", kind)
            for verb in ("create", "patch", "delete"):
                assert may(verb, kind) == (kind in writes), (verb, kind)
            assert not may("patch", kind, "status")
    finally:
        crds.kubectl("delete", "clusterrole", name)


def test_a_policy_with_budgets_waits_for_the_right_to_list_them(
    kafka: KafkaLab, unique_name: str, tmp_path: Path
) -> None:
    kafka.create_topic(unique_name, assignment=[[1, 2], [2, 3], [3, 1]])
    with started(KubeApi) as api:  # others want the rights
        api.install_crds(CHECKOUT / "crds")
        api.kubectl("create", "namespace", unique_name)
        for file in sorted(RIGHTS.glob("*.yaml")):
            api.kubectl("apply", "-f", "-", input=_without_budgets(file.read_text()))
        secret, policy, *others = one_of_each_kind(kafka, unique_name, unique_name)["items"]
        _apply(api, policy)
        api.kubectl(
            "patch", "bbp", "orders", "-n", unique_name, "--subresource=status", "--type=merge",
            "--patch", json.dumps({"status": {"budgets": 1}}),
        )  # fmt: skip
        _apply(api, secret, *others)
        with _operated(api, kafka, unique_name, tmp_path) as place:
            message = place.wait_for("bbp/orders", "False", "BudgetsUnread")
            assert "bandwidthbudgets" in message
            assert place.quota(unique_name) is None
            api.kubectl("apply", "-f", str(RIGHTS))
            place.wait_for("bbp/orders", "True", "InSync")
            assert place.quota(unique_name) == "2000000"
            budget = {
                "apiVersion": "tidegate.io/v1alpha1",
                "kind": "BandwidthBudget",
                "metadata": {"name": "team", "namespace": unique_name},
                "spec": {
                    "policyRef": {"name": "orders"},
                    "total": {"produce": "5M"},
                    "members": {"tiers": ["gold"]},
                },
            }
            _apply(api, budget)
            place.wait_for("bb/team", "False", "MetricsNotWatched")
            api.kubectl("delete", "bbp", "orders", "-n", unique_name, "--timeout=90s")


def _apply(api: KubeApi, *items: dict[str, Any]) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": list(items)}
    api.kubectl("apply", "-f", "-", input=json.dumps(listed))


def _without_budgets(text: str) -> str:
    documents = list(yaml.safe_load_all(text))
    for document in documents:
        for rule in document.get("rules", []):
            rule["resources"] = [
                one for one in rule["resources"] if not one.startswith("bandwidthbudgets")
            ]
        if "rules" in document:
            document["rules"] = [rule for rule in document["rules"] if rule["resources"]]
    return yaml.safe_dump_all(documents)
