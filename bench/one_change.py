"""How long from one changed contract, sent to the Kubernetes API, to the committed ZooKeeper transaction, in a world of many contracts.

The end is ZooKeeper's own modification time of the quota's znode, in whole milliseconds. Every change is a raise of one member.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from bench.control.world import GROUP, NAMESPACE, VERSION, World
from bench.results import Figure, percentile
from lab.process import wait_until

_TIMEOUT_SECONDS = 20
_JSON_PATCH = "application/json-patch+json"
_P99_BOUND_MILLISECONDS = 500.0
_CHANGES = "/config/changes"
_USER = "/config/users/user-0"
_RAISE = 1_000


def changes_after_cold(on: World, changes: int) -> list[Figure]:
    """Changes in the quarter of an hour after a cold start: with every change, each broker reads all notifications of that again."""
    count = len(on.zookeeper.get_children(_CHANGES))
    what = f"one changed contract to committed quota, with {count} notifications of the last 15 minutes"
    return _figures(what, _measure(on, changes), None)


def changes_at_rest(on: World, changes: int) -> list[Figure]:
    """Changes in a cluster where nothing was changed for 15 minutes, each sent once the status tells the one before."""
    _let_notifications_expire(on)
    return _figures("one changed contract to committed quota", _measure(on, changes), _P99_BOUND_MILLISECONDS)


def changes_in_a_row(on: World, changes: int) -> list[Figure]:
    """The same, each sent as soon as the one before is committed."""
    _let_notifications_expire(on)
    return _figures(
        "one changed contract to committed quota, one right after the other", _measure(on, changes, wait_for_status=False), None
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
            _wait(partial(_told, on, rate), "the status of the change", poll_seconds=0.1)
    return latencies


def _change(on: World, rate: int) -> float:
    """Seconds from before the patch is sent until the commit."""
    before = on.zookeeper.exists(_USER).mzxid
    patch = [{"op": "replace", "path": "/spec/members/0/contract/perPartition/produce", "value": rate}]
    started = time.time()
    on.objects.patch_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "businesstiers", "tier-0", patch, _content_type=_JSON_PATCH)
    _wait(lambda: on.zookeeper.exists(_USER).mzxid != before, "the changed quota", poll_seconds=0.01)
    return float(on.zookeeper.exists(_USER).last_modified) - started


def _told(on: World, rate: int) -> bool:
    return bool(_tier(on)["status"]["members"][0].get("quota", {}).get("produce") == rate)


def _tier(on: World) -> dict[str, Any]:
    return on.read("businesstiers", "tier-0")


def _wait(condition: Callable[[], object], what: str, *, poll_seconds: float) -> None:
    wait_until(condition, what, timeout_seconds=_TIMEOUT_SECONDS, poll_seconds=poll_seconds)
