"""How long the whole operator takes, and what it costs at rest.

Measured are many contracts at once, one changed contract, and a killed broker. Ends are taken from
ZooKeeper's own modification times where it has them, in whole milliseconds.
"""

import json
import time

import psutil

from bench.control.world import (
    TIERS,
    TOPIC,
    World,
    policy,
    tier,
)
from bench.results import Figure, percentiles

_TIMEOUT_SECONDS = 120
_USER = "/config/users/user-0"
_BOUNDS_SECONDS = {1000: 3.0, 5000: 12.0}


def cold(on: World, entities: int, *, deletion: str = "Retain") -> list[Figure]:
    """Until `entities` contracts in ten tiers are in ZooKeeper and in status, from nothing.

    The tiers exist already; the clock starts when the policy is created, and stops when every quota
    is committed and every status has it.
    """
    on.create_tiers(entities)
    started = time.time()
    on.create("brokerbandwidthpolicies", policy(on.kafka, deletion))
    on.wait(
        lambda: _committed(on) >= entities, f"{entities} quotas in ZooKeeper", poll_seconds=0.02
    )
    committed = time.time() - started
    on.wait_for_status(entities)
    reported = time.time() - started
    what = (
        f"{entities} contracts in {TIERS} tiers, cold, {len(on.kafka.brokers)} broker(s) on "
        f"the same machine"
    )
    return [
        Figure(f"{what}: all committed", committed, "s", None),
        Figure(
            f"{what}: all committed and in status", reported, "s", _BOUNDS_SECONDS.get(entities)
        ),
    ]


def _committed(on: World) -> int:
    return len(on.zookeeper.get_children("/config/users"))


_P99_BOUND_MILLISECONDS = 500.0
_CHANGES = "/config/changes"


def changes_after_cold(on: World, changes: int) -> list[Figure]:
    """From one changed contract, sent to the Kubernetes API, to the committed quota.

    Every change is a raise of one member. These are changes in the quarter of an hour after a cold
    start: with every change, each broker reads all notifications of that again.
    """
    count = len(on.zookeeper.get_children(_CHANGES))
    what = (
        f"one changed contract to committed quota, with {count} notifications of the last 15 "
        f"minutes"
    )
    return percentiles(what, _measure(on, changes), "ms", {50: None, 99: None})


def changes_at_rest(on: World, changes: int) -> list[Figure]:
    """Changes in a cluster where nothing was changed for 15 minutes.

    Each is sent once the status shows the one before.
    """
    _let_notifications_expire(on)
    what = "one changed contract to committed quota"
    bounds = {50: None, 99: _P99_BOUND_MILLISECONDS}
    return percentiles(what, _measure(on, changes), "ms", bounds)


def changes_in_a_row(on: World, changes: int) -> list[Figure]:
    """The same, each sent as soon as the one before is committed."""
    _let_notifications_expire(on)
    what = "one changed contract to committed quota, one right after the other"
    taken = _measure(on, changes, wait_for_status=False)
    return percentiles(what, taken, "ms", {50: None, 99: None})


def _let_notifications_expire(on: World) -> None:
    """Remove what every broker has read by now, as Kafka itself does when it is 15 minutes old."""
    time.sleep(10)
    for name in on.zookeeper.get_children(_CHANGES):
        on.zookeeper.delete(f"{_CHANGES}/{name}")


def _measure(on: World, changes: int, *, wait_for_status: bool = True) -> list[float]:
    """Milliseconds of each change."""
    latencies = []
    for _ in range(changes):
        seconds, rate = _change(on)
        latencies.append(seconds * 1000)
        if wait_for_status:
            on.wait_for_member(rate)
    return latencies


def _change(on: World) -> tuple[float, int]:
    """Seconds from before the patch is sent until the commit, and the new rate."""
    before = on.zookeeper.exists(_USER).mzxid
    started, rate = on.raise_contract()
    on.wait(
        lambda: on.zookeeper.exists(_USER).mzxid != before, "the changed quota", poll_seconds=0.01
    )
    return float(on.zookeeper.exists(_USER).last_modified) - started, rate


_P95_BOUND_SECONDS = 5.0
_REACTION_ENTITIES = 10


def reaction(on: World, runs: int) -> list[Figure]:
    """From a new leader to the corrected quota, after a killed broker; P50 and P95 in seconds.

    One broker after the other is killed, `runs` times. The start is the last change of the topic's
    partition states before the quota was written, which is when Kafka's controller had elected.
    Between two runs the broker comes back, leads again, and the quota follows.
    """
    for number in range(_REACTION_ENTITIES):
        on.create("businesstiers", tier(number, _REACTION_ENTITIES))
    on.create("brokerbandwidthpolicies", policy(on.kafka))
    on.wait(lambda: on.zookeeper.exists(_USER) is not None, "the first quota", poll_seconds=0.02)
    even = _quota(on)
    taken = [_killed_once(on, broker_id=number % 3 + 1, even=even) for number in range(runs)]
    what = "broker killed: new leaders elected to corrected quota committed"
    return percentiles(what, taken, "s", {50: None, 95: _P95_BOUND_SECONDS})


def _killed_once(on: World, *, broker_id: int, even: dict[str, str]) -> float:
    broker = on.kafka.broker(broker_id)
    broker.kill()
    on.wait(lambda: _quota(on) != even, "the corrected quota", poll_seconds=0.02)
    committed = on.zookeeper.exists(_USER).last_modified
    elected = max(changed for changed in _elections(on) if changed <= committed)
    broker.start()
    on.kafka.restore_preferred_leaders(TOPIC)
    on.wait(lambda: _quota(on) == even, "the quota of even leaders", poll_seconds=0.02)
    return float(committed - elected)


def _quota(on: World) -> dict[str, str]:
    data, _ = on.zookeeper.get(_USER)
    return dict(json.loads(data)["config"])


def _elections(on: World) -> list[float]:
    states = [f"/brokers/topics/{TOPIC}/partitions/{partition}/state" for partition in range(3)]
    return [on.zookeeper.exists(state).last_modified for state in states]


_SETTLE_SECONDS = 20


def rest(on: World, seconds: int) -> list[Figure]:
    """Watch an operator with nothing to do for `seconds`.

    Writes are counted by what changed in ZooKeeper and in Kubernetes.
    """
    time.sleep(_SETTLE_SECONDS)
    operator = psutil.Process(on.operator.pid)
    znodes, objects = _znode_versions(on), _object_versions(on)
    share = _share_of_processor(on, seconds)
    memory = (
        sum(one.memory_info().rss for one in [operator, *operator.children(recursive=True)]) / 1e6
    )
    changed_objects = sum(
        1 for name, version in _object_versions(on).items() if objects.get(name) != version
    )
    return [
        Figure(
            f"at rest for {seconds} s: quota znodes written",
            _znode_versions(on) - znodes,
            "writes",
            0,
        ),
        Figure(
            f"at rest for {seconds} s: objects whose status was written",
            changed_objects,
            "objects",
            0,
        ),
        Figure(f"at rest for {seconds} s: processor", share, "cores", 0.02),
        Figure(f"at rest for {seconds} s: memory", memory, "MB", 160),
    ]


def _share_of_processor(on: World, seconds: int) -> float:
    operator = psutil.Process(on.operator.pid)
    busy, begun = _processor_seconds(operator), time.monotonic()
    time.sleep(seconds)
    return (_processor_seconds(operator) - busy) / (time.monotonic() - begun)


def _processor_seconds(operator: psutil.Process) -> float:
    times = [one.cpu_times() for one in [operator, *operator.children(recursive=True)]]
    return sum(one.user + one.system for one in times)


def _znode_versions(on: World) -> int:
    """The number of quota notifications ever made: every write of a quota sends one."""
    return int(on.zookeeper.exists("/config/changes").cversion)


def _object_versions(on: World) -> dict[str, str]:
    listed = on.listed("brokerbandwidthpolicies") + on.listed("businesstiers")
    return {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in listed}
