"""What the operator costs and how soon it acts as people run it.

Pods of its image, installed by its chart, on a real one-node cluster.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from bench.results import Figure, percentile
from e2e.declared import MB, policy, tier
from e2e.kafka_side import KafkaSide
from e2e.release import NAMESPACE, Image, Release
from e2e.scene import Scenario
from image import BuiltImage, build
from lab.kafka import KafkaLab
from lab.kubernetes.node import NodeLab
from lab.kubernetes.tools import Helm
from lab.process import wait_until

_REST_SECONDS = 60
_ENTITIES, _TIERS = 1000, 10
_TAKEOVERS, _CHANGES = 5, 20
_TAKEOVER_SECONDS = 15.0
_RESIDENT, _TICKS = r"^VmRSS:\s+(\d+) kB$", 100
_ASK = (
    "import pathlib; print(pathlib.Path('/proc/1/status').read_text()); print('STAT', "
    "pathlib.Path('/proc/1/stat').read_text())"
)


@dataclass(frozen=True, slots=True)
class _Installed:
    kafka: KafkaLab
    node: NodeLab
    release: Release
    scene: Scenario
    in_kafka: KafkaSide
    topic: str
    ready_seconds: float


def in_cluster() -> list[Figure]:
    """Image, start, rest, a thousand contracts, changes and take-overs.

    Two replicas, one broker, all on this machine.
    """
    image = build()
    with _installed(image) as on:
        at_rest = _watched(on, "no policy")
        on.scene.declare(policy(on.kafka, writeBudget={"changes": 10_000}), *_tiers(on.topic))
        on.scene.waits_for("bbp/orders", "Ready", timeout_seconds=120)
        loaded = _watched(on, f"{_ENTITIES} contracts")
        latencies = [_change(on, MB + number) for number in range(_CHANGES)]
        takeovers = [_takeover(on) for _ in range(_TAKEOVERS)]
        on.scene.delete("bbp/orders", timeout_seconds=120)
    return [
        *_image_figures(image),
        Figure("chart installed to both replicas Ready", on.ready_seconds, "s", None),
        *at_rest,
        *loaded,
        Figure(
            f"in the cluster: a contract applied to quota committed, P50 of {_CHANGES}",
            percentile(latencies, 50),
            "s",
            None,
        ),
        Figure(
            f"in the cluster: a contract applied to quota committed, P95 of {_CHANGES}",
            percentile(latencies, 95),
            "s",
            None,
        ),
        Figure(
            f"in the cluster: writing Pod killed to another one writes, worst of {_TAKEOVERS}",
            max(takeovers),
            "s",
            _TAKEOVER_SECONDS,
        ),
    ]


def _image_figures(image: BuiltImage) -> list[Figure]:
    compressed, unpacked = (
        sum(sizes)
        for sizes in zip(
            *((one.compressed_bytes, one.content_bytes) for one in image.layers), strict=True
        )
    )
    return [
        Figure("image, as a registry stores it", compressed / MB, "MB", None),
        Figure("image, on a node's disk", unpacked / MB, "MB", None),
    ]


@contextmanager
def _installed(image: BuiltImage) -> Iterator[_Installed]:
    with KafkaLab(brokers=1, namespaces=True) as kafka, tempfile.TemporaryDirectory() as home:
        kafka.create_topic("bench", [[1]])
        with NodeLab(kafka.bridge) as node, _reader(kafka) as zookeeper:
            node.load_image(image.archive)
            repository, _, tag = image.name.rpartition(":")
            release = Release(node, Helm(Path(home), node.kubeconfig), Image(repository, tag))
            ready_seconds = release.install()
            node.kubectl("create", "namespace", "bench")
            yield _Installed(
                kafka,
                node,
                release,
                Scenario(node, "bench"),
                KafkaSide(kafka, zookeeper),
                "bench",
                ready_seconds,
            )


@contextmanager
def _reader(kafka: KafkaLab) -> Iterator[KazooClient]:
    client = KazooClient(kafka.zookeeper_connect)
    client.start()
    yield client
    client.stop()
    client.close()


def _tiers(topic: str) -> list[dict[str, Any]]:
    users = [f"user{number}" for number in range(_ENTITIES)]
    return [
        tier(f"tier{number}", "L0", dict.fromkeys(users[number::_TIERS], MB), topic=topic)
        for number in range(_TIERS)
    ]


def _watched(on: _Installed, what: str) -> list[Figure]:
    """Memory of the replica that writes, or of any, and what it takes of a core at rest."""
    pod = (on.release.holder(on.scene.namespace) if "contracts" in what else "") or sorted(
        on.release.pods()
    )[0]
    before, _ = _processor_and_memory(on, pod)
    began = time.monotonic()
    time.sleep(_REST_SECONDS)
    after, resident = _processor_and_memory(on, pod)
    cores = (after - before) / (time.monotonic() - began)
    return [
        Figure(
            f"in the cluster: resident memory of the operator, {what}", resident / MB, "MB", None
        ),
        Figure(
            f"in the cluster: processor at rest, {what}",
            cores,
            "cores",
            None,
            f"over {_REST_SECONDS} s",
        ),
    ]


def _processor_and_memory(on: _Installed, pod: str) -> tuple[float, float]:
    """Processor seconds since its start, and resident bytes."""
    said = on.node.kubectl("exec", pod, f"--namespace={NAMESPACE}", "--", "python3", "-c", _ASK)
    fields = said.partition("STAT ")[2].rpartition(")")[2].split()
    resident = re.search(_RESIDENT, said, re.MULTILINE)
    return sum(map(int, fields[11:13])) / _TICKS, int(resident[1]) * 1024 if resident else 0


def _change(on: _Installed, rate: int) -> float:
    members: Sequence[dict[str, Any]] = on.scene.read("bt/tier0")["spec"]["members"]
    changed = [
        {**members[0], "contract": {"perPartition": {"fetch": str(rate + MB)}}},
        *members[1:],
    ]
    began = time.monotonic()
    on.scene.edit("bt/tier0", {"members": changed})
    wait_until(
        lambda: on.in_kafka.fetch_quota("user0") == rate + MB,
        "the new quota",
        timeout_seconds=60,
        poll_seconds=0.01,
    )
    return time.monotonic() - began


def _takeover(on: _Installed) -> float:
    """Until another replica holds the Lease; the killed one is replaced before the next round."""
    holder = on.release.holder(on.scene.namespace)
    began = time.monotonic()
    on.release.kill(holder)
    on.release.wait_for_another_holder(holder, on.scene.namespace, timeout_seconds=30)
    taken = time.monotonic() - began
    on.release.wait_until_ready()
    return taken
