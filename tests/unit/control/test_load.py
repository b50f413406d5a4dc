"""Reports of the brokers' load: in status without numbers that change, in Events with them, once for each change."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from controller_logic.model import ClientRate, Direction, Entity, NicSpan, QuotaKey, ReadingProblem, Readings
from controller_logic.reasons import Reason
from tests.goldens.golden import numbers
from tests.unit.control.stage import Stage
from tidegate.kube.api import BUSINESS_TIERS, ObjectRef

METRICS = {"prometheus": {"url": "http://prometheus:9090"}}
LIMITS = {"egress": {"limit": "50M"}, "overrides": [{"ids": [3], "egress": {"limit": "80M"}, "ingress": {"limit": "20M"}}]}
SCRAPE = 15.0
MEGABYTE = 1_000_000.0


@pytest.fixture
def policy(stage: Stage) -> ObjectRef:
    """A policy that watches its brokers' limits, and one tier."""
    policy = stage.policy(metrics=METRICS, brokers=LIMITS)
    stage.tier()
    return policy


def read(stage: Stage, *, broker_1: float, age_seconds: float = 1.0, problems: tuple[ReadingProblem, ...] = ()) -> None:
    """Three samples of every NIC: broker 1 sends so many MB/s, every other broker and direction 1 MB/s."""
    nic = {
        (broker, way): tuple(
            NicSpan(stage.now - age_seconds - SCRAPE * back, SCRAPE, (broker_1 if (broker, way) == (1, Direction.EGRESS) else 1) * MEGABYTE)
            for back in (2, 1, 0)
        )
        for broker in (1, 2, 3)
        for way in Direction
    }
    stage.readings = Readings(stage.now, SCRAPE, nic, problems=problems)


def brokers(stage: Stage, policy: ObjectRef) -> list[dict[str, Any]]:
    return list(stage.kubernetes.get(policy)["status"]["brokers"])


def pressures(stage: Stage, policy: ObjectRef) -> list[str]:
    return [str(broker["pressure"]) for broker in brokers(stage, policy)]


def test_before_the_first_reading_the_load_is_unknown(stage: Stage, policy: ObjectRef) -> None:
    stage.run()
    assert pressures(stage, policy) == ["Unknown"] * 3
    assert stage.condition(policy, "MetricsFresh") == ("Unknown", "Starting")
    assert "over" not in stage.kubernetes.get(policy)["status"]["summary"]


def test_a_policy_without_metrics_has_a_condition_for_it(stage: Stage) -> None:
    policy = stage.policy(brokers=LIMITS)
    read(stage, broker_1=99)
    stage.run()
    assert stage.condition(policy, "MetricsFresh") == ("Unknown", "MetricsNotWatched")
    assert pressures(stage, policy) == ["Unknown"] * 3


def test_a_broker_over_its_limit_is_named_with_its_numbers_once_and_nothing_is_written_for_it(
    stage: Stage, policy: ObjectRef, golden: Callable[[str], None]
) -> None:
    read(stage, broker_1=40)
    stage.run()
    assert pressures(stage, policy) == ["Within"] * 3
    quota, transactions = stage.produce(), stage.store.transactions
    stage.now += 15
    read(stage, broker_1=58.1)
    stage.run()
    assert pressures(stage, policy) == ["Over", "Within", "Within"]
    assert stage.kubernetes.get(policy)["status"]["summary"]["over"] == 1
    (event,) = [event for event in stage.kubernetes.events if event.reason == Reason.BROKER_OVER_LIMIT.value]
    assert (event.type, numbers(event.note)) == ("Warning", {1, 58.1, 50.0})
    assert (stage.produce(), stage.store.transactions) == (quota, transactions)
    count = len(stage.event_reasons())
    stage.now += 15
    read(stage, broker_1=61)
    stage.run()
    assert len(stage.event_reasons()) == count
    golden(event.note)


def test_a_broker_within_its_limit_again_is_reported_with_the_time(stage: Stage, policy: ObjectRef) -> None:
    read(stage, broker_1=60)
    stage.run()
    over_since = brokers(stage, policy)[0]["since"]
    stage.now += 60
    read(stage, broker_1=20)
    stage.run()
    now, calm = brokers(stage, policy)[0], brokers(stage, policy)[1]
    assert (now["pressure"], now["since"] > over_since, calm["since"]) == ("Within", True, over_since)
    assert stage.event_reasons()[-1] == Reason.BROKER_WITHIN_LIMIT.value


def test_rates_that_change_write_no_status(stage: Stage, policy: ObjectRef) -> None:
    read(stage, broker_1=20)
    stage.run()
    before = stage.kubernetes.get(policy)
    for rate in (21, 30, 44):
        stage.now += 15
        read(stage, broker_1=rate)
        stage.run()
    assert stage.kubernetes.get(policy) == before


def test_a_limit_is_shown_for_each_broker(stage: Stage, policy: ObjectRef) -> None:
    read(stage, broker_1=1)
    stage.run()
    limits = [(broker["egressLimit"], broker.get("ingressLimit")) for broker in brokers(stage, policy)]
    assert limits == [(50_000_000, None), (50_000_000, None), (80_000_000, 20_000_000)]


def test_a_reading_above_what_the_nic_can_take_in_is_not_believed(stage: Stage) -> None:
    policy = stage.policy(metrics=METRICS, brokers={"ingress": {"limit": "50M", "capacity": "100M"}})
    read(stage, broker_1=1)
    absurd = tuple(NicSpan(stage.now - SCRAPE * back, SCRAPE, 900 * MEGABYTE) for back in (2, 1, 0))
    assert stage.readings is not None
    stage.readings = replace(stage.readings, nic={**stage.readings.nic, (2, Direction.INGRESS): absurd})
    stage.run()
    assert pressures(stage, policy) == ["Within", "Unknown", "Within"]


def test_a_prometheus_that_is_away_makes_the_load_unknown_and_nothing_else(stage: Stage, policy: ObjectRef) -> None:
    read(stage, broker_1=20)
    stage.run()
    stage.now += 600
    away = ReadingProblem(Reason.PROMETHEUS_UNREACHABLE, "Prometheus at http://prometheus:9090 did not answer.")
    stage.readings = Readings(stage.now, SCRAPE, problems=(away,))
    stage.run()
    assert stage.condition(policy, "MetricsFresh") == ("False", "PrometheusUnreachable")
    assert pressures(stage, policy) == ["Unknown"] * 3
    assert stage.condition(policy) == ("True", "InSync")
    assert stage.event_reasons()[-1] == Reason.PROMETHEUS_UNREACHABLE.value


def test_load_that_is_unknown_for_long_gives_throttled_quotas_back_with_a_condition(stage: Stage, golden: Callable[[str], None]) -> None:
    release = {**METRICS, "whenStale": {"afterSeconds": 600, "action": "Release"}}
    policy = stage.policy(metrics=release, brokers={"ingress": {"limit": "50M"}})
    member = {"name": "etl", "user": "etl", "topics": ["acc"], "contract": {"perBroker": {"produce": "80M"}}}
    spec = {"policyRef": {"name": "orders"}, "level": "L3", "throttledRates": {"perBroker": {"produce": "1M"}}, "members": [member]}
    stage.kubernetes.create(BUSINESS_TIERS, {"metadata": {"name": "batch", "namespace": "streaming"}, "spec": spec})
    etl = Entity(user="etl")
    for rate_mb in (5, 75, 75, 75, 75):
        stage.now += SCRAPE
        read(stage, broker_1=1)
        assert stage.readings is not None
        hot = tuple(NicSpan(stage.now - SCRAPE * back, SCRAPE, rate_mb * MEGABYTE) for back in (2, 1, 0))
        clients = {(etl, 1, Direction.INGRESS): ClientRate(stage.now, rate_mb * MEGABYTE, 0.0)}
        stage.readings = replace(stage.readings, nic={**stage.readings.nic, (1, Direction.INGRESS): hot}, clients=clients)
        stage.run()
    assert stage.condition(policy, "Throttling") == ("True", "Throttled")
    assert int(stage.store.read([etl])[etl].values[QuotaKey.PRODUCER_BYTE_RATE]) < 80_000_000
    away = ReadingProblem(Reason.PROMETHEUS_UNREACHABLE, "Prometheus at http://prometheus:9090 did not answer.")
    for _ in range(25):
        stage.now += 30
        stage.readings = Readings(stage.now, SCRAPE, problems=(away,))
        stage.run()
    assert stage.store.read([etl])[etl].values == {QuotaKey.PRODUCER_BYTE_RATE: "80000000"}
    assert stage.condition(policy, "MetricsFresh") == ("False", "PrometheusUnreachable")
    assert stage.condition(policy, "Throttling") == ("False", "ReleasedUnmeasured")
    text = message(stage, policy)
    assert numbers(text) >= {1, 2, 3, 600}
    assert text.count("ingress") == 3
    golden(text)
    assert stage.event_reasons().count("ReleasedUnmeasured") == 1


def message(stage: Stage, policy: ObjectRef) -> str:
    conditions = stage.kubernetes.get(policy)["status"]["conditions"]
    return str(next(entry["message"] for entry in conditions if entry["type"] == "Throttling"))


def test_a_problem_that_hides_no_limit_is_reported_and_the_load_is_known(stage: Stage, policy: ObjectRef) -> None:
    read(stage, broker_1=20, problems=(ReadingProblem(Reason.METRICS_AMBIGUOUS, "A series does not tell its broker.", 2),))
    stage.run()
    assert stage.condition(policy, "MetricsFresh") == ("True", "MetricsAmbiguous")


def test_unmetered_clients_do_not_make_the_load_of_nics_unknown(stage: Stage, policy: ObjectRef) -> None:
    read(stage, broker_1=20, problems=(ReadingProblem(Reason.CLIENTS_NOT_METERED, "No broker reported the rate of any user."),))
    stage.run()
    assert stage.condition(policy, "MetricsFresh") == ("True", "MetricsFresh")


def test_machines_get_the_rates(stage: Stage, policy: ObjectRef) -> None:
    read(stage, broker_1=58.1)
    stage.run()
    here = {"policy_namespace": "streaming", "policy": "orders", "broker": "1", "direction": "egress"}

    def sample(name: str, labels: dict[str, str]) -> float | None:
        return stage.telemetry.registry.get_sample_value(name, labels)

    assert sample("tidegate_broker_bytes_per_second", here) == pytest.approx(58.1 * MEGABYTE)
    assert sample("tidegate_broker_limit_bytes_per_second", here) == 50 * MEGABYTE
    assert sample("tidegate_broker_reading_timestamp_seconds", here) == stage.now - 1.0
    assert sample("tidegate_broker_over_limit", {"policy_namespace": "streaming", "policy": "orders", "broker": "1"}) == 1.0
    assert sample("tidegate_broker_over_limit", {"policy_namespace": "streaming", "policy": "orders", "broker": "2"}) == 0.0
