"""How to get numbers of this very report again by hand: SQL on the tables, and the samples that the tables were made of.

Nothing is asked here: the queries are for people to put to DuckDB, with the store's files as tables of these names.
"""

from collections.abc import Iterator, Sequence

from tidegate.rollup.report.figures import BrokerFigures, ContractUse, MemberFigures, Recipe
from tidegate.rollup.report.pricing import GIB
from tidegate.rollup.report.request import ReportRequest, moment
from tidegate.rollup.schemas import FIVE_MINUTES_MS, HOUR_MS

_CALIBRATED = (
    "For each broker and 5-minute window: the gauge's samples times their intervals, added up; times the growth of the broker's own byte "
    "counter, divided by that sum over all users. The result is `bytes` of usage_5m, and `calibration` the factor."
)
_COUNTED = (
    "Ask Prometheus for the raw samples of the series below, `selector[1h]` at the end of each hour. Add up each sample less the one "
    "before it; where that is negative the counter began anew, and the sample itself counts. `increase()` extrapolates and gives another "
    "number."
)


def recipes_of(
    request: ReportRequest, members: Sequence[MemberFigures], brokers: Sequence[BrokerFigures], uses: Sequence[ContractUse]
) -> tuple[Recipe, ...]:
    """One for each kind of number, about the largest of its kind."""
    exact = [use for use in uses if not use.p95_is_bound and use.p95_rate is not None]
    fullest = sorted(brokers, key=lambda card: -card.nic_bytes)
    return (
        *(_member(request, one) for one in members[:1]),
        *(price for one in members[:1] for price in _price(request, one)),
        *(_card(request, card) for card in fullest[:1]),
        *(_p95(request, use) for use in exact[:1]),
        Recipe("a member's bytes in a 5-minute window", "", _CALIBRATED),
        Recipe("bytes of a broker's card, and its own count of client bytes", "", _COUNTED),
        *(Recipe(series.what, "", series.selector) for series in request.provenance.series),
    )


def _member(request: ReportRequest, one: MemberFigures) -> Recipe:
    client = {'"user"': one.user, "client_id": one.client_id, "tier": one.tier, "direction": one.direction}
    query = _select("sum(bytes)", _table("usage", request), [*_equal(client), *_during(request)])
    return Recipe(f"bytes of {one.member}, {one.direction}", str(one.bytes), query)


def _price(request: ReportRequest, one: MemberFigures) -> Iterator[Recipe]:
    for direction, price in request.prices.per_gib.items():
        if direction == one.direction:
            how = f"{one.bytes} / {GIB} x {price}, rounded half up to hundredths"
            yield Recipe(f"price of {one.member}, {direction}", str(one.amount), how)


def _card(request: ReportRequest, card: BrokerFigures) -> Recipe:
    which = [f"broker = {card.broker}", *_equal({"direction": card.direction}), *_during(request)]
    query = _select("sum(nic_bytes)", _table("broker", request), which)
    return Recipe(f"bytes of broker {card.broker}'s card, {card.direction}", str(card.nic_bytes), query)


def _p95(request: ReportRequest, use: ContractUse) -> Recipe:
    """quantile_disc is the nearest rank in DuckDB."""
    client = {'"user"': use.user, "client_id": use.client_id, "direction": use.direction}
    each = _select("quantile_disc(bytes, 0.95) AS q", "usage_5m", [*_equal(client), "samples > 0", *_during(request)])
    query = " ".join(("SELECT", f"max(q) / {FIVE_MINUTES_MS // 1000}.0", "FROM", f"({each} GROUP BY broker)"))
    return Recipe(f"p95 of {use.member}, {use.direction}, in bytes per second", str(use.p95_rate), query)


def _table(name: str, request: ReportRequest) -> str:
    return f"{name}_{'1h' if request.tables.grain_ms == HOUR_MS else '1d'}"


def _select(what: str, table: str, conditions: Sequence[str]) -> str:
    return " ".join(("SELECT", what, "FROM", table, "WHERE", " AND ".join(conditions)))


def _equal(columns: dict[str, str]) -> Iterator[str]:
    """Whatever is in the texts."""
    for column, value in columns.items():
        text = value.replace("'", "''")
        yield f"{column} = '{text}'"


def _during(request: ReportRequest) -> tuple[str, str]:
    start, end = (f"TIMESTAMPTZ '{moment(at_ms)}'" for at_ms in (request.start_ms, request.end_ms))
    return f"window_start >= {start}", f"window_start < {end}"
