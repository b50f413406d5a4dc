"""The lines of the audit trail and when each is due, from rounds that the throttle really decided."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from controller_logic.contracts.overrides import Overridden
from controller_logic.decision import Decision
from controller_logic.model import Entity, Hold, Override, QuotaWrite
from controller_logic.reasons import Reason
from controller_logic.throttle.decision import ThrottleDecision
from tests.unit.control.trails import ETL, NOTHING, Trail, calm_trail, overload, write_of
from tests.unit.controller_logic.gates import MB, OUT, want
from tidegate.control.reconcile import Applied
from tidegate.errors import OutcomeUnknown, RetryLater
from tidegate.kafka.quota_store import WriteOutcome


@pytest.fixture
def trail() -> Trail:
    return calm_trail()


def test_a_cluster_at_rest_writes_no_line(trail: Trail) -> None:
    for _ in range(10):
        trail.play()
    assert trail.shelf.lines == []


def test_before_the_first_reading_no_line_is_about_load(trail: Trail) -> None:
    want(trail.played, etl=40, pay=25)
    trail.played.pass_time(15)
    trail.note(Decision(throttle=trail.played.decide()), readings=None)
    assert trail.shelf.lines == []


def test_a_cut_has_a_line_with_the_readings_it_was_made_on(trail: Trail) -> None:
    overload(trail)
    (line,) = trail.shelf.of("round")
    assert (line["policy"], line["cluster"], line["dir"], line["phase"], line["tiersPlanned"]) == (
        "streaming/orders",
        "c1",
        "egress",
        "Cutting",
        ["L3"],
    )
    assert (line["brokers"][0]["nic"], line["brokers"][0]["threshold"]) == (65 * MB, 50 * MB)
    assert (line["actions"][0]["entity"], line["actions"][0]["from"], line["actions"][0]["to"]) == ("user=etl", 60 * MB, 25 * MB)
    assert line["t"] == "1970-01-01T00:16:55.000Z"


def test_a_cut_that_has_to_wait_has_the_time_in_its_line(trail: Trail) -> None:
    want(trail.played, etl=40, pay=25)
    trail.played.pass_time(15)
    throttle = trail.played.decide()
    egress = throttle.round_of(OUT)
    waiting = replace(egress, steps=tuple(replace(step, due_in_seconds=4.0) for step in egress.steps))
    steps = {step.key: step for step in waiting.steps}
    trail.note(Decision(throttle=ThrottleDecision(steps, (waiting,))), readings=trail.played.given().readings)
    assert [action["waits_s"] for action in trail.shelf.of("round")[0]["actions"]] == [4]


def test_a_write_names_its_round_and_all_that_led_to_it(trail: Trail) -> None:
    overload(trail)
    (line,) = trail.shelf.of("write")
    found = {
        name: line[name] for name in ("entity", "key", "from", "to", "reason", "level", "tier", "contract", "predictedMute_s", "outcome")
    }
    assert found == {
        "entity": "user=etl", "key": "consumer_byte_rate", "from": 60 * MB, "to": 25 * MB, "reason": "Throttled", "level": "L3",
        "tier": "streaming/batch", "contract": 60 * MB, "predictedMute_s": 12, "outcome": "applied",
    }  # fmt: skip
    assert line["round"] == trail.shelf.of("round")[0]["id"]


def test_rounds_that_do_and_find_nothing_new_have_no_line(trail: Trail) -> None:
    overload(trail)
    count = len(trail.shelf.of("round"))
    trail.play(5)
    assert trail.play(5).round_of(OUT).number > 1
    assert len(trail.shelf.of("round")) == count


def test_every_change_of_phase_has_a_line(trail: Trail) -> None:
    overload(trail)
    want(trail.played, etl=5, pay=5)
    for _ in range(30):
        trail.play()
    phases = [line["phase"] for line in trail.shelf.of("round")]
    assert phases[0] == "Cutting"
    assert phases[-1] == "Normal"
    assert "Relaxing" in phases


def test_a_cut_that_is_not_in_force_yet_is_one_act(trail: Trail) -> None:
    want(trail.played, etl=40, pay=25)
    for _ in range(4):
        trail.played.pass_time(15)
        trail.note(Decision(throttle=trail.played.decide()), readings=trail.played.given().readings)
    assert sum(bool(line["actions"]) for line in trail.shelf.of("round")) == 1


def _writes(count: int) -> tuple[QuotaWrite, ...]:
    return tuple(write_of((Entity(f"u{place}"), OUT), 2 * MB, MB, Reason.LEADERS_MOVED) for place in range(count))


def outcomes(trail: Trail) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for line in trail.shelf.of("write"):
        found.setdefault(line["outcome"], []).append(line)
    return found


def test_a_refused_write_has_its_reason(trail: Trail) -> None:
    one, other = _writes(2)
    refused = WriteOutcome(other.entity, applied=False, reason=Reason.CONFLICT, message="another writer was first")
    trail.note(Decision(writes=(one, other)), Applied(done=(one,), refused=(refused,)))
    (line,) = outcomes(trail)["refused"]
    assert (line["entity"], line["why"], line["message"]) == ("user=u1", "Conflict", "another writer was first")
    assert len(outcomes(trail)["applied"]) == 1


def test_only_the_batch_that_was_under_way_is_of_unknown_outcome(trail: Trail) -> None:
    writes = _writes(500)
    trail.note(Decision(writes=writes), Applied(done=writes[:200], error=OutcomeUnknown("the connection broke")))
    assert {outcome: len(lines) for outcome, lines in outcomes(trail).items()} == {"applied": 200, "unknown": 200}
    assert outcomes(trail)["unknown"][0]["why"] == "OutcomeUnknown"


def test_what_was_never_sent_is_no_write(trail: Trail) -> None:
    trail.note(Decision(writes=_writes(3)), Applied(error=RetryLater(Reason.NOT_LEADER, "the Lease is lost")))
    assert trail.shelf.lines == []


def test_in_mode_observe_a_write_that_would_be_made_has_one_line(trail: Trail) -> None:
    for _ in range(3):
        trail.note(Decision(would_write=_writes(1)))
    assert list(outcomes(trail)) == ["wouldWrite"]
    assert len(outcomes(trail)["wouldWrite"]) == 1


def test_a_hold_has_a_beginning_and_an_end(trail: Trail) -> None:
    held = Decision(holds=(Hold(Reason.PAUSED, "the annotation is set", 990.0),))
    for decision in (held, held, Decision()):
        trail.played.now_seconds += 15
        trail.note(decision)
    begins, ends = trail.shelf.of("hold")
    assert (begins["state"], begins["reason"], begins["since"]) == ("begins", "Paused", "1970-01-01T00:16:30.000Z")
    assert (ends["state"], ends["seconds"]) == ("ends", trail.played.now_seconds - 990)


BACKFILL = Override("streaming/backfill", 2000.0, "backfill agreed", entity=ETL)


def test_an_override_has_a_beginning_and_an_end_with_whom_it_is_for_and_why(trail: Trail) -> None:
    applied = Decision(overridden=Overridden((), {ETL: BACKFILL}))
    for decision in (applied, applied, Decision(overridden=Overridden(()))):
        trail.note(decision)
    begins, ends = trail.shelf.of("override")
    assert (begins["state"], ends["state"]) == ("begins", "ends")
    assert (begins["override"], begins["entities"], begins["why"]) == ("streaming/backfill", ["user=etl"], "backfill agreed")
    assert (begins["until"], begins["exempt"]) == ("1970-01-01T00:33:20.000Z", True)


def test_tiers_that_are_not_known_end_no_override(trail: Trail) -> None:
    for decision in (Decision(overridden=Overridden((), {ETL: BACKFILL})), Decision(overridden=Overridden(None))):
        trail.note(decision)
    assert [line["state"] for line in trail.shelf.of("override")] == ["begins"]


def test_a_bug_in_the_trail_fails_no_pass(trail: Trail) -> None:
    trail.note(Decision(writes=(None,)), Applied())  # type: ignore[arg-type]
    overload(trail)
    assert trail.shelf.of("round")


def test_policies_have_lines_of_their_own(trail: Trail) -> None:
    held = Decision(holds=(Hold(Reason.PAUSED, "the annotation is set", 990.0),))
    for key in ("streaming/orders", "streaming/payments"):
        trail.trail.note(key, None, decision=held, applied=NOTHING, readings=None, now_seconds=1000.0)
    assert [line["policy"] for line in trail.shelf.of("hold")] == ["streaming/orders", "streaming/payments"]


def first_keys(line: Mapping[str, Any]) -> list[str]:
    return list(line)[:5]


def test_every_line_begins_with_what_finds_it_in_a_log(trail: Trail) -> None:
    overload(trail)
    trail.note(Decision(holds=(Hold(Reason.PAUSED, "the annotation is set", 990.0),)))
    assert {tuple(first_keys(line)) for line in trail.shelf.lines} == {("event", "kind", "t", "policy", "cluster")}
    assert {line["event"] for line in trail.shelf.lines} == {"Audit"}
