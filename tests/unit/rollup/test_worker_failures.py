"""An error of a worker comes home as what it was, out of the text that Spark makes of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidegate.errors import (
    Incomplete,
    InvalidResource,
    NotFound,
    RetryLater,
    TidegateError,
    Unauthorized,
)
from tidegate.rollup.spark.stages import from_worker
from tidegate.rollup.tables.format import OtherVersion, UsageDamaged

SPARKS = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 3 times, most recent failure:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
tidegate.errors.Unreachable: the first attempt

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
{raised}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:645)
"""


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        ("tidegate.errors.Unreachable: Prometheus is down.", Incomplete),
        ("tidegate.prometheus.http.BrokenOff: Prometheus is down.", Incomplete),
        ("tidegate.errors.Unauthorized: Prometheus is down.", Unauthorized),
        ("tidegate.errors.InvalidResource: Prometheus is down.", InvalidResource),
        ("tidegate.errors.NotFound: Prometheus is down.", NotFound),
        ("tidegate.rollup.tables.format.UsageDamaged: Prometheus is down.", UsageDamaged),
        ("tidegate.rollup.tables.format.OtherVersion: Prometheus is down.", OtherVersion),
    ],
)
def test_the_last_error_of_ours_is_the_one(raised: str, kind: type[TidegateError]) -> None:
    found = from_worker(SPARKS.format(raised=raised))
    assert type(found) is kind
    assert str(found) == "Prometheus is down."


def test_a_worker_that_was_lost_may_be_luckier_next_time(golden: Callable[[str], None]) -> None:
    found = from_worker(
        "SparkException: Job aborted: ExecutorLostFailure (executor 1 exited caused by one of "
        "the running tasks)"
    )
    assert isinstance(found, RetryLater)
    golden(found.message)


def test_anything_else_is_a_bug_and_stays_one() -> None:
    assert (
        from_worker("pyspark.errors.exceptions.captured.AnalysisException: no such column") is None
    )
