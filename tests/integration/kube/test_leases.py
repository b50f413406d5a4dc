"""The Leases of many policies on a real API server that holds an answer back, or answers slowly."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from lab.kubernetes.api import KubeApi
from lab.process import patience, wait_until, when_busy
from lab.proxy import Proxy
from tests.unit.control.stage import Stage
from tidegate.control.manager import Manager
from tidegate.control.runtime import Clock
from tidegate.kube.client import KubernetesClient, connect
from tidegate.kube.lease import LeaseAddress, SharedLease

pytestmark = pytest.mark.integration

HELD_SECONDS = 10.0
ATTEMPTS_WHEN_BUSY = 6


class SlowProxy(Proxy):
    """Pass every answer of an API server on after `delay_seconds`. On request, hold the next one;
    other connections go on.
    """

    def __init__(self, api: KubeApi, *, delay_seconds: float = 0.0) -> None:
        server = urlsplit(api.server)
        self._delay_seconds = delay_seconds
        self._hold = threading.Event()
        self.held = threading.Event()
        super().__init__((str(server.hostname), int(server.port or 443)))

    def hold_next_answer(self) -> None:
        self._hold.set()

    def lets_answer_pass(self) -> bool:
        if self._hold.is_set():
            self._hold.clear()
            self.held.set()
            time.sleep(HELD_SECONDS)
        time.sleep(self._delay_seconds)
        return True


class Replica:
    """A manager of in-memory policies whose Leases are real, behind a proxy."""

    def __init__(self, kubeconfig: Path, *, namespace: str) -> None:
        self.kubernetes = KubernetesClient(connect(kubeconfig), "replica-1")
        self.leases: dict[str, SharedLease] = {}
        self._namespace = namespace
        self._stage = Stage()
        # one clock for lists and loops: the real one, as the Leases have it
        self._stage.world = replace(self._stage.world, clock=Clock())
        self.manager = Manager(self._stage.world, self._make_lease)

    def start(self, policies: Sequence[str]) -> None:
        for name in policies:
            self._stage.policy(name, mode="Observe")
        self.manager.start()

    def lapsed(self) -> set[str]:
        """The policies without a writer at this moment."""
        return {key for key, lease in list(self.leases.items()) if lease.remaining_seconds() == 0.0}

    def stop(self) -> None:
        self.manager.stop()
        self.kubernetes.close()

    def _make_lease(self, key: str) -> SharedLease:
        address = LeaseAddress.of_policy(key, operator_namespace=self._namespace)
        self.leases[key] = SharedLease(self.kubernetes, "replica-1", address)
        return self.leases[key]


Start = Callable[..., Replica]


@pytest.fixture
def start(kube_api: KubeApi, namespace: str, tmp_path: Path) -> Iterator[Start]:
    """Starts a replica that holds the Leases of so many policies; it is stopped at the end."""
    started: list[Replica] = []

    def start(proxy: SlowProxy, *, policies: int) -> Replica:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(
            kube_api.kubeconfig.read_text().replace(
                kube_api.server, f"https://127.0.0.1:{proxy.port}"
            )
        )
        replica = Replica(kubeconfig, namespace=namespace)
        started.append(replica)
        replica.start([f"p-{number}" for number in range(policies)])
        wait_until(
            lambda: len(replica.leases) == policies and not replica.lapsed(),
            f"{policies} Leases to be held",
            timeout_seconds=30,
        )
        return replica

    yield start
    for replica in started:
        replica.stop()


def lapsed_within(replica: Replica, seconds: float) -> set[str]:
    lapsed: set[str] = set()
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        lapsed |= replica.lapsed()
        time.sleep(0.02)
    return lapsed


def test_an_answer_that_is_held_for_10_s_costs_no_policy_its_lease(
    kube_api: KubeApi, start: Start
) -> None:
    with SlowProxy(kube_api) as proxy, capture_logs() as lines:
        replica = start(proxy, policies=10)
        proxy.hold_next_answer()
        assert proxy.held.wait(patience(10))
        assert lapsed_within(replica, HELD_SECONDS + 4.0) == set(), when_busy()
        assert [line for line in lines if line["event"] == "Lease lost"] == []
        failed = {
            line["lease"] for line in lines if line["event"] == "Lease could not be read or written"
        }
        assert len(failed) == 1, "one hung call is one policy's"


# A round of calls one after the other takes five seconds in both, and lets Leases lapse.
@pytest.mark.parametrize(
    ("policies", "delay_seconds"),
    [(25, 0.2), pytest.param(100, 0.05, marks=pytest.mark.long)],
)
def test_leases_on_a_slow_api_server_do_not_lapse(
    kube_api: KubeApi, start: Start, policies: int, delay_seconds: float
) -> None:
    with SlowProxy(kube_api, delay_seconds=delay_seconds) as proxy:
        replica = start(proxy, policies=policies)
        for _ in range(ATTEMPTS_WHEN_BUSY):
            with capture_logs() as lines:
                lapsed = lapsed_within(replica, 16.0)
            lost = [line for line in lines if line["event"] == "Lease lost"]
            # A machine that is busy may hold processes back for as long as a Lease is valid.
            if not (lapsed or lost) or not when_busy():
                break
        assert (lapsed, lost) == (set(), []), when_busy()
