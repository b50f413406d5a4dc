"""Figures of members out of usage tables: what each can be checked by hand, and time of which
nothing is known counts as such.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.rollup.tables.bucket import Bucket, store_in
from tests.unit.rollup.tables.usage import DAY, put
from tidegate.rollup.member_usage import member_usage
from tidegate.rollup.schemas import DAY_MS, FIVE_MINUTES_MS, HOUR_MS, TABLES
from tidegate.rollup.tables.store import UsageStore
from tidegate_logic.model import (
    Default,
    DirectionUsage,
    Entity,
    Level,
    Member,
    QuotaKey,
    Tier,
)

FETCH, PRODUCE = QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.PRODUCER_BYTE_RATE
GOLD = Tier(
    "streaming/gold",
    Level.L0,
    (Member("alice", Entity("alice")), Member("etl", Entity("etl", "loader"))),
)
Usages = Iterable[
    tuple[int, int, str, str, str, int]
]  # window, broker, user, client id, direction, bytes/s


@pytest.fixture
def store() -> UsageStore:
    return store_in(Bucket())


def publish(
    store: UsageStore, usages: Usages, *, hours: Sequence[int] = range(24), coverage: float = 1.0
) -> None:
    """Whole hours of five-minute rows, with nothing in those that are not named."""
    rows: list[dict[str, Any]] = [
        {
            "window_start": DAY + window * FIVE_MINUTES_MS,
            "broker": broker,
            "user": user,
            "client_id": client_id,
            "direction": direction,
            "bytes": rate * 300,
            "peak_rate": 0.0,
            "throttled_seconds": 0.0,
            "over_contract_seconds": 0.0,
            "deferred_bytes": 0,
            "samples": 20,
            "coverage": coverage,
            "calibration": 1.0,
        }
        for window, broker, user, client_id, direction, rate in usages
    ]
    for hour in hours:
        at_ms = DAY + hour * HOUR_MS
        own = [row for row in rows if at_ms <= row["window_start"] < at_ms + HOUR_MS]
        put(
            store,
            "a",
            "usage_5m",
            pa.Table.from_pylist(own, TABLES["usage_5m"].schema),
            start_ms=at_ms,
            now_ms=at_ms,
        )


def figures(
    store: UsageStore, *tiers: Tier, days: int = 1
) -> Mapping[tuple[Entity, QuotaKey], DirectionUsage]:
    usage = member_usage(store, tiers or (GOLD,), DAY + DAY_MS - days * DAY_MS, DAY + DAY_MS)
    assert (usage.days, usage.until_seconds) == (days, (DAY + DAY_MS) / 1000)
    return usage.figures


def test_of_a_day_99_percent_are_all_but_the_two_highest_windows(store: UsageStore) -> None:
    publish(store, [(window, 1, "alice", "", "fetch", 1000 + window) for window in range(288)])
    assert figures(store) == {(Entity("alice"), FETCH): DirectionUsage(1285.0, 1285.0, 1, 1.0, 0.0)}


def test_brokers_are_added_up_within_a_window_and_the_busiest_is_distinguished(
    store: UsageStore,
) -> None:
    publish(
        store,
        [
            (window, broker, "alice", "", "fetch", broker * 100)
            for window in range(288)
            for broker in (1, 2, 3)
        ],
    )
    assert figures(store)[Entity("alice"), FETCH] == DirectionUsage(600.0, 300.0, 3, 1.0, 0.0)


def test_directions_and_clients_are_figures_of_their_own_and_strangers_are_none(
    store: UsageStore,
) -> None:
    rows = [
        ("alice", "", "fetch", 10),
        ("alice", "", "produce", 20),
        ("etl", "loader", "fetch", 30),
        ("etl", "", "fetch", 40),
        ("x", "", "fetch", 50),
    ]
    publish(store, [(window, 1, *one) for window in range(288) for one in rows])
    found = {key: usage.p99_total for key, usage in figures(store).items()}
    assert found == {
        (Entity("alice"), FETCH): 10.0,
        (Entity("alice"), PRODUCE): 20.0,
        (Entity("etl", "loader"), FETCH): 30.0,
    }


def test_a_window_without_a_row_is_one_in_which_nothing_moved(store: UsageStore) -> None:
    publish(store, [(window, 1, "alice", "", "fetch", 7) for window in (0, 100)])
    assert figures(store)[Entity("alice"), FETCH].p99_total == 0.0
    publish(store, [(window, 1, "alice", "", "fetch", 7) for window in (0, 100, 200)])
    assert figures(store)[Entity("alice"), FETCH].p99_total == 7.0


def test_what_is_not_published_or_not_sampled_is_not_covered(store: UsageStore) -> None:
    publish(
        store,
        [(window, 1, "alice", "", "fetch", 7) for window in range(144)],
        hours=range(12),
        coverage=0.5,
    )
    found = figures(store, days=2)[Entity("alice"), FETCH]
    assert (found.p99_total, found.coverage) == (7.0, 0.125)


def test_time_of_the_tier_below_its_contract_is_the_share_that_is_throttled(
    store: UsageStore,
) -> None:
    publish(
        store,
        [(window, 1, "alice", "", way, 7) for window in range(288) for way in ("fetch", "produce")],
    )
    seconds = {
        "seconds_contract": 0.0,
        "seconds_stepping": 600.0,
        "seconds_throttled": 3000.0,
        "seconds_relaxing": 600.0,
    }
    empty = {
        "bytes": 0,
        "peak_rate": 0.0,
        "throttled_seconds": 0.0,
        "over_contract_seconds": 0.0,
        "deferred_bytes": 0,
    }
    row = {
        "window_start": DAY,
        "tier": "streaming/gold",
        "direction": "fetch",
        **empty,
        **seconds,
        "throttle_episodes": 1,
    }
    put(
        store,
        "a",
        "tier_1h",
        pa.Table.from_pylist([row], TABLES["tier_1h"].schema),
        start_ms=DAY,
        now_ms=DAY,
    )
    found = figures(store)
    assert (
        found[Entity("alice"), FETCH].throttled_share,
        found[Entity("alice"), PRODUCE].throttled_share,
    ) == (1 / 24, 0.0)


@pytest.mark.parametrize(
    "tiers", [(), (Tier("streaming/all", Level.L3, (Member("all", Entity(Default.DEFAULT)),)),)]
)
def test_without_a_member_that_tables_name_there_are_no_figures(
    store: UsageStore, tiers: tuple[Tier, ...]
) -> None:
    publish(store, [(0, 1, "alice", "", "fetch", 7)])
    assert member_usage(store, tiers, DAY, DAY + DAY_MS).figures == {}


def test_an_empty_store_has_no_figures(store: UsageStore) -> None:
    assert figures(store) == {}
