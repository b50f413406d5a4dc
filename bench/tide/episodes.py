"""What a step of ours costs a client: silences, the way within the limit, rates at rest and the way back, on a real broker.

Produce and consume, one connection and six, the ladder and drain-then-set. Where fetch is throttled, a small Java producer of L3's user
writes beside its consumers: it has another quota and shall notice nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

from bench.quiet import Measured, quiet
from bench.results import Figure
from bench.throttling.episodes import play
from bench.throttling.stage import TideStage, tide_stage
from bench.tide.neighbour import neighbour
from bench.tide.played import Played
from bench.tide.raw import keep
from bench.tide.script import Business, Operation, four_businesses

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
    with tide_stage(users, Path(f"out/bench/{run.name}.operator.log")) as stage:
        return _measured(stage, run)


def _measured(stage: TideStage, run: _Run) -> Measured:
    if run.operation is Operation.PRODUCE:
        return _played(stage, run)
    with neighbour(stage.on.kafka, run.businesses[-1].user, seconds=_NEIGHBOUR_SECONDS) as small:
        measured = _played(stage, run)
        title = f"{run.title}: records that a small Java producer lost under L3's other quota"
        lost = Figure(title, small.lost(), "records", 0, f"of {small.records}")
        return replace(measured, figures=[*measured.figures, lost])


def _played(stage: TideStage, run: _Run) -> Measured:
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
