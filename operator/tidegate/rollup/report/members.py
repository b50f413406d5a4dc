"""What each member used: its lines of the bill, and who moves most."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate

import pyarrow as pa

from tidegate.rollup.report.figures import MemberFigures, Talker
from tidegate.rollup.report.grouping import Row, Wanted, grouped
from tidegate.rollup.report.pricing import amount_of
from tidegate.rollup.report.registry import Registry
from tidegate.rollup.report.request import ClientKey, Prices

CLIENT = ("tier", "user", "client_id")
_TALKERS = 10
_WANTED = Wanted(sums=("bytes", "throttled_seconds", "over_contract_seconds", "deferred_bytes"), means=("coverage",), distinct=("broker",))


def client_of(row: Row) -> ClientKey:
    return ClientKey(row["tier"], row["user"], row["client_id"])


def member_figures(usage: pa.Table, registry: Registry, prices: Prices) -> tuple[MemberFigures, ...]:
    """A line for each member and direction, most bytes first. A share is of the direction's bytes, None where there are none."""
    rows = list(grouped(usage, (*CLIENT, "direction"), _WANTED))
    totals: defaultdict[str, int] = defaultdict(int)
    for row in rows:
        totals[row["direction"]] += row["bytes"]
    figures = [_figures(row, totals[row["direction"]], registry, prices=prices) for row in rows]
    return tuple(sorted(figures, key=lambda one: (-one.bytes, one.tier, one.user, one.client_id, one.direction)))


def _figures(row: Row, total_bytes: int, registry: Registry, *, prices: Prices) -> MemberFigures:
    client = client_of(row)
    return MemberFigures(
        member=registry.name(client),
        tier=client.tier,
        level=registry.level(client.tier),
        user=client.user,
        client_id=client.client_id,
        direction=row["direction"],
        brokers=row["broker"],
        bytes=row["bytes"],
        share=share_of(row["bytes"], total_bytes),
        amount=amount_of(prices, row["direction"], row["bytes"]),
        throttled_seconds=row["throttled_seconds"],
        over_contract_seconds=row["over_contract_seconds"],
        deferred_bytes=row["deferred_bytes"],
        coverage=row["coverage"],
    )


def share_of(part: float, whole: float | None) -> float | None:
    """The fraction; None where there is no whole."""
    return part / whole if whole else None


def top_talkers(members: Sequence[MemberFigures]) -> tuple[Talker, ...]:
    """The ten who move most in both directions together, with what they and those before them move of everything."""
    moved: defaultdict[tuple[str, str, str, str], dict[str, int]] = defaultdict(lambda: {"fetch": 0, "produce": 0})
    for one in members:
        moved[one.member, one.tier, one.user, one.client_id][one.direction] += one.bytes
    ranked = sorted(moved.items(), key=lambda entry: (-sum(entry[1].values()), entry[0]))
    return tuple(_talkers(ranked))


def _talkers(ranked: Sequence[tuple[tuple[str, str, str, str], dict[str, int]]]) -> Iterator[Talker]:
    counts = [sum(ways.values()) for _, ways in ranked]
    total, running = sum(counts), list(accumulate(counts))
    if not total:
        return
    for place, (who, ways) in enumerate(ranked[:_TALKERS]):
        yield Talker(place + 1, *who, ways["fetch"], ways["produce"], counts[place], counts[place] / total, running[place] / total)
