"""leaderScaling.method Adaptive in the operator: measured rates move the quota in ZooKeeper, and the status has the reason."""

import pytest

from controller_logic.model import ClientRate, Direction, NicSpan, Readings
from tests.unit.control.stage import ALICE, Stage

MB = 1_000_000
SCRAPE = 15.0
METRICS = {"prometheus": {"url": "http://prometheus:9090"}, "preset": "JmxExporter"}


@pytest.fixture
def uneven(stage: Stage) -> Stage:
    """Alice has a contract of 10 MB/s for each of three partitions, two of which broker 1 leads and one broker 2."""
    stage.policy(metrics=METRICS, leaderScaling={"method": "Adaptive"})
    stage.tier()
    stage.leaders.leaders = {"acc": {1: 2, 2: 1}}
    stage.leaders.brokers = frozenset({1, 2})
    return stage


def passes(stage: Stage, count: int, **sent_mb: float) -> None:
    """So many passes, each on a fresh reading in which Alice sends so much to each broker, and is throttled where that is her quota."""
    for _ in range(count):
        quota = float(stage.produce() or "inf")
        rates = {broker: min(sent_mb[f"broker_{broker}"] * MB, quota) for broker in (1, 2)}
        clients = {
            (ALICE, broker, Direction.INGRESS): ClientRate(stage.now, rate, 800.0 if rate == quota else 0.0)
            for broker, rate in rates.items()
        }
        nics = {(broker, way): (NicSpan(stage.now, SCRAPE, float(MB)),) for broker in (1, 2) for way in Direction}
        stage.readings = Readings(stage.now, SCRAPE, nics, clients)
        stage.run()
        stage.now += SCRAPE


def test_greedy_clients_are_held_to_the_contracts_total_and_even_demand_gets_it(uneven: Stage) -> None:
    uneven.run()
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
