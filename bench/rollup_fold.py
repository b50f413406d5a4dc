"""What the fold costs for each sample, and how near its estimates come to a broker whose every byte is known.

The bound is processor time of one core: the fold runs in as many processes as there
are cores, and waits for nothing.
"""

from statistics import median
from time import process_time

import numpy as np
from numpy.typing import NDArray

from bench.results import Figure, percentile
from bench.rollup_truth import MadeDirection, made_direction
from tidegate.rollup.fold.broker import BrokerFold, DirectionTerms, broker_table, fold_broker, usage_table
from tidegate.rollup.fold.windows import Windows
from tidegate.rollup.schemas import DIRECTIONS, HOUR_MS, Direction

SAMPLES_PER_SECOND = 3_000_000  # what one core must fold
_SERIES = 10_000
_ROUNDS = 7
_HOUR = Windows(494_445 * HOUR_MS, 494_446 * HOUR_MS)

Made = dict[Direction, MadeDirection]


def fold_figures(series: int = _SERIES) -> list[Figure]:
    """One hour of one broker: `series` clients, half of them in each direction, and a tenth of all with a throttle time beside the rate."""
    made = {way: made_direction(_HOUR, series // 2, number, offset_ms=4_000 * number) for number, way in enumerate(DIRECTIONS)}
    folds = [_fold(made) for _ in range(_ROUNDS)]
    return [_speed(made, [seconds for seconds, _ in folds]), *_errors(made, folds[0][1])]


def _fold(made: Made) -> tuple[float, BrokerFold]:
    """The seconds of processor time until the tables stand in memory, and what was folded."""
    samples = {way: each.samples for way, each in made.items()}
    terms = {way: DirectionTerms(limit=10**9, contracts=each.contracts) for way, each in made.items()}
    begun = process_time()
    fold = fold_broker(1, samples, _HOUR, terms=terms)
    usage_table(fold)
    broker_table(fold)
    return process_time() - begun, fold


def _speed(made: Made, seconds: list[float]) -> Figure:
    count = sum(len(one.values) for each in made.values() for one in (*each.samples.rates, *each.samples.throttle_times))
    nanoseconds = sorted(1e9 * each / count for each in seconds)
    note = f"median of {len(seconds)}, best {nanoseconds[0]:.0f}, worst {nanoseconds[-1]:.0f}; {1e3 / median(nanoseconds):.1f} M samples/s"
    name = f"fold one hour of {sum(len(each.clients) for each in made.values()):,} clients ({count:,} samples), processor time a sample"
    return Figure(name, median(nanoseconds), "ns", 1e9 / SAMPLES_PER_SECOND, note)


def _errors(made: Made, fold: BrokerFold) -> list[Figure]:
    aligned, scrapes = made["produce"], "a scrape on each edge"
    lost = np.abs(fold.directions["produce"].traffic.client_bytes - aligned.bytes_of_clients.sum(axis=0))
    figures = [Figure(f"bytes of a broker and window against the truth, {scrapes}", float(lost.max()), "bytes", 0)]
    for name, kept in (("free", False), ("throttled", True)):
        for span, windows in (("an hour", 12), ("5 minutes", 1)):
            parts = [_off_percent(each, fold, way, windows=windows)[each.throttled == kept].ravel() for way, each in made.items()]
            off = np.concatenate(parts)
            note = (
                f"median {np.median(off):.1f} %, worst {off.max():.1f} %; all of them together {_bias(made, fold, throttled=kept):+.1f} %"
            )
            figures.append(
                Figure(f"bytes of a {name} client in {span} against the truth, p95", percentile(off.tolist(), 95), "%", None, note)
            )
    return figures


def _off_percent(made: MadeDirection, fold: BrokerFold, way: Direction, *, windows: int) -> NDArray[np.float64]:
    """By how much the bytes of each client were missed, in sums over so many windows; against the mean where a client was silent."""
    estimated, true = (each.reshape(len(each), -1, windows).sum(axis=2) for each in (_estimated(made, fold, way), made.bytes_of_clients))
    off: NDArray[np.float64] = 100 * np.abs(estimated - true) / np.maximum(true, true.mean(axis=1, keepdims=True))
    return off


def _bias(made: Made, fold: BrokerFold, *, throttled: bool) -> float:
    estimated = sum(int(_estimated(each, fold, way)[each.throttled == throttled].sum()) for way, each in made.items())
    true = sum(int(each.bytes_of_clients[each.throttled == throttled].sum()) for each in made.values())
    return 100 * (estimated - true) / true


def _estimated(made: MadeDirection, fold: BrokerFold, way: Direction) -> NDArray[np.int64]:
    one = fold.directions[way]
    if one.clients != made.clients:
        raise AssertionError("the fold lost a client")
    return one.traffic.bytes_of_clients
