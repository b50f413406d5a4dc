"""The parts of a soak: nine brokers, two replicas of the operator, and a made-up load on real NICs'
metrics, with all that happens to them.

Kafka, its quotas and leaders, Prometheus, the Kubernetes API and the operators are real. Bytes are
made up, as in `tests/integration/operator/throttling.py`: each client sends what it wants, up to
the quota that brokers have at that moment.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.kraft import KraftLab
from lab.kubernetes.api import KubeApi
from lab.process import wait_until
from lab.prometheus import PrometheusLab, ScrapeTarget, exporting
from tests.integration.operator.agreement import POLICY, Observer, Promise
from tests.integration.operator.operator_process import OperatorProcess
from tests.integration.operator.test_kraft_kills import Parts, set_quotas
from tests.soak.judge import FETCH, PRODUCE, Judge, Look
from tidegate.errors import TidegateError
from tidegate.kafka.adminapi.client import AdminClient, Lost
from tidegate.kafka.adminapi.quotas import alter, describe
from tidegate.kafka.adminapi.store import LEDGER_TOPIC
from tidegate.kafka.settings import KafkaConnection
from tidegate_logic.model import Entity

MB = 1_000_000
BROKERS, PARTITIONS_OF_EACH = 9, 2
TOPIC, NAMESPACE, STRANGER = "orders", "soak", "mallory"
LEVELS = {
    **dict.fromkeys(("alice", "bob"), "L0"),
    **dict.fromkeys(("carol", "dave"), "L1"),
    "erin": "L2",
    **dict.fromkeys(("frank", "grace"), "L3"),
}
COMES_AND_GOES = "grace"
BEFORE = {"carol": {PRODUCE: "7000000"}, STRANGER: {PRODUCE: "3000000", FETCH: "4000000"}}
LIMIT = 100 * MB
# of each client and partition: seven of them use 60 % of a NIC that leads two
WANTED = 0.6 * LIMIT / len(LEVELS) / PARTITIONS_OF_EACH
_EPISODE = 55 * MB  # what else each NIC sends in an episode
_THROTTLED = {"L1": 3 * MB, "L2": 2 * MB, "L3": MB}
_SMALL_HEAP = ("-Xmx150m",)
_SCRAPE_SECONDS, _MAX_MUTE_SECONDS = 2, 12
_AGREED_WITHIN_SECONDS = 240.0
STOPPED = "stopped operator"


@dataclass
class Load:
    """What brokers' exporters show. `leaders` is partition -> broker, `quotas` user -> bytes/s."""

    users: set[str]
    leaders: Mapping[int, int] = field(default_factory=dict)
    quotas: Mapping[str, float] = field(default_factory=dict)
    other: float = 0.0
    _counted: dict[int, tuple[float, float]] = field(default_factory=dict)

    def sent(self, broker: int) -> dict[str, float]:
        """User -> bytes/s that this broker sends it now."""
        led = Counter(self.leaders.values())[broker]
        users = sorted(self.users) if led else ()
        return {user: min(WANTED * led, self.quotas.get(user, float("inf"))) for user in users}

    def nic(self, broker: int) -> float:
        """Bytes/s of its NIC. What a client without a contract would send, others do."""
        return (
            sum(self.sent(broker).values())
            + (len(LEVELS) - len(self.users)) * WANTED * PARTITIONS_OF_EACH
            + self.other
        )

    def page(self, broker: int, _: int = 0) -> str:
        """The metrics of this moment."""
        now, rate = time.monotonic(), self.nic(broker)
        at, counted = self._counted.get(broker, (now, 0.0))
        self._counted[broker] = now, counted + rate * (now - at)
        lines = [f'node_network_transmit_bytes_total{{device="eth0"}} {self._counted[broker][1]}']
        wanted = WANTED * Counter(self.leaders.values())[broker]
        for user, sent in self.sent(broker).items():
            labels = f'{{resource="Fetch",user="{user}"}}'
            lines.append(f"kafka_quota_byte_rate{labels} {sent}")
            lines.append(f"kafka_quota_throttle_time{labels} {1000 if sent < wanted else 0}")
        return "\n".join(lines) + "\n"


@dataclass
class World:
    """Everything that runs, and what is done to it. `steady` is the replica that is never killed.

    `throttled_seconds`: for how long some quota was far below its contract in the last episode;
    `looks`: how often the judge saw a moment.
    """

    kafka: KraftLab
    kube: KubeApi
    load: Load
    judge: Judge
    rates: dict[str, int]
    dice: random.Random
    client: AdminClient
    throttled_seconds: int = 0
    looks: int = 0
    parts: Parts = field(init=False)
    steady: OperatorProcess = field(init=False)
    _epoch: int = 0

    @property
    def operators(self) -> tuple[OperatorProcess, OperatorProcess]:
        """Both replicas, as they run now."""
        return self.parts.operator, self.steady

    # --- objects ------------------------------------------------------------------------------------

    def declare(self) -> None:
        """Apply the tiers with the contracts of now."""
        self.load.users = set(self.rates)
        self.judge.declared(time.time(), self.rates)
        for level in sorted(set(LEVELS.values())):
            throttled = {"perPartition": {"fetch": str(_THROTTLED[level])}} if level != "L0" else {}
            members = [
                {
                    "name": user,
                    "user": user,
                    "topics": [TOPIC],
                    "contract": {"perPartition": dict.fromkeys(("fetch", "produce"), str(rate))},
                }
                for user, rate in sorted(self.rates.items())
                if LEVELS[user] == level
            ]
            rates = {"throttledRates": throttled} if throttled else {}
            spec = {"policyRef": {"name": POLICY}, "level": level, "members": members, **rates}
            self._apply("BusinessTier", level.lower(), spec)

    def declare_policy(self, prometheus_url: str) -> None:
        """Create the namespace and the policy."""
        self.kube.kubectl("create", "namespace", NAMESPACE)
        metrics = {
            "prometheus": {"url": prometheus_url},
            "scrapeIntervalSeconds": _SCRAPE_SECONDS,
            "staleAfterSeconds": 15,
        }
        spec = {
            "mode": "Enforce",
            "kafka": {"bootstrapServers": self.kafka.bootstrap_servers},
            "metrics": metrics,
            "brokers": {"egress": {"limit": str(LIMIT)}},
            "escalation": {"holdSeconds": 10, "maxMuteSeconds": _MAX_MUTE_SECONDS},
        }
        self._apply("BrokerBandwidthPolicy", POLICY, spec)

    def _apply(self, kind: str, name: str, spec: Mapping[str, Any]) -> None:
        metadata = {"name": name, "namespace": NAMESPACE}
        document = {"apiVersion": "tidegate.io/v1alpha1", "kind": kind, "metadata": metadata}
        self.kube.kubectl("apply", "-f", "-", input=json.dumps({**document, "spec": spec}))

    def edit(self) -> None:
        """Another contract for somebody, or a client that comes or goes."""
        if self.dice.random() < 0.3:
            if self.rates.pop(COMES_AND_GOES, None) is None:
                self.rates[COMES_AND_GOES] = 6 * MB
        else:
            self.rates[self.dice.choice(sorted(self.rates))] = (
                self.dice.randrange(50, 80) * MB // 10
            )
        self.declare()

    # --- what happens to them -----------------------------------------------------------------------

    @contextmanager
    def episode(self) -> Iterator[None]:
        """Every NIC is over its limit meanwhile."""
        self.load.other, self.throttled_seconds = _EPISODE, 0
        self.judge.changed(time.time())
        yield
        self.load.other = 0.0
        self.judge.changed(time.time())

    def write_beside(self) -> None:
        """What another writer does: a value of its own for a member."""
        user, rate = self.dice.choice(sorted(self.rates)), self.dice.randrange(1, 20) * MB
        self.judge.disturbed(time.time(), user)
        with suppress(Lost, TidegateError):
            alter(self.client, {Entity(user): {FETCH: str(rate)}}, LEDGER_TOPIC)
        self.judge.disturbed(time.time(), user)

    def strike(self, victim: str) -> Callable[[], None]:
        """Kill or stop it; returns what brings it back."""
        if victim == STOPPED:
            self.steady.stop()
            return self.steady.go_on
        return self.parts.kill(victim)

    # --- what is so ---------------------------------------------------------------------------------

    def observer(self) -> Observer:
        """Who compares quotas, ledger and statuses."""
        return Observer(self.kafka, self.kube, NAMESPACE, TOPIC, BEFORE)

    def agree(self, observer: Observer, after: str) -> float:
        """Seconds until quotas, ledger and statuses agree; what never does is a violation."""
        began, found = time.monotonic(), [""]

        def agrees() -> bool:
            found[:] = observer.disagreements(Promise(self.rates, {}))
            return not found

        with suppress(LabError):  # what was found last says more
            wait_until(agrees, "agreement", timeout_seconds=_AGREED_WITHIN_SECONDS, poll_seconds=2)
        with suppress(TidegateError):
            claim = observer.store.facts().claim
            if claim is None or claim.epoch < self._epoch:
                found.append(f"the claim is {claim}, after epoch {self._epoch}")
            self._epoch = self._epoch if claim is None else claim.epoch
        found += [f"{one.identity} ended" for one in self.operators if not one.is_running()]
        self.judge.violations += [f"{time.time():.0f}: after {after}: {one}" for one in found]
        return time.monotonic() - began

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Meanwhile the load follows quotas and leaders, and the judge sees every second."""
        over = threading.Event()

        def watch() -> None:
            try:
                while not over.wait(1.0):
                    with suppress(Lost, TidegateError):
                        self._look()
            except Exception as error:
                self.judge.violations.append(f"{time.time():.0f}: nobody looks any more: {error!r}")

        thread = threading.Thread(target=watch, name="watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _look(self) -> None:
        (topic,) = self.client.metadata([TOPIC]).topics
        leaders = {one.partition_index: one.leader_id for one in topic.partitions}
        leaders = {partition: leader for partition, leader in leaders.items() if leader > 0}
        found = describe(self.client, None, LEDGER_TOPIC)
        if leaders != self.load.leaders:
            self.judge.changed(time.time())
        quotas = {str(entity.user): texts for entity, texts in found.items()}
        self.load.leaders = leaders
        self.load.quotas = {
            user: float(texts[FETCH]) for user, texts in quotas.items() if FETCH in texts
        }
        self.throttled_seconds += any(  # no edit lowers one so far
            self.load.quotas.get(user, rate * PARTITIONS_OF_EACH) < 0.6 * rate * PARTITIONS_OF_EACH
            for user, rate in self.rates.copy().items()
        )
        brokers = range(1, BROKERS + 1)
        sent = [self.load.sent(broker) for broker in brokers]
        most = {user: max(one.get(user, 0.0) for one in sent) for user in LEVELS}
        self.looks += 1
        self.judge.see(Look(time.time(), quotas, most, max(map(self.load.nic, brokers))))

    def leave(self, observer: Observer) -> None:
        """Delete the policy, which restores all that was there before."""
        command = ("delete", "bbp", POLICY, "-n", NAMESPACE, "--timeout=300s")
        before = {Entity(user): dict(texts) for user, texts in BEFORE.items()}
        try:
            self.kube.kubectl(*command, timeout_seconds=310)
            wait_until(
                lambda: all(one == before for one in observer.quotas().values()),
                "what was there before",
                timeout_seconds=60,
            )
            left = observer.store.facts().claim, observer.store.ledger_entities()
            if left != (None, frozenset()):
                raise LabError(f"the ledger has {left}")
        except (LabError, TidegateError) as error:
            self.judge.violations.append(f"{time.time():.0f}: after the deletion: {error}")


@contextmanager
def running_world(rates: dict[str, int], dice: random.Random, directory: Path) -> Iterator[World]:
    """Everything, running; contracts are declared."""
    with ExitStack() as stack:
        kafka = stack.enter_context(
            KraftLab(brokers=BROKERS, controllers=3, java_options=_SMALL_HEAP)
        )
        kube = stack.enter_context(KubeApi())
        kube.install_crds(Path("crds"))
        ring = [*range(1, BROKERS + 1)] * 2
        replicas = [ring[one : one + 3] for one in range(BROKERS)] * PARTITIONS_OF_EACH
        kafka.create_topic(TOPIC, replicas)
        set_quotas(kafka, BEFORE)
        load = Load(set(rates))
        judge = Judge(
            frozenset(user for user, level in LEVELS.items() if level == "L0"),
            PARTITIONS_OF_EACH,
            {STRANGER: BEFORE[STRANGER]},
            LIMIT,
            _MAX_MUTE_SECONDS,
            3.0 * _SCRAPE_SECONDS + 10.0,
        )
        targets = [
            ScrapeTarget(
                "node", stack.enter_context(exporting(partial(load.page, broker))).address, broker
            )
            for broker in range(1, BROKERS + 1)
        ]
        prometheus = stack.enter_context(
            PrometheusLab(targets, scrape_interval_seconds=_SCRAPE_SECONDS)
        )
        client = AdminClient(KafkaConnection(tuple(kafka.bootstrap_servers.split(","))))
        stack.callback(client.close)
        world = World(kafka, kube, load, judge, rates, dice, client)
        world.declare_policy(prometheus.url)
        world.declare()
        stack.enter_context(world.watched())

        def start(name: str) -> OperatorProcess:
            return OperatorProcess(kube, NAMESPACE, directory, name=name)

        world.steady = stack.enter_context(start("steady"))
        world.parts = Parts(dice, kafka, start, start("operator-1"))
        stack.callback(lambda: world.parts.operator.kill())
        yield world
