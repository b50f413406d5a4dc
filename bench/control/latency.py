"""How long the whole operator takes, and what it costs at rest.

Measured are many contracts at once, one changed contract, and a killed broker. Ends are taken from
ZooKeeper's own modification times where it has them, in whole milliseconds.
"""

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import psutil

from bench.control.world import (
    GROUP,
    NAMESPACE,
    POLICY,
    TIERS,
    TOPIC,
    VERSION,
    OnKubernetes,
    World,
    policy,
    tier,
)
from bench.results import Figure, percentile
from lab.process import wait_until

_TIMEOUT_SECONDS = 120
_USER = "/config/users/user-0"
_BOUNDS_SECONDS = {1000: 3.0, 5000: 12.0}


def cold(on: World, entities: int, *, deletion: str = "Retain") -> list[Figure]:
    """Until `entities` contracts in ten tiers are in ZooKeeper and in status, from nothing.

    The tiers exist already; the clock starts when the policy is created, and stops when every quota
    is committed and every status has it.
    """
    for number in range(TIERS):
        on.create("businesstiers", tier(number, entities))
    started = time.time()
    on.create("brokerbandwidthpolicies", policy(on.kafka, deletion))
    _wait(
        on, lambda: _committed(on) >= entities, f"{entities} quotas in ZooKeeper", poll_seconds=0.02
    )
    committed = time.time() - started
    _wait(on, lambda: policy_reports(on, entities), "the policy's status", poll_seconds=0.05)
    for number in range(TIERS):
        _wait(on, partial(tier_reports, on, f"tier-{number}"), "every status", poll_seconds=0.05)
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


def policy_reports(on: OnKubernetes, entities: int) -> bool:
    """Whether the policy's status has all `entities` in sync.

    The tiers are asked one by one, and only afterwards: they are large, and to list them all the
    time is half of the server's work.
    """
    policy_now = on.read("brokerbandwidthpolicies", POLICY)
    return (
        _is_ready(policy_now) and policy_now["status"].get("quotas", {}).get("inSync") == entities
    )


def tier_reports(on: OnKubernetes, name: str) -> bool:
    return _is_ready(on.read("businesstiers", name))


def _is_ready(resource: dict[str, Any]) -> bool:
    conditions = resource.get("status", {}).get("conditions", [])
    return any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )


_JSON_PATCH = "application/json-patch+json"
_P99_BOUND_MILLISECONDS = 500.0
_CHANGES = "/config/changes"
_RAISE = 1_000


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
    return _figures(what, _measure(on, changes), None)


def changes_at_rest(on: World, changes: int) -> list[Figure]:
    """Changes in a cluster where nothing was changed for 15 minutes.

    Each is sent once the status shows the one before.
    """
    _let_notifications_expire(on)
    return _figures(
        "one changed contract to committed quota", _measure(on, changes), _P99_BOUND_MILLISECONDS
    )


def changes_in_a_row(on: World, changes: int) -> list[Figure]:
    """The same, each sent as soon as the one before is committed."""
    _let_notifications_expire(on)
    return _figures(
        "one changed contract to committed quota, one right after the other",
        _measure(on, changes, wait_for_status=False),
        None,
    )


def _figures(what: str, latencies: list[float], p99_bound: float | None) -> list[Figure]:
    return [
        Figure(f"{what}, P50 of {len(latencies)}", percentile(latencies, 50), "ms", None),
        Figure(f"{what}, P99 of {len(latencies)}", percentile(latencies, 99), "ms", p99_bound),
    ]


def _let_notifications_expire(on: World) -> None:
    """Remove what every broker has read by now, as Kafka itself does when it is 15 minutes old."""
    time.sleep(10)
    for name in on.zookeeper.get_children(_CHANGES):
        on.zookeeper.delete(f"{_CHANGES}/{name}")


def _measure(on: World, changes: int, *, wait_for_status: bool = True) -> list[float]:
    """Milliseconds of each change."""
    latencies = []
    for _ in range(changes):
        rate = int(_tier(on)["spec"]["members"][0]["contract"]["perPartition"]["produce"]) + _RAISE
        latencies.append(_change(on, rate) * 1000)
        if wait_for_status:
            _wait(
                on, partial(_is_in_status, on, rate), "the status of the change", poll_seconds=0.1
            )
    return latencies


def _change(on: World, rate: int) -> float:
    """Seconds from before the patch is sent until the commit."""
    before = on.zookeeper.exists(_USER).mzxid
    patch = [
        {
            "op": "replace",
            "path": "/spec/members/0/contract/perPartition/produce",
            "value": str(rate),
        }
    ]
    started = time.time()
    on.objects.patch_namespaced_custom_object(
        GROUP, VERSION, NAMESPACE, "businesstiers", "tier-0", patch, _content_type=_JSON_PATCH
    )
    _wait(
        on,
        lambda: on.zookeeper.exists(_USER).mzxid != before,
        "the changed quota",
        poll_seconds=0.01,
    )
    return float(on.zookeeper.exists(_USER).last_modified) - started


def _is_in_status(on: World, rate: int) -> bool:
    return bool(_tier(on)["status"]["members"][0].get("quota", {}).get("produce") == rate)


def _tier(on: World) -> dict[str, Any]:
    return on.read("businesstiers", "tier-0")


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
    _wait(on, lambda: on.zookeeper.exists(_USER) is not None, "the first quota", poll_seconds=0.02)
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
    _wait(on, lambda: _quota(on) != even, "the corrected quota", poll_seconds=0.02)
    committed = on.zookeeper.exists(_USER).last_modified
    elected = max(changed for changed in _elections(on) if changed <= committed)
    broker.start()
    on.kafka.restore_preferred_leaders(TOPIC)
    _wait(on, lambda: _quota(on) == even, "the quota of even leaders", poll_seconds=0.02)
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


def _wait(on: World, condition: Callable[[], object], what: str, *, poll_seconds: float) -> None:
    wait_until(
        condition,
        what,
        timeout_seconds=_TIMEOUT_SECONDS,
        processes=[on.operator],
        poll_seconds=poll_seconds,
    )
