"""What the brokers' `quota.window.num` does to accuracy, mutes and the card.

`python -m bench quota-window-3` measures one window, on a broker of its own.
`python -m bench.quota_window` gathers the newest run of every window into docs/measurements and prints the tables of docs/quota-window.md.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from bench.figure import Figure
from bench.quota_window_clients import CLIENTS, Kind
from bench.quota_window_figures import CUTS, egress_peak, figures, ingress_peak, longest_silence_seconds, share_percent
from bench.quota_window_picture import window_picture
from bench.quota_window_rows import Phase, Second, read_rows, write_rows
from bench.quota_window_run import mute_seconds, run

WINDOWS = (2, 3, 4, 5, 11)
_RUNS = Path("out/bench")
_MEASUREMENTS = Path("docs/measurements")
_KINDS = ((Kind.CONSUMER,), (Kind.WIDE_CONSUMER,), (Kind.PRODUCER,))


def quota_window(samples: int) -> list[Figure]:
    """Measure one window, keep its rows, and return its figures."""
    rows = run(samples)
    write_rows(_path(samples), rows)
    return figures(rows)


def tables(runs: Mapping[int, Sequence[Second]]) -> str:
    """The two tables of the page as Markdown."""
    accuracy = [[f"{samples} x 1 s", *_accuracy(rows)] for samples, rows in runs.items()]
    silences = [[f"{samples} x 1 s", *_silences(samples, rows)] for samples, rows in runs.items()]
    clients = [f"{client.kind} {client.quota // 1_000_000}" for client in CLIENTS]
    kinds = [kind[0] for kind in _KINDS]
    cuts = [cell for phase in CUTS for cell in (f"to a {phase}: arithmetic", *kinds)]
    return "\n\n".join([_table(["window", *clients, "egress peak", "ingress peak"], accuracy), _table(["window", *kinds, *cuts], silences)])


def _accuracy(rows: Sequence[Second]) -> list[str]:
    shares = [f"{share_percent(rows, client):.0f} %" for client in CLIENTS]
    return [*shares, f"{egress_peak(rows):.1f} x", f"{ingress_peak(rows):.1f} x"]


def _silences(samples: int, rows: Sequence[Second]) -> list[str]:
    def each(phase: Phase) -> list[str]:
        return [f"{longest_silence_seconds(rows, kinds, phase)} s" for kinds in _KINDS]

    return [*each(Phase.STEADY), *(cell for phase in CUTS for cell in (f"{mute_seconds(samples, phase):g} s", *each(phase)))]


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *lines))


def _path(samples: int) -> Path:
    return _RUNS / f"quota-window-{samples}.csv"


def _gather() -> None:
    runs = {samples: read_rows(_path(samples)) for samples in WINDOWS}
    write_rows(_MEASUREMENTS / "quota-window.csv", [row for rows in runs.values() for row in rows])
    (_MEASUREMENTS / "quota-window.svg").write_text(window_picture(runs), encoding="utf-8")
    print(tables(runs))


PARTS = {f"quota-window-{samples}": partial(quota_window, samples) for samples in WINDOWS}

if __name__ == "__main__":
    _gather()
