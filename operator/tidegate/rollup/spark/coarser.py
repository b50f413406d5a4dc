"""What hours and days are made of: which finer rows, whose tiers, and which states.

Hours take tiers as they are when the run is made. Days take everything that is no sum of bytes from their own hours, so that whoever
changed tiers at noon is in both, and a day says of states what its hours said.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

from tidegate.rollup.schemas import HOUR_MS
from tidegate.rollup.spark.frames import frame_of
from tidegate.rollup.spark.sums import broker_sums, state_sums, tier_sums, tiers_by_hour, usage_sums
from tidegate.rollup.terms.policy import PolicyMember
from tidegate.rollup.terms.tier_states import TierStates

_MEMBERS = "user string, client_id string, tier string"
_STATES = (
    "window_start timestamp, tier string, direction string, throttle_episodes int, "
    "seconds_contract double, seconds_stepping double, seconds_throttled double, seconds_relaxing double"
)
Rows = Callable[[], DataFrame]


@dataclass(frozen=True, slots=True)
class Coarser:
    """`states` has what is known of tiers by the hours of the run."""

    spark: SparkSession
    store_url: str
    members: Sequence[PolicyMember]
    states: Mapping[int, Sequence[TierStates]]

    def tables(self, starts: range) -> Iterator[tuple[str, Rows]]:
        """The tables of neighbouring windows, each with how to make its rows once those before it are published."""
        span_ms, is_hours = starts.step, starts.step == HOUR_MS
        suffix = "1h" if is_hours else "1d"

        def finer(table: str) -> DataFrame:
            return frame_of(self.spark, self.store_url, table, starts[0], starts[-1] + span_ms)

        def tiers() -> DataFrame:
            return self._members() if is_hours else tiers_by_hour(finer("usage_1h"))

        def states() -> DataFrame:
            return self._states(starts) if is_hours else state_sums(finer("tier_1h"), window_ms=span_ms)

        yield f"usage_{suffix}", lambda: usage_sums(finer("usage_5m"), tiers(), window_ms=span_ms)
        yield f"broker_{suffix}", lambda: broker_sums(finer("broker_5m"), window_ms=span_ms)
        yield f"tier_{suffix}", lambda: tier_sums(finer("usage_5m"), tiers(), states(), window_ms=span_ms)

    def _members(self) -> DataFrame:
        return self.spark.createDataFrame([(*one.client, one.tier.key) for one in self.members], _MEMBERS)

    def _states(self, starts: range) -> DataFrame:
        rows = [(datetime.fromtimestamp(at / 1000, UTC), *astuple(one)) for at in starts for one in self.states.get(at, ())]
        return self.spark.createDataFrame(rows, _STATES)
