"""When messages that may wait are held, and what is announced to forwarders."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate_logic.model import BrokerLimit, BrokerLimits, Direction
from tidegate_logic.queues.shift import (
    Pace,
    Shift,
    crowded_brokers,
    next_pace,
    waiting_helps,
)
from tidegate_logic.throttle.nic_status import NicStatus, Pressure, Watched, WatchedBroker

LIMIT = 100_000_000
SHIFT = Shift(3600, 20_000_000)
NOBODY: frozenset[int] = frozenset()


def watched(
    *shares: float | None,
    pressure: Pressure | None = None,
    direction: Direction = Direction.EGRESS,
) -> Watched:
    """Brokers 1, 2 ... by their load as a share of the limit; None = not known."""
    found = []
    for broker, share in enumerate(shares, start=1):
        judged = Pressure.OVER if (share or 0) > 1 else Pressure.WITHIN
        state = Pressure.UNKNOWN if share is None else pressure or judged
        load = None if share is None else share * LIMIT
        nic = NicStatus(broker, state, LIMIT, bytes_per_second=load)
        found.append(WatchedBroker(broker, state, {direction: nic}))
    return tuple(found)


def crowded(
    seen: Watched | None, before: frozenset[int] | None = NOBODY, *, is_throttling: bool = False
) -> frozenset[int] | None:
    return crowded_brokers(seen, is_throttling=is_throttling, before=before)


def test_a_broker_over_its_limit_is_crowded_until_it_has_room_and_nobody_is_throttled() -> None:
    assert crowded(watched(1.01, 0.99)) == frozenset({1})
    assert crowded(watched(0.86, 0.86), frozenset({1})) == frozenset({1})
    assert crowded(watched(0.84, 0.84), frozenset({1})) == NOBODY
    assert crowded(watched(0.2, 0.2), frozenset({1}), is_throttling=True) == frozenset({1})


def test_only_egress_counts() -> None:
    assert crowded(watched(1.5, direction=Direction.INGRESS), frozenset({1})) == NOBODY
    assert not waiting_helps(BrokerLimits(BrokerLimit(ingress=LIMIT)))
    assert waiting_helps(BrokerLimits(BrokerLimit(egress=LIMIT)))
    assert waiting_helps(BrokerLimits(BrokerLimit(), {3: BrokerLimit(egress=LIMIT)}))


def test_an_unknown_load_holds_nothing_and_without_any_nothing_new_is_said() -> None:
    assert crowded(watched(None, 0.5), frozenset({1}), is_throttling=True) == NOBODY
    assert crowded(None, frozenset({1}), is_throttling=True) is None
    assert crowded(watched(0.9), None) == NOBODY


@given(
    shares=st.lists(st.none() | st.floats(0, 2), max_size=5),
    before=st.none() | st.frozensets(st.integers(1, 6)),
    is_throttling=st.booleans(),
)
def test_only_brokers_whose_load_is_known_are_crowded(
    shares: list[float | None], before: frozenset[int] | None, *, is_throttling: bool
) -> None:
    found = crowded(watched(*shares), before, is_throttling=is_throttling)
    assert found is not None
    known = {broker for broker, share in enumerate(shares, start=1) if share is not None}
    over = {broker for broker in known if (shares[broker - 1] or 0) > 1}
    assert over <= found <= known
    assert found <= over | (before or NOBODY)


HELD, LATE = Pace(SHIFT, frozenset({1})), Pace(SHIFT)


@pytest.mark.parametrize(
    ("announced", "brokers", "late_seconds", "expected"),
    [
        (None, frozenset({1}), 0.0, HELD),
        (None, NOBODY, 500.0, None),  # late for another reason: nothing has waited for brokers
        (HELD, NOBODY, 500.0, LATE),
        (HELD, NOBODY, None, LATE),
        (HELD, NOBODY, 2.0, None),
        (LATE, NOBODY, 2.1, LATE),
        (LATE, NOBODY, 0.0, None),
        (LATE, frozenset({1}), 0.0, HELD),
        (HELD, None, 500.0, HELD),  # nothing is known: nothing else is said
        (None, None, 500.0, None),
    ],
)
def test_what_has_waited_leaves_slowly_until_nothing_is_late(
    announced: Pace | None,
    brokers: frozenset[int] | None,
    late_seconds: float | None,
    expected: Pace | None,
) -> None:
    assert next_pace(announced, SHIFT, brokers, late_seconds) == expected


def test_a_queue_that_does_not_allow_it_does_not_wait_any_more() -> None:
    assert next_pace(HELD, None, frozenset({1}), 500.0) is None
    slower = Shift(60, 1_000_000)
    assert next_pace(HELD, slower, frozenset({1}), 0.0) == Pace(slower, frozenset({1}))
