"""A cluster of many brokers and members as the console sees it: objects with statuses, readings.

`python -m bench.large_console BROKERS MEMBERS PORT` serves it, with a pass every five seconds and
whenever a line comes on standard input: so many members are throttled then, and a line is printed
when the pass is over.
"""

import random
import sys
import threading
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from tidegate.console.history import Past
from tidegate.console.server import Console, ConsoleSettings, serve
from tidegate.console.source import Trail
from tidegate.view.policy import Measured, Objects
from tidegate_logic.model import ClientRate, Direction, Entity, Level, NicSpan, Readings

MB = 1_000_000
PASS_SECONDS = 5.0
LEVELS = ("L0", "L1", "L2", "L3")


def large_objects(brokers: int, members: int, now: float, *, throttled: int = 40) -> Objects:
    """Ten tiers of all levels; the last members are throttled."""
    policy, tier = yaml.safe_load_all(Path(__file__).with_suffix(".yaml").read_text())
    policy["status"]["brokers"] = [
        {"id": broker, "pressure": "Within"} for broker in range(1, brokers + 1)
    ]
    tiers = []
    for number in range(10):
        names = [f"member-{number}-{place}" for place in range(members // 10)]
        one = deepcopy(tier)
        one["metadata"] |= {"name": f"tier-{number}", "uid": f"t{number}"}
        level = number % 4
        one["spec"] |= {"level": LEVELS[level], "members": [_member(name) for name in names]}
        if level == 0:
            del one["spec"]["throttledRates"]
        kept = throttled if number == 3 else 0
        states = [_state(name, is_low=place < kept) for place, name in enumerate(names)]
        tiers.append({**one, "status": {"members": states}})
    return Objects((policy,), tuple(tiers), heard_at_seconds=now)


def _member(name: str) -> dict[str, Any]:
    contract = {"perPartition": {"fetch": "2M", "produce": "2M"}}
    return {"name": name, "user": name, "topics": [f"topic-{name}"], "contract": contract}


def _state(name: str, *, is_low: bool) -> dict[str, Any]:
    total = {"fetch": 24 * MB, "produce": 24 * MB}
    return {
        "name": name,
        "leaders": 12,
        "leaderSkew": "1.00",
        "quota": {"fetch": 4 * MB, "produce": 4 * MB},
        "contractTotal": total,
        "permittedTotal": total,
        "state": "Throttled" if is_low else "Contract",
    }


def large_measured(brokers: int, members: int, now: float, *, seed: int = 1) -> Measured:
    """Each member on six brokers both ways; every NIC has a fresh reading."""
    chance = random.Random(seed)
    clients: dict[tuple[Entity, int, Direction], ClientRate] = {}
    each = members // 10
    for number in range(10):
        for place in range(each):
            entity = Entity(f"member-{number}-{place}")
            for broker in chance.sample(range(1, brokers + 1), 6):
                for way in Direction.COMBINED.parts:
                    rate = chance.paretovariate(1.3) * 0.2 * MB
                    clients[entity, broker, way] = ClientRate(now, rate, 0.0)
    nic = {
        (broker, way): tuple(
            NicSpan(now - 15.0 * back, 15.0, chance.uniform(20, 120) * MB) for back in (3, 2, 1, 0)
        )
        for broker in range(1, brokers + 1)
        for way in Direction.COMBINED.parts
    }
    return Measured(Readings(now, 15.0, nic, clients))


def large_past(brokers: int, now: float) -> Past:
    """A day of every NIC by the minute, and an hour in which every level kept its contract."""
    chance = random.Random(0)
    return Past(
        {
            (broker, way): [
                (now - 60.0 * back, chance.uniform(0.2, 0.9)) for back in range(1440, 0, -1)
            ]
            for broker in range(1, brokers + 1)
            for way in Direction.COMBINED.parts
        },
        {
            Level(level): [(now - 30.0 * back, "Contract") for back in range(120, 0, -1)]
            for level in LEVELS
        },
    )


class LargeSource:
    """Objects and readings as of the last pass, and what was before the first."""

    cluster = None

    def __init__(self, brokers: int, members: int) -> None:
        self._size = (brokers, members)
        self._past = large_past(brokers, time.time())
        self._throttled, self._passes = 40, 0
        self._lock = threading.Lock()
        self.pass_over()

    def pass_over(self, *, throttled: int | None = None) -> None:
        with self._lock:
            self._throttled = self._throttled if throttled is None else throttled
            self._passes += 1
            now = time.time()
            self._objects = large_objects(*self._size, now, throttled=self._throttled)
            self._measured = large_measured(*self._size, now, seed=self._passes)

    def now_seconds(self) -> float:
        return time.time()

    def changes(self) -> object:
        return self._passes

    def objects(self) -> Objects:
        return self._objects

    def measured(self, policy_key: str) -> Measured:  # noqa: ARG002
        return self._measured

    def past(self, policy_key: str) -> Past | None:  # noqa: ARG002
        return self._past

    def trail(self) -> Trail:
        return Trail()


def main(brokers: int, members: int, port: int) -> None:
    """Serve until standard input ends and the process is stopped."""
    source = LargeSource(brokers, members)

    def again_and_again() -> None:
        while True:
            time.sleep(PASS_SECONDS)
            source.pass_over()

    def as_told() -> None:
        for line in sys.stdin:
            source.pass_over(throttled=int(line))
            print("over", flush=True)

    for loop in (again_and_again, as_told):
        threading.Thread(target=loop, daemon=True).start()
    serve(Console(source, settings=ConsoleSettings(port=port)))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
