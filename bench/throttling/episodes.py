"""Plays one measured episode: the limit is lowered, tiers go down and rest, the limit is raised, all return. It judges nothing."""

import csv
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

from matplotlib.axes import Axes

from bench.pictures import Colour, picture
from bench.results import Figure, Measured, quiet
from bench.throttling.stage import (
    HIGH_LIMIT,
    MB,
    Business,
    Crowd,
    Operation,
    QuotaWrite,
    Stage,
    Znodes,
    crowd,
    four_businesses,
    neighbour,
    running_stage,
)
from lab.rates import SAWTOOTH_SECONDS, ByteSeries, steady_mean

# What one measured episode leaves behind, and the figures out of it: silences, how soon within the
# limit, rates at rest. It plays nothing.
#
# Times are seconds since the epoch, rates bytes per second.


# Two sawteeth: shorter means of a card swing with them.
CARD_MEAN_SECONDS = 24
LONG_MEAN_SECONDS = 36
_LIMIT_SLACK = 0.05
_FULL_SHARE = 0.97


@dataclass(frozen=True, slots=True)
class Played:
    """The limit is lowered, tiers go down and rest from `rests_at_seconds` on, the limit is raised, all return."""

    limit_bytes_per_second: float
    limited_at_seconds: float
    rests_at_seconds: float
    raised_at_seconds: float
    ended_seconds: float
    clients: Mapping[str, ByteSeries]
    businesses: Mapping[Business, ByteSeries]
    card: ByteSeries
    writes: Sequence[QuotaWrite]

    def first_write_seconds(self) -> float:
        """When the first quota was lowered; ValueError when none was."""
        return min(write.at_seconds for write in self.writes if write.at_seconds >= self.limited_at_seconds)

    def longest_silence(self, level: str) -> int:
        """The longest run of whole seconds in which nobody of the level moved anything, from the first write to the end.

        That is what a step may cause: when a mute is over, Kafka serves the user again, whichever of its connections asks first.
        """
        begin = int(self.first_write_seconds())
        of_level = next(series for business, series in self.businesses.items() if business.level == level)
        return longest_run_of_nothing(of_level.per_second(begin, int(self.ended_seconds) - begin))

    def longest_of_connections(self, level: str, begin_seconds: float, end_seconds: float) -> int:
        """The longest such run of any single connection of the level in that span; its siblings may have taken what the user had."""
        of_level = (series for name, series in self.clients.items() if name.startswith(level))
        seconds = int(end_seconds) - int(begin_seconds)
        return max(longest_run_of_nothing(series.per_second(int(begin_seconds), seconds)) for series in of_level)

    def seconds_until_within(self) -> float | None:
        """From the first write until the card's 24-second mean is within the limit + 5 % and stays so for a sawtooth; None if never."""
        first = self.first_write_seconds()
        within = 0
        for end in range(int(first) + 1, int(self.raised_at_seconds) + 1):
            mean = self.card.mean(end - CARD_MEAN_SECONDS, CARD_MEAN_SECONDS)
            within = within + 1 if mean <= self.limit_bytes_per_second * (1 + _LIMIT_SLACK) else 0
            if within == SAWTOOTH_SECONDS:
                return end - SAWTOOTH_SECONDS + 1 - first
        return None

    def rest_percent(self, business: Business) -> float:
        """What it moved in the 36 s at rest, against its quota then (or what it wants where that is less), in percent off."""
        quotas = [write.after for write in self.writes if write.user == business.user and write.at_seconds <= self.rests_at_seconds]
        expected = min(rate for rate in (quotas[-1] if quotas else None, business.wanted) if rate is not None)
        return 100 * (steady_mean(self.businesses[business], self.rests_at_seconds, LONG_MEAN_SECONDS) / expected - 1)

    def lowest_share(self, business: Business) -> float:
        """The lowest mean of any 36 seconds from the lowered limit to the end, as a share of what the business wants."""
        first, last = int(self.limited_at_seconds), int(self.ended_seconds) - LONG_MEAN_SECONDS
        means = (self.businesses[business].mean(start, LONG_MEAN_SECONDS) for start in range(first, max(first, last) + 1))
        return min(means) / (business.wanted or 1)

    def seconds_until_full(self) -> float | None:
        """From the raise until every business gets 97 % of what it wants, as a mean of 12 s; None if one never does."""
        each = [self._seconds_until_full(business) for business in self.businesses if business.wanted]
        return None if None in each else max(seconds for seconds in each if seconds is not None)

    def _seconds_until_full(self, business: Business) -> float | None:
        starts = range(int(self.ended_seconds - SAWTOOTH_SECONDS - self.raised_at_seconds) + 1)
        enough = _FULL_SHARE * (business.wanted or 0)
        series = self.businesses[business]
        return next((float(s) for s in starts if series.mean(self.raised_at_seconds + s, SAWTOOTH_SECONDS) >= enough), None)


def longest_run_of_nothing(rates: Sequence[float]) -> int:
    """The longest run of seconds without a byte."""
    longest = run = 0
    for rate in rates:
        run = 0 if rate > 0 else run + 1
        longest = max(longest, run)
    return longest


# Raw measurements kept beside the figures: one CSV a run, a line for each second and client, in
# kilobytes. It computes nothing.


FOLDER = Path("docs/measurements")


def keep(played: Played, name: str) -> None:
    """Write docs/measurements/<name>.csv: seconds from the lowered limit, who (client, `card`, or `quota <user>`), kilobytes per second."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    begin = int(played.limited_at_seconds) - 10
    seconds = int(played.ended_seconds) - begin
    series = {**{business.level: moved for business, moved in played.businesses.items()}, "card": played.card}
    with (FOLDER / f"{name}.csv").open("w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(["second", "who", "kilobytes_per_second"])
        for who, moved in series.items():
            rows.writerows([second - 10, who, round(rate / 1000)] for second, rate in enumerate(moved.per_second(begin, seconds)))
        for write in played.writes:
            if write.after is not None and write.at_seconds >= begin:
                rows.writerow([round(write.at_seconds - begin - 10, 1), f"quota {write.user}", write.after // 1000])


# `python -m bench.throttling.episodes` draws docs/measurements/episodes.svg: the measured episodes
# that are kept there, ladder beside Drain.


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


_FREE_SECONDS = 32  # they have their rate after 8 s, Kafka's byte rate tells it 12 s later, and a reading may be 6 s old
_LONGEST_CUT_SECONDS = 200
_LONGEST_RETURN_SECONDS = 75
# No cut follows another sooner than after 30 s: after this long without one the tiers rest.
_QUIET_SECONDS = 36
_SETTLE_SECONDS = 24  # the longest mute of a step, and the rest of the tooth that it ends in
_AT_FLOOR = 1.06
_FULL_FOR_SECONDS = 14
_ROWS_LAG_SECONDS = 2


@dataclass(slots=True)
class _Playing:
    stage: Stage
    operation: Operation
    businesses: Sequence[Business]
    crowd: Crowd
    znodes: Znodes
    began: float
    limited: float = 0.0

    def rests(self) -> bool:
        """Every tier is at its throttled rate, or nothing was written for a while."""
        quotas = self.znodes.quotas()
        if all((quotas.get(b.user) or b.contract) <= b.throttled * _AT_FLOOR for b in self.businesses if b.throttled is not None):
            return True
        writes = [write.at_seconds for write in self.znodes.writes() if write.at_seconds >= self.limited]
        return bool(writes) and time.time() - writes[-1] >= _QUIET_SECONDS

    def all_back(self, raised: float) -> bool:
        """Every quota is the contract and everybody has got what they want for a while since the limit was raised."""
        start = time.time() - _ROWS_LAG_SECONDS - _FULL_FOR_SECONDS
        if start < raised or any(self.znodes.quotas().get(business.user) != business.contract for business in self.businesses):
            return False
        moved = self.crowd.by_business()
        return all(moved[b].mean(start, _FULL_FOR_SECONDS) >= 0.97 * b.wanted for b in self.businesses if b.wanted)

    def played(self, *, rests: float, raised: float) -> Played:
        """Everything recorded until now."""
        ended = time.time()
        time.sleep(_ROWS_LAG_SECONDS)
        businesses = self.crowd.by_business()
        start = self.limited - 2 * CARD_MEAN_SECONDS
        card = self.stage.card(self.operation, start_seconds=start, end_seconds=ended)
        return Played(
            limit_bytes_per_second=self.operation.limit,
            limited_at_seconds=self.limited,
            rests_at_seconds=rests,
            raised_at_seconds=raised,
            ended_seconds=ended,
            clients=self.crowd.each(),
            businesses=businesses,
            card=card if card is not None else self.crowd.together(),
            writes=self.znodes.writes(),
        )


def play(stage: Stage, businesses: Sequence[Business], operation: Operation, *, speed: str, run: str, rest_seconds: int = 0) -> Played:
    """One episode on a fresh policy. The tiers settle and rest for 36 s, or for `rest_seconds` where that is longer."""
    users = [business.user for business in businesses]
    with (
        stage.declared(businesses, operation, speed=speed),
        Znodes(stage.on.kafka.zookeeper_connect, users, operation.znode_key) as znodes,
        crowd(stage.on.kafka, businesses, operation, run=run) as clients,
    ):
        playing = _Playing(stage, operation, businesses, clients, znodes, time.time())
        stage.wait(_FREE_SECONDS)
        playing.limited = stage.limit(operation, operation.limit)
        stage.wait_until(playing.rests, longest_seconds=_LONGEST_CUT_SECONDS)
        last_write = max((write.at_seconds for write in znodes.writes()), default=playing.limited)
        rests = float(int(last_write) + _SETTLE_SECONDS)
        stage.wait(max(rest_seconds, rests + LONG_MEAN_SECONDS + 1 - time.time()))
        raised = stage.limit(operation, HIGH_LIMIT)
        stage.wait_until(lambda: playing.all_back(raised), longest_seconds=_LONGEST_RETURN_SECONDS)
        return playing.played(rests=rests, raised=raised)


# What a step of ours costs a client: silences, the way within the limit, rates at rest and the way
# back, on a real broker.
#
# Produce and consume, one connection and six, the ladder and drain-then-set. Where fetch is
# throttled, a small Java producer of L3's user
# writes beside its consumers: it has another quota and shall notice nothing.


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


def _figures(played: Played, run: _Run) -> Iterator[Figure]:
    what, speed = run.title, run.speed
    each = {level: played.longest_silence(level) for level in ("L3", "L2", "L1", "L0")}
    note = ", ".join(f"{level} {seconds} s" for level, seconds in each.items())
    yield Figure(f"{what}: longest silence of any user", max(each.values()), "s", _SILENCE_SECONDS[speed], note)
    if run.connections > 1:
        yield _of_single_connections(played, what)
    within = played.seconds_until_within()
    yield Figure(f"{what}: first write until the card is within +5 %", _NEVER if within is None else within, "s", _WITHIN_SECONDS[speed])
    off = {business.level: played.rest_percent(business) for business in played.businesses if business.throttled is not None}
    note = ", ".join(f"{level} {percent:+.1f} %" for level, percent in off.items())
    above, below = max(off.values()), -min(off.values())
    yield Figure(f"{what}: a tier at rest over 36 s, most above its quota", above, "%", 6.0, note)
    yield Figure(f"{what}: a tier at rest over 36 s, most below its quota", below, "%", 10.0)
    free = next(business for business in played.businesses if business.throttled is None)
    yield Figure(f"{what}: L0 in its worst 36 s, less than it wants by", 100 * (1 - played.lowest_share(free)), "%", 3.0)
    full = played.seconds_until_full()
    yield Figure(f"{what}: limit raised to full load", _NEVER if full is None else full, "s", _FULL_SECONDS)


def _of_single_connections(played: Played, what: str) -> Figure:
    """Siblings may take all that their user has for several windows: beside it what that came to with nothing written for a while."""
    lowered = ("L3", "L2", "L1")
    first, rests = played.first_write_seconds(), played.rests_at_seconds
    longest = max(played.longest_of_connections(level, first, played.ended_seconds) for level in lowered)
    at_rest = max(played.longest_of_connections(level, rests, played.raised_at_seconds) for level in lowered)
    note = f"at rest, without any step, {at_rest} s of {played.raised_at_seconds - rests:.0f} s"
    return Figure(f"{what}: longest silence of a single connection", longest, "s", None, note)


EPISODES: Mapping[str, Callable[[], list[Figure]]] = {
    run.name: partial(quiet, partial(episode, run)) for run in (_Run(*one) for one in product(Operation, (1, 6), _SILENCE_SECONDS))
}
