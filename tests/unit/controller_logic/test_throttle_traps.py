"""One test for each trap that the control study ran into (3.6 a to g)."""

from dataclasses import replace
from operator import itemgetter

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.controller_logic.plant import (
    MB,
    OUT,
    actor,
    decided,
    in_force_mb,
    simulated_cluster,
    steps_of,
    want,
)
from tidegate_logic.model import (
    ClientRate,
    Entity,
    QuotaKey,
    QuotaWrite,
    StoredQuota,
    WriteKind,
)
from tidegate_logic.quotas.budget import Charged, admit, spend, unexpired
from tidegate_logic.reasons import Reason
from tidegate_logic.throttle.decision import StepKind
from tidegate_logic.throttle.input import ActiveThrottle, LastChange, ThrottleMemory


def test_a_a_step_that_does_not_bite_yet_is_written_all_the_same() -> None:
    """Without rates the exposure is the contract, far above what is sent: steps that would only be
    written once they bite never start.
    """
    played = simulated_cluster(actor("a", "L3", 800, 1), actor("b", "L3", 800, 1))
    want(played, a=60, b=60)
    played.silent = {1}
    values = [played.run(30).steps[played.actors[0].key].value / MB for _ in range(3)]
    assert values == [400, 200, 100]


def test_b_on_a_full_link_a_cap_that_does_not_seem_to_bind_is_not_lifted() -> None:
    """All rates shrink when the link is full, so no client reaches its cap."""
    played = simulated_cluster(actor("a", "L3", 100, 1), limit_mb=100, capacity_mb=110)
    key = played.actors[0].key
    played.apply(key, 40 * MB)
    played.memory = ThrottleMemory(held={key: ActiveThrottle(40 * MB, 100 * MB, 0.0, applied=True)})
    want(played, a=0.5)
    played.other[1, OUT] = 200 * MB
    for _ in range(20):
        played.run(15)
    assert in_force_mb(played)["a"] <= 40


def test_c_a_missing_rate_is_not_zero() -> None:
    """Read as zero, the exposure would be zero and the step a cliff."""
    played = simulated_cluster(actor("a", "L3", 50, 1), actor("seen", "L0", 100))
    want(played, a=50, seen=60)
    played.pass_time(15)
    given = played.given()
    clients = {
        place: rate for place, rate in given.readings.clients.items() if place[0] == Entity("seen")
    }
    for reported in (clients, {}):
        decision, _ = decided(replace(given, readings=replace(given.readings, clients=reported)))
        assert all(step.value >= 25 * MB for step in decision.steps.values())


def test_c_a_throttled_entity_whose_rate_is_missing_is_not_released_as_idle() -> None:
    played = simulated_cluster(actor("a", "L3", 100, 1), actor("seen", "L0", 100))
    key = played.actors[0].key
    played.apply(key, 20 * MB)
    played.memory = ThrottleMemory(held={key: ActiveThrottle(20 * MB, 100 * MB, 0.0, applied=True)})
    want(played, seen=50)
    played.run(40)
    played.run(40)
    decision = played.run(40)
    assert decision.steps[key].kind is StepKind.RAISE
    assert decision.steps[key].value < 65 * MB  # 45 MB/s of headroom, as if all of it came


def test_d_a_fraction_of_a_smaller_contract_is_lowered_in_safe_steps() -> None:
    """Leaders moved away meanwhile: even what only follows them may be a lowering of five times."""
    played = simulated_cluster(actor("a", "L3", 10, 1, leaders={1: 5}))
    key = played.actors[0].key
    played.apply(key, 40 * MB)
    played.changes.clear()
    played.memory = ThrottleMemory(held={key: ActiveThrottle(40 * MB, 50 * MB, 0.0, applied=True)})
    want(played, a=40)
    played.pass_time(15)
    played.actors[0] = replace(played.actors[0], leaders={1: 1})
    step = played.decide().steps[key]
    assert (step.value, step.target) == (20 * MB, 8 * MB)
    assert step.predicted_mute_seconds <= 12


def test_d_after_such_a_step_the_next_one_waits_for_a_dwell() -> None:
    played = simulated_cluster(actor("a", "L3", 10, 1))
    key = played.actors[0].key
    played.in_force[key] = 20 * MB
    played.changes[key] = LastChange(990.0, 40 * MB)
    played.memory = ThrottleMemory(held={key: ActiveThrottle(40 * MB, 50 * MB, 0.0, applied=True)})
    want(played, a=20)
    played.pass_time(15)
    assert played.decide().steps[key].value == 20 * MB


def write(number: int, kind: WriteKind, *, charged: bool) -> QuotaWrite:
    entity = Entity(f"user-{number}")
    return QuotaWrite(
        entity,
        {QuotaKey.CONSUMER_BYTE_RATE: "1"},
        StoredQuota(entity, {}),
        None,
        kind,
        Reason.THROTTLED,
        "",
        charged,
    )


def test_e_first_contracts_do_not_eat_the_budget_of_cuts() -> None:
    firsts = [write(number, WriteKind.FIRST, charged=False) for number in range(456)]
    spent = spend((), firsts, now_seconds=0.0)
    cuts = [write(number, WriteKind.LOWERING, charged=True) for number in range(300)]
    assert len(admit(cuts, spent, 300, period_seconds=900.0, now_seconds=1.0).writes) == 300


def test_f_a_severe_overload_does_not_cut_every_tier_at_once() -> None:
    """L3 alone can give enough in the end, so L2 and L1 keep theirs although one step of L3 is not
    enough yet.
    """
    played = simulated_cluster(
        actor("one", "L1", 100), actor("two", "L2", 100), actor("three", "L3", 200)
    )
    want(played, one=30, two=30, three=150)
    cut = {name for _ in range(10) for name in steps_of(played.run(15), StepKind.CUT)}
    assert cut == {"three"}


def test_g_the_budget_slides_and_does_not_refill_drop_by_drop() -> None:
    spent = spend(
        (),
        [write(number, WriteKind.LOWERING, charged=True) for number in range(300)],
        now_seconds=0.0,
    )
    more = [write(number, WriteKind.LOWERING, charged=True) for number in range(300)]
    for period_seconds in (60.0, 900.0):
        for now_seconds, admitted in ((period_seconds - 1, 0), (period_seconds, 300)):
            left = unexpired(spent, period_seconds=period_seconds, now_seconds=now_seconds)
            assert (
                len(
                    admit(
                        more, left, 300, period_seconds=period_seconds, now_seconds=now_seconds
                    ).writes
                )
                == admitted
            )


@given(
    writes=st.lists(st.tuples(st.floats(0, 400), st.integers(0, 200)), min_size=1, max_size=30),
    turn=st.integers(0, 30),
    back_seconds=st.floats(0, 1e6),
)
def test_after_the_clock_was_set_back_nothing_stays_spent_for_longer_than_a_period(
    writes: list[tuple[float, int]], turn: int, back_seconds: float
) -> None:
    """Nor is anything forgotten: within a period of time that really went by, no more is admitted
    than the budget.
    """
    limit, period_seconds, clock, now = 300, 900.0, 2_000_000.0, 0.0
    spent: Charged = ()
    sent: list[tuple[float, int]] = []

    def passes(seconds: float, wanted: int) -> int:
        nonlocal now, spent
        now += seconds
        shown = clock + now
        cuts = [write(number, WriteKind.LOWERING, charged=True) for number in range(wanted)]
        spent = unexpired(spent, period_seconds=period_seconds, now_seconds=shown)
        assert list(spent) == sorted(spent, key=itemgetter(0))
        done = admit(cuts, spent, limit, period_seconds=period_seconds, now_seconds=shown)
        assert done.room_in_seconds is None or done.room_in_seconds <= period_seconds
        spent = spend(spent, done.writes, now_seconds=shown)
        sent.append((now, len(done.writes)))
        return len(done.writes)

    for number, (seconds, wanted) in enumerate(writes):
        if number == turn:
            clock -= back_seconds
        passes(seconds, wanted)
        assert sum(count for at, count in sent if now - at < period_seconds - 1e-6) <= limit
    passes(0.0, 0)
    assert passes(period_seconds + 1e-6, limit) == limit


def test_a_client_that_grew_since_it_was_read_is_allowed_for() -> None:
    """A quarter more, so that a step bounded to 12 s stays below 17 s."""
    played = simulated_cluster(actor("a", "L3", 1000, 1))
    want(played, a=120)
    step = steps_of(played.run(15), StepKind.CUT)["a"]
    assert step.bucket.exposure == 150 * MB


def test_a_throttled_client_runs_below_its_quota_and_still_counts_as_throttled() -> None:
    played = simulated_cluster(actor("a", "L3", 100, 1))
    key = played.actors[0].key
    played.apply(key, 50 * MB)
    held = {key: ActiveThrottle(50 * MB, 100 * MB, 0.0, applied=True)}
    want(played, a=50)
    played.pass_time(60)
    given = played.given()
    halved = {
        place: ClientRate(rate.at_seconds, 25 * MB, 900.0)
        for place, rate in given.readings.clients.items()
    }
    decision, _ = decided(
        replace(given, readings=replace(given.readings, clients=halved)), ThrottleMemory(held=held)
    )
    assert not steps_of(decision, StepKind.RELEASE)
