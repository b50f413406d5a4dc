"""Which brokers are read directly, when a pass is asked for, and that a failure is only a problem.

Limits are 100 MB/s each way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from lab.prometheus import exporting
from tidegate.errors import UserActionRequired
from tidegate.observe.direct_watch import DirectWatch
from tidegate.observe.secrets_and_hosts import Secrets
from tidegate.prometheus.direct import Exporters
from tidegate.resources.policy import DirectReadings
from tidegate.settings import UNBOUNDED, PolicyBounds
from tidegate_logic.model import (
    BrokerLimit,
    BrokerLimits,
    Direction,
    Exporter,
    NicSpan,
    Readings,
)
from tidegate_logic.reasons import Reason

OUT, IN = Direction.EGRESS, Direction.INGRESS
MB = 1e6
START = 5e12


@dataclass
class World:
    """Brokers whose exporters are one server; each answer is two seconds after the last."""

    port: int
    sends_mb: float = 90
    scraped_mb: dict[int, float] = field(default_factory=lambda: {1: 90.0})
    now: float = 1000.0
    sent: float = START
    wakes: int = 0
    counted: list[str] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    secrets: Callable[[], Secrets] = Secrets
    exporters: Exporters = field(init=False)

    def __post_init__(self) -> None:
        self.exporters = Exporters(wall=lambda: self.now, monotonic=lambda: self.now)

    def page(self, n: int) -> str:
        self.pages.append(n)
        return (
            f'node_network_transmit_bytes_total{{device="eth0"}} {self.sent}\n'
            f'node_network_receive_bytes_total{{device="eth0"}} {START}\n'
        )

    def readings(self) -> Readings:
        nic = {
            (broker, way): (NicSpan(998.0, 15.0, mb * MB if way is OUT else 0.0),)
            for broker, mb in self.scraped_mb.items()
            for way in Direction
        }
        counters = {OUT: {"eth0": START}, IN: {"eth0": START}}
        exporters = {broker: Exporter("127.0.0.1:1", 998.0, counters) for broker in self.scraped_mb}
        return Readings(1000.0, 15.0, nic, exporters=exporters)

    def woken(self) -> None:
        self.wakes += 1

    def watch(
        self,
        bounds: PolicyBounds = UNBOUNDED,
        **spec: int,
    ) -> DirectWatch:
        made = DirectWatch(
            "streaming",
            DirectReadings.model_validate({"enabled": True, "port": self.port, **spec}),
            newest=self.readings,
            read_secrets=lambda: self.secrets(),
            wake=self.woken,
            count=self.counted.append,
            bounds=bounds,
            exporters=self.exporters,
            wall=lambda: self.now,
            monotonic=lambda: self.now,
        )
        made.limits = BrokerLimits(BrokerLimit(egress=100_000_000, ingress=100_000_000))
        return made

    def read(self, watch: DirectWatch, times: int = 1) -> Readings:
        with ThreadPoolExecutor(2) as calls:
            for _ in range(times):
                self.now += 2
                self.sent += 2 * self.sends_mb * MB
                watch.read_once(calls)
        return watch.added_to(self.readings())


@pytest.fixture
def world() -> Iterator[World]:
    made = World(0)
    with exporting(lambda n: made.page(n)) as server:
        made.port = int(server.address.rpartition(":")[2])
        yield made


def rates(readings: Readings, broker: int = 1) -> list[float]:
    return [round(one.bytes_per_second / MB) for one in readings.direct[broker].spans(OUT)]


def test_brokers_above_the_percentage_are_read_and_others_are_not(world: World) -> None:
    world.scraped_mb = {1: 81.0, 2: 79.0}
    found = world.read(world.watch(), times=3)
    assert found.direct.keys() == {1}
    assert rates(found) == [90, 90]
    assert found.direct[1].since_seconds == 1002.0
    assert (found.problems, world.counted) == ((), ["read"] * 3)


def test_all_brokers_with_a_limit_are_read_at_0_percent(world: World) -> None:
    world.scraped_mb = {1: 0.0, 2: 1.0}
    watch = world.watch(abovePercent=0)
    assert world.read(watch).direct.keys() == {1, 2}
    watch.limits = BrokerLimits(exceptions={2: BrokerLimit(ingress=10)})
    assert world.read(watch).direct.keys() == {2}


def test_one_that_swings_around_the_percentage_is_read_on(world: World) -> None:
    watch = world.watch()
    world.read(watch)
    world.sends_mb, world.scraped_mb = 50, {1: 73.0}
    assert world.read(watch, 2).direct.keys() == {1}
    world.scraped_mb = {1: 71.0}
    assert world.read(watch).direct == {}


def test_a_pass_is_asked_for_when_two_readings_agree_and_once(world: World) -> None:
    watch = world.watch()
    world.read(watch, 3)
    assert world.wakes == 0
    world.sends_mb = 110
    world.read(watch)
    assert world.wakes == 0
    world.read(watch)
    assert world.wakes == 1
    world.read(watch, 3)
    assert world.wakes == 1


def test_without_limits_nothing_is_read_and_what_was_known_is_forgotten(world: World) -> None:
    """So in Observe, and in a replica without the Lease."""
    watch = world.watch()
    world.read(watch, 2)
    watch.limits = None
    readings = world.readings()
    assert world.read(watch).direct == {}
    assert watch.added_to(readings) is readings
    assert len(world.counted) == 2


def test_two_policies_read_a_broker_once_and_either_may_end(world: World) -> None:
    one, other = world.watch(), world.watch()
    world.read(one, 2)
    asked = len(world.pages)
    with ThreadPoolExecutor(2) as calls:
        other.read_once(calls)
    assert len(world.pages) == asked
    one.limits = None
    assert world.read(one).direct == {}
    assert rates(world.read(other, 2))[-1] == 90
    assert (len(world.pages), other.added_to(world.readings()).problems) == (asked + 2, ())


def test_an_exporter_that_fails_is_a_problem_and_is_asked_less_often(world: World) -> None:
    watch = world.watch()
    world.read(watch, 2)
    world.sent = 0  # another machine's
    found = world.read(watch)
    (problem,) = found.problems
    assert found.direct == {}
    assert (problem.reason, problem.broker) == (Reason.NOT_READ_DIRECTLY, 1)
    assert problem.message.startswith("Broker 1 is not read directly: the exporter at http://127.")
    assert world.counted == ["read", "read", "failed"]
    world.read(watch)
    assert world.counted[3:] == []
    world.sent = START + 100 * MB
    found = world.read(watch, 2)
    assert (found.problems, rates(found)) == ((), [90])
    assert found.direct[1].since_seconds > 1002.0


def test_a_host_that_is_not_on_the_list_is_not_connected_to(world: World) -> None:
    bounds = PolicyBounds(allowed_hosts=("*.example",))
    (problem,) = world.read(world.watch(bounds)).problems
    assert "127.0.0.1 is not among those that this operator may connect to" in problem.message
    listed = PolicyBounds(allowed_hosts=(f"127.0.0.1:{world.port}",))
    assert world.read(world.watch(listed), 2).problems == ()


def test_a_secret_that_is_missing_is_a_problem_of_all(world: World) -> None:
    def missing() -> Secrets:
        raise UserActionRequired(
            Reason.SECRET_UNREADABLE, "Secret streaming/x is missing", consequence="x"
        )

    world.secrets = missing
    found = world.read(world.watch())
    (problem,) = found.problems
    assert (problem.broker, found.direct) == (None, {})
    assert "Secret streaming/x is missing" in problem.message


def test_the_thread_reads_every_two_seconds_and_ends(world: World) -> None:
    watch = world.watch()
    watch.start()
    until = time.monotonic() + 20
    while not world.counted and time.monotonic() < until:
        time.sleep(0.05)
    watch.ask_to_stop()
    assert world.counted
