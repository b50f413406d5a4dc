from __future__ import annotations

import pytest

from lab.kafka import KafkaLab
from tests.integration.forwarder.queue_world import QueueWorld
from tidegate.queues.names import Guarantee


@pytest.fixture(params=list(Guarantee), ids=str)
def queue(request: pytest.FixtureRequest, kafka: KafkaLab, unique_name: str) -> QueueWorld:
    """A queue without topics on the shared brokers, once for each guarantee."""
    return QueueWorld(kafka, unique_name, request.param)
