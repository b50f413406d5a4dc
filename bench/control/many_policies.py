"""A hundred policies in two replicas of the operator: shares, Leases, changes, rest, a take-over.

Real are ZooKeeper, the API server and the operators. The Kafka clusters are made up: each has a
chroot of that ZooKeeper, and brokers that only answer who leads what. Answers of the API server
reach the operators 100 ms late; it gets the processor first, as if it had a machine of its own.
"""

import asyncio
import json
import random
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self
from urllib.parse import urlsplit

import psutil
from kazoo.client import KazooClient
from kubernetes import client, config

from bench.control.world import CRDS, GROUP, VERSION, resource
from bench.results import Figure, percentile
from lab import process
from lab.kubernetes.api import KubeApi
from lab.operator import operator_command
from lab.process import Process, wait_until
from lab.proxy import Proxy
from lab.zookeeper import ZooKeeperLab
from tidegate.kafka.protocol import admin, metadata

_NAMESPACE, _TOPIC = "bench", "bench"
_BROKERS, _PARTITIONS, _TIERS, _MEMBERS = 10, 30, 5, 100
_CALL_SECONDS = 0.1
_CREATED_AT_ONCE = 4
_ZOOKEEPER_OPTIONS = ("-Xmx1g",)  # 50,000 quotas and their records; the lab's own heap is 128 MB
_SETTLE_SECONDS, _REST_SECONDS, _CHANGES = 60, 120, 100
_TIMEOUT_SECONDS = 900
_METADATA = 3
_LISTENER_STARTS_SECONDS = 10.0


class MadeUpBrokers:
    """Ten brokers for each cluster id, all at one port of loopback, that answer Metadata and the
    question for a quota plugin. A context manager; `ports` are by cluster id.
    """

    def __init__(self, cluster_ids: list[str]) -> None:
        self.ports: dict[str, int] = {}
        self._cluster_ids = cluster_ids
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(_LISTENER_STARTS_SECONDS):
            raise RuntimeError("made-up brokers did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._ready.set()
        self._loop.run_forever()

    async def _listen(self) -> None:
        for cluster_id in self._cluster_ids:
            answers: dict[int, bytes] = {}

            async def serve(
                reader: asyncio.StreamReader,
                writer: asyncio.StreamWriter,
                answers: dict[int, bytes] = answers,
            ) -> None:
                with suppress(OSError, asyncio.IncompleteReadError):
                    while True:
                        (size,) = struct.unpack(">i", await reader.readexactly(4))
                        request = await reader.readexactly(size)
                        kind, _, correlation = struct.unpack(">hhi", request[:8])
                        body = struct.pack(">i", correlation) + answers[kind == _METADATA]
                        writer.write(struct.pack(">i", len(body)) + body)

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            port = int(server.sockets[0].getsockname()[1])
            answers[True] = _metadata(cluster_id, port)
            answers[False] = bytes(
                admin.DescribeConfigsResponse(throttle_time_ms=0, results=[]).encode(version=1)
            )
            self.ports[cluster_id] = port


def _metadata(cluster_id: str, port: int) -> bytes:
    topic = metadata.MetadataResponse.MetadataResponseTopic
    partitions = [
        topic.MetadataResponsePartition(
            error_code=0,
            partition_index=index,
            leader_id=index % _BROKERS + 1,
            replica_nodes=[index % _BROKERS + 1],
            isr_nodes=[index % _BROKERS + 1],
        )
        for index in range(_PARTITIONS)
    ]
    brokers = [
        metadata.MetadataResponse.MetadataResponseBroker(
            node_id=number + 1, host="127.0.0.1", port=port, rack=None
        )
        for number in range(_BROKERS)
    ]
    answer = metadata.MetadataResponse(
        throttle_time_ms=0,
        brokers=brokers,
        cluster_id=cluster_id,
        controller_id=1,
        topics=[topic(error_code=0, name=_TOPIC, is_internal=False, partitions=partitions)],
    )
    return bytes(answer.encode(version=4))


@dataclass
class World:
    """The running parts; `policies` are names, each that of its cluster and chroot too."""

    policies: list[str]
    connections: dict[str, dict[str, Any]]
    replicas: list[Process]
    logs: list[Path]
    zookeeper_process: Process
    zookeeper: KazooClient
    objects: client.CustomObjectsApi
    leases: client.CoordinationV1Api

    def replica_of(self) -> dict[str, int]:
        """Policy -> the process id of the replica that holds its Lease."""
        held: dict[str, int] = {}
        for lease in self.leases.list_namespaced_lease(_NAMESPACE).items:
            policy = next(
                (name for name in self.policies if lease.metadata.name.endswith(name)), ""
            )
            if policy and lease.spec.holder_identity:
                held[policy] = int(lease.spec.holder_identity.split("_")[-2])
        return held

    def committed(self, policy: str) -> int:
        return len(self.zookeeper.get_children(f"/{policy}/config/users"))

    def is_in_sync(self, policy: str) -> bool:
        got = self.objects.get_namespaced_custom_object(
            GROUP, VERSION, _NAMESPACE, "brokerbandwidthpolicies", policy
        )
        quotas = got.get("status", {}).get("quotas", {})
        return bool(quotas.get("inSync") == _TIERS * _MEMBERS)

    def raise_first_member(self, policy: str, rate: int) -> Callable[[], float | None]:
        """Send the change; the answer is when it was committed, None while it is not."""
        path = f"/{policy}/config/users/user-0"
        before = self.zookeeper.exists(path).mzxid
        patch = [
            {
                "op": "replace",
                "path": "/spec/members/0/contract/perPartition/produce",
                "value": str(rate),
            }
        ]
        self.objects.patch_namespaced_custom_object(
            GROUP,
            VERSION,
            _NAMESPACE,
            "businesstiers",
            f"{policy}-0",
            patch,
            _content_type="application/json-patch+json",
        )

        def committed_at() -> float | None:
            now = self.zookeeper.exists(path)
            return float(now.last_modified) if now.mzxid != before else None

        return committed_at

    def lines(self, event: str) -> int:
        return sum(log.read_text().count(f'"event": "{event}"') for log in self.logs)


def many_policies(policies: int = 100) -> list[Figure]:
    """Figures of `policies` policies of 500 entities each."""
    with _world(policies) as on:
        began = time.time()
        _declare(on)
        cold_seconds = time.time() - began
        time.sleep(_SETTLE_SECONDS)
        shares = Counter(on.replica_of().values())
        rest = _rest(on)
        changes = [_change(on, number) for number in range(_CHANGES)]
        lost = on.lines("Lease lost")
        taken_over_seconds = _take_over(on)
    what = f"{policies} policies x 500 entities, two replicas, API server 100 ms away"
    even = policies / 2
    off = max(abs(share - even) for share in shares.values()) / even * 100
    parts = " and ".join(map(str, sorted(shares.values())))
    return [
        Figure(f"{what}: from nothing to every status, 4 at a time", cold_seconds, "s", None),
        Figure(f"{what}: Leases lost", lost, "Leases", 0),
        Figure(f"{what}: shares, furthest from even", off, "%", 20, f"{parts} policies"),
        Figure(
            f"{what}: one changed contract to committed quota, P99 of {len(changes)}",
            percentile(changes, 99),
            "s",
            1.0,
            f"P50 {percentile(changes, 50):.2f} s",
        ),
        *[
            Figure(f"{what}: at rest, the busier replica: {name}", value, unit, bound)
            for name, value, unit, bound in rest
        ],
        Figure(
            f"{what}: a replica killed: all its policies written by the other",
            taken_over_seconds,
            "s",
            15.0,
        ),
    ]


def _declare(on: World) -> None:
    """Create a few policies with their tiers, and the next when those are in sync.

    Server, ZooKeeper and both replicas share one small machine: 600 objects at once would measure
    that, and the API server would take seconds a call and not 100 ms.
    """
    with ThreadPoolExecutor(_CREATED_AT_ONCE) as hands:
        for start in range(0, len(on.policies), _CREATED_AT_ONCE):
            wave = on.policies[start : start + _CREATED_AT_ONCE]
            list(hands.map(partial(_declare_one, on), wave))
            for policy in wave:
                _wait(on, partial(on.is_in_sync, policy), f"the status of {policy}")


def _declare_one(on: World, policy: str) -> None:
    for number in range(_TIERS):
        members = [
            {
                "name": f"user-{index}",
                "user": f"user-{index}",
                "topics": [_TOPIC],
                "contract": {"perPartition": {"produce": str(1_000_000 + index)}},
            }
            for index in range(number, _TIERS * _MEMBERS, _TIERS)
        ]
        spec = {"policyRef": {"name": policy}, "level": "L0", "members": members}
        _create(on, "BusinessTier", "businesstiers", f"{policy}-{number}", spec)
    spec = {"mode": "Enforce", "kafka": on.connections[policy]}
    _create(on, "BrokerBandwidthPolicy", "brokerbandwidthpolicies", policy, spec)


def _create(on: World, kind: str, plural: str, name: str, spec: dict[str, Any]) -> None:
    on.objects.create_namespaced_custom_object(
        GROUP, VERSION, _NAMESPACE, plural, resource(kind, name, spec)
    )


def _change(on: World, number: int) -> float:
    """Seconds from before the change is sent to its commit."""
    policy = random.Random(number).choice(on.policies)  # the same policies each time
    sent = time.time()
    committed_at = on.raise_first_member(policy, 2_000_000 + number * 1000)
    return float(_wait(on, committed_at, "the changed quota")) - sent


def _rest(on: World) -> list[tuple[str, float, str, float]]:
    busy = [_processor_seconds(replica) for replica in on.replicas]
    time.sleep(_REST_SECONDS)
    cores = [
        (_processor_seconds(replica) - before) / _REST_SECONDS
        for replica, before in zip(on.replicas, busy, strict=True)
    ]
    memory = [psutil.Process(replica.pid).memory_info().rss / 1e6 for replica in on.replicas]
    return [
        ("processor", max(cores), "cores", 0.5),
        ("memory", max(memory), "MB", 700.0),
    ]


def _processor_seconds(replica: Process) -> float:
    times = psutil.Process(replica.pid).cpu_times()
    return times.user + times.system


def _take_over(on: World) -> float:
    """Kill a replica and change a contract of each of its policies; seconds until all are in
    ZooKeeper.
    """
    victim = on.replicas[-1]
    orphaned = [policy for policy, pid in on.replica_of().items() if pid == victim.pid]
    victim.kill()
    on.replicas.remove(victim)
    killed_at = time.time()
    waits = [on.raise_first_member(policy, 9_000_000) for policy in orphaned]
    return max(float(_wait(on, wait, "a quota after the take-over")) for wait in waits) - killed_at


def _wait(on: World, condition: Callable[[], Any], what: str) -> Any:
    return wait_until(
        condition,
        what,
        timeout_seconds=_TIMEOUT_SECONDS,
        processes=[*on.replicas, on.zookeeper_process],
        poll_seconds=0.05,
    )


@contextmanager
def _world(policies: int) -> Iterator[World]:
    names = [f"cluster-{number:03}" for number in range(policies)]
    with ExitStack() as stack:
        server = stack.enter_context(ZooKeeperLab(java_options=_ZOOKEEPER_OPTIONS))
        zookeeper = KazooClient(server.connect)
        zookeeper.start()
        stack.callback(zookeeper.close)
        stack.callback(zookeeper.stop)
        for name in names:
            _lay_out(zookeeper, name)
        brokers = stack.enter_context(MadeUpBrokers(names))
        kube = stack.enter_context(KubeApi(niceness=0))
        kube.install_crds(CRDS)
        kube.kubectl("create", "namespace", _NAMESPACE)
        api = urlsplit(kube.server)
        api_address = (str(api.hostname), int(api.port or 443))
        late = stack.enter_context(Proxy(api_address, late_seconds=_CALL_SECONDS))
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="tidegate-bench-")))
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(
            kube.kubeconfig.read_text().replace(kube.server, f"https://127.0.0.1:{late.port}")
        )
        logs = [folder / f"replica-{number}.log" for number in range(2)]
        replicas = [stack.enter_context(_start_replica(kubeconfig, log)) for log in logs]
        api_client = config.new_client_from_config(str(kube.kubeconfig))
        connections = {
            name: {
                "bootstrapServers": f"127.0.0.1:{brokers.ports[name]}",
                "quotaStore": "ZooKeeper",
                "zookeeper": {"connect": f"{server.connect}/{name}"},
            }
            for name in names
        }
        yield World(
            names,
            connections,
            replicas,
            logs,
            server.process,
            zookeeper,
            client.CustomObjectsApi(api_client),
            client.CoordinationV1Api(api_client),
        )


def _start_replica(kubeconfig: Path, log: Path) -> Process:
    argv = operator_command(kubeconfig, _NAMESPACE)
    return process.start(log.stem, argv, log_path=log)


def _lay_out(zookeeper: KazooClient, name: str) -> None:
    """The nodes of a Kafka that a writer of quotas reads."""
    for path in ("brokers/ids", "brokers/topics", "config/changes", "config/users"):
        zookeeper.create(f"/{name}/{path}", makepath=True)
    for path in ("config/brokers", "config/clients", "config/topics"):
        zookeeper.create(f"/{name}/{path}")
    zookeeper.create(f"/{name}/brokers/topics/{_TOPIC}")
    controller = b'{"version":2,"brokerid":1,"timestamp":"0","kraftControllerEpoch":-1}'
    zookeeper.create(f"/{name}/controller", controller)
    zookeeper.create(f"/{name}/controller_epoch", b"1")
    cluster = json.dumps({"version": "1", "id": name}).encode()
    zookeeper.create(f"/{name}/cluster/id", cluster, makepath=True)
