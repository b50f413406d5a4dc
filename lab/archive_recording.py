"""Records the class archives of ZooKeeper and of a broker in one short real run: what they do in it, they later do without loading.

No lab needs them. Where they cannot be recorded, a line says so and every start takes longer.
"""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from lab import broker, class_archive, zookeeper
from lab.broker import Broker, BrokerPlan, Ports
from lab.errors import LabError
from lab.kafka_admin import KafkaAdmin, can_log_in, login_settings
from lab.ports import free_port
from lab.process import Process
from lab.progress import say
from lab.run_directory import RunDirectory
from lab.zookeeper import ZooKeeperLab

_USER, _PASSWORD = "recorder", "recorder-password"
_TOPIC = "recorded"
_ANSWER_TIMEOUT_SECONDS = 20.0
_END_TIMEOUT_SECONDS = 60.0  # the archive is written while the JVM ends, which takes seconds


def record_archives(jars: Path) -> None:
    """Record them unless the cache has them for these jars, in some ten seconds. A failure is told and not raised."""
    try:
        class_archive.entry(jars, record=_record)
    except (LabError, KafkaException, OSError) as failure:
        say("class-archive", f"not recorded, so ZooKeeper and brokers take some seconds longer to start: {failure}")


def _record(content: Path) -> None:
    with RunDirectory() as run:
        recording = class_archive.recording_options(zookeeper.MAIN_CLASS, content)
        with ZooKeeperLab(directory=run.path / "zookeeper", java_options=recording) as server:
            _record_broker(run.path / "broker", server.connect, content)
            _end(server.process, class_archive.place(zookeeper.MAIN_CLASS, content))


def _record_broker(directory: Path, zookeeper_connect: str, content: Path) -> None:
    recorded = Broker(_plan(directory, zookeeper_connect, content))
    try:
        recorded.start()
        _use(recorded.plan)
        _end(recorded.process, class_archive.place(broker.MAIN_CLASS, content))
    finally:
        recorded.stop(grace_seconds=0)


def _plan(directory: Path, zookeeper_connect: str, content: Path) -> BrokerPlan:
    return BrokerPlan(
        broker_id=1,
        host="127.0.0.1",
        ports=Ports(internal=free_port(), plain=free_port(), sasl=free_port(), jmx=free_port()),
        zookeeper_connect=zookeeper_connect,
        directory=directory,
        namespace=None,
        plain_users={_USER: _PASSWORD},
        zookeeper_login=None,
        extra_properties={},
        java_options=tuple(class_archive.recording_options(broker.MAIN_CLASS, content)),
    )


def _use(plan: BrokerPlan) -> None:
    """Once each of what labs are used for: a topic, both kinds of login, a record in and out, the JMX exporter."""
    admin = KafkaAdmin(f"{plan.host}:{plan.ports.plain}")
    admin.wait_for_brokers([plan.broker_id])
    admin.create_topic(_TOPIC, [[plan.broker_id]])
    admin.create_scram_user(_USER, _PASSWORD)
    sasl = f"{plan.host}:{plan.ports.sasl}"
    can_log_in(sasl, _USER, password=_PASSWORD)
    _produce_and_fetch(login_settings(sasl, _USER, password=_PASSWORD, mechanism="PLAIN"))
    with urllib.request.urlopen(f"http://{plan.host}:{plan.ports.jmx}/metrics", timeout=_ANSWER_TIMEOUT_SECONDS) as metrics:
        metrics.read()


def _produce_and_fetch(login: dict[str, Any]) -> None:
    producer = Producer(login)
    producer.produce(_TOPIC, b"recorded")
    producer.flush(_ANSWER_TIMEOUT_SECONDS)
    consumer = Consumer({**login, "group.id": _TOPIC})
    consumer.assign([TopicPartition(_TOPIC, 0, 0)])
    consumer.poll(_ANSWER_TIMEOUT_SECONDS)
    consumer.close()


def _end(process: Process, archive: Path) -> None:
    process.stop(_END_TIMEOUT_SECONDS)
    if not archive.exists():
        raise LabError(f"{process.name} ended without writing its class archive.\n{process.log_tail()}")
