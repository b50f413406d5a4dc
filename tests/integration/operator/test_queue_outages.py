"""What the operator says of a DelayQueue whose forwarders were away: with forwarders as processes,
on a real Kafka and Kubernetes API.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from kubernetes.client import ApiClient

from lab.kraft import KraftLab
from lab.kubernetes.api import KubeApi
from lab.process import Process, patience, start, wait_until
from tests.integration.operator.test_queues import World, condition, message
from tidegate.control.queues.report import status_of
from tidegate.queues.names import QueueNames
from tidegate_logic.queues.shift import HOLD_SECONDS
from tidegate_logic.reasons import Reason

pytestmark = pytest.mark.integration


@pytest.fixture
def world(crds: KubeApi, api_client: ApiClient, namespace: str, kraft: KraftLab) -> Iterator[World]:
    world = World(api_client, namespace, kraft.bootstrap_servers)
    kraft.create_topic(target(world), assignment=[[1]])
    yield world
    for keeper in world.keepers:
        keeper.close()


def target(world: World) -> str:
    return f"orders.{world.namespace}"


def create(world: World, **spec: Any) -> tuple[QueueNames, str]:
    """A queue of one level topic of a second; returns its names and that topic."""
    goes_to = {"allowed": [target(world)], "default": target(world)}
    names = world.create(delays=[{"seconds": 1}], target=goes_to, **spec)
    world.settle()
    return names, f"{names.prefix}.1.0"


@contextmanager
def forwarding(world: World, folder: Path) -> Iterator[Process]:
    """A forwarder as its Deployment starts one; it ends as its Pod does."""
    deployment = world.deployment()
    assert deployment is not None
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    arguments = [
        one.replace("$(POD_NAME)", "pod-0").replace("=8080", "=0") for one in container["args"]
    ]
    command = [sys.executable, "-m", "tidegate", *arguments]
    process = start("forwarder", command, log_path=folder / "forwarder.log", niceness=0)
    try:
        yield process
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(patience(60)) == 0
    finally:
        process.kill()


def wait_sent(world: World, process: Process) -> None:
    wait_until(
        lambda: world.finding().waiting == 0,
        "every message to be sent",
        timeout_seconds=90,
        processes=[process],
    )


def arrived(world: World) -> list[tuple[bytes | None, int]]:
    """The committed records of the target with their time in ms, in their order."""
    settings = {
        "bootstrap.servers": world.bootstrap_servers,
        "group.id": world.namespace,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(target(world), 0, 0)])
    found: list[tuple[bytes | None, int]] = []
    while (record := consumer.poll(patience(30))) is not None and record.error() is None:
        found.append((record.value(), record.timestamp()[1]))
    consumer.close()
    return found


@pytest.mark.parametrize("guarantee", ["AtLeastOnce", "ExactlyOnce"])
def test_messages_deleted_while_forwarders_were_away_are_lost_and_never_count_as_sent(
    world: World, tmp_path: Path, guarantee: str
) -> None:
    _, topic = create(world, guarantee=guarantee)
    world.clients.produce(topic, 5)
    with forwarding(world, tmp_path) as forwarder:
        wait_sent(world, forwarder)
    world.clients.produce(topic, 20)
    world.clients.delete_records(topic, 20)
    found = world.finding()  # a running operator looks every ten seconds
    assert condition(found, "RecordsLost") == ("True", Reason.RECORDS_LOST)
    assert "deleted 15 messages" in message(found, "RecordsLost")
    assert found.waiting == 5
    with forwarding(world, tmp_path) as forwarder:
        wait_sent(world, forwarder)
    assert "deleted 15 messages" in message(world.finding(), "RecordsLost")
    assert len(arrived(world)) == 10


def test_deleted_messages_are_no_part_of_the_rate(world: World) -> None:
    names, topic = create(world)
    world.clients.produce(topic, 60)
    world.forward(names, topic, 10)
    world.look()
    world.now += 10.0
    world.clients.delete_records(topic, 40)
    world.forward(names, topic, 60, lost=30)  # as forwarders do: the other 20 were sent
    (delay,) = status_of(world.finding()).as_document()["delays"]
    assert delay["perSecond"] == 2


@pytest.mark.long
@pytest.mark.timeout(900)
def test_what_retention_itself_deletes_is_reported_with_its_number_within_a_minute(
    world: World,
) -> None:
    """Forwarders are away for longer than the delay and its grace."""
    _, topic = create(world, topics={"replicationFactor": 1, "graceSeconds": 60})
    world.clients.produce(topic, 20)
    produced = time.monotonic()
    wait_until(
        lambda: condition(world.finding(), "RecordsLost")[0] == "True",
        "the messages that were lost",
        timeout_seconds=180,
        poll_seconds=1.0,
    )
    took_seconds = time.monotonic() - produced
    print(f"reported {took_seconds:.0f} s after they were written, of which 61 s they are kept")
    found = world.finding()
    assert "deleted 20 messages" in message(found, "RecordsLost")
    assert found.waiting == 0
    assert took_seconds < 61 + 60


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_an_operator_that_is_away_holds_messages_no_longer_than_it_said(
    world: World, tmp_path: Path
) -> None:
    """Away for less, nothing changes; for longer, what waits is sent; once it is back, what comes
    waits again, and leaves when there is room.
    """
    world.policy["spec"] |= {
        "metrics": {"prometheus": {"url": "http://prometheus:9090"}, "preset": "NodeExporter"},
        "brokers": {"egress": {"limit": "50M"}},
    }
    _, topic = create(world, shift={"latestSeconds": 3600, "rate": "20M"})
    world.crowded = frozenset({1})
    with forwarding(world, tmp_path):
        assert condition(world.finding(), "Held") == ("True", Reason.BROKERS_OVER_LIMIT)
        announced = time.time()
        world.clients.produce(topic, 5)
        wait_until(
            lambda: time.time() - announced > HOLD_SECONDS - 20,
            "most of the time that it said",
            timeout_seconds=HOLD_SECONDS,
            poll_seconds=1.0,
        )
        assert arrived(world) == []
        world.now += 60.0
        assert world.finding().waiting == 5  # it says so again
        announced = time.time()
        wait_until(
            lambda: len(arrived(world)) == 5,
            "what nobody holds any more",
            timeout_seconds=HOLD_SECONDS + 60,
            poll_seconds=1.0,
        )
        first_seconds = arrived(world)[0][1] / 1000 - announced
        print(f"sent {first_seconds:.1f} s after the operator said so last")
        assert first_seconds >= HOLD_SECONDS - 5  # it was said a little before
        world.keeper, world.now = world.new_keeper(), world.now + 200.0
        found = world.finding()
        assert condition(found, "Held") == ("True", Reason.BROKERS_OVER_LIMIT)
        back = time.time()
        world.clients.produce(topic, 5)
        wait_until(
            lambda: time.time() - back > 10, "some time", timeout_seconds=30, poll_seconds=1.0
        )
        assert len(arrived(world)) == 5
        world.crowded = frozenset()
        world.finding()
        wait_until(lambda: len(arrived(world)) == 10, "the rest", timeout_seconds=60)
