"""A policy's defaults are the documented ones, and a broker's limits those of its override."""

import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from tidegate.resources import KINDS
from tidegate.resources.policy import (
    BrokerLimits,
    KafkaCluster,
    MetricsSource,
    NicLimits,
    PolicySpec,
    Prometheus,
    ZooKeeperConnection,
)
from tidegate.resources.rollup import Rollup
from tidegate.resources.schema import SchemaModel
from tidegate.resources.tiers import TierMember

# --- defaults -------------------------------------------------------------------------------------
# What "Unset means" promises in a description is what the model answers for a field that was left
# out.


_KAFKA = KafkaCluster(
    bootstrap_servers="kafka-1:9092",
    quota_store="ZooKeeper",
    zookeeper=ZooKeeperConnection(connect="zk-1:2181"),
)


def models_in(annotation: Any) -> Iterator[type[SchemaModel]]:
    """Every model that a type names, and those below it."""
    if isinstance(annotation, type) and issubclass(annotation, SchemaModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from models_in(field.annotation)
    for argument in get_args(annotation):
        yield from models_in(argument)


SPECS = sorted(
    {model for kind in KINDS for model in models_in(kind.spec)}, key=lambda model: model.__name__
)
WITH_DEFAULTS = [
    (model, name)
    for model in SPECS
    for name, field in model.model_fields.items()
    if not field.is_required() and (field.default is not None or field.default_factory)
]


@pytest.mark.parametrize(
    ("model", "name"),
    WITH_DEFAULTS,
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_the_documented_default_is_the_one_acted_on(model: type[SchemaModel], name: str) -> None:
    field = model.model_fields[name]
    if field.default_factory:
        assert "Unset means three scrape intervals." in (field.description or "")
    elif isinstance(field.default, SchemaModel):
        assert field.default == type(field.default)()
        assert "Unset means the defaults of its fields." in (field.description or "")
    else:
        match = re.search(r"Unset means ([0-9]+\w*|[A-Za-z]\w+)\b", field.description or "")
        assert match is not None, field.description
        assert match[1].lower() == str(field.default).lower()


def test_the_descriptions_promise_every_default_of_the_issue() -> None:
    assert {
        (model.__name__, name): str(model.model_fields[name].default)
        for model, name in WITH_DEFAULTS
    }.items() >= {
        ("Escalation", "speed"): "Ladder",
        ("Escalation", "max_mute_seconds"): "12",
        ("Escalation", "cut_to_percent"): "97",
        ("Escalation", "raise_to_percent"): "95",
        ("Escalation", "hold_seconds"): "45",
        ("LeaderScaling", "method"): "Max",
        ("LeaderScaling", "minimum_change_percent"): "10",
        ("WriteBudget", "changes"): "300",
        ("WriteBudget", "period_seconds"): "900",
        ("Removal", "max_percent"): "50",
        ("PolicySpec", "deletion_policy"): "Restore",
        ("Rollup", "interval_seconds"): "3600",
        ("RollupExecutors", "instances"): "0",
        ("RetentionDays", "hours"): "400",
        ("Recommend", "headroom_percent"): "30",
        ("Recommend", "apply"): "Never",
    }.items()


def test_a_reading_is_stale_after_three_scrapes_where_unset() -> None:
    metrics = MetricsSource(
        prometheus=Prometheus(url="http://prometheus:9090"), scrape_interval_seconds=5
    )
    assert metrics.stale_after_seconds == 15


def test_a_block_that_is_left_out_has_the_defaults_of_its_fields() -> None:
    policy = PolicySpec(mode="Observe", kafka=_KAFKA)
    assert (
        policy.escalation.hold_seconds,
        policy.leader_scaling.method,
        policy.kafka.quota_window.samples,
    ) == (45, "Max", 11)


# --- limits of brokers ----------------------------------------------------------------------------
# A broker's limits are those of its override, each by itself, and else those of all brokers.


LIMITS = BrokerLimits.model_validate_json(
    """{
    "egress": {"limit": "2k", "capacity": "9k"},
    "overrides": [
        {"ids": [7, 8], "egress": {"limit": "3k"}},
        {"ids": [9], "egress": {"capacity": "5k"}, "ingress": {"limit": "4k", "capacity": "6k"}}
    ]}"""
)
Rates = tuple[int | None, int | None]


@pytest.mark.parametrize(
    ("broker", "egress", "ingress"),
    [
        pytest.param(1, (2000, 9000), (None, None), id="a broker without override"),
        pytest.param(
            8, (3000, 9000), (None, None), id="an override of one limit leaves the others"
        ),
        pytest.param(
            9, (2000, 5000), (4000, 6000), id="an override of the others leaves the first"
        ),
    ],
)
def test_an_override_replaces_only_what_it_names(
    broker: int, egress: Rates, ingress: Rates
) -> None:
    assert (rates(LIMITS.egress_of(broker)), rates(LIMITS.ingress_of(broker))) == (egress, ingress)


def test_an_override_of_a_combined_limit_keeps_the_capacity_of_all() -> None:
    limits = BrokerLimits.model_validate_json(
        """{
        "combined": {"limit": "2k", "capacity": "9k"},
        "overrides": [{"ids": [7], "combined": {"limit": "3k"}}]}"""
    )
    assert [rates(limits.combined_of(broker)) for broker in (1, 7)] == [(2000, 9000), (3000, 9000)]
    assert limits.egress_of(7) is None


def rates(limits: NicLimits | None) -> Rates:
    return (None, None) if limits is None else (limits.limit, limits.capacity)


# --- keys of maps, which the API server cannot check -----------------------------------------------


def rollup_of(**changes: object) -> Rollup:
    return Rollup.model_validate({"storage": {"url": "s3://usage/shop"}, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"pod": {"labels": {"tidegate.io/policy": "another"}}},
        {"pod": {"labels": {"app.kubernetes.io/component": "broker"}}},
        {"pod": {"labels": {"spark-role": "driver"}}},
        {"pod": {"annotations": {"batch.kubernetes.io/job-name": "x"}}},
        {"pod": {"nodeSelector": {"two words": "x"}}},
        {"sparkConf": {"spark.kubernetes.container.image": "evil:1"}},
        {"sparkConf": {"spark.kubernetes.executor.volumes.hostPath.x.mount.path": "/"}},
        {"sparkConf": {"spark.driver.extraJavaOptions": "-agentlib:jdwp"}},
        {"sparkConf": {"spark.executor.extraJavaOptions": "-agentlib:jdwp"}},
        {"sparkConf": {"spark.jars.packages": "a:b:1"}},
        {"sparkConf": {"spark.authenticate": "false"}},
        {"sparkConf": {"spark.network.crypto.enabled": "false"}},
        {"sparkConf": {"spark.sql.extensions": "a.B"}},
        {"sparkConf": {"spark.sql.catalog.x": "a.B"}},
        {"sparkConf": {"spark.sql.session.timeZone": "Asia/Tokyo"}},
        {"sparkConf": {"spark.shuffle.manager": "a.B"}},
        {"sparkConf": {"spark.io.encryption.keySizeBits": "8"}},
        {"sparkConf": {"spark.python.worker.module": "evil"}},
    ],
    ids=str,
)
def test_a_job_keeps_its_own_labels_image_logins_and_code(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        rollup_of(**changes)


def test_settings_that_tune_a_run_are_taken() -> None:
    conf = {
        "spark.sql.shuffle.partitions": "64",
        "spark.memory.fraction": "0.7",
        "spark.task.maxFailures": "8",
        "spark.default.parallelism": "32",
    }
    assert rollup_of(sparkConf=conf).spark_conf == conf


@pytest.mark.parametrize(
    ("labels", "is_taken"),
    [
        ({"team": "shop", "costCenter": "4711"}, True),
        ({"example.com/owner": "Müller & Söhne, Köln"}, True),
        ({}, False),
        ({"": "x"}, False),
        ({"4711": "x"}, False),
        ({"team": ""}, False),
        ({"team": 'a"b'}, False),
        ({"team": "a\nb"}, False),
        ({"team": "x" * 64}, False),
        ({f"label{number}": "x" for number in range(9)}, False),
    ],
    ids=str,
)
def test_labels_have_names_and_values_that_a_bill_can_show(
    labels: dict[str, str], is_taken: bool
) -> None:
    member = {"name": "a", "user": "a", "labels": labels}
    if is_taken:
        assert TierMember.model_validate(member).labels == labels
    else:
        with pytest.raises(ValidationError):
            TierMember.model_validate(member)
