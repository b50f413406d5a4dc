"""How long from one changed contract, sent to the Kubernetes API, to the committed ZooKeeper transaction, in a world of many contracts.

The end is ZooKeeper's own modification time of the quota's znode, in whole milliseconds. Every change is a raise of one member, and is
sent once the status tells the one before: changes that come faster wait for the report of the last, which is one write of a tier's status.
"""

import time

from bench.figure import Figure, percentile
from bench.world import GROUP, NAMESPACE, VERSION, World
from lab.waiting import wait_until

_TIMEOUT_SECONDS = 20
_JSON_PATCH = "application/json-patch+json"
_P99_BOUND_MILLISECONDS = 500.0


def one_change(on: World, changes: int) -> list[Figure]:
    """Make `changes` changes one after the other and give P50 and P99 in milliseconds."""
    latencies = [_change(on, number) * 1000 for number in range(changes)]
    return [
        Figure(f"one changed contract to committed quota, P50 of {changes}", percentile(latencies, 50), "ms", None),
        Figure(f"one changed contract to committed quota, P99 of {changes}", percentile(latencies, 99), "ms", _P99_BOUND_MILLISECONDS),
    ]


def _change(on: World, number: int) -> float:
    """Seconds from sending the patch to the commit."""
    path = "/config/users/user-0"
    before = on.zookeeper.exists(path).mzxid
    rate = 1_500_000 + 1000 * number
    patch = [{"op": "replace", "path": "/spec/members/0/contract/perPartition/produce", "value": rate}]
    started = time.time()
    on.objects.patch_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "businesstiers", "tier-0", patch, _content_type=_JSON_PATCH)
    wait_until(lambda: on.zookeeper.exists(path).mzxid != before, "the changed quota", timeout_seconds=_TIMEOUT_SECONDS, poll_seconds=0.01)
    latency = float(on.zookeeper.exists(path).last_modified) - started
    wait_until(lambda: _told(on, rate), "the status of the change", timeout_seconds=_TIMEOUT_SECONDS, poll_seconds=0.1)
    return latency


def _told(on: World, rate: int) -> bool:
    changed = on.objects.get_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "businesstiers", "tier-0")
    return bool(changed["status"]["members"][0].get("quota", {}).get("produce") == rate)
