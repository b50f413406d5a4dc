"""One task from end to end: read, fold, stage. What it gives back is a small record of each file that it left in the staging."""

from tidegate.rollup.fold.broker import fold_broker
from tidegate.rollup.fold.columns import broker_table, usage_table
from tidegate.rollup.fold.windows import Windows, reading_of
from tidegate.rollup.ingest.broker_history import read_broker
from tidegate.rollup.ingest.work import IngestOrder, WorkItem
from tidegate.rollup.samples import Transport
from tidegate.rollup.tables.staging import StagedFile, stage
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.transport.ladder import open_rung


def ingest(order: IngestOrder, item: WorkItem) -> list[StagedFile]:
    """Carry the item out with a connection of its own. Raises tidegate.errors; what was staged until then is nobody's."""
    transport = open_rung(order.transport, order.history)
    try:
        return ingest_by(transport, order, item)
    finally:
        transport.close()


def ingest_by(transport: Transport, order: IngestOrder, item: WorkItem) -> list[StagedFile]:
    """The same through a connection that is open."""
    windows = Windows(item.start_ms, item.end_ms)
    interval_ms = order.metrics.scrape_interval_seconds * 1000
    samples = read_broker(transport, order.metrics, item.broker, reading_of(windows, interval_ms))
    fold = fold_broker(item.broker, samples, windows, terms=order.terms.get((item.start_ms, item.broker)), interval_ms=interval_ms)
    store = UsageStore.at(order.store_url)
    tables = {"usage_5m": usage_table(fold), "broker_5m": broker_table(fold)}
    return [file for table, rows in tables.items() for file in stage(store, order.run_id, table, rows, part=item.part)]
