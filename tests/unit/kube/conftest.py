"""What every test of the Kubernetes adapter stands on: an API server in memory, and a clock turned by hand."""

import pytest

from tests.doubles.kubernetes import InMemoryKubernetes
from tests.unit.hands import Hands


@pytest.fixture
def kubernetes() -> InMemoryKubernetes:
    return InMemoryKubernetes()


@pytest.fixture
def clock() -> Hands:
    return Hands()
