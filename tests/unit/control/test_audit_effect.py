"""The effect of a round has a line two quota windows later; values that were not measured are unknown."""

from dataclasses import replace

import pytest

from controller_logic.decision import Decision
from controller_logic.model import ClientRate, Readings
from controller_logic.reasons import Reason
from controller_logic.throttle.decision import ThrottleDecision
from tests.unit.control.trails import ETL, Trail, calm_trail, overload, write_of
from tests.unit.controller_logic.gates import MB, OUT, want
from tidegate.control.reconcile import Applied


@pytest.fixture
def trail() -> Trail:
    return calm_trail()


def test_the_effect_of_a_cut_has_a_line_two_windows_later(trail: Trail) -> None:
    overload(trail)
    silent = ClientRate(trail.played.now_seconds + 5, 0.0, 11_300.0)
    trail.played.now_seconds += 5
    trail.note(Decision(), readings=Readings(trail.played.now_seconds, 15.0, clients={(ETL, 1, OUT): silent}))
    trail.played.now_seconds -= 5
    trail.play(15)
    assert trail.shelf.of("effect") == []
    trail.play(15)
    (line,) = trail.shelf.of("effect")
    assert (line["round"], line["seconds"]) == (trail.shelf.of("round")[0]["id"], 30)
    assert line["brokers"] == [{"id": 1, "threshold": 50 * MB, "nicBefore": 65 * MB, "nicAfter": 50 * MB}]
    (entity,) = line["entities"]
    assert (entity["rateBefore"], entity["rateAfter"]) == (40 * MB, 25 * MB)
    assert (entity["predictedMute_s"], entity["observedMute_s"], entity["changedSince"]) == (12, 11.3, False)


def test_values_that_were_not_measured_after_a_cut_are_unknown(trail: Trail) -> None:
    overload(trail)
    trail.played.now_seconds += 100
    trail.note(Decision())
    (line,) = trail.shelf.of("effect")
    assert line["brokers"][0]["nicAfter"] is None
    assert (line["entities"][0]["rateAfter"], line["entities"][0]["observedMute_s"]) == (None, None)


def again(throttle: ThrottleDecision, seconds: float, value: int) -> ThrottleDecision:
    """The same round so much later, with the first rate of egress at this value."""
    egress = throttle.round_of(OUT)
    step = replace(egress.steps[0], value=value)
    later = replace(egress, at_seconds=egress.at_seconds + seconds, number=egress.number + 1, steps=(step,))
    return ThrottleDecision({step.key: step}, (later,))


def test_an_effect_records_that_a_later_round_changed_the_rate_again(trail: Trail) -> None:
    first = overload(trail)
    second = again(first, 10, 12 * MB)
    trail.played.now_seconds += 10
    write = write_of((ETL, OUT), 25 * MB, 12 * MB)
    trail.note(Decision(writes=(write,), throttle=second), Applied(done=(write,)), trail.played.given().readings)
    trail.played.now_seconds += 100
    trail.note(Decision())
    effects = [(line["entities"][0]["to"], line["entities"][0]["changedSince"]) for line in trail.shelf.of("effect")]
    assert effects == [(25 * MB, True), (12 * MB, False)]


def test_a_quota_that_follows_its_leaders_meanwhile_does_not_hide_the_cut(trail: Trail) -> None:
    throttle = overload(trail)
    follows = replace(write_of((ETL, OUT), 25 * MB, 50 * MB, Reason.LEADERS_MOVED), predicted_mute_seconds=0.0)
    trail.note(Decision(writes=(follows,), throttle=throttle), Applied(done=(follows,)), trail.played.given().readings)
    trail.played.now_seconds += 100
    trail.note(Decision())
    (entity,) = trail.shelf.of("effect")[0]["entities"]
    assert (entity["to"], entity["predictedMute_s"], entity["changedSince"]) == (25 * MB, 12, True)


def test_a_cut_that_was_never_written_has_no_effect(trail: Trail) -> None:
    want(trail.played, etl=40, pay=25)
    trail.played.pass_time(15)
    trail.note(Decision(throttle=trail.played.decide()), readings=trail.played.given().readings)
    trail.played.now_seconds += 100
    trail.note(Decision())
    assert trail.shelf.of("effect") == []
