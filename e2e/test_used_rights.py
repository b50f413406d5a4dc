"""After all other scenarios: was every right that the chart grants made use of? What was never used
should not be granted.
"""

from __future__ import annotations

import json

import pytest

from e2e.cluster import Cluster
from e2e.release import NAMESPACE, Release
from e2e.rights import asked, calls_of_operator, granted, was_refused
from lab.kubernetes.kind import KindLab

# An object is read back when somebody else's write came between, by the same code for each kind:
# which kinds that hits is chance.
_READ_BACK = {
    ("tidegate.io", kind, "get")
    for kind in (
        "brokerbandwidthpolicies",
        "businesstiers",
        "quotaoverrides",
        "bandwidthbudgets",
    )
}
# Read only for policies whose tiers may live in other namespaces.
_FOR_OTHER_NAMESPACES = {("", "namespaces", "get")}
# Rights in namespaces with rollups; an upgrade that ends those takes the rights away a moment
# before the Pods that made use of them.
_FOR_ROLLUPS = {
    ("", "configmaps", "get"),
    ("", "persistentvolumeclaims", "get"),
    *(("batch", "jobs", verb) for verb in ("list", "create", "delete")),
}
# The same in namespaces with delay queues; test_delay_queues.py looks at these itself.
_FOR_QUEUES = {
    *(("tidegate.io", "delayqueues", verb) for verb in ("list", "watch")),
    ("tidegate.io", "delayqueues/status", "patch"),
    *(("apps", "deployments", verb) for verb in ("get", "patch")),
    *(("policy", "poddisruptionbudgets", verb) for verb in ("get", "patch")),
}


@pytest.mark.usefixtures("scene")
def test_every_granted_right_was_needed(kubernetes: Cluster, release: Release) -> None:
    if not isinstance(kubernetes, KindLab):
        pytest.skip("only the API servers of the lab write down who asked for what")
    calls = calls_of_operator(kubernetes)
    roles = [
        json.loads(kubernetes.kubectl("get", *role, "-o", "json"))
        for role in (
            ("clusterrole", "tidegate"),
            ("role", "tidegate-leases", f"--namespace={NAMESPACE}"),
        )
    ]

    all_granted = {right for role in roles for right in granted(role)}
    used = {asked(call) for call in calls}
    assert release.restarts() == 0
    assert used & _READ_BACK
    assert all_granted - used - _READ_BACK - _FOR_OTHER_NAMESPACES == set()
    # Granted and refused all the same: in a namespace that is going, and by an API server that was
    # just killed and knows no role yet.
    refused = {asked(call) for call in calls if was_refused(call)}
    assert refused - all_granted - _FOR_ROLLUPS - _FOR_QUEUES == set()
