"""How long until many contracts are in ZooKeeper and in status, when nothing was written before.

The tiers exist already; the clock starts when the policy is created and stops when every quota is committed and every status says so.
"""

import time
from functools import partial
from typing import Any

from bench.control.world import POLICY, TIERS, World, policy, tier
from bench.results import Figure
from lab.process import wait_until

_TIMEOUT_SECONDS = 120
_BOUNDS_SECONDS = {1000: 3.0, 5000: 12.0}


def cold(on: World, entities: int) -> list[Figure]:
    """Create everything for `entities` users in ten tiers and measure both times."""
    for number in range(TIERS):
        on.create("businesstiers", tier(number, entities))
    patience: dict[str, Any] = {"timeout_seconds": _TIMEOUT_SECONDS, "processes": [on.operator]}
    started = time.time()
    on.create("brokerbandwidthpolicies", policy(on.kafka))
    wait_until(lambda: _committed(on) >= entities, f"{entities} quotas in ZooKeeper", poll_seconds=0.02, **patience)
    committed = time.time() - started
    wait_until(lambda: _policy_reports(on, entities), "the policy's status", poll_seconds=0.05, **patience)
    for number in range(TIERS):
        wait_until(partial(_tier_reports, on, f"tier-{number}"), "every status", poll_seconds=0.05, **patience)
    reported = time.time() - started
    what = f"{entities} contracts in {TIERS} tiers, cold, {len(on.kafka.brokers)} broker(s) on the same machine"
    return [
        Figure(f"{what}: all committed", committed, "s", None),
        Figure(f"{what}: all committed and in status", reported, "s", _BOUNDS_SECONDS.get(entities)),
    ]


def _committed(on: World) -> int:
    return len(on.zookeeper.get_children("/config/users"))


def _policy_reports(on: World, entities: int) -> bool:
    """The tiers are asked one by one, and only afterwards: they are large, and to list them all the time is half of the server's work."""
    policy_now = on.read("brokerbandwidthpolicies", POLICY)
    return _is_ready(policy_now) and policy_now["status"].get("quotas", {}).get("inSync") == entities


def _tier_reports(on: World, name: str) -> bool:
    return _is_ready(on.read("businesstiers", name))


def _is_ready(resource: dict[str, Any]) -> bool:
    conditions = resource.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
