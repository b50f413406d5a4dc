"""The operator in memory, fresh for each test."""

import pytest

from tests.unit.control.stage import Stage


@pytest.fixture
def stage() -> Stage:
    return Stage()
