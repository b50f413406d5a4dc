"""What measured load comes to in the operator: reports of brokers, Adaptive's quotas, and the
metering quota.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.goldens.golden import numbers
from tests.unit.control.stage import ALICE, Stage
from tidegate.errors import Unreachable
from tidegate.kube.api import BUSINESS_TIERS, ObjectRef
from tidegate_logic.contracts.desired import DEFAULT_USER, NEVER_BINDS
from tidegate_logic.model import (
    ClientRate,
    Direction,
    Entity,
    Interface,
    NicSpan,
    QuotaKey,
    ReadingProblem,
    Readings,
)
from tidegate_logic.reasons import Reason

# --- reports of brokers ---------------------------------------------------------------------------
# Reports of the brokers' load: in status without numbers that change, in Events with them, once for
# each change.


METRICS = {"prometheus": {"url": "http://prometheus:9090"}}
LIMITS = {
    "egress": {"limit": "50M"},
    "overrides": [{"ids": [3], "egress": {"limit": "80M"}, "ingress": {"limit": "20M"}}],
}
SCRAPE = 15.0
MEGABYTE = 1_000_000.0


@pytest.fixture
def policy(stage: Stage) -> ObjectRef:
    """A policy that watches its brokers' limits, and one tier."""
    policy = stage.policy(metrics=METRICS, brokers=LIMITS)
    stage.tier()
    return policy


def read(
    stage: Stage,
    *,
    broker_1: float,
    age_seconds: float = 1.0,
    problems: tuple[ReadingProblem, ...] = (),
) -> None:
    """Three samples of every NIC: broker 1 sends so many MB/s, every other broker and direction 1
    MB/s.
    """
    nic = {
        (broker, way): tuple(
            NicSpan(
                stage.now - age_seconds - SCRAPE * back,
                SCRAPE,
                (broker_1 if (broker, way) == (1, Direction.EGRESS) else 1) * MEGABYTE,
            )
            for back in (2, 1, 0)
        )
        for broker in (1, 2, 3)
        for way in Direction.COMBINED.parts
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
    (event,) = [
        event for event in stage.kubernetes.events if event.reason == Reason.BROKER_OVER_LIMIT.value
    ]
    assert (event.type, numbers(event.note)) == ("Warning", {1, 58.1, 50.0})
    assert (stage.produce(), stage.store.transactions) == (quota, transactions)
    count = len(stage.event_reasons())
    stage.now += 15
    read(stage, broker_1=61)
    stage.run()
    assert len(stage.event_reasons()) == count
    golden(event.note)


def test_a_broker_over_its_combined_limit_is_named_with_the_sum(stage: Stage) -> None:
    combined = {"limit": "100M", "capacity": "125M"}
    policy = stage.policy(metrics=METRICS, brokers={"combined": combined})
    stage.tier()
    read(stage, broker_1=99.5)
    stage.run()
    assert pressures(stage, policy) == ["Over", "Within", "Within"]
    assert brokers(stage, policy)[0]["combinedLimit"] == 100_000_000
    assert not {"egressLimit", "ingressLimit"} & brokers(stage, policy)[0].keys()
    (event,) = [
        event for event in stage.kubernetes.events if event.reason == Reason.BROKER_OVER_LIMIT.value
    ]
    assert "Broker 1: combined 100.5 of 100 MB/s" in event.note
    labels = {"policy_namespace": "streaming", "policy": "orders", "broker": "1"}
    for name, value in (("bytes", 100_500_000.0), ("limit_bytes", 100_000_000.0)):
        found = {
            way: stage.telemetry.registry.get_sample_value(
                f"tidegate_broker_{name}_per_second", {**labels, "direction": way.value}
            )
            for way in Direction
        }
        assert found == {**dict.fromkeys(Direction), Direction.COMBINED: value}


def test_queues_hear_after_each_pass_which_brokers_have_no_room(
    stage: Stage, policy: ObjectRef
) -> None:
    stage.run()
    heard: list[Any] = []
    controller = stage.controllers["streaming/orders"]
    controller._queues = SimpleNamespace(want=heard.append)  # type: ignore[assignment]

    def crowded(broker_1: float | None) -> frozenset[int] | None:
        stage.now += 15
        if broker_1 is None:
            stage.readings = None
        else:
            read(stage, broker_1=broker_1)
        stage.run()
        return heard[-1].crowded

    assert crowded(40) == frozenset()
    assert crowded(58.1) == frozenset({1})
    assert crowded(45) == frozenset({1})  # above 85 % of its limit
    assert crowded(40) == frozenset()
    assert crowded(60) == frozenset({1})
    assert not crowded(None)


def test_a_broker_within_its_limit_again_is_reported_with_the_time(
    stage: Stage, policy: ObjectRef
) -> None:
    read(stage, broker_1=60)
    stage.run()
    over_since = brokers(stage, policy)[0]["since"]
    stage.now += 60
    read(stage, broker_1=20)
    stage.run()
    now, calm = brokers(stage, policy)[0], brokers(stage, policy)[1]
    assert (now["pressure"], now["since"] > over_since, calm["since"]) == (
        "Within",
        True,
        over_since,
    )
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


def test_the_interfaces_that_are_added_up_are_named_for_each_broker(
    stage: Stage, policy: ObjectRef
) -> None:
    read(stage, broker_1=1)
    counted = {1: (Interface("eno1", 1.0, 1.0), Interface("eno2", 1.0, 1.0))}
    stage.readings = replace(stage.readings, interfaces=counted)
    stage.run()
    shown = [["eno1", "eno2"], None, None]
    assert [one.get("interfaces") for one in brokers(stage, policy)] == shown
    stage.leaders.error = Unreachable(Reason.BROKERS_UNREACHABLE, "No broker answers.")
    stage.kubernetes.edit(policy, lambda obj: obj.update(json.loads(json.dumps(obj))))
    stage.now += 60
    stage.run()
    assert stage.condition(policy, "ClusterReachable")[0] == "False"
    assert [one.get("interfaces") for one in brokers(stage, policy)] == shown


def test_a_limit_is_shown_for_each_broker(stage: Stage, policy: ObjectRef) -> None:
    read(stage, broker_1=1)
    stage.run()
    limits = [
        (broker["egressLimit"], broker.get("ingressLimit")) for broker in brokers(stage, policy)
    ]
    assert limits == [(50_000_000, None), (50_000_000, None), (80_000_000, 20_000_000)]


def test_a_reading_above_what_the_nic_can_take_in_is_not_believed(stage: Stage) -> None:
    policy = stage.policy(
        metrics=METRICS, brokers={"ingress": {"limit": "50M", "capacity": "100M"}}
    )
    read(stage, broker_1=1)
    absurd = tuple(NicSpan(stage.now - SCRAPE * back, SCRAPE, 900 * MEGABYTE) for back in (2, 1, 0))
    assert stage.readings is not None
    stage.readings = replace(
        stage.readings, nic={**stage.readings.nic, (2, Direction.INGRESS): absurd}
    )
    stage.run()
    assert pressures(stage, policy) == ["Within", "Unknown", "Within"]


def test_a_prometheus_that_is_away_makes_the_load_unknown_and_nothing_else(
    stage: Stage, policy: ObjectRef
) -> None:
    read(stage, broker_1=20)
    stage.run()
    stage.now += 600
    away = ReadingProblem(
        Reason.PROMETHEUS_UNREACHABLE, "Prometheus at http://prometheus:9090 did not answer."
    )
    stage.readings = Readings(stage.now, SCRAPE, problems=(away,))
    stage.run()
    assert stage.condition(policy, "MetricsFresh") == ("False", "PrometheusUnreachable")
    assert pressures(stage, policy) == ["Unknown"] * 3
    assert stage.condition(policy) == ("True", "InSync")
    assert stage.event_reasons()[-1] == Reason.PROMETHEUS_UNREACHABLE.value


def test_a_broker_whose_source_changed_is_unknown_and_its_quotas_stay(
    stage: Stage, policy: ObjectRef
) -> None:
    read(stage, broker_1=20)
    stage.run()
    read(stage, broker_1=20, problems=(ReadingProblem(Reason.SOURCE_CHANGED, "From a to b.", 1),))
    assert stage.readings is not None
    nic = {key: spans for key, spans in stage.readings.nic.items() if key[0] != 1}
    stage.readings = replace(stage.readings, nic=nic)
    stage.run()
    assert stage.condition(policy, "MetricsFresh") == ("False", "SourceChanged")
    assert pressures(stage, policy)[0] == "Unknown"
    assert stage.condition(policy) == ("True", "InSync")


ETL = Entity(user="etl")


def hot(stage: Stage, rate_mb: float) -> None:
    """etl alone produces so much to broker 1, whose NIC shows it in three samples."""
    read(stage, broker_1=1)
    assert stage.readings is not None
    spans = tuple(
        NicSpan(stage.now - SCRAPE * back, SCRAPE, rate_mb * MEGABYTE) for back in (2, 1, 0)
    )
    clients = {(ETL, 1, Direction.INGRESS): ClientRate(stage.now, rate_mb * MEGABYTE, 0.0)}
    stage.readings = replace(
        stage.readings, nic={**stage.readings.nic, (1, Direction.INGRESS): spans}, clients=clients
    )


def throttled_etl(stage: Stage, metrics: dict[str, Any] | None = None) -> ObjectRef:
    """A policy whose brokers may take in 50 MB/s, and etl of L3 throttled for 75 MB/s."""
    policy = stage.policy(
        metrics={**METRICS, **(metrics or {})}, brokers={"ingress": {"limit": "50M"}}
    )
    member = {
        "name": "etl",
        "user": "etl",
        "topics": ["acc"],
        "contract": {"perBroker": {"produce": "80M"}},
    }
    spec = {
        "policyRef": {"name": "orders"},
        "level": "L3",
        "throttledRates": {"perBroker": {"produce": "1M"}},
        "members": [member],
    }
    stage.kubernetes.create(
        BUSINESS_TIERS, {"metadata": {"name": "batch", "namespace": "streaming"}, "spec": spec}
    )
    for rate_mb in (5, 75, 75, 75, 75):
        stage.now += SCRAPE
        hot(stage, rate_mb)
        stage.run()
    assert stage.condition(policy, "Throttling") == ("True", "Throttled")
    assert int(stage.store.read([ETL])[ETL].values[QuotaKey.PRODUCER_BYTE_RATE]) < 80_000_000
    return policy


def because(stage: Stage, policy: ObjectRef) -> str:
    (level,) = stage.kubernetes.get(policy)["status"]["levels"]
    return str(level["because"])


def test_a_throttled_level_has_the_reading_that_began_it_and_what_is_carried_now(
    stage: Stage, golden: Callable[[str], None]
) -> None:
    policy = throttled_etl(stage)
    began = because(stage, policy).split("; ")[0]
    assert began == "since 13:47:25 UTC broker 1 ingress 75 of 50 MB/s"
    stage.now += 61
    hot(stage, 49.3)
    stage.run()
    assert because(stage, policy) == f"{began}; now 49.3 MB/s"
    text = stage.message(policy, "Throttling")
    assert text == f"L3 throttled (1 of 1 member): {began}; now 49.3 MB/s"
    golden(text)


def test_a_restarted_operator_keeps_what_began_a_throttle_and_knows_what_is_now(
    stage: Stage,
) -> None:
    policy = throttled_etl(stage)
    began = because(stage, policy).split("; ")[0]
    stage.restart()
    stage.now += 61
    hot(stage, 49.3)
    stage.run()
    now = "now broker 1 ingress 49.3 of 50 MB/s"
    assert because(stage, policy) == f"{began}; {now}"
    assert stage.message(policy, "Throttling").endswith(f": {began}; {now}")


@pytest.mark.parametrize("restarted", [True, False])
def test_who_was_in_doubt_for_a_while_is_throttled_as_before(
    stage: Stage, *, restarted: bool
) -> None:
    throttled_etl(stage)
    before = stage.produce(ETL)
    doubtful = stage.tier("doubtful", user="etl")
    stage.kubernetes.edit(doubtful, lambda raw: raw["spec"].update(level="Unheard"))
    if restarted:
        stage.restart()
    for known in (False, False, True):
        if known:
            stage.kubernetes.delete(doubtful)
        stage.now += SCRAPE
        hot(stage, 49.3)
        stage.run()
        assert stage.produce(ETL) == before


def test_while_a_broker_is_unknown_ready_the_column_and_throttling_say_so(
    stage: Stage, golden: Callable[[str], None]
) -> None:
    policy = throttled_etl(stage)
    stage.now += 61
    hot(stage, 49.3)
    stage.run()
    stage.now += 600
    read(stage, broker_1=1)
    assert stage.readings is not None
    nic = {key: spans for key, spans in stage.readings.nic.items() if key[0] != 1}
    stage.readings = replace(stage.readings, nic=nic)
    stage.run()
    assert pressures(stage, policy) == ["Unknown", "Within", "Within"]
    assert stage.kubernetes.get(policy)["status"]["summary"]["overShown"] == "?"
    assert stage.condition(policy)[0] == "True"
    assert stage.message(policy).endswith("; the load of broker 1 is not known")
    text = stage.message(policy, "Throttling")
    assert text.endswith("; now unknown (49.3 MB/s as of 13:48:56 UTC)")
    golden(f"{stage.message(policy)}. {text}")


def test_a_broker_over_its_limit_is_counted_beside_one_that_is_unknown(
    stage: Stage, policy: ObjectRef
) -> None:
    read(stage, broker_1=60)
    assert stage.readings is not None
    nic = {key: spans for key, spans in stage.readings.nic.items() if key[0] != 2}
    stage.readings = replace(stage.readings, nic=nic)
    stage.run()
    summary = stage.kubernetes.get(policy)["status"]["summary"]
    assert (summary["over"], summary["overShown"]) == (1, "1?")


def test_two_minutes_of_an_episode_write_the_status_for_what_happens_and_once_a_minute(
    stage: Stage,
) -> None:
    policy = throttled_etl(stage)
    writes = stage.telemetry.status_writes.labels("BrokerBandwidthPolicy")._value
    before, seen = writes.get(), set[str]()
    for second in range(0, 120, 5):
        stage.now += 5
        hot(stage, 42.0 + second % 7)
        stage.run()
        seen.add(because(stage, policy))
    assert writes.get() - before <= 4
    assert len(seen) <= 4


@pytest.mark.parametrize(
    "words",
    [
        "Prometheus answered, but the answer broke off after {} bytes.",
        "Broker 1 is with samples that look old, because Tidegate's clock is {} s ahead.",
        "What clients send on brokers 7, {} and 4 more was not read. No time was left for them.",
    ],
)
def test_a_number_in_a_problem_of_readings_does_not_write_the_status_at_each_of_them(
    stage: Stage, policy: ObjectRef, words: str
) -> None:
    for number in range(100, 220, 10):
        text = words.format(number)
        stage.readings = Readings(
            stage.now, SCRAPE, problems=(ReadingProblem(Reason.METRICS_INCOMPLETE, text),)
        )
        stage.run()
        stage.now += 5
    writes = stage.telemetry.status_writes.labels("BrokerBandwidthPolicy")._value
    assert writes.get() <= 2
    assert numbers(stage.message(policy, "MetricsFresh")) >= {100}
    stage.now += 60
    stage.run()
    assert numbers(stage.message(policy, "MetricsFresh")) >= {210}


def test_load_that_is_unknown_for_long_gives_throttled_quotas_back_with_a_condition(
    stage: Stage, golden: Callable[[str], None]
) -> None:
    policy = throttled_etl(stage, {"whenStale": {"afterSeconds": 600, "action": "Release"}})
    away = ReadingProblem(
        Reason.PROMETHEUS_UNREACHABLE, "Prometheus at http://prometheus:9090 did not answer."
    )
    for _ in range(25):
        stage.now += 30
        stage.readings = Readings(stage.now, SCRAPE, problems=(away,))
        stage.run()
    assert stage.store.read([ETL])[ETL].values == {QuotaKey.PRODUCER_BYTE_RATE: "80000000"}
    assert stage.condition(policy, "MetricsFresh") == ("False", "PrometheusUnreachable")
    assert stage.condition(policy, "Throttling") == ("False", "ReleasedUnmeasured")
    text = stage.message(policy, "Throttling")
    assert numbers(text) >= {1, 2, 3, 600}
    assert text.count("ingress") == 3
    golden(text)
    assert stage.event_reasons().count("ReleasedUnmeasured") == 1


def test_a_problem_that_hides_no_limit_is_reported_and_the_load_is_known(
    stage: Stage, policy: ObjectRef
) -> None:
    read(
        stage,
        broker_1=20,
        problems=(
            ReadingProblem(Reason.METRICS_AMBIGUOUS, "A series does not tell its broker.", 2),
        ),
    )
    stage.run()
    assert stage.condition(policy, "MetricsFresh") == ("True", "MetricsAmbiguous")


def test_unmetered_clients_do_not_make_the_load_of_nics_unknown(
    stage: Stage, policy: ObjectRef
) -> None:
    read(
        stage,
        broker_1=20,
        problems=(
            ReadingProblem(Reason.CLIENTS_NOT_METERED, "No broker reported the rate of any user."),
        ),
    )
    stage.run()
    assert stage.condition(policy, "MetricsFresh") == ("True", "MetricsFresh")


def test_machines_get_the_rates(stage: Stage, policy: ObjectRef) -> None:
    read(stage, broker_1=58.1)
    stage.run()
    here = {
        "policy_namespace": "streaming",
        "policy": "orders",
        "broker": "1",
        "direction": "egress",
    }

    def sample(name: str, labels: dict[str, str]) -> float | None:
        return stage.telemetry.registry.get_sample_value(name, labels)

    assert sample("tidegate_broker_bytes_per_second", here) == pytest.approx(58.1 * MEGABYTE)
    assert sample("tidegate_broker_limit_bytes_per_second", here) == 50 * MEGABYTE
    assert sample("tidegate_broker_reading_timestamp_seconds", here) == stage.now - 1.0
    assert (
        sample(
            "tidegate_broker_over_limit",
            {"policy_namespace": "streaming", "policy": "orders", "broker": "1"},
        )
        == 1.0
    )
    assert (
        sample(
            "tidegate_broker_over_limit",
            {"policy_namespace": "streaming", "policy": "orders", "broker": "2"},
        )
        == 0.0
    )


# --- Adaptive -------------------------------------------------------------------------------------
# leaderScaling.method Adaptive in the operator: measured rates move the quota in ZooKeeper, and the
# status has the reason.


MB = 1_000_000
JMX_METRICS = {"prometheus": {"url": "http://prometheus:9090"}, "preset": "JmxExporter"}


@pytest.fixture
def uneven(stage: Stage) -> Stage:
    """Alice has a contract of 10 MB/s for each of three partitions, two of which broker 1 leads and
    one broker 2.
    """
    stage.policy(metrics=JMX_METRICS, leaderScaling={"method": "Adaptive"})
    stage.tier()
    stage.leaders.leaders = {"acc": {1: 2, 2: 1}}
    stage.leaders.brokers = frozenset({1, 2})
    return stage


def passes(stage: Stage, count: int, **sent_mb: float) -> None:
    """So many passes, each on a fresh reading in which Alice sends so much to each broker, and is
    throttled where that is her quota.
    """
    for _ in range(count):
        quota = float(stage.produce() or "inf")
        rates = {broker: min(sent_mb[f"broker_{broker}"] * MB, quota) for broker in (1, 2)}
        clients = {
            (ALICE, broker, Direction.INGRESS): ClientRate(
                stage.now, rate, 800.0 if rate == quota else 0.0
            )
            for broker, rate in rates.items()
        }
        nics = {
            (broker, way): (NicSpan(stage.now, SCRAPE, float(MB)),)
            for broker in (1, 2)
            for way in Direction.COMBINED.parts
        }
        stage.readings = Readings(stage.now, SCRAPE, nics, clients)
        stage.run()
        stage.now += SCRAPE


def test_greedy_clients_are_held_to_the_contracts_total_and_even_demand_gets_it(
    uneven: Stage,
) -> None:
    passes(uneven, 1, broker_1=20, broker_2=10)
    assert uneven.produce() == "20000000"
    passes(uneven, 10, broker_1=60, broker_2=30)
    assert uneven.produce() == "15000000"
    passes(uneven, 16, broker_1=20, broker_2=10)
    assert uneven.produce() == "20000000"


def test_a_new_operator_goes_on_where_the_last_one_was(uneven: Stage) -> None:
    uneven.run()
    passes(uneven, 10, broker_1=60, broker_2=30)
    written = uneven.store.transactions
    uneven.restart()
    passes(uneven, 10, broker_1=60, broker_2=30)
    assert uneven.produce() == "15000000"
    assert uneven.store.transactions == written


def test_a_lowering_is_reported_with_its_reason(uneven: Stage) -> None:
    uneven.run()
    passes(uneven, 10, broker_1=60, broker_2=30)
    assert "Adapted" in uneven.event_reasons()


def test_without_metrics_it_stays_at_max(stage: Stage) -> None:
    policy = stage.policy(leaderScaling={"method": "Adaptive"})
    stage.tier()
    stage.leaders.leaders = {"acc": {1: 2, 2: 1}}
    for _ in range(5):
        stage.run()
        stage.now += SCRAPE
    assert stage.produce() == "20000000"
    assert stage.condition(policy) == ("True", "InSync")


# --- the metering quota ---------------------------------------------------------------------------
# Metering in the operator: a default-user quota in ZooKeeper with its ledger record, and the
# reports where there is none.


FETCH, PRODUCE = QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.PRODUCER_BYTE_RATE
CEILING = str(NEVER_BINDS)
PROMETHEUS = {"prometheus": {"url": "http://prometheus:9090"}}
METERED: dict[str, Any] = {"metering": "Enabled"}
APP = Entity(client_id="app")


def default_user(stage: Stage) -> dict[QuotaKey, str]:
    return dict(stage.store.read([DEFAULT_USER])[DEFAULT_USER].values)


def idle_nics(stage: Stage) -> None:
    nics = {
        (broker, way): (NicSpan(stage.now, 15.0, 1.0),)
        for broker in (1, 2, 3)
        for way in Direction.COMBINED.parts
    }
    stage.readings = Readings(stage.now, 15.0, nics)


def test_brokers_are_made_to_meter_every_user_and_the_ledger_has_it(stage: Stage) -> None:
    policy = stage.policy(defaults=METERED)
    stage.tier()
    stage.run()
    assert default_user(stage) == {FETCH: CEILING, PRODUCE: CEILING}
    assert DEFAULT_USER in stage.store.ledger_entities()
    assert stage.condition(policy) == ("True", "InSync")


def test_a_policy_that_does_not_ask_writes_none(stage: Stage) -> None:
    stage.policy(metrics=PROMETHEUS, defaults={"metering": "Disabled"}), stage.tier()
    stage.run()
    assert default_user(stage) == {}


def test_it_goes_when_no_policy_asks_for_it_any_more(stage: Stage) -> None:
    policy = stage.policy(defaults=METERED)
    stage.tier()
    stage.run()
    stage.kubernetes.edit(policy, lambda raw: raw["spec"].pop("defaults"))
    stage.run()
    assert default_user(stage) == {}
    assert DEFAULT_USER not in stage.store.ledger_entities()


def test_it_goes_with_the_policy(stage: Stage) -> None:
    policy = stage.policy(defaults=METERED)
    stage.tier()
    stage.run()
    stage.kubernetes.delete(policy)
    stage.run()
    assert default_user(stage) == {}
    assert not stage.store.ledger_entities()


def test_quotas_on_client_ids_are_not_hidden_and_a_condition_and_one_event_report_it(
    stage: Stage,
) -> None:
    policy = stage.policy(metrics=PROMETHEUS, defaults=METERED)
    stage.tier()
    stage.store.put(APP, {PRODUCE: "1048576"})
    idle_nics(stage)
    for _ in range(3):
        stage.run()
        stage.now += 15
        idle_nics(stage)
    assert default_user(stage) == {}
    assert stage.condition(policy, "MetricsFresh") == ("True", "MeteringWithheld")
    assert "hide" in stage.message(policy, "MetricsFresh")
    assert stage.event_reasons().count("MeteringWithheld") == 1


def test_one_that_comes_later_takes_the_metering_away(stage: Stage) -> None:
    stage.policy(defaults=METERED), stage.tier()
    stage.run()
    stage.store.put(APP, {PRODUCE: "1048576"})
    stage.run()
    assert default_user(stage) == {}


def test_a_limit_of_another_owner_for_the_default_user_stays(stage: Stage) -> None:
    policy = stage.policy(defaults=METERED)
    stage.tier()
    stage.store.put(DEFAULT_USER, {FETCH: "50000000"})
    stage.run()
    assert "defaults.metering" in stage.message(policy, "MetricsFresh")
    assert default_user(stage) == {FETCH: "50000000"}
    assert DEFAULT_USER not in stage.store.ledger_entities()
