"""Documents become resources, or one sentence that names the object, the field and what must
hold.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.goldens.golden import numbers
from tests.unit.resources.bad_input import BAD_INPUT, BadInput
from tests.unit.resources.documents import ABSENT, budget, member, override, policy, queue, tier
from tidegate.errors import InvalidResource
from tidegate.resources import (
    BrokerBandwidthPolicy,
    BusinessTier,
    parse_object,
    parse_policy,
    parse_queue,
    parse_tier,
)
from tidegate.resources.rates import CEILING_BYTES_PER_SECOND
from tidegate.resources.status import MemberStatus, QuotaInForce, TierStatus, TotalRates


def refused(document: dict[str, object]) -> InvalidResource:
    with pytest.raises(InvalidResource) as refusal:
        parse_object(document, strict=True)
    return refusal.value


def wrong_fields(document: dict[str, object]) -> list[str]:
    return [field for field, _ in refused(document).problems]


def test_each_kind_becomes_its_own_resource() -> None:
    assert isinstance(parse_object(policy(), strict=True), BrokerBandwidthPolicy)
    assert isinstance(parse_object(tier(), strict=True), BusinessTier)


def test_rates_become_bytes_per_second() -> None:
    contract = parse_tier(tier(), strict=True).spec.members[0].contract
    assert contract is not None
    assert contract.per_partition is not None
    assert contract.per_partition.fetch == 10_485_760


def test_an_older_operator_survives_fields_of_a_newer_crd() -> None:
    document = tier({"members.0.burst": {"seconds": 5}, "color": "green"})
    assert parse_tier(document, strict=False).spec == parse_tier(tier(), strict=False).spec


def test_a_misspelt_field_in_a_file_is_named() -> None:
    assert wrong_fields(tier({"members.0.burst": 5})) == ["spec.members[0].burst"]


@pytest.mark.parametrize(
    ("changes", "meant"),
    [
        ({"throttledRate": {"perPartition": {"fetch": "1M"}}}, "throttledRates"),
        ({"members.0.usr": "bob"}, "user"),
        ({"members.0.contract.perpartition": {"fetch": "1M"}}, "perPartition"),
        ({"policyRef.nmae": "orders"}, "name"),
        ({"members.0.burst": 5}, None),
    ],
)
def test_a_field_that_was_probably_meant_is_named(
    changes: dict[str, object], meant: str | None
) -> None:
    with pytest.raises(InvalidResource) as raised:
        parse_tier(tier(changes), strict=True)
    assert ("did you mean" in raised.value.message) == (meant is not None)
    assert meant is None or f"(did you mean {meant}?)" in raised.value.message


def test_a_rate_in_another_unit_is_named_with_how_to_write_it() -> None:
    with pytest.raises(InvalidResource) as raised:
        parse_tier(tier({"members.0.contract.perPartition.fetch": "80MB"}), strict=True)
    assert "fetch: 80MB: write 80M (bytes per second)." in raised.value.message


def test_what_was_found_is_shown_as_it_was_typed() -> None:
    with pytest.raises(InvalidResource) as raised:
        parse_tier(tier({"level": "数据"}), strict=True)
    assert '"数据"' in raised.value.message


def test_a_misspelt_top_level_field_in_a_file_is_named() -> None:
    assert wrong_fields({**tier(), "specs": {}}) == ["specs"]


def test_python_names_of_fields_are_not_accepted_from_outside() -> None:
    assert "spec.policyRef" in wrong_fields(
        tier({"policyRef": ABSENT, "policy_ref": {"name": "orders"}})
    )


def test_status_is_never_read() -> None:
    assert parse_object({**tier(), "status": {"members": "nonsense"}}, strict=True) == parse_object(
        tier(), strict=True
    )


def test_null_means_left_out_as_on_the_api_server() -> None:
    assert parse_object(tier({"members.0.user": None}), strict=True) == parse_object(
        tier({"members.0.user": ABSENT}), strict=True
    )


def test_null_for_what_is_required_is_refused() -> None:
    assert "spec.policyRef" in wrong_fields(tier({"policyRef": None}))


def test_the_message_names_the_object(golden: Callable[[str], None]) -> None:
    message = refused(tier({"level": "L9"})).message
    assert "BusinessTier streaming/reporting" in message
    golden(message)


def test_the_value_that_was_found_is_shown_but_not_at_any_length() -> None:
    message = refused(tier({"members.0.user": "x" * 10_000})).message
    assert '"xxx' in message
    assert len(message) < 400


def test_many_problems_are_counted_and_not_all_listed(golden: Callable[[str], None]) -> None:
    refusal = refused(tier({"members": [member(f"m{number}", user="") for number in range(40)]}))
    assert len(refusal.problems) == 40
    assert refusal.message.count("spec.members[") == 5
    assert numbers(refusal.message) >= {35}
    golden(refusal.message)


@pytest.mark.parametrize("spec", [None, [], "spec"])
def test_a_missing_or_misshapen_spec_is_named(spec: object) -> None:
    assert wrong_fields({**tier(), "spec": spec}) == ["spec"]


@pytest.mark.parametrize("metadata", [None, {}, {"name": ""}, {"name": 7}, "reporting"])
def test_an_object_without_a_usable_name_is_refused(metadata: object) -> None:
    assert "metadata" in refused({**tier(), "metadata": metadata}).message


@pytest.mark.parametrize(
    "change", [{"kind": "Deployment"}, {"apiVersion": "tidegate.io/v9"}, {"kind": None}]
)
def test_a_foreign_document_is_refused_by_what_it_is(change: dict[str, object]) -> None:
    document = {**tier(), **change}
    refusal = refused(document)
    assert refusal.problems == ()
    assert f"{document['apiVersion']}, kind {document['kind']}" in refusal.message


def test_a_foreign_document_reads_like_this(golden: Callable[[str], None]) -> None:
    golden(refused({**tier(), "kind": "Deployment"}).message)


def test_an_object_from_a_file_lands_in_the_default_namespace() -> None:
    document = tier({"policyRef.namespace": ABSENT})
    del document["metadata"]["namespace"]
    assert parse_tier(document, strict=True).policy_key == "default/orders"


def test_a_minimal_policy_needs_only_what_has_no_default() -> None:
    kafka = {
        "bootstrapServers": "[::1]:9092",
        "quotaStore": "ZooKeeper",
        "zookeeper": {"connect": "[::1]:2181"},
    }
    document = {**policy(), "spec": {"mode": "Observe", "kafka": kafka}}
    assert parse_policy(document, strict=True).spec.metrics is None


@pytest.mark.parametrize(
    "user",
    ["ANONYMOUS", "CN=kafka,OU=x,O=y", "alice w*+~", "用户", " spaced ", "default", "x" * 256],
)
def test_every_legal_kafka_name_is_accepted(user: str) -> None:
    assert parse_tier(tier({"members.0.user": user}), strict=True).spec.members[0].user == user


@pytest.mark.parametrize(
    "topic", ["orders", "__consumer_offsets", "a.b-c_d", "clicks.*", "*", "t" * 249]
)
def test_every_legal_topic_or_prefix_is_accepted(topic: str) -> None:
    assert parse_tier(tier({"members.0.topics": [topic]}), strict=True).spec.members[0].topics == (
        topic,
    )


def test_a_throttled_rate_may_equal_the_contract_however_both_are_written() -> None:
    throttled = parse_tier(
        tier({"throttledRates.perPartition.fetch": "10Mi"}), strict=True
    ).spec.throttled_rates
    assert throttled is not None
    assert throttled.per_partition is not None
    assert throttled.per_partition.fetch == 10 * 1024**2


def test_a_member_without_contract_or_in_another_form_never_contradicts_the_throttled_rate() -> (
    None
):
    members = [
        member("free", topics=["a"]),
        member("other", contract={"perBroker": {"fetch": "1024"}}),
    ]
    assert [
        read.name for read in parse_tier(tier({"members": members}), strict=True).spec.members
    ] == ["free", "other"]


# --- bad input ------------------------------------------------------------------------------------
# The bad-input table against the models: what the API server would refuse is refused in a file too,
# in the same words.


@pytest.mark.parametrize("row", BAD_INPUT, ids=lambda row: row.name)
def test_bad_input_is_refused_and_the_message_names_the_field_and_what_must_hold(
    row: BadInput,
) -> None:
    refusal = row.refusal()
    assert row.field in [field for field, _ in refusal.problems]
    assert row.field in refusal.message
    # the message may have a hint instead, of what was probably meant
    assert any(row.must() in must for _, must in refusal.problems)


def test_what_must_hold_reads_like_this(golden: Callable[[str], None]) -> None:
    """Every rule once, with the rows that break it."""
    rows: dict[str, list[str]] = {}
    for row in BAD_INPUT:
        rows.setdefault(row.must(), []).append(row.name)
    golden("\n".join(f"{must}\n    {'; '.join(names)}" for must, names in sorted(rows.items())))


@pytest.mark.parametrize(
    "document",
    [policy(), tier(), override(), queue(), budget()],
    ids=["policy", "tier", "override", "queue", "budget"],
)
def test_the_sound_objects_that_the_table_bends_are_accepted(document: dict[str, object]) -> None:
    assert parse_object(document, strict=True).metadata.namespace == "streaming"


def test_the_default_prefix_has_the_namespace_and_keeps_its_own_topics_from_being_targets() -> None:
    document = queue({"topicPrefix": ABSENT})
    assert parse_queue(document, strict=True).prefix == "streaming.unpaid"
    target = {"allowed": ["*"], "default": "streaming.unpaid.600.3"}
    assert wrong_fields(queue({"topicPrefix": ABSENT, "target": target})) == ["spec.target"]


# --- examples -------------------------------------------------------------------------------------
# The examples are what a new user applies first: small, sound, and one working whole.


EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
DOCUMENTS = [
    document
    for path in EXAMPLES
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    if document
]
OURS = [document for document in DOCUMENTS if document["kind"] != "Namespace"]


@pytest.mark.parametrize("document", OURS, ids=lambda document: document["metadata"]["name"])
def test_every_example_reads_strictly(document: Mapping[str, Any]) -> None:
    assert parse_object(document, strict=True).metadata.name == document["metadata"]["name"]


def test_every_tier_belongs_to_the_policy_and_all_live_in_the_namespace_that_comes_with_them() -> (
    None
):
    objects = [parse_object(document, strict=True) for document in OURS]
    policies = {
        policy.metadata.key for policy in objects if isinstance(policy, BrokerBandwidthPolicy)
    }
    assert policies == {"streaming/demo"}
    assert {tier.policy_key for tier in objects if isinstance(tier, BusinessTier)} == policies
    assert DOCUMENTS[0]["metadata"]["name"] == "streaming"


def test_what_is_applied_first_only_looks_and_has_what_throttling_needs() -> None:
    (policy,) = (
        one
        for one in (parse_object(document, strict=True) for document in OURS)
        if isinstance(one, BrokerBandwidthPolicy)
    )
    assert policy.spec.mode == "Observe"
    assert policy.spec.kafka.zookeeper is None
    assert policy.spec.metrics is not None
    assert policy.spec.brokers is not None
    assert policy.spec.brokers.egress is not None


def test_no_example_changes_its_meaning_as_time_passes() -> None:
    """An end in the future would be in the past one day, so the override of the example is over."""
    specs = [document["spec"] for document in OURS if document["kind"] == "QuotaOverride"]
    ends = [spec.get("expiresAt") or spec["recurrence"]["until"] for spec in specs]
    assert ends == ["2000-01-01T00:00:00Z"] * 2


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_short_and_commented(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("#")
    assert len(lines) < 60


# --- statuses -------------------------------------------------------------------------------------
# A status can always be written: what the arithmetic yields fits the schema, and what is unset is
# left out.


def test_a_total_beyond_what_json_can_say_exactly_is_shown_as_the_ceiling() -> None:
    assert TotalRates(fetch=3 * CEILING_BYTES_PER_SECOND).fetch == CEILING_BYTES_PER_SECOND


def test_a_status_is_written_in_camel_case_without_what_is_unset() -> None:
    member = MemberStatus(
        name="nightly", state="Contract", leader_skew="1.33", quota=QuotaInForce(fetch=20_971_520)
    )
    assert TierStatus(observed_generation=3, members=(member,)).as_document() == {
        "observedGeneration": 3,
        "members": [
            {
                "name": "nightly",
                "state": "Contract",
                "leaderSkew": "1.33",
                "quota": {"fetch": 20_971_520},
            }
        ],
    }
