"""Rates of tiered storage on a real broker: obeyed, and restored even after a kill."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lab.kafka import KafkaLab
from lab.kraft import KraftLab
from lab.packages import KAFKA_4, with_tiered_storage
from lab.process import patience, wait_until
from lab.prometheus import monitoring
from lab.tiered_storage import copied_bytes, settings, topic_config
from tests.integration.kafka.test_replication import MIB, World, around
from tests.integration.kafka.test_replication_moves import Keeper
from tidegate.cli import main
from tidegate.commands.context import CommandContext
from tidegate.kafka.throttle_record import record_to_bytes
from tidegate.observe.connections import open_cluster
from tidegate.observe.secrets_and_hosts import Secrets
from tidegate.prometheus.reader import PrometheusReader
from tidegate.prometheus.settings import MetricsSettings, Preset, PrometheusServer
from tidegate.resources.policy import KafkaCluster as KafkaSpec
from tidegate_logic.model import BackgroundKind
from tidegate_logic.replication.background import Tiering
from tidegate_logic.replication.throttles import BACKGROUND_KEYS, Operation, broker_resource

pytestmark = pytest.mark.integration
COPY, FETCH, _ = BackgroundKind
COPY_KEY = BACKGROUND_KEYS[COPY]
BROKER = broker_resource(1)
THEIRS = str(64 * MIB)
RATE, SEGMENT, SIZE = MIB, MIB, 24 * MIB
KAFKAS_WINDOW_SECONDS = 11  # what may be copied at once, in seconds of the rate


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One broker with tiered storage, with a rate that somebody gave it."""
    remote = tmp_path_factory.mktemp("remote")
    with KraftLab(
        version=KAFKA_4, jars=with_tiered_storage, server_properties=settings(remote)
    ) as kafka:
        for world in around(kafka):
            world.set(BROKER, COPY_KEY, Operation.SET, THEIRS)
            world.wait_for(BROKER, {COPY_KEY: THEIRS})
            yield world


def policy_of(world: World, path: Path, **further: str) -> Path:
    spec: dict[str, Any] = {
        "mode": "Enforce",
        "kafka": {"bootstrapServers": world.kafka.bootstrap_servers},
        "background": {"remoteCopy": {"mode": "Fixed", "rate": {"max": str(RATE)}}},
    }
    metadata = {"name": "orders", "namespace": "streaming", "uid": "uid-1", **further}
    path.write_text(
        json.dumps(
            {
                "apiVersion": "tidegate.io/v1alpha1",
                "kind": "BrokerBandwidthPolicy",
                "metadata": metadata,
                "spec": spec,
            }
        )
    )
    return path


def test_a_rate_is_obeyed_and_what_was_there_is_put_back_after_a_kill_and_the_policys_deletion(
    world: World, unique_name: str, tmp_path: Path
) -> None:
    first = Keeper(policy_of(world, tmp_path / "policy.json"), tmp_path / "first.jsonl")
    try:
        wait_until(first.lines, "the first pass", timeout_seconds=60)
        world.wait_for(BROKER, {COPY_KEY: str(RATE)})
    finally:
        first.kill()
    broker = world.kafka.broker(1)
    world.kafka.create_topic(unique_name, [[1]], config=topic_config(SEGMENT))
    before, began = copied_bytes(broker), time.monotonic()
    world.fill(unique_name, SIZE)
    wait_until(
        lambda: copied_bytes(broker) - before >= SIZE - 2 * SEGMENT,
        "the closed segments to be copied",
        timeout_seconds=120,
    )
    least_seconds = (SIZE - 2 * SEGMENT) / RATE - KAFKAS_WINDOW_SECONDS
    assert time.monotonic() - began >= least_seconds
    deleted = policy_of(world, tmp_path / "deleted.json", deletionTimestamp="2026-01-01T00:00:00Z")
    second = Keeper(deleted, tmp_path / "second.jsonl")
    try:
        wait_until(
            lambda: any("finished" not in line for line in second.lines()),  # it only looks
            "the record to be empty",
            timeout_seconds=60,
        )
        world.wait_for(BROKER, {COPY_KEY: THEIRS})
        assert [line["error"] for line in second.lines() if line.get("error")] == []
    finally:
        second.kill()


def test_restore_puts_back_what_was_there(world: World, tmp_path: Path) -> None:
    world.set(BROKER, COPY_KEY, Operation.SET, str(RATE))
    ours = {BROKER: {COPY_KEY: frozenset({str(RATE), f"before={THEIRS}"})}}
    declared = KafkaSpec.model_validate({"bootstrapServers": world.kafka.bootstrap_servers})
    with closing(open_cluster(declared, secrets=Secrets(), folder=tmp_path)) as cluster:
        store = cluster.store
        store.keep_throttle_record(
            record_to_bytes(ours, "streaming/orders"), store.facts().cluster_id, seen=None
        )
        said = io.StringIO()
        addresses = ["--bootstrap-servers", world.kafka.bootstrap_servers]
        code = main(["restore", *addresses, "--yes"], CommandContext(out=said, err=said))
        assert code == 0, said.getvalue()
        assert store.throttle_record() is None
    world.wait_for(BROKER, {COPY_KEY: THEIRS})


def test_each_broker_says_whether_it_has_tiered_storage_and_a_rate_for_it(world: World) -> None:
    assert world.replication.tiering() == {1: Tiering(True, frozenset({COPY, FETCH}))}


def test_prometheus_has_what_a_broker_copies(world: World, unique_name: str) -> None:
    with monitoring(world.kafka) as prometheus:
        reader = PrometheusReader(
            MetricsSettings(
                PrometheusServer(prometheus.url),
                Preset.JMX_EXPORTER,
                scrape_interval_seconds=1,
                stale_after_seconds=round(patience(10)),
                background=True,
            )
        )
        world.kafka.create_topic(unique_name, [[1]], config=topic_config(SEGMENT))
        world.fill(unique_name, 6 * MIB)

        def copied() -> float:
            spans = reader.read([1]).background.get((1, COPY), ())
            return sum(one.seconds * one.bytes_per_second for one in spans)

        wait_until(lambda: copied() >= 3 * MIB, "Prometheus to have the copies", timeout_seconds=60)
        reader.close()


@pytest.mark.parametrize("version", ["zookeeper", "kraft"])
def test_a_broker_without_tiered_storage_says_so(version: str) -> None:
    lab = KafkaLab(brokers=1) if version == "zookeeper" else KraftLab(brokers=1)
    with lab as kafka:
        for world in around(kafka):
            assert not world.replication.tiering()[1].is_on
            world.set(BROKER, COPY_KEY, Operation.SET, THEIRS)
            world.wait_for(BROKER, {COPY_KEY: THEIRS})
