"""Documents become resources, or one sentence that names the object, the field and what must hold."""

from collections.abc import Callable

import pytest

from tests.goldens.golden import numbers
from tests.unit.resources.documents import ABSENT, member, policy, tier
from tidegate.errors import InvalidResource
from tidegate.resources import BrokerBandwidthPolicy, BusinessTier, parse_object, parse_policy, parse_tier


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


def test_a_misspelt_top_level_field_in_a_file_is_named() -> None:
    assert wrong_fields({**tier(), "specs": {}}) == ["specs"]


def test_python_names_of_fields_are_not_accepted_from_outside() -> None:
    assert "spec.policyRef" in wrong_fields(tier({"policyRef": ABSENT, "policy_ref": {"name": "orders"}}))


def test_status_is_never_read() -> None:
    assert parse_object({**tier(), "status": {"members": "nonsense"}}, strict=True) == parse_object(tier(), strict=True)


def test_null_means_left_out_as_on_the_api_server() -> None:
    assert parse_object(tier({"members.0.user": None}), strict=True) == parse_object(tier({"members.0.user": ABSENT}), strict=True)


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


@pytest.mark.parametrize("change", [{"kind": "Deployment"}, {"apiVersion": "tidegate.io/v9"}, {"kind": None}])
def test_a_foreign_document_is_refused_by_what_it_is(change: dict[str, object]) -> None:
    document = {**tier(), **change}
    refusal = refused(document)
    assert refusal.problems == ()
    assert f"{document['apiVersion']}, kind {document['kind']}" in refusal.message


def test_a_foreign_document_reads_like_this(golden: Callable[[str], None]) -> None:
    golden(refused({**tier(), "kind": "Deployment"}).message)


def test_an_object_from_a_file_lands_in_the_default_namespace() -> None:
    document = tier()
    del document["metadata"]["namespace"]
    assert parse_tier(document, strict=True).policy_key == "default/orders"


def test_a_minimal_policy_needs_only_what_has_no_default() -> None:
    kafka = {"bootstrapServers": "[::1]:9092", "quotaStore": "ZooKeeper", "zookeeper": {"connect": "[::1]:2181"}}
    document = {**policy(), "spec": {"mode": "Observe", "kafka": kafka}}
    assert parse_policy(document, strict=True).spec.metrics is None


@pytest.mark.parametrize("user", ["ANONYMOUS", "CN=kafka,OU=x,O=y", "alice w*+~", "用户", " spaced ", "default", "x" * 256])
def test_every_legal_kafka_name_is_accepted(user: str) -> None:
    assert parse_tier(tier({"members.0.user": user}), strict=True).spec.members[0].user == user


@pytest.mark.parametrize("topic", ["orders", "__consumer_offsets", "a.b-c_d", "clicks.*", "*", "t" * 249])
def test_every_legal_topic_or_prefix_is_accepted(topic: str) -> None:
    assert parse_tier(tier({"members.0.topics": [topic]}), strict=True).spec.members[0].topics == (topic,)


def test_a_throttled_rate_may_equal_the_contract_however_both_are_written() -> None:
    throttled = parse_tier(tier({"throttledRates.perPartition.fetch": "10Mi"}), strict=True).spec.throttled_rates
    assert throttled is not None
    assert throttled.per_partition is not None
    assert throttled.per_partition.fetch == 10 * 1024**2


def test_a_member_without_contract_or_in_another_form_never_contradicts_the_throttled_rate() -> None:
    members = [member("free", topics=["a"]), member("other", contract={"perBroker": {"fetch": "1024"}})]
    assert [read.name for read in parse_tier(tier({"members": members}), strict=True).spec.members] == ["free", "other"]
