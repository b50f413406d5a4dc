"""A policy has one connection: kept while nothing changes, made anew when the spec or a Secret does, closed without a trace."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from controller_logic.reasons import Reason
from tests.doubles.kubernetes import InMemoryKubernetes
from tidegate.control.connections import SECRET_AGE_SECONDS, Connection, Secrets
from tidegate.control.observe import KafkaCluster
from tidegate.errors import NotFound, TidegateError, Unreachable
from tidegate.resources.policy import KafkaCluster as KafkaSpec

AWAY = Unreachable(Reason.KUBERNETES_UNREACHABLE, "Kubernetes did not answer.")


@dataclass
class Opened:
    """One connection that was opened, as store and topology in one; `brokers_changed` does what a watch does."""

    secrets: Secrets
    folder: Path
    watch_error: TidegateError | None
    closed: int = 0
    brokers_changed: Callable[[], None] = lambda: None

    def watch(self, wake: Callable[[], None]) -> None:
        if self.watch_error is not None:
            raise self.watch_error
        self.brokers_changed = wake

    def close(self) -> None:
        self.closed += 1


@dataclass
class House:
    """A Connection with hands on its clock, its Kubernetes and everything that it opened."""

    kubernetes: InMemoryKubernetes = field(default_factory=InMemoryKubernetes)
    opened: list[Opened] = field(default_factory=list)
    now: float = 1000.0
    wakes: int = 0
    watch_error: TidegateError | None = None

    def __post_init__(self) -> None:
        self.connection = Connection(
            "streaming", kubernetes=self.kubernetes, opener=self._open, wake=self._wake, monotonic=lambda: self.now
        )

    def _open(self, spec: KafkaSpec, *, secrets: Secrets, folder: Path) -> KafkaCluster:
        (folder / "ca.crt").write_text("certificate")
        self.opened.append(Opened(secrets, folder, self.watch_error))
        return KafkaCluster("zk:2181", self.opened[-1], self.opened[-1])  # type: ignore[arg-type]

    def _wake(self) -> None:
        self.wakes += 1


@pytest.fixture
def house() -> House:
    house = House()
    house.kubernetes.put_secret("streaming", "zookeeper", {"password": b"old"})
    return house


def spec(connect: str = "zk:2181", **fields: Any) -> KafkaSpec:
    login = {"type": "digest", "username": "tidegate", "passwordSecret": {"secretName": "zookeeper", "password": "password"}}
    zookeeper = {"connect": connect, "authentication": login}
    return KafkaSpec.model_validate({"bootstrapServers": "kafka:9092", "quotaStore": "ZooKeeper", "zookeeper": zookeeper, **fields})


def test_the_same_spec_again_needs_no_new_connection(house: House) -> None:
    first = house.connection.cluster(spec())
    assert house.connection.cluster(spec()) is first
    assert (len(house.opened), house.opened[0].closed) == (1, 0)


def test_a_changed_spec_closes_the_old_connection_before_it_opens_the_next(house: House) -> None:
    house.connection.cluster(spec())
    house.connection.cluster(spec("zk-2:2181"))
    assert [opened.closed for opened in house.opened] == [2, 0]  # store and topology
    assert not house.opened[0].folder.exists()


@pytest.mark.parametrize(("age_seconds", "opened"), [(SECRET_AGE_SECONDS - 1, 1), (SECRET_AGE_SECONDS + 1, 2)])
def test_a_changed_secret_is_noticed_after_a_minute(house: House, age_seconds: float, opened: int) -> None:
    house.connection.cluster(spec())
    house.kubernetes.put_secret("streaming", "zookeeper", {"password": b"new"})
    house.now += age_seconds
    house.connection.cluster(spec())
    assert len(house.opened) == opened


def test_a_secret_that_did_not_change_keeps_the_connection_however_old_it_is(house: House) -> None:
    house.connection.cluster(spec())
    house.now += 10 * SECRET_AGE_SECONDS
    house.connection.cluster(spec())
    assert len(house.opened) == 1


def brokers_login(secret: str) -> dict[str, Any]:
    return {"type": "plain", "username": "orders", "passwordSecret": {"secretName": secret, "password": "password"}}


def test_every_secret_that_either_side_names_is_read(house: House) -> None:
    house.kubernetes.put_secret("streaming", "clients", {"password": b"x"})
    house.kubernetes.put_secret("streaming", "unrelated", {"password": b"y"})
    house.connection.cluster(spec(authentication=brokers_login("clients")))
    assert house.opened[0].secrets == Secrets("streaming", {"zookeeper": {"password": b"old"}, "clients": {"password": b"x"}})


def test_a_missing_secret_opens_nothing_and_is_named(house: House) -> None:
    with pytest.raises(NotFound, match="streaming/nowhere") as missing:
        house.connection.cluster(spec(authentication=brokers_login("nowhere")))
    assert (missing.value.reason, house.opened) == (Reason.SECRET_UNREADABLE, [])


@pytest.mark.parametrize("error", [AWAY, NotFound(Reason.SECRET_UNREADABLE, "Secret streaming/zookeeper does not exist.")])
def test_an_open_connection_outlives_its_secret_so_that_quotas_can_still_be_given_back(house: House, error: TidegateError) -> None:
    first = house.connection.cluster(spec())
    house.kubernetes.fail_with(error)
    house.now += SECRET_AGE_SECONDS + 1
    assert house.connection.cluster(spec()) is first


def test_a_secret_known_for_one_spec_is_not_used_for_another(house: House) -> None:
    house.connection.cluster(spec())
    house.kubernetes.fail_with(AWAY)
    with pytest.raises(Unreachable):
        house.connection.cluster(spec("zk-2:2181"))


def test_brokers_that_come_or_go_wake_the_policy(house: House) -> None:
    house.connection.cluster(spec())
    house.opened[0].brokers_changed()
    assert house.wakes == 1


def test_a_connection_that_cannot_watch_is_closed_and_tried_anew(house: House) -> None:
    house.watch_error = Unreachable(Reason.ZOOKEEPER_UNREACHABLE, "zk:2181 does not answer.")
    with pytest.raises(Unreachable):
        house.connection.cluster(spec())
    house.watch_error = None
    house.connection.cluster(spec())
    assert [opened.closed for opened in house.opened] == [2, 0]
    assert not house.opened[0].folder.exists()


def test_closing_leaves_no_certificate_behind_and_may_be_done_twice(house: House) -> None:
    house.connection.cluster(spec())
    house.connection.close()
    house.connection.close()
    assert (house.opened[0].closed, house.opened[0].folder.exists()) == (2, False)
