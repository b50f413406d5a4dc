"""The operator in memory, fresh for each test, and quiet: its threads would log into whatever test
comes next.
"""

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from tests.unit.control.stage import Stage


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture(autouse=True)
def log() -> Iterator[list[dict[str, object]]]:
    """The log lines of the test."""
    with capture_logs() as lines:
        yield lines  # type: ignore[misc]
