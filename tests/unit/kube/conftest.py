"""Fixtures of the tests of the Kubernetes adapter: an API server in memory, and a clock that a test
sets.
"""

import pytest

from tests.doubles.kubernetes import InMemoryKubernetes
from tests.unit.hands import Hands


@pytest.fixture
def kubernetes() -> InMemoryKubernetes:
    return InMemoryKubernetes()


@pytest.fixture
def clock() -> Hands:
    return Hands()
