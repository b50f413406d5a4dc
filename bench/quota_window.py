"""What the brokers' `quota.window.num` does to accuracy, mutes and the card.

`python -m bench quota-window-3` measures one window, on a broker of its own.
`python -m bench.quota_window` gathers the newest run of every window into docs/measurements and prints the tables of docs/quota-window.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from bench.quota_window_clients import CLIENTS, Kind
from bench.quota_window_figures import CUTS, egress_peak, figures, ingress_peak, longest_silence_seconds, share_percent
from bench.quota_window_picture import window_picture
from bench.quota_window_rows import Phase, Second, read_rows, write_rows
from bench.quota_window_run import mute_seconds, run
from bench.results import Figure

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
        f"{client.kind}, {client.quota // 1_000_000} MB/s": [f"{share_percent(rows, client):.0f} %" for rows in runs.values()]
        for client in CLIENTS
    }
    peaks = {
        "card's egress: highest second over the mean": [f"{egress_peak(rows):.1f} x" for rows in runs.values()],
        "card's ingress: highest second over the mean": [f"{ingress_peak(rows):.1f} x" for rows in runs.values()],
    }
    silences = _silences("not cut", Phase.STEADY, runs)
    for phase in CUTS:
        silences[f"cut to a {phase}: predicted mute"] = [f"{mute_seconds(samples, phase):g} s" for samples in runs]
        silences |= _silences(f"cut to a {phase}", phase, runs)
    return "\n\n".join([_table(runs, shares | peaks), _table(runs, silences)])


def _silences(what: str, phase: Phase, runs: Mapping[int, Sequence[Second]]) -> dict[str, list[str]]:
    return {f"{what}: {kind}s": [f"{longest_silence_seconds(rows, [kind], phase)} s" for rows in runs.values()] for kind in Kind}


def _table(windows: Iterable[int], lines: Mapping[str, Sequence[str]]) -> str:
    heads = [f"{samples} x 1 s" for samples in windows]
    cells = [["", *heads], ["---"] * (len(heads) + 1), *([what, *values] for what, values in lines.items())]
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
