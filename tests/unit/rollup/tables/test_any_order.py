"""Whatever runs do, in whatever order, cut short or in each other's way: the tables have what was
published last.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.rollup.tables.bucket import Bucket, Killed, store_in
from tests.unit.rollup.tables.usage import DAY, as_set, put, usage_5m
from tidegate.errors import Incomplete
from tidegate.rollup.schemas import DAY_MS, HOUR_MS
from tidegate.rollup.tables.format import UsageDamaged
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.upkeep import Retention, Upkeep, compact_days, keep_up

HOURS, SEEDS = range(3), range(3)
ROWS = {
    (hour, seed): usage_5m(DAY + hour * HOUR_MS, seed=seed, windows=1, brokers=[1])
    for hour in HOURS
    for seed in SEEDS
}

publishing = st.tuples(st.just("publish"), st.sampled_from(HOURS), st.sampled_from(SEEDS))
keeping = st.tuples(st.sampled_from(["compact", "keep up"]), st.just(0), st.just(0))
cuts = st.none() | st.integers(0, 40)
steps = st.tuples(
    publishing | keeping,
    cuts,
    st.none() | st.tuples(st.integers(0, 30), publishing),
    st.integers(0, 30),
)


class SimulatedStore:
    """A store, what must be in it, and the time of day."""

    def __init__(self) -> None:
        self.bucket, self.expected, self.runs = Bucket(), dict[int, int](), 0
        self.bucket.now_ms = DAY + DAY_MS

    @property
    def store(self) -> UsageStore:
        return store_in(self.bucket)

    def act(self, action: tuple[str, int, int]) -> None:
        """A run of its own; `expected` changes with its last write."""
        name, hour, seed = action
        self.runs += 1
        actions: dict[str, Callable[[], Any]] = {
            "publish": lambda: put(
                self.store,
                f"run-{self.runs}",
                "usage_5m",
                ROWS[hour, seed],
                start_ms=DAY + hour * HOUR_MS,
                now_ms=self.bucket.now_ms,
            ),
            "compact": lambda: compact_days(
                self.store,
                "usage_5m",
                before_ms=DAY + DAY_MS,
                run_id=f"run-{self.runs}",
                now_ms=self.bucket.now_ms,
            ),
            "keep up": lambda: keep_up(
                self.store, Retention(), run_id=f"run-{self.runs}", now_ms=self.bucket.now_ms
            ),
        }
        actions[name]()
        if name == "publish":
            self.expected[hour] = seed

    def assert_as_expected(self) -> None:
        rows = as_set(
            pa.concat_tables(
                [ROWS[0, 0].slice(0, 0), *(ROWS[each] for each in self.expected.items())]
            )
        )
        assert as_set(self.store.rows("usage_5m")) == rows
        with suppress(Incomplete):
            assert as_set(self._by_files()) == rows

    def _by_files(self) -> pa.Table:
        """What an engine reads that knows nothing but the names of files."""
        paths = [address.removeprefix("s3://") for address in self.store.files("usage_5m")]
        return pa.concat_tables(
            [
                ROWS[0, 0].slice(0, 0),
                *(pq.read_table(pa.BufferReader(self.bucket.objects[path][0])) for path in paths),
            ]
        )


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, min_size=2, max_size=8))
def test_the_tables_have_what_was_published_last_whatever_happens_in_between(
    history: list[tuple[Any, ...]],
) -> None:
    """A step is a run, perhaps killed at an operation, perhaps with another whole run in the middle
    of it; then some hours pass.
    """
    simulated = SimulatedStore()
    for action, cut, other, hours in history:
        with (
            suppress(Killed, UsageDamaged),
            simulated.bucket.failing(10_000 if cut is None else cut, Killed),
        ):
            if other is not None and cut is None:
                simulated.bucket.before(other[0], partial(simulated.act, other[1]))
            simulated.act(action)
        simulated.bucket.calm()
        simulated.assert_as_expected()
        simulated.bucket.now_ms += hours * HOUR_MS
    simulated.bucket.now_ms += 3 * HOUR_MS
    simulated.act(("keep up", 0, 0))
    simulated.assert_as_expected()
    assert len(simulated.store.files("usage_5m")) <= 1


def test_upkeep_reports_what_it_did() -> None:
    simulated = SimulatedStore()
    for hour in HOURS:
        simulated.act(("publish", hour, 0))
    simulated.bucket.now_ms += 3 * HOUR_MS
    done: Upkeep = keep_up(simulated.store, Retention(), run_id="u", now_ms=simulated.bucket.now_ms)
    assert (done.days, done.retired, done.swept.files) == (1, 0, 0)
    simulated.bucket.now_ms += 40 * DAY_MS
    done = keep_up(simulated.store, Retention(), run_id="v", now_ms=simulated.bucket.now_ms)
    assert (done.days, done.retired) == (0, 4)
    assert done.swept.files == 0  # those who began to read may go on
    simulated.bucket.now_ms += 2 * DAY_MS
    assert (
        keep_up(
            simulated.store, Retention(), run_id="w", now_ms=simulated.bucket.now_ms
        ).swept.files
        == 4
    )
    assert simulated.bucket.objects == {}
