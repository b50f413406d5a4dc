"""Whole rollups of a made-up estate on a real Prometheus, which shares the machine: warm, cold, and how both grow with the estate.

What came out is held against what was made: a fast rollup that loses a byte is none. `python -m bench.rollup.speed [brokers] [clients]`
"""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from bench.process_tree import Cost, cost_of
from bench.results import Figure
from bench.rollup.estate import Estate
from bench.rollup_checks import checks
from bench.rollup_prometheus import HistoryPrometheus
from lab.cache import RunDirectory
from tidegate.rollup.schemas import HOUR_MS
from tidegate.rollup.tables.store import UsageStore

BEGIN_MS = 494_445 * HOUR_MS
SAMPLES_PER_SECOND = 1_500_000
_COLD_SECONDS, _COLD_MEGABYTES = 20.0, 1500.0
_MOST_GROWTH = 1.25  # seconds a sample, the largest estate against the smallest: what "linear" means here
_ROUNDS = 5
_TIMEOUT_SECONDS = 400


@dataclass(frozen=True, slots=True)
class Warm:
    """Seconds of each round of reading, folding and writing all samples, and of a whole run after them."""

    estate: Estate
    rounds: Sequence[float]
    whole: float
    quantiles: Sequence[tuple[int, str, float, float, float]]
    cost: Cost

    @property
    def nanoseconds(self) -> float:
        """Of the clock, for each sample."""
        return 1e9 * median(self.rounds) / self.estate.samples


def ingest_figures(estate: Estate | None = None) -> list[Figure]:
    """One hour, warm; with what merged sketches tell against the truth."""
    estate = estate or Estate(BEGIN_MS)
    with _serving(estate) as (url, folder):
        warm = _warm(url, estate, folder, rounds=_ROUNDS)
        return [_speed(warm), *checks(estate, UsageStore.at(_address(folder)), warm.quantiles)]


def cold_figures(estate: Estate | None = None) -> list[Figure]:
    """`tidegate rollup run` of one hour, from the start of its process until the last table is published."""
    estate = estate or Estate(BEGIN_MS)
    with _serving(estate) as (url, folder):
        costs = sorted((_cold(url, estate, folder / str(number)) for number in range(3)), key=lambda cost: cost.seconds)
    middle = costs[1]
    what = f"one hour of {_size(estate)}, cold, by `tidegate rollup run`"
    spread = f"best {costs[0].seconds:.1f} s, worst {costs[-1].seconds:.1f} s; {middle.processor_seconds:.1f} s of processors"
    note = "resident sets of all its processes added up; Prometheus is not among them"
    return [
        Figure(f"{what}: process started to all tables published, median of 3", middle.seconds, "s", _COLD_SECONDS, spread),
        Figure(f"{what}: most memory", max(cost.peak_bytes for cost in costs) / 1e6, "MB", _COLD_MEGABYTES, note),
    ]


def growth_figures(brokers: int = 5, clients: int = 250) -> list[Figure]:
    """Four and sixteen times the series, and as many times the hours."""
    series = [Estate(BEGIN_MS, brokers=brokers * times, clients=clients) for times in (1, 4, 16)]
    hours = [Estate(BEGIN_MS, hours=times, brokers=brokers, clients=clients) for times in (4, 16)]
    measured = {estate: _grown(estate) for estate in (*series, *hours)}
    smallest = measured[series[0]]
    figures = [_growth(measured[series[0]], smallest, "1 x")]
    figures += [_growth(measured[each], smallest, f"{times} x the series") for each, times in zip(series[1:], (4, 16), strict=True)]
    return figures + [_growth(measured[each], smallest, f"{times} x the hours") for each, times in zip(hours, (4, 16), strict=True)]


def _growth(warm: Warm, smallest: Warm, what: str) -> Figure:
    per_sample, before = (1e9 * one.whole / one.estate.samples for one in (warm, smallest))
    note = f"{warm.whole:.1f} s for {warm.estate.samples / 1e6:.1f} M samples ({_size(warm.estate)}, {warm.estate.hours} h)"
    note += f"; reading, folding and writing alone {warm.nanoseconds:.0f} ns; most memory {warm.cost.peak_bytes / 1e6:,.0f} MB"
    bound = None if warm is smallest else before * _MOST_GROWTH
    return Figure(f"a whole run, warm, {what}: time a sample", per_sample, "ns", bound, note)


def _grown(estate: Estate) -> Warm:
    with _serving(estate) as (url, folder):
        return _warm(url, estate, folder, rounds=1)


def _speed(warm: Warm) -> Figure:
    rates = sorted(warm.estate.samples / seconds / 1e6 for seconds in warm.rounds)
    name = f"one hour of {_size(warm.estate)}, warm, from Prometheus to Parquet of 5 minutes: time a sample"
    note = f"{median(rates):.2f} M samples/s, best {rates[-1]:.2f}, worst {rates[0]:.2f}, of {len(rates)}; a whole run {warm.whole:.1f} s"
    return Figure(name, warm.nanoseconds, "ns", 1e9 / SAMPLES_PER_SECOND, note)


def _size(estate: Estate) -> str:
    return f"{estate.rate_series:,} clients' series on {estate.brokers} brokers"


@contextmanager
def _serving(estate: Estate) -> Iterator[tuple[str, Path]]:
    """The address of a Prometheus that has the estate's history, and a folder for what is made of it."""
    with RunDirectory() as run:
        data, made = run.path / "prometheus", run.path / "made"
        data.mkdir()
        made.mkdir()
        with HistoryPrometheus(data) as prometheus:
            prometheus.write(estate.series())
            yield prometheus.url, made


def _warm(url: str, estate: Estate, folder: Path, *, rounds: int) -> Warm:
    arguments = [url, str(estate.start_ms), str(estate.end_ms), _address(folder), str(rounds)]
    cost = cost_of([sys.executable, "-m", "bench.rollup.process", *arguments], timeout_seconds=_TIMEOUT_SECONDS)
    told = json.loads(cost.output.splitlines()[-1])
    return Warm(estate, told["rounds"], told["whole"], [tuple(one) for one in told["quantiles"]], cost)


def _cold(url: str, estate: Estate, folder: Path) -> Cost:
    start, end = (datetime.fromtimestamp(at_ms / 1000, UTC).isoformat() for at_ms in (estate.start_ms, estate.end_ms))
    argv = [sys.executable, "-m", "tidegate", "rollup", "run", "--prometheus", url, "--from", start, "--to", end, "--out", str(folder)]
    return cost_of(argv, timeout_seconds=_TIMEOUT_SECONDS)


def _address(folder: Path) -> str:
    return f"file://{folder}"


def main() -> int:
    """Print the figures of one estate, cold and warm."""
    sizes = dict(zip(("brokers", "clients"), map(int, sys.argv[1:3]), strict=False))
    estate = Estate(BEGIN_MS, **sizes)
    for figure in (*ingest_figures(estate), *cold_figures(estate)):
        print(figure.row(), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
