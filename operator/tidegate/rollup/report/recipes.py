"""How to reproduce numbers of a report by hand: SQL on the usage tables, and selectors of the series in Prometheus.

No query is run here. The SQL is for DuckDB, with the store's files as tables of these names.
"""

from collections.abc import Iterator, Mapping, Sequence

from tidegate.prometheus.settings import MetricsSettings
from tidegate.rollup.ingest import catalogue
from tidegate.rollup.report.figures import BrokerFigures, ContractUse, MemberFigures, Recipe
from tidegate.rollup.report.request import GIB, ReportRequest, SourceSeries, moment
from tidegate.rollup.samples import selector_text
from tidegate.rollup.schemas import FIVE_MINUTES_MS, HOUR_MS

_CALIBRATED = (
    "For each broker and 5-minute window: the sum of the gauge's samples times their intervals, times the growth of the broker's own byte "
    "counter, divided by that sum over all users. The result is `bytes` of usage_5m, and `calibration` the factor."
)
_COUNTED = (
    "Query Prometheus for the raw samples of the series below, `selector[1h]` at the end of each hour. Sum up each sample less the one "
    "before it; where that is negative the counter was reset, and the sample itself counts. `increase()` extrapolates and gives another "
    "number."
)


def recipes_of(
    request: ReportRequest, members: Sequence[MemberFigures], brokers: Sequence[BrokerFigures], uses: Sequence[ContractUse]
) -> tuple[Recipe, ...]:
    """One for each kind of number, about the largest of its kind."""
    exact = [use for use in uses if not use.p95_is_bound and use.p95_rate is not None]
    fullest = sorted(brokers, key=lambda nic: -nic.nic_bytes)
    return (
        *(_member(request, one) for one in members[:1]),
        *(price for one in members[:1] for price in _price(request, one)),
        *(_nic(request, nic) for nic in fullest[:1]),
        *(_p95(request, use) for use in exact[:1]),
        Recipe("a member's bytes in a 5-minute window", "", _CALIBRATED),
        Recipe("bytes of a broker's NIC, and the broker's own count of client bytes", "", _COUNTED),
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


def _nic(request: ReportRequest, nic: BrokerFigures) -> Recipe:
    which = [f"broker = {nic.broker}", *_equal({"direction": nic.direction}), *_during(request)]
    query = _select("sum(nic_bytes)", _table("broker", request), which)
    return Recipe(f"bytes of broker {nic.broker}'s NIC, {nic.direction}", str(nic.nic_bytes), query)


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


def _equal(columns: Mapping[str, str]) -> Iterator[str]:
    for column, value in columns.items():
        text = value.replace("'", "''")
        yield f"{column} = '{text}'"


def _during(request: ReportRequest) -> tuple[str, str]:
    start, end = (f"TIMESTAMPTZ '{moment(at_ms)}'" for at_ms in (request.start_ms, request.end_ms))
    return f"window_start >= {start}", f"window_start < {end}"


def source_series(settings: MetricsSettings) -> Iterator[SourceSeries]:
    """For each direction the broker's own count, its NIC, and the gauges of clients."""
    for direction, one in catalogue(settings).items():
        for what, selection in (
            ("broker's own count", one.client_bytes),
            ("replication", one.replication_bytes),
            ("NIC", one.nics),
            ("rates of clients", one.rates),
            ("throttle times of clients", one.throttle_times),
        ):
            if selection is not None:
                yield SourceSeries(f"{direction}, {what}", selector_text(selection))
