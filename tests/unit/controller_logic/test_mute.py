"""The broker's arithmetic against the vectors that Kafka's own classes gave (kafka-quotas 4.4), and
the safe steps.
"""

import pytest

from tidegate.simulation.sample_ring import (
    Measured,
    SampleRing,
    SampleRule,
    measure,
    mute_ms,
    record,
)
from tidegate_logic.model import QuotaWindow
from tidegate_logic.quotas.mute import largest_safe_step, predicted_mute_seconds

DEFAULT = QuotaWindow()
BOTH = pytest.mark.parametrize("rule", SampleRule)

VECTORS = [
    pytest.param(
        DEFAULT, 1_000_000, [(0, 10_000_000)], 1_000_000, 10_000, 0, id="1 equal is not above"
    ),
    pytest.param(DEFAULT, 1_000_000, [(0, 11_000_000)], 1_100_000, 10_000, 1_000, id="2"),
    pytest.param(DEFAULT, 1_000_000, [(0, 20_000_000)], 2_000_000, 10_000, 10_000, id="3"),
    pytest.param(
        DEFAULT, 10_485_760, [(0, 104_857_600), (1, 10_485_760)], 11_533_182.68, 10_001, 999, id="4"
    ),
    pytest.param(
        DEFAULT,
        10_485_760,
        [(0, 52_428_800), (400, 52_428_800), (700, 10_485_760)],
        10_779_753.27,
        10_700,
        300,
        id="5",
    ),
    pytest.param(
        DEFAULT, 1_000_000, [(0, 6_000_000), (3500, 6_000_000)], 1_142_857.14, 10_500, 1_500, id="6"
    ),
    pytest.param(
        DEFAULT,
        1_000_000,
        [(0, 5_000_000), (60_000, 12_000_000)],
        1_200_000,
        10_000,
        2_000,
        id="7 after idling",
    ),
    pytest.param(
        DEFAULT,
        1_000_000,
        [(at, 200_000) for at in range(0, 5001, 100)],
        1_020_000,
        10_000,
        200,
        id="8",
    ),
    pytest.param(
        DEFAULT,
        5_242_880,
        [(at, 10_485_760) for at in range(0, 5001, 1000)],
        6_291_456,
        10_000,
        2_000,
        id="9",
    ),
    pytest.param(
        QuotaWindow(2, 1), 1_000_000, [(0, 3_000_000)], 3_000_000, 1_000, 2_000, id="10 two samples"
    ),
    pytest.param(
        QuotaWindow(11, 5),
        1_000_000,
        [(0, 60_000_000)],
        1_200_000,
        50_000,
        10_000,
        id="11 long samples",
    ),
    pytest.param(
        DEFAULT,
        1_000_000,
        [(0, 20_000_000), (10_000, 1)],
        2_000_000.1,
        10_000,
        10_000,
        id="12 a second time",
    ),
    pytest.param(
        DEFAULT,
        100_000,
        [(0, 500_113), (483, 600_113)],
        104_953.35,
        10_483,
        519,
        id="14 as a broker answered",
    ),
    pytest.param(DEFAULT, 1, [(0, 4_000_000)], 400_000, 10_000, 0, id="15 wraps to negative"),
    pytest.param(DEFAULT, 0, [(0, 100)], 10, 10_000, 0, id="16 zero throttles nothing"),
    pytest.param(DEFAULT, 48, [(0, 104_857_600)], 10_485_760, 10_000, 0, id="17 just wraps"),
    pytest.param(
        DEFAULT, 49, [(0, 104_857_600)], 10_485_760, 10_000, 2_139_941_020, id="17 just does not"
    ),
]


def measured_after(records: list[tuple[int, int]], ring: SampleRing) -> Measured:
    measured = Measured(0.0, 0)
    for at_ms, amount in records:
        ring, measured = measure(record(ring, amount, now_ms=at_ms), now_ms=at_ms)
    return measured


@BOTH
@pytest.mark.parametrize(
    ("window", "target", "records", "rate", "window_ms", "expected_ms"), VECTORS
)
def test_a_broker_mutes_as_long_as_its_own_classes_say(
    window: QuotaWindow,
    target: int,
    records: list[tuple[int, int]],
    rate: float,
    window_ms: int,
    expected_ms: int,
    rule: SampleRule,
) -> None:
    measured = measured_after(records, SampleRing(window, rule))
    assert measured.rate == pytest.approx(rate, abs=0.01)
    assert measured.window_ms == window_ms
    assert mute_ms(measured, target) == expected_ms


def test_before_vector_8_is_over_nothing_is_muted() -> None:
    measured = measured_after([(at, 200_000) for at in range(0, 4901, 100)], SampleRing())
    assert mute_ms(measured, 1_000_000) == 0


@pytest.mark.parametrize(
    ("rule", "rate", "window_ms", "expected_ms"),
    [(SampleRule.FROM_3_8, 1_739_130.61, 11_500, 8_500), (SampleRule.UP_TO_3_7, 0.1, 10_000, 0)],
)
def test_kafka_3_8_keeps_a_sample_by_its_last_event(
    rule: SampleRule, rate: float, window_ms: int, expected_ms: int
) -> None:
    measured = measured_after([(0, 20_000_000), (950, 1), (11_500, 1)], SampleRing(rule=rule))
    assert measured.rate == pytest.approx(rate, abs=0.01)
    assert measured.window_ms == window_ms
    assert mute_ms(measured, 1_000_000) == expected_ms


def test_a_window_of_one_sample_at_age_zero_is_one_millisecond() -> None:
    assert measured_after([(0, 5)], SampleRing(QuotaWindow(1, 1))) == Measured(5000.0, 1)


@pytest.mark.parametrize(
    ("window", "max_mute_seconds", "expected"),
    [
        pytest.param(DEFAULT, 12, 50, id="half by default"),
        pytest.param(DEFAULT, 20, 37, id="further with a longer mute"),
        pytest.param(QuotaWindow(2, 1), 12, 16, id="far with a short window"),
        pytest.param(
            QuotaWindow(11, 30),
            12,
            100,
            id="no step is safe where one sample is longer than the bound",
        ),
    ],
)
def test_the_largest_safe_step(window: QuotaWindow, max_mute_seconds: int, expected: int) -> None:
    assert largest_safe_step(100, max_mute_seconds, window) == expected


def test_predicted_mutes_are_those_of_the_formula() -> None:
    assert predicted_mute_seconds(50, 25, DEFAULT) == 12.0
    assert predicted_mute_seconds(50, 1, DEFAULT) == 540.0
    assert predicted_mute_seconds(10, 20, DEFAULT) == 0.0


@pytest.mark.parametrize(
    ("window", "expected"), [(DEFAULT, 30), (QuotaWindow(2, 1), 6), (QuotaWindow(11, 5), 150)]
)
def test_steps_are_as_far_apart_as_the_window_demands(window: QuotaWindow, expected: int) -> None:
    assert window.step_distance_seconds == expected


def longest_fetch_mute_ms(quotas: list[int], seconds_each: int) -> int:
    """A flat-out consumer on one connection (1 MB in 10 ms) while the quota goes through
    `quotas`.
    """
    ring, at_ms, longest_ms = SampleRing(), 0, 0
    for place, quota in enumerate(quotas):
        while at_ms < (place + 1) * seconds_each * 1000:
            tried = record(ring, 1_000_000, now_ms=at_ms)
            tried, measured = measure(tried, now_ms=at_ms)
            mute = mute_ms(measured, quota)
            longest_ms = max(longest_ms, mute)
            ring = ring if mute else tried
            at_ms += mute or 10
    return longest_ms


def test_a_flat_out_consumer_is_muted_for_minutes_by_a_cliff_and_for_seconds_by_safe_steps() -> (
    None
):
    mega = 1_000_000
    assert longest_fetch_mute_ms([50 * mega, mega], 60) > 400_000
    steps = [50 * mega]
    while steps[-1] > mega:
        steps.append(max(mega, largest_safe_step(steps[-1], 12, DEFAULT)))
    assert longest_fetch_mute_ms(steps, DEFAULT.step_distance_seconds) <= 13_000
