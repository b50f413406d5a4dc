from __future__ import annotations

import pytest

from lab.kafka import BrokersLab
from tests.integration.forwarder.queue_world import QueueWorld
from tidegate.queues.names import Guarantee


@pytest.fixture(params=list(Guarantee), ids=str)
def queue(
    request: pytest.FixtureRequest, three_brokers: BrokersLab, unique_name: str
) -> QueueWorld:
    """A queue without topics on the shared brokers, once for each guarantee."""
    return QueueWorld(three_brokers, unique_name, request.param)
