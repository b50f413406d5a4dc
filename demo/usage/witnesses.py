"""Whoever saw the run's traffic without the tables: brokers' counters, consumers, and the quotas in ZooKeeper. Nothing here judges."""

from collections.abc import Mapping
from dataclasses import dataclass

from demo.tide.outcome import TideOutcome
from demo.tide.script import BUSINESSES
from demo.usage.counters import counted_by_brokers
from demo.usage.held_back import held_back_by_quotas
from demo.usage_outcome import Way
from lab.prometheus import PrometheusLab


@dataclass(frozen=True, slots=True)
class Witnesses:
    """All until the tables' end, in bytes.

    `counted` are the brokers' own counters by broker and direction, `arrived` what each user's consumer got, and `held_back`, by level,
    what the quotas in ZooKeeper kept from it in experiment 2.
    """

    counted: Mapping[Way, int]
    arrived: Mapping[str, float]
    held_back: Mapping[str, float]


def witnesses(prometheus: PrometheusLab, tide: TideOutcome, *, until_ms: int, longest_seconds: int) -> Witnesses:
    """`longest_seconds` reach back to before the first byte. Episodes that were left out, and the published way, moved bytes as well."""
    playings = [one for one in (tide.left_out, tide.gate, tide.cliff) if one is not None]
    by_tidegate = [one for one in (tide.left_out, tide.gate) if one is not None]
    return Witnesses(
        counted=counted_by_brokers(prometheus, until_ms=until_ms, longest_seconds=longest_seconds),
        arrived={one.user: sum(each.arrived[one.level].delivered_until(until_ms / 1000) for each in playings) for one in BUSINESSES},
        held_back={one.level: sum(held_back_by_quotas(each, one.level) for each in by_tidegate) for one in BUSINESSES},
    )
