"""A broker that comes back with data behind, alone and beside clients that fill the NIC.

L0 and L1 read a twentieth of broker 1's NIC each, L3 as much as it gets. The limit is a little
below what the NIC can send, as it has to be: a NIC that cannot be over its limit throttles nobody.
Broker 3 was killed and has to fetch everything from broker 1. With Tidegate's recovery at priority
L1, L3 is throttled. At full scale the NIC sends 100 MB/s, and 5 GB are behind.
"""

import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from bench.control.world import POLICY, metrics_of, operator_beside
from bench.replication import parts
from bench.replication.follow import fill, limits, tier_of
from bench.results import Figure
from lab.episodes import Business, fill_topic, running_clients
from lab.errors import LabError
from lab.kafka import BrokersLab
from lab.process import wait_until
from lab.prometheus import monitoring
from lab.rates import ByteSeries
from tidegate.errors import TidegateError

FULL_BEHIND = 5000 * parts.MB
_READ = "read"
_PARTITIONS = 4
_TIMES_ALONE = 1.5
_LOSS_PERCENT = 3.0
_LEAST_LEFT = 0.9  # of what is behind, when the time begins
_LIMIT_PERCENT = 94
_REST_SECONDS = 60  # for L3 to come to rest at the limit
_BEFORE_SECONDS = 40  # what a slow client reads comes by the megabyte


def businesses(nic: int) -> tuple[Business, ...]:
    """Who reads beside the recovery."""
    contract = nic * 8 // 10
    return (
        Business("L0", "checkout", nic // 20, None, contract),
        Business("L1", "orders", nic // 20, nic // 40, contract),
        Business("L3", "reports", None, nic // 20, contract),
    )


@dataclass(frozen=True, slots=True)
class _Recovered:
    """When it began and how long it took, and what the rate in force was in each second."""

    began_seconds: float
    seconds: float
    rates: Mapping[int, str]


def recovery_figures(nic: int, behind: int) -> list[Figure]:
    """Seconds of the recovery alone, and beside the load with Tidegate; what L0 and L1 lose."""
    those = businesses(nic)
    users = tuple(one.user for one in those)
    with ExitStack() as stack:
        kafka = stack.enter_context(parts.brokers_with_nics(nic, users=users))
        prometheus = stack.enter_context(monitoring(kafka))
        log = parts.temporary_log()
        on = stack.enter_context(operator_beside(kafka, log))
        view = parts.Replication(kafka)
        kafka.create_topic(_READ, [[1]])
        fill_topic(kafka, _READ)
        _fall_behind(kafka, "alone", behind)
        nic_sent = parts.NicCounter(kafka, 1)
        alone = _come_back(kafka, view, behind, nic_sent)
        _forget(kafka, "alone")
        policy = parts.replication_policy(
            kafka,
            POLICY,
            {"recovery": {"mode": "Follow", "priority": "L1", "rate": {"min": str(nic // 2)}}},
            metrics=metrics_of(kafka, prometheus),
            brokers=limits(nic, _LIMIT_PERCENT),
        )
        tiers = [("businesstiers", tier_of(one, _READ)) for one in those]
        _fall_behind(kafka, "beside", behind)
        clients = stack.enter_context(
            running_clients(
                kafka,
                those,
                topic=_READ,
                run="recovery",
                prefix="bench",
                catch_up_seconds=0.0,
                l0_catch_up_seconds=0.0,
            )
        )
        with parts.declared(on, [(parts.POLICIES, policy), *tiers]):
            time.sleep(_REST_SECONDS)
            beside = _come_back(kafka, view, behind, nic_sent)
            left = view.left_after(20.0)
            moved = clients.by_user()
        sent = nic_sent.series()
    names = {one.level: one.user for one in those}
    parts.keep_seconds(
        log.with_name("seconds.csv"),
        "recovery beside L3",
        beside.began_seconds,
        beside.seconds,
        {level: moved[user] for level, user in names.items()} | {"NIC": sent},
        beside.rates,
    )
    lost = {level: _lost(moved[user], beside) for level, user in names.items()}
    rates = {
        level: moved[user].mean(beside.began_seconds, beside.seconds) / parts.MB
        for level, user in names.items()
    }
    what = f"broker back with {behind / 1e9:.3g} GB behind, NIC of {nic / parts.MB:.0f} MB/s"
    return [
        Figure(f"{what}, alone: all in sync", alone.seconds, "s", None, "no other load, no policy"),
        Figure(
            f"{what}, L3 reading at the limit, recovery at priority L1: all in sync",
            beside.seconds,
            "s",
            _TIMES_ALONE * alone.seconds,
            f"L3 read {rates['L3']:.0f} MB/s meanwhile, {-lost['L3']:+.0f} %; {left} throttles "
            "left at the end",
        ),
        *(
            Figure(
                f"{what}, recovery at priority L1: {level} loses",
                lost[level],
                "%",
                _LOSS_PERCENT,
                f"of what it read before; {rates[level]:.1f} MB/s meanwhile",
            )
            for level in ("L0", "L1")
        ),
    ]


def _lost(series: ByteSeries, recovered: _Recovered) -> float:
    before = series.mean(recovered.began_seconds - _BEFORE_SECONDS, _BEFORE_SECONDS)
    return 100 * (1 - series.mean(recovered.began_seconds, recovered.seconds) / before)


def _fall_behind(kafka: BrokersLab, topic: str, behind: int) -> None:
    """Broker 3 is killed, and misses so much of a topic that it follows."""
    kafka.create_topic(topic, [[1, 3]] * _PARTITIONS)
    kafka.broker(3).kill()
    fill(kafka, topic, behind)


def _come_back(
    kafka: BrokersLab, view: parts.Replication, behind: int, nic_sent: parts.NicCounter
) -> _Recovered:
    """Start broker 3; the time counts from when it serves.

    On a starved machine it may have fetched for long before it is seen to serve.
    """
    wait_until(lambda: _has_started(kafka), "broker 3 to start", timeout_seconds=300)
    began = time.time()
    left = behind
    with suppress(TidegateError):
        left = view.bytes_behind()
    if left < _LEAST_LEFT * behind:
        raise LabError(
            f"Broker 3 had {left / parts.MB:.0f} of {behind / parts.MB:.0f} MB left when it was "
            f"first seen to serve, so its time cannot be measured. Run this on a machine with less "
            f"to do."
        )
    rates: dict[int, str] = {}
    while view.is_behind():
        nic_sent.read()
        rates[int(time.time())] = view.rate_of(1)
        if time.time() - began > 1800:
            raise LabError("Broker 3 has not caught up within half an hour.")
        time.sleep(0.5)
    return _Recovered(began, time.time() - began, rates)


def _has_started(kafka: BrokersLab) -> bool:
    """Start broker 3; on a starved machine its first session may end before it serves."""
    with suppress(LabError):
        kafka.broker(3).start()
        return True
    return False


def _forget(kafka: BrokersLab, topic: str) -> None:
    kafka.admin.delete_topic(topic)
    time.sleep(5)  # its files are deleted
