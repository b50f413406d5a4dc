"""Three replicas as processes share twelve policies on a real API server: each has its part, and
only the policies of the one that goes or comes move.

The replicas run once and their history is recorded. Each test checks one rule on that record.
Kafka is not there: a Lease is held whether it answers or not.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import pytest
from kubernetes.client import ApiClient, CustomObjectsApi

from lab.errors import LabError
from lab.kubernetes.api import KubeApi
from lab.network import free_port
from lab.process import patience, wait_until
from tests.integration.operator.installation import LEASE_NAMESPACE
from tests.integration.operator.operator_process import OperatorProcess
from tidegate.control.sharing import ranked
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES

pytestmark = [pytest.mark.integration, pytest.mark.long]

POLICIES = tuple(f"p-{number:02}" for number in range(12))
_LEASES = ("coordination.k8s.io", "v1", LEASE_NAMESPACE, "leases")

Holders = Mapping[str, str]
"""The identity that holds each policy's Lease."""


class Leases:
    """Who holds what, by the Leases of the policies of one namespace."""

    def __init__(self, api_client: ApiClient, namespace: str) -> None:
        self._objects = CustomObjectsApi(api_client)
        self._namespace = namespace

    def holders(self) -> Holders:
        selector = f"tidegate.io/policy-namespace={self._namespace}"
        found = self._objects.list_namespaced_custom_object(*_LEASES, label_selector=selector)
        return {
            lease["metadata"]["labels"]["tidegate.io/policy"]: lease["spec"]["holderIdentity"]
            for lease in found["items"]
            if lease["spec"].get("holderIdentity")
        }

    def ordinals(self, *identities: str) -> dict[str, int]:
        """The ordinal of each of these replicas that has one."""
        found = self._objects.list_namespaced_custom_object(
            *_LEASES, label_selector="tidegate.io/replicas"
        )
        return {
            lease["spec"]["holderIdentity"]: int(lease["metadata"]["name"].rpartition("-")[2])
            for lease in found["items"]
            if lease["spec"].get("holderIdentity") in identities
        }

    def of(self, identity: str) -> set[str]:
        return {policy for policy, holder in self.holders().items() if holder == identity}

    def wait(self, condition: Callable[[Holders], bool], what: str, seconds: float) -> float:
        """How long it took."""
        began = time.monotonic()
        wait_until(
            lambda: condition(self.holders()), what, timeout_seconds=seconds, poll_seconds=0.1
        )
        return time.monotonic() - began


@dataclass(frozen=True)
class History:
    """Who held what at first, after the second replica ended, when its successor was there, and
    after the third was killed; and how long policies had no living holder. `parts` are how many
    each of the three held after a minute.
    """

    parts: Sequence[int]
    ordinals: Mapping[str, int]
    shared: Holders
    ended: str
    without_ended: Holders
    successor: str
    with_successor: Holders
    killed: str
    without_killed: Holders
    shared_seconds: float
    after_end_seconds: float
    after_kill_seconds: float


@pytest.fixture(scope="module")
def history(
    crds: KubeApi, api_client: ApiClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[History]:
    directory = tmp_path_factory.mktemp("sharing")
    namespace = "sharing"
    crds.kubectl("create", "namespace", namespace)
    crds.kubectl("apply", "-f", "-", input=_policies(namespace))
    with ExitStack() as stack:

        def start(name: str) -> OperatorProcess:
            return stack.enter_context(OperatorProcess(crds, namespace, directory, name=name))

        yield _run(Leases(api_client, namespace), start)
    crds.kubectl("delete", "namespace", namespace, "--wait=false")


def _policies(namespace: str) -> str:
    away = f"127.0.0.1:{free_port()}"
    kafka = {"bootstrapServers": away, "quotaStore": "ZooKeeper", "zookeeper": {"connect": away}}
    items = [
        {
            "apiVersion": BROKER_BANDWIDTH_POLICIES.api_version,
            "kind": BROKER_BANDWIDTH_POLICIES.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"mode": "Observe", "kafka": kafka},
        }
        for name in POLICIES
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _run(leases: Leases, start: Callable[[str], OperatorProcess]) -> History:
    first, second, third = (start(name) for name in ("first", "second", "third"))
    replicas = (first.identity, second.identity, third.identity)

    def fits(*names: str) -> Callable[[Holders], bool]:
        return lambda holders: _fits(holders, leases.ordinals(*names), len(names))

    began = time.monotonic()
    with suppress(LabError):
        leases.wait(fits(*replicas), "each replica to have its part", 60)
    parts = [len(leases.of(identity)) for identity in replicas]
    leases.wait(fits(*replicas), "each replica to have its part", 60)
    shared_seconds = time.monotonic() - began
    ordinals, shared = leases.ordinals(*replicas), leases.holders()

    second.terminate()
    second.exit_code(timeout_seconds=60)
    after_end_seconds = leases.wait(_held_besides(second.identity), "others to take over", 30)
    without_ended = leases.holders()
    fourth = start("fourth")
    replicas = (first.identity, fourth.identity, third.identity)
    leases.wait(fits(*replicas), "the successor to have its part", 90)
    with_successor = leases.holders()

    third.kill()
    after_kill_seconds = leases.wait(_held_besides(third.identity), "others to take over", 60)
    return History(
        parts, ordinals, shared, second.identity, without_ended, fourth.identity, with_successor,
        third.identity, leases.holders(), shared_seconds, after_end_seconds, after_kill_seconds,
    )  # fmt: skip


def _fits(holders: Holders, ordinals: Mapping[str, int], replicas: int) -> bool:
    """Whether each policy is where all replicas together want it."""
    of_ordinal = {ordinal: identity for identity, ordinal in ordinals.items()}
    return len(of_ordinal) == replicas and all(
        holders.get(policy) == of_ordinal[ranked(f"sharing/{policy}", of_ordinal)[0]]
        for policy in POLICIES
    )


def _held_besides(gone: str) -> Callable[[Holders], bool]:
    return lambda holders: len(holders) == len(POLICIES) and gone not in holders.values()


def _of(holders: Holders, identity: str) -> set[str]:
    return {policy for policy, holder in holders.items() if holder == identity}


def _moved(before: Holders, after: Holders) -> set[str]:
    return {policy for policy in POLICIES if before[policy] != after[policy]}


def test_after_a_minute_each_replica_holds_at_least_two_of_twelve(history: History) -> None:
    print(f"{history.parts} after a minute, shared out after {history.shared_seconds:.1f} s")
    assert sorted(history.ordinals.values()) == [0, 1, 2]
    assert min(history.parts) >= 2


def test_one_that_ends_gives_its_policies_up_at_once_and_no_other_moves(history: History) -> None:
    print(f"taken {history.after_end_seconds:.1f} s after the end")
    assert _moved(history.shared, history.without_ended) == _of(history.shared, history.ended)
    assert history.after_end_seconds <= patience(4)


def test_its_successor_gets_the_very_same_ones(history: History) -> None:
    own = _of(history.shared, history.ended)
    assert _of(history.with_successor, history.successor) == own
    assert _moved(history.shared, history.with_successor) == own


def test_the_policies_of_a_killed_one_have_another_holder_within_15_seconds(
    history: History,
) -> None:
    print(f"taken {history.after_kill_seconds:.1f} s after the kill")
    assert _moved(history.with_successor, history.without_killed) == _of(
        history.with_successor, history.killed
    )
    assert history.after_kill_seconds <= patience(15)
