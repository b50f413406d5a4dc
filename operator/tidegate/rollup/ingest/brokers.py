"""Which brokers a run has to ask about: whoever told any counter in its hours, also one that died before they ended."""

from tidegate.prometheus.queries import broker_of, identity_of
from tidegate.prometheus.settings import MetricsSettings
from tidegate.rollup.ingest.catalogue import catalogue
from tidegate.rollup.samples import Transport


def brokers_between(transport: Transport, settings: MetricsSettings, start_ms: int, end_ms: int) -> tuple[int, ...]:
    """Ids in rising order; empty where Prometheus had nothing of any broker. Raises tidegate.errors."""
    name = broker_of(identity_of(settings))
    selections = [one for each in catalogue(settings).values() for one in (each.client_bytes, each.cards) if one is not None]
    labels = (series.labels for selection in selections for series in transport.read(selection, start_ms, end_ms))
    return tuple(sorted({broker for each in labels if (broker := name(each)) is not None}))
