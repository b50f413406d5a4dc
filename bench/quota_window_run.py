"""One run: a broker with a given quota.window.num, nine clients that want all they can get, and quotas cut to a half and to a fifth."""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from kazoo.client import KazooClient

from bench.quota_window_card import Carried, Nic
from bench.quota_window_clients import CLIENTS, Client, Kind, load_clients, make_topics
from bench.quota_window_rows import QUOTA_SHARE, Phase, Second
from controller_logic.model import QuotaWindow
from controller_logic.quotas.kafka_window import predicted_mute_seconds
from lab.errors import LabError
from lab.kafka import KafkaLab, QuotaChange
from lab.load import LoadClient

_STEADY_SECONDS = 60  # whole teeth of every window: 3, 4, 5, 6 and 12 s
_SETTLED_SECONDS = 12
_AFTERWARDS_SECONDS = 8
_LAST_ROWS_SECONDS = 1.5  # until every client has written its last second


def phases(samples: int) -> list[tuple[Phase, int]]:
    """Each phase with its seconds; after a cut the longest mute, one tooth and a little more."""
    teeth = samples + 1
    settle = max(_SETTLED_SECONDS, 2 * teeth)
    cuts = {phase: round(mute_seconds(samples, phase)) + teeth + _AFTERWARDS_SECONDS for phase in (Phase.HALF, Phase.FIFTH)}
    lengths = {Phase.SETTLE: settle, Phase.STEADY: _STEADY_SECONDS, Phase.RETURN: settle, **cuts}
    return [(phase, lengths[phase]) for phase in Phase]


def mute_seconds(samples: int, phase: Phase) -> float:
    """The longest mute that the arithmetic allows when a phase's quotas follow full ones."""
    exposure = 1_000_000
    return predicted_mute_seconds(exposure, round(exposure * QUOTA_SHARE[phase]), QuotaWindow(samples))


def run(samples: int) -> list[Second]:
    """Play all phases with `samples` as quota.window.num and return what each second moved."""
    settings = {"quota.window.num": str(samples)}
    with ExitStack() as stack:
        users = [client.name for client in CLIENTS]
        kafka = stack.enter_context(KafkaLab(brokers=1, namespaces=os.geteuid() == 0, users=users, server_properties=settings))
        make_topics(kafka)
        quotas = stack.enter_context(_quotas(kafka))
        namespace = kafka.broker(1).plan.namespace
        nic = stack.enter_context(Nic(namespace)) if namespace else None
        quotas.set(share=1.0)
        clients = _start(stack, kafka, samples)
        seconds = _play(quotas, samples)
        return _rows(samples, seconds, clients=clients, nic=nic)


@dataclass(frozen=True, slots=True)
class _Quotas:
    """Writes quotas into ZooKeeper as Kafka's own tools do."""

    kafka: KafkaLab
    zookeeper: KazooClient

    def set(self, *, share: float) -> None:
        """Give every client this share of its quota, in one transaction, and return when the broker obeys."""
        since, transaction = self.kafka.log_positions(), self.zookeeper.transaction()
        for client in CLIENTS:
            path = f"users/{client.name}"
            transaction.set_data(f"/config/{path}", _json({"version": 1, "config": {client.quota_key: str(round(client.quota * share))}}))
            transaction.create("/config/changes/config_change_", _json({"version": 2, "entity_path": path}), sequence=True)
        if failed := [answer for answer in transaction.commit() if isinstance(answer, Exception)]:
            raise LabError(f"ZooKeeper refused the quotas, so this run measures nothing: {failed[0]!r}")
        for client in CLIENTS:
            self.kafka.wait_for_quota_applied(_change(client, share), since)


@contextmanager
def _quotas(kafka: KafkaLab) -> Iterator[_Quotas]:
    zookeeper = KazooClient(kafka.zookeeper_connect)
    zookeeper.start()
    try:
        for client in CLIENTS:
            zookeeper.ensure_path(f"/config/users/{client.name}")
        yield _Quotas(kafka, zookeeper)
    finally:
        zookeeper.stop()
        zookeeper.close()


def _json(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields).encode()


def _change(client: Client, share: float) -> QuotaChange:
    return QuotaChange("PRODUCE" if client.kind is Kind.PRODUCER else "FETCH", client.name, None, float(round(client.quota * share)))


def _start(stack: ExitStack, kafka: KafkaLab, samples: int) -> dict[Client, LoadClient]:
    """All clients, begun one after the other within one tooth."""
    clients = {}
    for client, load in load_clients(kafka):
        clients[client] = stack.enter_context(load)
        time.sleep((samples + 1) / len(CLIENTS))
    return clients


def _play(quotas: _Quotas, samples: int) -> list[tuple[int, Phase]]:
    """Each second of the wall clock with its phase; returns when the last one is over."""
    seconds: list[tuple[int, Phase]] = []
    begin = int(time.time()) + 1
    for phase, length in phases(samples):
        _sleep_until(begin)
        if phase is not Phase.STEADY:  # which goes on with what it found
            quotas.set(share=QUOTA_SHARE[phase])
        seconds += [(begin + second, phase) for second in range(length)]
        begin += length
    _sleep_until(begin + _LAST_ROWS_SECONDS)
    return seconds


def _sleep_until(unix_seconds: float) -> None:
    time.sleep(max(0.0, unix_seconds - time.time()))


def _rows(samples: int, seconds: Sequence[tuple[int, Phase]], *, clients: Mapping[Client, LoadClient], nic: Nic | None) -> list[Second]:
    """Without a NIC of its own (that needs root), the broker's traffic is what its clients moved."""
    moved = {client: {row.unix_seconds: row.moved_bytes for row in load.rows()} for client, load in clients.items()}
    each = [{client.name: moved[client].get(unix_second, 0) for client in CLIENTS} for unix_second, _ in seconds]
    carried = nic.carried_in([unix_second for unix_second, _ in seconds]) if nic else [_carried(amounts) for amounts in each]
    return [
        Second(samples, number, phase, amounts, by_nic.egress, by_nic.ingress)
        for number, ((_, phase), amounts, by_nic) in enumerate(zip(seconds, each, carried, strict=True))
    ]


def _carried(amounts: Mapping[str, int]) -> Carried:
    written = sum(amounts[client.name] for client in CLIENTS if client.kind is Kind.PRODUCER)
    return Carried(sum(amounts.values()) - written, written)
