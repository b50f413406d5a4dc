"""Unit tests know no clock of the wall."""

from collections.abc import Iterator

import pytest

from tidegate.prometheus.settings import PrometheusServer

LATE_SECONDS = 300.0


@pytest.fixture(scope="session", autouse=True)
def _servers_may_answer_late() -> Iterator[None]:
    """A server of a test's own is a thread of this process, and on a busy machine its answer takes
    as long as it takes. A test of a time limit gives the limit itself.
    """
    make = PrometheusServer.__init__
    before = make.__defaults__
    assert before is not None
    make.__defaults__ = tuple(
        LATE_SECONDS if isinstance(limit, float) else limit for limit in before
    )
    yield
    make.__defaults__ = before
