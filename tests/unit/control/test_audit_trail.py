"""The audit trail: its lines and when each is due, from rounds that the throttle really decided and
from whole passes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.unit.control.stage import Stage
from tests.unit.control.trails import ETL, NOTHING, Shelf, Trail, calm_trail, overload, write_of
from tests.unit.controller_logic.plant import MB, OUT, want
from tidegate.control.audit.sink import AuditQueue
from tidegate.control.audit.trail import AuditTrail
from tidegate.control.reconcile import Applied
from tidegate.errors import OutcomeUnknown, RetryLater, Unreachable
from tidegate.kafka.quota_store import WriteOutcome
from tidegate.kube.api import BUSINESS_TIERS, ObjectRef
from tidegate_logic.contracts.overrides import Overridden
from tidegate_logic.decision import Decision
from tidegate_logic.model import (
    ClientRate,
    Direction,
    Entity,
    Hold,
    NicSpan,
    Override,
    QuotaWrite,
    Readings,
)
from tidegate_logic.reasons import Reason
from tidegate_logic.recurrence import Recurrence
from tidegate_logic.throttle.decision import ThrottleDecision

# --- lines of a round -----------------------------------------------------------------------------
# The lines of the audit trail and when each is due, from rounds that the throttle really decided.


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
    assert (line["actions"][0]["entity"], line["actions"][0]["from"], line["actions"][0]["to"]) == (
        "user=etl",
        60 * MB,
        25 * MB,
    )
    assert line["t"] == "1970-01-01T00:16:55.000Z"


def test_a_cut_that_has_to_wait_has_the_time_in_its_line(trail: Trail) -> None:
    want(trail.played, etl=40, pay=25)
    trail.played.pass_time(15)
    throttle = trail.played.decide()
    egress = throttle.round_of(OUT)
    waiting = replace(
        egress, steps=tuple(replace(step, due_in_seconds=4.0) for step in egress.steps)
    )
    steps = {step.key: step for step in waiting.steps}
    trail.note(
        Decision(throttle=ThrottleDecision(steps, (waiting,))),
        readings=trail.played.given().readings,
    )
    assert [action["waits_s"] for action in trail.shelf.of("round")[0]["actions"]] == [4]


def test_a_write_names_its_round_and_all_that_led_to_it(trail: Trail) -> None:
    overload(trail)
    (line,) = trail.shelf.of("write")
    found = {
        name: line[name]
        for name in (
            "entity",
            "key",
            "from",
            "to",
            "reason",
            "level",
            "tier",
            "contract",
            "predictedMute_s",
            "outcome",
        )
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
    return tuple(
        write_of((Entity(f"u{place}"), OUT), 2 * MB, MB, Reason.LEADERS_MOVED)
        for place in range(count)
    )


def outcomes(trail: Trail) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for line in trail.shelf.of("write"):
        found.setdefault(line["outcome"], []).append(line)
    return found


def test_a_refused_write_has_its_reason(trail: Trail) -> None:
    one, other = _writes(2)
    refused = WriteOutcome(
        other.entity, applied=False, reason=Reason.CONFLICT, message="another writer was first"
    )
    trail.note(Decision(writes=(one, other)), Applied(done=(one,), refused=(refused,)))
    (line,) = outcomes(trail)["refused"]
    assert (line["entity"], line["why"], line["message"]) == (
        "user=u1",
        "Conflict",
        "another writer was first",
    )
    assert len(outcomes(trail)["applied"]) == 1


def test_only_the_batch_that_was_under_way_is_of_unknown_outcome(trail: Trail) -> None:
    writes = _writes(500)
    trail.note(
        Decision(writes=writes),
        Applied(done=writes[:200], error=OutcomeUnknown("the connection broke")),
    )
    assert {outcome: len(lines) for outcome, lines in outcomes(trail).items()} == {
        "applied": 200,
        "unknown": 200,
    }
    assert outcomes(trail)["unknown"][0]["why"] == "OutcomeUnknown"


def test_what_was_never_sent_is_no_write(trail: Trail) -> None:
    trail.note(
        Decision(writes=_writes(3)),
        Applied(error=RetryLater(Reason.NOT_LEADER, "the Lease is lost")),
    )
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
    assert (begins["state"], begins["reason"], begins["since"]) == (
        "begins",
        "Paused",
        "1970-01-01T00:16:30.000Z",
    )
    assert (ends["state"], ends["seconds"]) == ("ends", trail.played.now_seconds - 990)


BACKFILL = Override("streaming/backfill", 2000.0, "backfill agreed", entity=ETL)


def test_an_override_has_a_beginning_and_an_end_with_whom_it_is_for_and_why(trail: Trail) -> None:
    applied = Decision(overridden=Overridden((), {ETL: BACKFILL}))
    for decision in (applied, applied, Decision(overridden=Overridden(()))):
        trail.note(decision)
    begins, ends = trail.shelf.of("override")
    assert (begins["state"], ends["state"]) == ("begins", "ends")
    assert (begins["override"], begins["entities"], begins["why"]) == (
        "streaming/backfill",
        ["user=etl"],
        "backfill agreed",
    )
    assert (begins["until"], begins["exempt"]) == ("1970-01-01T00:33:20.000Z", True)


def test_an_override_that_comes_back_is_in_force_until_this_time_of_it_ends(trail: Trail) -> None:
    half_an_hour = Recurrence(frozenset(range(7)), 0, 30)
    nightly = replace(BACKFILL, expires_at_seconds=1e7, recurrence=half_an_hour)
    trail.note(Decision(overridden=Overridden((), {ETL: nightly})))
    (begins,) = trail.shelf.of("override")
    assert (begins["state"], begins["until"]) == ("begins", "1970-01-01T00:30:00.000Z")


def test_tiers_that_are_not_known_end_no_override(trail: Trail) -> None:
    for decision in (
        Decision(overridden=Overridden((), {ETL: BACKFILL})),
        Decision(overridden=Overridden(None)),
    ):
        trail.note(decision)
    assert [line["state"] for line in trail.shelf.of("override")] == ["begins"]


def test_a_bug_in_the_trail_fails_no_pass(trail: Trail) -> None:
    trail.note(Decision(writes=(None,)), Applied())  # type: ignore[arg-type]
    overload(trail)
    assert trail.shelf.of("round")


def test_policies_have_lines_of_their_own(trail: Trail) -> None:
    held = Decision(holds=(Hold(Reason.PAUSED, "the annotation is set", 990.0),))
    for key in ("streaming/orders", "streaming/payments"):
        trail.trail.note(
            key, None, decision=held, applied=NOTHING, readings=None, now_seconds=1000.0
        )
    assert [line["policy"] for line in trail.shelf.of("hold")] == [
        "streaming/orders",
        "streaming/payments",
    ]


def first_keys(line: Mapping[str, Any]) -> list[str]:
    return list(line)[:5]


def test_every_line_begins_with_what_finds_it_in_a_log(trail: Trail) -> None:
    overload(trail)
    trail.note(Decision(holds=(Hold(Reason.PAUSED, "the annotation is set", 990.0),)))
    assert {tuple(first_keys(line)) for line in trail.shelf.lines} == {
        ("event", "kind", "t", "policy", "cluster")
    }
    assert {line["event"] for line in trail.shelf.lines} == {"Audit"}


# --- effects --------------------------------------------------------------------------------------
# The effect of a round has a line two quota windows later; values that were not measured are
# unknown.


def test_the_effect_of_a_cut_has_a_line_two_windows_later(trail: Trail) -> None:
    overload(trail)
    silent = ClientRate(trail.played.now_seconds + 5, 0.0, 11_300.0)
    trail.played.now_seconds += 5
    trail.note(
        Decision(),
        readings=Readings(trail.played.now_seconds, 15.0, clients={(ETL, 1, OUT): silent}),
    )
    trail.played.now_seconds -= 5
    trail.play(15)
    assert trail.shelf.of("effect") == []
    trail.play(15)
    (line,) = trail.shelf.of("effect")
    assert (line["round"], line["seconds"]) == (trail.shelf.of("round")[0]["id"], 30)
    assert line["brokers"] == [
        {"id": 1, "threshold": 50 * MB, "nicBefore": 65 * MB, "nicAfter": 50 * MB}
    ]
    (entity,) = line["entities"]
    assert (entity["rateBefore"], entity["rateAfter"]) == (40 * MB, 25 * MB)
    assert (entity["predictedMute_s"], entity["observedMute_s"], entity["changedSince"]) == (
        12,
        11.3,
        False,
    )


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
    later = replace(
        egress, at_seconds=egress.at_seconds + seconds, number=egress.number + 1, steps=(step,)
    )
    return ThrottleDecision({step.key: step}, (later,))


def test_an_effect_records_that_a_later_round_changed_the_rate_again(trail: Trail) -> None:
    first = overload(trail)
    second = again(first, 10, 12 * MB)
    trail.played.now_seconds += 10
    write = write_of((ETL, OUT), 25 * MB, 12 * MB)
    trail.note(
        Decision(writes=(write,), throttle=second),
        Applied(done=(write,)),
        trail.played.given().readings,
    )
    trail.played.now_seconds += 100
    trail.note(Decision())
    effects = [
        (line["entities"][0]["to"], line["entities"][0]["changedSince"])
        for line in trail.shelf.of("effect")
    ]
    assert effects == [(25 * MB, True), (12 * MB, False)]


def test_a_quota_that_follows_its_leaders_meanwhile_does_not_hide_the_cut(trail: Trail) -> None:
    throttle = overload(trail)
    follows = replace(
        write_of((ETL, OUT), 25 * MB, 50 * MB, Reason.LEADERS_MOVED), predicted_mute_seconds=0.0
    )
    trail.note(
        Decision(writes=(follows,), throttle=throttle),
        Applied(done=(follows,)),
        trail.played.given().readings,
    )
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


# --- whole passes ---------------------------------------------------------------------------------
# Whole passes of the operator in the audit trail: every quota write has its line, and a cluster at
# rest none.


METRICS = {"prometheus": {"url": "http://prometheus:9090"}}


@dataclass
class Audited:
    """A stage with its audit trail."""

    stage: Stage
    shelf: Shelf
    tier: ObjectRef

    def run(self, name: str = "orders") -> list[dict[str, Any]]:
        """The lines of one pass."""
        before = len(self.shelf.lines)
        self.stage.now += 15
        self.stage.run(name)
        return self.shelf.lines[before:]


@pytest.fixture
def audited() -> Audited:
    stage, shelf = Stage(), Shelf()
    stage.policy()
    tier = stage.tier()
    stage.world = replace(
        stage.world, audit=AuditTrail(AuditQueue(shelf, "-", count=lambda *_: None, beside=False))
    )
    return Audited(stage, shelf, tier)


def test_a_first_quota_is_one_line_and_the_pass_after_it_none(audited: Audited) -> None:
    (line,) = audited.run()
    assert line.items() >= {
        "kind": "write", "policy": "streaming/orders", "cluster": "memory-cluster", "entity": "user=alice", "key": "producer_byte_rate",
        "from": None, "to": 10_000_000, "reason": "FirstQuota", "level": "L0", "tier": "streaming/gold", "member": "alice",
        "contract": 10_000_000, "outcome": "applied", "round": None,
    }.items()  # fmt: skip
    assert audited.run() == []


def test_a_quota_that_follows_its_leaders_has_a_line_too(audited: Audited) -> None:
    audited.run()
    audited.stage.leaders.leaders = {"acc": {1: 2, 2: 1}}
    (line,) = audited.run()
    assert (line["from"], line["to"], line["reason"]) == (10_000_000, 20_000_000, "LeadersMoved")


def test_what_is_given_back_is_of_no_member(audited: Audited) -> None:
    audited.run()
    audited.stage.kubernetes.edit(
        audited.tier, lambda raw: raw["spec"]["members"][0].update(user="bob")
    )
    lines = {line["entity"]: line for line in audited.run()}
    for _ in range(2):
        lines |= {line["entity"]: line for line in audited.run()}
    assert (
        lines["user=alice"].items()
        >= {"writeKind": "GiveBack", "to": None, "contract": None}.items()
    )
    assert "level" not in lines["user=alice"]
    assert lines["user=bob"]["member"] == "alice"


def test_brokers_that_are_away_are_a_hold_with_two_ends(audited: Audited) -> None:
    audited.run()
    audited.stage.leaders.error = Unreachable(Reason.BROKERS_UNREACHABLE, "No broker answers.")
    (begins,) = audited.run()
    assert (begins["kind"], begins["state"], begins["reason"]) == (
        "hold",
        "begins",
        "BrokersUnreachable",
    )
    assert audited.run() == []
    audited.stage.leaders.error = None
    (ends,) = audited.run()
    assert (ends["state"], ends["seconds"]) == ("ends", 30)


def over(stage: Stage, rate_mb: float) -> None:
    """Broker 1 carries so much of its 50 MB/s, all of it etl's; the others carry nothing."""
    now = stage.now + 15
    nic = {
        (broker, way): tuple(
            NicSpan(
                now - 15 * back,
                15.0,
                rate_mb * 1e6 if (broker, way) == (1, Direction.INGRESS) else 1e6,
            )
            for back in (2, 1, 0)
        )
        for broker in (1, 2, 3)
        for way in Direction.COMBINED.parts
    }
    rates = {
        (ETL, broker, Direction.INGRESS): ClientRate(
            now, rate_mb * 1e6 if broker == 1 else 0.0, 0.0
        )
        for broker in (1, 2, 3)
    }
    stage.readings = Readings(now, 15.0, nic, rates)


def test_a_cut_and_its_effect_name_the_same_round(audited: Audited) -> None:
    stage = audited.stage
    stage.policy("loaded", metrics=METRICS, brokers={"ingress": {"limit": "50M"}})
    member = {
        "name": "etl",
        "user": "etl",
        "topics": ["acc"],
        "contract": {"perBroker": {"produce": "80M"}},
    }
    spec = {
        "policyRef": {"name": "loaded"},
        "level": "L3",
        "throttledRates": {"perBroker": {"produce": "1M"}},
        "members": [member],
    }
    stage.kubernetes.create(
        BUSINESS_TIERS, {"metadata": {"name": "batch", "namespace": "streaming"}, "spec": spec}
    )
    lines: list[dict[str, Any]] = []
    for rate_mb in (5, 75, 75, 75, 75, 75, 75):
        over(stage, rate_mb)
        lines += audited.run("loaded")
    cut = next(line for line in lines if line["kind"] == "round" and line["actions"])
    writes = [line for line in lines if line["kind"] == "write" and line["round"] == cut["id"]]
    effect = next(line for line in lines if line["kind"] == "effect")
    assert (cut["dir"], cut["brokers"][0]["id"], cut["actions"][0]["entity"]) == (
        "ingress",
        1,
        "user=etl",
    )
    assert [(line["from"], line["to"], line["contract"]) for line in writes] == [
        (80_000_000, cut["actions"][0]["to"], 80_000_000)
    ]
    assert (effect["round"], effect["brokers"][0]["nicBefore"]) == (cut["id"], 75_000_000)
    sample = stage.telemetry.registry.get_sample_value
    labels = {
        "policy_namespace": "streaming",
        "policy": "loaded",
        "direction": "ingress",
        "level": "L3",
        "kind": "cut",
        "limited_by": "target",
    }
    assert sample("tidegate_throttle_decisions_total", labels) == 1


def test_the_ages_of_inputs_are_metrics(audited: Audited) -> None:
    audited.run()
    sample = audited.stage.telemetry.registry.get_sample_value
    labels = {"policy_namespace": "streaming", "policy": "orders", "input": "QuotaStore"}
    assert sample("tidegate_input_timestamp_seconds", labels) == audited.stage.now
