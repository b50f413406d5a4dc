"""Files are read as kubectl would read them, and more strictly: what is misspelt is an error, never
a silent nothing.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.doubles.kubernetes import InMemoryKubernetes
from tidegate.commands.context import CommandContext
from tidegate.commands.inputs import (
    find_policy,
    policy_of,
    read_manifests,
    terms_of,
)
from tidegate.commands.options import PolicyOptions
from tidegate.errors import InvalidResource, NotFound, TidegateError, Unauthorized
from tidegate.kube.api import (
    BANDWIDTH_BUDGETS,
    BROKER_BANDWIDTH_POLICIES,
    BUSINESS_TIERS,
    Listing,
    ResourceKind,
)
from tidegate.observe.declared import BrokenBudget
from tidegate_logic.reasons import Reason

POLICY = """\
apiVersion: tidegate.io/v1alpha1
kind: BrokerBandwidthPolicy
metadata: {name: orders, namespace: streaming}
spec:
  mode: Enforce
  kafka: {bootstrapServers: "kafka-1:9092", quotaStore: ZooKeeper, zookeeper: {connect: "zk-1:2181"}}
"""
TIER = """\
apiVersion: tidegate.io/v1alpha1
kind: BusinessTier
metadata: {name: core}
spec:
  policyRef: {name: orders}
  level: L0
  members: [{name: a, user: alice, contract: {perBroker: {fetch: 10M}}}]
"""
FOREIGN = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"


def names(text: str, tmp_path: Path) -> list[tuple[str, str]]:
    path = tmp_path / "all.yaml"
    path.write_text(text)
    return [
        (item["metadata"]["namespace"], item["metadata"]["name"])
        for item in read_manifests([str(path)], namespace="given")
    ]


def test_objects_of_other_kinds_and_empty_documents_are_passed_over(tmp_path: Path) -> None:
    assert names(f"---\n---\n{FOREIGN}---\n{POLICY}---\n", tmp_path) == [("streaming", "orders")]


@pytest.mark.parametrize("bare", ["n", "0", "false"])
def test_a_namespace_that_kubectl_reads_as_no_text_is_refused(tmp_path: Path, bare: str) -> None:
    with pytest.raises(InvalidResource, match=r"metadata\.namespace"):
        names(POLICY.replace("streaming", bare), tmp_path)


def test_an_object_without_a_namespace_gets_the_one_of_the_command(tmp_path: Path) -> None:
    assert names(TIER, tmp_path) == [("given", "core")]


def test_the_items_of_a_list_count(tmp_path: Path) -> None:
    indented = "\n".join(f"  {line}" for line in POLICY.splitlines())
    assert names(f"apiVersion: v1\nkind: List\nitems:\n-{indented[1:]}\n", tmp_path) == [
        ("streaming", "orders")
    ]


def test_a_directory_means_its_yaml_files_and_nothing_deeper(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(POLICY)
    (tmp_path / "b.yml").write_text(TIER)
    (tmp_path / "notes.txt").write_text("not: [yaml")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "c.yaml").write_text(POLICY)
    read = read_manifests([str(tmp_path)], namespace="n")
    assert [item["metadata"]["name"] for item in read] == ["orders", "core"]


def test_more_than_a_mebibyte_is_refused_and_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    text = "#" * (1024 * 1024) + "\n"
    path.write_text(text)
    for source, stream in ((str(path), io.StringIO()), ("-", io.StringIO(text))):
        with pytest.raises(InvalidResource) as raised:
            read_manifests([source], namespace="n", standard_input=stream)
        assert "larger than 1 MiB" in raised.value.message
    path.write_text(text[1:])
    assert read_manifests([str(path)], namespace="n") == ()


def test_a_dash_is_standard_input() -> None:
    (read,) = read_manifests(["-"], namespace="n", standard_input=io.StringIO(TIER))
    assert read["kind"] == "BusinessTier"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TIER.replace("members:", "membres:"), "membres"),
        (TIER.replace("10M", "10MB/s"), "10MB/s"),
        (TIER + "---\n" + TIER, "BusinessTier given/core"),
        (TIER.replace("v1alpha1", "v9"), "v1alpha1"),
        (TIER.replace("tidegate.io/", "tidegat.io/"), "tidegate.io/v1alpha1"),
        ("a: [", "all.yaml"),
        ("- just\n- a list\n", "all.yaml"),
    ],
    ids=[
        "misspelt field",
        "bad rate",
        "twice",
        "unknown version",
        "misspelt group",
        "no YAML",
        "no object",
    ],
)
def test_what_is_wrong_is_named(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidResource) as caught:
        names(text, tmp_path)
    assert said in caught.value.message


@pytest.mark.parametrize(
    "text",
    [TIER + "---\n" + TIER, "a: [", "- just\n- a list\n"],
    ids=["an object twice", "no YAML", "a document that is no object"],
)
def test_what_is_wrong_reads_like_this(
    text: str, tmp_path: Path, golden: Callable[[str], None]
) -> None:
    with pytest.raises(InvalidResource) as caught:
        names(text, tmp_path)
    golden(caught.value.message.replace(str(tmp_path), "FOLDER"))


@pytest.mark.parametrize(
    "source", ["missing.yaml", "."], ids=["no such file", "directory without YAML"]
)
def test_a_source_with_nothing_in_it_is_an_error(
    source: str, tmp_path: Path, golden: Callable[[str], None]
) -> None:
    with pytest.raises(NotFound) as refused:
        read_manifests([str(tmp_path / source)], namespace="n")
    assert str(tmp_path / source) in refused.value.message
    golden(refused.value.message.replace(str(tmp_path), "FOLDER"))


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_time_is_the_text_that_was_written_with_quotes_or_without(
    tmp_path: Path, quote: str
) -> None:
    spec = (
        "  policyRef: {name: orders}\n  target: {level: L2}\n  action: Exempt\n  reason: agreed\n"
        f"  expiresAt: {quote}2026-11-30T06:00:00Z{quote}\n"
    )
    path = tmp_path / "override.yaml"
    path.write_text(
        f"apiVersion: tidegate.io/v1alpha1\nkind: QuotaOverride\nmetadata: {{name: "
        f"o}}\nspec:\n{spec}"
    )
    (read,) = read_manifests([str(path)], namespace="given")
    assert read["spec"]["expiresAt"] == "2026-11-30T06:00:00Z"


# --- the policy of a rollup -----------------------------------------------------------------------
# The policy of a rollup on a laptop: what files say, and what a status in them adds.


AROUND = CommandContext(out=io.StringIO(), err=io.StringIO(), now_seconds=lambda: 0.0)


def write(folder: Path, *, status: dict[str, object] | None) -> str:
    """A policy with one member whose contract depends on leaders, as `kubectl get -o yaml` prints
    it.
    """

    def manifest(kind: str, name: str, **more: object) -> dict[str, object]:
        return {
            "apiVersion": "tidegate.io/v1alpha1",
            "kind": kind,
            "metadata": {"name": name, "namespace": "streaming"},
            **more,
        }

    rates = {"perPartition": {"fetch": "1M"}}
    member = {"name": "etl", "user": "etl", "topics": ["orders"], "contract": rates}
    kafka = {
        "bootstrapServers": "kafka-1:9092",
        "quotaStore": "ZooKeeper",
        "zookeeper": {"connect": "zk-1:2181"},
    }
    policy = manifest("BrokerBandwidthPolicy", "shop", spec={"mode": "Enforce", "kafka": kafka})
    spec = {
        "policyRef": {"name": "shop"},
        "level": "L3",
        "members": [member],
        "throttledRates": {"perPartition": {"fetch": "100k"}},
    }
    tier = manifest(
        "BusinessTier", "bulk", spec=spec, **({} if status is None else {"status": status})
    )
    file = folder / "shop.yaml"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [policy, tier]}))
    return str(file)


def test_without_files_there_is_no_policy() -> None:
    assert policy_of(AROUND, None) is None
    assert terms_of(None) is None


def test_a_contract_that_depends_on_leaders_is_known_from_a_status(tmp_path: Path) -> None:
    published: dict[str, object] = {
        "members": [{"name": "etl", "state": "Contract", "quota": {"fetch": 3_000_000}}]
    }
    known: tuple[tuple[dict[str, object] | None, dict[str, float]], ...] = (
        (published, {"fetch": 3_000_000.0}),
        (None, {}),
    )
    for status, rates in known:
        terms = terms_of(policy_of(AROUND, [write(tmp_path, status=status)]))
        assert terms is not None
        [etl] = terms.members
        assert (terms.key, etl.client, terms.promised(etl, brokers=3)) == (
            "streaming/shop",
            ("etl", ""),
            rates,
        )


def test_members_are_in_the_budgets_of_the_files(tmp_path: Path) -> None:
    spec = {
        "policyRef": {"name": "shop"},
        "total": {"fetch": "120M"},
        "members": {"tiers": ["bulk"]},
    }
    budget = {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "BandwidthBudget",
        "metadata": {"name": "search", "namespace": "streaming"},
        "spec": spec,
    }
    file = tmp_path / "budget.yaml"
    file.write_text(json.dumps(budget))
    source = policy_of(AROUND, [write(tmp_path, status=None), str(file)])
    assert source is not None
    terms = terms_of(source)
    assert terms is not None
    assert [one.member.labels for one in terms.members] == [(("tidegate.io/budget", "search"),)]
    broken = replace(source.declared, broken_budgets=(BrokenBudget("streaming/b", "not valid"),))
    assert replace(source, declared=broken).known_budgets is None


class WithoutBudgets(InMemoryKubernetes):
    """It refuses to list budgets, with the error that a test says."""

    def __init__(self, error: TidegateError) -> None:
        super().__init__()
        self._error = error

    def list_all(self, kind: ResourceKind, namespaces: Sequence[str] = ()) -> Listing:
        if kind == BANDWIDTH_BUDGETS:
            raise self._error
        return super().list_all(kind, namespaces)


@pytest.mark.parametrize(
    ("error", "is_known"),
    [
        (NotFound(Reason.KUBERNETES_UNREACHABLE, "There is no such kind."), True),
        (Unauthorized("This may not be listed."), False),
    ],
)
def test_a_cluster_without_the_kind_has_no_budgets_and_one_that_hides_them_may(
    tmp_path: Path, error: TidegateError, is_known: bool
) -> None:
    kubernetes = WithoutBudgets(error)
    written = json.loads(Path(write(tmp_path, status=None)).read_text(encoding="utf-8"))
    for kind, one in zip(
        (BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS), written["items"], strict=True
    ):
        kubernetes.create(kind, one)
    around = replace(AROUND, open_kubernetes=lambda *_: kubernetes)
    source = find_policy(around, PolicyOptions(policy="shop", namespace="streaming"))
    assert source.known_budgets == (() if is_known else None)
    terms = terms_of(source)
    assert terms is not None
    assert terms.budgets_known is is_known
