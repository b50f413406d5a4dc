"""The throttle's metrics, over a simulated cluster that is really throttled: states of levels,
costs of cuts, and counting once.
"""

from dataclasses import replace

import pytest

from tests.unit.controller_logic.plant import MB, OUT, actor, simulated_cluster, want
from tidegate.metrics import Telemetry
from tidegate.throttle_metrics import PolicyReading
from tidegate_logic.contracts.budgets import BudgetedMember, BudgetReport
from tidegate_logic.contracts.desired import MemberReport, MemberState
from tidegate_logic.contracts.overrides import Overridden
from tidegate_logic.decision import Decision, LevelReport, LevelState
from tidegate_logic.model import (
    Budget,
    ClientRate,
    Direction,
    Entity,
    Level,
    Member,
    NicSpan,
    Override,
    QuotaKey,
    QuotaWrite,
    Readings,
    StoredQuota,
    Tier,
    WriteKind,
)
from tidegate_logic.reasons import Reason
from tidegate_logic.throttle.nic_status import NicStatus, Pressure, WatchedBroker

POLICY = "streaming/orders"
LABELS = {"policy_namespace": "streaming", "policy": "orders"}
ETL, PAY = Entity("etl"), Entity("pay")


class Watched:
    """A simulated cluster whose broker is over its limit of 50 MB/s, and the metrics of the
    operator that throttles etl (L3).
    """

    def __init__(self) -> None:
        self.telemetry = Telemetry()
        self.played = simulated_cluster(
            actor("etl", "L3", 60), actor("pay", "L0", 60), limit_mb=50, capacity_mb=200
        )
        want(self.played, etl=40, pay=25)

    def play(self, seconds: float = 15.0, *, is_written: bool = True) -> Decision:
        throttle = self.played.run(seconds, admits=lambda _: is_written)
        decision = Decision(
            throttle=throttle,
            watched=(limited(50),),
            members=(report(ETL, Level.L3), report(PAY, Level.L0)),
        )
        self.note(decision, self.played.given().readings)
        return decision

    def note(self, decision: Decision, readings: Readings | None) -> None:
        self.telemetry.throttle.note(POLICY, decision, readings)
        self.telemetry.readings.put(
            POLICY, PolicyReading(decision, 1000.0, 0, 300, readings, {"Metrics": 990.0})
        )

    def value(self, name: str, **labels: str) -> float | None:
        return self.telemetry.registry.get_sample_value(f"tidegate_{name}", {**LABELS, **labels})


@pytest.fixture
def watched() -> Watched:
    return Watched()


def limited(limit_mb: float) -> WatchedBroker:
    return WatchedBroker(1, Pressure.OVER, {OUT: NicStatus(1, Pressure.OVER, round(limit_mb * MB))})


def report(entity: Entity, level: Level) -> MemberReport:
    member = Member(str(entity.user), entity)
    return MemberReport(
        Tier("streaming/batch", level, (member,)),
        member,
        None,
        MemberState.CONTRACT,
        Reason.CONTRACT,
    )


def test_a_level_is_in_exactly_one_state(watched: Watched) -> None:
    watched.note(
        Decision(levels=(LevelReport(Level.L3, LevelState.THROTTLED, "broker 1 egress"),)), None
    )
    states = {state: watched.value("tier_state", level="L3", state=state) for state in LevelState}
    assert states == {state: float(state is LevelState.THROTTLED) for state in LevelState}


def test_a_direction_is_in_exactly_one_phase(watched: Watched) -> None:
    watched.play()
    assert watched.value("throttle_phase", direction="egress", phase="Cutting") == 1
    assert watched.value("throttle_phase", direction="egress", phase="Normal") == 0


def test_a_decision_is_counted_once_however_often_it_is_repeated(watched: Watched) -> None:
    for _ in range(5):
        watched.play(is_written=False)
    assert (
        watched.value(
            "throttle_decisions_total",
            direction="egress",
            level="L3",
            kind="cut",
            limited_by="maxMute",
        )
        == 1
    )


def cut_of(entity: Entity, mute_seconds: float) -> QuotaWrite:
    values = {QuotaKey.CONSUMER_BYTE_RATE: "25000000"}
    seen = StoredQuota(entity, {})
    return QuotaWrite(
        entity,
        values,
        seen,
        None,
        WriteKind.LOWERING,
        Reason.THROTTLED,
        "",
        charged=True,
        predicted_mute_seconds=mute_seconds,
    )


def test_the_predicted_mute_is_that_of_the_last_cuts_that_were_written(watched: Watched) -> None:
    decision = watched.play()
    assert watched.value("predicted_mute_seconds", level="L3") is None
    for mute_seconds in (12.0, 7.0):
        watched.telemetry.throttle.note(
            POLICY,
            decision,
            None,
            written=[cut_of(ETL, mute_seconds), cut_of(Entity("gone"), 99.0)],
        )
    watched.telemetry.throttle.note(POLICY, decision, None)
    assert watched.value("predicted_mute_seconds", level="L3") == 7
    assert watched.value("predicted_mute_seconds", level="L0") is None


def test_the_observed_mute_is_the_longest_of_the_level(watched: Watched) -> None:
    clients = {
        (ETL, 1, OUT): ClientRate(990.0, 0.0, 11_300.0),
        (ETL, 2, OUT): ClientRate(990.0, 1e6, 20.0),
        (PAY, 1, OUT): ClientRate(990.0, 1e6, None),
    }
    decision = Decision(members=(report(ETL, Level.L3), report(PAY, Level.L0)))
    watched.note(decision, Readings(1000.0, 15.0, clients=clients))
    assert watched.value("observed_mute_seconds", level="L3") == 11.3
    assert watched.value("observed_mute_seconds", level="L0") is None


def test_what_is_held_back_is_counted_against_the_rate_before_the_first_cut(
    watched: Watched,
) -> None:
    watched.play()
    for _ in range(2):
        watched.play()
    assert watched.value("deferred_bytes_total", direction="egress", level="L3") == pytest.approx(
        (40 - 25) * MB * 2 * 15
    )


def test_nothing_is_held_back_while_no_one_is_throttled(watched: Watched) -> None:
    want(watched.played, etl=5, pay=5)
    for _ in range(4):
        watched.play()
    assert watched.value("deferred_bytes_total", direction="egress", level="L3") is None


def test_a_new_operator_does_not_make_up_what_was_sent_before(watched: Watched) -> None:
    watched.play()
    watched.telemetry = Telemetry()
    for _ in range(3):
        watched.play()
    assert watched.value("deferred_bytes_total", direction="egress", level="L3") is None


def nics(*spans: tuple[float, float]) -> Readings:
    """NIC samples of broker 1 as (when, MB/s), each over 15 s."""
    return Readings(
        spans[-1][0], 15.0, {(1, OUT): tuple(NicSpan(at, 15.0, rate * MB) for at, rate in spans)}
    )


def test_seconds_over_the_limit_count_each_span_once(watched: Watched) -> None:
    decision = Decision(watched=(limited(50),))
    for readings in (
        nics((0, 60), (15, 60)),
        nics((0, 60), (15, 60), (30, 60)),
        nics((15, 60), (30, 60), (45, 40), (60, 51)),
    ):
        watched.note(decision, readings)
        watched.note(decision, readings)
    assert watched.value("broker_over_limit_seconds_total", broker="1", direction="egress") == 30


def test_what_was_over_before_the_first_reading_is_not_counted(watched: Watched) -> None:
    watched.note(Decision(watched=(limited(50),)), nics((0, 60), (15, 60)))
    assert watched.value("broker_over_limit_seconds_total", broker="1", direction="egress") == 0


def test_an_edited_limit_counts_from_then_on(watched: Watched) -> None:
    watched.note(Decision(watched=(limited(50),)), nics((0, 60)))
    watched.note(Decision(watched=(limited(70),)), nics((0, 60), (15, 60)))
    watched.note(Decision(watched=(limited(50),)), nics((0, 60), (15, 60), (30, 60)))
    assert watched.value("broker_over_limit_seconds_total", broker="1", direction="egress") == 15


def test_an_input_that_does_not_answer_keeps_the_time_at_which_it_last_did(
    watched: Watched,
) -> None:
    watched.note(Decision(), None)
    watched.telemetry.readings.put(
        POLICY, PolicyReading(Decision(), 1015.0, 0, 300, None, {"Leaders": 1015.0})
    )
    assert (
        watched.value("input_timestamp_seconds", input="Metrics"),
        watched.value("input_timestamp_seconds", input="Leaders"),
    ) == (
        990,
        1015,
    )


def test_the_time_of_client_samples_is_a_series_for_each_broker(watched: Watched) -> None:
    watched.note(
        Decision(),
        Readings(
            1000.0,
            15.0,
            clients={(ETL, 1, OUT): ClientRate(990.0, 1.0), (PAY, 1, OUT): ClientRate(980.0, 1.0)},
        ),
    )
    assert watched.value("broker_clients_timestamp_seconds", broker="1", direction="egress") == 990


def test_an_override_that_applies_is_a_series_until_it_ends(watched: Watched) -> None:
    override = Override("streaming/backfill", 2000.0, "agreed", entity=ETL)
    watched.note(Decision(overridden=Overridden((), {ETL: override, PAY: override})), None)
    assert watched.value("override_expires_timestamp_seconds", override="backfill") == 2000
    watched.note(Decision(), None)
    assert watched.value("override_expires_timestamp_seconds", override="backfill") is None


def test_a_budget_has_series_for_the_direction_that_it_limits_as_far_as_they_are_known(
    watched: Watched,
) -> None:
    tier = Tier("streaming/batch", Level.L3, ())
    members = tuple(
        BudgetedMember(tier, Member(str(who.user), who), {}, {}, frozenset({OUT}), held_back)
        for who, held_back in ((ETL, frozenset({OUT})), (PAY, frozenset[Direction]()))
    )
    search = BudgetReport(
        Budget("streaming/search", {QuotaKey.CONSUMER_BYTE_RATE: 120 * MB}),
        Reason.BUDGET_DIVIDED,
        members=members,
        measured={OUT: 95.0 * MB, Direction.INGRESS: 3.0 * MB},
    )
    watched.note(Decision(budgets={"streaming/search": search}), None)

    def value(what: str, direction: str = "fetch") -> float | None:
        return watched.value(f"budget_{what}", budget="search", direction=direction)

    rates = [value(f"{what}_bytes_per_second") for what in ("total", "permitted", "measured")]
    assert rates == [120 * MB, 0, 95 * MB]
    assert value("members_held_back") == 1
    assert value("total_bytes_per_second", "produce") is None
    unread = replace(search, measured={}, reason=Reason.BUDGET_UNMEASURED)
    watched.note(Decision(budgets={"streaming/search": unread}), None)
    assert value("total_bytes_per_second") == 120 * MB
    assert value("measured_bytes_per_second") is value("members_held_back") is None


def test_a_policy_that_is_released_leaves_no_gauge_behind(watched: Watched) -> None:
    decision = watched.play()
    watched.note(
        replace(decision, levels=(LevelReport(Level.L3, LevelState.THROTTLED),)),
        watched.played.given().readings,
    )
    watched.telemetry.readings.forget(POLICY)
    families = [family for family in watched.telemetry.registry.collect() if family.type == "gauge"]
    assert [
        sample
        for family in families
        for sample in family.samples
        if sample.labels.items() >= LABELS.items()
    ] == []
