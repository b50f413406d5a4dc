"""Consumers that move between racks, under one running policy and under fixed quotas.

Three brokers in three racks, each leading one of three partitions, and Kafka's rack-aware selector.
A user is promised 2 MB/s of each partition. Its consumers want all they can get: first in one rack,
then in all three, then in one again. Beside Tidegate, which measures where they read, Kafka alone
with the quota that leaders call for, and with the one that a single rack needs. `python -m
bench.follower_reads` draws docs/measurements/follower-reads.svg out of the seconds that are kept
there. Needs root.
"""

import csv
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from bench.control.world import POLICY, OnKubernetes, metrics_of, operator_beside, policy
from bench.replication.follow import limits, tier_of
from bench.replication.parts import MB, POLICIES, declared, temporary_log
from bench.results import Figure
from lab.episodes import Business, fill_topic
from lab.errors import LabError
from lab.kafka import BrokersLab
from lab.kraft import KraftLab
from lab.load import LoadClient, LoadPlan
from lab.process import wait_until
from lab.prometheus import monitoring
from lab.rates import SAWTOOTH_SECONDS, ByteSeries, Sample, steady_mean
from tidegate.kafka.adminapi.client import AdminClient
from tidegate.kafka.adminapi.quotas import alter
from tidegate.kafka.settings import KafkaConnection
from tidegate.report.svg import (
    Scale,
    horizontal_axis,
    horizontal_line,
    labelled,
    line,
    round_ticks,
    svg_file,
    text,
    vertical_axis,
    vertical_line,
)
from tidegate_logic.model import Entity, QuotaKey

RACKS = ("r1", "r2", "r3")
PHASES = (("one rack", RACKS[:1]), ("three racks", RACKS), ("one rack again", RACKS[:1]))
PHASE_SECONDS, FIXED_SECONDS, MEASURED_SECONDS = 120, 40, 24
FOLDER = Path("docs/measurements")
ROWS, PICTURE = FOLDER / "follower-reads.csv", FOLDER / "follower-reads.svg"
_USER, _TOPIC, _PARTITIONS = "reader", "reads", (0, 1, 2)
_RATE = 2 * MB
_PROMISED = _RATE * len(_PARTITIONS)
_NIC = 100 * MB
_PASS_SECONDS = 15
_LACKS_PERCENT, _OVER_PERCENT = 10.0, 110.0
_SELECTOR = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
_CONSUMER = (
    ("socket.timeout.ms", "300000"),
    ("fetch.wait.max.ms", "50"),
    # small beside what the quota allows in a second, or a tenth of it stays unused
    ("fetch.message.max.bytes", "131072"),
    ("fetch.max.bytes", "1048576"),
    ("queued.max.messages.kbytes", "4096"),
)


@dataclass(frozen=True, slots=True)
class _Phase:
    """What all consumers together got from `begin_seconds` on."""

    name: str
    begin_seconds: float
    seconds: int
    got: ByteSeries

    @property
    def percent(self) -> float:
        """Of the promise, at the end of the phase."""
        from_seconds = self.begin_seconds + self.seconds - MEASURED_SECONDS
        return 100 * steady_mean(self.got, from_seconds, MEASURED_SECONDS) / _PROMISED

    def within_after(self, low_percent: float, high_percent: float) -> float:
        """Seconds until means of 12 s are within these shares of the promise for good."""
        outside = [
            second
            for second in range(SAWTOOTH_SECONDS, self.seconds)
            if not low_percent
            <= 100
            * self.got.mean(self.begin_seconds + second - SAWTOOTH_SECONDS, SAWTOOTH_SECONDS)
            / _PROMISED
            <= high_percent
        ]
        return float(max(outside, default=0) + 1)


def follower_read_figures() -> list[Figure]:
    """What consumers get of their promise in each phase, with Tidegate and with fixed quotas."""
    with ExitStack() as stack:
        kafka = stack.enter_context(
            KraftLab(
                brokers=3,
                namespaces=True,
                users=(_USER,),
                racks=RACKS,
                server_properties=_SELECTOR,
            )
        )
        prometheus = stack.enter_context(monitoring(kafka))
        kafka.create_topic(_TOPIC, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        fill_topic(kafka, _TOPIC, partitions=_PARTITIONS, total_bytes=480 * MB)
        alone = {}
        for quota in (_RATE, _PROMISED):
            with _fixed(kafka, quota):
                alone[quota] = _play(kafka, f"fixed-{quota // MB}", FIXED_SECONDS)
        on = stack.enter_context(operator_beside(kafka, temporary_log()))
        metrics = {"metrics": metrics_of(kafka, prometheus), "brokers": limits(_NIC)}
        one = policy(kafka, "Restore")
        one["spec"] |= metrics
        tier = tier_of(Business("L0", _USER, None, None, _RATE), _TOPIC)
        (member,) = tier["spec"]["members"]
        member["contract"] = {"perPartition": {"fetch": str(_RATE)}}
        with declared(on, [(POLICIES, one), ("businesstiers", tier)]):
            wait_until(
                lambda: _knows_selectors(on),
                "the condition FollowerFetch",
                timeout_seconds=180,
                poll_seconds=1,
            )
            tidegate = _play(kafka, "tidegate", PHASE_SECONDS)
    _keep({"Tidegate": tidegate, **{f"{one // MB} MB/s": alone[one] for one in alone}})
    PICTURE.write_text(_picture(_read()), encoding="utf-8")
    return [
        *_figures(tidegate, "Tidegate", bounded=True),
        *_figures(alone[_RATE], "Kafka alone, the quota that leaders call for (peer)"),
        *_figures(alone[_PROMISED], "Kafka alone, the quota that one rack needs (peer)"),
    ]


def _knows_selectors(on: OnKubernetes) -> bool:
    conditions = (on.read(POLICIES, POLICY).get("status") or {}).get("conditions") or ()
    return any(one["type"] == "FollowerFetch" and one["status"] == "True" for one in conditions)


@contextmanager
def _fixed(kafka: BrokersLab, quota: int) -> Iterator[None]:
    """Kafka alone: somebody has set this once."""
    client = AdminClient(KafkaConnection(tuple(kafka.bootstrap_servers.split(","))))
    entity = Entity(_USER)
    alter(client, {entity: {QuotaKey.CONSUMER_BYTE_RATE: str(quota)}}, "unused")
    yield
    alter(client, {entity: {QuotaKey.CONSUMER_BYTE_RATE: None}}, "unused")
    client.close()


def _play(kafka: BrokersLab, run: str, seconds: int) -> list[_Phase]:
    """The three phases, one after the other."""
    played = []
    for number, (name, racks) in enumerate(PHASES):
        with ExitStack() as stack:
            begin = time.time()
            clients = [
                stack.enter_context(_consumer(kafka, rack, f"{run}-{number}-{rack}"))
                for rack in racks
            ]
            time.sleep(seconds + 2)
            if not all(client.is_running() for client in clients):
                raise LabError(f"A consumer of the phase {name!r} has ended: see its log.")
            rows = [row for client in clients for row in client.rows()]
            got = ByteSeries(Sample(row.unix_seconds + 1, row.moved_bytes) for row in rows)
            played.append(_Phase(name, begin, seconds, got))
    return played


def _consumer(kafka: BrokersLab, rack: str, name: str) -> LoadClient:
    plan = LoadPlan(
        name=name,
        mode="consume",
        bootstrap_servers=kafka.sasl_bootstrap_servers,
        topic=_TOPIC,
        partitions=_PARTITIONS,
        duration_seconds=PHASE_SECONDS + 60,
        max_bytes=_NIC * PHASE_SECONDS,
        user=_USER,
        password=kafka.password(_USER),
        client_id=f"bench-{rack}",
        settings=(*_CONSUMER, ("client.rack", rack)),
    )
    return LoadClient(plan, kafka.run.path / "load", namespace=kafka.client_namespace)


def _figures(phases: Sequence[_Phase], what: str, *, bounded: bool = False) -> Iterator[Figure]:
    for phase in phases:
        where = f"reads from followers, {phase.name}, {what}"
        note = f"of {_PROMISED / MB:.0f} MB/s, mean of the last {MEASURED_SECONDS} s"
        if phase.name == "three racks":
            bound = _OVER_PERCENT if bounded else None
            yield Figure(f"{where}: gets", phase.percent, "% of the promise", bound, note)
        else:
            bound = _LACKS_PERCENT if bounded else None
            yield Figure(f"{where}: lacks", 100 - phase.percent, "% of the promise", bound, note)
        if bounded and phase is not phases[0]:
            seconds = phase.within_after(100 - _LACKS_PERCENT, _OVER_PERCENT)
            passes = f"{seconds / _PASS_SECONDS:.1f} passes of {_PASS_SECONDS} s"
            yield Figure(f"{where}: followed after", seconds, "s", None, passes)


def _keep(runs: Mapping[str, Sequence[_Phase]]) -> None:
    with ROWS.open("w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(["run", "phase", "second", "kilobytes_per_second"])
        for run, phases in runs.items():
            for phase in phases:
                rates = phase.got.per_second(phase.begin_seconds, phase.seconds)
                rows.writerows(
                    [run, phase.name, second, round(rate / 1000)]
                    for second, rate in enumerate(rates)
                )


def _read() -> dict[str, dict[str, list[float]]]:
    """Run -> phase -> MB/s by second."""
    rates: dict[str, dict[str, list[float]]] = {}
    with ROWS.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            phase = rates.setdefault(row["run"], {}).setdefault(row["phase"], [])
            phase.append(float(row["kilobytes_per_second"]) / 1000)
    return rates


_LINES = {"Tidegate": "l0", "2 MB/s": "l2", "6 MB/s": "l3"}
_WORDS = {
    "Tidegate": "Tidegate",
    "2 MB/s": "Kafka alone, 2 MB/s on each broker",
    "6 MB/s": "Kafka alone, 6 MB/s on each broker",
}


def _picture(runs: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """Tidegate second by second, and what Kafka alone rests at in each phase."""
    left, right, top, bottom = 44, 860, 106, 330
    ticks = round_ticks(max(max(fmean(each) for each in run.values()) for run in runs.values()))
    across = Scale(0, PHASE_SECONDS * len(PHASES), left, right)
    upward = Scale(0, ticks[-1], bottom, top)
    parts = [
        vertical_axis(upward, labelled(ticks), left=left, right=right),
        horizontal_axis(
            across,
            labelled(range(0, PHASE_SECONDS * len(PHASES) + 1, 40)),
            top=top,
            bottom=bottom,
            title="seconds; MB/s of all consumers, means of 12 s; dashed: the promise",
        ),
        horizontal_line(upward.at(_PROMISED / MB), left, right, class_="limit"),
    ]
    for number, (phase, _) in enumerate(PHASES):
        begin = number * PHASE_SECONDS
        parts += [
            vertical_line(across.at(begin), top, bottom, stroke="ink"),
            text(phase, across.at(begin) + 6, top - 8),
        ]
        for run, colour in _LINES.items():
            means = _means(runs[run][phase], is_moving=run == "Tidegate")
            points = [
                (across.at(begin + second), upward.at(min(mean, ticks[-1])))
                for second, mean in means
            ]
            parts.append(line(points, stroke=colour, stroke_width=1.8))
    for place, (run, colour) in enumerate(_LINES.items()):
        at = 14 + 280 * place
        parts += [
            line([(at, 56), (at + 22, 56)], stroke=colour, stroke_width=2),
            text(_WORDS[run], at + 28, 60),
        ]
    description = "What consumers get that move from one rack to three and back."
    return svg_file("Reads from followers", description, parts, height=bottom + 44)


def _means(rates: Sequence[float], *, is_moving: bool) -> list[tuple[int, float]]:
    """Second and mean: of 12 s, or of the end for the whole phase."""
    if not is_moving:
        rest = fmean(rates[-MEASURED_SECONDS:])
        return [(0, rest), (PHASE_SECONDS, rest)]
    return [
        (end, fmean(rates[max(0, end - SAWTOOTH_SECONDS) : end]))
        for end in range(1, len(rates) + 1)
    ]


if __name__ == "__main__":
    PICTURE.write_text(_picture(_read()), encoding="utf-8")
    sys.exit(0)
