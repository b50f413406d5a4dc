"""For notebooks: Prometheus as a source of Spark's, and the usage tables of a store as frames."""

from collections.abc import Iterator, Mapping

from pyspark.sql import DataFrame, SparkSession

from tidegate.rollup.schemas import TABLES
from tidegate.rollup.spark.frames import frame_of
from tidegate.rollup.spark.prometheus_source import PrometheusSource
from tidegate.rollup.tables.store import UsageStore


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("tidegate.prometheus")` known to the session; a second time changes nothing."""
    spark.dataSource.register(PrometheusSource)


def usage_tables(spark: SparkSession, store: str) -> Mapping[str, DataFrame]:
    """Each usage table by its name, of the store at this address or path. Nothing is read before a table is taken.

    Raises InvalidResource for another address.
    """
    return _UsageTables(spark, UsageStore.at(store), store)


class _UsageTables(Mapping[str, DataFrame]):
    """A frame has the files that manifests name when it is taken, with every row once: a folder also has files that count no more."""

    def __init__(self, spark: SparkSession, store: UsageStore, url: str) -> None:
        self._spark = spark
        self._store = store
        self._url = url

    def __getitem__(self, table: str) -> DataFrame:
        if table not in TABLES:
            raise KeyError(table)
        windows = self._store.windows(table)
        span = (windows[0].start_ms, windows[-1].end_ms) if windows else (0, 0)
        return frame_of(self._spark, self._url, table, *span)

    def __iter__(self) -> Iterator[str]:
        return iter(TABLES)

    def __len__(self) -> int:
        return len(TABLES)
