"""For notebooks: Prometheus as a source of Spark's."""

from pyspark.sql import SparkSession

from tidegate.rollup.spark.prometheus_source import PrometheusSource


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("tidegate.prometheus")` known to the session; a second time changes nothing."""
    spark.dataSource.register(PrometheusSource)
