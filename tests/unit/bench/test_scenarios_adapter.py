"""The throttle as a controller of the control study's plant: what it is given, and what it answers."""

from typing import Any

from bench.scenarios_adapter import Adapter

POLICY = {
    "threshold": {"out": {0: 50e6, 1: 50e6}, "in": {0: 1e12, 1: 1e12}},
    "capacity": {0: 100e6, 1: 100e6},
    "tier_floor_per_partition": {"L0": None, "L1": 10e6, "L2": 5e6, "L3": 1e6},
    "entities": {
        ("etl", None, "out"): {"tier": "L3", "contract_per_partition": 30e6, "topics": ["t"]},
        ("pay", None, "out"): {"tier": "L0", "contract_per_partition": 60e6, "topics": ["t"]},
    },
    "scrape_s": 15,
    "window_s": 11,
    "max_mute_s": 12.0,
    "writes_per_15min": 300,
}


def observed(now: float, inforce: dict[tuple[str, None, str], float | None], nic: float = 40e6, etl: float = 10e6) -> dict[str, Any]:
    """Two partitions led by broker 0, one by broker 1; the user sends on broker 0 only."""
    return {
        "now": now,
        "nic": {broker: {"out": (nic, now - 2, 15.0), "in": (0.0, now - 2, 15.0)} for broker in (0, 1)},
        "rates": {("etl", None, "out"): {0: (etl, 0.0, now - 2)}, ("pay", None, "out"): {0: (5e6, 0.0, now - 2), 1: (5e6, 0.0, now - 2)}},
        "leaders": {"t": {0: 2, 1: 1}},
        "alive": [0, 1],
        "inforce": inforce,
        "policy": POLICY,
    }


ETL, PAY = ("etl", None, "out"), ("pay", None, "out")


def test_first_it_writes_every_contract_scaled_by_the_most_leaders() -> None:
    assert Adapter(POLICY).tick(observed(30, {ETL: None, PAY: None}))["quotas"] == {ETL: 60e6, PAY: 120e6}


def test_at_rest_it_writes_nothing() -> None:
    assert Adapter(POLICY).tick(observed(30, {ETL: 60e6, PAY: 120e6}))["quotas"] == {}


def test_over_the_limit_it_cuts_the_lower_tier_and_says_so() -> None:
    adapter = Adapter(POLICY)
    adapter.tick(observed(30, {ETL: 60e6, PAY: 120e6}))
    answer = adapter.tick(observed(45, {ETL: 60e6, PAY: 120e6}, nic=70e6, etl=55e6))
    assert answer["quotas"] == {ETL: 33.5e6}  # 55 less the need, 70 - 0.97 x 50
    assert [record["kind"] for record in answer["records"]] == ["cut"]


def test_the_budget_stops_raises_before_cuts() -> None:
    adapter = Adapter({**POLICY, "writes_per_15min": 0})
    assert adapter.tick(observed(30, {ETL: 20e6, PAY: 60e6}))["quotas"] == {}
