"""What goes wrong in a worker, as the error that it was there: Spark brings home nothing but the text of its traceback."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from controller_logic.reasons import Reason
from tidegate.errors import Incomplete, InvalidResource, NotFound, RetryLater, TidegateError, Unauthorized
from tidegate.rollup.tables.format import UsageDamaged
from tidegate.rollup.tables.versions import OtherVersion

_RAISED = re.compile(r"^tidegate\.[\w.]+\.(?P<kind>[A-Z]\w+): (?P<message>.+)$", re.MULTILINE)
_LOST = re.compile(r"ExecutorLostFailure|Python worker exited unexpectedly|OutOfMemoryError|MemoryError")
_MADE: Mapping[str, Callable[[str], TidegateError]] = {
    "InvalidResource": InvalidResource,
    "NotFound": lambda message: NotFound(Reason.METRICS_MISSING, message),
    "OtherVersion": OtherVersion,
    "Unauthorized": Unauthorized,
    "UsageDamaged": UsageDamaged,
}


@contextmanager
def workers_errors() -> Iterator[None]:
    """Raises the worker's own error in place of Spark's, where it was one of tidegate.errors; RetryLater where the worker was lost.

    Everything else goes on as it is: it is a bug.
    """
    try:
        yield
    except (Py4JError, PySparkException) as error:
        told = told_by_worker(str(error))
        if told is None:
            raise
        raise told from error


def told_by_worker(text: str) -> TidegateError | None:
    """The last error in the text of Spark's, which is the one that ended the run; a kind that may pass by itself comes as Incomplete."""
    found = list(_RAISED.finditer(text))
    if found:
        kind, message = found[-1]["kind"], found[-1]["message"]
        return _MADE.get(kind, _passing)(message)
    lost = _LOST.search(text)
    if lost is None:
        return None
    told = f"Spark lost workers again and again ({lost[0]}), as it happens when they get too little memory; what is published is whole."
    return RetryLater(Reason.USAGE_INCOMPLETE, f"{told} Give the policy's rollup more memory.")


def _passing(message: str) -> TidegateError:
    return Incomplete(Reason.METRICS_INCOMPLETE, message)
