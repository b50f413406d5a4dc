"""What "Unset means" promises in a description is what the model answers for a field that was left out."""

import re
from collections.abc import Iterator

import pytest

from tidegate.resources.policy import (
    Escalation,
    KafkaCluster,
    LeaderScaling,
    MetricsSource,
    PolicySpec,
    Prometheus,
    QuotaWindow,
    Removal,
    WriteBudget,
    ZooKeeperConnection,
)
from tidegate.resources.rollup import Recommend, RetentionDays, Rollup, RollupDriver, RollupExecutors, RollupStorage
from tidegate.resources.schema import SchemaModel

_METRICS = MetricsSource(prometheus=Prometheus(url="http://prometheus:9090"))
_KAFKA = KafkaCluster(bootstrap_servers="kafka-1:9092", quota_store="ZooKeeper", zookeeper=ZooKeeperConnection(connect="zk-1:2181"))
_POLICY = PolicySpec(mode="Observe", kafka=_KAFKA)
_ROLLUP = Rollup(storage=RollupStorage(url="s3://usage"))
_PARTS_OF_ROLLUP = (_ROLLUP, RollupDriver(), RollupExecutors(), RetentionDays(), Recommend())
_UNSET = (QuotaWindow(), _METRICS, LeaderScaling(), Escalation(), WriteBudget(), Removal(), _POLICY, *_PARTS_OF_ROLLUP)


def promised() -> Iterator[tuple[SchemaModel, str, str]]:
    for model in _UNSET:
        for name, field in type(model).model_fields.items():
            match = re.search(r"Unset means ([0-9]+|true|false|[A-Z][A-Za-z]+)\b", field.description or "")
            if match:
                yield model, name, match[1]


@pytest.mark.parametrize(
    ("model", "field", "text"), list(promised()), ids=lambda value: value if isinstance(value, str) else type(value).__name__
)
def test_the_documented_default_is_the_one_acted_on(model: SchemaModel, field: str, text: str) -> None:
    answered = getattr(model, f"{field}_or_default")
    assert text == (str(answered).lower() if isinstance(answered, bool) else str(answered))


def test_the_descriptions_promise_every_default_of_the_issue() -> None:
    assert {(type(model).__name__, field): text for model, field, text in promised()}.items() >= {
        ("Escalation", "speed"): "Ladder",
        ("Escalation", "max_mute_seconds"): "12",
        ("Escalation", "aim_percent"): "97",
        ("Escalation", "raise_to_percent"): "95",
        ("Escalation", "hold_seconds"): "45",
        ("LeaderScaling", "method"): "Max",
        ("LeaderScaling", "minimum_change_percent"): "10",
        ("WriteBudget", "notifications_per_quarter_hour"): "300",
        ("Removal", "max_percent_per_pass"): "50",
        ("PolicySpec", "deletion"): "Restore",
        ("Rollup", "every_seconds"): "3600",
        ("RollupExecutors", "instances"): "0",
        ("RetentionDays", "hours"): "400",
        ("Recommend", "headroom_percent"): "30",
        ("Recommend", "apply"): "Never",
    }.items()


def test_a_reading_is_stale_after_three_scrapes_where_unset() -> None:
    metrics = MetricsSource(prometheus=Prometheus(url="http://prometheus:9090"), scrape_interval_seconds=5)
    assert metrics.stale_after_seconds_or_default == 15


def test_unset_blocks_answer_with_all_their_defaults() -> None:
    assert _POLICY.escalation_or_default == Escalation()
    assert _POLICY.leader_scaling_or_default == LeaderScaling()
    assert _POLICY.write_budget_or_default == WriteBudget()
    assert _POLICY.removal_or_default == Removal()
    assert _POLICY.kafka.quota_window_or_default == QuotaWindow()
    assert (_ROLLUP.driver_or_default, _ROLLUP.executors_or_default) == (RollupDriver(), RollupExecutors())
    assert (_ROLLUP.retention_days_or_default, _ROLLUP.recommend_or_default) == (RetentionDays(), Recommend())
