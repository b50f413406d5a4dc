"""One Prometheus with made-up history for all tests of reading it, and one Spark for all runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from lab.cache import RunDirectory
from lab.prometheus import PROMETHEUS_3
from tests.integration.rollup.history_server import HistoryServer
from tests.integration.rollup.known_history import write_known_history
from tidegate.rollup.spark.session import spark_started


@pytest.fixture(scope="session")
def history() -> Iterator[HistoryServer]:
    """A real Prometheus into which tests write samples."""
    with _server() as server:
        yield server


@pytest.fixture(scope="session")
def known_history() -> Iterator[HistoryServer]:
    """Another one, with the known history of two brokers. A server accepts no samples much older
    than its newest one.
    """
    with _server() as server:
        write_known_history(server)
        yield server


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The only Spark session of the suite. Commands find it open and use it."""
    with spark_started("test", memory="768m") as started:
        yield started.session


@contextmanager
def _server() -> Iterator[HistoryServer]:
    with RunDirectory() as run:
        directory = run.path / "history"
        directory.mkdir()
        # `make test-transports` runs the same tests on a newer one
        newest = PROMETHEUS_3.binary() if os.environ.get("PROMETHEUS") == "3" else None
        with HistoryServer(directory, binary=newest) as server:
            yield server
