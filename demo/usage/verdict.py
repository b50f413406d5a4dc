"""The bounds of the demo's usage: tables against whoever saw the same traffic without them. What nobody told is missed."""

from collections.abc import Iterator

from demo.tide.script import BUSINESSES, LOWERED
from demo.usage.commands import Done
from demo.usage.witnesses import Witnesses
from demo.usage_outcome import StoredUsage
from demo.verdict import Check, exact_check

USAGE = "Usage: the demo's own traffic, rolled up"
# How far a throttled client is off in five minutes at the worst, as docs/usage.md states it.
SHARE_PERCENT = 6
# The rate before the cut is one reading of a gauge, a throttled client's mean is told up to 4 % too high (docs/usage.md), and Kafka's delay
# some seconds too late and too long: together less than a tenth of what is held back.
HELD_BACK_PERCENT = 10


def usage_checks(failed: Done | None, stored: StoredUsage | None, seen: Witnesses | None) -> list[Check]:
    """Every bound, exact ones first. `failed` is the command that ended the rest."""
    return [
        exact_check(USAGE, "rollup run, verify and report: exit code", unit="", expected=0, measured=failed.exit_code if failed else 0),
        exact_check(USAGE, "bytes in which tables and brokers' counters differ", unit="", expected=0, measured=_apart(stored, seen)),
        *_share_checks(stored, seen),
        *_held_back_checks(stored, seen),
    ]


def _apart(stored: StoredUsage | None, seen: Witnesses | None) -> int | None:
    """Over all brokers and directions, so that nothing makes up for anything."""
    if stored is None or seen is None:
        return None
    ways = stored.by_broker.keys() | seen.counted.keys()
    return sum(abs(stored.by_broker.get(way, 0) - seen.counted.get(way, 0)) for way in ways)


def _share_checks(stored: StoredUsage | None, seen: Witnesses | None) -> Iterator[Check]:
    """Shares, because brokers send consumers more than these hand on; 1.6 % of all reads when this was first played."""
    arrived = {} if seen is None else seen.arrived
    told = {one.user: used.moved_bytes for one in BUSINESSES if stored is not None and (used := stored.user(one.user, "fetch"))}
    for business in BUSINESSES:
        name = f"{business.user} ({business.level}), its share of all reads"
        expected = 100 * arrived.get(business.user, 0.0) / (sum(arrived.values()) or 1.0)
        measured = 100 * told[business.user] / sum(told.values()) if business.user in told and seen is not None else None
        yield _within(name, unit="%", expected=expected, measured=measured, percent=SHARE_PERCENT)


def _held_back_checks(stored: StoredUsage | None, seen: Witnesses | None) -> Iterator[Check]:
    """Against the quotas that stood in ZooKeeper; and L0, which no quota held, has nothing."""
    for business in (*LOWERED, BUSINESSES[0]):
        used = None if stored is None else stored.user(business.user, "fetch")
        measured = None if used is None or seen is None else used.held_back_bytes / 1e6
        expected = 0.0 if seen is None else seen.held_back[business.level] / 1e6
        name = f"held back from {business.level} in experiment 2"
        if business in LOWERED:
            yield _within(name, unit="MB", expected=expected, measured=measured, percent=HELD_BACK_PERCENT)
        else:
            yield exact_check(USAGE, name, unit="MB", expected=0, measured=measured)


def _within(name: str, *, unit: str, expected: float, measured: float | None, percent: int) -> Check:
    expected = round(expected, 2)
    return Check(
        about=USAGE,
        name=name,
        unit=unit,
        expected=expected,
        measured=measured,
        lowest=expected * (1 - percent / 100),
        highest=expected * (1 + percent / 100),
        tolerance=f"-{percent} % / +{percent} %",
    )
