"""`python -m bench.tide.picture` draws docs/measurements/episodes.svg: the measured episodes that are kept there, ladder beside Drain."""

import csv
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

from matplotlib.axes import Axes

from bench.pictures import Colour, picture
from bench.tide.raw import FOLDER
from bench.tide.script import MB, Operation
from lab.rates import SAWTOOTH_SECONDS

PICTURE = FOLDER / "episodes.svg"
_COLOURS = {"card": Colour.NIC, "L0": Colour.LEVEL_0, "L1": Colour.LEVEL_1, "L2": Colour.LEVEL_2, "L3": Colour.LEVEL_3}
_SPEEDS = ("ladder", "drain")
_EVERY_SECONDS = 3
_SHOWN_SECONDS = 240


def episodes_picture() -> str:
    """A whole SVG file; a row for each operation and number of connections. FileNotFoundError where one was not measured."""
    rows = list(product(Operation, (1, 6)))
    with picture(height_inches=9.0) as (figure, svg):
        axes = figure.subplots(len(rows), len(_SPEEDS), sharex=True, sharey="row")
        for row, (operation, connections) in enumerate(rows):
            for column, speed in enumerate(_SPEEDS):
                _draw(axes[row][column], operation, _read(FOLDER / f"episode-{operation.value}-{connections}-{speed}.csv"))
            axes[row][0].set_ylabel(f"{operation.value}, {connections} conn.\nMB/s, mean of 12 s")
        axes[0][0].set_title("Ladder", fontsize=10)
        axes[0][1].set_title("Drain", fontsize=10)
        axes[0][1].legend(fontsize=8, loc="center right", frameon=False)
        for axis in axes[-1]:
            axis.set_xlabel("seconds since the limit was lowered")
    return svg.text


def _draw(axes: Axes, operation: Operation, rates: Mapping[str, Sequence[float]]) -> None:
    for who, colour in _COLOURS.items():
        means = [
            sum(rates[who][end - SAWTOOTH_SECONDS : end]) / SAWTOOTH_SECONDS / 1000
            for end in range(SAWTOOTH_SECONDS, min(len(rates[who]), _SHOWN_SECONDS), _EVERY_SECONDS)
        ]
        times = [SAWTOOTH_SECONDS - 10 + place * _EVERY_SECONDS for place in range(len(means))]
        axes.plot(times, means, color=colour, label="NIC" if who == "card" else who, linewidth=1.6 if who == "card" else 1.1)
    axes.axhline(operation.limit / MB, color=Colour.LIMIT, linewidth=1.0, linestyle="--", label="limit")
    axes.set_ylim(bottom=0)


def _read(path: Path) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = defaultdict(list)
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            rates[row["who"]].append(float(row["kilobytes_per_second"]))
    return rates


def main() -> int:
    """Write the file; exit code 1, and the old one stays, where an episode was not measured yet."""
    try:
        drawn = episodes_picture()
    except FileNotFoundError as missing:
        part = Path(missing.filename).stem
        print(f"{PICTURE} was not written: {missing.filename} is missing. Measure it first: python -m bench {part}", file=sys.stderr)
        return 1
    PICTURE.write_text(drawn, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
