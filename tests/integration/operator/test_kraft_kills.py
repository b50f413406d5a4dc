"""Kills of everything that quotas on a Kafka without ZooKeeper depend on, while contracts change:
after each one quotas, ledger and status agree, and SCRAM logins work.

`KRAFT_KILLS=<number>` plays fewer or more, `KRAFT_KILLS_SEED=<number>` the same ones again; the
seed is printed. `make kraft-kills KILLS=50` shows each kill as it is played.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiClient, CustomObjectsApi

from lab.errors import LabError
from lab.kafka import Broker
from lab.kraft import KraftLab
from lab.kubernetes.api import KubeApi
from lab.process import patience, started, wait_until
from tests.contract.quota_store_contract import FETCH, PRODUCE
from tests.integration.connections import connection_of
from tests.integration.operator.agreement import POLICY, RATES, Observer, Promise, Texts
from tests.integration.operator.operator_process import OperatorProcess
from tidegate.kafka.adminapi.client import AdminClient, Lost
from tidegate.kafka.adminapi.quotas import alter
from tidegate.kafka.adminapi.store import LEDGER_TOPIC
from tidegate.kube.api import BUSINESS_TIERS
from tidegate_logic.model import Entity

KILLS = int(os.environ.get("KRAFT_KILLS") or "4")  # each victim once

pytestmark = [pytest.mark.integration, pytest.mark.kraft, pytest.mark.long]

MB = 1_000_000
CHANGING = ("alice", "bob", "carol", "dave", "erin")
STEADY = "frank"  # whose contract never changes
STRANGER = "mallory"  # whom no tier names
# carol and the stranger had quotas before Tidegate came
BEFORE: Mapping[str, Texts] = {
    "carol": {PRODUCE: "7000000"},
    STRANGER: {PRODUCE: "3000000", FETCH: "4000000"},
}
VICTIMS = ("broker", "controller", "ledger's leader", "operator")
PARTITIONS = [[1, 2], [2, 3], [3, 1]]
_STEADY_RATE = 9 * MB
_LONGEST_PAUSE_SECONDS = 4.0  # from a kill to the start of the next process
_AFTER_A_CHANGE_SECONDS = 0.5  # the kill comes within this, so that quotas are being written
_AGREED_WITHIN_SECONDS = 120.0
_LONGEST_BETWEEN_CHANGES_SECONDS = 1.5


def order_of_kills(dice: random.Random, kills: int) -> list[str]:
    """The victims of a run, each as often as the others (one more or less), in a random order."""
    order: list[str] = []
    while len(order) < kills:
        order += dice.sample(VICTIMS, len(VICTIMS))
    return order[:kills]


@dataclass
class Changes:
    """Contracts that change every second or so while `going_on`: rates, and who has a contract."""

    dice: random.Random
    send: Callable[[dict[str, Any]], object]
    topic: str
    rates: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CHANGING, 5 * MB))
    sent: int = 0
    _changed: threading.Event = field(default_factory=threading.Event)
    _failure: Exception | None = None

    @property
    def promise(self) -> Promise:
        return Promise(self.rates, {STEADY: _STEADY_RATE})

    def tier_spec(self) -> dict[str, Any]:
        return tier_spec(self.rates, self.topic, per="perPartition")

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Contracts change meanwhile. Raises what sending one raised."""
        ended = threading.Event()

        def change() -> None:
            try:
                while not ended.wait(self.dice.uniform(0.5, _LONGEST_BETWEEN_CHANGES_SECONDS)):
                    self.change_one()
            except Exception as error:
                self._failure = error
                self._changed.set()

        thread = threading.Thread(target=change, name="changes", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        self._require_sent()

    def change_one(self) -> None:
        """Another rate for one user, or a user who comes or goes."""
        user = self.dice.choice(CHANGING)
        rates = dict(self.rates)
        if user in rates and len(rates) > 2 and self.dice.random() < 0.25:
            del rates[user]
        else:
            rates[user] = self.dice.randrange(40, 80) * MB // 10
        self.send({"spec": tier_spec(rates, self.topic, per="perPartition")})
        self.rates = rates
        self.sent += 1
        self._changed.set()

    def wait_for_next(self) -> None:
        """Return once Kubernetes has another change. Raises what sending it raised."""
        self._changed.clear()
        self._require_sent()
        assert self._changed.wait(patience(60)), "no contract was changed within 60 s"
        self._require_sent()

    def _require_sent(self) -> None:
        if self._failure is not None:
            raise self._failure


def tier_spec(rates: Mapping[str, int], topic: str, *, per: str) -> dict[str, Any]:
    """A tier whose members have these rates both ways."""
    members = [
        {
            "name": user,
            "user": user,
            "topics": [topic],
            "contract": {per: dict.fromkeys(RATES, str(rate))},
        }
        for user, rate in sorted(rates.items())
    ]
    return {"policyRef": {"name": POLICY}, "level": "L0", "members": members}


@dataclass
class Parts:
    """What is killed and started again."""

    dice: random.Random
    kafka: KraftLab
    start_operator: Callable[[str], OperatorProcess]
    operator: OperatorProcess
    _numbers: Iterator[int] = field(default_factory=lambda: count(2))

    def kill(self, victim: str) -> Callable[[], None]:
        """Kill it; returns what starts it again."""
        if victim == "operator":
            self.operator.kill()
            return self._start_next_operator
        node = {
            "broker": self._any_broker,
            "controller": self._active_controller,
            "ledger's leader": self._leader_of_the_ledger,
        }[victim]()
        print(f"    node {node.broker_id}")
        node.kill()
        return node.start

    def _start_next_operator(self) -> None:
        self.operator = self.start_operator(f"operator-{next(self._numbers)}")

    def _any_broker(self) -> Broker:
        return self.dice.choice(self.kafka.brokers)

    def _leader_of_the_ledger(self) -> Broker:
        leader = wait_until(
            lambda: self.kafka.leaders(LEDGER_TOPIC).get(0),
            "a leader of the ledger",
            timeout_seconds=30,
        )
        assert leader is not None
        return self.kafka.broker(leader)

    def _active_controller(self) -> Broker:
        active = wait_until(
            self.kafka.admin.quorum_leader, "an active controller", timeout_seconds=30
        )
        (found,) = (one for one in self.kafka.controllers if one.broker_id == active)
        return found


def wait_for_agreement(
    observer: Observer, promise: Promise, after: str, operator: OperatorProcess
) -> float:
    """Return how many seconds it took until quotas, ledger and status agreed."""
    started_seconds = time.monotonic()
    found = [""]

    def agrees() -> bool:
        found[:] = observer.disagreements(promise)
        return not found

    try:
        wait_until(
            agrees,
            f"agreement after {after}",
            timeout_seconds=_AGREED_WITHIN_SECONDS,
            poll_seconds=0.2,
        )
    except LabError as error:
        listed = "\n".join(f"- {one}" for one in found)
        raise AssertionError(f"{error}\n{listed}") from error
    assert operator.is_running(), f"the operator ended by itself after {after}"
    return time.monotonic() - started_seconds


def set_quotas(kafka: KraftLab, quotas: Mapping[str, Texts]) -> None:
    """What somebody set before Tidegate came."""
    client = AdminClient(connection_of(kafka.bootstrap_servers))
    wanted = {Entity(user): texts for user, texts in quotas.items()}

    def are_set() -> bool:
        try:
            return alter(client, wanted, LEDGER_TOPIC) == dict.fromkeys(wanted)
        except Lost:  # a controller that has just started may answer late
            return False

    wait_until(are_set, "the quotas of before", timeout_seconds=60)
    client.close()


def refused_logins(kafka: KraftLab) -> list[str]:
    """Users whose SCRAM login does not work."""
    users = (*CHANGING, STEADY, STRANGER)
    return [user for user in users if not kafka.can_log_in(user, kafka.password(user))]


def apply(
    crds: KubeApi, namespace: str, kafka: KraftLab, tiers: Mapping[str, dict[str, Any]]
) -> None:
    """Create the namespace, the policy and its tiers."""
    spec = {
        "mode": "Enforce",
        # a lowering takes its steps six seconds apart with so short a window
        "kafka": {"bootstrapServers": kafka.bootstrap_servers, "quotaWindow": {"samples": 2}},
        "escalation": {"maxMuteSeconds": 3},
        "writeBudget": {"changes": 100_000},
        "removal": {"maxPercent": 100},
    }
    version = {"apiVersion": "tidegate.io/v1alpha1"}
    crds.kubectl("create", "namespace", namespace)
    for kind, name, content in (
        ("BrokerBandwidthPolicy", POLICY, spec),
        *(("BusinessTier", name, content) for name, content in tiers.items()),
    ):
        metadata = {"name": name, "namespace": namespace}
        document = {**version, "kind": kind, "metadata": metadata, "spec": content}
        crds.kubectl("apply", "-f", "-", input=json.dumps(document))


@pytest.fixture(scope="module")
def cluster() -> Iterator[KraftLab]:
    """Three brokers, and three controllers in processes of their own."""
    users = (*CHANGING, STEADY, STRANGER)
    with started(lambda: KraftLab(brokers=3, controllers=3, users=users)) as kafka:
        yield kafka


@pytest.mark.timeout(600 + 180 * KILLS)
def test_after_each_kill_quotas_ledger_and_status_agree(
    crds: KubeApi, api_client: ApiClient, cluster: KraftLab, unique_name: str, tmp_path: Path
) -> None:
    seed = int(os.environ.get("KRAFT_KILLS_SEED") or random.SystemRandom().randrange(10**6))
    print(f"KRAFT_KILLS={KILLS} KRAFT_KILLS_SEED={seed}")
    dice, namespace, topic = random.Random(seed), unique_name, unique_name
    cluster.create_topic(topic, assignment=PARTITIONS)
    set_quotas(cluster, BEFORE)
    objects = CustomObjectsApi(api_client)

    def send(body: dict[str, Any]) -> object:
        kind = BUSINESS_TIERS
        place = (kind.group, kind.version, namespace, kind.plural, "changing")
        return objects.patch_namespaced_custom_object(*place, body, _request_timeout=30)

    changes = Changes(random.Random(seed + 1), send, topic)
    steady = tier_spec({STEADY: _STEADY_RATE}, topic, per="perBroker")
    apply(crds, namespace, cluster, {"changing": changes.tier_spec(), "steady": steady})

    def start_operator(name: str) -> OperatorProcess:
        return OperatorProcess(crds, namespace, tmp_path, name=name)

    parts = Parts(dice, cluster, start_operator, start_operator("operator-1"))
    observer = Observer(cluster, crds, namespace, topic, BEFORE)
    under_way = 0
    try:
        wait_for_agreement(observer, changes.promise, "the start", parts.operator)
        for number, victim in enumerate(order_of_kills(dice, KILLS), start=1):
            print(f"{number}: {victim}")
            with changes.going_on():
                changes.wait_for_next()
                time.sleep(dice.uniform(0, _AFTER_A_CHANGE_SECONDS))
                start_again = parts.kill(victim)
                if victim == "operator":
                    under_way += observer.under_way()
                time.sleep(dice.uniform(0, _LONGEST_PAUSE_SECONDS))
                start_again()
                changes.wait_for_next()  # which finds everything started, and nothing settled
            took_seconds = wait_for_agreement(
                observer, changes.promise, f"kill {number}, {victim}", parts.operator
            )
            assert refused_logins(cluster) == []
            print(f"    agreed after {took_seconds:.1f} s")
        print(f"{changes.sent} contracts changed, {under_way} found between intent and outcome")

        cluster.restore_preferred_leaders(topic)
        wait_for_agreement(observer, changes.promise, "all kills", parts.operator)
        assert set(cluster.leaders(topic).values()) == {1, 2, 3}
        assert not cluster.can_log_in(STEADY, "wrong")
        claim = observer.store.facts().claim
        assert claim is not None
        # one claim all along, whose epoch goes up by one where another operator has taken over
        assert claim.policy_key == f"{namespace}/{POLICY}"
        assert claim.holder == parts.operator.identity
        assert claim.epoch <= 1 + order_of_kills(random.Random(seed), KILLS).count("operator")

        in_namespace = ("-n", namespace)
        crds.kubectl("delete", "bbp", POLICY, *in_namespace, "--timeout=180s", timeout_seconds=190)
        before = {Entity(user): dict(texts) for user, texts in BEFORE.items()}
        wait_until(
            lambda: all(quotas == before for quotas in observer.quotas().values()),
            "every broker to have what was there before",
            timeout_seconds=30,
        )
        wait_until(
            lambda: observer.store.facts().claim is None, "the end of the claim", timeout_seconds=30
        )
        assert observer.store.ledger_entities() == frozenset()
        assert observer.store.unreadable_nodes() == ()
        assert refused_logins(cluster) == []
    finally:
        parts.operator.kill()
        observer.close()
