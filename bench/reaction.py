"""How long from a new leader to the corrected quota, when a broker is killed: both ends by ZooKeeper's own clock.

The start is the last change of the topic's partition states before the quota was written, which is when Kafka's controller had elected;
the end is the modification time of the quota's znode. Between two runs the broker comes back, leads again, and the quota follows.
"""

import json
from collections.abc import Callable

from bench.control.world import TOPIC, World, policy, tier
from bench.results import Figure, percentile
from lab.process import wait_until

_USER = "/config/users/user-0"
_TIMEOUT_SECONDS = 60
_P95_BOUND_SECONDS = 5.0
_ENTITIES = 10


def reaction(on: World, runs: int) -> list[Figure]:
    """Kill one broker after the other, `runs` times, and give P50 and P95 in seconds."""
    for number in range(_ENTITIES):
        on.create("businesstiers", tier(number, _ENTITIES))
    on.create("brokerbandwidthpolicies", policy(on.kafka))
    _wait(on, lambda: on.zookeeper.exists(_USER) is not None, "the first quota")
    even = _quota(on)
    taken = [_killed_once(on, broker_id=number % 3 + 1, even=even) for number in range(runs)]
    what = "broker killed: new leaders elected to corrected quota committed"
    return [
        Figure(f"{what}, P50 of {runs}", percentile(taken, 50), "s", None),
        Figure(f"{what}, P95 of {runs}", percentile(taken, 95), "s", _P95_BOUND_SECONDS),
    ]


def _killed_once(on: World, *, broker_id: int, even: dict[str, str]) -> float:
    broker = on.kafka.broker(broker_id)
    broker.kill()
    _wait(on, lambda: _quota(on) != even, "the corrected quota")
    committed = on.zookeeper.exists(_USER).last_modified
    elected = max(changed for changed in _elections(on) if changed <= committed)
    broker.start()
    on.kafka.restore_preferred_leaders(TOPIC)
    _wait(on, lambda: _quota(on) == even, "the quota of even leaders")
    return float(committed - elected)


def _quota(on: World) -> dict[str, str]:
    data, _ = on.zookeeper.get(_USER)
    return dict(json.loads(data)["config"])


def _elections(on: World) -> list[float]:
    states = [f"/brokers/topics/{TOPIC}/partitions/{partition}/state" for partition in range(3)]
    return [on.zookeeper.exists(state).last_modified for state in states]


def _wait(on: World, condition: Callable[[], object], what: str) -> None:
    wait_until(condition, what, timeout_seconds=_TIMEOUT_SECONDS, processes=[on.operator], poll_seconds=0.02)
