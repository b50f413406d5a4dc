"""Limits of the day and of the night in the operator: what is in force, and what comes next.

A test begins on a Monday at 13:46:40 UTC; the limit is 20 MB/s from 13:50 to 14:00, else 50 MB/s.
"""

from typing import Any

import pytest

from tests.unit.control.stage import Stage
from tests.unit.control.test_load import LIMITS, METRICS, read
from tidegate.kube.api import BUSINESS_TIERS, ObjectRef

NIGHT = {"from": "13:50", "to": "14:00", "egress": {"limit": "20M"}}
BEGINS, ENDS = 1_000_000.0 + 200, 1_000_000.0 + 800
ENTITY = {"name": "alice", "user": "alice", "contract": {"perBroker": {"fetch": "40M"}}}


def staged(stage: Stage, *schedules: dict[str, Any]) -> ObjectRef:
    policy = stage.policy(
        metrics=METRICS, brokers={**LIMITS, "schedules": list(schedules or (NIGHT,))}
    )
    tier = {
        "policyRef": {"name": "orders"},
        "level": "L3",
        "members": [ENTITY],
        "throttledRates": {"perBroker": {"fetch": "5M"}},
    }
    metadata = {"name": "reports", "namespace": "streaming"}
    stage.kubernetes.create(BUSINESS_TIERS, {"metadata": metadata, "spec": tier})
    return policy


def status(stage: Stage, policy: ObjectRef) -> dict[str, Any]:
    return dict(stage.kubernetes.get(policy)["status"])


def limits_of(stage: Stage, policy: ObjectRef) -> list[int]:
    return [one["egressLimit"] for one in status(stage, policy)["brokers"]]


def run_at(stage: Stage, seconds: float, carried_mb: float = 10) -> float:
    stage.now = seconds
    read(stage, broker_1=carried_mb)
    return stage.run()


def test_status_names_the_limits_in_force_and_what_comes_next(stage: Stage) -> None:
    policy = staged(stage)
    run_at(stage, BEGINS - 30)
    day, night = {"egress": 50_000_000}, {"schedule": 0, "egress": 20_000_000}
    assert status(stage, policy)["limits"] == {
        **day,
        "until": "1970-01-12T13:50:00Z",
        "next": night,
    }
    assert limits_of(stage, policy) == [50_000_000, 50_000_000, 80_000_000]
    assert run_at(stage, BEGINS - 5) == pytest.approx(5.0)
    run_at(stage, BEGINS)
    assert status(stage, policy)["limits"] == {
        **night,
        "until": "1970-01-12T14:00:00Z",
        "next": day,
    }
    # the third has a limit of its own
    assert limits_of(stage, policy) == [20_000_000, 20_000_000, 80_000_000]
    run_at(stage, ENDS)
    assert limits_of(stage, policy) == [50_000_000, 50_000_000, 80_000_000]
    assert status(stage, policy)["limits"]["until"] == "1970-01-13T13:50:00Z"


def test_a_policy_without_schedules_any_more_says_nothing_of_them(stage: Stage) -> None:
    policy = staged(stage)
    run_at(stage, BEGINS)
    stage.kubernetes.edit(policy, lambda raw: raw["spec"]["brokers"].pop("schedules"))
    run_at(stage, BEGINS + 15)
    assert "limits" not in status(stage, policy)
    assert limits_of(stage, policy) == [50_000_000, 50_000_000, 80_000_000]


def pressures(stage: Stage, policy: ObjectRef) -> list[str]:
    return [one["pressure"] for one in status(stage, policy)["brokers"]]


def test_a_load_between_both_limits_is_over_at_night_alone(stage: Stage) -> None:
    policy = staged(stage)
    run_at(stage, BEGINS - 1, carried_mb=30)
    assert pressures(stage, policy) == ["Within"] * 3
    run_at(stage, BEGINS, carried_mb=30)
    assert pressures(stage, policy) == ["Over", "Within", "Within"]
    run_at(stage, ENDS, carried_mb=30)
    assert pressures(stage, policy) == ["Within"] * 3


def test_a_pause_over_both_boundaries_writes_nothing_and_says_the_limits_in_force(
    stage: Stage,
) -> None:
    policy = staged(stage)
    run_at(stage, BEGINS - 30)
    before = stage.store.read_everything()
    stage.kubernetes.edit(policy, lambda raw: raw["spec"].update(suspend=True))
    run_at(stage, BEGINS + 1, carried_mb=30)
    assert limits_of(stage, policy)[0] == 20_000_000
    run_at(stage, ENDS + 1, carried_mb=30)
    assert limits_of(stage, policy)[0] == 50_000_000
    assert stage.store.read_everything() == before
    stage.kubernetes.edit(policy, lambda raw: raw["spec"].update(suspend=False))
    run_at(stage, ENDS + 16, carried_mb=30)
    assert pressures(stage, policy) == ["Within"] * 3


def test_an_operator_that_was_down_at_a_boundary_knows_the_limit_by_the_time(
    stage: Stage,
) -> None:
    policy = staged(stage)
    run_at(stage, BEGINS - 30)
    stage.restart()
    run_at(stage, BEGINS + 60)
    assert limits_of(stage, policy)[0] == 20_000_000
    stage.restart()
    run_at(stage, ENDS + 60)
    assert limits_of(stage, policy)[0] == 50_000_000


def test_a_lower_limit_ahead_that_is_made_ready_for_is_in_force_before_its_time(
    stage: Stage,
) -> None:
    policy = staged(stage, {**NIGHT, "ready": "Before"})
    run_at(stage, BEGINS - 30)
    found = status(stage, policy)
    assert (found["limits"]["egress"], found["limits"].get("schedule")) == (20_000_000, None)
    assert limits_of(stage, policy) == [20_000_000, 20_000_000, 80_000_000]
