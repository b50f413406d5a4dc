"""Which series of Prometheus tables are made of, as one asks for them by hand."""

from collections.abc import Iterator

from tidegate.prometheus.settings import MetricsSettings
from tidegate.rollup.ingest import catalogue
from tidegate.rollup.report.request import SourceSeries
from tidegate.rollup.samples import Selection

_MATCHERS = ("=", "=~", "!~")


def source_series(settings: MetricsSettings) -> Iterator[SourceSeries]:
    """For each direction, the broker's own count, its card, and the gauges of clients."""
    for direction, one in catalogue(settings).items():
        for what, selection in (
            ("broker's own count", one.client_bytes),
            ("replication", one.replication_bytes),
            ("network card", one.cards),
            ("rates of clients", one.rates),
            ("throttle times of clients", one.throttle_times),
        ):
            if selection is not None:
                yield SourceSeries(f"{direction}, {what}", selector_text(selection))


def selector_text(selection: Selection) -> str:
    """The selection in PromQL."""
    kinds = zip(_MATCHERS, (selection.equal, selection.matching, selection.excluding), strict=True)
    matchers = [f"{name}{sign}{_quoted(value)}" for sign, told in kinds for name, value in sorted(told.items())]
    return f"{selection.metric}{{{','.join(matchers)}}}" if matchers else selection.metric


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
