"""`python -m tests.soak --hours 8`: nine brokers and two replicas for hours, with a kill every few
minutes, in pieces of at most 80 minutes.

A piece starts everything again, and goes on with the contracts, counts and hours of those before:
`out/soak/state.json` has them, so an interrupted soak loses one piece. `out/soak/table.md` is for
docs/benchmarks.md. Exit code 1 when something was violated.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from lab.load import ProcessorShare, ProcessorTimes
from lab.machine import describe_machine
from lab.packages import chosen_kraft
from tests.integration.operator.test_kraft_kills import VICTIMS
from tests.soak.world import LEVELS, MB, STOPPED, TOPIC, World, running_world

OUTPUT = Path("out/soak")
STATE = OUTPUT / "state.json"
_PIECE_SECONDS = 80 * 60.0
# An edit and an episode come at least every ten minutes, in rounds of some three.
_ROUND_SECONDS = (120.0, 240.0)
_EVERY_SECONDS = 400.0
_EPISODE_SECONDS = (60.0, 120.0)
_AWAY_SECONDS = (5.0, 20.0)


@dataclass
class Hour:
    """What happened in an hour, and the most that an operator's process took."""

    seconds: float = 0.0
    kills: int = 0
    foreign_writes: int = 0
    episodes: int = 0
    throttled: int = 0  # episodes in which somebody was
    edits: int = 0
    looks: int = 0  # moments that were judged
    longest_agreement_seconds: float = 0.0
    most_rss_bytes: int = 0
    most_descriptors: int = 0
    busy_percent: float = 0.0


@dataclass
class State:
    """What pieces carry on."""

    seed: int
    kafka: str
    pieces: int = 0
    rates: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LEVELS, 6 * MB))
    hours: list[Hour] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    # replica -> (seconds it had lived, rss, descriptors), of the one that is never killed
    lives: list[list[tuple[float, int, int]]] = field(default_factory=list)

    @classmethod
    def read(cls) -> State:
        """What an earlier piece left."""
        raw = json.loads(STATE.read_text())
        return cls(**{**raw, "hours": [Hour(**one) for one in raw["hours"]]})

    def write(self) -> None:
        """Keep it, and the table."""
        OUTPUT.mkdir(parents=True, exist_ok=True)
        STATE.write_text(json.dumps(asdict(self), indent=1))
        (OUTPUT / "table.md").write_text(table(self))

    @property
    def seconds(self) -> float:
        """How long it was played."""
        return sum(one.seconds for one in self.hours)

    @property
    def hour(self) -> Hour:
        """The one that is being played."""
        if not self.hours or self.hours[-1].seconds >= 3600:
            self.hours.append(Hour())
        return self.hours[-1]


def table(state: State) -> str:
    """By hour, for docs/benchmarks.md."""
    kills = sum(one.kills for one in state.hours)
    rows = [
        f"| {number} | {one.seconds / 60:.0f} min | {one.kills} | {one.foreign_writes} | "
        f"{one.episodes}, {one.throttled} | {one.edits} | {one.looks} | {one.longest_agreement_seconds:.0f} s | "
        f"{one.most_rss_bytes / 1e6:.0f} MB | {one.most_descriptors} | {one.busy_percent:.0f} % |"
        for number, one in enumerate(state.hours, start=1)
    ]
    lives = "; ".join(
        f"{(life[-1][0] - life[0][0]) / 60:.0f} min: {life[0][1] / 1e6:.0f} to "
        f"{life[-1][1] / 1e6:.0f} MB, {life[0][2]} to {life[-1][2]} descriptors"
        for life in state.lives
        if life
    )
    machine = ", ".join(f"{what} {value}" for what, value in describe_machine().items())
    return f"""Nine brokers of Kafka {state.kafka} without ZooKeeper, two replicas, seed {state.seed}, pieces: \
{state.pieces}. {state.seconds / 3600:.1f} h, {kills} kills, violations: {len(state.violations)}. \
{machine}.

| hour | played | kills and stops | other writer | episodes, throttled | edits | moments judged | slowest agreement | most memory | most descriptors | processors busy |
|---|---|---|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}

The replica that is never killed, from its first round to its last: {lives or "not yet"}.
"""


@dataclass
class Piece:
    """One start of everything, played in rounds."""

    state: State
    world: World
    last_edit: float = float("-inf")
    last_episode: float = float("-inf")

    def play(self, until: float) -> None:
        """Rounds until the time is over, then the way out."""
        world, observer = self.world, self.world.observer()
        world.agree(observer, "the start")
        while time.monotonic() < until:
            began, busy, hour = time.monotonic(), ProcessorTimes.now(), self.state.hour
            what = self._round(hour)
            took = world.agree(observer, what)
            print(f"  {what}: agreed after {took:.0f} s", flush=True)
            time.sleep(max(0.0, began + world.dice.uniform(*_ROUND_SECONDS) - time.monotonic()))
            hour.longest_agreement_seconds = max(hour.longest_agreement_seconds, took)
            share = ProcessorShare.between(busy, ProcessorTimes.now()).busy_percent
            hour.busy_percent = max(hour.busy_percent, share)
            hour.seconds += time.monotonic() - began
            self._measure(hour)
            self._keep()
        world.leave(observer)
        self._keep()
        observer.close()

    def _round(self, hour: Hour) -> str:
        """An edit and an episode where they are due, and a kill; says what it was."""
        world, dice, now = self.world, self.world.dice, time.monotonic()
        victim = dice.choice((*VICTIMS, STOPPED))
        what = [victim]
        with ExitStack() as stack:
            if dice.random() < 0.5 or now - self.last_edit > _EVERY_SECONDS:
                world.edit()
                self.last_edit, hour.edits = now, hour.edits + 1
                what.append("edit")
            if dice.random() < 0.5 or now - self.last_episode > _EVERY_SECONDS:
                stack.enter_context(world.episode())
                self.last_episode, hour.episodes = now, hour.episodes + 1
                what.append("episode")
                time.sleep(dice.uniform(0, _EPISODE_SECONDS[0]))
            back, hour.kills = world.strike(victim), hour.kills + 1
            if dice.random() < 0.4:
                time.sleep(dice.uniform(0, _AWAY_SECONDS[0]))
                world.write_beside()
                hour.foreign_writes += 1
                what.append("another writer")
            time.sleep(dice.uniform(*_AWAY_SECONDS))
            back()
            world.kafka.restore_preferred_leaders(TOPIC, timeout_seconds=180)
            if "episode" in what:
                time.sleep(dice.uniform(*_EPISODE_SECONDS))
                hour.throttled += world.throttled_seconds > _AWAY_SECONDS[0]
        return ", ".join(what)

    def _measure(self, hour: Hour) -> None:
        """Memory and descriptors of both replicas."""
        hour.looks, self.world.looks = hour.looks + self.world.looks, 0
        for operator in self.world.operators:
            process = psutil.Process(operator.pid)
            rss, descriptors = process.memory_info().rss, process.num_fds()
            hour.most_rss_bytes = max(hour.most_rss_bytes, rss)
            hour.most_descriptors = max(hour.most_descriptors, descriptors)
            lived = time.time() - process.create_time()
            if operator is self.world.steady:
                self.state.lives[-1].append((lived, rss, descriptors))

    def _keep(self) -> None:
        found = self.world.judge.violations
        for one in found:
            print(f"VIOLATION {one}", flush=True)
        self.state.violations += found
        found.clear()
        self.state.rates = self.world.rates
        self.state.write()


def main() -> int:
    """Play what is left of the hours."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0, help="in all, with what was played")
    parser.add_argument("--pieces", type=int, default=10**6, help="at most so many now")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="forget what was played")
    chosen = parser.parse_args()
    state = State(chosen.seed, chosen_kraft())
    if STATE.exists() and not chosen.fresh:
        state = State.read()
    for _ in range(chosen.pieces):
        left = chosen.hours * 3600 - state.seconds
        if left < 60:
            break
        state.pieces += 1
        state.lives.append([])
        print(f"piece {state.pieces}, {left / 3600:.2f} h are left", flush=True)
        dice = random.Random(f"{state.seed} {state.pieces}")
        with running_world(dict(state.rates), dice, OUTPUT / f"piece-{state.pieces}") as world:
            Piece(state, world).play(time.monotonic() + min(left, _PIECE_SECONDS))
    print((OUTPUT / "table.md").read_text())
    return 1 if state.violations else 0


if __name__ == "__main__":
    raise SystemExit(main())
