"""A Kafka 3.9 that moves from ZooKeeper to KRaft, one step of Kafka's own procedure after another.

    with MigratingLab(brokers=3, users=("alice",)) as kafka:
        kafka.begin()               # a controller, which takes over: dual write
        kafka.restart_as_kraft()    # brokers without ZooKeeper; the controller still writes there
        kafka.finish()              # the controller leaves ZooKeeper; there is no way back

It is a `KafkaLab` until `begin`. It writes no quota and makes no traffic.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Self

from lab.kafka import Broker, BrokerPlan, KafkaLab, Ports
from lab.kraft import Controller, Format, Node, Quorum
from lab.network import free_port
from lab.process import wait_until

_CONTROLLER_ID = 101
_MIGRATED = "Completed migration of metadata from ZooKeeper to KRaft"
_MIGRATION_TIMEOUT_SECONDS = 60.0


class MigratingLab(KafkaLab):
    """ZooKeeper and brokers as in `KafkaLab`, on loopback, and later a controller beside them."""

    def __enter__(self) -> Self:
        self._controller: Controller | None = None
        self._quorum = Quorum({_CONTROLLER_ID: f"127.0.0.1:{free_port()}"})
        super().__enter__()
        self._stack.callback(self._kill_controller)
        return self

    def begin(self) -> None:
        """Return once all metadata is in KRaft, and every change is written to ZooKeeper as well.

        The brokers still use ZooKeeper; they are restarted one by one.
        """
        migrates = {
            "zookeeper.metadata.migration.enable": "true",
            "zookeeper.connect": self.zookeeper_connect,
            "inter.broker.listener.name": "INTERNAL",  # it asks for it of brokers with ZooKeeper
        }
        controller = self._start_controller(migrates, is_formatted=False)
        for broker in self.brokers:
            self._restart(broker, _MigratingBroker(broker.plan, self._quorum))
        wait_until(
            lambda: _MIGRATED in controller.log_text(),
            "the migration of all metadata",
            timeout_seconds=_MIGRATION_TIMEOUT_SECONDS,
            processes=[controller.process],
        )

    def restart_as_kraft(self) -> None:
        """Restart the brokers one by one without ZooKeeper; the controller still writes there."""
        for broker in self.brokers:
            node = Node(broker.plan, self._quorum, self._format, is_formatted=True)
            self._restart(broker, node)

    def finish(self) -> None:
        """Restart the controller without ZooKeeper; return once brokers have it again."""
        if self._controller is not None:
            self._controller.stop()
        self._start_controller({}, is_formatted=True)
        self.admin.wait_for_brokers(list(self._broker_ids))

    @property
    def _format(self) -> Format:
        return Format(self.cluster_id, {})

    def _start_controller(self, settings: Mapping[str, str], *, is_formatted: bool) -> Controller:
        plan = replace(
            self.brokers[0].plan,
            broker_id=_CONTROLLER_ID,
            ports=Ports(internal=0, plain=0, sasl=0, jmx=free_port()),
            directory=self.run.path / f"controller-{_CONTROLLER_ID}",
            extra_properties=settings,
        )
        controller = Controller(plan, self._quorum, self._format, is_formatted=is_formatted)
        self._controller = controller
        controller.start()
        return controller

    def _restart(self, before: Broker, after: Broker) -> None:
        before.stop()
        self._brokers[before.broker_id] = after
        after.start()
        self.admin.wait_for_brokers(list(self._broker_ids))

    def _kill_controller(self) -> None:
        if self._controller is not None and self._controller.is_running():
            self._controller.kill()


class _MigratingBroker(Broker):
    """A broker with ZooKeeper that knows the quorum whose controller is to take over."""

    def __init__(self, plan: BrokerPlan, quorum: Quorum) -> None:
        super().__init__(plan)
        self._quorum = quorum

    def _settings(self) -> dict[str, str]:
        settings = super()._settings()
        protocols = settings["listener.security.protocol.map"]
        return {
            **settings,
            **self._quorum.settings(),
            "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{protocols}",
            "zookeeper.metadata.migration.enable": "true",
        }
