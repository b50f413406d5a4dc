"""What a step of ours costs a client, on a real broker.

Measured are silences, the way within the limit, rates at rest and the way back. Produce and
consume, one connection and six, the ladder and drain-then-set. Where fetch is throttled, a small
Java producer of L3's user writes beside its consumers: it has another quota and must notice
nothing. `python -m bench.throttling.episodes` draws docs/measurements/episodes.svg out of the
seconds that are kept there, ladder beside Drain.
"""

import csv
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

from bench.results import Figure, Measured, quiet
from bench.throttling.stage import (
    HIGH_LIMIT,
    LIMITS,
    MB,
    Stage,
    four_businesses,
    neighbour,
    running_stage,
)
from lab.episodes import (
    FULL_SHARE,
    LONG_MEAN_SECONDS,
    NIC_MEAN_SECONDS,
    ROWS_LAG_SECONDS,
    Business,
    Clients,
    Episode,
    Operation,
    at_throttled_rates,
    is_quiet,
)
from lab.errors import LabError
from lab.quota_watch import QuotaWatch
from lab.rates import SAWTOOTH_SECONDS
from tidegate.report import svg

FOLDER = Path("docs/measurements")


def keep(played: Episode, name: str) -> None:
    """Write docs/measurements/<name>.csv.

    Columns are seconds from the lowered limit, who (level, `nic`, or `quota <user>`), kilobytes per
    second.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    begin = int(played.limited_at_seconds) - 10
    seconds = int(played.ended_seconds) - begin
    series = {
        **{business.level: played.moved[business.user] for business in played.businesses},
        "nic": played.nic,
    }
    with (FOLDER / f"{name}.csv").open("w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(["second", "who", "kilobytes_per_second"])
        for who, moved in series.items():
            rows.writerows(
                [second - 10, who, round(rate / 1000)]
                for second, rate in enumerate(moved.per_second(begin, seconds))
            )
        for write in played.writes:
            if write.after is not None and write.at_seconds >= begin:
                rows.writerow(
                    [
                        round(write.at_seconds - begin - 10, 1),
                        f"quota {write.user}",
                        write.after // 1000,
                    ]
                )


PICTURE = FOLDER / "episodes.svg"
_SPEEDS = ("ladder", "drain")
_LEVELS = ("L0", "L1", "L2", "L3")
_LINES = {"nic": "ink", **{level: level.lower() for level in _LEVELS}}
_EVERY_SECONDS = 3
_SHOWN_SECONDS = 200
_TOP, _PANEL_HEIGHT, _ROW_HEIGHT = 96, 130, 176
_LEFT, _PANEL_WIDTH, _COLUMN_WIDTH = 44, 380, 440


def episodes_picture() -> str:
    """A whole SVG file with a row for each operation and number of connections.

    Raises FileNotFoundError where one was not measured.
    """
    parts = [*_legend()]
    for row, (operation, connections) in enumerate(product(Operation, (1, 6))):
        name = f"{operation.value}-{connections}"
        shown = [_means(_read(FOLDER / f"episode-{name}-{speed}.csv")) for speed in _SPEEDS]
        ticks = svg.round_ticks(
            max(max(means) for each in shown for means in each.values()), count=4
        )
        top = _TOP + row * _ROW_HEIGHT
        upward = svg.Scale(0, ticks[-1], top + _PANEL_HEIGHT, top)
        for column, (speed, means) in enumerate(zip(_SPEEDS, shown, strict=True)):
            left = _LEFT + column * _COLUMN_WIDTH
            across = svg.Scale(0, _SHOWN_SECONDS, left, left + _PANEL_WIDTH)
            plural = "s" if connections > 1 else ""
            title = f"{operation.value}, {connections} connection{plural}, {speed.title()}: MB/s"
            parts += [
                svg.text(title, left, top - 9, class_="faint"),
                svg.vertical_axis(upward, svg.labelled(ticks), left=left, right=across.end),
                svg.horizontal_axis(
                    across,
                    svg.labelled(range(0, _SHOWN_SECONDS + 1, 40)),
                    top=top,
                    bottom=upward.begin,
                ),
                *_curves(means, across, upward),
                svg.horizontal_line(
                    upward.at(LIMITS[operation] / MB), left, across.end, class_="limit"
                ),
            ]
    description = "Means of 12 s, over the seconds since the limit was lowered."
    return svg.svg_file("Episodes of throttling", description, parts, height=_TOP + 4 * _ROW_HEIGHT)


def _legend() -> Iterator[svg.Markup]:
    words = "means of 12 s, over the seconds since the limit was lowered (dashed: the limit)"
    yield svg.text(words, 400, 54, class_="faint")
    for place, (who, colour) in enumerate(_LINES.items()):
        at = 14 + 70 * place
        yield svg.line([(at, 50), (at + 22, 50)], stroke=colour, stroke_width=2)
        yield svg.text("NIC" if who == "nic" else who, at + 28, 54)


def _means(rates: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Of the last 12 s, in MB/s, by who."""
    return {
        who: [
            sum(rates[who][end - SAWTOOTH_SECONDS : end]) / SAWTOOTH_SECONDS / 1000
            for end in range(SAWTOOTH_SECONDS, min(len(rates[who]), _SHOWN_SECONDS), _EVERY_SECONDS)
        ]
        for who in _LINES
    }


def _curves(
    means: Mapping[str, Sequence[float]], across: svg.Scale, upward: svg.Scale
) -> Iterator[svg.Markup]:
    for who, colour in _LINES.items():
        points = [
            (across.at(SAWTOOTH_SECONDS - 10 + place * _EVERY_SECONDS), upward.at(mean))
            for place, mean in enumerate(means[who])
        ]
        width = 1.6 if who == "nic" else 1.1
        yield svg.line(points, stroke=colour, stroke_width=width)


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
        print(
            f"{PICTURE} was not written: {missing.filename} is missing. Measure it first: python "
            f"-m bench {part}",
            file=sys.stderr,
        )
        return 1
    PICTURE.write_text(drawn, encoding="utf-8")
    return 0


# they have their rate after 8 s, Kafka's byte rate shows it 12 s later, and a reading may be 6 s
# old
_FREE_SECONDS = 32
_LONGEST_CUT_SECONDS = 200
_LONGEST_RETURN_SECONDS = 75
_SETTLE_SECONDS = 24  # the longest mute of a step, and the rest of the sawtooth that it ends in
_FULL_FOR_SECONDS = 14


def play(
    stage: Stage, businesses: Sequence[Business], operation: Operation, *, speed: str, run: str
) -> Episode:
    """One episode on a fresh policy. The tiers settle and rest for 36 s."""
    with (
        stage.declared(businesses, operation, speed=speed),
        stage.watch(businesses, operation) as quotas,
        stage.clients(businesses, operation, run=run) as clients,
    ):
        stage.wait(_FREE_SECONDS)
        limited = stage.limit(operation, LIMITS[operation])
        stage.wait_until(
            lambda: (
                at_throttled_rates(quotas.quotas(), businesses)
                or is_quiet(quotas.writes(), since=limited)
            ),
            longest_seconds=_LONGEST_CUT_SECONDS,
        )
        last_write = max((write.at_seconds for write in quotas.writes()), default=limited)
        at_rest = float(int(last_write) + _SETTLE_SECONDS)
        stage.wait(at_rest + LONG_MEAN_SECONDS + 1 - time.time())
        raised = stage.limit(operation, HIGH_LIMIT)
        stage.wait_until(
            lambda: _all_back(quotas, clients, businesses, raised),
            longest_seconds=_LONGEST_RETURN_SECONDS,
        )
        ended = time.time()
        time.sleep(ROWS_LAG_SECONDS)
        return Episode(
            limit=LIMITS[operation],
            businesses=tuple(businesses),
            limited_at_seconds=limited,
            measured_from_seconds=at_rest,
            measured_seconds=LONG_MEAN_SECONDS,
            raised_at_seconds=raised,
            ended_seconds=ended,
            moved=clients.by_user(),
            nic=stage.nic(
                clients, operation, start_seconds=limited - 2 * NIC_MEAN_SECONDS, end_seconds=ended
            ),
            writes=quotas.writes(),
            connections=clients.by_connection(),
        )


def _all_back(
    quotas: QuotaWatch, clients: Clients, businesses: Sequence[Business], raised: float
) -> bool:
    """Whether every quota is the contract again and all got what they want for a while.

    Only the time since the limit was raised counts.
    """
    start = time.time() - ROWS_LAG_SECONDS - _FULL_FOR_SECONDS
    in_force = quotas.quotas()
    if start < raised or any(
        in_force[business.user] != business.contract for business in businesses
    ):
        return False
    moved = clients.by_user()
    return all(
        moved[one.user].mean(start, _FULL_FOR_SECONDS) >= FULL_SHARE * one.demand
        for one in businesses
    )


_SILENCE_SECONDS = {"Ladder": 22.0, "Drain": 20.0}
_WITHIN_SECONDS = {"Ladder": 100.0, "Drain": 60.0}
_FULL_SECONDS = 60.0
_NEIGHBOUR_SECONDS = 200
_NEVER = 9999.0


@dataclass(frozen=True, slots=True)
class _Run:
    operation: Operation
    connections: int
    speed: str

    @property
    def name(self) -> str:
        return f"episode-{self.operation.value}-{self.connections}-{self.speed.lower()}"

    @property
    def title(self) -> str:
        plural = "s" if self.connections > 1 else ""
        return f"{self.operation.value}, {self.connections} connection{plural}, {self.speed}"

    @property
    def businesses(self) -> tuple[Business, ...]:
        return four_businesses(self.operation, self.connections, self.name)


def episode(run: _Run) -> Measured:
    """The figures of one episode; its seconds are for docs/measurements."""
    users = [business.user for business in run.businesses]
    with running_stage(users, Path(f"out/bench/{run.name}.operator.log")) as stage:
        return _measured(stage, run)


def _measured(stage: Stage, run: _Run) -> Measured:
    if run.operation is Operation.PRODUCE:
        return _played(stage, run)
    with neighbour(stage.on.kafka, run.businesses[-1].user, seconds=_NEIGHBOUR_SECONDS) as small:
        measured = _played(stage, run)
        title = f"{run.title}: records that a small Java producer lost under L3's other quota"
        lost = Figure(title, small.lost(), "records", 0, f"of {small.records}")
        return replace(measured, figures=[*measured.figures, lost])


def _played(stage: Stage, run: _Run) -> Measured:
    played = play(stage, run.businesses, run.operation, speed=run.speed, run=run.name)
    return Measured(list(_figures(played, run)), keep=partial(keep, played, run.name))


def _figures(played: Episode, run: _Run) -> Iterator[Figure]:
    what, speed = run.title, run.speed
    first = played.first_write_seconds()
    if first is None:
        raise LabError(
            f"{what}: no quota was written within {_LONGEST_CUT_SECONDS} s, so nothing was "
            f"measured. Read out/bench/{run.name}.operator.log."
        )
    each = {level: played.longest_silence(level) for level in ("L3", "L2", "L1", "L0")}
    note = ", ".join(f"{level} {seconds} s" for level, seconds in each.items())
    yield Figure(
        f"{what}: longest silence of any user",
        max(each.values()),
        "s",
        _SILENCE_SECONDS[speed],
        note,
    )
    if run.connections > 1:
        yield _of_single_connections(played, what, first)
    within = played.seconds_until_within()
    yield Figure(
        f"{what}: first write until the NIC is within +5 %",
        _NEVER if within is None else within,
        "s",
        _WITHIN_SECONDS[speed],
    )
    off = {
        level: 100 * (played.rate_at_rest(level) / played.expected_at_rest(level) - 1)
        for level in ("L1", "L2", "L3")
    }
    note = ", ".join(f"{level} {percent:+.1f} %" for level, percent in off.items())
    above, below = max(off.values()), -min(off.values())
    yield Figure(f"{what}: a tier at rest over 36 s, most above its quota", above, "%", 6.0, note)
    yield Figure(f"{what}: a tier at rest over 36 s, most below its quota", below, "%", 10.0)
    yield Figure(
        f"{what}: L0 in its worst 36 s, less than it wants by",
        100 * (1 - played.lowest_share("L0")),
        "%",
        3.0,
    )
    full = played.seconds_until_all_full()
    yield Figure(
        f"{what}: limit raised to full load", _NEVER if full is None else full, "s", _FULL_SECONDS
    )


def _of_single_connections(played: Episode, what: str, first: float) -> Figure:
    """The longest silence of a single connection, beside that with nothing written for a while.

    Siblings may take all that their user has for several windows.
    """
    at_rest, levels = played.measured_from_seconds, ("L3", "L2", "L1")
    longest = max(
        played.longest_of_connections(level, first, played.ended_seconds) for level in levels
    )
    longest_at_rest = max(
        played.longest_of_connections(level, at_rest, played.raised_at_seconds) for level in levels
    )
    note = (
        f"at rest, without any step, {longest_at_rest} s of "
        f"{played.raised_at_seconds - at_rest:.0f} s"
    )
    return Figure(f"{what}: longest silence of a single connection", longest, "s", None, note)


EPISODES: Mapping[str, Callable[[], list[Figure]]] = {
    run.name: partial(quiet, partial(episode, run))
    for run in (_Run(*one) for one in product(Operation, (1, 6), _SILENCE_SECONDS))
}


if __name__ == "__main__":
    sys.exit(main())
