"""How long a client is silent when its quota is halved again and again, by the time between.

Three real brokers, no operator: producers with `acks=all` on partitions with three replicas, one
with six connections, and a consumer, all flat out. Each quota is halved four times, every client a
little later than the one before, so that the steps meet every part of its sawtooth. 30 s is what
the throttle keeps between two rounds of cuts, 14 s what it keeps between two steps to a goal that
is known, 20 s the worst distance of the exact model.
"""

import csv
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from bench.results import Figure
from lab.episodes import fill_topic
from lab.kafka import KafkaLab
from lab.load import LoadClient, LoadPlan, LoadRow
from tidegate.kafka.adminapi.client import AdminClient
from tidegate.kafka.adminapi.quotas import alter
from tidegate.kafka.settings import KafkaConnection
from tidegate_logic.model import Entity, QuotaKey

DISTANCES_SECONDS = (14, 20, 30)
_MB = 1_000_000
_FROM, _TO = 4 * _MB, 4 * _MB // 16
_STEPS = 4
_SETTLE_SECONDS = 36  # three periods of the sawtooth at the old quota
_LAST_SECONDS = 30  # the longest mute that is allowed, and the next burst
_APART_SECONDS = 2.3  # between the steps of two clients: five of them share a sawtooth
_LONGEST_RUN_SECONDS = 900
_WRITTEN, _READ = "strides", "strides-read"
_ROWS = Path("out/bench/strides.csv")
# librdkafka reconnects after a minute and escapes a mute; Java clients wait
_WAITS_MUTES_OUT = ("socket.timeout.ms", "300000")
_PRODUCER = (_WAITS_MUTES_OUT, ("acks", "all"), ("linger.ms", "100"), ("batch.size", "50000"))
_CONSUMER = (
    _WAITS_MUTES_OUT,
    ("fetch.queue.backoff.ms", "20"),
    ("fetch.wait.max.ms", "50"),
    ("fetch.message.max.bytes", "524288"),
)


@dataclass(frozen=True, slots=True)
class _User:
    name: str
    connections: int = 1
    consumes: bool = False

    @property
    def quota_key(self) -> QuotaKey:
        return QuotaKey.CONSUMER_BYTE_RATE if self.consumes else QuotaKey.PRODUCER_BYTE_RATE


_USERS = (
    _User("one-a"),
    _User("one-b"),
    _User("one-c"),
    _User("six", connections=6),
    _User("reader", consumes=True),
)


@dataclass(frozen=True, slots=True)
class _Round:
    """One descent: when each user's first step was, and until when it is watched."""

    distance_seconds: int
    began: Mapping[_User, float]
    ended: float


def strides() -> list[Figure]:
    """The longest silence of each distance, and the longest delay that a broker asked for."""
    with ExitStack() as stack:
        kafka = stack.enter_context(
            KafkaLab(brokers=3, namespaces=os.geteuid() == 0, users=[one.name for one in _USERS])
        )
        replicas = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
        kafka.create_topic(_WRITTEN, replicas, config={"min.insync.replicas": "2"})
        kafka.create_topic(_READ, [[1]])
        fill_topic(kafka, _READ)
        connection = KafkaConnection(tuple(kafka.bootstrap_servers.split(",")))
        quotas = stack.enter_context(closing(AdminClient(connection)))
        for user in _USERS:
            _set(quotas, user, _FROM)
        clients = {
            user: [stack.enter_context(client) for client in _clients(kafka, user, number)]
            for number, user in enumerate(_USERS)
        }
        rounds = [_descend(quotas, distance) for distance in DISTANCES_SECONDS]
        rows = {
            user: {client.plan.name: client.rows() for client in mine}
            for user, mine in clients.items()
        }
    _keep(rows, rounds)
    return [_figure(one, rows) for one in rounds]


def _descend(quotas: AdminClient, distance_seconds: int) -> _Round:
    for user in _USERS:
        _set(quotas, user, _FROM)
    start = time.time() + _SETTLE_SECONDS
    due = sorted(
        (start + number * _APART_SECONDS + step * distance_seconds, number, step)
        for number in range(len(_USERS))
        for step in range(_STEPS)
    )
    began: dict[_User, float] = {}
    for at, number, step in due:
        time.sleep(max(0.0, at - time.time()))
        user = _USERS[number]
        began.setdefault(user, time.time())
        _set(quotas, user, max(_TO, _FROM >> (step + 1)))
    time.sleep(_LAST_SECONDS)
    return _Round(distance_seconds, began, time.time())


def _silence(rows: Mapping[str, list[LoadRow]], since: float, until: float) -> int:
    """The longest run of whole seconds in which all connections together moved nothing."""
    moved: dict[int, int] = {}
    for mine in rows.values():
        for row in mine:
            moved[row.unix_seconds] = moved.get(row.unix_seconds, 0) + row.moved_bytes
    longest = run = 0
    for second in range(int(since), int(until)):
        run = 0 if moved.get(second, 0) else run + 1
        longest = max(longest, run)
    return longest


def _figure(one: _Round, rows: Mapping[_User, Mapping[str, list[LoadRow]]]) -> Figure:
    silences = {
        user: _silence({**rows[user]}, began, one.ended) for user, began in one.began.items()
    }
    delays = {
        user: max(
            row.throttle_milliseconds
            for mine in rows[user].values()
            for row in mine
            if began <= row.unix_seconds < one.ended
        )
        / 1000
        for user, began in one.began.items()
    }
    writers = {user: seconds for user, seconds in silences.items() if not user.consumes}
    what = (
        f"four halvings {one.distance_seconds} s apart, acks=all: longest silence of four flat-out "
        "producers"
    )
    note = ", ".join(
        f"{user.name} {seconds} s (delay asked for {delays[user]:.1f} s)"
        for user, seconds in silences.items()
    )
    return Figure(what, max(writers.values()), "s", 22.0, note)


def _keep(rows: Mapping[_User, Mapping[str, list[LoadRow]]], rounds: list[_Round]) -> None:
    _ROWS.parent.mkdir(parents=True, exist_ok=True)
    with _ROWS.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["distance", "client", "second", "moved", "throttle_milliseconds"])
        for one in rounds:
            for user, mine in rows.items():
                first = int(one.began[user])
                out.writerows(
                    (
                        *(one.distance_seconds, name, row.unix_seconds - first),
                        *(row.moved_bytes, row.throttle_milliseconds),
                    )
                    for name, seconds in mine.items()
                    for row in seconds
                    if first - _SETTLE_SECONDS <= row.unix_seconds < one.ended
                )


def _clients(kafka: KafkaLab, user: _User, number: int) -> Iterator[LoadClient]:
    for connection in range(user.connections):
        plan = LoadPlan(
            name=f"{user.name}-{connection}",
            mode="consume" if user.consumes else "produce",
            bootstrap_servers=kafka.sasl_bootstrap_servers,
            topic=_READ if user.consumes else _WRITTEN,
            partitions=(0,) if user.consumes else (number % 3,),
            duration_seconds=_LONGEST_RUN_SECONDS,
            max_bytes=_FROM * _LONGEST_RUN_SECONDS,
            user=user.name,
            password=kafka.password(user.name),
            client_id=f"{user.name}-{connection}",
            settings=_CONSUMER if user.consumes else _PRODUCER,
        )
        yield LoadClient(plan, kafka.run.path / "load", namespace=kafka.client_namespace)


def _set(quotas: AdminClient, user: _User, bytes_per_second: int) -> None:
    entity = Entity(user.name)
    answer = alter(quotas, {entity: {user.quota_key: str(bytes_per_second)}}, "unused")
    if answer != {entity: None}:
        raise RuntimeError(f"The brokers did not take a quota: {answer}")
