"""What the brokers' `quota.window.num` does to accuracy, mutes and the NIC.

`python -m bench quota-window-3` measures one window, on a broker of its own. `python -m
bench.quota_window` gathers the newest run of every window into docs/measurements and prints the
tables of docs/quota-window.md.
"""

import csv
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Self

from kazoo.client import KazooClient
from matplotlib.axes import Axes

from bench.pictures import Colour, picture
from bench.results import Figure
from lab.episodes import fill_topic
from lab.errors import LabError
from lab.kafka import KafkaLab, QuotaChange
from lab.load import LoadClient, LoadPlan
from lab.network import Namespace
from lab.rates import ByteSeries, Sample, steady_mean
from tidegate_logic.model import QuotaWindow
from tidegate_logic.quotas.mute import predicted_mute_seconds

# The bytes of a machine's NIC in each second of the wall clock, as the kernel counts them. It
# judges nothing.


_DEVICE = "eth0"
_TIMEOUT_SECONDS = 5
_PAUSE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Carried:
    """All bytes that a NIC has sent and received since it exists."""

    egress: int
    ingress: int


class NicCounters:
    """A context manager that reads the counters of `namespace`'s NIC while it is open.

    Readings come a few times a second, later where the machine is busy elsewhere; between two of
    them bytes are spread evenly.
    """

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._egress: list[Sample] = []
        self._ingress: list[Sample] = []
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="nic-counters", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()

    def carried_in(self, unix_seconds: Sequence[int]) -> list[Carried]:
        """The bytes of each of these seconds, which must have been watched from begin to end."""
        egress, ingress = ByteSeries(self._egress), ByteSeries(self._ingress)
        return [
            Carried(round(egress.mean(second, 1)), round(ingress.mean(second, 1)))
            for second in unix_seconds
        ]

    def _watch(self) -> None:
        before = _counters(self._namespace)
        while not self._closing.wait(_PAUSE_SECONDS):
            counted, at = _counters(self._namespace), time.time()
            self._egress.append(Sample(at, counted.egress - before.egress))
            self._ingress.append(Sample(at, counted.ingress - before.ingress))
            before = counted


def _counters(namespace: Namespace) -> Carried:
    command = ["ip", "-j", "-s", "-n", namespace.name, "link", "show", _DEVICE]
    listing = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS
    )
    counted = json.loads(listing.stdout)[0]["stats64"]
    return Carried(counted["tx"]["bytes"], counted["rx"]["bytes"])


# The nine clients of the quota window's benchmark, and what they read and write. Nothing but quotas
# limits them.
#
# Consumers fetch as Java consumers do by default, 1 MiB of each partition: those of one partition
# ask for 1 MiB at a time, the wide ones, of eight partitions, for 8 MiB.


_MB = 1_000_000
_QUOTAS = (1 * _MB, 5 * _MB, 10 * _MB)
_READ, _WRITTEN = "read", "written"
_BROKER = 1
_WIDE_PARTITIONS = 8
_FILLED_BYTES = _WIDE_PARTITIONS * 40 * _MB  # read round and round; it stays in the page cache
_LITTLE_RETENTION = {"retention.bytes": str(32 << 20), "segment.bytes": str(16 << 20)}
_LONGEST_RUN_SECONDS = 400  # a run ends its clients itself; this bounds them if it cannot
# librdkafka connects anew after a minute and escapes; Java clients wait
_WAITS_MUTES_OUT = ("socket.timeout.ms", "300000")
_CONSUMER = (
    _WAITS_MUTES_OUT,
    ("queued.max.messages.kbytes", "65536"),
    ("fetch.queue.backoff.ms", "20"),
    ("fetch.wait.max.ms", "50"),
    ("fetch.message.max.bytes", str(1 << 20)),
)


class Kind(StrEnum):
    """What a client does."""

    CONSUMER = "consumer"
    WIDE_CONSUMER = "wide consumer"
    PRODUCER = "producer"


@dataclass(frozen=True, slots=True)
class Client:
    """One user with one client that moves all it can; `quota` in bytes/s."""

    kind: Kind
    quota: int

    @property
    def name(self) -> str:
        """Its user, client and column: `wide-consumer-5` for one of 5 MB/s."""
        return f"{self.kind.replace(' ', '-')}-{self.quota // _MB}"

    @property
    def quota_key(self) -> str:
        """Kafka's name of the quota that holds it."""
        return "producer_byte_rate" if self.kind is Kind.PRODUCER else "consumer_byte_rate"

    @property
    def partitions(self) -> tuple[int, ...]:
        """Of the topic that it reads or writes."""
        return {
            Kind.CONSUMER: (0,),
            Kind.WIDE_CONSUMER: tuple(range(_WIDE_PARTITIONS)),
            Kind.PRODUCER: (_QUOTAS.index(self.quota),),
        }[self.kind]


CLIENTS = tuple(Client(kind, quota) for kind in Kind for quota in _QUOTAS)


def make_topics(kafka: KafkaLab) -> None:
    """Make a topic full of what consumers read, and one that keeps little of what is written.

    The first is filled without login, so under no quota.
    """
    kafka.create_topic(_READ, [[_BROKER]] * _WIDE_PARTITIONS)
    kafka.create_topic(_WRITTEN, [[_BROKER]] * len(_QUOTAS), config=_LITTLE_RETENTION)
    fill_topic(kafka, _READ, partitions=range(_WIDE_PARTITIONS), total_bytes=_FILLED_BYTES)


def load_clients(kafka: KafkaLab) -> Iterator[tuple[Client, LoadClient]]:
    """Each client with its process, which is not started yet."""
    for client in CLIENTS:
        writes = client.kind is Kind.PRODUCER
        plan = LoadPlan(
            name=client.name,
            mode="produce" if writes else "consume",
            bootstrap_servers=kafka.sasl_bootstrap_servers,
            topic=_WRITTEN if writes else _READ,
            partitions=client.partitions,
            duration_seconds=_LONGEST_RUN_SECONDS,
            max_bytes=2 * client.quota * _LONGEST_RUN_SECONDS,
            user=client.name,
            password=kafka.password(client.name),
            client_id=client.name,
            settings=(_WAITS_MUTES_OUT,) if writes else _CONSUMER,
        )
        yield client, LoadClient(plan, kafka.run.path / "load", namespace=kafka.client_namespace)


# What each second of a run moved, and the CSV file of it: a row a second, a column a client and a
# direction of the NIC.


_KEYS = ("window", "second", "phase")
_NIC_DIRECTIONS = ("egress", "ingress")


class Phase(StrEnum):
    """What is done to the quotas in a part of a run."""

    SETTLE = "settle"
    STEADY = "steady"
    HALF = "half"
    RETURN = "return"
    FIFTH = "fifth"


QUOTA_SHARE = {
    Phase.SETTLE: 1.0,
    Phase.STEADY: 1.0,
    Phase.HALF: 0.5,
    Phase.RETURN: 1.0,
    Phase.FIFTH: 0.2,
}


@dataclass(frozen=True, slots=True)
class Second:
    """One second of the run with `window` samples; all amounts in bytes.

    `second` counts from its start.
    """

    window: int
    second: int
    phase: Phase
    moved: dict[str, int]
    egress: int
    ingress: int

    def of(self, client: Client) -> int:
        """What this client moved."""
        return self.moved[client.name]


def write_rows(path: Path, rows: Iterable[Second]) -> None:
    """Replace the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow([*_KEYS, *(client.name for client in CLIENTS), *_NIC_DIRECTIONS])
        for row in rows:
            amounts = [row.of(client) for client in CLIENTS]
            out.writerow([row.window, row.second, row.phase, *amounts, row.egress, row.ingress])


def read_rows(path: Path) -> list[Second]:
    """What `write_rows` wrote; FileNotFoundError where it never did."""
    with path.open(encoding="utf-8", newline="") as file:
        return [_second(fields) for fields in csv.DictReader(file)]


def _second(fields: dict[str, str]) -> Second:
    moved = {client.name: int(fields[client.name]) for client in CLIENTS}
    egress, ingress = (int(fields[direction]) for direction in _NIC_DIRECTIONS)
    return Second(
        int(fields["window"]), int(fields["second"]), Phase(fields["phase"]), moved, egress, ingress
    )


def of_phase(rows: Sequence[Second], phase: Phase) -> list[Second]:
    """The rows of one phase, in their order."""
    return [row for row in rows if row.phase is phase]


# The picture of docs/quota-window.md: for each window a 5 MB/s consumer that is cut to a fifth, and
# the broker's NIC at rest.


SHOWN = Client(Kind.CONSUMER, 5_000_000)
_BEFORE_SECONDS, _AFTER_SECONDS = 12, 60


def window_picture(runs: Mapping[int, Sequence[Second]]) -> str:
    """A whole SVG file with a column for each window, the smallest first."""
    with picture(height_inches=4.6) as (figure, svg):
        axes = figure.subplots(2, len(runs), sharey="row", squeeze=False)
        for column, (samples, rows) in enumerate(sorted(runs.items())):
            _cut(axes[0][column], rows)
            _nic(axes[1][column], rows)
            axes[0][column].set_title(f"{samples} x 1 s", fontsize=10)
        axes[0][0].set_ylabel("5 MB/s consumer,\ncut to 1 MB/s at 0\nMB/s")
        axes[1][0].set_ylabel("NIC egress,\nnothing changed\nMB/s")
    return svg.text


def _cut(axes: Axes, rows: Sequence[Second]) -> None:
    cut = of_phase(rows, Phase.FIFTH)[0].second
    shown = [row for row in rows if -_BEFORE_SECONDS <= row.second - cut < _AFTER_SECONDS]
    times = [row.second - cut for row in shown]
    axes.stairs(
        [row.of(SHOWN) / 1e6 for row in shown],
        [*times, times[-1] + 1],
        fill=True,
        color=Colour.LEVEL_1,
    )
    quotas = [SHOWN.quota * QUOTA_SHARE[row.phase] / 1e6 for row in shown]
    axes.step(times, quotas, where="post", color=Colour.LIMIT, linewidth=1.4)
    axes.set_xlim(-_BEFORE_SECONDS, _AFTER_SECONDS)
    axes.set_xlabel("seconds", fontsize=8)


def _nic(axes: Axes, rows: Sequence[Second]) -> None:
    steady = of_phase(rows, Phase.STEADY)
    sent = [row.egress / 1e6 for row in steady]
    axes.stairs(sent, fill=True, color=Colour.NIC)
    axes.axhline(mean(sent), color=Colour.LIMIT, linewidth=1.4)
    axes.set_xlim(0, len(sent))
    axes.set_xlabel("seconds", fontsize=8)


# One run: a broker with a given quota.window.num, nine clients that want all they can get, and
# quotas cut to a half and to a fifth.


_STEADY_SECONDS = 60  # whole sawteeth of every window: 3, 4, 5, 6 and 12 s
_SETTLED_SECONDS = 12
_AFTERWARDS_SECONDS = 8
_LAST_ROWS_SECONDS = 1.5  # until every client has written its last second


def phases(samples: int) -> list[tuple[Phase, int]]:
    """Each phase with its seconds; after a cut the longest mute, one sawtooth and a little more."""
    period_seconds = samples + 1
    settle = max(_SETTLED_SECONDS, 2 * period_seconds)
    cuts = {
        phase: round(mute_seconds(samples, phase)) + period_seconds + _AFTERWARDS_SECONDS
        for phase in (Phase.HALF, Phase.FIFTH)
    }
    lengths = {Phase.SETTLE: settle, Phase.STEADY: _STEADY_SECONDS, Phase.RETURN: settle, **cuts}
    return [(phase, lengths[phase]) for phase in Phase]


def mute_seconds(samples: int, phase: Phase) -> float:
    """The longest mute that the arithmetic allows when a phase's quotas follow full ones."""
    exposure = 1_000_000
    return predicted_mute_seconds(
        exposure, round(exposure * QUOTA_SHARE[phase]), QuotaWindow(samples)
    )


def run(samples: int) -> list[Second]:
    """Play all phases with `samples` as quota.window.num and return what each second moved."""
    settings = {"quota.window.num": str(samples)}
    with ExitStack() as stack:
        users = [client.name for client in CLIENTS]
        kafka = stack.enter_context(
            KafkaLab(
                brokers=1, namespaces=os.geteuid() == 0, users=users, server_properties=settings
            )
        )
        make_topics(kafka)
        quotas = stack.enter_context(_quotas(kafka))
        namespace = kafka.broker(1).plan.namespace
        nic = stack.enter_context(NicCounters(namespace)) if namespace else None
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
        """Give every client this share of its quota, and return when the broker obeys.

        All quotas are written in one transaction.
        """
        since, transaction = self.kafka.log_positions(), self.zookeeper.transaction()
        for client in CLIENTS:
            path = f"users/{client.name}"
            transaction.set_data(
                f"/config/{path}",
                _json(
                    {"version": 1, "config": {client.quota_key: str(round(client.quota * share))}}
                ),
            )
            transaction.create(
                "/config/changes/config_change_",
                _json({"version": 2, "entity_path": path}),
                sequence=True,
            )
        if failed := [answer for answer in transaction.commit() if isinstance(answer, Exception)]:
            raise LabError(
                f"ZooKeeper refused the quotas, so this run measures nothing: {failed[0]!r}"
            )
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
    return QuotaChange(
        "PRODUCE" if client.kind is Kind.PRODUCER else "FETCH",
        client.name,
        None,
        float(round(client.quota * share)),
    )


def _start(stack: ExitStack, kafka: KafkaLab, samples: int) -> dict[Client, LoadClient]:
    """All clients, begun one after the other within one sawtooth."""
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


def _rows(
    samples: int,
    seconds: Sequence[tuple[int, Phase]],
    *,
    clients: Mapping[Client, LoadClient],
    nic: NicCounters | None,
) -> list[Second]:
    """The rows of these seconds.

    Without a NIC of its own (that needs root), the broker's traffic is what its clients moved.
    """
    moved = {
        client: {row.unix_seconds: row.moved_bytes for row in load.rows()}
        for client, load in clients.items()
    }
    each = [
        {client.name: moved[client].get(unix_second, 0) for client in CLIENTS}
        for unix_second, _ in seconds
    ]
    carried = (
        nic.carried_in([unix_second for unix_second, _ in seconds])
        if nic
        else [_carried(amounts) for amounts in each]
    )
    return [
        Second(samples, number, phase, amounts, by_nic.egress, by_nic.ingress)
        for number, ((_, phase), amounts, by_nic) in enumerate(
            zip(seconds, each, carried, strict=True)
        )
    ]


def _carried(amounts: Mapping[str, int]) -> Carried:
    written = sum(amounts[client.name] for client in CLIENTS if client.kind is Kind.PRODUCER)
    return Carried(sum(amounts.values()) - written, written)


# What the rows of a run say: how near clients come to their quotas, how the NIC swings, how long
# clients are silent. Pure arithmetic.


CUTS = (Phase.HALF, Phase.FIFTH)


def share_percent(rows: Sequence[Second], client: Client) -> float:
    """The client's steady mean as a share of its quota, in percent.

    Whole sawteeth count alike wherever the minute begins.
    """
    steady = of_phase(rows, Phase.STEADY)
    begin = steady[0].second
    series = ByteSeries(
        [Sample(begin, 0), *(Sample(row.second + 1, row.of(client)) for row in steady)]
    )
    return 100 * steady_mean(series, begin, len(steady)) / client.quota


def peak(carried: Sequence[int]) -> float:
    """The highest second over the mean second.

    Raises ValueError without seconds, ZeroDivisionError where nothing was carried.
    """
    return max(carried) / mean(carried)


def egress_peak(rows: Sequence[Second]) -> float:
    """How far the highest steady second of the NIC's egress is above the mean, as a factor."""
    return peak([row.egress for row in of_phase(rows, Phase.STEADY)])


def ingress_peak(rows: Sequence[Second]) -> float:
    """The same of its ingress."""
    return peak([row.ingress for row in of_phase(rows, Phase.STEADY)])


def silence_seconds(rows: Sequence[Second], client: Client, phase: Phase) -> int:
    """The longest run of seconds without a byte that reaches into the phase.

    Seconds before the phase count as the client felt them.
    """
    longest = run = 0
    for row in rows:
        run = 0 if row.of(client) else run + 1
        if row.phase is phase:
            longest = max(longest, run)
    return longest


def longest_silence_seconds(rows: Sequence[Second], kinds: Iterable[Kind], phase: Phase) -> int:
    """The longest of all clients of these kinds."""
    wanted = set(kinds)
    return max(silence_seconds(rows, client, phase) for client in CLIENTS if client.kind in wanted)


def figures(rows: Sequence[Second]) -> list[Figure]:
    """Two rows of the benchmarks' page for one run."""
    return [_accuracy(rows), _silence(rows)]


def _accuracy(rows: Sequence[Second]) -> Figure:
    shares = {client: share_percent(rows, client) for client in CLIENTS}
    farthest = max(abs(shares[client] - 100) for client in CLIENTS if client.kind is Kind.PRODUCER)
    least = min(shares, key=lambda client: shares[client])
    what = (
        f"quota.window.num {rows[0].window}: share of its quota that the worst of nine "
        f"flat-out clients gets"
    )
    peaks = (
        f"highest second of the NIC's egress {egress_peak(rows):.1f}, ingress "
        f"{ingress_peak(rows):.1f} times its mean"
    )
    note = (
        f"{least.kind} of {least.quota // 1_000_000} MB/s; producers within {farthest:.0f} % "
        f"of theirs; {peaks}"
    )
    return Figure(what, shares[least], "%", None, note)


def _silence(rows: Sequence[Second]) -> Figure:
    samples = rows[0].window
    what = (
        f"quota.window.num {samples}: longest silence of nine flat-out clients, quotas cut to "
        f"a fifth in one moment"
    )
    half, fifth = (f"{mute_seconds(samples, phase):g} s predicted" for phase in CUTS)
    to_half, uncut = (
        longest_silence_seconds(rows, Kind, phase) for phase in (Phase.HALF, Phase.STEADY)
    )
    note = f"{fifth}; cut to a half {to_half} s, {half}; not cut {uncut} s"
    return Figure(what, longest_silence_seconds(rows, Kind, Phase.FIFTH), "s", None, note)


WINDOWS = (2, 3, 4, 5, 11)
_RUNS = Path("out/bench")
_MEASUREMENTS = Path("docs/measurements")


def quota_window(samples: int) -> list[Figure]:
    """Measure one window, keep its rows, and return its figures."""
    rows = run(samples)
    write_rows(_path(samples), rows)
    return figures(rows)


def tables(runs: Mapping[int, Sequence[Second]]) -> str:
    """The two tables of the page as Markdown, a column for each window."""
    shares = {
        f"{client.kind}, {client.quota // 1_000_000} MB/s": [
            f"{share_percent(rows, client):.0f} %" for rows in runs.values()
        ]
        for client in CLIENTS
    }
    peaks = {
        "NIC's egress: highest second over the mean": [
            f"{egress_peak(rows):.1f} x" for rows in runs.values()
        ],
        "NIC's ingress: highest second over the mean": [
            f"{ingress_peak(rows):.1f} x" for rows in runs.values()
        ],
    }
    silences = _silences("not cut", Phase.STEADY, runs)
    for phase in CUTS:
        silences[f"cut to a {phase}: predicted mute"] = [
            f"{mute_seconds(samples, phase):g} s" for samples in runs
        ]
        silences |= _silences(f"cut to a {phase}", phase, runs)
    return "\n\n".join([_table(runs, shares | peaks), _table(runs, silences)])


def _silences(
    what: str, phase: Phase, runs: Mapping[int, Sequence[Second]]
) -> dict[str, list[str]]:
    return {
        f"{what}: {kind}s": [
            f"{longest_silence_seconds(rows, [kind], phase)} s" for rows in runs.values()
        ]
        for kind in Kind
    }


def _table(windows: Iterable[int], lines: Mapping[str, Sequence[str]]) -> str:
    heads = [f"{samples} x 1 s" for samples in windows]
    cells = [
        ["", *heads],
        ["---"] * (len(heads) + 1),
        *([what, *values] for what, values in lines.items()),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _path(samples: int) -> Path:
    return _RUNS / f"quota-window-{samples}.csv"


def _gather() -> None:
    runs = {samples: read_rows(_path(samples)) for samples in WINDOWS if _path(samples).exists()}
    write_rows(_MEASUREMENTS / "quota-window.csv", [row for rows in runs.values() for row in rows])
    (_MEASUREMENTS / "quota-window.svg").write_text(window_picture(runs), encoding="utf-8")
    print(tables(runs))
    if missing := [str(samples) for samples in WINDOWS if samples not in runs]:
        print(f"\nNot measured here yet, so without a column: {', '.join(missing)}")


PARTS = {f"quota-window-{samples}": partial(quota_window, samples) for samples in WINDOWS}

if __name__ == "__main__":
    _gather()
