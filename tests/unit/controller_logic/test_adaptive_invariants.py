"""What must hold of adaptive scaling whatever leaders, rates and memories are."""

from math import inf, nan

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.controller_logic.uneven_brokers import IN, USER, adapted, rate_of
from tidegate_logic.contracts.adaptive import (
    Adaptation,
    AdaptiveInput,
    AdaptiveRate,
    Measurement,
    level_of,
)
from tidegate_logic.contracts.leader_scaling import ADAPTIVE_SHARES
from tidegate_logic.model import ClientRate, QuotaWindow, Readings

NOW = 1_000_000.0
leaders = st.dictionaries(st.integers(1, 6), st.integers(1, 12), min_size=1, max_size=6)
shares = st.integers(0, ADAPTIVE_SHARES)
numbers = st.floats(0, 4e8) | st.sampled_from([nan, inf, -1.0])
throttle_times = st.none() | st.floats(0, 20_000)


@st.composite
def rates(draw: st.DrawFn) -> AdaptiveRate:
    led = draw(leaders)
    made = rate_of(led, draw(st.integers(1, 50)))
    standing = draw(st.none() | shares.map(made.value_at) | st.integers(1024, 10**9))
    return rate_of(led, made.promised // 1_000_000, standing, throttled=draw(st.booleans()))


@st.composite
def questions(draw: st.DrawFn) -> tuple[AdaptiveInput, dict[object, Adaptation]]:
    """One rate with anything remembered of it, and anything read."""
    rate = draw(rates())
    reported = {
        (USER, broker, IN): ClientRate(
            NOW - draw(st.sampled_from([0, 20, 60])), draw(numbers), draw(throttle_times)
        )
        for broker in rate.leads
    }
    missing = draw(st.sets(st.sampled_from(sorted(rate.leads))))
    clients = {key: value for key, value in reported.items() if key[1] not in missing}
    window = draw(st.sampled_from([QuotaWindow(), QuotaWindow(2, 1), QuotaWindow(11, 5)]))
    given = AdaptiveInput(
        NOW, Readings(NOW, 15.0, clients=clients), (rate,), window, draw(st.integers(0, 60))
    )
    return given, draw(st.just({}) | adaptations(rate).map(lambda known: {rate.key: known}))


def adaptations(rate: AdaptiveRate) -> st.SearchStrategy[Adaptation]:
    sighting = st.builds(
        Measurement,
        st.floats(NOW - 60, NOW),
        st.fixed_dictionaries({broker: st.floats(0, rate.in_force or 1) for broker in rate.leads}),
        st.frozensets(st.sampled_from(sorted(rate.leads))),
    )
    seen = st.lists(sighting, max_size=4).map(
        lambda found: tuple(sorted(found, key=lambda one: one.at_seconds))
    )
    since, moved = st.floats(NOW - 1000, NOW + 1000), st.none() | st.floats(NOW - 1000, NOW + 1000)
    return st.builds(Adaptation, shares, st.just(rate.scene), since, seen, moved, st.booleans())


@given(questions())
@settings(deadline=None)
def test_a_value_is_never_below_mean_nor_above_max(
    question: tuple[AdaptiveInput, dict[object, Adaptation]],
) -> None:
    given_, memory = question
    (rate,) = given_.rates
    known = adapted(given_, memory)[rate.key]  # type: ignore[arg-type]
    assert 0 <= known.share <= ADAPTIVE_SHARES
    assert rate.lowest <= rate.value_at(known.share) <= rate.highest


@given(questions())
@settings(deadline=None)
def test_a_share_moves_only_by_what_is_worth_a_write_and_stands_still_on_less_than_full_knowledge(
    question: tuple[AdaptiveInput, dict[object, Adaptation]],
) -> None:
    given_, memory = question
    (rate,) = given_.rates
    known = adapted(given_, memory)[rate.key]  # type: ignore[arg-type]
    before = memory.get(rate.key)
    if before is None or known.share == before.share:
        return
    assert rate.in_force is not None
    assert not rate.throttled
    usable = {
        broker
        for (_, broker, _), read in given_.readings.clients.items()
        if read.at_seconds >= NOW - 45
    }
    assert usable >= rate.leads
    assert (
        abs(rate.value_at(known.share) - rate.in_force) * 100
        >= (given_.minimum_change_percent - 2) * rate.in_force
    )


@given(leaders, shares, st.data())
@settings(deadline=None)
def test_more_traffic_never_means_a_higher_quota(
    led: dict[int, int], share: int, data: st.DataObject
) -> None:
    """Of two pictures in which the quota limits clients on the same brokers, the one with the
    larger rates ends no higher.
    """
    rate = rate_of(led, in_force=rate_of(led).value_at(share))
    in_force = float(rate.in_force or 0)
    throttled = data.draw(st.frozensets(st.sampled_from(sorted(led))))
    lower, higher = {}, {}
    for broker in led:
        bounds = data.draw(st.sampled_from([(0.0, 0.39), (0.8, 1.0)]))
        lower[broker] = data.draw(st.floats(bounds[0] * in_force, bounds[1] * in_force))
        higher[broker] = data.draw(st.floats(lower[broker], bounds[1] * in_force))
    assert moved(rate, share, higher, throttled) <= moved(rate, share, lower, throttled)


def moved(rate: AdaptiveRate, share: int, seen: dict[int, float], limited: frozenset[int]) -> int:
    """The share after two sightings of this picture; the newest reading repeats the older time and
    so adds none.
    """
    known = Adaptation(
        share,
        rate.scene,
        NOW - 100,
        (Measurement(NOW - 10, seen, limited), Measurement(NOW, seen, limited)),
    )
    clients = {(USER, broker, IN): ClientRate(NOW, value, 0.0) for broker, value in seen.items()}
    return adapted(
        AdaptiveInput(NOW, Readings(NOW, 15.0, clients=clients), (rate,)), {rate.key: known}
    )[rate.key].share


@given(st.lists(st.floats(0, 1e9), min_size=1), st.floats(0, 1e9))
def test_under_the_level_rates_never_add_up_to_more_than_the_total(
    found: list[float], total: float
) -> None:
    cap = level_of(found, total)
    assert sum(min(rate, cap) for rate in found) <= total * (1 + 1e-9) + 1e-6
