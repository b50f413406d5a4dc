"""`tidegate import` on a made-up cluster: what becomes a member, of which tier, and what does not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.user_operator import kafka_user
from tidegate.commands.import_quotas import propose
from tidegate.commands.import_tiers import Proposal, quantity, tiers_of
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS
from tidegate.observe.strimzi import KAFKA_USERS
from tidegate.resources.kinds import parse_object
from tidegate.resources.rates import parse_byte_rate
from tidegate_logic.model import Default, Entity, Level, QuotaKey, StoredQuota

FETCH, PRODUCE = QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.PRODUCER_BYTE_RATE
SHARE, MUTATIONS = QuotaKey.REQUEST_PERCENTAGE, QuotaKey.CONTROLLER_MUTATION_RATE
ZOOKEEPER = ("--zookeeper", "zk-1:2181/kafka")


@pytest.fixture
def cluster(world: Any) -> Any:
    """A cluster with quotas as scripts leave them."""
    for entity, values in {
        Entity("checkout"): {FETCH: "50000000", PRODUCE: "20000000"},
        Entity("odd"): {FETCH: "50000000.0"},
        Entity("orders"): {FETCH: "20971520", SHARE: "150.0"},
        Entity("orders", "backfill-7"): {FETCH: "5000000", PRODUCE: "1234567"},
        Entity("search"): {PRODUCE: "30000000"},
        Entity("idle"): {SHARE: "50"},
        Entity(Default.DEFAULT): {FETCH: "1000000"},
        Entity(client_id="nightly etl"): {FETCH: "9000000"},
    }.items():
        world.store.put(entity, dict(values))
    return world


def tiers(text: str) -> dict[str, Any]:
    found = {one["metadata"]["name"]: one for one in yaml.safe_load_all(text)}
    for one in found.values():
        parse_object(one, strict=True)
    return found


def members(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {member["name"]: member for one in found.values() for member in one["spec"]["members"]}


def test_quotas_become_members_with_the_rates_that_they_have(
    cluster: Any, golden: Callable[..., None]
) -> None:
    before = cluster.snapshot()
    answer = cluster.run("import", "streaming/orders", *ZOOKEEPER)
    assert answer.code == 0, answer.err
    assert cluster.snapshot() == before
    found = tiers(answer.out)
    assert members(found)["checkout"]["contract"] == {
        "perBroker": {"fetch": "50M", "produce": "20M"}
    }
    assert members(found)["orders"]["contract"] == {
        "perBroker": {"fetch": "20Mi"},
        "requestPercentage": 150,
    }
    assert members(found)["orders-backfill-7"]["clientId"] == "backfill-7"
    assert "user" not in members(found)["nightly-etl"]
    assert {"idle", "odd"} & members(found).keys() == set()
    assert {one["metadata"]["namespace"] for one in found.values()} == {"streaming"}
    golden(answer.out, "tiers")
    golden(answer.err, "notes")


def test_levels_are_proposed_by_name_and_decided_by_people(cluster: Any) -> None:
    def level(text: str) -> dict[str, str]:
        return {
            member["name"]: one["spec"]["level"]
            for one in tiers(text).values()
            for member in one["spec"]["members"]
        }

    proposed = level(cluster.run("import", *ZOOKEEPER).out)
    assert {name for name, one in proposed.items() if one == "L3"} == {
        "orders-backfill-7",
        "nightly-etl",
    }
    assert set(proposed.values()) == {"L2", "L3"}
    rules = ("--level-of", "checkout*=L0", "--level-of", "orders=L1")
    decided = level(cluster.run("import", *ZOOKEEPER, *rules).out)
    assert (decided["checkout"], decided["orders"], decided["orders-backfill-7"]) == (
        "L0",
        "L1",
        "L1",
    )
    assert cluster.run("import", *ZOOKEEPER, "--level-of", "checkout=L7").code == 1


def test_only_what_matches_is_imported(cluster: Any) -> None:
    answer = cluster.run("import", *ZOOKEEPER, "--match", "orders", "--match", "night*")
    assert members(tiers(answer.out)).keys() == {"orders", "orders-backfill-7", "nightly-etl"}


def test_who_is_in_a_tier_already_is_left_out(cluster: Any, policy: Any, tier: Any) -> None:
    cluster.kubernetes.create(BROKER_BANDWIDTH_POLICIES, policy)
    tier["spec"]["members"][0]["user"] = "checkout"
    cluster.kubernetes.create(BUSINESS_TIERS, tier)
    found = tiers(cluster.run("import").out)
    assert "checkout" not in members(found)
    assert {one["spec"]["policyRef"]["name"] for one in found.values()} == {"orders"}


def test_a_plan_with_the_printed_tiers_changes_no_quota(
    cluster: Any, policy: Any, tmp_path: Path
) -> None:
    file = tmp_path / "tiers.yaml"
    file.write_text(cluster.run("import", "streaming/orders", *ZOOKEEPER).out)
    policies = tmp_path / "policy.yaml"
    policies.write_text(yaml.safe_dump(policy))
    answer = cluster.run("plan", "-f", str(policies), "-f", str(file), "-o", "json")
    changes = yaml.safe_load(answer.out)["changes"]
    assert [one for one in changes if float(one["inForce"]) != float(one["next"])] == []


def test_an_empty_cluster_prints_no_tier(world: Any) -> None:
    answer = world.run("import", *ZOOKEEPER)
    assert (answer.code, answer.out) == (0, "")


def manifests_of(members: list[Proposal], *, throttled_percent: int) -> list[dict[str, Any]]:
    tiers = tiers_of(members, "n/orders", throttled_percent=throttled_percent, prefix="imported")
    return [manifest for manifest, _ in tiers]


def test_a_tier_has_members_of_like_rates_and_500_at_most() -> None:
    stored = [StoredQuota(Entity(f"u{number:04}"), {FETCH: "2000000"}) for number in range(501)]
    stored += [StoredQuota(Entity("small"), {FETCH: "64000"})]
    found = propose(stored, [])
    manifests = manifests_of(found.members, throttled_percent=20)
    sizes = {one["metadata"]["name"]: len(one["spec"]["members"]) for one in manifests}
    assert sizes == {"imported-l2-10k": 1, "imported-l2-1m": 500, "imported-l2-1m-2": 1}
    (small,) = [one for one in manifests if one["metadata"]["name"] == "imported-l2-10k"]
    assert small["spec"]["throttledRates"] == {"perBroker": {"fetch": "12k"}}


# --- from KafkaUsers ------------------------------------------------------------------------------


@pytest.fixture
def beside_strimzi(world: Any, policy: Any) -> Any:
    """A policy of Strimzi's cluster kafka/orders, and KafkaUsers."""
    policy["spec"]["kafka"] = {"bootstrapServers": "orders-kafka-bootstrap.kafka.svc:9092"}
    world.kubernetes.create(BROKER_BANDWIDTH_POLICIES, policy)
    rates = {"producerByteRate": 20_000_000, "consumerByteRate": 50_000_000}
    for user in (
        kafka_user("checkout", quotas=rates),
        kafka_user("search", login="tls", quotas={**rates, "requestPercentage": 55}),
        kafka_user("nightly-etl", quotas={"consumerByteRate": 5_242_880}),
        kafka_user("admin-topics", quotas={"controllerMutationRate": 10}),
        kafka_user("unbounded"),
        kafka_user("emptied", quotas={}),
        kafka_user("strange", quotas=rates, cluster="other"),
    ):
        world.kubernetes.create(KAFKA_USERS[0], user)
    return world


def test_what_kafka_users_declare_becomes_members_by_their_names_in_kafka(
    beside_strimzi: Any, golden: Callable[..., None]
) -> None:
    answer = beside_strimzi.run("import", "--strimzi", "--level-of", "checkout=L0")
    assert answer.code == 0, answer.err
    found = tiers(answer.out)
    users = {one["name"]: one["user"] for one in members(found).values()}
    assert users == {
        "checkout": "checkout",
        "CN-search": "CN=search",
        "nightly-etl": "nightly-etl",
    }
    assert members(found)["CN-search"]["contract"] == {
        "perBroker": {"fetch": "50M", "produce": "20M"},
        "requestPercentage": 55,
    }
    assert {one["spec"]["level"] for one in found.values()} == {"L0", "L2", "L3"}
    assert "user=admin-topics has no byte rate" in answer.err
    golden(answer.err, "notes")


def test_a_strimzi_cluster_by_name_needs_no_policy(beside_strimzi: Any) -> None:
    answer = beside_strimzi.run("import", "streaming/slow", "--strimzi-cluster", "kafka/other")
    found = tiers(answer.out)
    assert members(found).keys() == {"strange"}
    assert {one["spec"]["policyRef"]["name"] for one in found.values()} == {"slow"}
    by_namespace = beside_strimzi.run("import", "--strimzi-cluster", "other", "-n", "kafka")
    assert members(tiers(by_namespace.out)).keys() == {"strange"}


def test_kafka_users_in_a_tier_already_are_left_out(beside_strimzi: Any, tier: Any) -> None:
    tier["spec"]["members"][0]["user"] = "CN=search"
    beside_strimzi.kubernetes.create(BUSINESS_TIERS, tier)
    found = members(tiers(beside_strimzi.run("import", "--strimzi").out))
    assert found.keys() == {"checkout", "nightly-etl"}


def test_the_policy_may_come_from_files(beside_strimzi: Any, policy: Any) -> None:
    file = beside_strimzi.write_files(policy)
    answer = beside_strimzi.run("import", "--strimzi", "-f", file)
    assert "checkout" in members(tiers(answer.out))


def test_a_policy_of_no_strimzi_cluster_says_what_to_give(world: Any, policy: Any) -> None:
    world.kubernetes.create(BROKER_BANDWIDTH_POLICIES, policy)
    answer = world.run("import", "--strimzi")
    assert answer.code == 1
    assert "Set spec.kafka.strimzi, or give --strimzi-cluster NAMESPACE/NAME" in answer.err


def test_a_cluster_without_kafka_users_is_an_error_that_names_the_label(world: Any) -> None:
    answer = world.run("import", "--strimzi-cluster", "kafka/orders")
    assert (answer.code, answer.out) == (1, "")
    assert "none in namespace kafka has the label strimzi.io/cluster=orders" in answer.err


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
RATES = st.integers(1, 10**15)


@given(
    st.dictionaries(
        st.tuples(NAMES, st.none() | NAMES), st.tuples(RATES, st.none() | RATES), max_size=12
    )
)
def test_whatever_the_cluster_has_what_is_printed_can_be_applied(
    quotas: dict[tuple[str, str | None], tuple[int, int | None]],
) -> None:
    stored = [
        StoredQuota(
            Entity(user, client_id),
            {FETCH: str(fetch)} | ({} if produce is None else {PRODUCE: f"{produce}.0"}),
        )
        for (user, client_id), (fetch, produce) in quotas.items()
    ]
    found = propose(stored, [("a*", Level.L0)])
    assert len(found.members) + len(found.notes) == len(stored)
    for one in manifests_of(found.members, throttled_percent=100):
        parse_object(one, strict=True)
        assert len({member["name"] for member in one["spec"]["members"]}) == len(
            one["spec"]["members"]
        )


@given(st.integers(1024, 10**15))
def test_a_rate_is_written_exactly(rate: int) -> None:
    assert parse_byte_rate(quantity(rate)) == rate


@pytest.mark.parametrize(
    ("entity", "may_be_declared"),
    [
        (Entity(Default.DEFAULT), True),
        (Entity(client_id=Default.DEFAULT), True),
        (Entity(Default.DEFAULT, Default.DEFAULT), True),
        (Entity(Default.DEFAULT, "etl"), False),
        (Entity("bob", Default.DEFAULT), False),
    ],
)
def test_only_a_default_that_the_policy_can_have_is_said_to_be_declared_there(
    entity: Entity, may_be_declared: bool, golden: Callable[[str], None]
) -> None:
    found = propose([StoredQuota(entity, {FETCH: "9000000"})], ())
    assert found.members == []
    (note,) = found.notes
    assert ("Declare it in spec.defaults" in note) is may_be_declared
    golden(note)
