"""A part that starts beside others is ready when asked, and is closed however the others end; what
the examples become on each kind of Kafka.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml

from demo.parts import RESOURCES, Beside, declared_resources, filled_in
from lab.kafka import BrokersLab, KafkaLab
from lab.kraft import KraftLab
from lab.process import patience
from lab.prometheus import PrometheusLab
from tidegate.resources.kinds import parse_object, parse_policy


class Part:
    """Opens when it is allowed to, and remembers what happened to it."""

    def __init__(self) -> None:
        self.may_open = threading.Event()
        self.history: list[str] = []

    @contextmanager
    def running(self) -> Iterator[str]:
        assert self.may_open.wait(patience(10))
        self.history.append("opened")
        yield "part"
        self.history.append("closed")


def test_the_caller_goes_on_while_the_part_opens() -> None:
    part = Part()
    with Beside(part.running()) as beside:
        assert part.history == []
        part.may_open.set()
        assert beside.ready() == "part"
        assert part.history == ["opened"]
    assert part.history == ["opened", "closed"]


@contextmanager
def refusing() -> Iterator[str]:
    raise OSError("no such binary")
    yield "never"


def test_what_keeps_the_part_from_opening_reaches_whoever_asks_for_it() -> None:
    with Beside(refusing()) as beside, pytest.raises(OSError, match="no such binary"):
        beside.ready()


def interrupted_while(part: Part) -> None:
    """Ctrl-C comes while the part is still opening."""
    with Beside(part.running()):
        threading.Timer(0.05, part.may_open.set).start()
        raise KeyboardInterrupt


def test_a_part_still_opening_when_the_others_fail_is_closed_all_the_same() -> None:
    part = Part()
    with pytest.raises(KeyboardInterrupt):
        interrupted_while(part)
    assert part.history == ["opened", "closed"]


# --- what is declared -----------------------------------------------------------------------------


class WithZookeeper(KafkaLab):
    """One that is not started and knows its addresses all the same."""

    bootstrap_servers = "10.0.0.1:9092"
    zookeeper_connect = "10.0.0.1:2181/kafka"


class WithoutZookeeper(KraftLab):
    """Likewise."""

    bootstrap_servers = "10.0.0.1:9092"


KAFKAS = [
    pytest.param(WithZookeeper(), "10.0.0.1:2181/kafka", id="zookeeper"),
    pytest.param(WithoutZookeeper(), None, id="kraft"),
]


@pytest.mark.parametrize(("kafka", "connect"), KAFKAS)
def test_experiment_1_enforces_the_examples_without_a_limit(
    kafka: BrokersLab, connect: str | None
) -> None:
    documents = list(yaml.safe_load_all(declared_resources(kafka, 7_000_000)))
    kinds = [document["kind"] for document in documents]
    assert kinds == ["Namespace", "BrokerBandwidthPolicy", "BusinessTier", "BusinessTier"]
    policy = parse_policy(documents[1], strict=True).spec
    assert policy.mode == "Enforce"
    assert policy.kafka.bootstrap_servers == "10.0.0.1:9092"
    assert (policy.kafka.zookeeper and policy.kafka.zookeeper.connect) == connect
    assert (policy.metrics, policy.brokers) == (None, None)
    for document in documents[2:]:
        parse_object(document, strict=True)
    contract = documents[2]["spec"]["members"][0]["contract"]["perPartition"]
    assert contract == {"fetch": "10M", "produce": "7000000"}


@pytest.mark.parametrize(("kafka", "connect"), KAFKAS)
def test_later_experiments_use_the_same_store(kafka: BrokersLab, connect: str | None) -> None:
    policy = next(iter(yaml.safe_load_all(filled_in(RESOURCES, kafka, PrometheusLab()))))
    found = parse_policy(policy, strict=True).spec.kafka
    assert (found.zookeeper and found.zookeeper.connect) == connect
