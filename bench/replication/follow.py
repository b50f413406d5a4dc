"""A move that follows the load, beside one without and one with the usual throttle.

L0 reads 60 % of what broker 1's NIC can send, while partitions that it leads get replicas on both
other brokers. Three times the same move by Kafka's own tool: with Tidegate's Follow, unthrottled,
and with the tool's `--throttle` of a tenth of the NIC. At full scale the NIC sends 100 MB/s and
10 GB move; a quarter of it leaves a machine of two processors enough for the clients.
"""

import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.control.world import POLICY, metrics_of, operator_beside, resource
from bench.replication import parts
from bench.results import Figure
from lab.episodes import Business, Clients, fill_topic, running_clients
from lab.kafka import BrokersLab
from lab.process import wait_until
from lab.prometheus import monitoring

FULL_NIC = 100 * parts.MB
CUT_TO = 0.97  # escalation.cutToPercent's default
FULL_BYTES = 10_000 * parts.MB
_PARTITIONS = 4
_BEFORE_SECONDS = 30
_L0_LOSS_PERCENT = 3.0
_SLOWER_THAN_SPARE = 1.25
_READ, _MOVED = "read", "moved"


def tier_of(business: Business, topic: str) -> dict[str, Any]:
    """A tier with this business alone, which reads the topic."""
    member = {
        "name": business.user,
        "user": business.user,
        "topics": [topic],
        "contract": {"perBroker": {"fetch": str(business.contract)}},
    }
    spec: dict[str, Any] = {
        "policyRef": {"name": POLICY},
        "level": business.level,
        "members": [member],
    }
    if business.throttled is not None:
        spec["throttledRates"] = {"perBroker": {"fetch": str(business.throttled)}}
    return resource("BusinessTier", business.level.lower(), spec)


def limits(nic: int, percent: int = 100) -> dict[str, Any]:
    """spec.brokers: both sides' limits are that much of what the NIC can."""
    side = {"limit": str(nic * percent // 100), "capacity": str(nic)}
    return {"egress": side, "ingress": side}


@dataclass(frozen=True, slots=True)
class _Run:
    """One move: how long, what L0 had before and lost of it, what was spare before.

    `sent` is the mean of what the NIC sent meanwhile: where L0 lost and the NIC had room, it was
    the machine that was busy.
    """

    played: parts.Played
    before: float
    lost_percent: float
    spare: float
    sent: float
    left: int


def follow_figures(nic: int, moved: int) -> list[Figure]:
    """What L0 loses in each of the three, and how long each takes."""
    checkout = Business("L0", "checkout", nic * 6 // 10, None, nic)
    with ExitStack() as stack:
        kafka = stack.enter_context(parts.brokers_with_nics(nic, users=("checkout",)))
        prometheus = stack.enter_context(monitoring(kafka))
        log = parts.temporary_log()
        on = stack.enter_context(operator_beside(kafka, log))
        view = parts.Replication(kafka)
        kafka.create_topic(_READ, [[1]])
        kafka.create_topic(_MOVED, [[1]] * _PARTITIONS)
        fill_topic(kafka, _READ)
        fill(kafka, _MOVED, moved // 2)
        clients = stack.enter_context(
            running_clients(
                kafka,
                [checkout],
                topic=_READ,
                run="follow",
                prefix="bench",
                l0_catch_up_seconds=0.0,
            )
        )
        time.sleep(10)
        move = _Move(kafka, view, clients, nic, log.with_name("seconds.csv"))
        policy = parts.replication_policy(
            kafka,
            POLICY,
            {
                "reassignments": {
                    "mode": "Follow",
                    "priority": "BelowL3",
                    "rate": {"min": str(nic // 20)},
                }
            },
            metrics=metrics_of(kafka, prometheus),
            brokers=limits(nic),
        )
        with parts.declared(
            on, [(parts.POLICIES, policy), ("businesstiers", tier_of(checkout, _READ))]
        ):
            time.sleep(10)
            follow = move.play(None, by_tidegate=True)
        unthrottled = move.play(None)
        usual = move.play(nic // 10)
    return [
        *_figures("Follow", follow, nic, moved, bounded=True),
        *_figures("unthrottled (peer)", unthrottled, nic, moved),
        *_figures(f"kafka-reassign-partitions --throttle {nic // 10} (peer)", usual, nic, moved),
    ]


def fill(kafka: BrokersLab, topic: str, total_bytes: int) -> None:
    """Put so much into the topic, spread over its partitions, a quarter of a minute at a time."""
    left = total_bytes
    while left > 0:
        some = min(left, 1000 * parts.MB)
        fill_topic(kafka, topic, partitions=range(_PARTITIONS), total_bytes=some)
        left -= some


@dataclass(frozen=True, slots=True)
class _Move:
    """The same move again and again: replicas on brokers 2 and 3 come, and go afterwards.

    `seconds` is where what each second had is kept, to see why L0 lost.
    """

    kafka: BrokersLab
    view: parts.Replication
    clients: Clients
    nic: int
    seconds: Path

    def play(self, throttle: int | None, *, by_tidegate: bool = False) -> _Run:
        nic = parts.NicCounter(self.kafka, 1)
        rates: dict[int, str] = {}

        def look() -> None:
            nic.read()
            rates[int(time.time())] = self.view.rate_of(1)

        nic.read()
        begin = time.time()
        time.sleep(_BEFORE_SECONDS)
        nic.read()
        played = parts.play(
            self.view,
            lambda: self._reassign([1, 2, 3], throttle),
            look,
            longest_seconds=3600,
            awaits_throttle=by_tidegate,
        )
        nic.read()
        left = self.view.left_after(15.0) if by_tidegate else 0
        time.sleep(3)  # the clients' last rows
        l0 = self.clients.by_user()["checkout"]
        before = l0.mean(begin, _BEFORE_SECONDS)
        during = l0.mean(played.began_seconds, played.seconds)
        if throttle is not None:
            self._tool([1, 2, 3], "--verify")
        self.kafka.admin.reassign({(_MOVED, one): [1] for one in range(_PARTITIONS)})
        wait_until(lambda: not self.view.is_moving(), "the replicas to go", timeout_seconds=60)
        time.sleep(5)  # their files are deleted
        sent = nic.series()
        parts.keep_seconds(
            self.seconds,
            f"throttle of the tool: {throttle}",
            played.began_seconds,
            played.seconds,
            {"L0": l0, "NIC": sent},
            rates,
        )
        return _Run(
            played,
            before,
            100 * (1 - during / before),
            CUT_TO * self.nic - sent.mean(begin, _BEFORE_SECONDS),
            sent.mean(played.began_seconds, played.seconds),
            left,
        )

    def _reassign(self, replicas: Sequence[int], throttle: int | None) -> None:
        further = () if throttle is None else ("--throttle", str(throttle))
        self._tool(replicas, "--execute", *further)

    def _tool(self, replicas: Sequence[int], *arguments: str) -> None:
        """`kafka-reassign-partitions` as an operator of a cluster runs it."""
        partitions = [
            {"topic": _MOVED, "partition": one, "replicas": list(replicas)}
            for one in range(_PARTITIONS)
        ]
        plan = self.kafka.run.path / "plan.json"
        plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
        command = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        file = ("--reassignment-json-file", str(plan))
        self.kafka.run_tool("reassign", command, *file, *arguments)


def _figures(what: str, run: _Run, nic: int, moved: int, *, bounded: bool = False) -> list[Figure]:
    by_spare = moved / run.spare
    where = (
        f"{moved / 1e9:.3g} GB to move beside L0 at {nic * 0.6 / parts.MB:.0f} MB/s on a NIC of "
        f"{nic / parts.MB:.0f} MB/s, {what}"
    )
    seen = run.played.seen_after_seconds
    return [
        Figure(
            f"{where}: L0 loses",
            run.lost_percent,
            "%",
            _L0_LOSS_PERCENT if bounded else None,
            f"of the {run.before / parts.MB:.1f} MB/s that it read in the half minute before"
            + (f"; {run.left} throttles left at the end" if bounded else ""),
        ),
        Figure(
            f"{where}: took",
            run.played.seconds,
            "s",
            _SLOWER_THAN_SPARE * by_spare if bounded else None,
            f"{moved / run.played.seconds / parts.MB:.1f} MB/s; spare before "
            f"{run.spare / parts.MB:.1f} MB/s; "
            f"the NIC sent {run.sent / parts.MB:.1f} MB/s meanwhile"
            + ("" if seen is None else f"; first throttle {seen:.1f} s after the tool ended"),
        ),
    ]
