"""A whole Kafka 3.9 with its ZooKeeper: one to several brokers on loopback, or each in a network namespace of its own.

    with KafkaLab(brokers=3, users=("alice",)) as kafka:
        kafka.create_topic("orders", assignment=[[1, 2], [2, 3], [3, 1]])
        kafka.broker(3).kill()

It writes no quota and makes no traffic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Self

from lab.broker import Broker, BrokerPlan, Ports
from lab.errors import LabError
from lab.kafka_admin import KafkaAdmin, can_log_in
from lab.network import Namespace, Network
from lab.ports import free_port
from lab.quota_log import QuotaChange, is_applied
from lab.run_directory import RunDirectory
from lab.waiting import wait_until
from lab.zookeeper import DigestLogin, ZooKeeperLab

_FIRST_BROKER_HOST_NUMBER = 10
_CLIENT_HOST_NUMBER = 100
_NAMESPACE_PORTS = Ports(internal=9091, plain=9092, sasl=9093, jmx=7071)
_QUOTA_TIMEOUT_SECONDS = 15.0


class KafkaLab:
    """ZooKeeper and brokers 1..n; a context manager that returns once all of them serve, and leaves nothing behind.

    `users` can log in by SASL PLAIN with `password(user)`; further ones can be made with `create_scram_user`. `server_properties` are
    added to every broker's settings. With `zookeeper_logins`, the brokers log in to ZooKeeper as the first of them and keep everybody
    else from writing. `chroot` is a path such as "/kafka". Namespaces need root.
    """

    def __init__(
        self,
        *,
        brokers: int = 3,
        namespaces: bool = False,
        users: Sequence[str] = (),
        server_properties: Mapping[str, str] | None = None,
        zookeeper_logins: tuple[DigestLogin, ...] = (),
        chroot: str = "",
    ) -> None:
        self._broker_ids = range(1, brokers + 1)
        self._wants_namespaces = namespaces
        self._users = tuple(users)
        self._server_properties = dict(server_properties or {})
        self._zookeeper_logins = zookeeper_logins
        self._chroot = chroot
        self._brokers: dict[int, Broker] = {}
        self._stack = ExitStack()
        self.network: Network | None = None
        self.client_namespace: Namespace | None = None
        self.cluster_id = ""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._run = stack.enter_context(RunDirectory())
            if self._wants_namespaces:
                self.network = Network(self._run)
                self.client_namespace = self.network.add("cli", _CLIENT_HOST_NUMBER)
            host = self.network.gateway if self.network else "127.0.0.1"
            self.zookeeper = stack.enter_context(
                ZooKeeperLab(host=host, logins=self._zookeeper_logins, directory=self._run.path / "zookeeper")
            )
            stack.callback(self._kill_brokers)
            self._start_brokers()
            self.cluster_id = self.admin.cluster_id()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def lab_id(self) -> str:
        """The id that this lab's directory, namespaces and bridge carry."""
        return self._run.lab_id

    @property
    def run(self) -> RunDirectory:
        """The directory of this lab, for parts that live and end with it."""
        return self._run

    @property
    def bridge(self) -> Network:
        """Where further machines can be put beside the brokers; `LabError` without namespaces."""
        if self.network is None:
            raise LabError("Nothing can be put beside brokers on loopback. Give --namespaces (`namespaces=True`), as root.")
        return self.network

    @property
    def zookeeper_connect(self) -> str:
        """ZooKeeper's connect string as the brokers use it, with the chroot."""
        return self.zookeeper.connect + self._chroot

    @property
    def bootstrap_servers(self) -> str:
        """The plain listeners of all brokers."""
        return ",".join(f"{broker.plan.host}:{broker.plan.ports.plain}" for broker in self.brokers)

    @property
    def sasl_bootstrap_servers(self) -> str:
        """The listeners of all brokers on which clients log in."""
        return ",".join(f"{broker.plan.host}:{broker.plan.ports.sasl}" for broker in self.brokers)

    @property
    def jmx_targets(self) -> dict[int, str]:
        """Broker -> host:port of its JMX exporter."""
        return {broker.broker_id: f"{broker.plan.host}:{broker.plan.ports.jmx}" for broker in self.brokers}

    @property
    def brokers(self) -> list[Broker]:
        """All brokers by id, running or not."""
        return [self._brokers[broker_id] for broker_id in sorted(self._brokers)]

    @property
    def admin(self) -> KafkaAdmin:
        """Administration through the plain listeners."""
        return KafkaAdmin(self.bootstrap_servers)

    def broker(self, broker_id: int) -> Broker:
        """One broker; KeyError for an id outside 1..n."""
        return self._brokers[broker_id]

    def password(self, user: str) -> str:
        """The SASL PLAIN password of one of `users`."""
        return f"{user}-password"

    def create_topic(self, name: str, assignment: Sequence[Sequence[int]], *, config: Mapping[str, str] | None = None) -> None:
        """As `KafkaAdmin.create_topic`."""
        self.admin.create_topic(name, assignment, config=config)

    def leaders(self, topic: str) -> dict[int, int]:
        """Partition -> broker that leads it now."""
        return self.admin.leaders(topic)

    def wait_for_leaders(self, topic: str, leaders: Mapping[int, int], *, timeout_seconds: float = 30.0) -> None:
        """Return once every running broker says that the partitions of `topic` are led exactly so."""
        self.admin.wait_for_leaders(topic, leaders, timeout_seconds=timeout_seconds)

    def restore_preferred_leaders(self, topic: str, *, timeout_seconds: float = 60.0) -> None:
        """Return once the first replica of every partition leads it again, as after its creation; all brokers must run."""
        wanted = self.admin.preferred_leaders(topic)
        wait_until(
            partial(self._is_led_as, topic, wanted),
            f"preferred leaders of topic {topic}",
            timeout_seconds=timeout_seconds,
            poll_seconds=0.5,
        )

    def create_scram_user(self, user: str, password: str) -> None:
        """As `KafkaAdmin.create_scram_user`."""
        self.admin.create_scram_user(user, password)

    def can_log_in(self, user: str, password: str, *, mechanism: str = "SCRAM-SHA-256") -> bool:
        """Whether the brokers accept this login on the SASL listener."""
        return can_log_in(self.sasl_bootstrap_servers, user, password=password, mechanism=mechanism)

    def log_positions(self) -> dict[int, int]:
        """Broker -> how many bytes its log has now; hand it to `wait_for_quota_applied` before a change is made."""
        return {broker.broker_id: broker.log_size_bytes() for broker in self.brokers}

    def wait_for_quota_applied(
        self, change: QuotaChange, since: Mapping[int, int] | None = None, *, timeout_seconds: float = _QUOTA_TIMEOUT_SECONDS
    ) -> None:
        """Return once the newest line about this entity and kind in every running broker's log is `change`.

        With `since` only what was logged after those positions counts: needed where the same value was set before.
        """
        for broker in self.brokers:
            if broker.is_running():
                wait_until(
                    partial(_has_applied, broker, change, since=(since or {}).get(broker.broker_id, 0)),
                    f"broker {broker.broker_id} to apply {change}",
                    timeout_seconds=timeout_seconds,
                    processes=[broker.process],
                )

    def _is_led_as(self, topic: str, wanted: Mapping[int, int]) -> bool:
        if self.admin.is_led_as(topic, wanted):
            return True
        self.admin.elect_preferred_leaders(topic)
        return False

    def _start_brokers(self) -> None:
        for broker_id in self._broker_ids:
            self._brokers[broker_id] = Broker(self._plan(broker_id))
            self._brokers[broker_id].launch()
        for broker in self.brokers:
            broker.wait_started()
        self.admin.wait_for_brokers(self._broker_ids)

    def _plan(self, broker_id: int) -> BrokerPlan:
        namespace = self.network.add(f"b{broker_id}", _FIRST_BROKER_HOST_NUMBER + broker_id) if self.network else None
        return BrokerPlan(
            broker_id=broker_id,
            host=namespace.address if namespace else "127.0.0.1",
            ports=_NAMESPACE_PORTS if namespace else Ports(internal=free_port(), plain=free_port(), sasl=free_port(), jmx=free_port()),
            zookeeper_connect=self.zookeeper_connect,
            directory=self._run.path / f"broker-{broker_id}",
            namespace=namespace,
            plain_users={user: self.password(user) for user in self._users},
            zookeeper_login=self._zookeeper_logins[0] if self._zookeeper_logins else None,
            extra_properties=self._server_properties,
        )

    def _kill_brokers(self) -> None:
        # A controlled shutdown would move leaders for seconds; the data goes with the lab anyway.
        for broker in self.brokers:
            if broker.is_running():
                broker.kill()


def _has_applied(broker: Broker, change: QuotaChange, *, since: int) -> bool:
    return is_applied(broker.log_text(since), change)
