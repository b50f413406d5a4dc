"""Names of our kinds beside those of Strimzi, cert-manager, Argo and Kubernetes: kubectl resolves a
plural, a singular, a short name and a category alike, so no two projects may share one.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from lab.kubernetes.api import KubeApi
from tests.unit.resources.documents import policy, tier
from tidegate.resources import GROUP, KINDS
from tidegate.resources.crd import crd_document

pytestmark = pytest.mark.integration

# Plural, singular and short names of each kind, and the categories of the project, as their CRDs
# declare them (Strimzi 0.45 to 1.2, cert-manager 1.18, Argo CD 3, Rollouts 1.8, Workflows 3, Events 1.9).
STRIMZI = """kafkas kafka k  kafkaconnects kafkaconnect kc  kafkatopics kafkatopic kt  kafkausers
kafkauser ku  kafkamirrormakers kafkamirrormaker kmm  kafkamirrormaker2s kafkamirrormaker2 kmm2
kafkabridges kafkabridge kb  kafkaconnectors kafkaconnector kctr  kafkarebalances kafkarebalance kr
kafkanodepools kafkanodepool knp  strimzipodsets strimzipodset sps  kafkaaccesses kafkaaccess ka
strimzi"""
CERT_MANAGER = """certificates certificate cert certs  certificaterequests certificaterequest cr crs
issuers issuer iss  clusterissuers clusterissuer ciss  orders order  challenges challenge  bundles
bundle  cert-manager cert-manager-acme"""
ARGO = """applications application app apps  applicationsets applicationset appset appsets
appprojects appproject appproj appprojs  rollouts rollout ro  analysisruns analysisrun ar
analysistemplates analysistemplate at  clusteranalysistemplates clusteranalysistemplate cat
experiments experiment exp  workflows workflow wf  workflowtemplates workflowtemplate wftmpl
clusterworkflowtemplates clusterworkflowtemplate clusterwftmpl cwft  cronworkflows cronworkflow cwf
cronwf  workfloweventbindings workfloweventbinding wfeb  eventbuses eventbus eb  eventsources
eventsource es  sensors sensor sn"""
# kubectl's own, which no server declares
KUBECTL = "all api-extensions"


def names_of_ours() -> dict[str, list[str]]:
    """Every word by which kubectl finds our kinds, with the kinds that it finds."""
    found: dict[str, list[str]] = {}
    for kind in KINDS:
        names: Mapping[str, Any] = crd_document(kind)["spec"]["names"]
        own = [names["plural"], names["singular"], *names["shortNames"], *names["categories"]]
        for name in own:
            found.setdefault(name, []).append(kind.kind)
    return found


@pytest.mark.parametrize("others", [STRIMZI, CERT_MANAGER, ARGO, KUBECTL])
def test_no_name_is_one_of_another_project(others: str) -> None:
    assert not names_of_ours().keys() & set(others.split())


def test_no_name_is_one_of_kubernetes(crds: KubeApi) -> None:
    listed = crds.kubectl("api-resources", "--output=wide", "--no-headers").splitlines()
    others = [line.lower().split() for line in listed if GROUP not in line]
    assert len(others) > 30
    taken = {name for fields in others for field in fields for name in field.split(",")}
    assert {"pods", "po", "deploy", "all"} <= taken
    assert not names_of_ours().keys() & taken


@pytest.fixture
def strimzis_kafka(crds: KubeApi) -> Iterator[KubeApi]:
    """The API server with a kind that has the names of Strimzi's `Kafka`."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {
        "kind": "Kafka",
        "listKind": "KafkaList",
        "plural": "kafkas",
        "singular": "kafka",
        "shortNames": ["k"],
        "categories": ["strimzi"],
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "kafkas.kafka.strimzi.io"},
        "spec": {
            "group": "kafka.strimzi.io",
            "names": names,
            "scope": "Namespaced",
            "versions": [version],
        },
    }
    crds.kubectl("apply", "-f", "-", input=json.dumps(crd))
    crds.kubectl(
        "wait", "--for=condition=Established", "--timeout=30s", "crd/kafkas.kafka.strimzi.io"
    )
    yield crds
    crds.kubectl("delete", "crd", "kafkas.kafka.strimzi.io", "--timeout=60s")


def test_kafka_is_strimzis_and_deleting_all_of_it_takes_nothing_of_ours(
    strimzis_kafka: KubeApi, namespace: str
) -> None:
    cluster = {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "Kafka",
        "metadata": {"name": "orders"},
        "spec": {},
    }
    for document in (cluster, policy(), tier()):
        placed = {**document, "metadata": {"name": "orders", "namespace": namespace}}
        strimzis_kafka.kubectl("create", "-f", "-", input=json.dumps(placed))
    within = ("-n", namespace)
    assert strimzis_kafka.kubectl("get", "kafka", *within, "-o", "name").split() == [
        "kafka.kafka.strimzi.io/orders"
    ]
    assert "orders" in strimzis_kafka.kubectl("describe", "kafka", "orders", *within)
    strimzis_kafka.kubectl("delete", "kafka", "--all", *within)
    ours = strimzis_kafka.kubectl("get", "tidegate", *within, "-o", "name").split()
    assert sorted(ours) == [
        f"brokerbandwidthpolicy.{GROUP}/orders",
        f"businesstier.{GROUP}/orders",
    ]
