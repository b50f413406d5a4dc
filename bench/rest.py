"""What the operator does when there is nothing to do: znode writes, status writes, processor and memory."""

import time

import psutil

from bench.control.world import World
from bench.results import Figure

_SETTLE_SECONDS = 20


def rest(on: World, seconds: int) -> list[Figure]:
    """Watch an operator with nothing to do for `seconds`; writes are counted by what changed in ZooKeeper and in Kubernetes."""
    time.sleep(_SETTLE_SECONDS)
    operator = psutil.Process(on.operator.pid)
    busy, znodes, objects = _processor_seconds(operator), _znode_versions(on), _object_versions(on)
    time.sleep(seconds)
    share = (_processor_seconds(operator) - busy) / seconds
    memory = sum(one.memory_info().rss for one in [operator, *operator.children(recursive=True)]) / 1e6
    changed_objects = sum(1 for name, version in _object_versions(on).items() if objects.get(name) != version)
    return [
        Figure(f"at rest for {seconds} s: quota znodes written", _znode_versions(on) - znodes, "writes", 0),
        Figure(f"at rest for {seconds} s: objects whose status was written", changed_objects, "objects", 0),
        Figure(f"at rest for {seconds} s: processor", share, "cores", 0.02),
        Figure(f"at rest for {seconds} s: memory", memory, "MB", 160),
    ]


def _processor_seconds(operator: psutil.Process) -> float:
    times = [one.cpu_times() for one in [operator, *operator.children(recursive=True)]]
    return sum(one.user + one.system for one in times)


def _znode_versions(on: World) -> int:
    """Every write of a quota sends one notification, so the number of those ever made counts the writes."""
    return int(on.zookeeper.exists("/config/changes").cversion)


def _object_versions(on: World) -> dict[str, str]:
    listed = on.listed("brokerbandwidthpolicies") + on.listed("businesstiers")
    return {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in listed}
