"""What a plan shows, checked on decisions made by hand: every number comes from the decision, and holds are said plainly."""

import io
import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from controller_logic.contracts.desired import MemberReport, MemberState
from controller_logic.contracts.leaders import Leaders
from controller_logic.contracts.targets import QuotaScalings
from controller_logic.decision import Decision
from controller_logic.model import (
    Contract,
    Default,
    Entity,
    Hold,
    LedgerEntry,
    LedgerRecord,
    Level,
    Member,
    Mode,
    Note,
    Observation,
    Policy,
    QuotaKey,
    QuotaWrite,
    RateForm,
    ScalingMethod,
    StoredQuota,
    Tier,
    TopicLeaders,
    Topology,
    WriteKind,
)
from controller_logic.reasons import Reason
from tests.goldens.golden import line_with, numbers
from tidegate.commands.output import ExitCode, Page
from tidegate.commands.plan import entity_document, plan_document, plan_exit_code, plan_rows, show_plan, summary_line

FETCH, PRODUCE = QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.PRODUCER_BYTE_RATE
ALICE = Entity(user="alice")
STORED = StoredQuota(ALICE, {FETCH: "10000000", PRODUCE: "5000000"}, version=3)
POLICY = Policy(key="streaming/orders", uid="u1")
OBSERVATION = Observation(1000.0, POLICY, (), Topology(1000.0, frozenset({1, 2}), {}), {ALICE: STORED})
ORDERS = Member("orders", ALICE, ("orders",), Contract(RateForm.PER_PARTITION, 10_000_000, 2_500_000))
TWO_LEADERS_AND_ONE = Topology(1000.0, frozenset({1, 2}), {"orders": TopicLeaders({1: 2, 2: 1})})
REPORT = MemberReport(
    Tier("streaming/core", Level.L1, (ORDERS,)),
    ORDERS,
    QuotaScalings(Leaders(TWO_LEADERS_AND_ONE), ScalingMethod.MAX).under(ORDERS),
    MemberState.CONTRACT,
    Reason.CONTRACT,
)
RAISE = QuotaWrite(
    entity=ALICE,
    values={FETCH: "20000000"},
    seen=STORED,
    ledger=LedgerRecord(ALICE, POLICY.key, POLICY.uid, {FETCH: LedgerEntry(None, "20000000", "10000000", 1000.0, Reason.LEADERS_MOVED)}),
    kind=WriteKind.RECOVERY,
    reason=Reason.LEADERS_MOVED,
    wording="2 of 3 partitions are led by broker 1",
    charged=False,
)
DECISION = Decision(writes=(RAISE,), members=(REPORT,), managed=1)


def shown(decision: Decision, observation: Observation = OBSERVATION, *, show_unchanged: bool = False) -> str:
    stream = io.StringIO()
    show_plan(Page(stream), observation, decision, show_unchanged=show_unchanged)
    return stream.getvalue()


def test_a_row_shows_before_after_both_totals_and_the_skew() -> None:
    row = next(line for line in shown(DECISION).splitlines() if line.startswith("user=alice"))
    for words in ("fetch", "10.0 MB/s", "20.0 MB/s", "LeadersMoved", "1.33", "30.0 MB/s", "40.0 MB/s", "streaming/core / orders"):
        assert words in row


def test_keys_that_stay_are_shown_only_when_asked_for() -> None:
    assert "produce" not in shown(DECISION)
    assert "produce" in shown(DECISION, show_unchanged=True)


def test_in_observe_mode_the_plan_is_what_enforce_would_write() -> None:
    observing = replace(OBSERVATION, policy=replace(POLICY, mode=Mode.OBSERVE))
    text = shown(Decision(would_write=(RAISE,), members=(REPORT,), managed=1), observing)
    assert 20.0 in numbers(text)
    assert "Enforce" in text


def test_a_given_back_quota_shows_that_it_is_no_longer_managed(golden: Callable[[str], None]) -> None:
    give_back = replace(RAISE, values={FETCH: None}, kind=WriteKind.GIVE_BACK, reason=Reason.GIVEN_BACK, ledger=None)
    row = next(line for line in shown(Decision(writes=(give_back,))).splitlines() if line.startswith("user=alice"))
    golden(row)


def test_a_hold_is_said_before_anything_else_is_promised(golden: Callable[[str], None]) -> None:
    hold = Hold(Reason.BROKERS_UNREACHABLE, "no broker of 10.0.0.1:9092 answered; every quota stays as it is", 990.0)
    text = shown(Decision(holds=(hold,)))
    lines = text.splitlines()
    assert lines.index(line_with(text, hold.reason.value, hold.message)) == 1  # after the heading
    golden(lines[1])


def test_a_member_that_is_left_alone_is_named_with_its_message() -> None:
    overlap = replace(
        REPORT,
        member=replace(ORDERS, name="twin"),
        scaling=None,
        state=MemberState.OVERLAPPING,
        wording="user=alice is in streaming/core already",
    )
    text = shown(Decision(writes=(RAISE,), members=(REPORT, overlap), managed=1))
    for name in ("streaming/core", "twin", "Overlapping"):
        assert name in line_with(text, str(overlap.wording))
    assert text.count("user=alice ") == 2  # its one row, and the sentence


def test_notes_are_part_of_the_plan() -> None:
    note = Note(Reason.REMOVAL_HELD, "9 of 10 quotas would be given back")
    assert note.reason.value in line_with(shown(Decision(notes=(note,))), note.message)


STEPPING = replace(REPORT, state=MemberState.STEPPING, in_force={FETCH: 30_000_000})
PAUSED = Hold(Reason.PAUSED, "paused", 0.0)


@pytest.mark.parametrize(
    ("decision", "code"),
    [
        (Decision(members=(REPORT,)), ExitCode.OK),
        (DECISION, ExitCode.WOULD_CHANGE),
        (Decision(would_write=(RAISE,)), ExitCode.WOULD_CHANGE),
        (Decision(deferred_writes=1), ExitCode.WOULD_CHANGE),
        (Decision(members=(STEPPING,)), ExitCode.WOULD_CHANGE),
        (Decision(holds=(PAUSED,)), ExitCode.ERROR),
        (Decision(holds=(PAUSED,), writes=(RAISE,)), ExitCode.WOULD_CHANGE),
    ],
    ids=["in sync", "a write", "an observed write", "a deferred write", "a step to come", "held", "held in part"],
)
def test_exit_code(decision: Decision, code: ExitCode) -> None:
    assert plan_exit_code(decision) is code


def test_the_document_carries_exact_texts_and_integers_and_is_plain_data() -> None:
    document = plan_document(OBSERVATION, DECISION)
    assert json.loads(json.dumps(document)) == document
    (change,) = document["changes"]  # type: ignore[misc]
    assert change == {
        "entity": {"user": "alice"},
        "key": "consumer_byte_rate",
        "inForce": "10000000",
        "next": "20000000",
        "target": 20_000_000,
        "kind": "Recovery",
        "reason": "LeadersMoved",
        "message": RAISE.message,
        "predictedMuteSeconds": 0.0,
        "charged": False,
        "tier": "streaming/core",
        "member": "orders",
    }


@pytest.mark.parametrize(
    ("entity", "document"),
    [
        (ALICE, {"user": "alice"}),
        (Entity(Default.DEFAULT, "c"), {"user": "<default>", "clientId": "c", "defaults": ["user"]}),
        (Entity("<default>", None), {"user": "<default>"}),
    ],
    ids=str,
)
def test_a_default_entity_is_distinguished_from_a_user_of_that_name(entity: Entity, document: object) -> None:
    assert entity_document(entity) == document


def test_the_summary_counts_each_kind_of_write(golden: Callable[[str], None]) -> None:
    first = replace(RAISE, entity=Entity(user="bob"), kind=WriteKind.FIRST)
    line = summary_line(Decision(writes=(RAISE, first), managed=5, in_sync=3, deferred_writes=2, next_pass_in_seconds=29.6))
    assert numbers(line) == {2, 5, 1, 3, 30}
    golden(line)


def test_rows_are_ordered_by_entity_and_then_fetch_before_produce() -> None:
    bob = replace(RAISE, entity=Entity(user="bob", client_id="b"), values={PRODUCE: "1", FETCH: "2"})
    rows = plan_rows(OBSERVATION, Decision(writes=(bob, RAISE)))
    assert [(str(row.entity), row.key) for row in rows] == [
        ("user=alice", FETCH),
        ("user=bob, client-id=b", FETCH),
        ("user=bob, client-id=b", PRODUCE),
    ]
