"""The observation record: what it says, and that it can be written as JSON."""

import json

from tests.unit.controller_logic.plant import (
    MB,
    OUT,
    SimulatedCluster,
    actor,
    simulated_cluster,
    want,
)
from tidegate_logic.throttle.record import NEVER_THROTTLED, as_mapping


def overloaded() -> SimulatedCluster:
    played = simulated_cluster(
        actor("etl", "L3", 60), actor("pay", "L0", 60), limit_mb=50, capacity_mb=200
    )
    want(played, etl=40, pay=25)
    return played


def test_a_record_has_the_studys_words_and_numbers() -> None:
    record = as_mapping(overloaded().run(15).round_of(OUT))
    assert (record["dir"], record["round"], record["phase"], record["tiersPlanned"]) == (
        "egress",
        1,
        "Cutting",
        ["L3"],
    )
    broker = record["brokers"][0]  # type: ignore[index]
    assert (broker["nic"], broker["threshold"], broker["hotSamples"], broker["sampleAge_s"]) == (
        65 * MB,
        50 * MB,
        "1/1",
        0,
    )
    assert (broker["need"], broker["replicationAndOther"]) == (16.5 * MB, 0)
    action = record["actions"][0]  # type: ignore[index]
    assert (action["entity"], action["from"], action["to"], action["limitedBy"]) == (
        "user=etl",
        60 * MB,
        25 * MB,
        "maxMute",
    )
    assert action["predictedMute_s"] == 12
    assert record["notDone"] == [{"entity": "user=pay", "why": NEVER_THROTTLED}]


def test_a_record_can_be_written_as_json() -> None:
    played = overloaded()
    for _ in range(20):
        want(played, etl=40 if played.now_seconds < 1150 else 5)
        for one in played.run(15).rounds:
            assert json.loads(json.dumps(as_mapping(one), allow_nan=False))["round"] == one.number


def test_a_blind_broker_is_named_and_not_shown_with_numbers() -> None:
    played = overloaded()
    played.lies[1, OUT] = float("nan")
    record = as_mapping(played.run(15).round_of(OUT))
    assert (record["blind"], record["brokers"], record["phase"]) == ([1], [], "Held")


def test_it_says_when_the_next_raise_may_come() -> None:
    played = overloaded()
    cut_at = played.run(15).rounds[0].at_seconds
    want(played, etl=5)
    assert played.run(15).round_of(OUT).next_raise_at_seconds == cut_at + 45
