"""Whole rollups of a synthetic cluster on a real Prometheus: warm, cold, and how both grow.

Prometheus shares the machine. What came out is held against what was made: a fast rollup that loses
a byte is none.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import process_time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bench.results import Cost, Figure, cost_of, percentile
from bench.rollup.synthetic import (
    HistoryPrometheus,
    MadeDirection,
    SyntheticCluster,
    made_direction,
)
from lab.cache import RunDirectory
from tidegate.rollup.fold.broker import (
    BrokerFold,
    DirectionTerms,
    broker_table,
    fold_broker,
    usage_table,
)
from tidegate.rollup.fold.windows import WINDOW_MS, Windows
from tidegate.rollup.schemas import DIRECTIONS, HOUR_MS, Direction
from tidegate.rollup.tables.store import UsageStore

# What the fold costs for each sample, and how near its estimates come to a broker whose every byte
# is known.
#
# The bound is processor time of one core: the fold runs in as many processes as there are cores,
# and waits for nothing.


FOLDED_SAMPLES_PER_SECOND = 3_000_000  # what one core must fold
_SERIES = 10_000
_FOLD_ROUNDS = 7
_HOUR = Windows(494_445 * HOUR_MS, 494_446 * HOUR_MS)

Made = dict[Direction, MadeDirection]


def fold_figures(series: int = _SERIES) -> list[Figure]:
    """One hour of one broker with `series` clients, half of them in each direction.

    A tenth of all have a throttle time beside the rate.
    """
    made = {
        way: made_direction(_HOUR, series // 2, number, offset_ms=4_000 * number)
        for number, way in enumerate(DIRECTIONS)
    }
    folds = [_fold(made) for _ in range(_FOLD_ROUNDS)]
    return [_fold_speed(made, [seconds for seconds, _ in folds]), *_errors(made, folds[0][1])]


def _fold(made: Made) -> tuple[float, BrokerFold]:
    """The seconds of processor time until the tables stand in memory, and what was folded."""
    samples = {way: each.samples for way, each in made.items()}
    terms = {
        way: DirectionTerms(limit=10**9, contracts=each.contracts) for way, each in made.items()
    }
    begun = process_time()
    fold = fold_broker(1, samples, _HOUR, terms=terms)
    usage_table(fold)
    broker_table(fold)
    return process_time() - begun, fold


def _fold_speed(made: Made, seconds: list[float]) -> Figure:
    count = sum(
        len(one.values)
        for each in made.values()
        for one in (*each.samples.rates, *each.samples.throttle_times)
    )
    nanoseconds = sorted(1e9 * each / count for each in seconds)
    note = (
        f"median of {len(seconds)}, best {nanoseconds[0]:.0f}, worst {nanoseconds[-1]:.0f}; "
        f"{1e3 / median(nanoseconds):.1f} M samples/s"
    )
    name = (
        f"fold one hour of {sum(len(each.clients) for each in made.values()):,} clients "
        f"({count:,} samples), processor time a sample"
    )
    return Figure(name, median(nanoseconds), "ns", 1e9 / FOLDED_SAMPLES_PER_SECOND, note)


def _errors(made: Made, fold: BrokerFold) -> list[Figure]:
    aligned, scrapes = made["produce"], "a scrape on each edge"
    lost = np.abs(
        fold.directions["produce"].traffic.client_bytes - aligned.bytes_of_clients.sum(axis=0)
    )
    figures = [
        Figure(
            f"bytes of a broker and window against the truth, {scrapes}",
            float(lost.max()),
            "bytes",
            0,
        )
    ]
    for throttled, windows in ((False, 12), (False, 1), (True, 12), (True, 1)):
        off = [
            _off_percent(each, _estimated(each, fold, way), throttled=throttled, windows=windows)
            for way, each in made.items()
        ]
        together = f"all of them together {_bias(made, fold, throttled=throttled):+.1f} %"
        figures.append(_client_figure(np.concatenate(off), "", throttled, windows, None, together))
    return figures


def _off_percent(
    made: MadeDirection, estimated: NDArray[np.int64], *, throttled: bool, windows: int
) -> NDArray[np.float64]:
    """By how much the bytes of each client were missed, in sums over so many windows, in percent.

    Against the mean where a client was silent.
    """
    those = made.throttled == throttled
    sums, true = (
        each[those].reshape(int(those.sum()), -1, windows).sum(axis=2)
        for each in (estimated, made.bytes_of_clients)
    )
    off = 100 * np.abs(sums - true) / np.maximum(true, true.mean(axis=1, keepdims=True))
    return np.asarray(off.ravel())


def _client_figure(
    off: NDArray[np.float64],
    where: str,
    throttled: bool,
    windows: int,
    bound: float | None,
    more: str = "",
) -> Figure:
    span, name = "an hour" if windows == 12 else "5 minutes", "throttled" if throttled else "free"
    note = f"median {np.median(off):.1f} %, worst {off.max():.1f} %"
    return Figure(
        f"bytes of a {name} client in {span}{where} against the truth, p95",
        percentile(off.tolist(), 95),
        "%",
        bound,
        "; ".join(filter(None, [note, more])),
    )


def _bias(made: Made, fold: BrokerFold, *, throttled: bool) -> float:
    estimated = sum(
        int(_estimated(each, fold, way)[each.throttled == throttled].sum())
        for way, each in made.items()
    )
    true = sum(
        int(each.bytes_of_clients[each.throttled == throttled].sum()) for each in made.values()
    )
    return 100 * (estimated - true) / true


def _estimated(made: MadeDirection, fold: BrokerFold, way: Direction) -> NDArray[np.int64]:
    one = fold.directions[way]
    if one.clients != made.clients:
        raise AssertionError("the fold lost a client")
    return one.traffic.bytes_of_clients


# Published tables against the cluster that they were made of: brokers to the byte, clients within
# what docs/usage.md states, percentiles by rank. It measures nothing and expects one hour with a
# scrape on each edge.


_MOST_SKETCH_ERROR_PERCENT = 1.0
# docs/usage.md: 95 of 100 clients are within, percent
_STATED = {(False, 12): 0.8, (False, 1): 2.6, (True, 12): 2.3, (True, 1): 4.4}
_SHARES = (0.5, 0.95, 0.99)

Quantiles = Sequence[tuple[int, str, float, float, float]]
Table = NDArray[np.int64]  # a row for each client, a column for each window


def checks(cluster: SyntheticCluster, store: UsageStore, quantiles: Quantiles) -> list[Figure]:
    """All checks of the published tables against the cluster.

    `quantiles` are broker, direction, and the rates of five minutes at `_SHARES` by sketches that
    were added up.
    """
    estimated = {
        (broker, way): _bytes_of_clients(cluster, store, broker, way)
        for broker, way in _every(cluster)
    }
    return [
        _brokers(cluster, store),
        *(
            _clients(cluster, estimated, throttled=throttled, windows=windows)
            for throttled, windows in _STATED
        ),
        _percentiles(store),
        _sketches(estimated, quantiles),
    ]


def _every(cluster: SyntheticCluster) -> Iterator[tuple[int, Direction]]:
    return ((broker, way) for broker in range(1, cluster.brokers + 1) for way in DIRECTIONS)


def _brokers(cluster: SyntheticCluster, store: UsageStore) -> Figure:
    off = [
        _lost(cluster.made(broker)[way], store.rows("broker_5m"), broker, way, cluster=cluster)
        for broker, way in _every(cluster)
    ]
    return Figure(
        "bytes of a broker, direction and window in the tables against the truth",
        float(max(off)),
        "bytes",
        0,
        f"{len(off)} of them",
    )


def _lost(
    made: MadeDirection, rows: pa.Table, broker: int, way: Direction, *, cluster: SyntheticCluster
) -> int:
    own = rows.filter((pc.field("broker") == broker) & (pc.field("direction") == way)).sort_by(
        "window_start"
    )
    counted, true = own["client_bytes"].to_numpy(), made.bytes_of_clients.sum(axis=0)
    if len(counted) != len(true):
        raise RuntimeError(
            f"broker {broker} has {len(counted)} windows of {way} where {len(true)} were made "
            f"from {cluster.start_ms} on"
        )
    return int(np.abs(counted - true).max())


def _bytes_of_clients(
    cluster: SyntheticCluster, store: UsageStore, broker: int, way: Direction
) -> Table:
    """The table's bytes, in the order in which clients were made; 0 where a client has no row."""
    rows = store.rows("usage_5m").filter(
        (pc.field("broker") == broker) & (pc.field("direction") == way)
    )
    numbers = {user: number for number, (user, _) in enumerate(cluster.made(broker)[way].clients)}
    found = np.zeros((len(numbers), WINDOW_MS // 25_000), np.int64)
    places = [numbers[user] for user in rows["user"].to_pylist()]
    found[
        places, (rows["window_start"].cast(pa.int64()).to_numpy() - cluster.start_ms) // WINDOW_MS
    ] = rows["bytes"].to_numpy()
    return found


def _clients(
    cluster: SyntheticCluster,
    estimated: dict[tuple[int, Direction], Table],
    *,
    throttled: bool,
    windows: int,
) -> Figure:
    off = [
        _off_percent(cluster.made(broker)[way], table, throttled=throttled, windows=windows)
        for (broker, way), table in estimated.items()
    ]
    bound = _STATED[throttled, windows]
    return _client_figure(np.concatenate(off), " in the tables", throttled, windows, bound)


def _percentiles(store: UsageStore) -> Figure:
    """The hourly table's own percentiles against the rows of five minutes.

    By nearest rank each is one of these rates.
    """
    fine = (
        store.rows("usage_5m")
        .group_by(["broker", "user", "client_id", "direction"])
        .aggregate([("bytes", "list")])
    )
    rates = {
        tuple(row[name] for name in _CLIENT): sorted(row["bytes_list"]) for row in fine.to_pylist()
    }
    wrong = 0
    for row in store.rows("usage_1h", columns=[*_CLIENT, "p50", "p95", "p99"]).to_pylist():
        ranked = rates[tuple(row[name] for name in _CLIENT)]
        expected = [
            ranked[-(-len(ranked) * percent // 100) - 1] * 1000 / WINDOW_MS
            for percent in (50, 95, 99)
        ]
        wrong += [row["p50"], row["p95"], row["p99"]] != expected
    return Figure(
        "p50, p95 and p99 of the hourly table that are not the rates at their ranks",
        wrong,
        "rows",
        0,
        f"of {len(rates):,}",
    )


_CLIENT = ("broker", "user", "client_id", "direction")


def _sketches(estimated: dict[tuple[int, Direction], Table], quantiles: Quantiles) -> Figure:
    """How far rates at a rank, by sketches of all clients added up, are from the tables' own."""
    worst, count = 0.0, 0
    for broker, way, *sketched in quantiles:
        known = next(
            np.sort(table.ravel()) * 1000 / WINDOW_MS
            for (number, direction), table in estimated.items()
            if (number, direction) == (broker, way)
        )
        count = len(known)
        for share, rate in zip(_SHARES, sketched, strict=True):
            true = float(known[max(0, int(np.ceil(share * count)) - 1)])
            worst = max(worst, 100 * abs(rate - true) / max(true, 1.0))
    note = f"{len(quantiles)} brokers and directions, {count:,} rates each"
    name = "p50, p95 and p99 from sketches added up against the table's own rates, worst"
    return Figure(name, worst, "%", _MOST_SKETCH_ERROR_PERCENT, note)


BEGIN_MS = 494_445 * HOUR_MS
_MIDNIGHT_MS = 494_448 * HOUR_MS  # the first one after that
SAMPLES_PER_SECOND = 2_500_000
_COLD_SECONDS, _COLD_MEGABYTES = 14.0, 1200.0
_SLOPE_NANOSECONDS = 800.0  # twice what reading, folding and writing alone may take
_MOST_OFF_PERCENT = 15.0  # of the line: what "linear" means here
_ROUNDS = 5
_TIMEOUT_SECONDS = 400


@dataclass(frozen=True, slots=True)
class Warm:
    """Seconds of each round of reading, folding and writing all samples, then of a whole run."""

    cluster: SyntheticCluster
    rounds: Sequence[float]
    whole: float
    quantiles: Sequence[tuple[int, str, float, float, float]]
    cost: Cost

    @property
    def nanoseconds(self) -> float:
        """Of the clock, for each sample."""
        return 1e9 * median(self.rounds) / self.cluster.samples


def ingest_figures(cluster: SyntheticCluster | None = None) -> list[Figure]:
    """One hour, warm; with what merged sketches tell against the truth."""
    cluster = cluster or SyntheticCluster(BEGIN_MS)
    with _serving(cluster) as (url, folder):
        warm = _warm(url, cluster, folder, rounds=_ROUNDS)
        return [_speed(warm), *checks(cluster, UsageStore.at(_address(folder)), warm.quantiles)]


def cold_figures(cluster: SyntheticCluster | None = None) -> list[Figure]:
    """`tidegate rollup run` of one hour, from the start of its process to the last table."""
    cluster = cluster or SyntheticCluster(BEGIN_MS)
    with _serving(cluster) as (url, folder):
        runs = (cluster.rollup_argv(url, folder / str(number)) for number in range(3))
        each = [cost_of(run, timeout_seconds=_TIMEOUT_SECONDS) for run in runs]
        costs = sorted(each, key=lambda cost: cost.seconds)
    middle = costs[1]
    what = f"one hour of {_size(cluster)}, cold, by `tidegate rollup run`"
    spread = (
        f"best {costs[0].seconds:.1f} s, worst {costs[-1].seconds:.1f} s; "
        f"{middle.processor_seconds:.1f} s of processors"
    )
    note = "resident sets of all its processes added up; Prometheus is not among them"
    return [
        Figure(
            f"{what}: process started to all tables published, median of 3",
            middle.seconds,
            "s",
            _COLD_SECONDS,
            spread,
        ),
        Figure(
            f"{what}: most memory",
            max(cost.peak_bytes for cost in costs) / 1e6,
            "MB",
            _COLD_MEGABYTES,
            note,
        ),
    ]


def growth_figures(brokers: int = 5, clients: int = 250) -> list[Figure]:
    """A start and a slope, fitted through four and sixteen times the series, and the hours.

    The hours are of a day that is not over; what the tables of a whole day take is separate.
    """
    series = [
        SyntheticCluster(BEGIN_MS, brokers=brokers * times, clients=clients) for times in (1, 4, 16)
    ]
    hours = [
        SyntheticCluster(_MIDNIGHT_MS, hours=times, brokers=brokers, clients=clients)
        for times in (1, 4, 16)
    ]
    ended = SyntheticCluster(
        _MIDNIGHT_MS - 16 * HOUR_MS, hours=16, brokers=brokers, clients=clients
    )
    measured = {cluster: _grown(cluster) for cluster in (*series, *hours, ended)}
    in_day, whole_day = measured[hours[-1]].whole, measured[ended].whole
    return [
        *_fitted([measured[each] for each in series], "more series"),
        *_fitted([measured[each] for each in hours], "more hours"),
        Figure(
            "a whole run, warm: what the tables of a day add, once it is over",
            whole_day - in_day,
            "s",
            None,
            f"{whole_day:.1f} s for 16 hours up to midnight ({_size(ended)}), {in_day:.1f} s for "
            f"16 from midnight on",
        ),
        Figure(
            "a whole run, warm: most memory of these",
            max(warm.cost.peak_bytes for warm in measured.values()) / 1e6,
            "MB",
            None,
            f"{max(cluster.samples for cluster in measured) / 1e6:.1f} M samples",
        ),
    ]


def _fitted(runs: Sequence[Warm], what: str) -> list[Figure]:
    """The line of least squares through the runs: seconds that each run costs, and a sample."""
    samples = np.array([one.cluster.samples for one in runs], np.float64)
    seconds = np.array([one.whole for one in runs], np.float64)
    slope, start = np.polyfit(samples, seconds, 1)
    off = 100 * np.abs(seconds - (start + slope * samples)) / seconds
    note = "; ".join(
        f"{one.whole:.1f} s for {one.cluster.samples / 1e6:.1f} M samples ({_size(one.cluster)}, "
        f"{one.cluster.hours} h; reading, folding and writing alone {one.nanoseconds:.0f} ns)"
        for one in runs
    )
    return [
        Figure(
            f"a whole run, warm, {what}: each further sample",
            1e9 * float(slope),
            "ns",
            _SLOPE_NANOSECONDS,
            note,
        ),
        Figure(f"a whole run, warm, {what}: what it costs beside that", float(start), "s", None),
        Figure(
            f"a whole run, warm, {what}: how far the farthest run is from that line",
            float(off.max()),
            "%",
            _MOST_OFF_PERCENT,
        ),
    ]


def _grown(cluster: SyntheticCluster) -> Warm:
    with _serving(cluster) as (url, folder):
        return _warm(url, cluster, folder, rounds=1)


def _speed(warm: Warm) -> Figure:
    rates = sorted(warm.cluster.samples / seconds / 1e6 for seconds in warm.rounds)
    name = (
        f"one hour of {_size(warm.cluster)}, warm, from Prometheus to Parquet of 5 minutes: "
        f"time a sample"
    )
    note = (
        f"{median(rates):.2f} M samples/s, best {rates[-1]:.2f}, worst {rates[0]:.2f}, of "
        f"{len(rates)}; a whole run {warm.whole:.1f} s"
    )
    return Figure(name, warm.nanoseconds, "ns", 1e9 / SAMPLES_PER_SECOND, note)


def _size(cluster: SyntheticCluster) -> str:
    return f"{cluster.rate_series:,} clients' series on {cluster.brokers} brokers"


@contextmanager
def _serving(cluster: SyntheticCluster) -> Iterator[tuple[str, Path]]:
    """The address of a Prometheus that has the cluster's history, and a folder for results."""
    with RunDirectory() as run:
        data, made = run.path / "prometheus", run.path / "made"
        data.mkdir()
        made.mkdir()
        with HistoryPrometheus(data) as prometheus:
            prometheus.write(cluster.series())
            yield prometheus.url, made


def _warm(url: str, cluster: SyntheticCluster, folder: Path, *, rounds: int) -> Warm:
    arguments = [url, str(cluster.start_ms), str(cluster.end_ms), _address(folder), str(rounds)]
    cost = cost_of(
        [sys.executable, "-m", "bench.rollup.process", *arguments], timeout_seconds=_TIMEOUT_SECONDS
    )
    printed = json.loads(cost.output.splitlines()[-1])
    return Warm(
        cluster,
        printed["rounds"],
        printed["whole"],
        [tuple(one) for one in printed["quantiles"]],
        cost,
    )


def _address(folder: Path) -> str:
    return f"file://{folder}"
